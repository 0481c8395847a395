//! What the inodes of a volume tell of its superblock, where that is lost: features, quota files, and the
//! seed of their checksums.
//!
//! The checksum of an inode is linear in the seed, so that each inode tells it; the one that most tell is
//! taken, and a UUID that has this seed. A feature counts where one inode makes use of it: without it, a
//! check would take that for damage.

use crate::finding::{Code, Findings, counted};
use crate::image::Image;
use crate::usual::ask_first_inodes;
use foldhash::HashMap;
use medfs_format::delta;
use medfs_format::node::{Advise, FileFlags, FileKind, Inline, RawInode, footer};
use medfs_format::quota;
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::xattr::{HEADER_SIZE, NameIndex, RawXattrEntry};
use medfs_format::{BlockAddr, Ino, Nid, crc};
use std::io;
use zerocopy::{FromBytes, IntoBytes};

/// Inodes that are asked for the seed.
const ASKED: usize = 1000;

/// Inodes without a checksum that a volume has by damage alone. Some programs write checksums on volumes without them.
const MOST_UNSEALED: u32 = 1;

/// What inodes were seen to have.
struct Traits {
    features: Feature,
    quota: [Ino; 3],
    seeds: HashMap<u32, u32>,
    /// One of them has a zone of deltas.
    deltas: bool,
    /// One has no extra attributes.
    bare: bool,
    /// The root has extra attributes, and no room for a checksum among them.
    unsealed_root: bool,
    /// Inodes with zeros for a checksum.
    unsealed: u32,
}

/// Completes a superblock that was made of the areas alone.
pub(crate) fn take(image: &mut Image<'_>, findings: &mut Findings) -> io::Result<()> {
    // The NAT may be lost too: then the nodes themselves are asked where they are.
    image.find_strays(findings)?;
    let traits = Traits::of(image)?;
    let head = image.checkpoint().as_bytes().to_vec();
    let sb = RawSuperblock::in_block_mut(&mut image.sb);
    traits.complete(sb, &head);
    image.features = sb.features();
    let text = format!("superblock: as the inodes are, {}", traits.told(image.raw_sb()));
    findings.add(Code::SuperblockLost, text);
    Ok(())
}

/// Gives the superblock back the features that inodes make use of, where both copies lack them: zeros in the place
/// of the features make a valid superblock, without a checksum, whose inodes are all wrong.
pub(crate) fn give_back(image: &mut Image<'_>, findings: &mut Findings) -> io::Result<()> {
    let features = image.raw_sb().features();
    if features.intersects(Feature::SB_CHECKSUM | Feature::EXTRA_ATTR) || !most_have_extra(image)? {
        return Ok(());
    }
    let traits = Traits::of(image)?;
    let head = image.checkpoint().as_bytes().to_vec();
    let sb = RawSuperblock::in_block_mut(&mut image.sb);
    let (uuid, quota) = (sb.uuid, sb.qf_ino);
    traits.complete(sb, &head);
    if traits.seed().is_none_or(|(seed, _)| crc::chain(!0, &uuid) == seed) {
        sb.uuid = uuid;
    }
    if quota.iter().any(|ino| ino.get() != 0) {
        sb.qf_ino = quota;
    }
    image.features = sb.features();
    image.bad_copies = vec![0, 1];
    let text = format!(
        "both copies of the superblock lack the features of the inodes: as these are, {}",
        traits.told(image.raw_sb())
    );
    findings.add(Code::SuperblockCopy, text);
    Ok(())
}

/// Whether most of the first inodes have extra attributes, as far as they can be read.
fn most_have_extra(image: &mut Image<'_>) -> io::Result<bool> {
    let (mut with, mut without) = (0, 0);
    ask_first_inodes(image, &mut |_, inode| {
        let has = inode.extra().is_some() && inode.possible_slots(true).is_some();
        if has { with += 1 } else { without += 1 }
    })?;
    Ok(with > without)
}

impl Traits {
    /// Those of all inodes that the NAT leads to, with what was found without it, removed files' too.
    fn of(image: &mut Image<'_>) -> io::Result<Traits> {
        let mut traits = Traits {
            features: Feature::empty(),
            quota: [0; 3],
            seeds: HashMap::default(),
            deltas: false,
            bare: false,
            unsealed_root: false,
            unsealed: 0,
        };
        for index in 0..image.g.nat_blocks() {
            for (nid, entry) in image.nodes_in(index)? {
                if entry.ino.get() == nid {
                    traits.see(image, nid, entry.block_addr.get())?;
                }
            }
        }
        for (nid, addr) in image.doubtful() {
            traits.see(image, nid, addr)?;
        }
        Ok(traits)
    }

    /// Notes what the inode in a block has, where that is the one of this number.
    fn see(&mut self, image: &mut Image<'_>, nid: Nid, addr: BlockAddr) -> io::Result<()> {
        if !image.g.in_main(addr) {
            return Ok(());
        }
        let block = image.cache.read(addr)?;
        let f = footer(&block);
        if (f.nid.get(), f.ino.get()) == (nid, nid) {
            let inode: &RawInode = block.view();
            self.unsealed_root |= nid == image.g.root_ino && inode.extra().is_some() && !inode.extra_fits(12);
            self.add(inode);
            self.see_quota(image, nid, block.view())?;
        }
        Ok(())
    }

    /// Notes a quota file: one of the first inodes that `mkfs` makes.
    fn see_quota(&mut self, image: &mut Image<'_>, ino: Ino, inode: &RawInode) -> io::Result<()> {
        let first = image.g.root_ino + 1;
        let regular = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Regular);
        if !(first..first + 3).contains(&ino) || !regular || inode.inline().contains(Inline::DATA) {
            return Ok(());
        }
        let addr = inode.i_addr[inode.slots(false).extra.min(inode.i_addr.len() - 1)].get();
        if image.g.in_main(addr) {
            let bytes = image.cache.get(addr)?.0[..4].try_into().expect("four bytes");
            let kind = quota::MAGICS.iter().position(|magic| *magic == u32::from_le_bytes(bytes));
            if let Some(kind) = kind {
                self.quota[kind] = ino;
            }
        }
        Ok(())
    }

    fn add(&mut self, inode: &RawInode) {
        let Some(kind) = FileKind::from_mode(inode.i_mode.get()) else { return };
        let Some(extra) = inode.extra().filter(|_| inode.possible_slots(true).is_some()) else {
            self.bare |= inode.extra().is_none();
            return;
        };
        let mut has = Feature::EXTRA_ATTR;
        has.set(Feature::FLEXIBLE_INLINE_XATTR, extra.i_inline_xattr_size.get() != 0);
        has.set(Feature::PROJECT_QUOTA, inode.extra_fits(8) && extra.i_projid.get() != 0);
        has.set(Feature::INODE_CRTIME, inode.extra_fits(24) && extra.i_crtime.get() != 0);
        has.set(Feature::COMPRESSION, inode.extra_fits(36) && inode.flags().contains(FileFlags::COMPR));
        has.set(Feature::ENCRYPT, inode.advise().contains(Advise::ENCRYPT));
        has.set(Feature::VERITY, inode.advise().contains(Advise::VERITY));
        let folds = kind == FileKind::Directory && inode.flags().contains(FileFlags::CASEFOLD);
        has.set(Feature::CASEFOLD, folds);
        let stored = extra.i_inode_checksum.get();
        self.unsealed += u32::from(inode.extra_fits(12) && stored == 0);
        if inode.extra_fits(12) && stored != 0 && self.seeds.len() < ASKED {
            has |= Feature::INODE_CHECKSUM;
            if let Some(seed) = preimage(|seed| inode.checksum(seed), stored) {
                *self.seeds.entry(seed).or_default() += 1;
            }
        }
        self.features |= has;
        self.deltas |= has.contains(Feature::FLEXIBLE_INLINE_XATTR) && has_zone(inode);
    }

    /// The seed that most inodes tell.
    fn seed(&self) -> Option<(u32, u32)> {
        self.seeds.iter().map(|(&seed, &count)| (count, seed)).max().map(|(count, seed)| (seed, count))
    }

    fn complete(&self, sb: &mut RawSuperblock, head: &[u8]) {
        let mut features = self.features;
        if self.unsealed_root || self.unsealed > MOST_UNSEALED {
            features -= Feature::INODE_CHECKSUM;
        }
        sb.qf_ino = self.quota.map(Into::into);
        features.set(Feature::QUOTA, self.quota.iter().any(|&ino| ino != 0));
        if self.quota[2] != 0 {
            features |= Feature::PROJECT_QUOTA;
        }
        if features.contains(Feature::CASEFOLD) {
            sb.s_encoding = 1.into(); // UTF-8, the only one there is
        }
        sb.feature = features.bits().into();
        sb.uuid = uuid_of(self.seed().map(|(seed, _)| seed), head);
        if self.deltas {
            sb.become_delta_volume();
            // Seals go with the UUID that the volume had.
            let old_layouts = if self.bare { medfs_format::superblock::DELTA_OLD_LAYOUTS } else { 0 };
            sb.delta.incompat = old_layouts.into();
        }
    }

    fn told(&self, sb: &RawSuperblock) -> String {
        let kind = if self.deltas { "with deltas" } else { "of plain F2FS" };
        let seed = match self.seed() {
            Some((_, count)) => {
                format!("a new UUID has the seed of the checksums of {}", counted(count, "inode"))
            }
            None => "the UUID is a new one".into(),
        };
        let features: Vec<String> = sb.features().iter_names().map(|(name, _)| name.to_lowercase()).collect();
        let features = match &features[..] {
            [] => "without features".into(),
            [one] => format!("with the feature {one}"),
            all => format!("with the features {}", all.join(", ")),
        };
        format!("it is a volume {kind} {features}; {seed}. Features that no inode uses are lost")
    }
}

/// Whether the attributes of an inode, whose slots are divided as they can be, begin with a zone of deltas.
fn has_zone(inode: &RawInode) -> bool {
    let range = inode.slots(true).inline_xattr_range();
    if range.len() <= HEADER_SIZE || inode.inline().contains(Inline::DATA) {
        return false;
    }
    let area = &inode.as_bytes()[range];
    let Ok((entry, rest)) = RawXattrEntry::ref_from_prefix(&area[HEADER_SIZE..]) else { return false };
    let len = usize::from(entry.e_value_size.get());
    let ino = inode.footer.ino.get();
    entry.e_name_index == NameIndex::Delta as u8
        && entry.e_name_len == 0
        && rest.get(..len).is_some_and(|zone| matches!(delta::parse_prefix(zone, ino), (_, None)))
}

/// A UUID that the checkpoint decides, with this seed of checksums.
fn uuid_of(seed: Option<u32>, head: &[u8]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&crc::f2fs(head).to_le_bytes());
    uuid[4..12].copy_from_slice(&head[..8]);
    // Version 8: made in a way of one's own.
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    let start = crc::chain(!0, &uuid[..12]);
    let end = seed.and_then(|seed| preimage(|end| crc::chain(start, &end.to_le_bytes()), seed));
    uuid[12..].copy_from_slice(&end.unwrap_or(start).to_le_bytes());
    uuid
}

/// What a function that is linear but for a constant makes `wanted` of.
fn preimage(function: impl Fn(u32) -> u32, wanted: u32) -> Option<u32> {
    let constant = function(0);
    // For each highest bit a value that the function changes by, and what makes it do so.
    let mut basis = [(0u32, 0u32); 32];
    for bit in 0..32 {
        let (mut value, mut of) = (function(1 << bit) ^ constant, 1 << bit);
        while value != 0 {
            let known = &mut basis[value.ilog2() as usize];
            if known.0 == 0 {
                *known = (value, of);
                break;
            }
            (value, of) = (value ^ known.0, of ^ known.1);
        }
    }
    let (mut left, mut found) = (wanted ^ constant, 0);
    while left != 0 {
        let (value, of) = basis[left.ilog2() as usize];
        if value == 0 {
            return None;
        }
        (left, found) = (left ^ value, found ^ of);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_has_the_seed_that_it_was_made_for() {
        for seed in [0, 1, !0, 0xdead_beef, 0x1234_5678] {
            assert_eq!(crc::chain(!0, &uuid_of(Some(seed), &[7; 100])), seed);
        }
        assert_eq!(preimage(|x| x & 0xff ^ 3, 0x100), None);
    }
}
