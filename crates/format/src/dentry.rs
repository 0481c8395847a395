//! Directory entries: dentry blocks, inline dentries, and the multi-level hash.
//!
//! A dentry area, in a block or inline, is `[bitmap | reserved | slots of 11 bytes | names of 8 bytes]`.
//! A name longer than 8 bytes takes several neighbouring slots; only the first carries the entry.

use crate::file_kind::FileKind;
use crate::hash::dentry_hash;
use crate::limits::NAME_LEN;
use crate::{BLOCK_SIZE, Block, FormatError, Ino, Structure};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a name slot.
pub const SLOT_LEN: usize = 8;
/// Entries of a dentry block.
pub const DENTRIES_PER_BLOCK: usize = 214;
/// Deepest hash level.
pub const MAX_DEPTH: u32 = 63;
/// Bytes of a fixed entry.
pub const DIR_ENTRY_SIZE: usize = size_of::<RawDirEntry>();
const MAX_BUCKETS: u64 = 1 << 30;
/// Name in the root directory of the list of inodes with slices; users do not see it.
pub const HIDDEN_LIST: &[u8] = b".medfs";
/// Name in the root directory of the directory of files that live for their blocks; users do not see it.
pub const HIDDEN_DIR: &[u8] = b".medfs.d";

/// Whether a block that a directory has is zeros. No directory has one: the first block begins with `.`, any
/// other is made for an entry, and the last entry that goes leaves its bytes, where it does not take the
/// block along.
pub fn is_blank(block: &Block) -> bool {
    block.0 == Block::ZERO.0
}

/// The fixed part of an entry (11 bytes).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawDirEntry {
    pub hash_code: U32,
    pub ino: U32,
    pub name_len: U16,
    pub file_type: u8,
}

const _: () = assert!(size_of::<RawDirEntry>() == 11);

/// Offsets of the parts of a dentry area. The same code serves blocks and inline areas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AreaLayout {
    /// Number of slots.
    pub slots: usize,
    entries_at: usize,
    names_at: usize,
}

impl AreaLayout {
    /// Layout of a 4 KiB dentry block: 27 bytes of bitmap, 3 reserved.
    pub const BLOCK: AreaLayout =
        AreaLayout { slots: DENTRIES_PER_BLOCK, entries_at: 30, names_at: 30 + 214 * 11 };

    /// Layout of an inline area of `bytes` bytes.
    pub fn inline(bytes: usize) -> AreaLayout {
        let slots = bytes * 8 / ((DIR_ENTRY_SIZE + SLOT_LEN) * 8 + 1);
        let names_at = bytes - slots * SLOT_LEN;
        AreaLayout { slots, entries_at: names_at - slots * DIR_ENTRY_SIZE, names_at }
    }

    /// Byte offset of a slot's entry.
    pub fn entry_at(&self, slot: usize) -> usize {
        self.entries_at + slot * DIR_ENTRY_SIZE
    }

    /// Byte offset of a slot's name.
    pub fn name_at(&self, slot: usize) -> usize {
        self.names_at + slot * SLOT_LEN
    }
}

const _: () = assert!(AreaLayout::BLOCK.names_at + DENTRIES_PER_BLOCK * SLOT_LEN == BLOCK_SIZE);

/// Slots that a name of `len` bytes takes.
#[inline]
pub fn slots_for(len: usize) -> usize {
    len.div_ceil(SLOT_LEN).max(1)
}

/// One entry found in an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its first slot.
    pub slot: usize,
    /// Inode it names.
    pub ino: Ino,
    /// Kind of the file, where the entry says so.
    pub kind: Option<FileKind>,
    /// Hash it carries.
    pub hash: u32,
    /// The name.
    pub name: &'a [u8],
}

/// A dentry area to read. `B` is the bytes, borrowed or mutable.
#[derive(Debug)]
pub struct Area<B> {
    layout: AreaLayout,
    bytes: B,
}

impl<B: AsRef<[u8]>> Area<B> {
    /// A view of `bytes` by `layout`; the bytes must be those the layout was made for.
    pub fn new(layout: AreaLayout, bytes: B) -> Self {
        assert!(bytes.as_ref().len() >= layout.names_at + layout.slots * SLOT_LEN);
        Area { layout, bytes }
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.layout.slots
    }

    /// Whether a slot is in use. Dentry bitmaps are kept least significant bit first.
    pub fn in_use(&self, slot: usize) -> bool {
        self.bytes.as_ref()[slot / 8] & (1 << (slot % 8)) != 0
    }

    /// Whether no slot is in use but, where `dots_allowed`, `.` and `..`.
    pub fn is_empty(&self, dots_allowed: bool) -> bool {
        let first = if dots_allowed { 2 } else { 0 };
        (first..self.layout.slots).all(|s| !self.in_use(s))
    }

    /// The raw entry of a slot.
    pub fn raw(&self, slot: usize) -> RawDirEntry {
        let at = self.layout.entry_at(slot);
        RawDirEntry::read_from_bytes(&self.bytes.as_ref()[at..at + DIR_ENTRY_SIZE]).expect("sized")
    }

    /// How many slots may be those of the entry in `slot`: up to the first one that is free or has an entry of its own.
    pub fn own_slots(&self, slot: usize) -> usize {
        let is_own = |&next: &usize| self.in_use(next) && self.raw(next).name_len.get() == 0;
        1 + (slot + 1..self.layout.slots).take_while(is_own).count()
    }

    /// The name of so many bytes in `slot`, where an entry can have that: no byte is one that no name holds, and all
    /// slots are the entry's.
    pub fn possible_name(&self, slot: usize, len: usize) -> Option<&[u8]> {
        let count = slots_for(len);
        let is_possible = (1..=NAME_LEN).contains(&len)
            && slot + count <= self.layout.slots
            && self.own_slots(slot) >= count;
        if !is_possible {
            return None;
        }
        let at = self.layout.name_at(slot);
        let name = &self.bytes.as_ref()[at..at + len];
        (!name.iter().any(|&byte| byte == 0 || byte == b'/')).then_some(name)
    }

    /// The entry that starts at `slot` (which is in use), checked. `id` identifies the area in errors.
    pub fn entry(&self, slot: usize, id: u64) -> Result<Entry<'_>, FormatError> {
        let raw = self.raw(slot);
        let len = usize::from(raw.name_len.get());
        if len == 0 || len > NAME_LEN || slot + slots_for(len) > self.layout.slots {
            return Err(FormatError::corrupt(
                Structure::Dentry,
                id,
                "name_len",
                format!("{len} in slot {slot}"),
            ));
        }
        let at = self.layout.name_at(slot);
        let name = &self.bytes.as_ref()[at..at + len];
        Ok(Entry {
            slot,
            ino: raw.ino.get(),
            kind: FileKind::from_dentry_type(raw.file_type),
            hash: raw.hash_code.get(),
            name,
        })
    }

    /// Whether the area begins with `.`, which names the directory `dir` itself.
    pub fn begins_with_dot(&self, dir: Ino) -> bool {
        let is_dot = |e: Entry<'_>| e.name == b"." && e.ino == dir;
        self.layout.slots > 0 && self.in_use(0) && self.entry(0, dir.into()).is_ok_and(is_dot)
    }

    /// All entries from slot `from` on, each checked. After an error the iterator ends.
    pub fn entries(&self, from: usize, id: u64) -> impl Iterator<Item = Result<Entry<'_>, FormatError>> {
        let mut slot = from;
        std::iter::from_fn(move || {
            while slot < self.layout.slots && !self.in_use(slot) {
                slot += 1;
            }
            if slot >= self.layout.slots {
                return None;
            }
            let entry = self.entry(slot, id);
            slot = match &entry {
                Ok(e) => slot + slots_for(e.name.len()),
                Err(_) => self.layout.slots,
            };
            Some(entry)
        })
    }

    /// Finds a name. Large directories spend their time here, so entries are compared before they are looked
    /// at closely.
    pub fn find(&self, name: &[u8], id: u64) -> Result<Option<Entry<'_>>, FormatError> {
        self.find_hashed(name, dentry_hash(name), id)
    }

    /// The same of a name that has this hash, as one has in a directory that ignores case.
    pub fn find_hashed(&self, name: &[u8], hash: u32, id: u64) -> Result<Option<Entry<'_>>, FormatError> {
        let bytes = self.bytes.as_ref();
        let raw = <[RawDirEntry]>::ref_from_bytes(&bytes[self.layout.entries_at..self.layout.names_at])
            .expect("sized");
        let mut slot = 0;
        while slot < self.layout.slots {
            if bytes[slot / 8] == 0 && slot % 8 == 0 {
                slot += 8;
                continue;
            }
            if !self.in_use(slot) {
                slot += 1;
                continue;
            }
            let len = usize::from(raw[slot].name_len.get());
            if len == 0 || len > NAME_LEN || slot + slots_for(len) > self.layout.slots {
                return self.entry(slot, id).map(Some); // fails and says why
            }
            let at = self.layout.names_at + slot * SLOT_LEN;
            if raw[slot].hash_code.get() == hash && &bytes[at..at + len] == name {
                return self.entry(slot, id).map(Some);
            }
            slot += slots_for(len);
        }
        Ok(None)
    }

    /// First run of `count` free slots.
    pub fn room(&self, count: usize) -> Option<usize> {
        let mut run = 0;
        for slot in 0..self.layout.slots {
            run = if self.in_use(slot) { 0 } else { run + 1 };
            if run == count {
                return Some(slot + 1 - count);
            }
        }
        None
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Area<B> {
    fn mark(&mut self, slot: usize, used: bool) {
        let byte = &mut self.bytes.as_mut()[slot / 8];
        if used { *byte |= 1 << (slot % 8) } else { *byte &= !(1 << (slot % 8)) }
    }

    fn set_raw(&mut self, slot: usize, raw: RawDirEntry) {
        let at = self.layout.entry_at(slot);
        self.bytes.as_mut()[at..at + DIR_ENTRY_SIZE].copy_from_slice(raw.as_bytes());
    }

    /// Writes an entry into free slots from `slot` on (see [`Area::room`]).
    pub fn insert_at(&mut self, slot: usize, name: &[u8], ino: Ino, kind: FileKind) {
        let count = slots_for(name.len());
        let raw = RawDirEntry {
            hash_code: U32::new(dentry_hash(name)),
            ino: U32::new(ino),
            name_len: U16::new(name.len() as u16),
            file_type: kind.dentry_type(),
        };
        self.set_raw(slot, raw);
        let at = self.layout.name_at(slot);
        self.bytes.as_mut()[at..at + name.len()].copy_from_slice(name);
        for i in 0..count {
            self.mark(slot + i, true);
            if i > 0 {
                // The kernel keeps the name length of follow-up slots at zero so that a scan skips them.
                self.set_raw(slot + i, RawDirEntry::default());
            }
        }
    }

    /// Inserts an entry where there is room; `false` where there is none.
    pub fn insert(&mut self, name: &[u8], ino: Ino, kind: FileKind) -> bool {
        match self.room(slots_for(name.len())) {
            Some(slot) => {
                self.insert_at(slot, name, ino, kind);
                true
            }
            None => false,
        }
    }

    /// Removes the entry that starts at `slot` and has a name of `name_len` bytes.
    pub fn remove(&mut self, slot: usize, name_len: usize) {
        for i in 0..slots_for(name_len) {
            self.mark(slot + i, false);
        }
    }

    /// Gives the entry at `slot` another hash, as a directory has it that ignores case.
    pub fn set_hash(&mut self, slot: usize, hash: u32) {
        self.set_raw(slot, RawDirEntry { hash_code: U32::new(hash), ..self.raw(slot) });
    }

    /// Gives the name of the entry at `slot` another length; its slots stay in use.
    pub fn set_name_len(&mut self, slot: usize, len: u16) {
        self.set_raw(slot, RawDirEntry { name_len: U16::new(len), ..self.raw(slot) });
    }

    /// Points the entry at `slot` to another inode.
    pub fn set_target(&mut self, slot: usize, ino: Ino, kind: FileKind) {
        let mut raw = self.raw(slot);
        raw.ino = U32::new(ino);
        raw.file_type = kind.dentry_type();
        self.set_raw(slot, raw);
    }

    /// Writes the first two entries of a new directory.
    pub fn insert_dots(&mut self, ino: Ino, parent: Ino) {
        self.insert_at(0, b".", ino, FileKind::Directory);
        self.insert_at(1, b"..", parent, FileKind::Directory);
    }
}

/// Buckets of hash level `level`.
pub fn buckets(level: u32, dir_level: u8) -> u64 {
    let shift = level + u32::from(dir_level);
    if shift < 31 { 1 << shift } else { MAX_BUCKETS }
}

/// Blocks of a bucket at `level`.
pub fn bucket_blocks(level: u32) -> u64 {
    if level < 63 / 2 { 2 } else { 4 }
}

/// First page of bucket `index` of `level`.
pub fn bucket_start(level: u32, dir_level: u8, index: u64) -> u64 {
    (0..level).map(|l| buckets(l, dir_level) * bucket_blocks(l)).sum::<u64>() + index * bucket_blocks(level)
}
