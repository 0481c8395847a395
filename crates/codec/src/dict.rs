//! Deltas by general compression that sees the base: `lz4-dict` and `zstd-prefix`.

use crate::compress::{Zstd, put};
use crate::{CodecError, CodecTag, DeltaCodec, PAGE_SIZE, Page};
use lz4_flex::block::{compress_into_with_dict, decompress_into_with_dict, get_maximum_output_size};

/// A raw LZ4 block with the base as dictionary.
#[derive(Debug, Clone, Default)]
pub struct Lz4Dict {
    worst: Vec<u8>,
}

impl DeltaCodec for Lz4Dict {
    fn tag(&self) -> CodecTag {
        CodecTag::Lz4Dict
    }

    fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<usize> {
        // The library refuses an `out` that could not hold the worst case.
        self.worst.resize(get_maximum_output_size(PAGE_SIZE), 0);
        let size = compress_into_with_dict(page, &mut self.worst, base).ok()?;
        put(&self.worst[..size], within_page(out))
    }

    fn decode(&mut self, base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> {
        match decompress_into_with_dict(delta, page, base) {
            Ok(PAGE_SIZE) => Ok(()),
            _ => Err(CodecError::Damaged(self.tag())),
        }
    }
}

/// As much of `out` as a delta may fill.
fn within_page(out: &mut [u8]) -> &mut [u8] {
    let room = out.len().min(PAGE_SIZE);
    &mut out[..room]
}

/// A zstd frame without its magic, with the base as the bytes before the page.
#[derive(Default)]
pub struct ZstdPrefix {
    zstd: Zstd,
    frame: Vec<u8>,
}

/// What each frame begins with, and no delta.
const FRAME_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

impl ZstdPrefix {
    /// [`DeltaCodec::encode`] that looks at `before` instead of the base: at all of it, or at nothing, which makes it
    /// faster where the base is of no use. `out` is left alone where there is no room.
    pub(crate) fn encode_from(&mut self, before: &[u8], page: &Page, out: &mut [u8]) -> Option<usize> {
        let delta = self.zstd.frame(page, before)?.strip_prefix(&FRAME_MAGIC)?;
        put(delta, within_page(out))
    }
}

impl DeltaCodec for ZstdPrefix {
    fn tag(&self) -> CodecTag {
        CodecTag::ZstdPrefix
    }

    fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<usize> {
        // A base that begins like a trained dictionary is one to the library, here and in decoding, or it refuses it.
        self.encode_from(base, page, out)
    }

    fn decode(&mut self, base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> {
        let damaged = CodecError::Damaged(self.tag());
        if delta.len() > PAGE_SIZE {
            return Err(damaged);
        }
        self.frame.clear();
        self.frame.extend_from_slice(&FRAME_MAGIC);
        self.frame.extend_from_slice(delta);
        let decoder = self.zstd.decoder().ok_or(damaged)?;
        match decoder.decompress_using_dict(&mut page[..], &self.frame, base) {
            Ok(PAGE_SIZE) => Ok(()),
            _ => Err(damaged),
        }
    }
}
