//! Volumes damaged at random: bytes, whole blocks, named fields, and the end cut off.

use crate::delta_volume::{SHARED_FILES, SHARED_ROUNDS};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::checkpoint::{self, CHECKSUM_OFFSET, RawCheckpoint};
use medfs_format::delta::COMPACT_MAGIC;
use medfs_format::node::{RawInode, footer};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{BLOCK_SIZE, Block, Geometry, Ino, Nid, crc};
use medfs_fsck::dump::{Dump, Value};
use medfs_fsck::inject::{self, Target};
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore};
use rand_xoshiro::Xoshiro256PlusPlus;

const META: WriteTag = WriteTag::new(Cause::Meta, Temperature::Cold);
/// Node ids looked at for targets: test volumes have no more.
const NIDS: Nid = 4096;

/// A whole volume, and what on it is worth damaging.
pub struct Base {
    /// The volume. Cases work on copies.
    pub dev: MemDevice,
    /// Blocks that hold anything, metadata first.
    pub blocks: Vec<u64>,
    inos: Vec<Ino>,
    nodes: Vec<Nid>,
    /// Inodes with zones.
    with_deltas: Vec<Ino>,
    /// Whether there are shared record nodes to replay.
    shared: bool,
    geometry: Geometry,
}

impl Base {
    /// Looks a whole volume over. Panics where it is none.
    pub fn new(dev: MemDevice) -> Base {
        let superblock = read_block(&dev, 0).expect("memory does not fail");
        let geometry = RawSuperblock::in_block(&superblock).validate().expect("a volume");
        let (mut inos, mut nodes) = (Vec::new(), Vec::new());
        {
            let mut dump = Dump::open(&dev).expect("a volume");
            for nid in 3..NIDS.min(geometry.max_nid()) {
                let Ok(entry) = dump.nat(nid) else { continue };
                let number = |field| match entry.get(field) {
                    Some(Value::Number(n)) => *n as u32,
                    _ => 0,
                };
                if geometry.in_main(number("block_addr")) {
                    if number("ino") == nid { inos.push(nid) } else { nodes.push(nid) }
                }
            }
        }
        let has_zone = |ino: &&Ino| inject::fields(&dev, &Target::Zone(**ino)).is_ok();
        let shared = inject::fields(&dev, &Target::SharedNode(0)).is_ok();
        let with_deltas = match RawSuperblock::in_block(&superblock).is_delta_volume() {
            true => inos.iter().filter(has_zone).copied().collect(),
            false => Vec::new(),
        };
        let blocks = dev.written();
        Base { with_deltas, shared, dev, blocks, inos, nodes, geometry }
    }

    /// A copy with damage of one to five kinds, the fields first.
    pub fn damaged(&self, rng: &mut Xoshiro256PlusPlus) -> MemDevice {
        let dev = self.dev.snapshot();
        let count = rng.random_range(1..6);
        let fields = rng.random_range(0..=count);
        (0..fields).for_each(|_| self.set_field(rng, &dev));
        (fields..count).for_each(|_| change_block(rng, &dev, &self.blocks));
        if rng.random_range(0..40) == 0 { cut(&dev, rng.random_range(0..dev.block_count())) } else { dev }
    }

    /// Sets a named field, with what guards its structure made right again. Does nothing where earlier damage hides it.
    fn set_field(&self, rng: &mut Xoshiro256PlusPlus, dev: &MemDevice) {
        let segment = rng.random_range(0..self.geometry.segment_count_main);
        let ino = *self.inos.choose(rng).expect("a root");
        let (n, page) = (rng.random_range(0..8), rng.random_range(0..12));
        let with_deltas = if self.with_deltas.is_empty() { 20 } else { 40 };
        let target = match rng.random_range(0..with_deltas) {
            20..30 if self.shared => match rng.random_range(0..4) {
                0 => Target::SharedNode(n % SHARED_ROUNDS),
                _ => Target::SharedEntry(n % SHARED_ROUNDS, page % SHARED_FILES.len()),
            },
            20.. => self.delta_target(rng, n, page),
            0 => Target::Superblock(0),
            1..3 => Target::Checkpoint,
            3..5 => Target::Nat(ino),
            5 => Target::Nat(self.nodes.choose(rng).copied().unwrap_or(ino)),
            6..8 => Target::Sit(segment),
            8 => Target::Summary(self.geometry.seg_start(segment) + rng.random_range(0..512)),
            9 => Target::SummaryFooter(segment),
            10 => Target::Journal([0, 2][rng.random_range(0..2)]),
            11..16 => Target::Inode(ino),
            _ => self.nodes.choose(rng).map_or(Target::Inode(ino), |&nid| Target::Node(nid)),
        };
        let Ok(fields) = inject::fields(dev, &target) else { return };
        let &(name, elements) = fields.choose(rng).expect("every structure has fields");
        let field = format!("{name}[{}]", rng.random_range(0..elements));
        let new = self.value(rng);
        let changed = inject::change(dev, &target, &field, |old| match rng.random_range(0..6) {
            0 => old.wrapping_add(1),
            1 => old.wrapping_sub(1),
            2 => old ^ 1 << rng.random_range(0..64),
            _ => new,
        });
        if let (Target::Superblock(0), Ok(())) = (target, changed) {
            // Otherwise the other copy would be taken.
            let block = read_block(dev, 0).expect("memory does not fail");
            dev.write(1, &[&block], META).expect("memory does not fail");
        }
    }

    /// Something in the deltas of a file that has some; where this file has no such thing nothing is set.
    fn delta_target(&self, rng: &mut Xoshiro256PlusPlus, n: usize, page: usize) -> Target<'static> {
        let ino = *self.with_deltas.choose(rng).expect("asked before");
        match rng.random_range(0..12) {
            0..2 => Target::Zone(ino),
            2..4 => Target::Delta(ino, n),
            4..6 => Target::Slice(ino, n, page % 2),
            6 => Target::FirstXattr(ino),
            7..9 => Target::Compact(ino, page),
            9..11 => Target::CompactDelta(ino, page, n),
            _ => Target::CompactSlice(ino, page, n, 0),
        }
    }

    /// A number that means something on this volume, or one that is likely to hurt.
    fn value(&self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        match rng.random_range(0..6) {
            0 => u64::from(*self.inos.choose(rng).expect("a root")),
            1 => self.nodes.choose(rng).copied().unwrap_or(3).into(),
            2 => *self.blocks.choose(rng).expect("a volume"),
            3 => {
                u64::from(self.geometry.main_blkaddr)
                    + rng.random_range(0..u64::from(self.geometry.main_blocks()))
            }
            _ => nasty(rng),
        }
    }
}

/// A number that is likely to hurt.
pub fn nasty(rng: &mut Xoshiro256PlusPlus) -> u64 {
    match rng.random_range(0..7) {
        0 => 0,
        1 => u64::MAX,
        2 => rng.random_range(0..16),
        3 => 1 << rng.random_range(0..64),
        4 => rng.random_range(0..20_000),
        5 => u64::from(u32::MAX) - rng.random_range(0..3),
        _ => rng.random(),
    }
}

/// Brings checksums up to date, so that damage reaches what is behind them. `superblock` is the volume's.
pub fn seal(superblock: &Block, addr: u64, block: &mut Block) {
    let sb = RawSuperblock::in_block(superblock);
    let cp = u64::from(sb.cp_blkaddr.get());
    if addr < 2 {
        RawSuperblock::in_block_mut(block).seal();
    } else if (cp..cp + 1024).contains(&addr) {
        if RawCheckpoint::in_block(block).checksum_offset.get() as usize <= CHECKSUM_OFFSET {
            checkpoint::seal(block);
        }
    } else if block.0[..4] == COMPACT_MAGIC.to_le_bytes() {
        inject::seal_compact(block);
    } else if footer(block).nid == footer(block).ino {
        block.view_mut::<RawInode>().seal(crc::chain(!0, &sb.uuid));
    }
}

/// Sets a few words of a block, preferably in its header and footer.
pub fn change_bytes(rng: &mut Xoshiro256PlusPlus, addr: u64, block: &mut Block) {
    for _ in 0..rng.random_range(1..4) {
        // Headers, footers and superblock are where a random byte matters.
        let start = match rng.random_range(0..4) {
            0 => rng.random_range(0..400),
            1 if addr < 2 => 1024 + rng.random_range(0..120),
            2 => BLOCK_SIZE - 8 - rng.random_range(0..48),
            _ => rng.random_range(0..BLOCK_SIZE - 8),
        };
        let width = [1, 2, 4, 8][rng.random_range(0..4)];
        let start = start / width * width;
        block.0[start..start + width].copy_from_slice(&nasty(rng).to_le_bytes()[..width]);
    }
}

/// Damages one of `blocks`: some words, all of it, or another block in its place.
pub fn change_block(rng: &mut Xoshiro256PlusPlus, dev: &MemDevice, blocks: &[u64]) {
    let read = |addr| read_block(dev, addr).expect("memory does not fail");
    // The metadata comes first in the list, file content last: prefer the former, and the superblock least.
    let at = match rng.random_range(0..10) {
        0 => rng.random_range(0..2),
        1..6 => rng.random_range(0..blocks.len().min(60)),
        _ => rng.random_range(0..blocks.len()),
    };
    let addr = blocks[at];
    let mut block = read(addr);
    match rng.random_range(0..20) {
        0 => rng.fill_bytes(&mut block.0[..]),
        1 => *block = Block::ZERO,
        2 => block = read(blocks[rng.random_range(0..blocks.len())]),
        _ => change_bytes(rng, addr, &mut block),
    }
    if rng.random_range(0..4) > 0 {
        seal(&read(0), addr, &mut block);
    }
    dev.write(addr, &[&block], META).expect("memory does not fail");
}

/// The first `blocks` blocks of a device.
pub fn cut(dev: &MemDevice, blocks: u64) -> MemDevice {
    let short = MemDevice::new(blocks);
    for addr in dev.written().into_iter().filter(|&addr| addr < blocks) {
        let block = read_block(dev, addr).expect("memory does not fail");
        short.write(addr, &[&block], META).expect("memory does not fail");
    }
    short
}
