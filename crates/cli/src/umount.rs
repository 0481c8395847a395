//! `medfs umount` and `umount.fuse.medfs`: reach the daemon of a mounted volume.
//!
//! umount(2) returns before the daemon of a plain FUSE mount has written its last checkpoint. So this waits
//! for the daemon's end, and hears from it how that went ([`Outcome`]). umount(8) calls the helper for mounts
//! of our kinds.

use crate::args::UmountArgs;
use crate::outcome::Outcome;
use crate::{exit, users};
use anyhow::{Context, Result, bail};
use medfs_device::Holder;
use medfs_device::holder::{Process, in_other_namespace};
use medfs_device::mounts::{MountEntry, mounts};
use medfs_device::quote::{self, hint};
use medfs_flash::FlashTarget;
use medfs_fuse::{Error, control};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use std::ffi::OsString;
use std::fs::Metadata;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for the daemon's last checkpoint.
const CLOSE_MAX: Duration = Duration::from_secs(120);

/// Longest wait for a killed daemon to end.
const DYING_MAX: Duration = Duration::from_secs(5);

/// A wait after which it is said what is waited for, or that it will not come.
const SHORT: Duration = Duration::from_secs(1);

/// Between two looks at a daemon.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

const USAGE: &str = "usage: umount.fuse.medfs DIR [-lfnrv] [-t type] [-N namespace]";

/// How the command ends.
pub(crate) const HELP: &str = "\
Exit codes: 0 the volume is unmounted and complete on its device, 1 the arguments
are wrong, 32 it is not unmounted, or its last writes are lost, as they failed or
its daemon had been killed.";

/// What is to be unmounted, and how.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// The directory it is mounted on, or what is mounted there.
    dir: PathBuf,
    /// At once, though it may be in use; its end is not waited for.
    lazy: bool,
    /// Whoever uses it gets errors.
    force: bool,
}

/// `medfs umount`: returns when the volume is complete on its device.
pub(crate) fn run(args: &UmountArgs) -> Result<u8> {
    unmount(&Wanted { dir: args.target.clone(), ..Wanted::default() })
}

/// Called by umount(8): `umount.fuse.medfs DIR [-lfnrv] [-t type] [-N namespace]`.
pub(crate) fn helper(args: &[OsString]) -> u8 {
    match helper_args(&args[1..]) {
        Ok(Some(wanted)) => exit::run("umount", exit::MOUNT_FAILURE, || unmount(&wanted)),
        Ok(None) => exit::SUCCESS,
        Err(error) => exit::run("umount", exit::MOUNT_USAGE, || Err(error)),
    }
}

/// `None`: help is asked for.
fn helper_args(args: &[OsString]) -> Result<Option<Wanted>> {
    let mut wanted = Wanted::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.to_str() {
            Some("-h" | "--help") => {
                outln!("{USAGE}");
                return Ok(None);
            }
            Some("-N" | "-t") => {
                rest.next();
            }
            Some(flags) if flags.starts_with('-') && flags.len() > 1 => {
                for flag in flags[1..].chars() {
                    match flag {
                        'l' => wanted.lazy = true,
                        'f' => wanted.force = true,
                        'n' | 'r' | 'v' => {}
                        _ => bail!("unknown flag -{flag}; {USAGE}"),
                    }
                }
            }
            _ if wanted.dir.as_os_str().is_empty() => wanted.dir = arg.into(),
            _ => bail!("more than one directory; {USAGE}"),
        }
    }
    if wanted.dir.as_os_str().is_empty() {
        bail!("a directory is needed; {USAGE}");
    }
    Ok(Some(wanted))
}

fn unmount(wanted: &Wanted) -> Result<u8> {
    let mount = find(&wanted.dir)?;
    // This program keeps no directory of the volume in use.
    let _ = std::env::set_current_dir("/");
    let dir = mount.on.display();
    let mut daemon = Daemon::of(&mount, None);
    let mut had_ended = daemon.is_none() && control::is_abandoned(&mount.on);
    if daemon.as_ref().is_some_and(|daemon| daemon.process.is_dying()) {
        let killed = daemon.take();
        had_ended = true;
        if !killed.is_some_and(|killed| killed.ends_within(DYING_MAX)) {
            // It cannot end: unmounting would wait for it.
            abort(&mount)?;
        }
    }
    if wanted.force {
        abort(&mount)?;
    }
    let told = if wanted.force || wanted.lazy { Told::default() } else { Told::by(&mount.on) };
    if told.process.is_some() {
        // A device may have several readers.
        daemon = Daemon::of(&mount, told.process);
    }
    if let Some(gone) = &told.gone {
        bail!("{}", only_here(&mount, gone));
    }
    if wanted.lazy {
        control::unmount_lazy(&mount.on)?;
        return Ok(exit::SUCCESS);
    }
    control::unmount(&mount.on).map_err(|error| who_may(error, &mount))?;
    let elsewhere = mounts(None).unwrap_or_default().into_iter().find(|other| other.device == mount.device);
    if let Some(other) = elsewhere {
        errln!("medfs umount: the volume is still mounted on {}", other.on.display());
        return Ok(exit::SUCCESS);
    }
    let ended = daemon.map_or(Ok(()), |daemon| daemon.finish(&mount));
    if let Some(failure) = told.failure {
        bail!("{dir} is unmounted, but the last writes are lost: {failure}");
    }
    ended.with_context(|| format!("{dir} is unmounted, but the last writes may be lost"))?;
    if had_ended && !mount.read_only {
        bail!(
            "{dir} is unmounted, but its daemon had ended before its last checkpoint: the next mount brings back what was durable, and what lies in the NVRAM or the survivor log, and no more"
        );
    }
    Ok(exit::SUCCESS)
}

/// Says of a mount whose image has lost its name that it is the only way to the files.
fn only_here(mount: &MountEntry, gone: &str) -> String {
    let (dir, image) = (quote::path(&mount.on), mount.source.display());
    let what = match gone {
        "removed" => format!("{image} was removed while it was mounted"),
        _ => format!("another file took the place of {image} while it was mounted"),
    };
    let copy = hint(format_args!("cp -a {dir}/. DIRECTORY"));
    let end = hint(format_args!("umount -l {dir}"));
    format!("{what}, and its files are lost with the mount: {copy} copies them, then {end} ends it")
}

/// Says of a mount that this user may not end who may, and of one that is in use who uses it.
fn who_may(error: Error, mount: &MountEntry) -> anyhow::Error {
    if matches!(error, Error::Busy(_)) {
        return anyhow::anyhow!("{}", users::in_use(&mount.on));
    }
    if !matches!(error, Error::Fusermount { .. }) || geteuid().is_root() {
        return error.into();
    }
    let command = hint(format_args!("sudo medfs umount {}", quote::path(&mount.on)));
    anyhow::anyhow!(
        "cannot unmount {}: only root and the user who mounted it may ({command})",
        mount.on.display()
    )
}

/// The mount on a directory, or of an image or a device. One whose daemon is gone cannot be asked for its name.
fn find(dir: &Path) -> Result<MountEntry> {
    if let Some(flash) = FlashTarget::parse(dir)? {
        return mount_of(&flash.path).with_context(|| format!("{} is not mounted", dir.display()));
    }
    let as_given = std::path::absolute(dir).with_context(|| format!("cannot find {}", dir.display()))?;
    if let Some(mount) = control::find_mount(&as_given)? {
        return Ok(mount);
    }
    let real = match (dir.canonicalize(), as_given.parent(), as_given.file_name()) {
        (Err(_), Some(parent), Some(name)) if control::is_abandoned(dir) => {
            parent.canonicalize().map(|parent| parent.join(name))
        }
        (real, ..) => real,
    };
    let real = real.with_context(|| format!("cannot find {}", dir.display()))?;
    let mount = control::find_mount(&real)?.or_else(|| mount_of(&real));
    mount.with_context(|| match real.is_dir() {
        true => format!("{} is not the mount point of a medfs volume", dir.display()),
        false => format!("{} is not mounted by medfs", dir.display()),
    })
}

/// Where medfs has mounted an image or a device: the last one of several mounts.
fn mount_of(image: &Path) -> Option<MountEntry> {
    let identity = |of: &Metadata| match of.file_type() {
        kind if kind.is_block_device() => (of.rdev(), None),
        _ => (of.dev(), Some(of.ino())),
    };
    let wanted = image.metadata().ok().filter(|of| !of.is_dir())?;
    let is_it = |mount: &MountEntry| {
        mount.is_medfs() && mount.device_path().metadata().is_ok_and(|of| identity(&of) == identity(&wanted))
    };
    mounts(None).ok()?.into_iter().rev().find(is_it)
}

/// Ends the connection: whoever waits for the daemon gets an error.
fn abort(mount: &MountEntry) -> Result<()> {
    control::abort_file(mount)?.write_all(b"1").context("cannot abort the FUSE connection")
}

/// What a daemon says of itself.
#[derive(Debug, Default)]
struct Told {
    /// The error after which the volume turned read-only, if it did: what is not on its device by then never
    /// will be.
    failure: Option<String>,
    process: Option<u32>,
    /// What became of the image file, where it has lost its name: `removed` or `replaced`.
    gone: Option<String>,
}

impl Told {
    fn by(dir: &Path) -> Told {
        let stats = control::stats_json(dir).ok().and_then(|json| serde_json::from_str(&json).ok());
        let stats: serde_json::Value = stats.unwrap_or_default();
        let process = stats["process"].as_u64().and_then(|pid| pid.try_into().ok());
        let gone = stats["image"].as_str().filter(|image| ["removed", "replaced"].contains(image));
        let failure = stats["failure"].as_str().map(exit::without_numbers);
        Told { failure, process, gone: gone.map(str::to_owned) }
    }
}

/// The process that serves a mount.
struct Daemon {
    process: Process,
    /// Tells its end.
    handle: Option<OwnedFd>,
    outcome: Option<Outcome>,
}

impl Daemon {
    /// The daemon of a mount, which may have told its number; `None`: it is gone, or not to be seen from here.
    fn of(mount: &MountEntry, told: Option<u32>) -> Option<Daemon> {
        let holder = || Holder::of(mount.device_path()).process;
        // The list of locks may lack one that is there where others come and go while it is read: so look twice.
        let process = told.and_then(Process::daemon).or_else(holder).or_else(holder)?;
        let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
        let handle = pidfd_open(pid, PidfdFlags::empty()).ok();
        let outcome = Outcome::of(process.pid);
        Some(Daemon { process, handle, outcome })
    }

    /// Whether it ends within some time.
    fn ends_within(&self, time: Duration) -> bool {
        let start = Instant::now();
        while !self.has_ended() {
            if start.elapsed() >= time {
                return false;
            }
        }
        true
    }

    /// Whether it has ended; waits a moment for it.
    fn has_ended(&self) -> bool {
        match &self.handle {
            Some(handle) => {
                let mut polled = [PollFd::new(handle, PollFlags::IN)];
                let moment = Timespec { tv_sec: 0, tv_nsec: LOOK_AGAIN.subsec_nanos().into() };
                poll(&mut polled, Some(&moment)).is_ok_and(|ready| ready > 0)
            }
            None => {
                std::thread::sleep(LOOK_AGAIN);
                !Path::new(&format!("/proc/{}", self.process.pid)).exists()
            }
        }
    }

    /// Whether it has let go of the device; another program than this one may go on afterwards.
    fn is_done(&self, mount: &MountEntry) -> bool {
        let has_it = || {
            let process = Holder::of(mount.device_path()).process;
            process.is_some_and(|process| process.pid == self.process.pid)
        };
        self.has_ended() || (!self.process.mounts() && !has_it())
    }

    /// Waits for its end, and says how that went.
    fn finish(&self, mount: &MountEntry) -> Result<()> {
        let start = Instant::now();
        let mut said = false;
        while !self.is_done(mount) {
            if start.elapsed() > SHORT && !said {
                said = true;
                if let Some((process, there)) = in_other_namespace(mount.device) {
                    let (on, Process { pid, command }) = (there.on.display(), process);
                    errln!(
                        "medfs umount: the volume is still mounted on {on} in the mount namespace of {command} (process {pid})"
                    );
                    return Ok(());
                }
                errln!("medfs umount: waiting for the daemon (process {}) to finish", self.process.pid);
            }
            if start.elapsed() > CLOSE_MAX {
                bail!("the daemon (process {}) still writes to {}", self.process.pid, mount.source.display());
            }
        }
        match self.outcome.as_ref().map(Outcome::said) {
            Some(Some(Err(failure))) => bail!("{failure}"),
            Some(None) => {
                bail!("the daemon (process {}) ended before its last checkpoint", self.process.pid)
            }
            Some(Some(Ok(()))) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::fs::File;
    use std::process::{Child, Command};

    /// A process that has ended but for its lock, which our `file` keeps: what a killed daemon looks like.
    fn lock_as_killed(file: &File) -> Child {
        let ours = file.try_clone().unwrap();
        let child = Command::new("flock").args(["--exclusive", "0"]).stdin(ours).spawn().unwrap();
        while !crate::watchdog::is_zombie(child.id()) {
            std::thread::sleep(LOOK_AGAIN);
        }
        child
    }

    #[test]
    fn a_killed_daemon_is_seen_by_its_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (kind, device) = ("fuse.medfs".to_owned(), (0, 1));
        let mount = MountEntry {
            on: "/nowhere".into(),
            kind,
            source: file.path().into(),
            device,
            read_only: false,
            owner: None,
        };
        assert!(Daemon::of(&mount, None).is_none());
        let mut killed = lock_as_killed(file.as_file());
        let process = Daemon::of(&mount, None).unwrap().process;
        assert_eq!((process.pid, process.is_dying()), (killed.id(), true));
        flock(file.as_file(), FlockOperation::Unlock).unwrap();
        killed.wait().unwrap();
    }

    #[test]
    fn umount8_calls() {
        let parse = |args: &[&str]| helper_args(&args.iter().map(Into::into).collect::<Vec<_>>());
        let wanted =
            parse(&["/mnt", "-n", "-v", "-t", "fuse.medfs", "-N", "/proc/1/ns/mnt"]).unwrap().unwrap();
        assert_eq!(wanted, Wanted { dir: "/mnt".into(), ..Wanted::default() });
        let wanted = parse(&["-lf", "/mnt"]).unwrap().unwrap();
        assert!(wanted.lazy && wanted.force);
        for (args, named) in [(&["/a", "/b"][..], "more than one"), (&[], "is needed"), (&["/a", "-x"], "-x")]
        {
            let error = parse(args).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
