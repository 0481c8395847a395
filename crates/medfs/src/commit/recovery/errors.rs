//! What recovery says of a node that is wrong, and of a checkpoint that is not the last one.

use crate::error::Error;
use medfs_format::{BlockAddr, FormatError, Structure};
use medfs_store::Store;

/// Reports a node of the chain.
pub(super) fn bad_node(addr: BlockAddr, field: &'static str, value: impl ToString) -> Error {
    FormatError::corrupt(Structure::NodeFooter, addr, field, value).into()
}

/// Why a volume that is as of an older checkpoint than its last one is not written to: that would make the loss of the
/// newer one final.
pub(crate) fn newer_is_lost(store: &Store) -> Error {
    let newer =
        "the newer one is destroyed: writing would make that final, and a mount with ro shows this one";
    FormatError::corrupt(Structure::Checkpoint, store.version_in_footers() as u32, "pack", newer).into()
}
