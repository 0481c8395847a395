//! Damaged metadata: each metadata block of a volume in turn cannot be read, is zeros, has one flipped bit, or
//! holds random bytes, or one of its sectors is zeros or older; then `fsck --repair`.
//!
//! A [`Volume`] is an image with what it shows, and its metadata blocks by what they are ([`Part`]).
//! [`Volume::strike`] damages some of them on a copy, repairs it, lets the engine finish as
//! `medfs fsck --repair` does, checks once more, and judges what is left:
//!
//! - The repair ends with 0 or 1 by e2fsck's convention, the next check finds nothing, and nor does `fsck.f2fs`, which
//!   looks at one in `MEDFS_JUDGED`.
//! - Every file none of whose own blocks was struck is there with its content and attributes, found by its
//!   inode number: at its place, unless a directory on the way was struck, and then in lost+found at the
//!   latest.
//! - A file with a struck direct or indirect node is there with its size and pages, also where one bit
//!   of it was flipped. Where more was struck, the file is compressed or a log goes on, a page may be a
//!   hole. One with a struck node of attributes has its content. Of one whose inode was lost the blocks
//!   and nodes are left: it is in its place with its pages, but for those of which the inode had deltas,
//!   and with a size that is none too small. So it is where an indirect node was lost with the inode;
//!   where a direct one was, pages may be holes. Of other files whose inode was struck nothing is asked,
//!   nor where no node is left that says whether the file is divided into clusters, on a volume with such
//!   files.
//! - The check before the repair tells of every file that is gone or not as it was, by its path: see [`told`].
//! - Where a block of the checkpoint pack in force was struck, what the other pack shows will do; where a
//!   node of the fsync log was, each file that was fsynced will do as at any of its fsyncs, or at the
//!   checkpoint. That a flipped bit in an address, a name or a count goes unnoticed is allowed where it
//!   concerns nothing but the file or directory whose block it is in.

mod interrupted;
mod judge;
mod mounted;
mod rescue;
mod strike;
mod told;

pub use strike::left_of;
pub use told::Told;

use crate::harness::guarded;
use crate::model::Model;
use crate::observe::{observe, observe_but};
use crate::volume::test_clock;
use medfs::{Error, FileKind, Ino, MountOptions, PastDamage, Recover, Volume as Engine};
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::checkpoint::{CpFlags, RawCheckpoint};
use medfs_format::node::{RawDirectNode, RawInode, footer};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{Block, COMPRESS_ADDR, Geometry, delta, nat};
use medfs_fsck::dump::{Dump, Record, Value};
use medfs_fsck::{Code, Options, RepairError, check, repair};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// What happens to a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// It cannot be read until it is written.
    Unreadable,
    /// It is zeros.
    Zeroed,
    /// One bit is flipped.
    Flipped,
    /// It holds random bytes.
    Random,
    /// It holds what was meant for another block of the same kind.
    Misplaced,
    /// One of its sectors is zeros.
    Torn,
    /// One of its sectors is what was there before: that of another block of the same kind.
    TornOlder,
    /// Its first sector holds random bytes: of an inode no field of its head is left.
    Beheaded,
}

impl Damage {
    /// Those that strike any block.
    pub const ALL: [Damage; 6] = [
        Damage::Unreadable,
        Damage::Zeroed,
        Damage::Flipped,
        Damage::Random,
        Damage::Torn,
        Damage::TornOlder,
    ];
    /// Those that leave a part of a block as it was.
    pub const IN_PART: [Damage; 3] = [Damage::Flipped, Damage::Torn, Damage::TornOlder];

    /// So many of [`ALL`](Self::ALL), from the first on.
    pub fn first(kinds: Option<u64>) -> &'static [Damage] {
        &Self::ALL[..kinds.map_or(Self::ALL.len(), |kinds| kinds.clamp(1, 6) as usize)]
    }
}

/// What a block of metadata is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Part {
    Superblock,
    /// The checkpoint pack in force, or the other one.
    Pack(bool),
    Sit,
    Nat,
    Ssa,
    /// An inode, and whether it is a directory's.
    Inode(bool),
    Direct,
    Indirect,
    Xattr,
    Dentries,
    /// A node written since the checkpoint, or the block behind the last one.
    Log,
}

/// A block to be struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Where it is.
    pub block: u64,
    /// What it is.
    pub part: Part,
}

/// A volume and what is known of it.
pub struct Volume {
    /// Names it in reports.
    pub name: String,
    dev: MemDevice,
    shown: Model,
    at_checkpoint: Model,
    /// What the pack shows that is not in force, with and without a roll-forward.
    by_other_pack: Vec<Model>,
    /// The blocks of each inode, with those of files that its deltas are made from.
    own: BTreeMap<Ino, BTreeSet<u64>>,
    /// Files with compact pages: with a node that leads to these, other pages are what they were before their
    /// last update.
    pub reverting: Vec<Ino>,
    /// Compressed files, with the pages of their clusters: what their nodes held nobody else knows.
    compressed: BTreeMap<Ino, u64>,
    /// The nodes in which such files have compressed clusters.
    marked: BTreeMap<Ino, BTreeSet<u64>>,
    /// Files with blocks or nodes beside their inode, not counting that of attributes.
    spread: BTreeSet<Ino>,
    /// Which inode each block of one holds, and of which pages it has deltas.
    inodes: BTreeMap<u64, Ino>,
    in_zone: BTreeMap<Ino, BTreeSet<u64>>,
    /// Whether the checkpoint has the newest summaries of all logs.
    whole_summaries: bool,
    /// Whether the fsync log has shared nodes.
    shared: bool,
    /// Metadata blocks, in the order of their addresses.
    pub targets: Vec<Target>,
}

/// A case that went wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// In one word.
    pub class: &'static str,
    /// In a sentence.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.text)
    }
}

fn fail<T>(class: &'static str, text: impl fmt::Display) -> Result<T, Failure> {
    Err(Failure { class, text: text.to_string() })
}

const META: WriteTag = WriteTag::new(Cause::Meta, Temperature::Cold);

fn open(dev: Arc<dyn BlockDevice>, recover: Recover) -> medfs::Result<Engine> {
    let options = MountOptions { recover, ..MountOptions::default() };
    Engine::open(dev, options, test_clock())
}

fn shows(dev: &MemDevice, recover: Recover) -> Result<Model, String> {
    shows_with(dev, MountOptions { recover, ..MountOptions::default() })
}

fn shows_with(dev: &MemDevice, options: MountOptions) -> Result<Model, String> {
    let volume = Engine::open(Arc::new(dev.snapshot()), options, test_clock()).map_err(|e| e.to_string())?;
    observe(&volume)
}

fn number(record: &Record, field: &str) -> u32 {
    match record.get(field) {
        Some(Value::Number(n)) => *n as u32,
        other => panic!("{field}: {other:?}"),
    }
}

/// The pages of which the zone of an inode has deltas.
fn pages_in_zone(block: &Block, ino: Ino) -> BTreeSet<u64> {
    let inode: &RawInode = block.view();
    if inode.inline().contains(medfs_format::node::Inline::DATA) {
        return BTreeSet::new();
    }
    let area = &block.0[inode.slots(true).inline_xattr_range()];
    let zone = delta::zone_range(area).map(|range| &area[range]);
    let records = zone.map_or(Vec::new(), |zone| delta::parse_prefix(zone, ino).0);
    records.into_iter().map(|record| record.index.into()).collect()
}

impl Volume {
    /// Looks a sound volume over. `made_from`: files with deltas that are made of blocks of another file.
    pub fn new(name: impl Into<String>, dev: MemDevice, made_from: &[(Ino, Ino)]) -> Volume {
        let name = name.into();
        let shown = shows(&dev, Recover::All).unwrap_or_else(|e| panic!("{name}: {e}"));
        let at_checkpoint = shows(&dev, Recover::Nothing).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut v = Volume {
            name,
            dev,
            shown,
            at_checkpoint,
            by_other_pack: Vec::new(),
            own: BTreeMap::new(),
            reverting: Vec::new(),
            compressed: BTreeMap::new(),
            marked: BTreeMap::new(),
            spread: BTreeSet::new(),
            inodes: BTreeMap::new(),
            in_zone: BTreeMap::new(),
            whole_summaries: false,
            shared: false,
            targets: Vec::new(),
        };
        v.look();
        for (file, source) in made_from {
            let blocks = v.own[source].clone();
            v.own.get_mut(file).expect("it is there").extend(blocks);
        }
        v.targets.sort_unstable();
        v.targets.dedup_by_key(|t| t.block);
        v
    }

    fn block(&self, addr: u64) -> Box<Block> {
        read_block(&self.dev, addr).expect("memory does not fail")
    }

    fn add(&mut self, block: impl Into<u64>, part: Part) {
        self.targets.push(Target { block: block.into(), part });
    }

    fn look(&mut self) {
        let block = self.block(0);
        let sb = RawSuperblock::in_block(&block);
        let g = sb.validate().expect("a volume");
        self.add(0u32, Part::Superblock);
        self.add(1u32, Part::Superblock);
        let in_force = self.packs(&g);
        let dev = self.dev.snapshot();
        let mut dump = Dump::open(&dev).expect("a sound volume");
        let mut nat_blocks = BTreeSet::new();
        for nid in 3..g.max_nid() {
            let addr = number(&dump.nat(nid).expect("in range"), "block_addr");
            if g.in_main(addr) {
                nat_blocks.insert(nid / nat::ENTRIES_PER_BLOCK as u32);
                self.node(&g, addr);
            }
        }
        for index in nat_blocks {
            // Both copies: which one is in force is the checkpoint's word.
            self.add(g.nat_block(index, false), Part::Nat);
            self.add(g.nat_block(index, true), Part::Nat);
        }
        for index in 0..g.sit_blocks() {
            self.add(g.sit_block(index, false), Part::Sit);
            self.add(g.sit_block(index, true), Part::Sit);
        }
        let used: BTreeSet<u32> = self.own.values().flatten().map(|&block| g.segno(block as u32)).collect();
        for segno in used {
            self.add(g.ssa_block(segno), Part::Ssa);
        }
        self.whole_summaries = in_force.flags().contains(CpFlags::UMOUNT);
        self.log(&g, in_force);
    }

    /// Takes up both packs; the checkpoint in force.
    fn packs(&mut self, g: &Geometry) -> RawCheckpoint {
        let heads = [0, 1].map(|pack| {
            let block = self.block(g.cp_pack(pack).into());
            let sound = medfs_format::checkpoint::verify_checksum(&block, 0).is_ok();
            let cp = RawCheckpoint::in_block(&block).clone();
            (sound && cp.validate(g.cp_pack(pack), g).is_ok()).then_some(cp)
        });
        let version = |pack: usize| heads[pack].as_ref().map(|cp| cp.checkpoint_ver.get());
        let in_force = usize::from(version(1) > version(0));
        for (pack, head) in heads.iter().enumerate() {
            let Some(cp) = head else { continue };
            for at in 0..cp.cp_pack_total_block_count.get() {
                self.add(g.cp_pack(pack) + at, Part::Pack(pack == in_force));
            }
        }
        let without = self.dev.snapshot();
        let start = g.cp_pack(in_force);
        let blocks = heads[in_force].as_ref().map_or(1, |head| head.cp_pack_total_block_count.get());
        // Either header alone would count.
        for header in [start, start + blocks - 1] {
            without.write(header.into(), &[&Block::ZERO], META).expect("memory");
        }
        // A mount that may write refuses such a volume.
        let shown = [Recover::All, Recover::Nothing].map(|recover| {
            let options = MountOptions { recover, read_only: true, ..MountOptions::default() };
            guarded(|| shows_with(&without, options))
        });
        self.by_other_pack = shown.into_iter().map(|shown| shown.expect("read-only it opens")).collect();
        heads[in_force].clone().expect("a sound volume has one")
    }

    /// Takes up a node and what it names.
    fn node(&mut self, g: &Geometry, addr: u32) {
        let block = self.block(addr.into());
        let f = *footer(&block);
        let ino = f.ino.get();
        let mut named = Vec::new();
        let inode: &RawInode = block.view();
        let part = match node_kind(f.node_offset()) {
            NodeKind::Inode => {
                let dir = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Directory);
                self.inodes.insert(addr.into(), ino);
                self.in_zone.insert(ino, pages_in_zone(&block, ino));
                if let Some(compression) = inode.compression() {
                    self.compressed.insert(ino, compression.cluster_pages() as u64);
                }
                let inline = inode
                    .inline()
                    .intersects(medfs_format::node::Inline::DATA | medfs_format::node::Inline::DENTRY);
                if !inline {
                    named.extend(inode.i_addr.iter().map(|a| a.get()));
                }
                Part::Inode(dir)
            }
            NodeKind::Direct => {
                named.extend(block.view::<RawDirectNode>().addr.iter().map(|a| a.get()));
                Part::Direct
            }
            NodeKind::Indirect => Part::Indirect,
            NodeKind::Xattr => Part::Xattr,
        };
        self.add(addr, part);
        if named.contains(&COMPRESS_ADDR) {
            self.marked.entry(ino).or_default().insert(addr.into());
        }
        let is_dir = self.at_checkpoint.of_ino(ino).is_some_and(|(_, i)| i.is_dir());
        for &data in named.iter().filter(|&&data| g.in_main(data)) {
            if is_dir {
                self.add(data, Part::Dentries);
            }
        }
        if matches!(part, Part::Direct | Part::Indirect) || named.iter().any(|&data| g.in_main(data)) {
            self.spread.insert(ino);
        }
        let own = self.own.entry(ino).or_default();
        own.insert(addr.into());
        own.extend(named.into_iter().filter(|&data| g.in_main(data)).map(u64::from));
    }

    /// Takes up the fsync log: the nodes since the checkpoint, and where the next one would be.
    fn log(&mut self, g: &Geometry, cp: RawCheckpoint) {
        let (segno, offset) = cp.curseg(4);
        let mut addr = g.seg_start(segno) + u32::from(offset);
        let mut seen = BTreeSet::new();
        while g.in_main(addr) && seen.insert(addr) {
            self.add(addr, Part::Log);
            let block = self.block(addr.into());
            let f = footer(&block);
            if f.cp_ver.get() as u32 != cp.checkpoint_ver.get() as u32 {
                break;
            }
            let ino = f.ino.get();
            self.shared |= f.nid.get() == g.node_ino;
            self.own.entry(ino).or_default().insert(addr.into());
            addr = f.next_blkaddr.get();
        }
    }

    /// What it shows before it is damaged.
    pub fn shown(&self) -> &Model {
        &self.shown
    }
}
