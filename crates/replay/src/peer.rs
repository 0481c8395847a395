//! Columns on other file systems: on a loop device of this machine, in a QEMU guest, or in any directory.
//!
//! What they wrote is what the block layer counts for the device below, from when the tree was made and synced to when
//! everything was synced again.

use crate::cleanup::{Cleanup, Guard};
use crate::device::{Loop, utf8};
use crate::error::{Context, Error, Result};
use crate::guest;
use crate::process::{Scratch, run};
use crate::result::{CellResult, DeviceUse, Written};
use crate::run::{Reader, Run};
use medfs::Files;
use medfs_trace::Directory;
use medfs_trace::replay::{Progress, replay, verify_tree};
use std::path::{Path, PathBuf};

/// File systems of the kernel that run on a loop device, with the options of their mkfs.
const ON_LOOP: [(&str, &[&str]); 3] =
    [("ext4", &["-q", "-F"]), ("btrfs", &["-q", "-f"]), ("xfs", &["-q", "-f"])];

/// Judges the name of a peer.
///
/// # Errors
/// What would be one.
pub fn check(name: &str) -> std::result::Result<(), String> {
    let known = ON_LOOP.iter().any(|(peer, _)| *peer == name)
        || guest::IN_GUEST.iter().any(|(peer, ..)| *peer == name);
    if known || name.strip_prefix("dir:").is_some_and(|path| !path.is_empty()) {
        return Ok(());
    }
    Err(format!("--peers {name}: expected ext4, btrfs, xfs, f2fs, f2fs-lz4, f2fs-zstd or dir:PATH"))
}

/// Runs a peer.
pub(crate) fn column(job: &Run<'_>, name: &str) -> Result<CellResult> {
    if let Some(path) = name.strip_prefix("dir:") {
        return in_directory(job, Path::new(path));
    }
    match ON_LOOP.iter().find(|(peer, _)| *peer == name) {
        Some((fs, mkfs)) => on_loop(job, fs, mkfs),
        None => guest::column(job, name),
    }
}

/// A mounted file system; it is unmounted with this.
struct Mounted {
    dir: PathBuf,
    guard: Box<dyn Guard>,
}

impl Mounted {
    fn new(fs: &str, device: &str, dir: PathBuf, cleanup: &dyn Cleanup) -> Result<Mounted> {
        let path = utf8(&dir)?;
        run("mount", &["-t", fs, device, path])
            .context(|| format!("{fs} is not available on this machine"))?;
        let mounted = path.to_owned();
        let guard = cleanup.note(Box::new(move || {
            if let Err(error) = run("umount", &[&mounted]) {
                tracing::warn!("{error}");
            }
        }));
        Ok(Mounted { dir, guard })
    }

    fn unmount(self) -> Result<PathBuf> {
        run("umount", &[self.dir.to_str().unwrap_or_default()])?;
        self.guard.disarm();
        Ok(self.dir)
    }
}

fn on_loop(job: &Run<'_>, fs: &str, mkfs: &[&str]) -> Result<CellResult> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::refused(format!("{fs} needs root, for a loop device and a mount")));
    }
    let scratch = Scratch::new(job.scratch, job.cleanup)?;
    let image = scratch.image(job.size)?;
    let program = format!("mkfs.{fs}");
    let args = [mkfs, &[image.to_str().unwrap_or_default()]].concat();
    run(&program, &args).context(|| format!("cannot create a volume of {} MiB", job.size >> 20))?;
    let attached = Loop::attach(&image, job.cleanup)?;
    let mounted = Mounted::new(fs, &attached.device, scratch.directory("mnt")?, job.cleanup)?;
    let counters = BlockCounters::of(&attached.device)?;
    let mut reader = job.open()?;
    let (outcome, first, used) = measured(job, &mut reader, &mounted.dir, Some(&counters))?;
    // Judged by who mounts it next.
    let dir = mounted.unmount()?;
    let mounted = Mounted::new(fs, &attached.device, dir, job.cleanup)?;
    let files = Directory::open(&mounted.dir)?;
    let tree = verify_tree(&mut reader, first, &files)?;
    drop(files);
    let mut result = CellResult::new(reader.head(), reader.ending(), &outcome, tree, used);
    result.system = fs.into();
    result.device = "loop".into();
    result.volume_bytes = job.size;
    result.version = format!("Linux {}", result.machine.kernel);
    mounted.unmount()?;
    Ok(result)
}

fn in_directory(job: &Run<'_>, dir: &Path) -> Result<CellResult> {
    let dir = dir.canonicalize().context(|| format!("cannot find {}", dir.display()))?;
    let files = Directory::open(&dir).context(|| format!("cannot open {}", dir.display()))?;
    if !medfs_trace::tree::names(&files, files.root())?.is_empty() {
        return Err(Error::refused(format!(
            "{} is not empty: a replay begins in an empty directory",
            dir.display()
        )));
    }
    drop(files);
    let (fs, source) = mount_of(&dir)?;
    let counters = BlockCounters::of(&source).ok();
    let mut reader = job.open()?;
    let (outcome, first, used) = measured(job, &mut reader, &dir, counters.as_ref())?;
    let tree = verify_tree(&mut reader, first, &Directory::open(&dir)?)?;
    let mut result = CellResult::new(reader.head(), reader.ending(), &outcome, tree, used);
    result.system = fs;
    result.device = source;
    result.version = format!("Linux {}", result.machine.kernel);
    Ok(result)
}

type Measured = (medfs_trace::replay::Outcome, Option<medfs_trace::record::TreeEntry>, DeviceUse);

/// Replays in a directory, and counts what reaches the device meanwhile.
fn measured(
    job: &Run<'_>,
    reader: &mut Reader,
    dir: &Path,
    counters: Option<&BlockCounters>,
) -> Result<Measured> {
    let files = Directory::open(dir).context(|| format!("cannot open {}", dir.display()))?;
    let now = || counters.map_or_else(Counts::default, BlockCounters::read);
    let (start, mut ready) = (now(), Counts::default());
    let (outcome, first) = replay(reader, &files, None, &job.options, &mut |progress| {
        match progress {
            Progress::Ready => {
                files
                    .sync()
                    .map_err(|source| medfs_trace::Error::Files { what: "cannot sync".into(), source })?;
                ready = now();
            }
            Progress::At(bytes) => (job.at)(bytes),
        }
        Ok(())
    })?;
    files.sync().context(|| "cannot sync the file system".into())?;
    let end = now();
    let used = DeviceUse {
        written: Written { total: end.written - ready.written, ..Written::default() },
        setup_written: ready.written - start.written,
        read: end.read - ready.read,
        flushes: end.flushes - ready.flushes,
    };
    Ok((outcome, first, used))
}

/// The kind of file system a directory is on, and its device.
fn mount_of(dir: &Path) -> Result<(String, String)> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")
        .context(|| "cannot read the list of mounts".into())?;
    let mut best: Option<(usize, String, String)> = None;
    for line in mounts.lines() {
        let Some((place, what)) = line.split_once(" - ") else { continue };
        let (Some(on), mut what) = (place.split(' ').nth(4), what.split(' ')) else { continue };
        let (Some(fs), Some(source)) = (what.next(), what.next()) else { continue };
        if dir.starts_with(on) && best.as_ref().is_none_or(|(len, ..)| *len <= on.len()) {
            best = Some((on.len(), fs.to_owned(), source.to_owned()));
        }
    }
    best.map(|(_, fs, source)| (fs, source)).ok_or_else(|| Error::refused("the directory is on no mount"))
}

/// What the block layer counted for a device, in bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    read: u64,
    written: u64,
    flushes: u64,
}

/// The block layer's counters of a device.
struct BlockCounters(PathBuf);

impl BlockCounters {
    /// Of `/dev/NAME`.
    fn of(device: &str) -> Result<BlockCounters> {
        let real = Path::new(device).canonicalize().context(|| format!("cannot find {device}"))?;
        let name = real.file_name().ok_or_else(|| Error::refused("a device has a name"))?;
        let stat = Path::new("/sys/class/block").join(name).join("stat");
        if !stat.exists() {
            return Err(Error::refused(format!("the block layer has no counters for {device}")));
        }
        Ok(BlockCounters(stat))
    }

    fn read(&self) -> Counts {
        parse_counts(&std::fs::read_to_string(&self.0).unwrap_or_default())
    }
}

/// The counters in the kernel's order; sectors have 512 bytes.
fn parse_counts(text: &str) -> Counts {
    let fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect();
    let field = |at: usize| fields.get(at).copied().unwrap_or(0);
    Counts { read: field(2) * 512, written: field(6) * 512, flushes: field(15) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_the_kernels() {
        let counts = parse_counts("  9 0 8 1 7 2 24 3 0 0 0 0 0 0 5 6 7\n");
        assert_eq!((counts.read, counts.written, counts.flushes), (4096, 12288, 6));
    }

    #[test]
    fn every_directory_is_on_a_mount() {
        let (fs, _) = mount_of(Path::new("/proc/self")).unwrap();
        assert_eq!(fs, "proc");
    }
}
