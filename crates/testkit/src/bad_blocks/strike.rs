//! Damaging blocks of a copy of a volume, repairing it as the command does, and having it judged: by
//! [`super::judge`], and by `fsck.f2fs`.

use super::told::Told;
use super::*;
use crate::fuzz::variable;
use crate::images::{FsckF2fs, save};
use crate::subject::Check;
use std::io;
use std::path::Path;

/// Bytes that a device writes as one.
const SECTOR: usize = 512;
/// Turns of repair and roll-forward, as many as the command takes.
const TURNS: usize = 4;

/// What counts of a repaired device: a block that is still unreadable is zeros.
pub fn left_of(dev: &FaultDevice<MemDevice>, hits: &[(Target, Damage)]) -> MemDevice {
    let left = dev.inner().snapshot();
    for block in hits.iter().map(|(target, _)| target.block).filter(|&block| read_block(dev, block).is_err())
    {
        left.write(block, &[&Block::ZERO], META).expect("memory");
    }
    left
}

/// Keeps an image of a volume in the folder `MEDFS_KEEP`, where there is one: the last case's is left there.
fn kept(dev: &FaultDevice<MemDevice>, hits: &[(Target, Damage)], name: &str) -> io::Result<()> {
    let Some(folder) = std::env::var_os("MEDFS_KEEP") else { return Ok(()) };
    let path = Path::new(&folder).join(name).with_extension("img");
    std::fs::remove_file(&path)
        .or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(e) })?;
    save(&left_of(dev, hits), &path)
}

impl Volume {
    /// Damages these blocks of a copy, repairs it, and judges what is left. Bits to flip come from `rng`.
    pub fn strike(&self, hits: &[(Target, Damage)], rng: &mut Xoshiro256PlusPlus) -> Result<(), Failure> {
        let dev = Arc::new(self.damaged(hits, rng));
        self.end(hits, &dev, Told::default())
    }

    /// Flips one bit of a block of a copy, repairs it, and judges what is left.
    pub fn flip(&self, target: Target, bit: usize) -> Result<(), Failure> {
        self.end(&[(target, Damage::Flipped)], &Arc::new(self.flipped(target, bit)), Told::default())
    }

    /// A copy with one bit of a block flipped.
    pub(super) fn flipped(&self, target: Target, bit: usize) -> FaultDevice<MemDevice> {
        let dev = FaultDevice::new(self.dev.snapshot(), 0);
        let mut block = self.block(target.block);
        block.0[bit / 8] ^= 1 << (bit % 8);
        dev.inner().write(target.block, &[&block], META).expect("memory");
        dev
    }

    /// The bytes of a block up to the last one that is not zero.
    pub fn bytes_in_use(&self, target: Target) -> usize {
        let block = self.block(target.block);
        block.0.iter().rposition(|&b| b != 0).map_or(block.0.len(), |last| last + 1)
    }

    /// Repairs what these hits, and maybe an interrupted repair that told something `before`, left of a copy, and
    /// judges it.
    pub(super) fn end(
        &self,
        hits: &[(Target, Damage)],
        dev: &Arc<FaultDevice<MemDevice>>,
        mut before: Told,
    ) -> Result<(), Failure> {
        kept(dev, hits, "before").expect("MEDFS_KEEP is a folder");
        let done = guarded(|| Self::repaired(dev, &self.torn(hits)).map_err(|f| f.to_string()));
        kept(dev, hits, "after").expect("MEDFS_KEEP is a folder");
        let (found, told) = match done {
            Ok(done) => done,
            Err(e) if e.starts_with("panicked") => return fail("panic", e),
            Err(e) => {
                let class = ["repair", "unclean", "mount", "observe", "again"];
                let class = class.into_iter().find(|c| e.starts_with(c)).unwrap_or("panic");
                return fail(class, e);
            }
        };
        self.judge(hits, &found)?;
        before.also(told);
        self.judge_told(hits, &found, &before)?;
        match self.judged_by_f2fs_tools(hits) {
            true => FsckF2fs.check(Arc::new(left_of(dev, hits))).or_else(|e| fail("fsck.f2fs", e)),
            false => Ok(()),
        }
    }

    /// Whether `fsck.f2fs` looks at the volume that a repair of these hits leaves: at one in `MEDFS_JUDGED`, or in 16.
    fn judged_by_f2fs_tools(&self, hits: &[(Target, Damage)]) -> bool {
        let blocks: u64 = hits.iter().map(|(target, _)| target.block).sum();
        blocks.is_multiple_of(variable("MEDFS_JUDGED").unwrap_or(16))
    }

    /// A copy with these blocks damaged.
    pub fn damaged(&self, hits: &[(Target, Damage)], rng: &mut Xoshiro256PlusPlus) -> FaultDevice<MemDevice> {
        let dev = FaultDevice::new(self.dev.snapshot(), 0);
        for (target, damage) in hits {
            let mut block = self.block(target.block);
            match damage {
                Damage::Unreadable => {
                    let at = target.block..target.block + 1;
                    dev.arm(Fault::on(Kind::Read, Effect::IO).within(at).until_written());
                }
                Damage::Zeroed => block.0.fill(0),
                Damage::Flipped => {
                    // Half of the bits are among those in use.
                    let end = if rng.random() { self.bytes_in_use(*target) } else { 4096 };
                    let bit = rng.random_range(0..end * 8);
                    block.0[bit / 8] ^= 1 << (bit % 8);
                }
                Damage::Random => rng.fill(&mut block.0[..]),
                Damage::Beheaded => rng.fill(&mut block.0[..SECTOR]),
                Damage::Misplaced => block = self.alike(*target, rng),
                Damage::Torn | Damage::TornOlder => {
                    // A node of the log with a part of another one is a change, where no checksum denies it.
                    let older = match (damage, target.part) {
                        (Damage::Torn, _) | (_, Part::Log) => Block::boxed(),
                        _ => self.alike(*target, rng),
                    };
                    // Most often one in which there is something.
                    let sectors: Vec<usize> = (0..block.0.len()).step_by(SECTOR).collect();
                    let differ = |at: &&usize| block.0[**at..][..SECTOR] != older.0[**at..][..SECTOR];
                    let differing: Vec<usize> = sectors.iter().filter(differ).copied().collect();
                    let at = *differing.choose(rng).unwrap_or(&sectors[0]);
                    block.0[at..at + SECTOR].copy_from_slice(&older.0[at..at + SECTOR]);
                }
            }
            dev.inner().write(target.block, &[&block], META).expect("memory");
        }
        dev
    }

    /// Another block of the same kind, or the same one.
    fn alike(&self, target: Target, rng: &mut Xoshiro256PlusPlus) -> Box<Block> {
        let alike: Vec<u64> =
            self.targets.iter().filter(|t| t.part == target.part).map(|t| t.block).collect();
        self.block(*alike.choose(rng).expect("the block itself is one"))
    }

    /// The files of which a part of a node is another one's or zeros, beside other damage. A cluster or the target
    /// of a link that is damaged with it stays where it is: reading it is an error.
    fn torn(&self, hits: &[(Target, Damage)]) -> BTreeSet<Ino> {
        let is_torn = |damage: &Damage| matches!(damage, Damage::Torn | Damage::TornOlder);
        let torn: Vec<u64> = hits.iter().filter(|hit| is_torn(&hit.1)).map(|hit| hit.0.block).collect();
        let is_one = |own: &BTreeSet<u64>| hits.len() > 1 && torn.iter().any(|block| own.contains(block));
        self.own.iter().filter(|(_, own)| is_one(own)).map(|(ino, _)| *ino).collect()
    }

    /// Repairs a device as the command does, and reads what is then on it, beside what was told; `torn` may fail to be
    /// read.
    pub fn repaired(
        dev: &Arc<FaultDevice<MemDevice>>,
        torn: &BTreeSet<Ino>,
    ) -> Result<(Model, Told), Failure> {
        let mut told = Told::default();
        let is_shown = std::env::var_os("MEDFS_SHOW").is_some();
        let options = Options { max_findings: if is_shown { 2000 } else { 20 }, ..Options::default() };
        let brief = |findings: &[medfs_fsck::Finding]| {
            findings.iter().take(4).map(ToString::to_string).collect::<Vec<_>>().join(" | ")
        };
        for turn in 1.. {
            let repaired = match repair(&**dev, &options, &mut |_| {}) {
                Ok(repaired) => repaired,
                Err(RepairError::Io(e)) => return fail("repair", e),
                Err(e) => return fail("repair", e),
            };
            told.add(&repaired.before);
            told.add(&repaired.later);
            if is_shown {
                repaired.before.findings.iter().for_each(|finding| println!("turn {turn}: {finding}"));
            }
            if !repaired.after.is_clean() {
                return fail("unclean", brief(&repaired.after.findings));
            }
            let volume = match open(dev.clone(), Recover::WhatFits) {
                Err(Error::Corrupt(_)) => open(dev.clone(), Recover::Nothing),
                other => other,
            }
            .or_else(|e| fail("mount", e))?;
            volume.close().or_else(|e| fail("mount", format!("close: {e}")))?;
            drop(volume);
            let again = check(&**dev, &options, &mut |_| {}).or_else(|e| fail("again", e))?;
            // What power loss during a checkpoint leaves stays until the next one.
            match again.asks_for_repair() {
                false => break,
                true if turn == TURNS => return fail("again", brief(&again.findings)),
                true => {}
            }
        }
        let volume = open(dev.clone(), Recover::All).or_else(|e| fail("mount", e))?;
        let found = observe_but(&volume, torn).or_else(|e| fail("observe", e))?;
        volume.close().or_else(|e| fail("mount", format!("close: {e}")))?;
        Ok((found, told))
    }
}
