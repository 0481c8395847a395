//! A volume with a flipped bit that is mounted to be written to, without a check: it is refused, or it shows what was
//! there, takes a file, and is sound afterwards.

use super::*;
use crate::observe::compare_inode;
use medfs::{Files, NewFile};
use medfs_format::checkpoint::CpFlags;
use medfs_format::summary::JOURNAL_SIZE;
use std::ops::Range;

impl Volume {
    /// Mounts a copy with one bit flipped, writes a file and unmounts it; whether the mount was refused.
    pub fn mount_flipped(&self, target: Target, bit: usize) -> Result<bool, Failure> {
        let dev = Arc::new(self.flipped(target, bit));
        match guarded(|| Ok(self.mounted(&dev))) {
            Ok(went) => went,
            Err(e) => fail("panic", e),
        }
    }

    fn mounted(&self, dev: &Arc<FaultDevice<MemDevice>>) -> Result<bool, Failure> {
        let Ok(volume) = Engine::open(dev.clone(), MountOptions::default(), test_clock()) else {
            return Ok(true);
        };
        self.compare_files(&volume, "mounted")?;
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let content = vec![7; 20_000];
        let is_written = || -> medfs::Result<()> {
            let ino = volume.create(volume.root(), b"written behind a flipped bit", &new)?.ino;
            volume.write(ino, 0, &content)?;
            volume.fsync(ino, false)?;
            volume.release(ino, 1);
            volume.close()
        };
        is_written().or_else(|e| fail("write", e))?;
        drop(volume);
        let again = check(&**dev, &Options::default(), &mut |_| {}).or_else(|e| fail("check", e))?;
        if again.asks_for_repair() {
            return fail("unclean", &again.findings[0]);
        }
        let volume = open(dev.clone(), Recover::All).or_else(|e| fail("mount", e))?;
        self.compare_files(&volume, "mounted again")?;
        Ok(false)
    }

    /// That a volume has all files, with their content.
    fn compare_files(&self, volume: &Engine, when: &str) -> Result<(), Failure> {
        let found = observe(volume).or_else(|e| fail("observe", format!("{when}: {e}")))?;
        for (id, inode) in self.shown.inodes().filter(|(_, inode)| !inode.is_dir()) {
            let path = self.shown.path_of(id);
            let Some((_, is)) = found.of_ino(inode.ino) else {
                return fail("lost", format!("{when}: {path} (inode {})", inode.ino));
            };
            compare_inode(inode, is).or_else(|e| fail("content", format!("{when}: {path}: {e}")))?;
        }
        Ok(())
    }

    /// Where the counts of the journals of NAT and SIT are, in the checkpoint pack in force.
    pub fn journal_counts(&self) -> Vec<(Target, Range<usize>)> {
        let pack: Vec<Target> =
            self.targets.iter().filter(|target| target.part == Part::Pack(true)).copied().collect();
        let head = self.block(pack[0].block);
        let header = RawCheckpoint::in_block(&head);
        let first = header.cp_pack_start_sum.get() as usize;
        let at = |block: usize, byte: usize| (pack[block], byte * 8..byte * 8 + 16);
        match header.flags().contains(CpFlags::COMPACT_SUM) {
            true => vec![at(first, 0), at(first, JOURNAL_SIZE)],
            // Behind the entries of a summary block: in that of the hot data log, and in that of the cold one.
            false => vec![at(first, 512 * 7), at(first + 2, 512 * 7)],
        }
    }
}
