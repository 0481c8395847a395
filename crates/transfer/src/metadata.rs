//! What is kept of a file besides its content, taken from the host's files and given to the volume's, and back.

use crate::error::{During, Error, Result};
use medfs::{Attr, FileKind, Files, Ino, NewFile, SetAttr, Timestamp, Volume, XattrMode};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::fs::{self, AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Permission bits kept: rwx for all, set-id and sticky.
const PERM_MASK: u32 = 0o7777;
/// Attributes that a new file may have from its directory. A default one is a directory's.
const INHERITED: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
/// What stands for no owner in system calls: damaged inodes have it.
const NO_ID: u32 = u32::MAX;

/// Everything about a file but its name and content.
#[derive(Debug, Clone)]
pub struct Metadata {
    /// Its kind.
    pub kind: FileKind,
    /// Permissions, with set-id and sticky bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of a device file, 0 of others.
    pub rdev: u64,
    /// Time of last access.
    pub atime: Timestamp,
    /// Time of last change of the content.
    pub mtime: Timestamp,
    /// Extended attributes: names with their prefixes, and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Metadata {
    /// Of a file on the host; the last component is not followed.
    pub fn of_host(path: &Path, meta: &std::fs::Metadata) -> Result<Metadata> {
        let kind = FileKind::from_mode((meta.mode() & 0o170000) as u16)
            .ok_or_else(|| Error::refused(format!("{} is of an unknown kind", path.display())))?;
        Ok(Metadata {
            kind,
            perm: (meta.mode() & PERM_MASK) as u16,
            uid: meta.uid(),
            gid: meta.gid(),
            rdev: meta.rdev(),
            atime: Timestamp { secs: meta.atime(), nanos: meta.atime_nsec() as u32 },
            mtime: Timestamp { secs: meta.mtime(), nanos: meta.mtime_nsec() as u32 },
            xattrs: host_xattrs(path)
                .during(|| format!("cannot read the attributes of {}", path.display()))?,
        })
    }

    /// As a request for a new file. Set-id bits wait for [`Metadata::apply`]: a set-gid directory would hand its
    /// group on to files that bring their own.
    pub fn new_file(&self) -> NewFile {
        NewFile {
            kind: self.kind,
            perm: self.perm & 0o1777,
            umask: 0,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
        }
    }

    /// Gives everything to a file of the volume, times last. Attributes the volume does not take are returned.
    pub fn apply(&self, volume: &Volume, ino: Ino) -> Result<Vec<String>> {
        let mut refused = Vec::new();
        for name in self.inherited() {
            match volume.removexattr(ino, name.as_bytes()) {
                Ok(()) | Err(medfs::Error::Posix(medfs::Posix::NoAttribute | medfs::Posix::NotSupported)) => {
                }
                Err(e) => return Err(e).during(|| format!("attribute {name}")),
            }
        }
        for (name, value) in &self.xattrs {
            match volume.setxattr(ino, name, value, XattrMode::Set) {
                Ok(()) => {}
                Err(medfs::Error::Posix(medfs::Posix::NotSupported | medfs::Posix::InvalidArgument)) => {
                    refused.push(String::from_utf8_lossy(name).into_owned());
                }
                Err(e) => {
                    return Err(e).during(|| format!("attribute {}", String::from_utf8_lossy(name)));
                }
            }
        }
        let owner_and_times = SetAttr {
            perm: (self.kind != FileKind::Symlink).then_some(self.perm),
            uid: Some(self.uid),
            gid: Some(self.gid),
            atime: Some(self.atime),
            mtime: Some(self.mtime),
            ..SetAttr::default()
        };
        volume.setattr(ino, &owner_and_times)?;
        Ok(refused)
    }

    /// Gives everything to a regular file or directory of the host. What only root may do is left out for others.
    pub fn apply_to_open(&self, file: BorrowedFd<'_>) -> io::Result<()> {
        let may_chown = geteuid().is_root();
        if may_chown {
            let (uid, gid) = self.owner();
            fs::fchown(file, uid, gid)?;
        }
        self.drop_inherited(may_chown, |name| fs::fremovexattr(file, name))?;
        self.set_xattrs(may_chown, |name, value| fs::fsetxattr(file, name, value, XattrFlags::empty()))?;
        fs::fchmod(file, self.mode(may_chown))?;
        Ok(fs::futimens(file, &self.times())?)
    }

    /// Gives everything to a file of the host that is neither, in a directory. A symbolic link itself is meant.
    pub fn apply_at(&self, dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
        let may_chown = geteuid().is_root();
        if may_chown {
            let (uid, gid) = self.owner();
            fs::chownat(dir, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        // There is no call that takes a directory and a name.
        let path = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
        self.drop_inherited(may_chown, |name| fs::lremovexattr(&path, name))?;
        self.set_xattrs(may_chown, |name, value| fs::lsetxattr(&path, name, value, XattrFlags::empty()))?;
        if self.kind != FileKind::Symlink {
            fs::chmodat(dir, name, self.mode(may_chown), AtFlags::empty())?;
        }
        Ok(fs::utimensat(dir, name, &self.times(), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The owner and the group, without those that no file can have.
    fn owner(&self) -> (Option<Uid>, Option<Gid>) {
        let may_be = |id: u32| (id != NO_ID).then_some(id);
        (may_be(self.uid).map(Uid::from_raw), may_be(self.gid).map(Gid::from_raw))
    }

    /// Attributes that the file lacks, and that a directory with a default ACL gives to what is made in it.
    fn inherited(&self) -> impl Iterator<Item = &'static str> {
        let count = match self.kind {
            FileKind::Symlink => 0,
            FileKind::Directory => 2,
            _ => 1,
        };
        let lacks = |name: &&str| self.xattrs.iter().all(|(own, _)| own != name.as_bytes());
        INHERITED[..count].iter().copied().filter(lacks)
    }

    fn drop_inherited(&self, must: bool, remove: impl Fn(&str) -> rustix::io::Result<()>) -> io::Result<()> {
        for name in self.inherited() {
            match remove(name) {
                Err(e) if must && ![Errno::NODATA, Errno::NOTSUP].contains(&e) => {
                    return Err(io::Error::new(io::Error::from(e).kind(), format!("attribute {name}: {e}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn set_xattrs(
        &self,
        must: bool,
        set: impl Fn(&OsStr, &[u8]) -> rustix::io::Result<()>,
    ) -> io::Result<()> {
        for (name, value) in &self.xattrs {
            if let Err(e) = set(OsStr::from_bytes(name), value)
                && must
                && e != Errno::NOTSUP
            {
                let text = format!("attribute {}: {e}", String::from_utf8_lossy(name));
                return Err(io::Error::new(io::Error::from(e).kind(), text));
            }
        }
        Ok(())
    }

    fn mode(&self, may_chown: bool) -> Mode {
        Mode::from_raw_mode(u32::from(if may_chown { self.perm } else { self.perm & 0o777 }))
    }

    fn times(&self) -> Timestamps {
        Timestamps { last_access: timespec(self.atime), last_modification: timespec(self.mtime) }
    }
}

impl Metadata {
    /// Of a file of a volume.
    pub fn of_volume(attr: &Attr, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Metadata {
        Metadata {
            kind: attr.kind,
            perm: attr.perm,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            atime: attr.atime,
            mtime: attr.mtime,
            xattrs: xattrs.to_vec(),
        }
    }
}

fn timespec(t: Timestamp) -> Timespec {
    Timespec { tv_sec: t.secs, tv_nsec: i64::from(t.nanos) }
}

/// All extended attributes of a host file; none where its file system has none.
fn host_xattrs(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = match grow(|buf| rustix::fs::llistxattr(path, buf)) {
        Ok(names) => names,
        Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        Err(e) => return Err(e.into()),
    };
    let mut xattrs = Vec::new();
    for name in names.split(|&b| b == 0).filter(|n| !n.is_empty()) {
        match grow(|buf| rustix::fs::lgetxattr(path, OsStr::from_bytes(name), buf)) {
            Ok(value) => xattrs.push((name.to_vec(), value)),
            // Gone meanwhile, or not ours to read.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(xattrs)
}

/// Calls with a buffer of the largest size an attribute or list can have.
fn grow(call: impl Fn(&mut Vec<u8>) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    const LARGEST: usize = 64 << 10;
    let mut buf = vec![0; LARGEST];
    let len = call(&mut buf)?;
    buf.truncate(len);
    Ok(buf)
}
