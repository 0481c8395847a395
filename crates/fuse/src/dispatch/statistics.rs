//! What a mount tells of itself and of files, in pieces that an ioctl has room for.
//!
//! Invariant: nobody gets a piece of what somebody else asked for. Locks: `snapshot` is a leaf.

use crate::control::{STATS_PAGE_SIZE, StatsPage};
use crate::request::{Errno, damage_met};
use medfs::{Ino, Volume};
use medfs_device::ImageFile;
use parking_lot::Mutex;
use rustix::ioctl::Opcode;
use std::sync::Arc;

/// What was told when something was last asked for from its beginning.
#[derive(Default)]
struct StatsSnapshot {
    number: u32,
    /// Nobody else gets another piece of it.
    asked: Option<Asked>,
    json: Arc<[u8]>,
}

/// A question, and who asked it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) what: Opcode,
    pub(super) ino: Ino,
    pub(super) uid: u32,
}

/// Statistics, told in pieces.
pub(super) struct Statistics {
    snapshot: Mutex<StatsSnapshot>,
    /// The options of the mount in force, which are told beside the volume's.
    options: Vec<String>,
    image: Option<ImageFile>,
}

impl Statistics {
    pub(super) fn new(options: Vec<String>, image: Option<ImageFile>) -> Statistics {
        Statistics { snapshot: Mutex::default(), options, image }
    }

    /// Those of the volume, as JSON.
    pub(super) fn of_volume(&self, volume: &Volume) -> Result<Vec<u8>, Errno> {
        let mut stats = volume.stats();
        stats.options.extend_from_slice(&self.options);
        let mut stats = serde_json::to_value(stats).map_err(|_| Errno::IO)?;
        // Who unmounts it waits for this process.
        stats["process"] = std::process::id().into();
        stats["damage_met"] = damage_met().into();
        if let Some(gone) = self.image.as_ref().and_then(ImageFile::gone) {
            stats["image"] = gone.word().into();
        }
        serde_json::to_vec(&stats).map_err(|_| Errno::IO)
    }

    /// The piece that is asked for of what `tell` tells; `EAGAIN` where something else was asked meanwhile.
    pub(super) fn page(
        &self,
        asked: Asked,
        mut page: StatsPage,
        tell: impl FnOnce() -> Result<Vec<u8>, Errno>,
    ) -> Result<StatsPage, Errno> {
        if page.offset == 0 {
            let json = tell()?;
            let mut latest = self.snapshot.lock();
            let number = latest.number.wrapping_add(1);
            *latest = StatsSnapshot { number, asked: Some(asked), json: json.into() };
            page.snapshot = latest.number;
        }
        let json = {
            let latest = self.snapshot.lock();
            if latest.number != page.snapshot || latest.asked != Some(asked) {
                return Err(Errno::AGAIN);
            }
            latest.json.clone()
        };
        let left = json.get(page.offset as usize..).ok_or(Errno::INVAL)?;
        let piece = &left[..left.len().min(STATS_PAGE_SIZE)];
        page.total = json.len() as u32;
        page.len = piece.len() as u32;
        page.data.fill(0);
        page.data[..piece.len()].copy_from_slice(piece);
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control;

    #[test]
    fn what_one_asked_nobody_else_is_told() {
        let statistics = Statistics::new(Vec::new(), None);
        let root = Asked { what: control::FILE_STATS, ino: 7, uid: 0 };
        let from =
            |snapshot, offset| StatsPage { snapshot, offset, total: 0, len: 0, data: [0; STATS_PAGE_SIZE] };
        let told = statistics.page(root, from(0, 0), || Ok(b"secret".to_vec())).unwrap();
        let rest = || from(told.snapshot, 1);
        let again = |asked: Asked| statistics.page(asked, rest(), || unreachable!("it is a later piece"));
        assert_eq!(&again(root).unwrap().data[..5], b"ecret");
        for other in
            [Asked { uid: 1000, ..root }, Asked { ino: 8, ..root }, Asked { what: control::STATS, ..root }]
        {
            assert!(matches!(again(other), Err(Errno::AGAIN)), "{other:?}");
        }
    }
}
