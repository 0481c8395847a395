//! Where the bytes of the NAND live: memory, or a sparse file.
//!
//! The file: a header (see `device_file.rs`), 8 bytes for each block, the out-of-band bytes of all pages, the
//! pages. Programs and erases are gathered and written in an order in which a killed process loses what is
//! newest and nothing else: first what was programmed into blocks that were not erased meanwhile, then erased
//! blocks in the order of their erasing, each with what was programmed into it since. So nothing is
//! overwritten before everything programmed earlier is in the file. Of what is written at once one block may
//! be found without another, whichever was programmed first; [`Medium::barrier`] writes what must not come
//! later. [`Medium::sync`] writes all.
//!
//! Safe from the end of the machine too ([`Medium::set_durable`]): pages are synced before the state of their
//! block says that they are written, and that before [`Medium::sync`] returns. An erase waits until
//! everything programmed before is synced, and the next pages are written when it is itself. So whatever the
//! machine stored when it ended is a state that power loss could have left.

use crate::durable_file::{Disk, Slots};
use foldhash::HashMap;
use std::fs::File;
use std::io;

/// What is known of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct BlockState {
    /// Times it was erased.
    pub(crate) erases: u32,
    /// Pages written since.
    pub(crate) written: u16,
    /// Marked as bad.
    pub(crate) bad: bool,
    /// An erase was cut short: it must be erased again.
    pub(crate) unstable: bool,
}

/// Bytes of a block's state in the file.
pub const STATE_BYTES: u64 = 8;

impl BlockState {
    pub(crate) fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.erases.to_le_bytes());
        bytes[4..6].copy_from_slice(&self.written.to_le_bytes());
        bytes[6] = u8::from(self.bad) | u8::from(self.unstable) << 1;
        bytes
    }

    pub(crate) fn unpack(b: &[u8]) -> BlockState {
        BlockState {
            erases: u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            written: u16::from_le_bytes([b[4], b[5]]),
            bad: b[6] & 1 != 0,
            unstable: b[6] & 2 != 0,
        }
    }
}

/// Where the bytes are. Says nothing about what may be done with them.
pub(crate) trait Medium: Send {
    fn write(&mut self, page: u32, data: &[u8], spare: &[u8], state: BlockState) -> io::Result<()>;
    fn read_data(&mut self, page: u32, data: &mut [u8]) -> io::Result<()>;
    fn read_spare(&mut self, page: u32, spare: &mut [u8]) -> io::Result<()>;
    /// A block was erased, marked or disturbed.
    fn set_state(&mut self, block: u32, state: BlockState) -> io::Result<()>;
    /// The out-of-band bytes of a page become others, wherever it is.
    fn spoil(&mut self, page: u32, spare: &[u8]) -> io::Result<()>;
    /// Keeps the image of the write buffer; everything written before is kept first.
    fn retain(&mut self, image: &[u8]) -> io::Result<()>;
    /// Whatever is written from now on is found in the file only with all that was before.
    fn barrier(&mut self) -> io::Result<()>;
    /// Everything is in the file; durably, where that was asked for.
    fn sync(&mut self) -> io::Result<()>;
    /// From now on [`Medium::sync`] is for the end of the machine too, not of this process alone.
    fn set_durable(&mut self, durable: bool);
}

/// In memory. Out-of-band bytes lie one behind the other without the zeros at their ends, so that gigabytes
/// without content cost little.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    per_block: u32,
    blocks: Vec<Held>,
    data: HashMap<u32, Box<[u8]>>,
}

/// Out-of-band bytes of a block in memory: all of them, and where each page's end.
#[derive(Debug, Default, Clone)]
struct Held {
    spares: Vec<u8>,
    ends: Vec<u32>,
    with_data: bool,
}

impl Memory {
    pub(crate) fn new(per_block: u32, blocks: u32) -> Memory {
        Memory { per_block, blocks: vec![Held::default(); blocks as usize], data: HashMap::default() }
    }
}

impl Medium for Memory {
    fn write(&mut self, page: u32, data: &[u8], spare: &[u8], _state: BlockState) -> io::Result<()> {
        let held = &mut self.blocks[(page / self.per_block) as usize];
        held.ends.truncate((page % self.per_block) as usize);
        held.spares.truncate(held.ends.last().map_or(0, |end| *end as usize));
        let zeros = spare.rchunks_exact(8).take_while(|part| **part == [0; 8]).count() * 8;
        let length = spare[..spare.len() - zeros].iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        held.spares.extend_from_slice(&spare[..length]);
        held.ends.push(held.spares.len() as u32);
        if !data.is_empty() {
            held.with_data = true;
            self.data.insert(page, data.into());
        }
        Ok(())
    }

    fn read_data(&mut self, page: u32, data: &mut [u8]) -> io::Result<()> {
        match self.data.get(&page) {
            Some(kept) => data.copy_from_slice(&kept[..data.len()]),
            None => data.fill(0),
        }
        Ok(())
    }

    fn read_spare(&mut self, page: u32, spare: &mut [u8]) -> io::Result<()> {
        let held = &self.blocks[(page / self.per_block) as usize];
        let at = (page % self.per_block) as usize;
        let from = at.checked_sub(1).map_or(0, |before| held.ends[before] as usize);
        let kept = &held.spares[from..held.ends[at] as usize];
        spare[..kept.len()].copy_from_slice(kept);
        spare[kept.len()..].fill(0);
        Ok(())
    }

    fn set_state(&mut self, block: u32, state: BlockState) -> io::Result<()> {
        let held = &mut self.blocks[block as usize];
        if state.written == 0 {
            held.spares.clear();
            held.ends.clear();
            if std::mem::take(&mut held.with_data) {
                for page in block * self.per_block..(block + 1) * self.per_block {
                    self.data.remove(&page);
                }
            }
        }
        Ok(())
    }

    fn spoil(&mut self, page: u32, spare: &[u8]) -> io::Result<()> {
        let per_block = self.per_block;
        let first = page / per_block * per_block;
        let mut all = vec![Vec::new(); self.blocks[(page / per_block) as usize].ends.len()];
        for (at, bytes) in (first..).zip(&mut all) {
            bytes.resize(spare.len(), 0);
            self.read_spare(at, bytes)?;
        }
        if let Some(bytes) = all.get_mut((page - first) as usize) {
            bytes.copy_from_slice(spare);
        }
        for (at, bytes) in (first..).zip(&all) {
            self.write(at, &[], bytes, BlockState::default())?;
        }
        Ok(())
    }

    fn retain(&mut self, _image: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn barrier(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn set_durable(&mut self, _durable: bool) {}
}

/// Bytes gathered before they are written.
const GATHERED_MAX: usize = 4 << 20;
/// Erases gathered before they are written.
const ERASES_MAX: usize = 1024;

/// What was programmed into a block and is not in the file.
struct Gathered {
    first: u32,
    spare: Vec<u8>,
    data: Vec<u8>,
    state: BlockState,
    /// Place among the erases since the last writing; none came first.
    erased: usize,
}

/// Where the parts of the file begin, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) retained: u64,
    pub(crate) retained_bytes: u64,
    pub(crate) stats: u64,
    pub(crate) stats_bytes: u64,
    pub(crate) states: u64,
    pub(crate) spares: u64,
    pub(crate) data: u64,
    pub(crate) end: u64,
}

/// In a file.
pub(crate) struct Filed<D: Disk = File> {
    file: D,
    per_block: u32,
    page_bytes: usize,
    spare_bytes: usize,
    at: Places,
    gathered: HashMap<u32, Gathered>,
    bytes: usize,
    erases: usize,
    image: Slots,
    durable: bool,
    /// Something was written and not synced.
    unsynced: bool,
}

impl<D: Disk> Filed<D> {
    pub(crate) fn new(
        file: D,
        (per_block, page_bytes, spare_bytes): (u32, u32, u32),
        at: Places,
    ) -> Filed<D> {
        Filed {
            file,
            per_block,
            page_bytes: page_bytes as usize,
            spare_bytes: spare_bytes as usize,
            at,
            gathered: HashMap::default(),
            bytes: 0,
            erases: 0,
            image: Slots::new(at.retained, at.retained_bytes),
            durable: false,
            unsynced: false,
        }
    }

    /// The gathered page, as its number among those of its block.
    fn held(&self, page: u32) -> Option<(&Gathered, usize)> {
        let gathered = self.gathered.get(&(page / self.per_block))?;
        let at = page.checked_sub(gathered.first)? as usize;
        (at * self.spare_bytes < gathered.spare.len()).then_some((gathered, at))
    }

    fn write_pages(&self, g: &Gathered) -> io::Result<()> {
        let first = u64::from(g.first);
        if !g.data.is_empty() {
            self.file.write_at(&g.data, self.at.data + first * self.page_bytes as u64)?;
        }
        if !g.spare.is_empty() {
            self.file.write_at(&g.spare, self.at.spares + first * self.spare_bytes as u64)?;
        }
        Ok(())
    }

    fn write_state(&self, block: u32, state: BlockState) -> io::Result<()> {
        self.file.write_at(&state.to_bytes(), self.at.states + u64::from(block) * STATE_BYTES)
    }

    /// Syncs the file, if it is to be durable and anything was written since.
    fn settle(&mut self) -> io::Result<()> {
        if self.durable && self.unsynced {
            self.file.sync()?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Writes what was gathered.
    fn write_out(&mut self) -> io::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        // Erased blocks are not written before their erase is durable.
        self.settle()?;
        let mut order: Vec<(usize, u32)> =
            self.gathered.iter().map(|(block, g)| (g.erased, *block)).collect();
        order.sort_unstable();
        for (_, block) in &order {
            let g = &self.gathered[block];
            self.write_pages(g)?;
            if !self.durable {
                self.write_state(*block, g.state)?;
            }
        }
        self.unsynced = true;
        if self.durable {
            self.settle()?;
            for (_, block) in &order {
                self.write_state(*block, self.gathered[block].state)?;
            }
            self.unsynced = true;
            self.settle()?;
        }
        self.gathered.clear();
        (self.bytes, self.erases) = (0, 0);
        Ok(())
    }
}

impl<D: Disk> Medium for Filed<D> {
    fn write(&mut self, page: u32, data: &[u8], spare: &[u8], state: BlockState) -> io::Result<()> {
        let block = page / self.per_block;
        let (spare_bytes, page_bytes) = (self.spare_bytes, self.page_bytes);
        let g = self.gathered.entry(block).or_insert_with(|| Gathered {
            first: page,
            spare: Vec::new(),
            data: Vec::new(),
            state,
            erased: 0,
        });
        if g.spare.is_empty() {
            g.first = page;
        }
        g.spare.extend_from_slice(spare);
        g.spare.resize((page - g.first + 1) as usize * spare_bytes, 0);
        if !data.is_empty() {
            g.data.resize((page - g.first) as usize * page_bytes, 0);
            g.data.extend_from_slice(data);
        }
        g.state = state;
        self.bytes += spare.len() + data.len();
        if self.bytes >= GATHERED_MAX { self.write_out() } else { Ok(()) }
    }

    fn read_data(&mut self, page: u32, data: &mut [u8]) -> io::Result<()> {
        if let Some((g, at)) = self.held(page) {
            let bytes = g.data.get(at * self.page_bytes..(at + 1) * self.page_bytes);
            match bytes {
                Some(bytes) => data.copy_from_slice(&bytes[..data.len()]),
                None => data.fill(0),
            }
            return Ok(());
        }
        self.file.read_at(data, self.at.data + u64::from(page) * self.page_bytes as u64)
    }

    fn read_spare(&mut self, page: u32, spare: &mut [u8]) -> io::Result<()> {
        if let Some((g, at)) = self.held(page) {
            spare.copy_from_slice(&g.spare[at * self.spare_bytes..(at + 1) * self.spare_bytes]);
            return Ok(());
        }
        self.file.read_at(spare, self.at.spares + u64::from(page) * self.spare_bytes as u64)
    }

    fn set_state(&mut self, block: u32, state: BlockState) -> io::Result<()> {
        if self.durable {
            self.write_out()?;
            self.unsynced = true;
            return self.write_state(block, state);
        }
        self.erases += 1;
        let erased = self.erases;
        let g = self.gathered.entry(block).or_insert_with(|| Gathered {
            first: block * self.per_block,
            spare: Vec::new(),
            data: Vec::new(),
            state,
            erased,
        });
        (g.state, g.erased) = (state, erased);
        if state.written == 0 {
            self.bytes -= (g.spare.len() + g.data.len()).min(self.bytes);
            g.spare.clear();
            g.data.clear();
        }
        if self.erases >= ERASES_MAX { self.write_out() } else { Ok(()) }
    }

    fn spoil(&mut self, page: u32, spare: &[u8]) -> io::Result<()> {
        self.write_out()?;
        self.unsynced = true;
        self.file.write_at(spare, self.at.spares + u64::from(page) * self.spare_bytes as u64)
    }

    fn retain(&mut self, image: &[u8]) -> io::Result<()> {
        self.write_out()?;
        self.image.write(&self.file, image)?;
        self.unsynced = true;
        self.settle()
    }

    fn barrier(&mut self) -> io::Result<()> {
        self.write_out()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.write_out()?;
        self.settle()
    }

    fn set_durable(&mut self, durable: bool) {
        // What others wrote before may not be synced either.
        (self.durable, self.unsynced) = (durable, true);
    }
}

impl<D: Disk> Drop for Filed<D> {
    fn drop(&mut self) {
        // There is no caller left to tell of an error.
        let _ = self.sync();
    }
}
