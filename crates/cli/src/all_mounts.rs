//! What a mounted volume is told, or with `--all` every one that this system has mounted: units of systemd and udev
//! know of no directories.
//!
//! Invariant: none of the volumes keeps another one waiting. Each has a thread of its own, and one that does not answer
//! is left behind.

use crate::{abandoned, exit};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use medfs_device::mounts::{MountEntry, mounts};
use medfs_fuse::control;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long all volumes together are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which mounted volumes a command reaches.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct OneOrAll {
    /// Directory of a mounted volume
    #[arg(value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// All mounted volumes: for root, those of other users and of containers too
    #[arg(long)]
    all: bool,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
#[command(override_usage = "medfs sync <DIR|--all|--app PATH>")]
pub(crate) struct SyncArgs {
    /// Directory of a mounted volume
    #[arg(value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// All mounted volumes: for root, those of other users and of containers too
    #[arg(long)]
    all: bool,
    /// Only the app that this file or directory of a mounted volume belongs to: what other apps wrote may stay in
    /// memory where the mount has durability=adaptive and apps=, and is written too where it has not
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    app: Option<PathBuf>,
}

/// How one volume is told; the words that are this program's command line for it.
type Tell = (fn(&Path) -> Result<()>, &'static [&'static str]);

impl OneOrAll {
    /// Tells the volume, or all. Of all, each that could not be told is named, and the others are told all the same.
    pub(crate) fn tell(&self, how: Tell) -> Result<u8> {
        let Some(dir) = &self.dir else { return tell_all(how) };
        how.0(dir)?;
        Ok(exit::SUCCESS)
    }
}

fn tell_all(how: Tell) -> Result<u8> {
    let volumes = volumes()?;
    let (told, results) = mpsc::channel();
    for (number, volume) in volumes.iter().cloned().enumerate() {
        let told = told.clone();
        // One that does not answer keeps its thread, which ends with this process.
        thread::spawn(move || told.send((number, volume.tell(how))));
    }
    let (mut code, end) = (exit::SUCCESS, Instant::now() + PATIENCE);
    let mut waiting: Vec<Option<&Volume>> = volumes.iter().map(Some).collect();
    while waiting.iter().any(Option::is_some) {
        let Ok((number, result)) = results.recv_timeout(end.saturating_duration_since(Instant::now())) else {
            break;
        };
        waiting[number] = None;
        if let Err(error) = result {
            errln!("medfs {}: {}", how.1[0], naming(&volumes[number].name, exit::sentence(&error)));
            code = exit::FAILURE;
        }
    }
    for volume in waiting.into_iter().flatten() {
        errln!("medfs {}: {}: its daemon does not answer", how.1[0], volume.name.display());
        code = exit::FAILURE;
    }
    Ok(code)
}

/// A sentence that names the directory it is about.
fn naming(dir: &Path, sentence: String) -> String {
    let name = dir.display().to_string();
    if sentence.contains(&name) { sentence } else { format!("{name}: {sentence}") }
}

/// A mounted volume.
#[derive(Debug, Clone)]
struct Volume {
    /// What messages call it.
    name: PathBuf,
    device: (u32, u32),
    /// The user and group that the kernel lets in alone.
    owner: Option<(u32, u32)>,
    /// Where it is mounted, whole or in part. Something else may be mounted over it there.
    places: Vec<PathBuf>,
}

impl Volume {
    /// Tells it by the first place that shows it, and as its owner where only that one is let in.
    fn tell(&self, (one, words): Tell) -> Result<()> {
        let mut shown: Vec<_> =
            self.places.iter().filter(|place| device(place) == Some(self.device)).collect();
        // A bind mount may be of a file alone, by which the daemon is not found.
        shown.sort_by_key(|place| !is_directory(place));
        let Some(place) = shown.first() else { bail!("something else is mounted over it: it was not told") };
        let is_denied =
            || fs::read_dir(place).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        match self.owner.filter(|&(user, _)| user != 0 && geteuid().is_root() && is_denied()) {
            Some(owner) => tell_as(owner, words, place),
            None => one(place),
        }
    }
}

/// The number of the file system that a path leads to, which is told also to those that are not let in.
fn device(path: &Path) -> Option<(u32, u32)> {
    let stat = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

/// The mounted volumes that this process sees; of root, those in other mount name spaces too.
fn volumes() -> Result<Vec<Volume>> {
    let mut volumes = BTreeMap::new();
    add(&mut volumes, mounts(None).context("reading the list of mounts")?, Path::new("/"));
    if geteuid().is_root() {
        for process in other_name_spaces() {
            let root = PathBuf::from(format!("/proc/{process}/root"));
            add(&mut volumes, mounts(Some(process)).unwrap_or_default(), &root);
        }
    }
    Ok(volumes.into_values().collect())
}

/// Adds the mounts of volumes in a list, as seen below a root.
fn add(volumes: &mut BTreeMap<(u32, u32), Volume>, list: Vec<MountEntry>, root: &Path) {
    // The last one on a directory hides the others.
    for mount in list.into_iter().rev().filter(MountEntry::is_medfs) {
        let MountEntry { on, device, owner, .. } = mount;
        let place = root.join(on.strip_prefix("/").unwrap_or(&on));
        let volume =
            volumes.entry(device).or_insert_with(|| Volume { name: on, device, owner, places: Vec::new() });
        volume.places.push(place);
    }
}

/// Whether a place is a directory, as far as that is told without its daemon. A user's mount tells root nothing.
fn is_directory(place: &Path) -> bool {
    match statx(CWD, place, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE) {
        Ok(stat) => FileType::from_raw_mode(stat.stx_mode.into()).is_dir(),
        Err(error) => error == Errno::ACCESS,
    }
}

/// A process of each mount name space but this one's.
fn other_name_spaces() -> Vec<u32> {
    let name_space = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
    let mut seen: HashSet<_> = name_space("self").into_iter().collect();
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let processes = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    processes
        .filter(|process| name_space(&process.to_string()).is_some_and(|space| seen.insert(space)))
        .collect()
}

/// Tells a volume as its owner: FUSE lets nobody else in.
fn tell_as((user, group): (u32, u32), words: &[&str], dir: &Path) -> Result<()> {
    let mut command = Command::new("/proc/self/exe");
    let said = command
        .args(words)
        .arg("--")
        .arg(dir)
        .uid(user)
        .gid(group)
        .output()
        .context("running this program")?;
    if said.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&said.stderr);
    bail!(
        "as the user who mounted it: {}",
        reason.trim().trim_start_matches(&format!("medfs {}: ", words[0]))
    )
}

/// `medfs sync`
pub(crate) fn sync(args: SyncArgs) -> Result<u8> {
    fn one(dir: &Path) -> Result<()> {
        reach(dir)?;
        Ok(control::sync(dir)?)
    }
    let Some(path) = &args.app else {
        return OneOrAll { dir: args.dir, all: args.all }.tell((one, &["sync"]));
    };
    reach(path)?;
    control::sync_app(path)?;
    Ok(exit::SUCCESS)
}

/// Fails where no daemon answers for a path, or another user's does.
fn reach(path: &Path) -> Result<()> {
    abandoned::refuse(path)?;
    abandoned::refuse_foreign(path)
}
