//! The extension lists of the superblock: files so named are placed in the cold or the hot data log.

use medfs_format::superblock::{EXTENSION_LEN, RawSuperblock};
use zerocopy::little_endian::U32;

/// Media, packages and archives: written once. The same names as on a volume made by `mkfs.f2fs`.
const COLD: [&str; 36] = [
    "mp", "wm", "og", "jp", "avi", "m4v", "m4p", "mkv", "mov", "webm", "wav", "m4a", "3gp", "opus", "flac",
    "gif", "png", "svg", "webp", "jar", "deb", "iso", "gz", "xz", "zst", "pdf", "pyc", "ttc", "ttf", "exe",
    "apk", "cnt", "exo", "odex", "vdex", "so",
];
/// Databases and disk images: overwritten often.
const HOT: [&str; 4] = ["db", "vmdk", "vdi", "qcow2"];

/// Writes both lists.
pub(crate) fn fill(sb: &mut RawSuperblock) {
    for (slot, name) in sb.extension_list.iter_mut().zip(COLD.iter().chain(&HOT)) {
        debug_assert!(name.len() < EXTENSION_LEN);
        slot[..name.len()].copy_from_slice(name.as_bytes());
    }
    sb.extension_count = U32::new(COLD.len() as u32);
    sb.hot_ext_count = HOT.len() as u8;
}
