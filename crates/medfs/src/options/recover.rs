//! What a mount rolls forward.

/// What of the fsyncs since the last checkpoint is brought back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Recover {
    /// All. Where a node of them is damaged a writable mount fails, and a read-only one shows the others.
    #[default]
    All,
    /// What can be, on a writable mount too, as a repair does. The rest is told by
    /// [`PastDamage::unrecovered`](crate::PastDamage::unrecovered).
    WhatFits,
    /// Nothing: it is not seen, and a writable mount loses it.
    Nothing,
}
