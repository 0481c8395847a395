//! BLKDISCARD, the one request to a block device that no safe call offers: `fallocate(PUNCH_HOLE)` on a block
//! device becomes WRITE ZEROES, which the block layer counts as written, and a card may well write.
#![allow(unsafe_code)]

use rustix::io::Errno;
use rustix::ioctl::{Setter, ioctl, opcode};
use std::os::fd::OwnedFd;

/// Discards `len` bytes of a block device from `offset` on.
pub(crate) fn block_device(fd: &OwnedFd, offset: u64, len: u64) -> Result<(), Errno> {
    const BLKDISCARD: rustix::ioctl::Opcode = opcode::none(0x12, 119);
    // SAFETY: BLKDISCARD reads two u64, offset and length, from the address it is given, and touches no other memory.
    unsafe { ioctl(fd, Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}
