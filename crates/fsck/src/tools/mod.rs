//! Tools beside the check: what shows a volume's structures, and what sets their fields for tests.

pub mod dump;
#[cfg(feature = "test-support")]
pub mod inject;
