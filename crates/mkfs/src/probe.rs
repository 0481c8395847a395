//! What a device already holds, so that it is not overwritten by mistake.
//!
//! [`SIGNATURES`] are what file systems, partition tables, RAID members, volume managers and encrypted
//! volumes are known by, as libblkid knows them: bytes at a place counted from the beginning or the end of
//! the device.

use medfs_device::BlockDevice;
use medfs_format::{BLOCK_SIZE, Block};
use std::io;

/// Where a signature is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// So many bytes from the beginning.
    Start(u64),
    /// So many bytes before the end.
    End(u64),
    /// So many bytes before the end, which is rounded down to a multiple of the second number first.
    Rounded(u64, u64),
}
use Place::{End, Rounded, Start};

/// Bytes by which something is known.
struct Signature {
    what: &'static str,
    place: Place,
    bytes: &'static [u8],
}

const fn at(what: &'static str, offset: u64, bytes: &'static [u8]) -> Signature {
    Signature { what, place: Start(offset), bytes }
}

const fn near_end(what: &'static str, place: Place, bytes: &'static [u8]) -> Signature {
    Signature { what, place, bytes }
}

const EXT: &str = "an ext2/3/4 file system";
const FAT: &str = "a FAT file system";
const SWAP: &str = "swap space";
const SLEEP: &str = "a hibernation image";
const LVM: &str = "an LVM physical volume";
const RAID: &str = "a member of a Linux RAID";
const REISERFS: &str = "a ReiserFS file system";
const HFS: &str = "an HFS file system";
const MINIX: &str = "a Minix file system";
const UFS: &str = "a UFS file system";
const ZFS: &str = "a member of a ZFS pool";
const GPT: &str = "a GPT partition table";
const GPT_END: &str = "the end of a GPT partition table";
const RAID_MAGIC: &[u8] = &[0xFC, 0x4E, 0x2B, 0xA9];
const UFS_MAGIC: &[u8] = &[0x54, 0x19, 0x01, 0x00];
const UBERBLOCK: &[u8] = &[0x0C, 0xB1, 0xBA, 0, 0, 0, 0, 0];
const BTRFS_MAGIC: &[u8] = b"_BHRfS_M";

/// In the order in which they count: some boot sectors end as a partition table does.
const SIGNATURES: &[Signature] = &[
    at("a medfs volume", 0x400, b"SDeM"),
    at("an F2FS file system", 0x400, &[0x10, 0x20, 0xF5, 0xF2]),
    at("an F2FS file system", 0x1400, &[0x10, 0x20, 0xF5, 0xF2]),
    at(EXT, 0x438, &[0x53, 0xEF]),
    at("an XFS file system", 0, b"XFSB"),
    at("a Btrfs file system", 0x1_0040, BTRFS_MAGIC),
    at("a Btrfs file system", 0x400_0040, BTRFS_MAGIC),
    at("an NTFS file system", 3, b"NTFS    "),
    at("a ReFS file system", 3, b"ReFS\0"),
    at("a BitLocker volume", 3, b"-FVE-FS-"),
    at("an exFAT file system", 3, b"EXFAT   "),
    at(FAT, 0x52, b"FAT32"),
    at(FAT, 0x36, b"FAT1"),
    at(FAT, 0x36, b"FAT  "),
    at("a bcachefs file system", 0x1018, b"\xC6\x85\x73\xF6\x66\xCE\x90\xA9\xD9\x6A\x60\xCF\x80\x3D\xF7\xEF"),
    at("a bcache device", 0x1018, b"\xC6\x85\x73\xF6\x4E\x1A\x45\xCA\x82\x65\xF5\x7F\x48\xBA\x6D\x81"),
    at("an APFS container", 0x20, b"NXSB"),
    at(HFS, 0x400, b"H+\0\x04"),
    at(HFS, 0x400, b"HX\0\x05"),
    at(HFS, 0x400, b"BD"),
    at("a JFS file system", 0x8000, b"JFS1"),
    at(REISERFS, 0x1_0034, b"ReIsEr"),
    at(REISERFS, 0x2034, b"ReIsEr"),
    at("a Reiser4 file system", 0x1_0000, b"ReIsEr4"),
    at("a NILFS2 file system", 0x406, &[0x34, 0x34]),
    at("a GFS2 file system", 0x1_0000, &[0x01, 0x16, 0x19, 0x70]),
    at("an OCFS2 file system", 0x1000, b"OCFSV2"),
    at("an OCFS2 file system", 0x2000, b"OCFSV2"),
    at(UFS, 0x255C, UFS_MAGIC),
    at(UFS, 0x1_055C, UFS_MAGIC),
    at("a VMFS volume", 0x10_0000, &[0x0D, 0xD0, 0x01, 0xC0]),
    at("a VMFS volume", 0x20_0000, &[0x5E, 0xF1, 0xAB, 0x2F]),
    at("an ISO 9660 file system", 0x8001, b"CD001"),
    at("a UDF file system", 0x8001, b"BEA01"),
    at("a UDF file system", 0x8001, b"NSR0"),
    at("a SquashFS file system", 0, b"hsqs"),
    at("an EROFS file system", 0x400, &[0xE2, 0xE1, 0xF5, 0xE0]),
    at("a cramfs file system", 0, &[0x45, 0x3D, 0xCD, 0x28]),
    at("a romfs file system", 0, b"-rom1fs-"),
    at("a UBIFS file system", 0, &[0x31, 0x18, 0x10, 0x06]),
    at("a UBI volume", 0, b"UBI#"),
    at("a LUKS volume", 0, b"LUKS\xBA\xBE"),
    at("a LUKS volume", 0x4000, b"SKUL\xBA\xBE"),
    at(LVM, 0x018, b"LVM2 001"),
    at(LVM, 0x218, b"LVM2 001"),
    at(LVM, 0x418, b"LVM2 001"),
    at(LVM, 0x618, b"LVM2 001"),
    at("a Stratis pool", 0x204, b"!Stra0tis\x86\xFF\x02^\x41rh"),
    at("a VDO device", 0, b"dmvdo001"),
    at(RAID, 0, RAID_MAGIC),
    at(RAID, 0x1000, RAID_MAGIC),
    near_end(RAID, Rounded(0x2000, 0x1000), RAID_MAGIC),
    near_end(RAID, Rounded(0x1_0000, 0x1_0000), RAID_MAGIC),
    near_end("a member of an Intel RAID", End(0x400), b"Intel Raid ISM Cfg"),
    near_end("a member of a DDF RAID", End(0x200), &[0xDE, 0x11, 0xDE, 0x11]),
    // The first root block of each of four labels; ZFS leaves some of the labels' other bytes to others.
    at(ZFS, 0x2_0000, UBERBLOCK),
    at(ZFS, 0x6_0000, UBERBLOCK),
    near_end(ZFS, Rounded(0x6_0000, 0x4_0000), UBERBLOCK),
    near_end(ZFS, Rounded(0x2_0000, 0x4_0000), UBERBLOCK),
    at(MINIX, 0x410, &[0x7F, 0x13]),
    at(MINIX, 0x410, &[0x8F, 0x13]),
    at(MINIX, 0x410, &[0x68, 0x24]),
    at(MINIX, 0x410, &[0x78, 0x24]),
    at(MINIX, 0x418, &[0x5A, 0x4D]),
    at(SWAP, 0xFF6, b"SWAPSPACE2"),
    at(SWAP, 0xFF6, b"SWAP-SPACE"),
    at(SWAP, 0x1FF6, b"SWAPSPACE2"),
    at(SWAP, 0x3FF6, b"SWAPSPACE2"),
    at(SWAP, 0x7FF6, b"SWAPSPACE2"),
    at(SWAP, 0xFFF6, b"SWAPSPACE2"),
    at(SLEEP, 0xFF6, b"S1SUSPEND"),
    at(SLEEP, 0xFF6, b"S2SUSPEND"),
    at(SLEEP, 0xFF6, b"ULSUSPEND"),
    at(SLEEP, 0xFF6, b"LINHIB0001"),
    at(GPT, 0x200, b"EFI PART"),
    at(GPT, 0x1000, b"EFI PART"),
    near_end(GPT_END, End(0x200), b"EFI PART"),
    near_end(GPT_END, End(0x1000), b"EFI PART"),
    at("an Apple partition table", 0x200, b"PM\0\0"),
    at("a BSD disk label", 0x200, &[0x57, 0x45, 0x56, 0x82]),
    at("an SGI disk label", 0, &[0x0B, 0xE5, 0xA9, 0x41]),
    at("a Sun disk label", 0x1FC, &[0xDA, 0xBE]),
    at("a tar archive", 0x101, b"ustar"),
    at("a QEMU disk image", 0, b"QFI\xFB"),
    // Last: boot sectors of some file systems end so too.
    at("a partition table", 0x1FE, &[0x55, 0xAA]),
];

impl Signature {
    /// First byte of the place on a device of so many bytes; `None` where it does not reach that far.
    fn offset(&self, size: u64) -> Option<u64> {
        let at = match self.place {
            Start(at) => at,
            End(before) => size.checked_sub(before)?,
            Rounded(before, unit) => (size / unit * unit).checked_sub(before)?,
        };
        (at + self.bytes.len() as u64 <= size).then_some(at)
    }
}

/// Names what `dev` holds, where it holds something known.
pub fn find(dev: &dyn BlockDevice) -> io::Result<Option<&'static str>> {
    find_in(dev.block_count(), &mut |addr, block| dev.read(addr, &mut [block]))
}

/// The same where blocks that cannot be read hold nothing known.
pub fn find_past_damage(dev: &dyn BlockDevice) -> Option<&'static str> {
    let mut read = |addr, block: &mut Block| {
        let _ = dev.read(addr, &mut [block]).map_err(|_| block.0.fill(0));
        Ok(())
    };
    find_in(dev.block_count(), &mut read).ok().flatten()
}

fn find_in(
    blocks: u64,
    get: &mut dyn FnMut(u64, &mut Block) -> io::Result<()>,
) -> io::Result<Option<&'static str>> {
    const BLOCK: u64 = BLOCK_SIZE as u64;
    // Several signatures lie in the same block: each is read once.
    let mut read: Vec<(u64, Box<Block>)> = Vec::new();
    for signature in SIGNATURES {
        let Some(offset) = signature.offset(blocks * BLOCK) else { continue };
        let (addr, within) = (offset / BLOCK, (offset % BLOCK) as usize);
        if !read.iter().any(|(known, _)| *known == addr) {
            let mut block = Block::boxed();
            get(addr, &mut block)?;
            read.push((addr, block));
        }
        let found = read.iter().find(|(known, _)| *known == addr);
        if found.is_some_and(|(_, block)| block.0[within..].starts_with(signature.bytes)) {
            return Ok(Some(signature.what));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_device::{Cause, MemDevice, Temperature, WriteTag};

    const BLOCKS: u64 = 20_000;

    fn device_with(signature: &Signature) -> MemDevice {
        let dev = MemDevice::new(BLOCKS);
        let offset = signature.offset(BLOCKS * 4096).expect("the device is large enough");
        let mut block = Block::boxed();
        let within = (offset % 4096) as usize;
        block.0[within..within + signature.bytes.len()].copy_from_slice(signature.bytes);
        dev.write(offset / 4096, &[&block], WriteTag::new(Cause::Data, Temperature::Cold)).unwrap();
        dev
    }

    #[test]
    fn every_signature_is_found_and_named() {
        for signature in SIGNATURES {
            let found = find(&device_with(signature)).unwrap();
            assert_eq!(found, Some(signature.what), "{:?}", signature.place);
        }
    }

    #[test]
    fn signatures_lie_within_a_block_and_small_devices_are_read_within_their_bounds() {
        for signature in SIGNATURES {
            let offset = signature.offset(BLOCKS * 4096).unwrap();
            assert!(offset % 4096 + signature.bytes.len() as u64 <= 4096, "{}", signature.what);
        }
        for blocks in [0, 1, 2, 3, 16, 17, 64, 65] {
            assert_eq!(find(&MemDevice::new(blocks)).unwrap(), None, "{blocks}");
        }
    }
}
