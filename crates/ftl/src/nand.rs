//! What the layer asks of its surroundings: a NAND device with a controller's clock, and a compressor.

use core::fmt;

/// Shape of a NAND device. Flash pages are numbered block by block; block `b` is on unit (plane of a die) `b % units`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a flash page: 4096, 8192 or 16384.
    pub page_bytes: u32,
    /// Out-of-band bytes of a page that are the layer's.
    pub spare_bytes: u32,
    /// Pages of an erase block.
    pub pages_per_block: u32,
    /// Erase blocks.
    pub blocks: u32,
    /// Planes that work at the same time.
    pub units: u32,
}

impl Geometry {
    /// The block of a flash page.
    pub fn block_of(&self, page: u32) -> u32 {
        page / self.pages_per_block
    }

    /// The first flash page of a block.
    pub fn first_page(&self, block: u32) -> u32 {
        block * self.pages_per_block
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u32 {
        self.page_bytes * self.pages_per_block
    }

    /// Flash pages of the device.
    pub fn pages(&self) -> u64 {
        u64::from(self.pages_per_block) * u64::from(self.blocks)
    }
}

/// Why a NAND operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NandError {
    /// The operation is never allowed: programming twice or out of order, reading unwritten pages, touching a
    /// bad block.
    Illegal(&'static str, u32),
    /// A program or erase did not take: the block is worn out and must not be used again.
    Failed(u32),
    /// The page cannot be read: error correction gave up, as after a program that power loss interrupted.
    Uncorrectable(u32),
    /// There is no power.
    PowerLost,
    /// The host of the medium failed (a model's file); the model knows more.
    Host,
}

impl fmt::Display for NandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NandError::Illegal(what, at) => write!(f, "illegal use of the NAND: {what} (number {at})"),
            NandError::Failed(block) => write!(f, "block {block} failed"),
            NandError::Uncorrectable(page) => write!(f, "flash page {page} cannot be read"),
            NandError::PowerLost => write!(f, "power was lost"),
            NandError::Host => write!(f, "the medium's file failed"),
        }
    }
}

/// Work of the controller, on one logical page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Compressing.
    Compress,
    /// Expanding.
    Expand,
    /// Predicting the compression ratio.
    Predict,
}

/// A NAND device and its controller's clock.
///
/// `program` returns as soon as the controller may go on: with two page buffers it compresses the next page
/// while the last one is programmed (LDC, Fig. 1). The outcome of a program is known when it returns, its
/// time is not over.
pub trait Nand {
    /// The device's shape. Never changes.
    fn geometry(&self) -> Geometry;
    /// Programs the next unwritten page of an erased block. Empty `data` is content that is not kept.
    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<(), NandError>;
    /// Reads a written page; with an empty `data` its content is not wanted.
    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<(), NandError>;
    /// Reads the out-of-band bytes of a written page.
    fn read_spare(&mut self, page: u32, spare: &mut [u8]) -> Result<(), NandError>;
    /// Erases a block.
    fn erase(&mut self, block: u32) -> Result<(), NandError>;
    /// When it returns, nothing that is programmed or erased from now on can be found after power loss
    /// without all that was before. NAND needs nothing for that; a model that writes its medium down later
    /// than it is told to does.
    fn barrier(&mut self) -> Result<(), NandError> {
        Ok(())
    }
    /// Whether a page reads as erased.
    fn is_blank(&mut self, page: u32) -> Result<bool, NandError>;
    /// Whether a block is marked as bad.
    fn is_bad(&self, block: u32) -> bool;
    /// Marks a block as bad for good.
    fn mark_bad(&mut self, block: u32);
    /// The controller works on one page.
    fn spend(&mut self, _work: Work) {}
    /// The controller waits until nothing is being programmed.
    fn settle(&mut self) {}
    /// The controller's clock in nanoseconds; constant where time is not measured.
    fn now(&self) -> u64 {
        0
    }
    /// Keeps `image` where power loss does not reach it (the paper's capacitor), in place of what was kept before.
    fn retain(&mut self, image: &[u8]);
}

/// A page could not be expanded: it is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodecFailed;

/// Compressor and predictor of the controller.
pub trait Codec {
    /// Whether pages have content. Without, pages are empty slices, and sizes and ratios come from what is known of the
    /// logical page: simulations of many gigabytes carry no bytes.
    const CONTENT: bool;
    /// Foretells the compressed size over the page's, in units of 1 / [`WHOLE`](crate::WHOLE).
    fn predict(&mut self, lpn: u32, page: &[u8]) -> u8;
    /// Compresses a page into `out` (4096 bytes, or none without content) and returns the size; `None` where
    /// it does not become smaller.
    fn compress(&mut self, lpn: u32, page: &[u8], out: &mut [u8]) -> Option<usize>;
    /// Expands what [`Codec::compress`] made to a whole page.
    fn expand(&mut self, packed: &[u8], out: &mut [u8]) -> Result<(), CodecFailed>;
}
