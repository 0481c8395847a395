//! Content of the model's files.

use super::Result;
use medfs::{FallocateMode, Posix};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A page of content.
pub type Page = [u8; PAGE as usize];
/// Bytes in a page.
pub const PAGE: u64 = 4096;

/// Sparse content. What was never written is zeros; bytes after the end are kept zero.
#[derive(Debug, Clone, Default)]
pub struct Content {
    size: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

static ZERO_PAGE: Page = [0; PAGE as usize];

impl Content {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
    /// The pages that were ever written, with their index.
    pub fn pages(&self) -> impl Iterator<Item = (u64, &Page)> {
        self.pages.iter().map(|(&index, page)| (index, &**page))
    }
    /// A page; zeros where it was never written.
    pub fn page(&self, index: u64) -> &Page {
        self.pages.get(&index).map_or(&ZERO_PAGE, |page| page)
    }
    /// Bytes of a range, as a read returns them (short at the end).
    pub fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.size);
        let mut out = Vec::new();
        let mut at = offset;
        while at < end {
            let within = at % PAGE;
            let count = (PAGE - within).min(end - at);
            out.extend_from_slice(&self.page(at / PAGE)[within as usize..(within + count) as usize]);
            at += count;
        }
        out
    }
    /// Writes, extending.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let count = (PAGE as usize - within).min(data.len() - done);
            let page = self.pages.entry(at / PAGE).or_insert_with(|| Arc::new(ZERO_PAGE));
            Arc::make_mut(page)[within..within + count].copy_from_slice(&data[done..done + count]);
            done += count;
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }
    /// Makes a range zeros; the size stays.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let touched: Vec<u64> =
            self.pages.range(offset / PAGE..=end / PAGE).map(|(&index, _)| index).collect();
        for index in touched {
            let start = index * PAGE;
            let from = offset.max(start) - start;
            let to = end.clamp(start, start + PAGE) - start;
            if from == 0 && to == PAGE {
                self.pages.remove(&index);
            } else if from < to {
                Arc::make_mut(self.pages.get_mut(&index).expect("listed above"))[from as usize..to as usize]
                    .fill(0);
            }
        }
    }
    /// Sets the size.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size - size);
            self.pages.split_off(&size.div_ceil(PAGE));
        }
        self.size = size;
    }
    /// Adds a page as it was read; for observing.
    pub fn put_page(&mut self, index: u64, page: Page) {
        self.pages.insert(index, Arc::new(page));
    }

    pub(super) fn fallocate(&mut self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let end = offset.checked_add(len).ok_or(Posix::FileTooLarge)?;
        let keep = mode.contains(FallocateMode::KEEP_SIZE);
        let aligned = offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        if len == 0 {
            return Err(Posix::InvalidArgument);
        }
        match mode - FallocateMode::KEEP_SIZE {
            FallocateMode::PUNCH_HOLE => self.zero(offset, len.min(self.size.saturating_sub(offset))),
            FallocateMode::ZERO_RANGE => {
                self.zero(offset, len);
                if !keep {
                    self.size = self.size.max(end);
                }
            }
            FallocateMode::COLLAPSE_RANGE => {
                if !aligned || end >= self.size {
                    return Err(Posix::InvalidArgument);
                }
                let after = self.pages.split_off(&(end / PAGE));
                self.pages.split_off(&(offset / PAGE));
                self.pages.extend(after.into_iter().map(|(index, page)| (index - len / PAGE, page)));
                self.size -= len;
            }
            FallocateMode::INSERT_RANGE => {
                if !aligned || offset >= self.size {
                    return Err(Posix::InvalidArgument);
                }
                let after = self.pages.split_off(&(offset / PAGE));
                self.pages.extend(after.into_iter().map(|(index, page)| (index + len / PAGE, page)));
                self.size += len;
            }
            _ if !keep => self.size = self.size.max(end),
            _ => {}
        }
        Ok(())
    }
}
