//! How the inodes of a volume usually divide their slots: what a single one that differs by a bit is compared with.

use crate::image::Image;
use crate::inode::Rules;
use medfs_format::Ino;
use medfs_format::node::{FileKind, RawInode};
use medfs_format::superblock::Feature;
use medfs_format::weigh::{Wanted, ask_inodes};
use std::io;

/// What the first inodes of a volume have, where all of them but one at most have the same.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usual {
    /// Bytes of their extra attributes; 0 where they have none.
    pub(crate) extra: Option<u16>,
    /// Slots of the inline attributes of regular files.
    pub(crate) xattr: Option<usize>,
}

impl Usual {
    /// Asks the first inodes.
    pub(crate) fn of(image: &mut Image<'_>, rules: &Rules) -> io::Result<Usual> {
        let (flexible, root) = (rules.flexible(), image.g.root_ino);
        // That of the root is of who made the volume, the others' of who filled it.
        let (mut extras, mut others, mut xattrs) = (Vec::new(), Vec::new(), Vec::new());
        ask_first_inodes(image, &mut |ino, inode| {
            let extra = inode.extra().map_or(0, |extra| extra.i_extra_isize.get());
            extras.push(extra);
            if ino != root {
                others.push(extra);
            }
            let is_file = ino != root && FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Regular);
            if let Some(slots) = inode.possible_slots(flexible).filter(|_| is_file) {
                xattrs.push(slots.inline_xattr);
            }
        })?;
        let has_extra = rules.features.contains(Feature::EXTRA_ATTR);
        let extra = if has_extra { most(&extras).or_else(|| most(&others)) } else { Some(0) };
        // With deltas the area depends on the file's size.
        let xattr = if image.raw_sb().is_delta_volume() { None } else { most(&xattrs) };
        Ok(Usual { extra, xattr })
    }
}

/// Asks the first inodes of a volume that can be read, each with its number.
pub(crate) fn ask_first_inodes(
    image: &mut Image<'_>,
    each: &mut dyn FnMut(Ino, &RawInode),
) -> io::Result<()> {
    let g = image.g.clone();
    let mut read = |wanted| {
        Ok::<_, io::Error>(vec![match wanted {
            Wanted::Nat(index) => image.nat_block(index)?.0,
            Wanted::Node(addr) => image.cache.read(addr)?,
        }])
    };
    ask_inodes(&g, &mut read, each)
}

/// The value that all have but one at most; of two, both.
fn most<T: Copy + Eq>(seen: &[T]) -> Option<T> {
    let count = |value: T| seen.iter().filter(|other| **other == value).count();
    let value = *seen.iter().max_by_key(|value| count(**value))?;
    let with = count(value);
    (with >= 2 && seen.len() - with <= 1).then_some(value)
}
