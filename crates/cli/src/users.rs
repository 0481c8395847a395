//! Which processes keep a mount from being unmounted, as far as /proc tells this user. No file system is asked: a
//! daemon that does not answer would not let this end.

use medfs_device::holder::Process;
use medfs_device::mounts::mounts;
use medfs_device::quote::{self, hint};
use rustix::process::geteuid;
use std::path::{Path, PathBuf};

/// Processes that are named.
const NAMED: usize = 5;

/// That a mount is in use, by whom, and what to do.
pub(crate) fn in_use(dir: &Path) -> String {
    let shown = dir.display();
    let inside = |on: &Path| on != dir && on.starts_with(dir);
    if let Some(mount) = mounts(None).unwrap_or_default().into_iter().find(|mount| inside(&mount.on)) {
        let umount = hint(format_args!("umount {}", quote::path(&mount.on)));
        return format!("{shown} is in use: {} is mounted in it, {umount} comes first", mount.on.display());
    }
    let users: Vec<Process> = pids().filter(|pid| uses(*pid, dir)).map(Process::of).collect();
    let way = "close its files and leave its directories first";
    if users.is_empty() {
        let sudo = if geteuid().is_root() { "" } else { "sudo " };
        let names = hint(format_args!("{sudo}fuser -vm {}", quote::path(dir)));
        return format!("{shown} is in use: {way} ({names} shows by whom)");
    }
    let name = |Process { pid, command }: &Process| format!("{command} (process {pid})");
    let mut names: Vec<String> = users.iter().take(NAMED).map(name).collect();
    if users.len() > NAMED {
        names.push(format!("{} more", users.len() - NAMED));
    }
    let last = names.pop().unwrap_or_default();
    let by = if names.is_empty() { last } else { format!("{} and {last}", names.join(", ")) };
    format!("{shown} is in use by {by}: {way}")
}

fn pids() -> impl Iterator<Item = u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process has something below a directory open, mapped, or as one of its directories.
fn uses(pid: u32, dir: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let leads = |link: &Path| std::fs::read_link(link).is_ok_and(|to| to.starts_with(dir));
    let is_mapped = || {
        let maps = std::fs::read_to_string(process.join("maps")).unwrap_or_default();
        maps.lines()
            .filter_map(|line| line.find('/').map(|at| &line[at..]))
            .any(|path| Path::new(path).starts_with(dir))
    };
    let files = || std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    ["cwd", "root", "exe"].iter().any(|name| leads(&process.join(name)))
        || files().any(|file| leads(&file.path()))
        || is_mapped()
}
