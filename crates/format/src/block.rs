//! The 4 KiB block: the unit of every structure and of all I/O, aligned for direct I/O.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes in a block.
pub const BLOCK_SIZE: usize = 4096;

/// One block of the volume, aligned to its size so that it can be handed to direct I/O.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub struct Block(pub [u8; BLOCK_SIZE]);

impl Block {
    /// A block of zeros.
    pub const ZERO: Block = Block([0; BLOCK_SIZE]);

    /// A zeroed block on the heap.
    pub fn boxed() -> Box<Block> {
        Self::new_box_zeroed().expect("allocation of 4 KiB")
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
