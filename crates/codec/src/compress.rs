//! Compression of pages and clusters of pages behind one trait: LZO, LZ4 and zstd, as F2FS's compressed clusters
//! have them.

use crate::{CodecError, CodecTag, lzo};
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use zstd_safe::{CCtx, DCtx};

/// Level of zstd: the fastest of the regular ones.
pub(crate) const ZSTD_LEVEL: i32 = 1;

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

/// LZO1X, as the kernel's `lzo` reads it.
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
        out.get_mut(..size)?.copy_from_slice(&self.worst[..size]);
        Some(size)
    }

    fn expand(&mut self, source: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
        decompress_into(source, out).map_err(|_| CodecError::Damaged(CodecTag::XorLz4))
    }
}

/// A zstd frame. Its two contexts are made when they are first needed.
#[derive(Default)]
pub struct Zstd {
    encoder: Option<CCtx<'static>>,
    decoder: Option<DCtx<'static>>,
}

impl Zstd {
    pub(crate) fn encoder(&mut self) -> Option<&mut CCtx<'static>> {
        if self.encoder.is_none() {
            self.encoder = CCtx::try_create();
        }
        self.encoder.as_mut()
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
        self.encoder()?.compress(out, source, ZSTD_LEVEL).ok()
    }

    fn expand(&mut self, source: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
        const DAMAGED: CodecError = CodecError::Damaged(CodecTag::XorZstd);
        self.decoder().ok_or(DAMAGED)?.decompress(out, source).map_err(|_| DAMAGED)
    }
}
