//! Numbers of the format that several structures share.

/// The magic number of superblocks, with which checksums are seeded.
pub const MAGIC: u32 = 0xF2F5_2010;
/// Address slots of an inode before extra attributes and inline xattrs are taken off.
pub const DEF_ADDRS_PER_INODE: usize = 923;
/// Addresses in a direct node.
pub const ADDRS_PER_BLOCK: usize = 1018;
/// Node ids in an indirect node.
pub const NIDS_PER_BLOCK: usize = 1018;
/// Longest file name in bytes.
pub const NAME_LEN: usize = 255;
