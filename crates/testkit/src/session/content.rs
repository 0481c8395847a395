//! Operations on content, atomic writes among them.

use super::{Applied, Durable, Fault, NOTHING, Session, refused, same};
use crate::model::{Id, PAGE};
use crate::observe::failed;
use crate::ops::{DATABASE, JOURNAL, LOG, Op, Place, Target, pattern, place_of_change};
use medfs::{FallocateMode, SetAttr};

/// How SQLite lays out a log or journal of a database with pages of 4096 bytes: the header, where the first
/// record is, the bytes before a page, and those of a record.
fn layout_of_log(journal: bool) -> (Vec<u8>, u64, u64, u64) {
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
    if journal {
        // Magic and number of records are written later.
        (words(&[0, 0, 0, 7, 100, 512, 4096]), 512, 4, 4096 + 8)
    } else {
        (words(&[0x377f_0682, 3_007_000, 4096, 0, 1, 2, 3, 4]), 32, 24, 4096 + 24)
    }
}

/// Operations on content.
pub(super) struct Contents<'s>(pub(super) &'s mut Session);

impl Contents<'_> {
    pub(super) fn write_pattern(&mut self, file: Target, offset: u64, len: u32, seed: u8) -> Applied {
        let Some(id) = self.0.regular(file) else { return Ok(None) };
        self.write(id, offset, &pattern(seed, offset, len as usize))?;
        NOTHING
    }

    pub(super) fn patch(&mut self, patch: &Op, file: Target) -> Applied {
        if self.0.regular(file).is_none() {
            return Ok(None);
        }
        for write in patch.parts() {
            self.0.apply(&write)?;
        }
        NOTHING
    }

    /// In one go, as a copy's pages may be those that it is made of.
    pub(super) fn copy_changed(&mut self, copy: &Op, file: Target) -> Applied {
        let &Op::CopyChanged { from, to, count, len, seed, .. } = copy else { return Ok(None) };
        let Some(id) = self.0.settled(file) else { return Ok(None) };
        let (from, to) = (u64::from(from), u64::from(to));
        let mut pages = self.0.model.inode(id).content.read(from * PAGE, u64::from(count) * PAGE);
        for (n, page) in pages.chunks_exact_mut(PAGE as usize).enumerate() {
            let at = place_of_change(to + n as u64, len, seed) as usize;
            page[at..at + usize::from(len)].copy_from_slice(&pattern(seed, at as u64, len.into()));
        }
        if !pages.is_empty() {
            self.write(id, to * PAGE, &pages)?;
        }
        NOTHING
    }

    pub(super) fn frames(&mut self, dir: u8, journal: bool, first: u8, count: u8, seed: u8) -> Applied {
        let at = |name| Target::Path(Place { dir, name });
        let Some(database) = self.0.settled(at(DATABASE)) else { return Ok(None) };
        let Some(id) = self.0.settled(at(if journal { JOURNAL } else { LOG })) else { return Ok(None) };
        match self.write_frames(database, id, journal, u64::from(first), u64::from(count), seed) {
            Err(Fault::Full) => {}
            written => written?,
        }
        NOTHING
    }

    pub(super) fn read(&mut self, file: Target, offset: u64, len: u32) -> Applied {
        let Some(id) = self.0.regular(file) else { return Ok(None) };
        let mut buffer = vec![0xa5; len as usize];
        let read = self.0.fs.read(self.0.ino(id), offset, &mut buffer).map_err(refused("read"))?;
        let expected = self.0.model.inode(id).visible().read(offset, u64::from(len));
        if buffer[..read] != expected[..] {
            let at = buffer[..read].iter().zip(&expected).position(|(a, b)| a != b);
            return Err(
                format!("read {read} bytes, expected {}; first difference {at:?}", expected.len()).into()
            );
        }
        if self.0.model.inode(id).staged.is_none() {
            self.0.compare_seek(id, offset)?;
        }
        NOTHING
    }

    pub(super) fn truncate(&mut self, file: Target, size: u64) -> Applied {
        let Some(id) = self.0.regular(file) else { return Ok(None) };
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        let actual = self.0.fs.setattr(self.0.ino(id), &set);
        same(actual, self.0.model.truncate(id, size))?;
        self.0.compare_range(id, size.saturating_sub(2 * PAGE), 4 * PAGE)?;
        NOTHING
    }

    pub(super) fn fallocate(&mut self, file: Target, mode: FallocateMode, offset: u64, len: u64) -> Applied {
        let Some(id) = self.0.settled(file) else { return Ok(None) };
        // Reserving much would fill the volume: that is another test's subject.
        if len > 1 << 20 {
            return Ok(None);
        }
        let actual = self.0.fs.fallocate(self.0.ino(id), mode, offset, len);
        same(actual, self.0.model.fallocate(id, mode, offset, len))?;
        self.0.compare_range(id, offset, len + PAGE)?;
        if mode.intersects(FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE) {
            self.0.compare_content(id)?;
        }
        NOTHING
    }

    pub(super) fn copy(
        &mut self,
        from: Target,
        from_offset: u64,
        to: Target,
        to_offset: u64,
        len: u64,
    ) -> Applied {
        let (Some(source), Some(target)) = (self.0.settled(from), self.0.settled(to)) else {
            return Ok(None);
        };
        if source == target || len > 1 << 20 {
            return Ok(None);
        }
        let data = self.0.model.inode(source).content.read(from_offset, len);
        let allowed = if data.is_empty() { Ok(()) } else { self.0.model.may_write(target) };
        let (ino, to_ino) = (self.0.ino(source), self.0.ino(target));
        let actual = self.0.fs.copy_range(ino, from_offset, to_ino, to_offset, len);
        let Some((copied, ())) = same(actual, allowed)? else { return NOTHING };
        // A copy may stop early, but not at once.
        if copied > data.len() as u64 || copied == 0 && !data.is_empty() {
            return Err(format!("copied {copied} of {} bytes", data.len()).into());
        }
        if copied > 0 {
            self.0.model.content_mut(target).write(to_offset, &data[..copied as usize]);
        }
        self.0.compare_range(target, to_offset, copied)?;
        NOTHING
    }

    pub(super) fn atomic_start(&mut self, file: Target) -> Applied {
        let Some(id) = self.0.regular(file) else { return Ok(None) };
        self.0.fs.atomic_start(self.0.ino(id)).map_err(refused("atomic start"))?;
        self.0.model.atomic_start(id);
        NOTHING
    }

    pub(super) fn end_atomic(&mut self, file: Target, commit: bool) -> Applied {
        let Some(id) = self.0.regular(file).filter(|id| self.0.model.inode(*id).staged.is_some()) else {
            return Ok(None);
        };
        self.atomic_end(id, commit).map(Some)
    }

    pub(super) fn atomic_update(
        &mut self,
        file: Target,
        offsets: [u64; 2],
        len: u32,
        seed: u8,
        commit: bool,
    ) -> Applied {
        let Some(id) = self.0.settled(file) else { return Ok(None) };
        self.0.fs.atomic_start(self.0.ino(id)).map_err(refused("atomic start"))?;
        self.0.model.atomic_start(id);
        for offset in offsets {
            self.write(id, offset, &pattern(seed, offset, len as usize))?;
        }
        self.atomic_end(id, commit).map(Some)
    }

    /// Writes bytes to both; a full volume may take only some.
    fn write(&mut self, id: Id, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let actual = self.0.fs.write(self.0.ino(id), offset, data);
        let Some((written, ())) = same(actual, self.0.model.may_write(id))? else { return Ok(()) };
        if written > data.len() || written < data.len() && !self.0.crowded {
            return Err(format!("wrote {written} of {} bytes", data.len()).into());
        }
        self.0.model.write(id, offset, &data[..written]);
        self.0.note_step();
        Ok(self.0.compare_range(id, offset, written as u64)?)
    }

    /// Writes pages of a database into a log or journal, each changed in a few places.
    fn write_frames(
        &mut self,
        database: Id,
        id: Id,
        journal: bool,
        first: u64,
        count: u64,
        seed: u8,
    ) -> Result<(), Fault> {
        let pages = self.0.model.inode(database).content.size() / PAGE;
        if pages == 0 {
            return Ok(());
        }
        let (header, start, before, stride) = layout_of_log(journal);
        self.write(id, 0, &header)?;
        // In one go, as a page lies over two records: no state between two of them is one that the model knows.
        let mut records = Vec::new();
        for n in first..first + count {
            let number = (n * 7 + u64::from(seed)) % pages;
            let mut page = self.0.model.inode(database).content.read(number * PAGE, PAGE);
            for change in 0..u64::from(seed % 40) {
                let at = (change * 97 + n * 31 + u64::from(seed) * 11) % PAGE;
                page[at as usize] = page[at as usize].wrapping_add(seed | 1);
            }
            let mut record = vec![seed; before as usize];
            record[..4].copy_from_slice(&(number as u32 + 1).to_be_bytes());
            record.extend(page);
            record.resize(stride as usize, n as u8);
            records.extend(record);
        }
        self.write(id, start + first * stride, &records)
    }

    fn atomic_end(&mut self, id: Id, commit: bool) -> Result<Durable, Fault> {
        let ino = self.0.ino(id);
        match commit {
            true => self.0.fs.atomic_commit(ino).map_err(|e| failed("commit")(e))?,
            false => self.0.fs.atomic_abort(ino).map_err(|e| failed("abort")(e))?,
        }
        self.0.model.atomic_end(id, commit);
        self.0.compare_content(id)?;
        Ok(if commit { Durable::Atomic { id } } else { Durable::Nothing })
    }
}
