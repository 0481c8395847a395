//! A run on a mounted volume: SQLite in one process, the daemon in another.

use super::outcome::{Crash, Outcome, Written};
use super::{Configuration, fsck_is_clean, sqlite};
use crate::args::{DemoArgs, MountArgs};
use crate::mount::{is_ready, spawn_daemon};
use crate::progress;
use crate::undo::Undo;
use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use serde::Deserialize;
use sqlite::{Client, Run};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Instant;

/// What is read of the daemon's statistics.
#[derive(Deserialize, Default, Clone, Copy)]
struct Stats {
    written: Written,
    flushes: u64,
    deltas: Deltas,
}

#[derive(Deserialize, Default, Clone, Copy)]
struct Deltas {
    made: u64,
    bytes: u64,
}

/// Whether this process may mount through FUSE.
pub(super) fn is_possible() -> bool {
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    let helper = || {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join("fusermount3").is_file())
    };
    device && (rustix::process::geteuid().is_root() || helper())
}

/// Options of every mount. It will be killed: not over io_uring, where that can wedge the kernel (README of
/// the fuse crate). Nothing is written by a timer, so that it hardly matters how fast the machine is. Times
/// of files come from the kernel's clock, which stands still within a tick: a second fsync within one has no
/// new time to write.
const ON_ALL: &str = "transport=dev,commit=86400s,idle=86400s";

/// A mounted volume whose daemon is a child of ours. It goes with this.
struct Mount {
    daemon: Child,
    dir: PathBuf,
    undo: Undo,
}

impl Mount {
    fn new(configuration: &Configuration, image: &Path, dir: &Path) -> Result<Mount> {
        let args = MountArgs {
            image: image.to_owned(),
            dir: dir.to_owned(),
            options: vec![configuration.options.to_owned(), ON_ALL.to_owned()],
            read_only: false,
            foreground: false,
            log: None,
            daemon: false,
        };
        let mut daemon = spawn_daemon(&args)?;
        let undo = Undo::new(end(&daemon, dir)?);
        if !is_ready(&mut daemon)? {
            daemon.wait()?;
            bail!("the volume could not be mounted; --no-mount drives the library without mounting");
        }
        Ok(Mount { daemon, dir: dir.to_owned(), undo })
    }

    /// Statistics once everything written so far is on the device.
    fn stats(&self) -> Result<Stats> {
        medfs_fuse::control::sync(&self.dir)?;
        Ok(serde_json::from_str(&medfs_fuse::control::stats_json(&self.dir)?)?)
    }

    /// Processor time of the daemon.
    fn processor_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.daemon.id()))?;
        // Behind the name, which may hold anything: 11 fields, then the time in user space and in the kernel.
        let (_, rest) = stat.rsplit_once(')').context("the daemon's /proc/PID/stat")?;
        let ticks: u64 = rest.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// SIGKILL.
    fn kill(&mut self) -> Result<()> {
        self.daemon.kill().context("cannot kill the daemon")?;
        self.daemon.wait()?;
        Ok(())
    }

    /// Unmounts; the daemon, where it lives, ends with it.
    fn unmount(mut self) -> Result<()> {
        medfs_fuse::control::unmount(&self.dir)?;
        self.daemon.wait()?;
        self.undo.disarm();
        Ok(())
    }
}

/// What leaves neither a daemon nor a mount behind, where something went wrong before.
fn end(daemon: &Child, dir: &Path) -> Result<impl FnOnce() + Send + 'static> {
    // By descriptor: its number may be another process's by then.
    let daemon =
        pidfd_open(Pid::from_child(daemon), PidfdFlags::empty()).context("cannot watch the daemon")?;
    let dir = dir.to_owned();
    Ok(move || {
        let _ = pidfd_send_signal(&daemon, Signal::KILL);
        let _ = waitid(WaitId::PidFd(daemon.as_fd()), WaitIdOptions::EXITED);
        let _ = medfs_fuse::control::unmount(&dir);
    })
}

/// Runs one configuration.
pub(super) fn run(
    configuration: &Configuration,
    journal: &str,
    image: &Path,
    folder: &Path,
    args: &DemoArgs,
) -> Result<Outcome> {
    let dir = folder.join("mounted");
    std::fs::create_dir_all(&dir)?;
    let database = dir.join("states.db");
    let mount = Mount::new(configuration, image, &dir)?;

    // The first client makes the tables; what that costs is not measured.
    finished(
        Client::start(&database, journal, args, Run { transactions: 1, extra: false })?,
        &ProgressBar::hidden(),
    )?;
    let before = mount.stats()?;
    let (start, processor) = (Instant::now(), mount.processor_seconds()?);
    let bar = progress::steps("transactions", u64::from(args.transactions));
    let measured = finished(
        Client::start(&database, journal, args, Run { transactions: args.transactions, extra: false })?,
        &bar,
    )?;
    let after = mount.stats()?;
    let seconds = start.elapsed().as_secs_f64();
    let processor_seconds = mount.processor_seconds()? - processor + measured.processor_seconds;

    let acknowledged = kill_in_the_middle(mount, &database, journal, args)?;
    let start = Instant::now();
    let mount = Mount::new(configuration, image, &dir)?;
    let recovery_seconds = start.elapsed().as_secs_f64();
    let (found, integrity) = sqlite::judge(&database, journal)?;
    mount.unmount()?;

    let written_blocks = after.written.since(before.written);
    let transactions = u64::from(args.transactions);
    Ok(Outcome {
        journal_mode: Some(journal.to_owned()),
        configuration: configuration.name,
        transactions,
        seconds,
        processor_seconds,
        payload_bytes: sqlite::payload_bytes(transactions),
        database_bytes: measured.written,
        written_blocks,
        written_bytes: written_blocks.bytes(),
        flushes: after.flushes - before.flushes,
        delta_pages: after.deltas.made - before.deltas.made,
        delta_bytes: after.deltas.bytes - before.deltas.bytes,
        crash: Crash {
            acknowledged,
            found,
            lost: acknowledged.saturating_sub(found),
            recovery_seconds,
            integrity,
            fsck_clean: fsck_is_clean(image)?,
        },
    })
}

fn finished(client: Client, bar: &ProgressBar) -> Result<sqlite::Progress> {
    let (progress, errors) = client.follow(|_| {
        bar.inc(1);
        Ok(())
    })?;
    bar.finish_and_clear();
    if !progress.finished {
        bail!("the database client failed: {errors}");
    }
    Ok(progress)
}

/// Lets a client run, kills the daemon between two of its acknowledgements, and returns the last one.
fn kill_in_the_middle(mut mount: Mount, database: &Path, journal: &str, args: &DemoArgs) -> Result<u64> {
    let client =
        Client::start(database, journal, args, Run { transactions: args.transactions, extra: true })?;
    let mut acks = 0;
    let (progress, _) = client.follow(|_| {
        acks += 1;
        if acks == args.transactions / 2 { mount.kill() } else { Ok(()) }
    })?;
    if progress.finished {
        bail!("the client finished although the daemon was killed");
    }
    mount.unmount().context("cannot unmount the killed daemon's mount")?;
    Ok(progress.acknowledged)
}
