//! The controller's compressor and predictor: on real bytes, or on what is known of pages that carry none.

use crate::error::{FlashError, Result};
use medfs_codec::compress::{Compressor, Lz4, Lzo, Zstd};
use medfs_ftl::{Codec, CodecFailed, PAGE, WHOLE};

/// Names of the compressors.
pub const CODECS: [&str; 3] = ["lzo", "lz4", "zstd"];

/// Predicts a page's compression ratio, in thousandths.
pub type Predictor = fn(&[u8; PAGE]) -> u32;

/// Compresses real pages.
pub struct PageCodec {
    compressor: Box<dyn Compressor + Send>,
    predictor: Predictor,
}

impl PageCodec {
    /// One of [`CODECS`].
    ///
    /// # Errors
    /// No such name.
    pub fn new(name: &str) -> Result<PageCodec> {
        let compressor: Box<dyn Compressor + Send> = match name {
            "lzo" => Box::new(Lzo::default()),
            "lz4" => Box::new(Lz4::default()),
            "zstd" => Box::new(Zstd::default()),
            _ => {
                let message = format!("no compressor '{name}': use one of {}", CODECS.join(", "));
                return Err(FlashError::Usage(message));
            }
        };
        Ok(PageCodec { compressor, predictor: medfs_entropy::ratio })
    }

    /// Foretells with another predictor.
    pub fn with_predictor(self, predictor: Predictor) -> PageCodec {
        PageCodec { predictor, ..self }
    }
}

/// Thousandths in the units of the translation layer.
pub fn in_two_hundredths(thousandths: u32) -> u8 {
    ((thousandths * u32::from(WHOLE) + 500) / 1000).min(u32::from(WHOLE)) as u8
}

impl Codec for PageCodec {
    const CONTENT: bool = true;

    fn predict(&mut self, _lpn: u32, page: &[u8]) -> u8 {
        page.try_into().map_or(WHOLE, |page| in_two_hundredths((self.predictor)(page)))
    }

    fn compress(&mut self, _lpn: u32, page: &[u8], out: &mut [u8]) -> Option<usize> {
        self.compressor.compress(page, out)
    }

    fn expand(&mut self, packed: &[u8], out: &mut [u8]) -> std::result::Result<(), CodecFailed> {
        match self.compressor.expand(packed, out) {
            Ok(size) if size == out.len() => Ok(()),
            _ => Err(CodecFailed),
        }
    }
}

/// Knows of each logical page how well it compresses, and carries no bytes.
pub struct Described {
    predicted: Vec<u8>,
    sizes: Vec<u16>,
}

impl Described {
    /// Of so many logical pages nothing is known: they do not compress.
    pub fn new(logical_pages: u32) -> Described {
        let pages = logical_pages as usize;
        Described { predicted: vec![WHOLE; pages], sizes: vec![PAGE as u16; pages] }
    }

    /// From now on this is what is written to a logical page: predicted ratio in units of 1 / [`WHOLE`], and
    /// bytes when compressed.
    pub fn describe(&mut self, lpn: u32, predicted: u8, size: u16) {
        if let Some(known) = self.predicted.get_mut(lpn as usize) {
            *known = predicted.min(WHOLE);
            self.sizes[lpn as usize] = size.clamp(1, PAGE as u16);
        }
    }
}

impl Codec for Described {
    const CONTENT: bool = false;

    fn predict(&mut self, lpn: u32, _page: &[u8]) -> u8 {
        self.predicted.get(lpn as usize).copied().unwrap_or(WHOLE)
    }

    fn compress(&mut self, lpn: u32, _page: &[u8], _out: &mut [u8]) -> Option<usize> {
        let size = usize::from(*self.sizes.get(lpn as usize)?);
        (size < PAGE).then_some(size)
    }

    fn expand(&mut self, _packed: &[u8], _out: &mut [u8]) -> std::result::Result<(), CodecFailed> {
        Ok(())
    }
}
