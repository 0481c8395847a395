//! What a pass over a volume does about what it finds, and what it could not do.

/// What a pass does about what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mend {
    Nothing,
    All,
    /// All, but what has no name gets none, orphans too.
    AllButNames,
}

/// Files that a repair kept without a name.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held {
    pub(crate) count: u64,
    /// The root directory can have no lost+found, as its names are encrypted.
    pub(crate) sealed_root: bool,
}

impl Held {
    /// Why there are some.
    pub(crate) fn why(self) -> Option<String> {
        let (why, way) = match (self.count, self.sealed_root) {
            (0, _) => return None,
            (_, true) => (
                "the root directory is encrypted, and can have no lost+found",
                "copy them off with get --salvage",
            ),
            (_, false) => {
                ("the volume is too full for lost+found", "remove other files, and repair it again")
            }
        };
        Some(format!("{why}; files kept without a name: {}; {way}", self.count))
    }
}
