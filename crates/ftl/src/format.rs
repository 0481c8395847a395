//! Numbers of what is on the medium, as `docs/ONDISK.md` has them.

/// How everything is laid out: the byte behind the commit's magic.
pub const VERSION: u8 = 3;
/// Out-of-band bytes before the records.
pub const SPARE_HEADER: usize = 24;
/// Out-of-band bytes of a record.
pub const SPARE_RECORD: usize = 7;
/// Bytes of an entry of the mapping.
pub const ENTRY_BYTES: usize = 8;
/// Bytes of a block in a checkpoint's tables.
pub const BLOCK_BYTES: usize = 18;
/// A flash page of data.
pub const DATA: u8 = 1;
/// A chunk of the mapping or of the counts.
pub const CHUNK: u8 = 2;
/// A part of a checkpoint's tables.
pub const TABLE: u8 = 3;
/// The end of a checkpoint.
pub const COMMIT: u8 = 4;
/// Ranges that were trimmed.
pub const TRIM: u8 = 5;
/// The medium was opened.
pub const OPENED: u8 = 6;
