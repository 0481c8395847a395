//! Who asks: the capabilities and groups of the process behind a request.
//!
//! Purpose: the kernel judges modes and ACLs (`default_permissions`). What it hands to a FUSE file system unjudged,
//! ioctls by their number and what a change of content does to set-id bits, is judged here as a file system
//! in the kernel judges it.
//!
//! Invariants: what cannot be found out counts as not held. A capability counts in the daemon's own user
//! namespace alone, and only where `/proc` numbers processes as the request does. The caller waits for our
//! reply, so its number names no other process.

use crate::abi::InHeader;
use crate::request::Errno;
use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};

/// What a process may do, by the kernel's number (`include/uapi/linux/capability.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    /// Acts as the owner of any file.
    Fowner = 3,
    /// Keeps set-id bits where others lose them.
    Fsetid = 4,
    /// Changes the flags immutable and append-only.
    LinuxImmutable = 9,
    /// Administers the file system.
    SysAdmin = 21,
}

/// The process behind a request. What `/proc` says of it is read where it is first asked for.
pub(crate) struct Credentials {
    pub(crate) uid: u32,
    gid: u32,
    pid: u32,
    process: OnceCell<Process>,
}

impl Credentials {
    pub(crate) fn of(header: &InHeader) -> Credentials {
        Credentials { uid: header.uid, gid: header.gid, pid: header.pid, process: OnceCell::new() }
    }

    /// Whether the caller holds a capability over this file system.
    pub(crate) fn has(&self, capability: Capability) -> bool {
        self.process().capabilities & (1 << capability as u32) != 0
    }

    /// Whether the caller may do what a file's owner may.
    pub(crate) fn owns(&self, owner: u32) -> bool {
        self.uid == owner || self.has(Capability::Fowner)
    }

    /// Whether the caller is in a file's group.
    pub(crate) fn in_group(&self, group: u32) -> bool {
        self.gid == group || self.process().groups.contains(&group)
    }

    /// `EPERM` without the capability.
    pub(crate) fn require(&self, capability: Capability) -> Result<(), Errno> {
        if self.has(capability) { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Whether the caller lives in the daemon's own user namespace.
    pub(crate) fn is_in_our_namespace(&self) -> bool {
        self.process().ours
    }

    fn process(&self) -> &Process {
        self.process.get_or_init(|| Process::read(self.pid).unwrap_or_default())
    }
}

/// What `/proc` says of a thread.
#[derive(Debug, Default, PartialEq, Eq)]
struct Process {
    capabilities: u64,
    groups: Vec<u32>,
    ours: bool,
}

impl Process {
    /// `None` where the thread is in no namespace of ours (0), or `/proc` does not tell.
    fn read(pid: u32) -> Option<Process> {
        let ours = fs::read_link("/proc/self").ok()?;
        if pid == 0 || ours.as_os_str() != std::process::id().to_string().as_str() {
            return None;
        }
        let of = |process: &Path| fs::read_link(Path::new("/proc").join(process).join("ns/user")).ok();
        let pid = PathBuf::from(pid.to_string());
        let namespace = of(&ours)?;
        let status = fs::read_to_string(Path::new("/proc").join(&pid).join("status")).ok()?;
        Process::parse(&status, of(&pid)? == namespace)
    }

    fn parse(status: &str, ours: bool) -> Option<Process> {
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let capabilities = u64::from_str_radix(field("CapEff")?, 16).ok()?;
        let groups = field("Groups")?.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Process { capabilities: if ours { capabilities } else { 0 }, groups, ours })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tperl\nUid:\t0\t0\t0\t0\nGroups:\t4 1000 \nCapInh:\t0000000000000000\nCapEff:\t0000000000200208\n";

    #[test]
    fn capabilities_count_in_our_user_namespace_alone() {
        let ours = Process::parse(STATUS, true).unwrap();
        assert_eq!((ours.capabilities, &ours.groups[..]), (0x20_0208, &[4, 1000][..]));
        assert_eq!(Process::parse(STATUS, false).unwrap().capabilities, 0);
        assert_eq!(Process::parse(&STATUS.replace("CapEff", "Cap"), true), None);
        assert_eq!(Process::parse(&STATUS.replace("200208", "two"), true), None);
    }

    #[test]
    fn a_caller_that_cannot_be_known_has_no_capability() {
        for pid in [0, u32::MAX] {
            let caller = Credentials::of(&InHeader { pid, ..InHeader::default() });
            assert!(!caller.has(Capability::SysAdmin) && !caller.is_in_our_namespace());
            assert!(caller.owns(0) && !caller.owns(7) && caller.in_group(0) && !caller.in_group(7));
        }
        let this = Credentials::of(&InHeader {
            pid: rustix::thread::gettid().as_raw_pid() as u32,
            uid: 7,
            ..InHeader::default()
        });
        assert!(this.is_in_our_namespace());
        assert_eq!(this.owns(8), this.has(Capability::Fowner));
    }
}
