//! Where the log lies that outlives the daemon, with `survivor=auto`: a directory of the user in a file system in
//! memory, which is empty after the machine was started.

use crate::target::{self, Target};
use anyhow::{Context, Result};
use medfs::{DurabilityMode, MountOptions, Survivor};
use medfs_device::quote::{self, hint};
use medfs_device::{BlockDevice, read_block};
use medfs_format::crc;
use medfs_format::superblock::RawSuperblock;
use rustix::fs::{StatFs, statfs};
use rustix::process::geteuid;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Types of file systems in memory, as statfs(2) has them: tmpfs, ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Puts a directory in the place of `survivor=auto`: that of the device's log, where one waits, or else one that is
/// made where a log will be.
pub(crate) fn resolve(options: &mut MountOptions, dev: &dyn BlockDevice) {
    let makes = options.durability == DurabilityMode::Adaptive && !options.read_only;
    if !options.read_only
        && let Some((log, user)) = of_another_user(dev)
    {
        errln!(
            "medfs: {} may have what a daemon of user {user} acknowledged before it was killed: it is not replayed, as only a mount by that user does so",
            quote::path(&log)
        );
    }
    if options.survivor != Survivor::Auto {
        if let Survivor::In(dir) = &options.survivor
            && makes
            && dir.exists()
            && !is_in_memory(dir)
        {
            errln!(
                "medfs mount: survivor={} is not in memory: each operation is written to that disk",
                dir.display()
            );
        }
        return;
    }
    let waiting = waiting(dev).and_then(|log| Some(log.parent()?.to_owned()));
    match waiting.map_or_else(|| place(makes), |dir| Ok(Some(dir))) {
        Ok(Some(dir)) => options.survivor = Survivor::In(dir),
        Ok(None) if makes => errln!(
            "medfs mount: no file system in memory was found for survivor=auto: a daemon that is killed loses what is not durable"
        ),
        Ok(None) => {}
        Err(error) => errln!(
            "medfs mount: survivor=auto finds no place: {error}; a daemon that is killed loses what is not durable"
        ),
    }
}

/// The log that has what a daemon of the volume acknowledged before it was killed: of the UUID of each copy of the
/// superblock, and of the one that counts, as a bit of any may be flipped.
pub(crate) fn waiting(dev: &dyn BlockDevice) -> Option<PathBuf> {
    uuids(dev).iter().find_map(|&uuid| places().find_map(|dir| medfs::waiting_operations(&dir, uuid)))
}

/// Those of each copy of the superblock, and of the one that counts.
fn uuids(dev: &dyn BlockDevice) -> Vec<[u8; 16]> {
    let copies =
        (0..2).filter_map(|at| read_block(dev, at).ok()).filter(|block| target::is_superblock(block));
    let mut uuids: Vec<[u8; 16]> = copies.map(|block| RawSuperblock::in_block(&block).uuid).collect();
    uuids.extend(target::in_force(dev).map(|superblock| superblock.uuid));
    uuids
}

/// For root: a log that another user's daemon left for a volume, and whose it is. That is told by its name and owner
/// alone: root reads no log of another user.
pub(crate) fn of_another_user(dev: &dyn BlockDevice) -> Option<(PathBuf, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let below = |dir: &str| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let sessions = below("/run/user").map(|dir| dir.join("medfs"));
    let is_ours = |dir: &PathBuf| dir.file_name().is_some_and(|name| name.as_bytes().starts_with(b"medfs-"));
    let places: Vec<PathBuf> = sessions.chain(below("/dev/shm").filter(is_ours)).collect();
    let names: Vec<String> =
        uuids(dev).into_iter().map(|uuid| format!("medfs-{}.log", uuid::Uuid::from_bytes(uuid))).collect();
    let mut logs = places.iter().flat_map(|dir| names.iter().map(|name| dir.join(name)));
    logs.find_map(|log| {
        let meta = fs::symlink_metadata(&log).ok()?;
        (meta.is_file() && meta.len() > 0 && meta.uid() != 0).then(|| (log, meta.uid()))
    })
}

/// The log that waits for a volume whose UUID is lost, by the seed that it gives the checksums.
pub(crate) fn waiting_for_seed(seed: u32) -> Option<PathBuf> {
    let logs = places().filter_map(|dir| fs::read_dir(&dir).ok().map(|entries| (dir, entries)));
    logs.flat_map(|(dir, entries)| entries.filter_map(Result::ok).map(move |entry| (dir.clone(), entry)))
        .find_map(|(dir, entry)| {
            let name = entry.file_name().into_string().ok()?;
            let uuid = name.strip_prefix("medfs-")?.strip_suffix(".log")?.parse::<uuid::Uuid>().ok()?;
            let gives = crc::chain(!0, uuid.as_bytes()) == seed;
            gives.then(|| medfs::waiting_operations(&dir, uuid.into_bytes())).flatten()
        })
}

/// Says that a volume has less than was acknowledged, where that is so.
pub(crate) fn warn(dev: &dyn BlockDevice, image: &Path) {
    if let Some(lacks) = lacks(dev, image, None) {
        errln!("medfs: {lacks}");
    }
}

/// What a volume lacks of what was acknowledged, in a sentence. `seed`: that of its checksums, where it is known.
pub(crate) fn lacks(dev: &dyn BlockDevice, image: &Path, seed: Option<u32>) -> Option<String> {
    if let Some(log) = waiting(dev) {
        let mount = hint(format_args!("medfs mount {} DIRECTORY", quote::path(image)));
        let log = log.display();
        return Some(format!(
            "{log} has what a daemon acknowledged before it was killed, and the volume lacks it: {mount} brings it back"
        ));
    }
    if let Some((log, user)) = of_another_user(dev) {
        return Some(format!(
            "{} may have what a daemon of user {user} acknowledged before it was killed: only a mount by that user brings it back, and a change of the volume by anyone else makes it void",
            quote::path(&log)
        ));
    }
    let lost = seed.filter(|_| target::in_force(dev).is_none());
    let log = lost.and_then(waiting_for_seed)?;
    Some(format!(
        "{} has what a daemon acknowledged before it was killed, which nothing brings back: the superblocks are lost",
        log.display()
    ))
}

/// Brings back what a daemon acknowledged, before the volume becomes another one.
pub(crate) fn bring_back(dev: &Target, image: &Path) -> Result<()> {
    if waiting(&**dev).is_some() {
        let volume = target::open_volume(dev.clone(), image, MountOptions::default())?;
        volume.close().with_context(|| format!("cannot finish writing {}", image.display()))?;
    }
    Ok(())
}

/// Removes the log of a volume that was overwritten: it takes memory, and nothing can be done with it.
pub(crate) fn remove(log: &Path) -> Result<()> {
    fs::remove_file(log).with_context(|| format!("cannot remove {}", log.display()))?;
    errln!(
        "medfs mkfs: removed {}, which had what a daemon acknowledged for the volume that was there",
        log.display()
    );
    Ok(())
}

/// The directory; `None` where there is none.
fn place(make: bool) -> io::Result<Option<PathBuf>> {
    let Some(dir) = candidates().into_iter().find(|dir| dir.parent().is_some_and(is_in_memory)) else {
        return Ok(None);
    };
    match is_own(&dir) {
        Ok(true) => Ok(Some(dir)),
        Ok(false) => Err(io::Error::other(format!("{} is no directory of this user's alone", dir.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && make => {
            DirBuilder::new().mode(0o700).create(&dir)?;
            Ok(Some(dir))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// All directories in which an earlier mount may have left a log: the first may not have been there then.
fn places() -> impl Iterator<Item = PathBuf> {
    candidates()
        .into_iter()
        .filter(|dir| dir.parent().is_some_and(is_in_memory) && is_own(dir).unwrap_or(false))
}

/// Whether a directory is this user's, and nobody else writes to it.
fn is_own(dir: &Path) -> io::Result<bool> {
    let meta = fs::symlink_metadata(dir)?;
    Ok(meta.is_dir() && meta.uid() == geteuid().as_raw() && meta.mode() & 0o022 == 0)
}

/// They follow from the user alone: what a session has in its environment, cron and sudo have not.
fn candidates() -> [PathBuf; 2] {
    let user = geteuid().as_raw();
    let first = if user == 0 { "/run/medfs".into() } else { format!("/run/user/{user}/medfs") };
    [first, format!("/dev/shm/medfs-{user}")].map(PathBuf::from)
}

fn is_in_memory(dir: &Path) -> bool {
    statfs(dir).is_ok_and(|StatFs { f_type, .. }| IN_MEMORY.contains(&(f_type as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_place_stays_and_posix_makes_none() {
        let mut options = MountOptions { survivor: Survivor::Off, ..MountOptions::default() };
        resolve(&mut options, &medfs_device::MemDevice::new(8));
        assert_eq!(options.survivor, Survivor::Off);
        assert!(candidates().iter().all(|dir| dir.is_absolute()));
        assert!(!is_in_memory(Path::new("/proc")) && !is_in_memory(Path::new("/none")));
    }
}
