//! The kernel's FUSE ABI: structures, operation codes and flags, as facts of `include/uapi/linux/fuse.h`.
//!
//! Everything is in the machine's byte order. Structures are plain bytes (zerocopy), so that decoding a request is a
//! checked copy and encoding a reply is a copy. Sizes are asserted, because a wrong one is silent corruption.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Protocol version this crate speaks.
pub(crate) const KERNEL_VERSION: u32 = 7;
/// Newest minor version this crate knows (FUSE over io_uring).
pub(crate) const KERNEL_MINOR_VERSION: u32 = 42;
/// Oldest minor version that is accepted (Linux 5.4).
pub(crate) const OLDEST_MINOR_VERSION: u32 = 31;
/// Node id of the root.
pub(crate) const ROOT_ID: u64 = 1;

/// Declares kernel structures with their sizes asserted.
macro_rules! abi {
    ($($(#[$doc:meta])* struct $name:ident [$size:literal] { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
    )*};
}

abi! {
    /// Head of every request.
    struct InHeader [40] {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32,
        extensions_len: u16, padding: u16,
    }
    /// Head of every reply and notification.
    struct OutHeader [16] { len: u32, error: i32, unique: u64, }
    /// What the kernel offers.
    struct InitIn [64] {
        major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11],
    }
    /// What the daemon takes.
    struct InitOut [64] {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
    /// Attributes of an inode.
    struct AttrData [88] {
        ino: u64, size: u64, blocks: u64, atime: i64, mtime: i64, ctime: i64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// Reply that introduces an inode to the kernel: each takes one lookup count.
    struct EntryOut [128] {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: AttrData,
    }
    struct GetattrIn [16] { getattr_flags: u32, dummy: u32, fh: u64, }
    struct AttrOut [104] { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: AttrData, }
    struct ForgetIn [8] { nlookup: u64, }
    struct ForgetOne [16] { nodeid: u64, nlookup: u64, }
    struct BatchForgetIn [8] { count: u32, dummy: u32, }
    struct MknodIn [16] { mode: u32, rdev: u32, umask: u32, padding: u32, }
    struct MkdirIn [8] { mode: u32, umask: u32, }
    struct RenameIn [8] { newdir: u64, }
    struct Rename2In [16] { newdir: u64, flags: u32, padding: u32, }
    struct LinkIn [8] { oldnodeid: u64, }
    struct SetattrIn [88] {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: i64, mtime: i64, ctime: i64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// CREATE and TMPFILE.
    struct CreateIn [16] { flags: u32, mode: u32, umask: u32, open_flags: u32, }
    struct OpenIn [8] { flags: u32, open_flags: u32, }
    struct OpenOut [16] { fh: u64, open_flags: u32, backing_id: i32, }
    struct ReleaseIn [24] { fh: u64, flags: u32, release_flags: u32, lock_owner: u64, }
    struct ReadIn [40] {
        fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    struct WriteIn [40] {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    struct WriteOut [8] { size: u32, padding: u32, }
    struct StatfsOut [80] {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    struct FsyncIn [16] { fh: u64, fsync_flags: u32, padding: u32, }
    /// SETXATTR before `SETXATTR_EXT` was negotiated.
    struct SetxattrCompatIn [8] { size: u32, flags: u32, }
    struct SetxattrIn [16] { size: u32, flags: u32, setxattr_flags: u32, padding: u32, }
    struct GetxattrIn [8] { size: u32, padding: u32, }
    struct GetxattrOut [8] { size: u32, padding: u32, }
    struct IoctlIn [32] { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32, }
    struct IoctlOut [16] { result: i32, flags: u32, in_iovs: u32, out_iovs: u32, }
    struct FallocateIn [32] { fh: u64, offset: u64, length: u64, mode: u32, padding: u32, }
    struct LseekIn [24] { fh: u64, offset: u64, whence: u32, padding: u32, }
    struct LseekOut [8] { offset: u64, }
    struct CopyFileRangeIn [56] {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    struct CopyFileRangeOut [8] { bytes_copied: u64, }
    struct Dirent [24] { ino: u64, off: u64, namelen: u32, kind: u32, }
    struct StatxTime [16] { tv_sec: i64, tv_nsec: u32, reserved: i32, }
    struct StatxData [256] {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16,
        ino: u64, size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime, btime: StatxTime,
        ctime: StatxTime, mtime: StatxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32,
        spare2: [u64; 14],
    }
    struct StatxOut [288] {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: StatxData,
    }
    struct NotifyInvalInodeOut [24] { ino: u64, off: i64, len: i64, }
    struct NotifyRetrieveOut [32] { notify_unique: u64, nodeid: u64, offset: u64, size: u32, padding: u32, }
    /// `struct fsxattr` of FS_IOC_FSGETXATTR.
    struct FsXattr [28] {
        xflags: u32, extsize: u32, nextents: u32, projid: u32, cowextsize: u32, pad: [u8; 8],
    }
    /// `struct fstrim_range` of FITRIM.
    struct TrimRange [24] { start: u64, len: u64, minlen: u64, }
    /// Part of a request over io_uring that both sides fill.
    struct UringEntInOut [32] { flags: u64, commit_id: u64, payload_size: u32, padding: u32, reserved: u64, }
    /// Command area of the submission entry.
    struct UringCmdReq [24] { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6], }
}

/// Head of a request over io_uring: in/out header, the operation's structure, transfer state.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct UringReqHeader {
    pub(crate) in_out: [u8; 128],
    pub(crate) op_in: [u8; 128],
    pub(crate) ent: UringEntInOut,
}
const _: () = assert!(size_of::<UringReqHeader>() == 288);

/// `fuse_uring_cmd_req` commands.
pub(crate) mod uring_cmd {
    pub(crate) const REGISTER: u32 = 1;
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}

/// Operation codes.
#[allow(missing_docs)]
pub(crate) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

bitflags::bitflags! {
    /// Capabilities of INIT, both words in one.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct Init: u64 {
        const ASYNC_READ = 1 << 0;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const WRITEBACK_CACHE = 1 << 16;
        const PARALLEL_DIROPS = 1 << 18;
        const POSIX_ACL = 1 << 20;
        const ABORT_ERROR = 1 << 21;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        const INIT_EXT = 1 << 30;
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        const OVER_IO_URING = 1 << 41;
    }

    /// Which attributes SETATTR changes.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) struct SetattrValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const ATIME_NOW = 1 << 7;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
    }
}

/// The write comes from the page cache.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// The write clears the set-id bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// fdatasync.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// The ACL being set clears the set-gid bit.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// The attributes are asked for by way of an open file.
pub(crate) const GETATTR_FH: u32 = 1 << 0;
/// The file is read and written past the page cache.
pub(crate) const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// The page cache of the file stays valid across opens.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// The ioctl is on a directory.
pub(crate) const IOCTL_DIR: u32 = 1 << 4;
/// Notification: drop what the kernel caches of an inode.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// Notification: send what the page cache holds of an inode, as a NOTIFY_REPLY request.
pub(crate) const NOTIFY_RETRIEVE: i32 = 5;
