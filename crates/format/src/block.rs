//! The 4 KiB block: the unit of every structure and of all I/O, aligned for direct I/O.
//!
//! Invariant: the alignment is less than a page of the machine. LLVM (up to 22 at least, so rustc 1.95 too)
//! compiles a function wrongly for x86-64 that has a value aligned to 4096 bytes on its stack and returns
//! early on other paths: the instructions that save registers and align the stack are left out, as the blocks
//! of the loop that touches each page of it are not linked to those before. The function then crashes on the
//! path that needs the value. Values aligned to less take no such loop.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a block.
pub const BLOCK_SIZE: usize = 4096;

/// Alignment of a block in memory: what direct I/O wants of all common devices. A block that is shared takes as many
/// bytes more, for its counts.
pub const BLOCK_ALIGN: usize = 512;

/// One block of the volume, aligned to [`BLOCK_ALIGN`] so that it can be handed to direct I/O.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(512))]
pub struct Block(pub [u8; BLOCK_SIZE]);

const _: () = assert!(size_of::<Block>() == BLOCK_SIZE && align_of::<Block>() == BLOCK_ALIGN);

impl Block {
    /// A block of zeros.
    pub const ZERO: Block = Block([0; BLOCK_SIZE]);

    /// A zeroed block on the heap.
    pub fn boxed() -> Box<Block> {
        Self::new_box_zeroed().expect("allocation of 4 KiB")
    }

    /// A copy of the block on the heap, whose memory is written once.
    pub fn boxed_copy(&self) -> Box<Block> {
        Box::write(Box::new_uninit(), self.clone())
    }

    /// The block seen as an on-disk structure of exactly 4096 bytes.
    pub fn view<T: FromBytes + KnownLayout + Immutable + Unaligned>(&self) -> &T {
        const { assert!(size_of::<T>() == BLOCK_SIZE) };
        T::ref_from_bytes(&self.0).expect("size asserted above, alignment 1")
    }

    /// The block seen as a mutable on-disk structure of exactly 4096 bytes.
    pub fn view_mut<T: FromBytes + IntoBytes + KnownLayout + Unaligned>(&mut self) -> &mut T {
        const { assert!(size_of::<T>() == BLOCK_SIZE) };
        T::mut_from_bytes(&mut self.0).expect("size asserted above, alignment 1")
    }
}

impl Default for Block {
    fn default() -> Self {
        Block::ZERO
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block(crc {:08x})", crc32fast::hash(&self.0))
    }
}
