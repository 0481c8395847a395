//! What a device already holds, so that nobody overwrites it by mistake.

use medfs_device::BlockDevice;
use medfs_format::{BLOCK_SIZE, Block};
use std::io;

/// A signature at a byte offset.
struct Magic {
    what: &'static str,
    offset: usize,
    bytes: &'static [u8],
}

const MAGICS: [Magic; 16] = [
    Magic { what: "a medfs volume", offset: 0x400, bytes: b"SDeM" },
    Magic { what: "an F2FS file system", offset: 0x400, bytes: &[0x10, 0x20, 0xF5, 0xF2] },
    Magic { what: "an ext2/3/4 file system", offset: 0x438, bytes: &[0x53, 0xEF] },
    Magic { what: "an XFS file system", offset: 0, bytes: b"XFSB" },
    Magic { what: "a Btrfs file system", offset: 0x10040, bytes: b"_BHRfS_M" },
    Magic { what: "an NTFS file system", offset: 3, bytes: b"NTFS    " },
    Magic { what: "an exFAT file system", offset: 3, bytes: b"EXFAT   " },
    Magic { what: "a FAT file system", offset: 0x52, bytes: b"FAT32" },
    Magic { what: "a FAT file system", offset: 0x36, bytes: b"FAT1" },
    Magic { what: "a SquashFS file system", offset: 0, bytes: b"hsqs" },
    Magic { what: "an EROFS file system", offset: 0x400, bytes: &[0xE2, 0xE1, 0xF5, 0xE0] },
    Magic { what: "a LUKS volume", offset: 0, bytes: b"LUKS\xBA\xBE" },
    Magic { what: "an LVM physical volume", offset: 0x218, bytes: b"LVM2 001" },
    Magic { what: "swap space", offset: 0xFF6, bytes: b"SWAPSPACE2" },
    Magic { what: "a GPT partition table", offset: 0x200, bytes: b"EFI PART" },
    // Last: boot sectors of some file systems end so too.
    Magic { what: "a partition table", offset: 0x1FE, bytes: &[0x55, 0xAA] },
];

/// Names what `dev` holds, where it holds something known.
pub fn find(dev: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    for magic in &MAGICS {
        let (addr, at) = ((magic.offset / BLOCK_SIZE) as u64, magic.offset % BLOCK_SIZE);
        if addr >= dev.block_count() {
            continue;
        }
        let mut block = Block::boxed();
        dev.read(addr, &mut [&mut block])?;
        if block.0[at..].starts_with(magic.bytes) {
            return Ok(Some(magic.what));
        }
    }
    Ok(None)
}
