//! What a pass over a volume does about what it finds.

/// What a pass does about what it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mend {
    Nothing,
    All,
    /// All, but what has no name gets none, orphans too.
    AllButNames,
}
