//! The right to use an image file or a block device, taken before it is read and given back after its last use.
//!
//! A file is claimed by `flock`, shared by readers. A block device is claimed by `O_EXCL`, as the kernel's
//! mounts and other programs do it; it has one user at a time, reader or writer. What holds the same bytes is
//! claimed too: the backing file of a loop device, and the loop devices on a file or device. So it does not
//! matter by which name a user comes.
//!
//! Invariants: all or nothing is claimed. Devices are claimed before files, so of two programs that begin at
//! the same moment one gets everything. A claim ends with the process that holds it, however that ends.

use crate::holder::{Holder, Identity, device_number, sys_block};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the moments last in which a device is claimed by a program that only looks whether it is free.
const LOOKS: Duration = Duration::from_millis(50);
/// How long a child that a program has forked may take until it runs another one: so long it has the locks of the
/// program, though that has given them back.
const FORKS: Duration = Duration::from_millis(300);
/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// With whom a device is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// No other process may use it.
    Nobody,
    /// A file, with those who read it too.
    Readers,
}

/// A claim, held until it is dropped. The lock of a file is that of the descriptor it was taken with.
#[derive(Debug, Default)]
pub struct Claim {
    /// The device itself.
    device: Option<OwnedFd>,
    /// What else holds the same bytes.
    _others: Vec<OwnedFd>,
}

/// What is in use.
struct InUse(PathBuf);

impl Claim {
    /// Claims the file or device that is open as `fd`. Waits up to `patience` for a user that is about to let
    /// go; fails with `ResourceBusy` and names the user otherwise.
    pub fn take(path: &Path, fd: impl AsFd, share: Share, patience: Duration) -> io::Result<Claim> {
        wait(path, patience, || attempt(path, fd.as_fd(), share))
    }

    /// Lets go of a block device itself, for the kernel to claim it; what else holds its bytes stays claimed.
    pub fn yield_device(&mut self) {
        self.device = None;
    }

    /// Takes back what was yielded.
    pub fn retake_device(&mut self, path: &Path, patience: Duration) -> io::Result<()> {
        self.device = Some(wait(path, patience, || exclusively(path))?);
        Ok(())
    }
}

/// Repeats attempts as long as there is hope.
fn wait<T>(
    path: &Path,
    patience: Duration,
    mut attempt: impl FnMut() -> io::Result<Result<T, InUse>>,
) -> io::Result<T> {
    let (start, mut pause) = (Instant::now(), Duration::from_millis(1));
    loop {
        let InUse(place) = match attempt()? {
            Ok(claimed) => return Ok(claimed),
            Err(in_use) => in_use,
        };
        let holder = Holder::of(&place);
        let is_others = holder.process.as_ref().is_some_and(|process| process.pid != std::process::id());
        let least = match Identity::at(&place) {
            Some(Identity::Block(_)) => LOOKS,
            _ if is_others => Duration::ZERO,
            _ => FORKS,
        };
        let most = if holder.is_ending() { patience.max(least) } else { least };
        if start.elapsed() >= most {
            return Err(refusal(path, &place, &holder));
        }
        // Two that meet again and again would both be refused.
        std::thread::sleep(pause + Duration::from_micros(u64::from(std::process::id() % 16) * 100));
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn refusal(path: &Path, place: &Path, holder: &Holder) -> io::Error {
    let through = if Identity::at(path) == Identity::at(place) {
        String::new()
    } else {
        format!(" as {}", place.display())
    };
    io::Error::new(io::ErrorKind::ResourceBusy, format!("{} is in use{through}{holder}", path.display()))
}

/// Tries once to claim everything.
fn attempt(path: &Path, fd: BorrowedFd<'_>, share: Share) -> io::Result<Result<Claim, InUse>> {
    let stat = fstat(fd)?;
    let mut others = Related::of(Identity::of(&stat)).found;
    others.sort_by_key(|other| matches!(other.identity, Identity::File(..)));
    let mut claim = Claim::default();
    if let Identity::Block(_) = Identity::of(&stat) {
        match exclusively(path)? {
            Ok(device) => claim.device = Some(device),
            Err(in_use) => return Ok(Err(in_use)),
        }
        if let Ok(node) = open(path, OFlags::empty()) {
            sign(&node);
            claim._others.push(node);
        }
    }
    let mut looked = Vec::new();
    for other in others {
        match other.claim(share)? {
            Ok(Some(held)) if share == Share::Readers && matches!(other.identity, Identity::Block(_)) => {
                looked.push(held);
            }
            Ok(held) => claim._others.extend(held),
            Err(in_use) => return Ok(Err(in_use)),
        }
    }
    if let Identity::File(..) = Identity::of(&stat)
        && !lock(fd, share)?
    {
        return Ok(Err(InUse(path.to_owned())));
    }
    Ok(Ok(claim))
}

fn open(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::CLOEXEC | OFlags::RDONLY | flags, Mode::empty())
}

/// Opens a block device that no other process has claimed.
fn exclusively(path: &Path) -> io::Result<Result<OwnedFd, InUse>> {
    match open(path, OFlags::EXCL) {
        Ok(device) => Ok(Ok(device)),
        Err(Errno::BUSY) => Ok(Err(InUse(path.to_owned()))),
        Err(error) => Err(error.into()),
    }
}

/// Locks a block device for those who want to know who has it. Where that fails someone keeps udev away,
/// which does not concern us.
fn sign(device: &OwnedFd) {
    let _ = flock(device, FlockOperation::NonBlockingLockShared);
}

/// Whether a file could be locked. On a file system without locks there is nothing to insist on.
fn lock(fd: BorrowedFd<'_>, share: Share) -> io::Result<bool> {
    let operation = match share {
        Share::Nobody => FlockOperation::NonBlockingLockExclusive,
        Share::Readers => FlockOperation::NonBlockingLockShared,
    };
    match flock(fd, operation) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOLCK | Errno::NOSYS) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Something that holds bytes of a device.
struct Other {
    path: PathBuf,
    identity: Identity,
    /// It holds nothing else.
    whole: bool,
}

impl Other {
    /// Claims it; `None` where this process may not, and nothing is seen to use it.
    fn claim(&self, share: Share) -> io::Result<Result<Option<OwnedFd>, InUse>> {
        let in_use = || Err(InUse(self.path.clone()));
        let held = match self.identity {
            Identity::Block(_) => open(&self.path, OFlags::EXCL),
            Identity::File(..) => open(&self.path, OFlags::empty()),
        };
        let held = match held {
            Ok(held) => held,
            Err(Errno::BUSY) => return Ok(in_use()),
            Err(_) if Holder::of(&self.path).mount.is_some() => return Ok(in_use()),
            Err(_) => return Ok(Ok(None)),
        };
        let share = if self.whole { share } else { Share::Readers };
        match self.identity {
            Identity::Block(_) => sign(&held),
            Identity::File(..) if !lock(held.as_fd(), share)? => return Ok(in_use()),
            Identity::File(..) => {}
        }
        Ok(Ok(Some(held)))
    }
}

/// A loop device.
struct Loop {
    device: u64,
    name: PathBuf,
    backing: PathBuf,
    on: Identity,
}

/// All loop devices that have a file.
fn loops() -> Vec<Loop> {
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let one = |folder: PathBuf| {
        let backing = PathBuf::from(
            std::fs::read_to_string(folder.join("loop/backing_file")).ok()?.trim_end_matches('\n'),
        );
        let on = Identity::at(&backing)?;
        Some(Loop {
            device: device_number(&folder)?,
            name: Path::new("/dev").join(folder.file_name()?),
            backing,
            on,
        })
    };
    devices.flatten().filter_map(|entry| one(entry.path())).collect()
}

/// What else holds the bytes of a file or device.
struct Related {
    loops: Vec<Loop>,
    seen: Vec<Identity>,
    found: Vec<Other>,
}

impl Related {
    fn of(identity: Identity) -> Related {
        let mut related = Related { loops: loops(), seen: vec![identity], found: Vec::new() };
        if !related.loops.is_empty() {
            related.above(identity);
            related.below(identity, true);
        }
        related
    }

    /// The loop devices on a file or device.
    fn above(&mut self, identity: Identity) {
        let on_it = self.loops.iter().filter(|one| one.on == identity);
        for (path, device) in on_it.map(|one| (one.name.clone(), one.device)).collect::<Vec<_>>() {
            let on_it = Identity::Block(device);
            if self.add(path, on_it, true) {
                self.above(on_it);
            }
        }
    }

    /// What a block device is on. `whole`: the device is all that is there; the kernel itself keeps its
    /// partitions, and what is made of it, apart from one another.
    fn below(&mut self, identity: Identity, whole: bool) {
        let Identity::Block(device) = identity else { return };
        let folder = sys_block(device);
        if folder.join("partition").exists() {
            if let Some(disk) = device_number(&folder.join("..")) {
                self.seen.push(Identity::Block(disk));
                self.below(Identity::Block(disk), false);
            }
            return;
        }
        let slaves = std::fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
        for slave in slaves.filter_map(|slave| device_number(&slave.path())) {
            self.seen.push(Identity::Block(slave));
            self.below(Identity::Block(slave), false);
        }
        let Some(one) = self.loops.iter().find(|one| one.device == device) else { return };
        let (backing, on) = (one.backing.clone(), one.on);
        let is_device = matches!(on, Identity::Block(_));
        if (whole || !is_device) && !self.add(backing.clone(), on, whole) {
            return;
        }
        if whole {
            self.above(on);
        }
        self.below(on, whole);
    }

    /// Whether it is new.
    fn add(&mut self, path: PathBuf, identity: Identity, whole: bool) -> bool {
        let new = !self.seen.contains(&identity);
        if new {
            self.seen.push(identity);
            self.found.push(Other { path, identity, whole });
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::thread;

    /// A child between fork and exec has the descriptors of its parent, and with them its locks.
    #[test]
    fn a_lock_that_a_forked_child_still_has_is_waited_for() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let take = |file: &File| Claim::take(image.path(), file, Share::Nobody, Duration::ZERO);
        let file = File::open(image.path()).unwrap();
        let claim = take(&file).unwrap();
        let of_child = file.try_clone().unwrap();
        drop((claim, file));
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(FORKS / 6);
                drop(of_child);
            });
            take(&File::open(image.path()).unwrap()).unwrap();
        });
        let (kept, again) = (File::open(image.path()).unwrap(), File::open(image.path()).unwrap());
        let _claim = take(&kept).unwrap();
        assert_eq!(take(&again).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    }
}
