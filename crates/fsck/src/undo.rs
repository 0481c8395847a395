//! Taking a repair back: every block that it changes is kept in a file before it is changed.
//!
//! [`UndoDevice`] stands between a repair and its device. It gathers what is written up to a flush; what the
//! blocks held is then written and synced to the file, and only after that the device is written. [`restore`]
//! takes the blocks back, bit for bit, whether the repair ended or was interrupted. A repair that was
//! interrupted is run again with the same file ([`UndoDevice::resume`]): each block is kept once, as it was
//! first. The file's layout is `medfs_format::undo`.
//!
//! Invariants: no block of the device is changed that the file does not have. A restore writes nothing before
//! all of the file, and the device, were found right. Memory: [`GATHERED`] blocks, and a bit for each block
//! of those groups of blocks that change.
//!
//! Lock: one, around what is gathered and the file, held during each write and flush.

use foldhash::HashMap;
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag, is_bad_sector, read_block};
use medfs_format::superblock::RawSuperblock;
use medfs_format::undo::{
    FIRST_RECORD, HEADERS, RawUndoAfter, RawUndoHeader, RawUndoRecord, UNDO_VERSION, WITNESSES,
    block_checksum, witnesses_block,
};
use medfs_format::{BLOCK_SIZE, Block, crc};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use thiserror::Error;
use zerocopy::{FromBytes, IntoBytes};

mod file;

use file::Undo;

/// Blocks that are gathered before they are written (4 MiB).
pub const GATHERED: usize = 1024;
/// Most blocks written to the device at once.
const RUN: usize = 256;
/// The UUID of a volume without a usable superblock.
const UNKNOWN: [u8; 16] = [0; 16];
const HEADER_LEN: usize = size_of::<RawUndoHeader>();
const RECORD_LEN: usize = size_of::<RawUndoRecord>();
const AFTER_LEN: usize = size_of::<RawUndoAfter>();

/// Why nothing was restored.
#[derive(Debug, Error)]
pub enum UndoError {
    /// The file or the device failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("{0} is not an undo file of medfs")]
    Foreign(PathBuf),
    /// It was made by another version of medfs: the first one's does not tell whether the volume was used since.
    #[error(
        "{0} is an undo file of version {1}; this medfs supports version {UNDO_VERSION}: nothing was restored"
    )]
    Version(PathBuf, u32),
    /// It is not whole.
    #[error("{0} is damaged or cut short ({1}): nothing was restored")]
    Damaged(PathBuf, String),
    /// It belongs to another volume.
    #[error("{0} is the undo file of another volume ({1}): nothing was restored")]
    Other(PathBuf, String),
    /// The volume was used since.
    #[error(
        "the volume was mounted for writing, or changed otherwise, since the repair that {0} undoes (block {1}): nothing was restored, \
         as old and new blocks would mix, and the repair stays"
    )]
    Changed(PathBuf, u64),
    /// The repair has ended.
    #[error("{0} is the undo file of a repair that has ended")]
    Ended(PathBuf),
    /// The volume is as it was.
    #[error("the volume is as it was before the repair that {0} undoes: nothing was restored")]
    Restored(PathBuf),
}

/// A set of blocks, with memory for groups of which some are in it.
#[derive(Default)]
struct Blocks(HashMap<u64, Box<[u64; 64]>>);

impl Blocks {
    fn contains(&self, addr: u64) -> bool {
        self.0.get(&(addr / 4096)).is_some_and(|g| g[addr as usize % 4096 / 64] >> (addr % 64) & 1 == 1)
    }

    fn insert(&mut self, addr: u64) {
        self.0.entry(addr / 4096).or_insert_with(|| Box::new([0; 64]))[addr as usize % 4096 / 64] |=
            1 << (addr % 64);
    }
}

struct State {
    file: File,
    header: RawUndoHeader,
    saved: Blocks,
    /// How many blocks these are.
    kept: u64,
    /// Blocks that any use of the volume changes, once the file tells of them.
    witnesses: Vec<u64>,
    /// What is to be written to the device.
    gathered: BTreeMap<u64, (Box<Block>, WriteTag)>,
    ended: bool,
}

/// A device whose changes can be taken back.
pub struct UndoDevice<D> {
    inner: D,
    path: PathBuf,
    state: Mutex<State>,
}

/// A file without records is of no use: the device was not changed.
impl<D> Drop for UndoDevice<D> {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !state.ended && state.header.records.get() == 0 {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl<D: BlockDevice> UndoDevice<D> {
    /// Begins an undo file, which must not exist.
    pub fn create(path: &Path, inner: D) -> io::Result<UndoDevice<D>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        UndoDevice::begin(file, path, inner)
    }

    /// Goes on with the undo file of a repair of this volume that was interrupted. What that one has kept stays
    /// as it is, so that a restore takes back both repairs.
    pub fn resume(path: &Path, inner: D) -> Result<UndoDevice<D>, UndoError> {
        let is_empty = length_of(path)? == 0;
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if is_empty {
            return Ok(UndoDevice::begin(file, path, inner)?);
        }
        let (mut saved, mut kept) = (Blocks::default(), 0);
        let (undo, records) = Undo::of_interrupted(path, &inner, &mut |addr| {
            saved.insert(addr);
            kept += 1;
        })?;
        let mut header = undo.header.clone();
        header.records = records.into();
        // What is behind them was not whole: nothing was changed for it.
        file.set_len(RawUndoHeader::place_of(records))?;
        file.sync_all()?;
        let state = State { saved, kept, ..State::of(file, header) };
        Ok(UndoDevice { inner, path: path.to_owned(), state: Mutex::new(state) })
    }

    /// How many blocks it has kept.
    pub fn kept(&self) -> u64 {
        self.state().kept
    }

    /// Writes the first headers of an undo file.
    fn begin(file: File, path: &Path, inner: D) -> io::Result<UndoDevice<D>> {
        let salt = salt(path);
        let header = RawUndoHeader::new(UNKNOWN, inner.block_count(), salt);
        let state = State::of(file, header);
        // From here on it is removed where nothing comes of it.
        let device = UndoDevice { inner, path: path.to_owned(), state: Mutex::new(state) };
        let uuid = identities(&device.inner)?.first().copied().unwrap_or(UNKNOWN);
        let mut state = device.state();
        state.header.uuid = uuid;
        HEADERS.iter().try_for_each(|_| state.write_header())?;
        state.file.set_len(FIRST_RECORD)?;
        state.file.sync_all()?;
        drop(state);
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
        Ok(device)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes everything, and what the blocks hold at the end of the repair: so a restore can tell whether
    /// the volume was used since. A file without records is removed. Returns the number of blocks that
    /// changed.
    pub fn finish(&self) -> io::Result<u64> {
        self.flush()?;
        let mut state = self.state();
        let records = state.header.records.get();
        if records == 0 {
            std::fs::remove_file(&self.path)?;
        } else if !state.ended {
            state.write_afters(&self.inner)?;
        }
        state.ended = true;
        Ok(state.kept)
    }
}

impl State {
    fn of(file: File, header: RawUndoHeader) -> State {
        State {
            file,
            header,
            saved: Blocks::default(),
            kept: 0,
            witnesses: Vec::new(),
            gathered: BTreeMap::new(),
            ended: false,
        }
    }

    /// Writes the next header, durable.
    fn write_header(&mut self) -> io::Result<()> {
        let sequence = self.header.sequence.get() + 1;
        self.header.sequence = sequence.into();
        self.header.seal();
        self.file.write_all_at(self.header.as_bytes(), HEADERS[(sequence % 2) as usize])?;
        self.file.sync_data()
    }

    /// Writes what was gathered: first what is there to the file, then to the device.
    fn drain<D: BlockDevice>(&mut self, inner: &D) -> io::Result<()> {
        self.save(inner).map_err(|e| io::Error::new(e.kind(), format!("cannot write the undo file: {e}")))?;
        let mut run: Vec<u64> = Vec::new();
        for &addr in self.gathered.keys() {
            let goes_on = run.last().is_none_or(|&last| last + 1 == addr && run.len() < RUN)
                && run.first().is_none_or(|first| self.gathered[first].1 == self.gathered[&addr].1);
            if !goes_on {
                self.write_run(inner, &run)?;
                run.clear();
            }
            run.push(addr);
        }
        self.write_run(inner, &run)?;
        self.gathered.clear();
        Ok(())
    }

    fn write_run<D: BlockDevice>(&self, inner: &D, run: &[u64]) -> io::Result<()> {
        let Some(first) = run.first() else { return Ok(()) };
        let blocks: Vec<&Block> = run.iter().map(|addr| &*self.gathered[addr].0).collect();
        inner.write(*first, &blocks, self.gathered[first].1)
    }

    /// Keeps what the gathered blocks hold on the device, durable.
    fn save<D: BlockDevice>(&mut self, inner: &D) -> io::Result<()> {
        let new: Vec<u64> =
            self.gathered.keys().copied().filter(|&addr| !self.saved.contains(addr)).collect();
        let tells = !self.gathered.is_empty()
            && (self.witnesses.is_empty()
                || self.witnesses.iter().any(|addr| self.gathered.contains_key(addr)));
        if new.is_empty() && !tells {
            return Ok(());
        }
        let mut index = self.header.records.get();
        for &addr in &new {
            self.write_record(&mut index, addr, &*held(inner, addr)?)?;
        }
        if tells {
            let after = self.witnesses_after(inner)?;
            self.write_record(&mut index, WITNESSES, &witnesses_block(&after))?;
        }
        self.file.sync_data()?;
        self.header.records = index.into();
        self.write_header()?;
        self.kept += new.len() as u64;
        new.into_iter().for_each(|addr| self.saved.insert(addr));
        Ok(())
    }

    fn write_record(&self, index: &mut u64, addr: u64, block: &Block) -> io::Result<()> {
        let mut bytes = RawUndoRecord::of(self.header.salt.get(), *index, addr, block).as_bytes().to_vec();
        bytes.extend_from_slice(&block.0);
        self.file.write_all_at(&bytes, RawUndoHeader::place_of(*index))?;
        *index += 1;
        Ok(())
    }

    /// What the blocks that any use of the volume changes hold once the gathered ones are written.
    fn witnesses_after<D: BlockDevice>(&mut self, inner: &D) -> io::Result<Vec<RawUndoAfter>> {
        let gathered = &self.gathered;
        let read = |addr| match gathered.get(&addr) {
            Some((block, _)) => Ok(block.clone()),
            None => held(inner, addr),
        };
        self.witnesses = witnesses(inner.block_count(), &read)?;
        self.witnesses.iter().map(|&addr| Ok(RawUndoAfter::of_witness(addr, &*read(addr)?))).collect()
    }

    fn write_afters<D: BlockDevice>(&mut self, inner: &D) -> io::Result<()> {
        let records = self.header.records.get();
        let mut at = RawUndoHeader::place_of(records);
        let (mut afters, mut sum) = (0u64, crc::f2fs(&[]));
        let mut record = [0; RECORD_LEN];
        let witnesses = witnesses(inner.block_count(), &|addr| held(inner, addr))?;
        let witnesses = witnesses.into_iter().filter(|&addr| !self.saved.contains(addr));
        let witnesses: Vec<u64> = witnesses.collect();
        for index in 0..records + witnesses.len() as u64 {
            let addr = match index.checked_sub(records) {
                Some(witness) => witnesses[witness as usize],
                None => {
                    self.file.read_exact_at(&mut record, RawUndoHeader::place_of(index))?;
                    RawUndoRecord::read_from_bytes(&record).expect("sized").addr.get()
                }
            };
            let crc = if addr == WITNESSES { 0 } else { block_checksum(&*read_block(inner, addr)?) };
            let after = RawUndoAfter { addr: addr.into(), crc: crc.into(), reserved: 0.into() };
            self.file.write_all_at(after.as_bytes(), at)?;
            (at, afters) = (at + AFTER_LEN as u64, afters + 1);
            sum = crc::chain(sum, after.as_bytes());
        }
        self.file.sync_data()?;
        (self.header.afters, self.header.afters_crc) = (afters.into(), sum.into());
        self.header.ended = 1.into();
        self.write_header()
    }
}

impl<D: BlockDevice> BlockDevice for UndoDevice<D> {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        let state = self.state();
        self.inner.read(addr, blocks)?;
        for (addr, block) in (addr..).zip(blocks) {
            if let Some((gathered, _)) = state.gathered.get(&addr) {
                block.0.copy_from_slice(&gathered.0);
            }
        }
        Ok(())
    }

    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        let end = addr.checked_add(blocks.len() as u64).filter(|&end| end <= self.block_count());
        end.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the range is outside the device"))?;
        let mut state = self.state();
        // Which of the blocks are compact pages matters to nobody here.
        let each = WriteTag { fua: false, compact: 0, ..tag };
        for (addr, block) in (addr..).zip(blocks) {
            state.gathered.insert(addr, (Box::new((*block).clone()), each));
        }
        if tag.fua || state.gathered.len() >= GATHERED {
            state.drain(&self.inner)?;
        }
        if tag.fua { self.inner.flush() } else { Ok(()) }
    }

    fn flush(&self) -> io::Result<()> {
        self.state().drain(&self.inner)?;
        self.inner.flush()
    }

    /// Is advice, which would take away what is kept: it is not followed.
    fn discard(&self, _addr: u64, _count: u64) -> io::Result<()> {
        Ok(())
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
}

/// Blocks that any use of the volume changes: the superblocks, and the heads of the checkpoint packs.
fn witnesses(blocks: u64, read: &dyn Fn(u64) -> io::Result<Box<Block>>) -> io::Result<Vec<u64>> {
    let mut found = vec![0, 1];
    for copy in 0..blocks.min(2) {
        let block = read(copy)?;
        if let Ok(g) = RawSuperblock::in_block(&block).validate() {
            found.extend([0, 1].map(|pack| u64::from(g.cp_pack(pack))));
            break;
        }
    }
    found.retain(|&addr| addr < blocks);
    Ok(found)
}

/// The UUIDs that a volume may have, by its superblocks: none where no copy is usable, and its areas are what
/// is known of it.
fn identities(dev: &dyn BlockDevice) -> io::Result<Vec<[u8; 16]>> {
    let mut good = Vec::new();
    for copy in 0..dev.block_count().min(2) {
        let mut block = held(dev, copy)?;
        if RawSuperblock::in_block(&block).validate().is_err()
            && let Some(bit) = RawSuperblock::flipped_bit(&block)
        {
            bit.flip(&mut block);
        }
        if RawSuperblock::in_block(&block).validate().is_ok() {
            good.push(RawSuperblock::in_block(&block).uuid);
        }
    }
    Ok(good)
}

/// What a block holds: zeros where its sector cannot be read, as nobody can give back what that held.
fn held(dev: &dyn BlockDevice, addr: u64) -> io::Result<Box<Block>> {
    match read_block(dev, addr) {
        Err(e) if is_bad_sector(&e) => Ok(Block::boxed()),
        other => other,
    }
}

/// A number that tells one undo file from others that were in its place.
fn salt(path: &Path) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(path)
}

/// Whether [`UndoDevice::resume`] goes on with a file.
pub fn check_resume(path: &Path, dev: &dyn BlockDevice) -> Result<(), UndoError> {
    if length_of(path)? > 0 {
        Undo::of_interrupted(path, dev, &mut |_| {})?;
    }
    Ok(())
}

/// Bytes of a file. A device or a pipe has no length, and is no undo file: it is not opened.
fn length_of(path: &Path) -> Result<u64, UndoError> {
    let metadata = path.metadata()?;
    if metadata.is_file() { Ok(metadata.len()) } else { Err(UndoError::Foreign(path.to_owned())) }
}

/// Takes back what a repair changed, or several with the same file. Returns the number of blocks; none where the
/// repair was interrupted before it changed anything, and perhaps before the file had its first byte.
pub fn restore(path: &Path, dev: &dyn BlockDevice) -> Result<u64, UndoError> {
    if length_of(path)? == 0 {
        return Ok(0);
    }
    let undo = Undo::open(path)?;
    undo.belongs_to(dev)?;
    let mut blocks = 0;
    let records = undo.check_records(&mut |_| blocks += 1)?;
    undo.check_unused(dev, records)?;
    let tag = WriteTag::new(Cause::Meta, Temperature::Cold);
    for index in 0..records {
        let (addr, block) = undo.record(index)?;
        if addr != WITNESSES {
            dev.write(addr, &[&block], tag)?;
        }
    }
    dev.flush()?;
    Ok(blocks)
}

const _: () = assert!(HEADER_LEN <= 512 && BLOCK_SIZE >= 512);
