//! Compression of pages and clusters of pages behind one trait: LZO, LZ4 and zstd, as F2FS's compressed clusters
//! have them.

use crate::{CodecError, CodecTag, lzo};
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use zstd_safe::{CCtx, DCtx};

/// Level of zstd: the fastest of the regular ones. On pages the third makes 2% fewer bytes in 20% more time, the fourth
/// 5% fewer in twice the time; those below zero make 15% and more.
const ZSTD_LEVEL: i32 = 1;

/// Compresses and expands blocks of bytes. A compressor owns its scratch memory: one for each thread.
pub trait Compressor {
    /// Compresses `source` to the front of `out` and returns the size in bytes; `None` where `out` is too small.
    fn compress(&mut self, source: &[u8], out: &mut [u8]) -> Option<usize>;

    /// Expands `source` to the front of `out` and returns the size in bytes.
    ///
    /// # Errors
    /// `source` is damaged, or what it holds is larger than `out`.
    fn expand(&mut self, source: &[u8], out: &mut [u8]) -> Result<usize, CodecError>;
}

/// One compressor of each kind, with its scratch memory.
#[derive(Default)]
pub struct Compressors {
    /// LZO1X and LZO-RLE.
    pub lzo: Lzo,
    /// LZ4 blocks.
    pub lz4: Lz4,
    /// zstd frames.
    pub zstd: Zstd,
}

/// LZO1X, as the kernel's `lzo` reads it; it reads `lzo-rle` too.
#[derive(Debug, Default)]
pub struct Lzo(lzo::Encoder);

impl Compressor for Lzo {
    fn compress(&mut self, source: &[u8], out: &mut [u8]) -> Option<usize> {
        self.0.compress(source, out)
    }

    fn expand(&mut self, source: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
        lzo::expand(source, out)
    }
}

/// A raw LZ4 block.
#[derive(Default)]
pub struct Lz4 {
    table: CompressTable,
    worst: Vec<u8>,
}

impl Compressor for Lz4 {
    fn compress(&mut self, source: &[u8], out: &mut [u8]) -> Option<usize> {
        // The library refuses an `out` that could not hold the worst case.
        self.worst.resize(get_maximum_output_size(source.len()), 0);
        let size = compress_into_with_table(source, &mut self.worst, &mut self.table).ok()?;
        put(&self.worst[..size], out)
    }

    fn expand(&mut self, source: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
        decompress_into(source, out).map_err(|_| CodecError::Damaged(CodecTag::XorLz4))
    }
}

/// Copies what was made to the front of `out`.
pub(crate) fn put(made: &[u8], out: &mut [u8]) -> Option<usize> {
    out.get_mut(..made.len())?.copy_from_slice(made);
    Some(made.len())
}

/// A zstd frame. Its two contexts are made when they are first needed.
pub struct Zstd {
    level: i32,
    encoder: Option<CCtx<'static>>,
    decoder: Option<DCtx<'static>>,
    worst: Vec<u8>,
}

impl Default for Zstd {
    fn default() -> Zstd {
        Zstd { level: ZSTD_LEVEL, encoder: None, decoder: None, worst: Vec::new() }
    }
}

impl Zstd {
    /// Compresses from now on at a level of the library's, 1 to 22; 0 is the default of [`Zstd::default`].
    pub fn set_level(&mut self, level: u8) {
        self.level = if level == 0 { ZSTD_LEVEL } else { i32::from(level) };
    }

    /// Compresses `source` behind `prefix`; an empty one is none. The library wants more room than the frame takes in
    /// the end, so it gets the worst case's.
    pub(crate) fn frame(&mut self, source: &[u8], prefix: &[u8]) -> Option<&[u8]> {
        if self.encoder.is_none() {
            self.encoder = CCtx::try_create();
        }
        self.worst.resize(zstd_safe::compress_bound(source.len()), 0);
        let encoder = self.encoder.as_mut()?;
        let size = encoder.compress_using_dict(&mut self.worst[..], source, prefix, self.level).ok()?;
        self.worst.get(..size)
    }

    pub(crate) fn decoder(&mut self) -> Option<&mut DCtx<'static>> {
        if self.decoder.is_none() {
            self.decoder = DCtx::try_create();
        }
        self.decoder.as_mut()
    }
}

impl Compressor for Zstd {
    fn compress(&mut self, source: &[u8], out: &mut [u8]) -> Option<usize> {
        put(self.frame(source, &[])?, out)
    }

    fn expand(&mut self, source: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
        const DAMAGED: CodecError = CodecError::Damaged(CodecTag::XorZstd);
        self.decoder().ok_or(DAMAGED)?.decompress(out, source).map_err(|_| DAMAGED)
    }
}
