//! What recovery says of a node that is wrong.

use crate::error::Error;
use medfs_format::{BlockAddr, FormatError, Structure};

/// Reports a node of the chain.
pub(super) fn bad_node(addr: BlockAddr, field: &'static str, value: impl ToString) -> Error {
    FormatError::corrupt(Structure::NodeFooter, addr, field, value).into()
}
