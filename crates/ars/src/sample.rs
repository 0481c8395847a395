//! What is learned from: a file, as it was when it was judged, and where it belonged.

use medfs_format::ars::{Class, Values};

/// The moments of a file's life that are learned from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Those at which the engine judges: at 16, 64, 256 .. writes; of a file with fewer, its end.
    Judged,
    /// Its end, as the paper does. The number of writes then is part of the label too.
    End,
}

/// A moment of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    /// Its features then.
    pub features: Values,
    /// Its label.
    pub class: Class,
    /// Number of the file among those seen: moments of one file are learned from or judged together.
    pub file: usize,
}
