//! What was agreed on with the kernel when a mount began.

use crate::abi::Init;
use medfs_device::ImageFile;
use std::time::Duration;

/// What was agreed on with the kernel, as far as serving requests depends on it.
pub(crate) struct Agreed {
    pub(crate) accepted: Init,
    pub(crate) timeout: Duration,
    pub(crate) direct: bool,
    /// The options of the mount in force, as text.
    pub(crate) options: Vec<String>,
    /// The image file of the volume.
    pub(crate) image: Option<ImageFile>,
}
