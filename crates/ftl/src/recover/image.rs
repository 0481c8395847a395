//! The image of the write buffer: what waits for the host, in memory that survives power loss.

use crate::oob::u32_at;
use crate::streams::{Pending, Streams, Whole};
use crate::trims::Trims;
use crate::{PAGE, WHOLE};
use alloc::vec::Vec;

/// First bytes of an image.
const MAGIC: [u8; 4] = *b"WBUF";
/// Bit of a page's size: it is compressed.
const COMPRESSED: u16 = 1 << 15;

/// What an image says: when it was made, pages that waited, and ranges that were trimmed.
#[derive(Default)]
pub(crate) struct Image {
    pub(crate) seq: u64,
    pub(crate) pages: Vec<Whole>,
    pub(crate) trims: Vec<(u32, u32)>,
}

impl Image {
    /// The bytes of the image at this sequence number.
    pub(crate) fn write(seq: u64, streams: &Streams, trims: &Trims) -> Vec<u8> {
        let mut out = Vec::from(MAGIC);
        out.extend(seq.to_le_bytes());
        out.extend((streams.of_host().count() as u32).to_le_bytes());
        for (page, bytes) in streams.of_host() {
            out.extend(page.lpn.to_le_bytes());
            out.extend((page.size | if page.compressed { COMPRESSED } else { 0 }).to_le_bytes());
            out.push(page.ratio);
            out.extend(bytes);
        }
        for (from, count) in trims.runs() {
            out.extend(from.to_le_bytes());
            out.extend(count.to_le_bytes());
        }
        let sum = crc32fast::hash(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// Reads the bytes; `None` where they are no such thing. `content`: whether pages have content.
    pub(crate) fn read(bytes: &[u8], content: bool) -> Option<Image> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        if body.get(..4)? != MAGIC || u32_at(sum, 0) != crc32fast::hash(body) {
            return None;
        }
        let seq = u64::from_le_bytes(body.get(4..12)?.try_into().ok()?);
        let count = u32_at(body.get(12..16)?, 0);
        let mut rest = &body[16..];
        let mut pages = Vec::new();
        for _ in 0..count {
            let (head, after) = rest.split_at_checked(7)?;
            let size = u16::from_le_bytes([head[4], head[5]]);
            let compressed = size & COMPRESSED != 0;
            let size = size & !COMPRESSED;
            if size == 0 || size > PAGE as u16 || (!compressed && size != PAGE as u16) {
                return None;
            }
            let (bytes, after) = after.split_at_checked(if content { usize::from(size) } else { 0 })?;
            let lpn = u32_at(head, 0);
            let page = Pending { lpn, size, ratio: head[6].min(WHOLE), compressed, damaged: false };
            pages.push(Whole { page, bytes: Vec::from(bytes) });
            rest = after;
        }
        let trims = rest.chunks_exact(8).map(|b| (u32_at(b, 0), u32_at(b, 4))).collect();
        Some(Image { seq, pages, trims })
    }

    /// Whether nothing waited.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.trims.is_empty()
    }
}
