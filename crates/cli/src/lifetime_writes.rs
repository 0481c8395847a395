//! What a volume was written in its life, read from its last checkpoint.

use anyhow::Result;
use medfs_device::BlockDevice;
use medfs_format::summary::{Log, RawSummaryBlock};
use medfs_format::{BLOCKS_PER_SEG, Block};
use medfs_fsck::dump::{Record, Value};

/// KiB written, of the superblock's and the checkpoint's record; `None` where the last checkpoint was not an
/// unmount's, which alone tells it.
pub(crate) fn kbytes(dev: &dyn BlockDevice, superblock: &Record, checkpoint: &Record) -> Result<Option<u64>> {
    let number = |record: &Record, name: &str| match record.get(name) {
        Some(Value::Number(n)) => *n,
        _ => 0,
    };
    let flags = checkpoint.get("ckpt_flags").map(ToString::to_string).unwrap_or_default();
    if !flags.split_whitespace().any(|flag| matches!(flag, "umount" | "fastboot")) {
        return Ok(None);
    }
    let pack = number(checkpoint, "pack").saturating_sub(1) * u64::from(BLOCKS_PER_SEG);
    let end = number(superblock, "cp_blkaddr") + pack + number(checkpoint, "cp_pack_total_block_count");
    // The summaries of the node logs, and the header again.
    let after = (Log::ALL.len() - Log::HotNode as usize + 1) as u64;
    let Some(addr) = end.checked_sub(after).filter(|addr| *addr < dev.block_count()) else { return Ok(None) };
    let mut block = Block::boxed();
    dev.read(addr, &mut [&mut block])?;
    Ok(Some(block.view::<RawSummaryBlock>().journal.extra_info().kbytes_written.get()))
}
