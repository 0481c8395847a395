//! The ranks of locks.

/// The place of a lock in the order in which locks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    /// Its name in messages.
    pub name: &'static str,
    /// A thread that holds a lock takes none of a smaller number.
    pub order: u8,
    /// Whether a thread may hold several of them; their order among each other is then not checked.
    pub several: bool,
}

impl Rank {
    /// A lock of which a thread holds one.
    pub const fn one(order: u8, name: &'static str) -> Rank {
        Rank { name, order, several: false }
    }
    /// A lock of which a thread may hold several.
    pub const fn several(order: u8, name: &'static str) -> Rank {
        Rank { name, order, several: true }
    }
    /// Those without a rank: taken last, and in an order of their own.
    pub const LEAF: Rank = Rank::several(u8::MAX, "leaf");
}

/// Gives a lock its rank, which builds with debug assertions and the scheduler check. Nothing in other builds.
pub trait Ranked {
    /// The lock, with its rank.
    fn ranked(self, rank: Rank) -> Self;
}
