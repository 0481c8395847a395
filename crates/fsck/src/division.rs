//! How an inode without a checksum divides its slots: extra attributes, addresses or content, inline attributes.
//!
//! One flipped bit in the fields that decide it moves all behind them, and nothing else of the inode tells. The
//! summaries of its blocks do, and the magic of the attributes, the entry `.` of a directory, what lies behind the end
//! of a file, and what the other inodes of the volume have.
//!
//! Invariant: a division that nothing contradicts stays. Another one is taken only where one bit makes it of the one
//! that was read, and where it alone agrees with all of this.

use crate::finding::Code;
use crate::holes;
use crate::judgement::Judgement;
use crate::slots::{has_no_addresses, has_no_head};
use crate::space::{Kind, is_of_slot, recorded};
use crate::usual::Usual;
use medfs_format::dentry::{Area, AreaLayout};
use medfs_format::node::{
    ADDR_OFFSET, DEF_ADDRS_PER_INODE, DEFAULT_INLINE_XATTR_ADDRS, FileKind, Inline, Layouts, RawExtraAttr,
    RawInode, Slots,
};
use medfs_format::superblock::Feature;
use medfs_format::xattr::{HEADER_SIZE, XATTR_MAGIC};
use medfs_format::{Ino, crc, is_block};
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use zerocopy::IntoBytes;

/// Where in the extra attributes the sizes are that divide the slots, and what says how the file is compressed.
const SIZES: Range<usize> = 0..4;
const COMPRESSION: Range<usize> = offset_of!(RawExtraAttr, i_compress_algorithm)..size_of::<RawExtraAttr>();

/// Sizes of extra attributes that programs write, in bytes: an inode may have another one of these than all others.
const WRITTEN: [usize; 6] = [0, 4, 8, 12, 24, 36];

/// Whether something speaks for an inode so divided.
type Speaks<'a> = &'a dyn Fn(&RawInode, Slots) -> bool;

/// What speaks of the division of one inode.
struct Scene {
    ino: Ino,
    flexible: bool,
    /// Whether inodes of the volume may have extra attributes, and whether all must.
    may_have_extra: bool,
    needs_extra: bool,
    usual: Usual,
    /// Slots, by their numbers from the first of all, that name blocks in use whose summaries name the inode, each with
    /// the slot in the summary.
    own: Vec<(usize, usize)>,
    /// Slots that hold neither an address nor a mark.
    strange: Vec<usize>,
    /// The size of the attributes that holes show, in slots.
    hole: Option<usize>,
}

/// Sets the division of an inode's slots right, with a finding, where what is known of it contradicts it. Whether the
/// inode has to be doubted: it is contradicted, and stays.
pub(crate) fn settle(j: &mut Judgement<'_>, ino: Ino, inode: &mut RawInode, place: &str) -> io::Result<bool> {
    let (kind, inline) = (FileKind::from_mode(inode.i_mode.get()), inode.inline());
    let is_possible = match kind {
        None => false,
        Some(FileKind::Directory) => !inline.contains(Inline::DATA),
        Some(FileKind::Regular | FileKind::Symlink) => !inline.contains(Inline::DENTRY),
        Some(_) => !inline.intersects(Inline::DATA | Inline::DENTRY),
    };
    if j.rules.seed.is_some() || !is_possible || has_no_head(inode) {
        return Ok(false);
    }
    if is_sealed(j, ino, inode, place) {
        return Ok(false);
    }
    let mut scene = Scene::of(j, ino)?;
    let is_sound = scene.ends_agree(j, inode)? && !scene.contradicts(inode, false);
    if !is_sound {
        scene.ask(j, inode)?;
    }
    if let Some(slots) = scene.slots(inode) {
        scene.hole = holes::shown_size(j, inode, slots, scene.usual.xattr)?;
    }
    let contradicted = (!is_sound && scene.contradicts(inode, false)) || scene.hole.is_some();
    let may_be_moved = !contradicted && scene.may_be_moved(inode);
    if !contradicted && !may_be_moved {
        return Ok(false);
    }
    let mut fitting = scene.candidates(inode);
    if may_be_moved {
        fitting.retain(|other| scene.has_usual_extra(other));
    }
    if let Some(right) = scene.choose(&fitting) {
        let text = format!("{place}: inode {ino}: {}", told(inode, &right));
        j.findings.add(Code::InodeField, text);
        *inode = *right;
        return Ok(false);
    }
    let costs = contradicted && scene.costs(inode);
    if costs {
        let text = format!(
            "{place}: inode {ino}: its blocks or the other inodes of the volume contradict the division of its slots ({})",
            divided(inode)
        );
        j.findings.add(Code::InodeField, text);
        scene.take_usual_extra(inode);
    }
    Ok(costs)
}

/// Whether an inode has a right checksum all the same, as medfs gives it one wherever there is room; or has one again
/// with a bit of its division, or of its compression, turned back. Other drivers leave zeros or an older checksum.
fn is_sealed(j: &mut Judgement<'_>, ino: Ino, inode: &mut RawInode, place: &str) -> bool {
    let stored = inode.i_addr[2].get();
    if stored == 0 || !j.rules.features.contains(Feature::EXTRA_ATTR) {
        return false;
    }
    let seed = crc::chain(!0, &j.image.raw_sb().uuid);
    if inode.extra_fits(12) && inode.checksum(seed) == stored {
        return true;
    }
    let Some(bit) = inode.flipped_bit(seed) else { return false };
    let (byte, mask) = (usize::from(bit.byte), 1_u8 << bit.bit);
    let divides = match byte.checked_sub(ADDR_OFFSET) {
        Some(at) => SIZES.contains(&at) || COMPRESSION.contains(&at),
        None => {
            byte == offset_of!(RawInode, i_inline) && (Inline::XATTR | Inline::EXTRA_ATTR).bits() & mask != 0
        }
    };
    if divides {
        let was = inode.clone();
        inode.as_mut_bytes()[byte] ^= mask;
        let what = if COMPRESSION.contains(&byte.wrapping_sub(ADDR_OFFSET)) {
            format!("the checksum that it has is right with {bit} (how it is compressed) flipped")
        } else {
            told(&was, inode)
        };
        j.findings.add(Code::InodeField, format!("{place}: inode {ino}: {what}"));
    }
    divides
}

impl Scene {
    fn of(j: &mut Judgement<'_>, ino: Ino) -> io::Result<Scene> {
        let usual = match j.usual {
            Some(usual) => usual,
            None => Usual::of(&mut j.image, &j.rules)?,
        };
        j.usual = Some(usual);
        Ok(Scene {
            ino,
            flexible: j.rules.flexible(),
            may_have_extra: j.rules.features.contains(Feature::EXTRA_ATTR),
            needs_extra: j.rules.layouts == Layouts::Flexible,
            usual,
            own: Vec::new(),
            strange: Vec::new(),
            hole: None,
        })
    }

    /// The division of the slots, where it can be one of this volume.
    fn slots(&self, inode: &RawInode) -> Option<Slots> {
        let has_extra = inode.extra().is_some();
        if (has_extra && !self.may_have_extra) || (!has_extra && self.needs_extra) {
            return None;
        }
        let least = if inode.inline().contains(Inline::XATTR) { HEADER_SIZE / 4 } else { 0 };
        inode.possible_slots(self.flexible).filter(|slots| slots.inline_xattr >= least)
    }

    fn has_usual_extra(&self, inode: &RawInode) -> bool {
        let extra = inode.extra().map_or(0, |extra| extra.i_extra_isize.get());
        self.usual.extra == Some(extra)
    }

    /// Whether the first and the last block that an inode names are those of their slots.
    fn ends_agree(&self, j: &mut Judgement<'_>, inode: &RawInode) -> io::Result<bool> {
        let Some(slots) = self.slots(inode) else { return Ok(false) };
        if has_no_addresses(inode) {
            return Ok(true);
        }
        let end = slots.extra + slots.area();
        let area = inode.i_addr[end..].iter().map(|word| word.get());
        if area.clone().next() != Some(XATTR_MAGIC) && area.clone().any(|word| j.image.g.in_main(word)) {
            return Ok(false);
        }
        let named: Vec<(usize, u32)> = inode.i_addr[slots.extra..end]
            .iter()
            .map(|addr| addr.get())
            .enumerate()
            .filter(|(_, addr)| j.image.g.in_main(*addr))
            .collect();
        for &(slot, addr) in named.first().into_iter().chain(named.last()) {
            if !is_of_slot(&mut j.image, addr, self.ino, slot)? {
                return Ok(false);
            }
        }
        Ok(!named.is_empty() || self.has_usual_extra(inode) || !inode.has_nodes())
    }

    /// Asks the summaries of all that the slots may name.
    fn ask(&mut self, j: &mut Judgement<'_>, inode: &RawInode) -> io::Result<()> {
        if has_no_addresses(inode) {
            return Ok(());
        }
        for (slot, addr) in inode.i_addr.iter().map(|addr| addr.get()).enumerate() {
            if !is_block(addr) {
                continue;
            }
            if !j.image.g.in_main(addr) {
                self.strange.push(slot);
                continue;
            }
            let Some(summary) = recorded(&mut j.image, addr, Kind::Data)? else { continue };
            if summary.nid.get() == self.ino && j.image.is_valid(addr)? {
                self.own.push((slot, summary.ofs_in_node.get().into()));
            }
        }
        Ok(())
    }

    /// Whether something speaks against the division of an inode. `is_other`: it is not the one that was read.
    fn contradicts(&self, inode: &RawInode, is_other: bool) -> bool {
        let Some(slots) = self.slots(inode) else { return true };
        if self.hole.is_some_and(|size| size != slots.inline_xattr) {
            return true;
        }
        let end = DEF_ADDRS_PER_INODE - slots.inline_xattr;
        let area = &inode.i_addr[end..];
        let begins = area.first().is_some_and(|word| word.get() == XATTR_MAGIC);
        let is_flagged = inode.inline().contains(Inline::XATTR);
        let is_used = area.iter().any(|word| word.get() != 0);
        let goes_on = inode.content_meets_attributes(slots);
        let is_junk =
            is_used && !begins && !goes_on && (is_flagged || (is_other && !has_no_addresses(inode)));
        if is_junk || (begins && !is_flagged) || self.has_lost_flag(inode) {
            return true;
        }
        let is_strict = is_other || !self.has_usual_extra(inode);
        let inline = inode.inline();
        if inline.contains(Inline::DENTRY) {
            return !inline.contains(Inline::DOTS) && !self.begins_with_dot(inode, slots);
        }
        if inline.contains(Inline::DATA) {
            return !is_content(inode, slots, is_strict);
        }
        if has_no_addresses(inode) {
            let behind = &inode.i_addr[slots.extra + 2..end];
            return is_strict && !(fields_fit(inode) && behind.iter().all(|word| word.get() == 0));
        }
        let is_magic = |word: &zerocopy::little_endian::U32| word.get() == XATTR_MAGIC;
        self.denies_addresses(slots, end, is_other, is_strict)
            || inode.i_addr[slots.extra..end].iter().any(is_magic)
    }

    /// Whether an inode says that it has no extra attributes, and begins with the size of all others'.
    fn has_lost_flag(&self, inode: &RawInode) -> bool {
        let first = inode.i_addr[0].get() & 0xffff;
        inode.extra().is_none()
            && first != 0
            && self.usual.extra.is_some_and(|usual| first == u32::from(usual))
    }

    /// Whether addresses speak against the slots that they would have.
    fn denies_addresses(&self, slots: Slots, end: usize, is_other: bool, is_strict: bool) -> bool {
        let moved = self.own.iter().filter(|(slot, own)| *slot != slots.extra + own).count();
        let inside = self.own.iter().any(|(slot, own)| *slot >= end && *slot == slots.extra + own);
        let is_moved = match is_other {
            true => moved * 8 > self.own.len(),
            // A single block may as well have a wrong summary: the size has to be one that nobody writes, too.
            false => {
                let is_odd = self.usual.extra.is_some() && !WRITTEN.contains(&(slots.extra * 4));
                is_strict && moved * 2 > self.own.len() && (moved > 1 || is_odd)
            }
        };
        let is_strange = is_other && self.strange.iter().any(|slot| (slots.extra..end).contains(slot));
        is_moved || inside || is_strange
    }

    /// Whether inline entries begin with `.`, which names the directory.
    fn begins_with_dot(&self, inode: &RawInode, slots: Slots) -> bool {
        let bytes = &inode.as_bytes()[slots.inline_content_range()];
        Area::new(AreaLayout::inline(bytes.len()), bytes).begins_with_dot(self.ino)
    }

    /// Whether a division that nothing else contradicts has extra attributes of a size that nobody writes, and other
    /// content than all others' size would give it.
    fn may_be_moved(&self, inode: &RawInode) -> bool {
        let (Some(slots), Some(usual)) = (self.slots(inode), self.usual.extra) else { return false };
        if WRITTEN.contains(&(slots.extra * 4)) {
            return false;
        }
        let size = slots.extra as u16 * 4;
        let is_inline = inode.inline().contains(Inline::DATA);
        let has_nodes = !has_no_addresses(inode) && inode.has_nodes() && self.own.is_empty();
        let content = &inode.i_addr[slots.extra + 1..];
        let holds = is_inline && content.iter().any(|word| word.get() != 0);
        (holds && size < usual || has_nodes && !self.is_told(inode, slots)) && size != usual
    }

    /// Whether the slots of an inode hold an address at all: then the summaries decide.
    fn is_told(&self, inode: &RawInode, slots: Slots) -> bool {
        inode.i_addr[slots.extra..slots.extra + slots.area()].iter().any(|addr| is_block(addr.get()))
    }

    /// The inodes that one flipped bit makes of this one, and that nothing contradicts.
    fn candidates(&self, inode: &RawInode) -> Vec<RawInode> {
        let mut all = Vec::new();
        for flag in [Inline::XATTR, Inline::EXTRA_ATTR] {
            let mut other = inode.clone();
            other.i_inline ^= flag.bits();
            all.push(other);
        }
        let bits = match self.flexible {
            _ if inode.extra().is_none() => 0,
            true => 32,
            false => 16,
        };
        for bit in 0..bits {
            let mut other = inode.clone();
            other.i_addr[0] = (inode.i_addr[0].get() ^ 1 << bit).into();
            all.push(other);
        }
        let was = self.slots(inode);
        all.retain(|other| {
            let (Some(was), Some(is)) = (was, self.slots(other)) else { return self.slots(other).is_some() };
            // What all others have too was not flipped.
            let leaves_extra = is.extra != was.extra && self.has_usual_extra(inode);
            let leaves_xattr = self.flexible
                && is.inline_xattr != was.inline_xattr
                && self.usual.xattr == Some(was.inline_xattr);
            // One block may as well have a wrong summary.
            let is_alone = self.own.len() == 1 && self.usual.extra.is_some() && !self.has_usual_extra(other);
            let leaves_alone = is_alone && is.extra != was.extra;
            !(leaves_extra || leaves_xattr || leaves_alone) && self.may_expose(other, was, is)
        });
        all.retain(|other| !self.contradicts(other, true));
        all
    }

    /// Whether the slots that a smaller area of attributes leaves to addresses hold some of the inode's, and no others,
    /// or the attributes begin behind them.
    fn may_expose(&self, other: &RawInode, was: Slots, is: Slots) -> bool {
        if has_no_addresses(other) || is.inline_xattr >= was.inline_xattr {
            return true;
        }
        let end = DEF_ADDRS_PER_INODE - is.inline_xattr;
        let exposed = DEF_ADDRS_PER_INODE - was.inline_xattr..end;
        let begins = other.i_addr.get(end).is_some_and(|word| word.get() == XATTR_MAGIC);
        let is_own = |at: &usize| self.own.iter().any(|(slot, own)| slot == at && *slot == is.extra + own);
        let named = exposed.filter(|at| is_block(other.i_addr[*at].get()));
        let (own, others): (Vec<usize>, Vec<usize>) = named.partition(is_own);
        others.is_empty() && (begins || !own.is_empty())
    }

    /// The one of several divisions that more speaks for.
    fn choose(&self, fitting: &[RawInode]) -> Option<Box<RawInode>> {
        let last = self.own.iter().map(|(slot, _)| *slot).max();
        let end = |slots: Slots| DEF_ADDRS_PER_INODE - slots.inline_xattr;
        let is_usual = |inode: &RawInode, slots: Slots| {
            let has_xattr = self.usual.xattr.is_none_or(|usual| usual == slots.inline_xattr);
            has_xattr && (self.usual.extra.is_none() || self.has_usual_extra(inode))
        };
        let begins = |inode: &RawInode, slots: Slots| {
            inode.i_addr.get(end(slots)).is_some_and(|w| w.get() == XATTR_MAGIC)
        };
        let is_full =
            |inode: &RawInode, slots: Slots| inode.has_nodes() && last.is_some_and(|l| l + 1 == end(slots));
        let speaks: [Speaks<'_>; 4] = [&|_, _| true, &is_usual, &begins, &is_full];
        speaks.into_iter().find_map(|speaks| {
            let mut with =
                fitting.iter().filter(|&inode| self.slots(inode).is_some_and(|slots| speaks(inode, slots)));
            let first = with.next()?;
            with.next().is_none().then(|| Box::new(first.clone()))
        })
    }

    /// Takes the size that others have for one that cannot be.
    fn take_usual_extra(&self, inode: &mut RawInode) {
        if let (Some(extra), Some(usual)) = (inode.extra_mut(), self.usual.extra)
            && !extra.has_possible_size()
        {
            extra.i_extra_isize = usual.into();
        }
    }

    /// Whether a division that is contradicted, and stays, moves content or takes blocks from it.
    fn costs(&self, inode: &RawInode) -> bool {
        let Some(slots) = self.slots(inode) else { return inode.extra().is_some() && self.may_have_extra };
        let end = DEF_ADDRS_PER_INODE - slots.inline_xattr;
        !has_no_addresses(inode)
            && self.denies_addresses(slots, end, false, self.own.len() > 1 && !self.has_usual_extra(inode))
    }
}

/// Whether what is in an inode is as the content of a file so divided; `is_strict`: in all that can be told.
fn is_content(inode: &RawInode, slots: Slots, is_strict: bool) -> bool {
    let bytes = &inode.as_bytes()[slots.inline_content_range()];
    let Some(behind) = usize::try_from(inode.i_size.get()).ok().and_then(|size| bytes.get(size..)) else {
        return false;
    };
    let magic = XATTR_MAGIC.to_le_bytes();
    let at = DEFAULT_INLINE_XATTR_ADDRS * 4;
    // The attributes of a file that has lost the mark of them.
    let has_list =
        slots.inline_xattr == 0 && behind.len() >= at && behind[behind.len() - at..].starts_with(&magic);
    let is_zero = || behind.iter().all(|byte| *byte == 0);
    !has_list && (!is_strict || (inode.i_addr[slots.extra].get() == 0 && fields_fit(inode) && is_zero()))
}

/// Whether the extra attributes that an inode has can be such.
fn fields_fit(inode: &RawInode) -> bool {
    let Some(extra) = inode.extra() else { return true };
    let has = |end: usize| inode.extra_fits(end);
    (!has(20) || extra.i_crtime.get() < 1 << 34)
        && (!has(24) || extra.i_crtime_nsec.get() < 1_000_000_000)
        && (!has(32) || extra.i_compr_blocks.get() <= inode.i_blocks.get())
        && (!has(36) || (extra.i_compress_algorithm < 8 && extra.i_log_cluster_size < 16))
}

/// How an inode says that its slots are divided.
fn divided(inode: &RawInode) -> String {
    let sizes = inode.extra().map_or(String::new(), |extra| {
        format!(", i_extra_isize {}, i_inline_xattr_size {}", extra.i_extra_isize, extra.i_inline_xattr_size)
    });
    format!("i_inline {:#04x}{sizes}", inode.i_inline)
}

/// What a finding says of a bit that is turned back.
fn told(was: &RawInode, right: &RawInode) -> String {
    let says = "but its blocks, its content or the other inodes of the volume say";
    let word = |inode: &RawInode| inode.i_addr[0].get();
    let (was, right, name) = match word(was) ^ word(right) {
        0 => return format!("i_inline {:#04x}, {says} {:#04x}", was.i_inline, right.i_inline),
        bits if bits >> 16 == 0 => (word(was) & 0xffff, word(right) & 0xffff, "i_extra_isize"),
        _ => (word(was) >> 16, word(right) >> 16, "i_inline_xattr_size"),
    };
    format!("{name} {was}, {says} {right}")
}
