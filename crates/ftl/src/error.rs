//! What can go wrong below a request.

use crate::nand::NandError;
use core::fmt;

/// Result of the layer.
pub type Result<T> = core::result::Result<T, FtlError>;

/// An error of the translation layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FtlError {
    /// The medium failed in a way that is not the layer's to mend.
    Nand(NandError),
    /// The medium holds something that cannot be: what, and the flash page or block it was found in.
    Corrupt(&'static str, u32),
    /// The medium is formatted for something else: what differs, as formatted and as asked for.
    Incompatible(&'static str, u64, u64),
    /// The medium holds no finished format.
    Unformatted,
    /// No block is left that could take data: too many went bad.
    WornOut,
    /// The request goes beyond the last logical page.
    OutOfRange,
}

impl From<NandError> for FtlError {
    fn from(error: NandError) -> FtlError {
        FtlError::Nand(error)
    }
}

impl fmt::Display for FtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FtlError::Nand(e) => write!(f, "{e}"),
            FtlError::Corrupt(what, at) => write!(f, "corrupt: {what} (flash page {at})"),
            FtlError::Incompatible(what, is, wanted) => {
                write!(f, "the medium was formatted with {what} {is}, not {wanted}")
            }
            FtlError::Unformatted => write!(f, "the medium is not formatted for this translation layer"),
            FtlError::WornOut => write!(f, "worn out: no writable block is left"),
            FtlError::OutOfRange => write!(f, "beyond the last logical page"),
        }
    }
}

impl core::error::Error for FtlError {}
