//! One record: its bytes made, and read.

use super::part::RawPart;
use super::{
    JC_MAGIC, JD_MAGIC, TAG_LAST, TAG_NAMED, TAG_NODE, TAG_PARTS, TYPE_DELTA, TYPE_MASK, TYPE_REMOVED,
    TYPE_REVOKE,
};
use crate::node::NAME_LEN;
use crate::removed::RemovedName;
use crate::{BlockAddr, FormatError, Ino, Nid, Structure, Timestamp, crc};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the JD before its tags.
pub(super) const JD_SIZE: usize = 12;
const TAG_SIZE: usize = size_of::<RawTag>();
const BODY_SIZE: usize = 8;
pub(super) const JC_SIZE: usize = size_of::<RawCommit>();
/// Most tags of a record.
pub const MAX_TAGS: usize = 1 << 14;
/// Most parts that a delta starts from.
pub const MAX_PARTS: usize = 16;
/// Most bytes of a record.
pub const MAX_RECORD: usize = 4 << 20;

/// A tag of a record (16 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawTag {
    /// The file.
    pub ino: U32,
    /// The page's index, the node's number, or the directory that had the name.
    pub home: U32,
    /// Start of the body, from the start of the record; zero without one.
    pub offset: U32,
    /// Bytes of the delta, or of the name; of a revoke how many pages.
    pub length: U16,
    /// The type, [`TAG_NODE`], [`TAG_PARTS`], [`TAG_NAMED`], [`TAG_LAST`].
    pub flags: u8,
    /// Encoding of the delta: a tag of the codec.
    pub codec: u8,
}

/// The end of a record (56 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawCommit {
    /// [`JC_MAGIC`].
    pub magic: U32,
    /// Bytes of the record, this included.
    pub length: U32,
    /// The sequence that its JD has.
    pub sequence: U64,
    /// The journal's generation.
    pub generation: U64,
    /// Version of the checkpoint in force, with its checksum, as node footers carry it.
    pub checkpoint: U64,
    /// Blocks of the chain of fsynced nodes that were placed before it.
    pub chain: U64,
    /// When it was made: seconds,
    pub seconds: U64,
    /// and nanoseconds.
    pub nanos: U32,
    /// CRC of what is before.
    pub checksum: U32,
}

const PART_SIZE: usize = size_of::<RawPart>();

const _: () = assert!(TAG_SIZE == 16 && PART_SIZE == 10 && JC_SIZE == 56);

/// The subject of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Home {
    /// A page of a file.
    Page(u32),
    /// A node of it.
    Node(Nid),
    /// Its inode, whose name is new.
    Named,
}

/// The bytes that a delta starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base<'a> {
    /// A block; zeros where it is `NULL_ADDR`.
    Block(BlockAddr),
    /// Parts of blocks and pages.
    Parts(&'a [RawPart]),
}

/// A delta, and what it starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Body<'a> {
    /// The bytes that the delta starts from.
    pub base: Base<'a>,
    /// CRC-32 of what both make.
    pub checksum: u32,
    /// Tag of the codec.
    pub codec: u8,
    /// The delta.
    pub delta: &'a [u8],
}

/// One statement of a record, about a page, a node, or some pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag<'a> {
    /// It is what a delta makes of a block.
    Delta {
        /// The file.
        ino: Ino,
        /// What of it.
        home: Home,
        /// How.
        body: Body<'a>,
    },
    /// A file lost a name.
    Removed(RemovedName<'a>),
    /// Older records say nothing of these pages any more.
    Revoke {
        /// The file.
        ino: Ino,
        /// The first page.
        first: u32,
        /// How many.
        count: u16,
    },
}

/// When and where a record was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Its number: each record has the next one.
    pub sequence: u64,
    /// The journal's generation.
    pub generation: u64,
    /// Version of the checkpoint in force, as node footers carry it.
    pub checkpoint: u64,
    /// Blocks of the chain of fsynced nodes that were placed before it.
    pub chain: u64,
    /// Time.
    pub time: Timestamp,
}

/// A record that was read.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// When and where it was made.
    pub stamp: Stamp,
    bytes: &'a [u8],
    tags: usize,
}

/// Makes the bytes of a record.
#[derive(Debug, Default)]
pub struct RecordBuilder {
    tags: Vec<RawTag>,
    bodies: Vec<u8>,
}

impl RecordBuilder {
    /// Adds a delta.
    pub fn delta(&mut self, ino: Ino, home: Home, body: Body<'_>) {
        let (home, of_home) = match home {
            Home::Page(index) => (index, TYPE_DELTA),
            Home::Node(nid) => (nid, TYPE_DELTA | TAG_NODE),
            Home::Named => (ino, TYPE_DELTA | TAG_NODE | TAG_NAMED),
        };
        let (base, parts, of_base) = match body.base {
            Base::Block(addr) => (addr, &[][..], 0),
            Base::Parts(parts) => (parts.len() as u32, parts, TAG_PARTS),
        };
        let flags = of_home | of_base;
        let (offset, length) = ((self.bodies.len() as u32).into(), (body.delta.len() as u16).into());
        self.tags.push(RawTag {
            ino: ino.into(),
            home: home.into(),
            offset,
            length,
            flags,
            codec: body.codec,
        });
        self.bodies.reserve(BODY_SIZE + size_of_val(parts) + body.delta.len());
        self.bodies.extend_from_slice(&base.to_le_bytes());
        self.bodies.extend_from_slice(&body.checksum.to_le_bytes());
        self.bodies.extend_from_slice(parts.as_bytes());
        self.bodies.extend_from_slice(body.delta);
    }

    /// Adds that a file lost a name.
    pub fn removed(&mut self, removed: &RemovedName<'_>) {
        self.tags.push(RawTag {
            ino: removed.ino.into(),
            home: removed.dir.into(),
            offset: (self.bodies.len() as u32).into(),
            length: (removed.name.len() as u16).into(),
            flags: TYPE_REMOVED,
            codec: 0,
        });
        self.bodies.extend_from_slice(removed.name);
    }

    /// Adds that older records say nothing of these pages any more.
    pub fn revoke(&mut self, ino: Ino, first: u32, count: u16) {
        self.tags.push(RawTag {
            ino: ino.into(),
            home: first.into(),
            offset: 0.into(),
            length: count.into(),
            flags: TYPE_REVOKE,
            codec: 0,
        });
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty()
    }

    /// Bytes that the record will have.
    pub fn size(&self) -> usize {
        (self.bodies_start() + self.bodies.len()).next_multiple_of(8) + JC_SIZE
    }

    /// Whether a record may be as large.
    pub fn fits(&self) -> bool {
        self.tags.len() <= MAX_TAGS && self.size() <= MAX_RECORD
    }

    fn bodies_start(&self) -> usize {
        JD_SIZE + self.tags.len() * TAG_SIZE
    }

    /// The bytes of the record, which is not empty and [`RecordBuilder::fits`].
    pub fn seal(&self, stamp: Stamp) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        bytes.extend_from_slice(&JD_MAGIC.to_le_bytes());
        bytes.extend_from_slice(&stamp.sequence.to_le_bytes());
        let start = self.bodies_start() as u32;
        for (at, tag) in self.tags.iter().enumerate() {
            let mut tag = *tag;
            if tag.flags & TYPE_MASK != TYPE_REVOKE {
                tag.offset = (tag.offset.get() + start).into();
            }
            if at + 1 == self.tags.len() {
                tag.flags |= TAG_LAST;
            }
            bytes.extend_from_slice(tag.as_bytes());
        }
        bytes.extend_from_slice(&self.bodies);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let mut commit = RawCommit {
            magic: JC_MAGIC.into(),
            length: ((bytes.len() + JC_SIZE) as u32).into(),
            sequence: stamp.sequence.into(),
            generation: stamp.generation.into(),
            checkpoint: stamp.checkpoint.into(),
            chain: stamp.chain.into(),
            seconds: (stamp.time.secs as u64).into(),
            nanos: stamp.time.nanos.into(),
            checksum: 0.into(),
        };
        let covered = crc::f2fs(&bytes);
        commit.checksum = crc::chain(covered, &commit.as_bytes()[..JC_SIZE - 4]).into();
        bytes.extend_from_slice(commit.as_bytes());
        bytes
    }
}

/// The sequence of the record that begins with these bytes, as its JD has it; `None` where none begins there.
pub(super) fn sequence_of(bytes: &[u8]) -> Option<u64> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let sequence = rest.first_chunk::<8>()?;
    (u32::from_le_bytes(*magic) == JD_MAGIC).then(|| u64::from_le_bytes(*sequence))
}

impl<'a> Record<'a> {
    /// The record that begins with these bytes. What is wrong is named; `at` is where that is, for the error.
    pub fn parse(bytes: &'a [u8], at: u64) -> Result<Record<'a>, FormatError> {
        Record::check(bytes, at, Record::find_end(bytes, at)?)
    }

    /// The same, of a generation: of others the checksum is not computed.
    pub(super) fn parse_of(bytes: &'a [u8], at: u64, generation: u64) -> Result<Record<'a>, FormatError> {
        let end = Record::find_end(bytes, at)?;
        match end.0.generation.get() == generation {
            true => Record::check(bytes, at, end),
            false => Err(bad(at, "generation", end.0.generation.to_string())),
        }
    }

    fn check(
        bytes: &'a [u8],
        at: u64,
        (commit, tags, length): (&RawCommit, usize, usize),
    ) -> Result<Record<'a>, FormatError> {
        let bytes = &bytes[..length];
        let computed = crc::f2fs(&bytes[..length - 4]);
        if commit.checksum.get() != computed {
            let value = format!("{:#010x}, computed {computed:#010x}", commit.checksum);
            return Err(bad(at, "checksum", value));
        }
        let nanos = commit.nanos.get();
        let stamp = Stamp {
            sequence: commit.sequence.get(),
            generation: commit.generation.get(),
            checkpoint: commit.checkpoint.get(),
            chain: commit.chain.get(),
            time: Timestamp { secs: commit.seconds.get() as i64, nanos },
        };
        Ok(Record { stamp, bytes, tags })
    }

    /// The end of a record, how many tags it has, and its length: all but what the checksum tells.
    fn find_end(bytes: &'a [u8], at: u64) -> Result<(&'a RawCommit, usize, usize), FormatError> {
        let Some(sequence) = sequence_of(bytes) else { return Err(bad(at, "magic", "is none".into())) };
        let (mut end, mut tags) = (JD_SIZE, 0);
        let mut bodies: Vec<(usize, usize, bool)> = Vec::new();
        loop {
            let Some((tag, _)) = bytes.get(end..).and_then(|rest| RawTag::ref_from_prefix(rest).ok()) else {
                return Err(bad(at, "tags", "reach beyond the journal".into()));
            };
            (end, tags) = (end + TAG_SIZE, tags + 1);
            match tag.flags & TYPE_MASK {
                TYPE_REMOVED if (1..=NAME_LEN).contains(&tag.length.get().into()) => {
                    bodies.push((tag.offset.get() as usize, tag.length.get().into(), false));
                }
                TYPE_DELTA if is_delta_of_something(tag) => {
                    let has_parts = tag.flags & TAG_PARTS != 0;
                    let length = BODY_SIZE + usize::from(tag.length.get());
                    bodies.push((tag.offset.get() as usize, length, has_parts));
                }
                TYPE_REVOKE => {}
                _ => return Err(bad(at, "flags", format!("{:#x}", tag.flags))),
            }
            if tag.flags & TAG_LAST != 0 {
                break;
            }
            if tags == MAX_TAGS {
                return Err(bad(at, "tags", format!("more than {MAX_TAGS}")));
            }
        }
        // Bodies lie one behind the other, in the order of their tags.
        for (offset, length, has_parts) in bodies {
            if offset != end {
                return Err(bad(at, "offset", offset.to_string()));
            }
            if has_parts {
                end += PART_SIZE * parts_of(bytes, offset, at)?;
            }
            end += length;
            if end > MAX_RECORD {
                return Err(bad(at, "length", format!("more than {MAX_RECORD} bytes")));
            }
        }
        let end = end.next_multiple_of(8);
        let commit = bytes.get(end..).and_then(|rest| RawCommit::ref_from_prefix(rest).ok());
        let Some((commit, _)) = commit else {
            return Err(bad(at, "length", "reaches beyond the journal".into()));
        };
        let length = end + JC_SIZE;
        if commit.magic.get() != JC_MAGIC
            || commit.length.get() as usize != length
            || commit.sequence.get() != sequence
        {
            return Err(bad(at, "commit", format!("{:#010x}, {}", commit.magic, commit.length)));
        }
        Ok((commit, tags, length))
    }

    /// Its bytes.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Its tags, in order.
    pub fn tags(&self) -> impl Iterator<Item = Tag<'a>> + use<'a> {
        let bytes = self.bytes;
        (0..self.tags).filter_map(move |at| {
            let start = JD_SIZE + at * TAG_SIZE;
            let (tag, _) = RawTag::ref_from_prefix(bytes.get(start..)?).ok()?;
            let (ino, home) = (tag.ino.get(), tag.home.get());
            if tag.flags & TYPE_MASK == TYPE_REVOKE {
                return Some(Tag::Revoke { ino, first: home, count: tag.length.get() });
            }
            if tag.flags & TYPE_MASK == TYPE_REMOVED {
                let name = bytes.get(tag.offset.get() as usize..)?.get(..tag.length.get().into())?;
                return Some(Tag::Removed(RemovedName { ino, dir: home, name }));
            }
            let home = match tag.flags & (TAG_NODE | TAG_NAMED) {
                0 => Home::Page(home),
                TAG_NODE => Home::Node(home),
                _ => Home::Named,
            };
            Some(Tag::Delta { ino, home, body: body_of(bytes, tag)? })
        })
    }
}

/// Whether what a tag says of its home can be: only a page is made of parts, only an inode has a name.
fn is_delta_of_something(tag: &RawTag) -> bool {
    let has = |flag| tag.flags & flag != 0;
    let is_inode = has(TAG_NODE) && tag.home == tag.ino;
    !(has(TAG_NODE) && has(TAG_PARTS)) && (is_inode || !has(TAG_NAMED))
}

/// How many parts the delta whose body begins at `offset` of a record starts from.
fn parts_of(bytes: &[u8], offset: usize, at: u64) -> Result<usize, FormatError> {
    let count = bytes.get(offset..).and_then(|body| body.first_chunk::<4>());
    let Some(count) = count.map(|count| u32::from_le_bytes(*count)) else {
        return Err(bad(at, "length", "reaches beyond the journal".into()));
    };
    let parts = usize::try_from(count).ok().filter(|count| (1..=MAX_PARTS).contains(count));
    parts.ok_or_else(|| bad(at, "parts", count.to_string()))
}

fn body_of<'a>(bytes: &'a [u8], tag: &RawTag) -> Option<Body<'a>> {
    let body = bytes.get(tag.offset.get() as usize..)?;
    let (base, body) = body.split_first_chunk::<4>()?;
    let (checksum, body) = body.split_first_chunk::<4>()?;
    let base = u32::from_le_bytes(*base);
    let (base, rest) = if tag.flags & TAG_PARTS == 0 {
        (Base::Block(base), body)
    } else {
        let (parts, rest) = <[RawPart]>::ref_from_prefix_with_elems(body, base as usize).ok()?;
        (Base::Parts(parts), rest)
    };
    let delta = rest.get(..tag.length.get().into())?;
    Some(Body { base, checksum: u32::from_le_bytes(*checksum), codec: tag.codec, delta })
}

fn bad(at: u64, field: &'static str, value: String) -> FormatError {
    FormatError::corrupt(Structure::NvramRecord, at, field, value)
}
