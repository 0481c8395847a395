//! How to look at a volume.

use crate::medium::Medium;
use medfs_device::BlockDevice;

/// How to check.
#[derive(Debug, Clone)]
pub struct Options {
    /// Findings kept; the rest is counted.
    pub max_findings: usize,
    /// Whether a volume whose fsyncs lie in an NVRAM is taken as of its last checkpoint, over which a repair keeps
    /// them to be replayed. Otherwise that is a fatal finding.
    pub past_nvram: bool,
    /// Whether a volume without superblocks and checkpoints is looked for where `mkfs` would have laid it out on such a
    /// device. For a copy alone: something else may have been made of the device.
    pub guess_layout: bool,
    /// Whether the newest nodes count where the newest checkpoint is not finished. For a copy alone: power loss leaves
    /// content that was not written yet.
    pub past_unfinished: bool,
}

impl Options {
    /// A device, as these look at it.
    pub(crate) fn medium<'d>(&self, dev: &'d dyn BlockDevice) -> Medium<'d> {
        let medium = Medium::lenient(dev);
        let medium = if self.past_nvram { medium.of_last_checkpoint() } else { medium };
        let medium = if self.guess_layout { medium.of_usual_layout() } else { medium };
        if self.past_unfinished { medium.past_unfinished() } else { medium }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options { max_findings: 10_000, past_nvram: false, guess_layout: false, past_unfinished: false }
    }
}
