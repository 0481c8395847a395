//! A damaged volume that is mounted to be written to, without a check: it is refused, or it shows what was
//! there. What is written then costs no file that a repair would have kept.

use super::*;
use crate::model::{Id, Inode};
use crate::observe::compare_inode;
use medfs::{Files, NewFile};
use medfs_format::nat::{RawNatBlock, RawNatEntry};
use medfs_format::summary::{JOURNAL_SIZE, RawSummaryBlock};
use std::mem::offset_of;
use std::ops::Range;

/// Bytes that a program writes to such a volume: enough for each log to hand out blocks.
const WRITTEN: usize = 3 << 20;

impl Volume {
    /// Mounts a copy with one bit flipped, writes to it, unmounts and repairs it; whether the mount was refused. What
    /// the user is told of, as an error of reading or writing, is no failure.
    pub fn mount_flipped(&self, target: Target, bit: usize) -> Result<bool, Failure> {
        self.used(target, &|| self.flipped(target, bit))
    }

    /// The same of a block that is damaged in one of the ways, by bits that come from `rng`.
    pub fn mount_damaged(
        &self,
        target: Target,
        damage: Damage,
        rng: &Xoshiro256PlusPlus,
    ) -> Result<bool, Failure> {
        self.used(target, &|| self.damaged(&[(target, damage)], &mut rng.clone()))
    }

    /// The same of a block of SIT or NAT of which the last write was lost: the checkpoint takes the other copy,
    /// an older one.
    pub fn mount_older(&self, target: Target) -> Result<bool, Failure> {
        self.used(target, &|| {
            let geo = RawSuperblock::in_block(&self.block(0)).validate().expect("a volume");
            let other = geo.other_copy(target.block as u32).expect("a block of SIT or NAT");
            let dev = FaultDevice::new(self.dev.snapshot(), 0);
            dev.inner().write(target.block, &[&self.block(other.into())], META).expect("memory");
            dev
        })
    }

    /// The same with zeros for one entry of a NAT block: the node's address is lost, and its number seems free.
    pub fn mount_without_entry(&self, target: Target, place: usize) -> Result<bool, Failure> {
        self.used(target, &|| {
            let mut block = self.block(target.block);
            block.view_mut::<RawNatBlock>().entries[place] = RawNatEntry::default();
            let dev = FaultDevice::new(self.dev.snapshot(), 0);
            dev.inner().write(target.block, &[&block], META).expect("memory");
            dev
        })
    }

    /// The places of a NAT block's entries that lead to nodes.
    pub fn entries_in_use(&self, target: Target) -> Vec<usize> {
        let block = self.block(target.block);
        let entries = block.view::<RawNatBlock>().entries.iter().enumerate();
        entries.filter(|(_, entry)| entry.block_addr.get() > 1).map(|(place, _)| place).collect()
    }

    fn used(&self, target: Target, damaged: &dyn Fn() -> FaultDevice<MemDevice>) -> Result<bool, Failure> {
        let dev = Arc::new(damaged());
        let mounted = || self.only_read(target, &dev).and_then(|()| self.mounted(target, &dev));
        let is_refused = match guarded(|| Ok(mounted())) {
            Ok(went) => went?,
            Err(e) => return fail("panic", e),
        };
        if !is_refused {
            let (unused, _) = Self::repaired(&Arc::new(damaged()), &BTreeSet::new())?;
            let (used, _) = Self::repaired(&dev, &BTreeSet::new())?;
            // What a repair knows of a struck file from blocks that are free is overwritten.
            let is_kept = |id| {
                let ino = self.shown.inode(id).ino;
                !self.has_block(ino, target) && self.is_in(&unused, ino)
            };
            self.compare_files(&used, "used and repaired", &is_kept)?;
        }
        Ok(is_refused)
    }

    /// That a mount with ro shows what was there, or says that it may not.
    fn only_read(&self, target: Target, dev: &Arc<FaultDevice<MemDevice>>) -> Result<(), Failure> {
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let Ok(volume) = Engine::open(dev.clone(), options, test_clock()) else { return Ok(()) };
        match observe(&volume) {
            Ok(shown) if PastDamage::of(&volume).unrecovered().is_empty() => {
                self.compare_files(&shown, "read only", &|id| self.must_be_shown(id, target))
            }
            _ => Ok(()), // what goes wrong is told
        }
    }

    /// Whether a file that is shown without a word must be as it was. Nothing tells a bit of content from another, nor
    /// of an address in a node, nor names in a directory.
    fn must_be_shown(&self, id: Id, target: Target) -> bool {
        let is_struck = || self.ways_of(id).iter().any(|&ino| self.has_block(ino, target));
        !self.hides_what_was_last(target) && !is_struck()
    }

    fn mounted(&self, target: Target, dev: &Arc<FaultDevice<MemDevice>>) -> Result<bool, Failure> {
        let Ok(volume) = Engine::open(dev.clone(), MountOptions::default(), test_clock()) else {
            return Ok(true);
        };
        if let Ok(shown) = observe(&volume) {
            self.compare_files(&shown, "mounted", &|id| self.must_be_shown(id, target))?;
        }
        // What goes wrong here is told.
        let _ = write_to(&volume).and_then(|()| volume.close());
        Ok(false)
    }

    /// Whether a block is one of a file's own.
    fn has_block(&self, ino: Ino, target: Target) -> bool {
        self.own.get(&ino).is_some_and(|own| own.contains(&target.block))
    }

    /// Whether damage to a block looks like power loss, as the end of the fsync log and of a checkpoint does: then what
    /// came before it is shown.
    fn hides_what_was_last(&self, target: Target) -> bool {
        let in_force = self.targets.iter().filter(|target| target.part == Part::Pack(true));
        target.part == Part::Log || in_force.map(|target| target.block).max() == Some(target.block)
    }

    /// That what was found has all wanted files, with their content.
    fn compare_files(&self, found: &Model, when: &str, wants: &dyn Fn(Id) -> bool) -> Result<(), Failure> {
        let files = self.shown.inodes().filter(|(id, inode)| !inode.is_dir() && wants(*id));
        for (id, inode) in files {
            let path = self.shown.path_of(id);
            let Some((_, is)) = found.of_ino(inode.ino) else {
                return fail("lost", format!("{when}: {path} (inode {})", inode.ino));
            };
            // An older part of a directory may name a file once more.
            let is = Inode { nlink: is.nlink.min(inode.nlink), ..is.clone() };
            compare_inode(inode, &is).or_else(|e| fail("content", format!("{when}: {path}: {e}")))?;
        }
        Ok(())
    }

    /// Whether a repaired volume has a file as it was.
    fn is_in(&self, found: &Model, ino: Ino) -> bool {
        let (was, is) = (self.shown.of_ino(ino), found.of_ino(ino));
        was.zip(is).is_some_and(|((_, was), (_, is))| compare_inode(was, is).is_ok())
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
            // In the summary block of the hot data log, and in that of the cold one.
            false => [first, first + 2].map(|block| at(block, offset_of!(RawSummaryBlock, journal))).into(),
        }
    }
}

/// Makes a file, another that is fsynced, and changes the directory.
fn write_to(volume: &Engine) -> medfs::Result<()> {
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    for name in ["written behind a flipped bit", "and another"] {
        let ino = volume.create(volume.root(), name.as_bytes(), &new)?.ino;
        volume.write(ino, 0, &vec![7; WRITTEN])?;
        volume.fsync(ino, false)?;
        volume.release(ino, 1);
    }
    volume.unlink(volume.root(), b"and another")?;
    volume.sync()
}
