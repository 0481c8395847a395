//! Effects of operations as bytes, and back.
//!
//! Layout: a byte that says which effect it is, then its fields in the order of [`Effect`], little endian. A
//! string of bytes has its length, 32 bits, in front, but for the last one of a write.
//! Invariant: no bytes make reading panic or allocate more than they are long. Locks: none.

use crate::map::effects::{Atomic, Effect, Renamed};
use crate::types::{FallocateMode, FileFlags, NewFile, RenameFlags, SetAttr, Timestamp, XattrMode};
use medfs_format::node::FileKind;
use medfs_format::{BLOCK_SIZE, Block, Ino};
use std::sync::Arc;

/// The pages of an atomic write that was read.
pub(super) type Pages = Vec<(u64, Arc<Block>)>;

const MODES: [XattrMode; 3] = [XattrMode::Set, XattrMode::Create, XattrMode::Replace];

/// The bytes of an effect: what is written is apart, as it is large.
pub(super) struct Encoded<'a> {
    pub(super) fields: Vec<u8>,
    pub(super) data: &'a [u8],
}

impl Encoded<'_> {
    pub(super) fn len(&self) -> usize {
        self.fields.len() + self.data.len()
    }
}

#[derive(Default)]
struct Put(Vec<u8>);

impl Put {
    fn of(kind: u8, ino: Ino) -> Put {
        Put(vec![kind]).u32(ino)
    }

    fn u8(mut self, value: u8) -> Put {
        self.0.push(value);
        self
    }

    fn u32(mut self, value: u32) -> Put {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Put {
        self.0.extend(value.to_le_bytes());
        self
    }

    fn bytes(self, value: &[u8]) -> Put {
        let mut put = self.u32(value.len() as u32);
        put.0.extend(value);
        put
    }

    fn optional<T>(self, value: Option<T>, put: impl FnOnce(Put, T) -> Put) -> Put {
        match value {
            Some(value) => put(self.u8(1), value),
            None => self.u8(0),
        }
    }

    fn time(self, value: Timestamp) -> Put {
        self.u64(value.secs as u64).u32(value.nanos)
    }

    fn new_file(self, new: NewFile) -> Put {
        let put = self.u32(new.kind.mode_bits().into()).u32(new.perm.into()).u32(new.umask.into());
        put.u32(new.uid).u32(new.gid).u64(new.rdev)
    }

    fn set_attr(self, set: SetAttr) -> Put {
        let put = self.optional(set.perm, |put, perm| put.u32(perm.into()));
        let put = put.optional(set.uid, Put::u32).optional(set.gid, Put::u32).optional(set.size, Put::u64);
        put.optional(set.atime, Put::time).optional(set.mtime, Put::time).optional(set.ctime, Put::time)
    }

    fn pages(self, pages: &[(u64, Arc<Block>)]) -> Put {
        pages.iter().fold(self.u32(pages.len() as u32), |mut put, (index, page)| {
            put = put.u64(*index);
            put.0.extend(page.0);
            put
        })
    }
}

/// The bytes of an effect.
pub(super) fn encode<'a>(effect: &Effect<'a>) -> Encoded<'a> {
    let mut rest: &[u8] = &[];
    let put = match *effect {
        Effect::Write { ino, offset, data, cached } => {
            rest = data;
            Put::of(1, ino).u64(offset).u8(cached.into())
        }
        Effect::SetAttr { ino, set } => Put::of(2, ino).set_attr(set),
        Effect::Create { ino, parent, name, new } => Put::of(3, ino).u32(parent).bytes(name).new_file(new),
        Effect::Tmpfile { ino, parent, new } => Put::of(4, ino).u32(parent).new_file(new),
        Effect::Symlink { ino, parent, name, target, uid, gid } => {
            Put::of(5, ino).u32(parent).bytes(name).bytes(target).u32(uid).u32(gid)
        }
        Effect::Link { ino, parent, name } => Put::of(6, ino).u32(parent).bytes(name),
        Effect::Remove { ino, parent, name, directory } => {
            Put::of(7, ino).u32(parent).bytes(name).u8(directory.into())
        }
        Effect::Rename(Renamed { ino, replaced, whiteout, from, to, flags }) => {
            let put = Put::of(8, ino).optional(replaced, Put::u32).optional(whiteout, Put::u32);
            put.u32(from.0).bytes(from.1).u32(to.0).bytes(to.1).u32(flags.bits())
        }
        Effect::Fallocate { ino, mode, offset, len } => Put::of(9, ino).u32(mode.bits()).u64(offset).u64(len),
        Effect::Xattr { ino, name, value, mode } => {
            let mode = MODES.iter().position(|m| *m == mode).unwrap_or(0);
            Put::of(10, ino).bytes(name).optional(value, Put::bytes).u8(mode as u8)
        }
        Effect::Flags { ino, flags } => Put::of(11, ino).u32(flags.bits()),
        Effect::Project { ino, project } => Put::of(12, ino).u32(project),
        Effect::Pinned { ino, pin } => Put::of(13, ino).u8(pin.into()),
        Effect::Saved { ino, released } => Put::of(14, ino).u8(released.into()),
        Effect::Compression { ino, algorithm, log_cluster_size } => {
            Put::of(15, ino).u8(algorithm).u8(log_cluster_size)
        }
        Effect::Atomic(Atomic { ino, kept, size, pages }) => {
            Put::of(16, ino).u64(kept).u64(size).pages(pages)
        }
        Effect::Freed { ino } => Put::of(17, ino),
    };
    Encoded { fields: put.0, data: rest }
}

/// Takes fields out of bytes, one after the other; `None` where they end.
pub(super) struct Take<'a>(pub(super) &'a [u8]);

impl<'a> Take<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn bool(&mut self) -> Option<bool> {
        self.u8().map(|byte| byte != 0)
    }

    fn u16(&mut self) -> Option<u16> {
        self.u32()?.try_into().ok()
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// The outer `None` where the bytes end.
    fn optional<T>(&mut self, take: impl FnOnce(&mut Take<'a>) -> Option<T>) -> Option<Option<T>> {
        if self.bool()? { take(self).map(Some) } else { Some(None) }
    }

    pub(super) fn time(&mut self) -> Option<Timestamp> {
        Some(Timestamp { secs: self.u64()? as i64, nanos: self.u32()? })
    }

    fn new_file(&mut self) -> Option<NewFile> {
        let kind = FileKind::from_mode(self.u16()?)?;
        let (perm, umask) = (self.u16()?, self.u16()?);
        Some(NewFile { kind, perm, umask, uid: self.u32()?, gid: self.u32()?, rdev: self.u64()? })
    }

    fn set_attr(&mut self) -> Option<SetAttr> {
        Some(SetAttr {
            perm: self.optional(Take::u16)?,
            uid: self.optional(Take::u32)?,
            gid: self.optional(Take::u32)?,
            size: self.optional(Take::u64)?,
            atime: self.optional(Take::time)?,
            mtime: self.optional(Take::time)?,
            ctime: self.optional(Take::time)?,
        })
    }

    fn pages(&mut self) -> Option<Pages> {
        let count = self.u32()? as usize;
        if count > self.0.len() / BLOCK_SIZE {
            return None;
        }
        (0..count)
            .map(|_| {
                let index = self.u64()?;
                Some((index, Arc::new(Block(self.array::<BLOCK_SIZE>()?))))
            })
            .collect()
    }

    fn renamed(&mut self, ino: Ino) -> Option<Renamed<'a>> {
        Some(Renamed {
            ino,
            replaced: self.optional(Take::u32)?,
            whiteout: self.optional(Take::u32)?,
            from: (self.u32()?, self.bytes()?),
            to: (self.u32()?, self.bytes()?),
            flags: RenameFlags::from_bits(self.u32()?)?,
        })
    }
}

/// The effect that bytes are of, and nothing behind it; the pages of an atomic write are put into `pages`.
pub(super) fn decode<'a>(bytes: &'a [u8], pages: &'a mut Pages) -> Option<Effect<'a>> {
    let mut take = Take(bytes);
    let (kind, ino) = (take.u8()?, take.u32()?);
    let effect = match kind {
        1 => Effect::Write { ino, offset: take.u64()?, cached: take.bool()?, data: take.rest() },
        2 => Effect::SetAttr { ino, set: take.set_attr()? },
        3 => Effect::Create { ino, parent: take.u32()?, name: take.bytes()?, new: take.new_file()? },
        4 => Effect::Tmpfile { ino, parent: take.u32()?, new: take.new_file()? },
        5 => Effect::Symlink {
            ino,
            parent: take.u32()?,
            name: take.bytes()?,
            target: take.bytes()?,
            uid: take.u32()?,
            gid: take.u32()?,
        },
        6 => Effect::Link { ino, parent: take.u32()?, name: take.bytes()? },
        7 => Effect::Remove { ino, parent: take.u32()?, name: take.bytes()?, directory: take.bool()? },
        8 => Effect::Rename(take.renamed(ino)?),
        9 => Effect::Fallocate {
            ino,
            mode: FallocateMode::from_bits(take.u32()?)?,
            offset: take.u64()?,
            len: take.u64()?,
        },
        10 => Effect::Xattr {
            ino,
            name: take.bytes()?,
            value: take.optional(Take::bytes)?,
            mode: *MODES.get(usize::from(take.u8()?))?,
        },
        11 => Effect::Flags { ino, flags: FileFlags::from_bits_retain(take.u32()?) },
        12 => Effect::Project { ino, project: take.u32()? },
        13 => Effect::Pinned { ino, pin: take.bool()? },
        14 => Effect::Saved { ino, released: take.bool()? },
        15 => Effect::Compression { ino, algorithm: take.u8()?, log_cluster_size: take.u8()? },
        16 => {
            let (kept, size) = (take.u64()?, take.u64()?);
            *pages = take.pages()?;
            Effect::Atomic(Atomic { ino, kept, size, pages })
        }
        17 => Effect::Freed { ino },
        _ => return None,
    };
    take.0.is_empty().then_some(effect)
}

/// What an effect is called where people are told of it.
pub(super) fn name(effect: &Effect<'_>) -> String {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    match effect {
        Effect::Write { ino, offset, data, .. } => {
            format!("a write of {} bytes at {offset} of inode {ino}", data.len())
        }
        Effect::SetAttr { ino, .. } => format!("attributes of inode {ino}"),
        Effect::Create { name, .. } | Effect::Symlink { name, .. } => {
            format!("the new file '{}'", text(name))
        }
        Effect::Tmpfile { ino, .. } => format!("the new inode {ino}"),
        Effect::Link { name, .. } => format!("the link '{}'", text(name)),
        Effect::Remove { name, .. } => format!("the removal of '{}'", text(name)),
        Effect::Rename(renamed) => {
            format!("the rename of '{}' to '{}'", text(renamed.from.1), text(renamed.to.1))
        }
        Effect::Fallocate { ino, offset, len, .. } => {
            format!("the allocation of {len} bytes at {offset} of inode {ino}")
        }
        Effect::Xattr { ino, name, .. } => format!("the attribute '{}' of inode {ino}", text(name)),
        Effect::Flags { ino, .. } => format!("flags of inode {ino}"),
        Effect::Project { ino, .. } => format!("the project of inode {ino}"),
        Effect::Pinned { ino, .. } => format!("pinning inode {ino}"),
        Effect::Saved { ino, .. } => format!("blocks saved in inode {ino}"),
        Effect::Compression { ino, .. } => format!("how inode {ino} is compressed"),
        Effect::Atomic(atomic) => format!("the atomic write of inode {}", atomic.ino),
        Effect::Freed { ino } => format!("the end of inode {ino}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pages: &Pages) -> Vec<Effect<'_>> {
        let new = NewFile { kind: FileKind::Regular, perm: 0o640, umask: 0o22, uid: 1, gid: 2, rdev: 3 };
        let time = Timestamp { secs: -5, nanos: 6 };
        let set = SetAttr { perm: Some(7), size: Some(8), mtime: Some(time), ..SetAttr::default() };
        let ino = 9;
        vec![
            Effect::Write { ino, offset: 10, data: b"data", cached: true },
            Effect::SetAttr { ino, set },
            Effect::Create { ino, parent: 3, name: b"n", new },
            Effect::Tmpfile { ino, parent: 3, new },
            Effect::Symlink { ino, parent: 3, name: b"n", target: b"to", uid: 1, gid: 2 },
            Effect::Link { ino, parent: 3, name: b"n" },
            Effect::Remove { ino, parent: 3, name: b"n", directory: true },
            Effect::Rename(Renamed {
                ino,
                replaced: Some(4),
                whiteout: None,
                from: (3, b"a"),
                to: (5, b"b"),
                flags: RenameFlags::NOREPLACE,
            }),
            Effect::Fallocate { ino, mode: FallocateMode::PUNCH_HOLE, offset: 1, len: 2 },
            Effect::Xattr { ino, name: b"user.x", value: None, mode: XattrMode::Replace },
            Effect::Xattr { ino, name: b"user.x", value: Some(b""), mode: XattrMode::Set },
            Effect::Flags { ino, flags: FileFlags::SYNC },
            Effect::Project { ino, project: 1 },
            Effect::Pinned { ino, pin: true },
            Effect::Saved { ino, released: true },
            Effect::Compression { ino, algorithm: 1, log_cluster_size: 3 },
            Effect::Atomic(Atomic { ino, kept: 1, size: 2, pages }),
            Effect::Freed { ino },
        ]
    }

    fn bytes(effect: &Effect<'_>) -> Vec<u8> {
        let encoded = encode(effect);
        [&encoded.fields, encoded.data].concat()
    }

    #[test]
    fn effects_come_back_and_what_is_cut_short_is_none() {
        let pages = vec![(7, Arc::new(Block([5; BLOCK_SIZE])))];
        for effect in all(&pages) {
            let bytes = bytes(&effect);
            let back = format!("{:?}", decode(&bytes, &mut Pages::new()));
            assert_eq!(back, format!("{:?}", Some(effect)));
            assert!(!name(&effect).is_empty());
            let data = if let Effect::Write { data, .. } = effect { data.len() } else { 0 };
            for len in 0..bytes.len() - data {
                assert!(decode(&bytes[..len], &mut Pages::new()).is_none(), "{effect:?} of {len} bytes");
            }
        }
    }

    #[test]
    fn any_byte_may_be_any_other() {
        for effect in all(&Pages::new()) {
            let good = bytes(&effect);
            for at in 0..good.len() {
                for value in [0, 1, 0x7f, 0xff] {
                    let mut bad = good.clone();
                    bad[at] = value;
                    let _ = decode(&bad, &mut Pages::new());
                }
            }
        }
    }
}
