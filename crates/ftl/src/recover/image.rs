//! The image of the write buffer: what waits for the host, in memory that survives power loss.

use crate::format::{IMAGE_MAGIC, RawImage, RawRun, SPARE_RECORD};
use crate::oob::{Record, u32_at};
use crate::streams::{Pending, Streams, Whole};
use crate::trims::Trims;
use crate::{PAGE, WHOLE};
use alloc::vec::Vec;
use zerocopy::{FromBytes, IntoBytes};

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
        let pages = streams.of_host().count() as u32;
        let head = RawImage { magic: IMAGE_MAGIC, seq: seq.into(), pages: pages.into() };
        let mut out = Vec::from(head.as_bytes());
        for (page, bytes) in streams.of_host() {
            let Pending { lpn, size, ratio, compressed, .. } = page;
            out.extend(Record { lpn, size, compressed, ratio }.raw().as_bytes());
            out.extend(bytes);
        }
        trims.runs().iter().for_each(|run| out.extend(RawRun::new(*run).as_bytes()));
        let sum = crc32fast::hash(&out);
        out.extend(sum.to_le_bytes());
        out
    }

    /// Reads the bytes; `None` where they are no such thing. `content`: whether pages have content.
    pub(crate) fn read(bytes: &[u8], content: bool) -> Option<Image> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        let (head, mut rest) = RawImage::ref_from_prefix(body).ok()?;
        if head.magic != IMAGE_MAGIC || u32_at(sum, 0) != crc32fast::hash(body) {
            return None;
        }
        let mut pages = Vec::new();
        for _ in 0..head.pages.get() {
            let (record, after) = rest.split_at_checked(SPARE_RECORD)?;
            let Record { lpn, size, compressed, ratio } = Record::read(record)?;
            if size == 0 || size > PAGE as u16 || (!compressed && size != PAGE as u16) {
                return None;
            }
            let (bytes, after) = after.split_at_checked(if content { usize::from(size) } else { 0 })?;
            let page = Pending { lpn, size, ratio: ratio.min(WHOLE), compressed, damaged: false };
            pages.push(Whole { page, bytes: Vec::from(bytes) });
            rest = after;
        }
        Some(Image { seq: head.seq.get(), pages, trims: RawRun::all(rest).collect() })
    }

    /// Whether nothing waited.
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.trims.is_empty()
    }
}
