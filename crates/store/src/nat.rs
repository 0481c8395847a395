//! The node address table in memory: cached entries, dirty ones, and the supply of free node ids.
//!
//! Invariants: a changed entry stays cached and dirty until a checkpoint has written it; a nid freed since
//! the last checkpoint is not handed out before the next one. Of the table itself a bounded number of blocks
//! is kept; a kept block equals the valid copy on disk, or the one that a checkpoint is about to make valid.
//! Locks: one mutex, a leaf but for the device; it is not held while a NAT block is read.
//! Kernel counterpart: `node.c`, NAT cache and free nid management.

mod counted;

use crate::cache::{Cache, HashMap, cache};
use crate::error::Result;
use crate::io::Io;
use crate::ranks;
use medfs_format::nat::{ENTRIES_PER_BLOCK, RawNatBlock, RawNatEntry};
use medfs_format::sit::{flip_bit, test_bit};
use medfs_format::summary::{NAT_JOURNAL_ENTRIES, RawJournal, RawNatJournalEntry};
use medfs_format::{
    Block, BlockAddr, FormatError, Geometry, Ino, NEW_ADDR, NULL_ADDR, Nid, Structure, is_block,
};
use medfs_sync::{Mutex, MutexGuard, Ranked};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use zerocopy::little_endian::U32;

/// Clean entries kept beyond this number are dropped at the next checkpoint.
const MAX_CLEAN: usize = 1 << 16;
/// NAT blocks kept in memory: 4 MiB, for the nodes of half a million files.
const MAX_BLOCKS: usize = 1024;
/// Free nids gathered in one go.
const FREE_TARGET: usize = 2048;

/// One entry of the NAT, with what fsync must know of it.
#[derive(Debug, Clone, Copy)]
pub struct NatEntry {
    /// The inode that the node belongs to.
    pub ino: Ino,
    /// Address of the node; `NULL_ADDR` where the number is free, `NEW_ADDR` where it has no block yet.
    pub addr: BlockAddr,
    pub(crate) version: u8,
    /// The node exists in the last checkpoint.
    pub checkpointed: bool,
    /// The inode block was written with an fsync mark since the last checkpoint (inodes only).
    pub fsynced_inode: bool,
}

struct State {
    /// Which copy of each NAT block is valid.
    bitmap: Vec<u8>,
    cache: HashMap<Nid, NatEntry>,
    dirty: BTreeSet<Nid>,
    free: BTreeSet<Nid>,
    /// Of them and others, those that inodes will want.
    kept: BTreeSet<Nid>,
    /// Next NAT block to scan for free nids.
    scan: u32,
    /// Blocks scanned since anything free was found.
    fruitless: u32,
    /// Grows with each checkpoint, so that a block read across one is not trusted.
    epoch: u64,
    /// Blocks that the checkpoint under way makes valid; their place on disk may still hold something else.
    pending: HashMap<u32, Arc<Block>>,
}

/// The node address table; see the head of this file.
pub struct Nat {
    state: Mutex<State>,
    /// Blocks of the table by their index. Changed under the state's lock alone.
    blocks: Cache<u32, Arc<Block>>,
    geo: Geometry,
}

/// The entries of a journal.
pub(crate) fn journal_entries(geo: &Geometry, journal: &RawJournal) -> Result<Vec<(Nid, NatEntry)>> {
    let entries = journal.nat_entries()?.iter();
    entries.map(|e| Ok((e.nid.get(), parse(geo, e.nid.get(), &e.entry)?))).collect()
}

/// Takes the lowest nid out of the supply, of those that are not kept for inodes where there are others.
fn next_free(state: &mut State) -> Option<Nid> {
    let first = state.free.first().copied()?;
    let others = || state.free.iter().find(|nid| !state.kept.contains(nid)).copied();
    let nid = if state.kept.is_empty() { first } else { others().unwrap_or(first) };
    state.free.remove(&nid);
    Some(nid)
}

/// Records a nid that was free as a node of `ino`.
fn take(state: &mut State, nid: Nid, ino: Ino) {
    let version = state.cache.get(&nid).map_or(0, |e| e.version);
    let entry = NatEntry { ino, addr: NEW_ADDR, version, checkpointed: false, fsynced_inode: false };
    state.cache.insert(nid, entry);
    state.dirty.insert(nid);
}

impl Nat {
    pub(crate) fn new(geo: &Geometry, bitmap: Vec<u8>, journal: &RawJournal, next_free: Nid) -> Result<Nat> {
        let mut state = State {
            bitmap,
            cache: HashMap::default(),
            dirty: BTreeSet::new(),
            free: BTreeSet::new(),
            kept: BTreeSet::new(),
            scan: (next_free.min(geo.max_nid() - 1)) / ENTRIES_PER_BLOCK as u32,
            fruitless: 0,
            epoch: 0,
            pending: HashMap::default(),
        };
        state.cache.extend(journal_entries(geo, journal)?);
        Ok(Nat { state: Mutex::new(state).ranked(ranks::NAT), blocks: cache(MAX_BLOCKS), geo: geo.clone() })
    }

    /// The entry of a nid, for those who may change it; an entry with `NULL_ADDR` where the nid is free.
    pub fn get(&self, io: &Io, nid: Nid) -> Result<NatEntry> {
        let entry = self.peek(io, nid)?;
        Ok(*self.state.lock().cache.entry(nid).or_insert(entry))
    }

    /// The entry of a nid, for those who only look: unlike [`Nat::get`] it leaves nothing in memory but the block.
    pub fn peek(&self, io: &Io, nid: Nid) -> Result<NatEntry> {
        if !self.geo.is_nid(nid) {
            return Err(FormatError::corrupt(Structure::NatEntry, nid, "nid", "out of range").into());
        }
        if let Some(entry) = self.state.lock().cache.get(&nid) {
            return Ok(*entry);
        }
        let (state, block) = self.block(io, nid / ENTRIES_PER_BLOCK as u32)?;
        self.entry_in(&state, &block, nid)
    }

    /// A block of the table, and the state that goes with it.
    fn block(&self, io: &Io, index: u32) -> Result<(MutexGuard<'_, State>, Arc<Block>)> {
        loop {
            let (epoch, addr) = {
                let state = self.state.lock();
                let kept = state.pending.get(&index).cloned().or_else(|| self.blocks.get(&index));
                if let Some(block) = kept {
                    return Ok((state, block));
                }
                (state.epoch, self.block_addr(&state, index))
            };
            let block = Arc::new(*io.read(addr)?);
            let state = self.state.lock();
            // Otherwise a checkpoint has made another block valid.
            if state.epoch == epoch && self.block_addr(&state, index) == addr {
                self.blocks.insert(index, block.clone());
                return Ok((state, block));
            }
        }
    }

    /// The numbers from one on whose entries lead to an inode, and the errors of blocks and entries that cannot be
    /// read.
    pub fn inodes<'a>(&'a self, io: &'a Io, from: Nid) -> impl Iterator<Item = Result<Nid>> + 'a {
        let is_inode = |&(nid, entry): &(Nid, NatEntry)| entry.ino == nid;
        self.used(io, from)
            .filter(move |found| found.as_ref().map_or(true, is_inode))
            .map(|found| found.map(|(nid, _)| nid))
    }

    /// The entries from a number on that are in use, and the errors of blocks and entries that cannot be read. What is
    /// known beside a block counts although the block cannot be read.
    pub fn used<'a>(&'a self, io: &'a Io, from: Nid) -> impl Iterator<Item = Result<(Nid, NatEntry)>> + 'a {
        let blocks = from / ENTRIES_PER_BLOCK as u32..self.geo.nat_blocks();
        blocks.flat_map(move |index| {
            let first = index * ENTRIES_PER_BLOCK as u32;
            let end = (first + ENTRIES_PER_BLOCK as u32).min(self.geo.max_nid());
            self.used_in(io, index, first.max(from).max(self.geo.root_ino)..end)
        })
    }

    /// Those of a block among these numbers.
    fn used_in(&self, io: &Io, index: u32, nids: Range<Nid>) -> Vec<Result<(Nid, NatEntry)>> {
        let is_used = |found: &Result<(Nid, NatEntry)>| !matches!(found, Ok((_, e)) if e.addr == NULL_ADDR);
        match self.block(io, index) {
            Ok((state, block)) => {
                nids.map(|nid| Ok((nid, self.entry_in(&state, &block, nid)?))).filter(is_used).collect()
            }
            Err(error) => {
                let state = self.state.lock();
                let known = nids.filter_map(|nid| Some(Ok((nid, *state.cache.get(&nid)?))));
                known.filter(is_used).chain([Err(error)]).collect()
            }
        }
    }

    /// An entry, of which the block may have an older version than the state.
    fn entry_in(&self, state: &State, block: &Block, nid: Nid) -> Result<NatEntry> {
        let raw =
            || parse(&self.geo, nid, &block.view::<RawNatBlock>().entries[nid as usize % ENTRIES_PER_BLOCK]);
        state.cache.get(&nid).map_or_else(raw, |entry| Ok(*entry))
    }

    fn block_addr(&self, state: &State, index: u32) -> BlockAddr {
        self.geo.nat_block(index, test_bit(&state.bitmap, index as usize))
    }

    /// Records where a node now is. `fsync_mark` says that the block written is an inode with the mark.
    pub fn set(&self, nid: Nid, ino: Ino, addr: BlockAddr, fsync_mark: bool) {
        let mut state = self.state.lock();
        let e = state.cache.entry(nid).or_insert(NatEntry {
            ino,
            addr: NULL_ADDR,
            version: 0,
            checkpointed: false,
            fsynced_inode: false,
        });
        e.ino = ino;
        if addr == NULL_ADDR && is_block(e.addr) {
            e.version = e.version.wrapping_add(1);
        }
        if !is_block(addr) {
            e.checkpointed = false;
        }
        e.addr = addr;
        if fsync_mark && nid == ino {
            e.fsynced_inode = true;
        }
        state.dirty.insert(nid);
    }

    /// An inode with the mark is durable, in no block: a record beside the volume has it.
    pub fn note_fsynced(&self, io: &Io, ino: Ino) -> Result<()> {
        let entry = self.peek(io, ino)?;
        let mut state = self.state.lock();
        state.cache.entry(ino).or_insert(entry).fsynced_inode = true;
        state.dirty.insert(ino);
        Ok(())
    }

    /// Takes a free nid and records it as the node of `ino` (or as its own inode where `ino` is `None`).
    /// `None` where every nid is in use.
    pub fn alloc(&self, io: &Io, ino: Option<Ino>) -> Result<Option<Nid>> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(nid) = next_free(&mut state) {
                    take(&mut state, nid, ino.unwrap_or(nid));
                    return Ok(Some(nid));
                }
                if state.fruitless >= self.geo.nat_blocks() {
                    state.fruitless = 0;
                    return Ok(None);
                }
            }
            self.gather_free(io)?;
        }
    }

    /// Takes a free nid for an inode: `wanted`, where that is free.
    pub fn alloc_inode(&self, io: &Io, wanted: Option<Nid>) -> Result<Option<Nid>> {
        if let Some(wanted) = wanted.filter(|&nid| self.geo.is_nid(nid))
            && self.peek(io, wanted)?.addr == NULL_ADDR
        {
            let mut state = self.state.lock();
            state.free.remove(&wanted);
            if state.cache.get(&wanted).is_none_or(|entry| entry.addr == NULL_ADDR) {
                take(&mut state, wanted, wanted);
                return Ok(Some(wanted));
            }
        }
        self.alloc(io, None)
    }

    /// Until this is called again, no nodes get these nids but inodes that want them.
    pub fn keep(&self, nids: BTreeSet<Nid>) {
        self.state.lock().kept = nids;
    }

    /// Takes a particular nid out of the supply (recovery names the inode it restores).
    pub fn claim(&self, nid: Nid) {
        self.state.lock().free.remove(&nid);
    }

    fn gather_free(&self, io: &Io) -> Result<()> {
        loop {
            let (index, addr, epoch) = {
                let state = self.state.lock();
                if state.free.len() >= FREE_TARGET || state.fruitless >= self.geo.nat_blocks() {
                    return Ok(());
                }
                (state.scan, self.block_addr(&state, state.scan), state.epoch)
            };
            let block = io.read(addr);
            let mut state = self.state.lock();
            if state.scan != index || state.epoch != epoch {
                continue; // another thread scanned it, or a checkpoint moved it
            }
            state.scan = (index + 1) % self.geo.nat_blocks();
            let block = match block {
                Ok(block) => block,
                Err(error) => {
                    tracing::warn!(index, %error, "the free nids of a NAT block are not used");
                    state.fruitless += 1;
                    continue;
                }
            };
            let raw: &RawNatBlock = block.view();
            let first = index * ENTRIES_PER_BLOCK as u32;
            let mut found = false;
            for (i, e) in raw.entries.iter().enumerate() {
                let nid = first + i as u32;
                if e.block_addr.get() != NULL_ADDR || !self.geo.is_nid(nid) || state.dirty.contains(&nid) {
                    continue;
                }
                // A journalled or changed entry outranks the block.
                match state.cache.get(&nid) {
                    Some(cached) if cached.addr != NULL_ADDR => continue,
                    Some(_) => {}
                    None => {
                        let Ok(parsed) = parse(&self.geo, nid, e) else { continue };
                        if e.version != 0 {
                            state.cache.insert(nid, parsed);
                        }
                    }
                }
                found |= state.free.insert(nid);
            }
            state.fruitless = if found { 0 } else { state.fruitless + 1 };
            if found && state.free.len() >= FREE_TARGET / 4 {
                return Ok(());
            }
        }
    }

    /// First nid a later mount should look at for free ones.
    pub(crate) fn next_free_hint(&self) -> Nid {
        let state = self.state.lock();
        state.free.first().copied().unwrap_or(state.scan * ENTRIES_PER_BLOCK as u32).max(self.geo.root_ino)
    }

    /// Whether a node got a block, or lost it, since the last checkpoint.
    pub fn has_changed(&self, nid: Nid) -> bool {
        self.state.lock().dirty.contains(&nid)
    }

    /// Number of entries that the next checkpoint must write.
    pub fn dirty_count(&self) -> usize {
        self.state.lock().dirty.len()
    }

    /// For a checkpoint: puts dirty entries into the journal while they fit, the rest into the other copy of their
    /// NAT blocks. Returns the blocks to write and flips the version bitmap, which the caller then stores.
    pub(crate) fn flush(&self, io: &Io, journal: &mut RawJournal) -> Result<Vec<(BlockAddr, Box<Block>)>> {
        let mut state = self.state.lock();
        let mut journalled: BTreeMap<Nid, RawNatEntry> =
            journal.nat_entries()?.iter().map(|e| (e.nid.get(), e.entry)).collect();
        if journalled.len() + state.dirty.len() > NAT_JOURNAL_ENTRIES {
            let moved: Vec<Nid> = std::mem::take(&mut journalled).into_keys().collect();
            state.dirty.extend(moved);
        }
        let mut sets: BTreeMap<u32, Vec<Nid>> = BTreeMap::new();
        for &nid in &state.dirty {
            sets.entry(nid / ENTRIES_PER_BLOCK as u32).or_default().push(nid);
        }
        let mut sets: Vec<(u32, Vec<Nid>)> = sets.into_iter().collect();
        sets.sort_by_key(|(_, nids)| nids.len());
        let mut blocks = Vec::new();
        for (index, nids) in sets {
            if journalled.len() + nids.len() <= NAT_JOURNAL_ENTRIES {
                for nid in nids {
                    journalled.insert(nid, raw(&state.cache[&nid]));
                }
                continue;
            }
            let mut block = match self.blocks.get(&index) {
                Some(block) => Box::new((*block).clone()),
                None => io.read(self.block_addr(&state, index))?,
            };
            let entries: &mut RawNatBlock = block.view_mut();
            for nid in nids {
                entries.entries[nid as usize % ENTRIES_PER_BLOCK] = raw(&state.cache[&nid]);
                journalled.remove(&nid);
            }
            flip_bit(&mut state.bitmap, index as usize);
            self.blocks.remove(&index);
            state.pending.insert(index, Arc::new((*block).clone()));
            blocks.push((self.block_addr(&state, index), block));
        }
        let entries: Vec<RawNatJournalEntry> = journalled
            .iter()
            .map(|(&nid, &entry)| RawNatJournalEntry { nid: U32::new(nid), entry })
            .collect();
        assert!(journal.set_nat(&entries), "counted above");
        Ok(blocks)
    }

    /// The version bitmap, to be stored in the checkpoint.
    pub(crate) fn bitmap(&self) -> Vec<u8> {
        self.state.lock().bitmap.clone()
    }

    /// After a checkpoint is durable: entries are clean, freed nids may be used again.
    pub(crate) fn committed(&self, journal: &RawJournal) {
        let mut state = self.state.lock();
        state.epoch += 1;
        for (index, block) in std::mem::take(&mut state.pending) {
            self.blocks.insert(index, block);
        }
        let dirty = std::mem::take(&mut state.dirty);
        for nid in dirty {
            let Some(e) = state.cache.get_mut(&nid) else { continue };
            e.checkpointed = e.addr != NULL_ADDR;
            e.fsynced_inode = false;
            if e.addr == NULL_ADDR && state.free.len() < 2 * FREE_TARGET {
                state.free.insert(nid);
            }
        }
        state.fruitless = 0;
        if state.cache.len() > MAX_CLEAN {
            let keep: BTreeSet<Nid> =
                journal.nat_entries().map(|es| es.iter().map(|e| e.nid.get()).collect()).unwrap_or_default();
            state.cache.retain(|nid, _| keep.contains(nid));
            state.free.clear(); // their versions went with the cache
        }
    }
}

fn parse(geo: &Geometry, nid: Nid, raw: &RawNatEntry) -> Result<NatEntry> {
    let addr = raw.block_addr.get();
    let bad = |field, value: String| FormatError::corrupt(Structure::NatEntry, nid, field, value);
    // The reserved inodes of node and meta mapping carry address 1.
    if nid >= geo.root_ino && addr != NULL_ADDR && addr != NEW_ADDR && !geo.in_main(addr) {
        return Err(bad("block_addr", addr.to_string()).into());
    }
    if nid >= geo.root_ino && addr != NULL_ADDR && !geo.is_nid(raw.ino.get()) {
        return Err(bad("ino", raw.ino.to_string()).into());
    }
    // A reservation that was never written belongs to no checkpoint: the nid is free.
    let addr = if addr == NEW_ADDR { NULL_ADDR } else { addr };
    Ok(NatEntry {
        ino: raw.ino.get(),
        addr,
        version: raw.version,
        checkpointed: addr != NULL_ADDR,
        fsynced_inode: false,
    })
}

fn raw(e: &NatEntry) -> RawNatEntry {
    let free = !is_block(e.addr);
    RawNatEntry {
        version: e.version,
        ino: U32::new(if free { 0 } else { e.ino }),
        block_addr: U32::new(if free { NULL_ADDR } else { e.addr }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
    use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag};
    use medfs_format::superblock::RawSuperblock;
    use medfs_mkfs::{MkfsOptions, format_volume};
    use zerocopy::FromZeros;

    fn formatted() -> (MemDevice, Geometry) {
        let device = MemDevice::new(64 * 256);
        format_volume(&device, &MkfsOptions::new([7; 16], 0)).expect("a volume");
        let mut block = Block::boxed();
        device.read(0, &mut [&mut *block]).expect("read");
        let geo = RawSuperblock::in_block(&block).validate().expect("a superblock");
        (device, geo)
    }

    /// Writes entries into the first copy of a table, all that a block has.
    fn write_entries(device: &MemDevice, geo: &Geometry, entries: &[(Nid, RawNatEntry)]) {
        let index = |nid: Nid| nid / ENTRIES_PER_BLOCK as u32;
        for same in entries.chunk_by(|a, b| index(a.0) == index(b.0)) {
            let mut block = Block::boxed();
            for &(nid, entry) in same {
                block.view_mut::<RawNatBlock>().entries[nid as usize % ENTRIES_PER_BLOCK] = entry;
            }
            let tag = WriteTag::new(Cause::Meta, Temperature::Warm);
            device.write(geo.nat_block(index(same[0].0), false).into(), &[&block], tag).expect("written");
        }
    }

    fn table(geo: &Geometry) -> Nat {
        let bitmap = vec![0; geo.nat_blocks().div_ceil(8) as usize];
        Nat::new(geo, bitmap, &RawJournal::new_zeroed(), geo.root_ino).expect("a table")
    }

    fn entry(ino: Ino, block_addr: BlockAddr) -> RawNatEntry {
        RawNatEntry { version: 3, ino: ino.into(), block_addr: block_addr.into() }
    }

    #[test]
    fn a_block_that_a_checkpoint_has_not_written_yet_is_known_all_the_same() {
        let (device, geo) = formatted();
        write_entries(&device, &geo, &[(9, entry(9, geo.main_blkaddr + 7))]);
        let (io, nat) = (Io::new(Arc::new(device)), table(&geo));
        for nid in 20..20 + NAT_JOURNAL_ENTRIES as u32 + 1 {
            nat.get(&io, nid).expect("an entry");
            nat.set(nid, nid, geo.main_blkaddr + nid, false);
        }
        let mut written = RawJournal::new_zeroed();
        let blocks = nat.flush(&io, &mut written).expect("flushed");
        assert_eq!(blocks.len(), 1, "more than the journal holds");
        // The other copy's place still holds zeros.
        let found = nat.peek(&io, 9).expect("an entry");
        assert_eq!((found.addr, found.version), (geo.main_blkaddr + 7, 3));
        nat.committed(&written);
        assert_eq!(nat.peek(&io, 9).expect("an entry").addr, geo.main_blkaddr + 7);
    }

    #[test]
    fn inodes_behind_what_cannot_be_read_are_found() {
        let (device, geo) = formatted();
        let (per_block, main) = (ENTRIES_PER_BLOCK as u32, geo.main_blkaddr);
        let far = 2 * per_block + 5;
        write_entries(
            &device,
            &geo,
            &[
                (9, entry(9, main + 7)),
                (10, entry(10, u32::MAX - 1)),
                (11, entry(9, main + 8)),
                (12, entry(12, main + 9)),
                (per_block + 1, entry(per_block + 1, main + 10)),
                (far, entry(far, main + 11)),
            ],
        );
        let device = FaultDevice::new(device, 0);
        let lost = u64::from(geo.nat_block(1, false));
        device.arm(Fault::on(Kind::Read, Effect::IO).within(lost..lost + 1));
        let (io, nat) = (Io::new(Arc::new(device)), table(&geo));
        nat.set(20, 20, NEW_ADDR, false);
        let lost_one = per_block + 1;
        nat.set(lost_one + 1, lost_one + 1, NEW_ADDR, false);
        let found: Vec<_> = nat.inodes(&io, 5).map(Result::ok).collect();
        assert_eq!(found, [Some(9), None, Some(12), Some(20), Some(lost_one + 1), None, Some(far)]);
        assert_eq!(
            nat.used(&io, 11).flatten().map(|(nid, _)| nid).collect::<Vec<_>>(),
            [11, 12, 20, lost_one + 1, far]
        );
        assert_eq!(nat.inodes(&io, 13).flatten().collect::<Vec<_>>(), [20, lost_one + 1, far]);
    }
}
