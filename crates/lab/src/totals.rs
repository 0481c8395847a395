//! Characteristics of a workload: sums of what was written and read, and the shares that the paper's tables
//! have of them.

use medfs_codec::PAGE_SIZE;
use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};

/// Files smaller than this keep all addresses of their pages in the inode (MedFS, section 2.1): the paper's 3.69 MB.
pub const SMALL_FILE: u64 = 923 * PAGE_SIZE as u64;

/// Types of files, as MedFS's Fig. 1a divides them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileType {
    /// Databases, their journals and logs.
    Sqlite,
    /// Temporary files.
    Temp,
    /// XML, JSON, data files, media.
    Other,
}

impl FileType {
    /// All, in order.
    pub const ALL: [FileType; 3] = [FileType::Sqlite, FileType::Temp, FileType::Other];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            FileType::Sqlite => "sqlite",
            FileType::Temp => "temp",
            FileType::Other => "other",
        }
    }

    /// The type of a path, by the paper's rules (section 3).
    pub fn of(path: &str) -> FileType {
        let (folder, name) = crate::backend::split(path);
        let sqlite = [".db", "-journal", "-wal", ".wal", ".journal"].iter().any(|end| name.ends_with(end));
        let temp =
            name.starts_with("todelete_") || folder.split('/').any(|part| part == "tmp" || part == "temp");
        match (sqlite, temp) {
            (true, _) => FileType::Sqlite,
            (_, true) => FileType::Temp,
            _ => FileType::Other,
        }
    }
}

/// Sums of what was seen. Two subtract to what came between.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Pages written.
    pub pages: u64,
    /// Of them, by type of file.
    pub pages_by_type: [u64; 3],
    /// Pages that were durable before.
    pub updates: u64,
    /// Updates by type of file.
    pub updates_by_type: [u64; 3],
    /// Updates that changed less than a tenth of their page.
    pub below_tenth: u64,
    /// Bytes that differ in them.
    pub changed_bytes: u64,
    /// Bytes of all pages, each compressed by LZO alone.
    pub lzo_bytes: u64,
    /// Pages by how much of each LZO saves: a tenth of the page or less, two tenths, and so on.
    pub saved_tenths: [u64; 10],
    /// Bytes of the updates' differences (XOR), compressed by LZO.
    pub delta_bytes: u64,
    /// Updates whose delta may stay in an inode.
    pub small_deltas: u64,
    /// Bytes of these.
    pub small_delta_bytes: u64,
    /// Requests that write.
    pub writes: u64,
    /// Requests that read.
    pub reads: u64,
    /// Calls of fsync.
    pub fsyncs: u64,
}

fn each(a: Totals, b: Totals, op: impl Fn(u64, u64) -> u64) -> Totals {
    Totals {
        pages: op(a.pages, b.pages),
        pages_by_type: std::array::from_fn(|n| op(a.pages_by_type[n], b.pages_by_type[n])),
        updates: op(a.updates, b.updates),
        updates_by_type: std::array::from_fn(|n| op(a.updates_by_type[n], b.updates_by_type[n])),
        below_tenth: op(a.below_tenth, b.below_tenth),
        changed_bytes: op(a.changed_bytes, b.changed_bytes),
        lzo_bytes: op(a.lzo_bytes, b.lzo_bytes),
        saved_tenths: std::array::from_fn(|n| op(a.saved_tenths[n], b.saved_tenths[n])),
        delta_bytes: op(a.delta_bytes, b.delta_bytes),
        small_deltas: op(a.small_deltas, b.small_deltas),
        small_delta_bytes: op(a.small_delta_bytes, b.small_delta_bytes),
        writes: op(a.writes, b.writes),
        reads: op(a.reads, b.reads),
        fsyncs: op(a.fsyncs, b.fsyncs),
    }
}

impl Sub for Totals {
    type Output = Totals;
    fn sub(self, before: Totals) -> Totals {
        each(self, before, |a, b| a - b)
    }
}

impl Add for Totals {
    type Output = Totals;
    fn add(self, other: Totals) -> Totals {
        each(self, other, |a, b| a + b)
    }
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

impl Totals {
    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.pages * PAGE_SIZE as u64
    }
    /// UR: share of updates in what is written.
    pub fn update_ratio(&self) -> f64 {
        share(self.updates, self.pages)
    }
    /// UD: mean share of the bytes of an updated page that change.
    pub fn update_difference(&self) -> f64 {
        share(self.changed_bytes, self.updates * PAGE_SIZE as u64)
    }
    /// Share of updates that change less than a tenth of their page.
    pub fn below_tenth_share(&self) -> f64 {
        share(self.below_tenth, self.updates)
    }
    /// CCR: share that LZO saves of pages.
    pub fn compression(&self) -> f64 {
        1.0 - share(self.lzo_bytes, self.bytes()).min(1.0)
    }
    /// Share of pages of which LZO saves half at least.
    pub fn half_saved(&self) -> f64 {
        share(self.saved_tenths[5..].iter().sum(), self.pages)
    }
    /// DCR of the updates whose delta may stay in an inode: share that the delta saves of the page.
    pub fn small_delta_compression(&self) -> f64 {
        1.0 - share(self.small_delta_bytes, self.small_deltas * PAGE_SIZE as u64).min(1.0)
    }
    /// The same of all updates.
    pub fn delta_compression(&self) -> f64 {
        1.0 - share(self.delta_bytes, self.updates * PAGE_SIZE as u64).min(1.0)
    }
    /// RW: share of writes in all requests.
    pub fn write_share(&self) -> f64 {
        share(self.writes, self.writes + self.reads)
    }
    /// Share of a type in what is written.
    pub fn type_share(&self, kind: FileType) -> f64 {
        share(self.pages_by_type[kind as usize], self.pages)
    }
    /// Mean bytes of a request that writes.
    pub fn request_bytes(&self) -> f64 {
        if self.writes == 0 { 0.0 } else { self.bytes() as f64 / self.writes as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_the_papers() {
        let types = ["d/x.db", "d/x.db-wal", "tmp/y", "d/todelete_1", "d/z.json"].map(FileType::of);
        use FileType::{Other, Sqlite, Temp};
        assert_eq!(types, [Sqlite, Sqlite, Temp, Temp, Other]);
    }
}
