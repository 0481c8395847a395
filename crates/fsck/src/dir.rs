//! Directories: every entry is judged by its length, name, hash, place, type and inode.

use crate::file::{DirWalk, FileWalk};
use crate::finding::Code;
use crate::image::CANNOT_BE_READ;
use crate::judgement::Judgement;
use crate::names::{folded, is_opaque, level_of, right_place};
use medfs_format::dentry::{Area, AreaLayout, MAX_DEPTH, bucket_blocks, bucket_start, buckets, is_blank};
use medfs_format::hash::dentry_hash;
use medfs_format::node::{FileFlags, FileKind, Inline, RawInode};
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, BlockAddr, Ino};
use std::io;

/// Pages of a directory that are asked about its hash level: ten levels of the usual kind.
const PAGES_ASKED: u64 = 4096;

/// What the hashes of a directory's entries are.
#[derive(Default)]
struct Hashes {
    /// Those of their names, by pages.
    intact: Vec<(u64, Vec<u32>)>,
    /// How many are those of their names without case.
    folded: usize,
    /// Some are neither.
    other: bool,
}

/// Where in a page an entry's bucket must be, by a directory's hash level.
struct Place {
    index: u64,
    buckets: u64,
}

impl Place {
    fn of(page: u64, dir_level: u8) -> Place {
        let level = level_of(page, dir_level);
        let index = (page - bucket_start(level, dir_level, 0)) / bucket_blocks(level);
        Place { index, buckets: buckets(level, dir_level) }
    }

    fn fits(&self, hash: u32) -> bool {
        u64::from(hash) % self.buckets == self.index
    }
}

/// The name that one flipped bit made another one, by the hash that its entry carries.
fn unflipped(name: &[u8], hash: u32) -> Option<Vec<u8>> {
    let mut tried = name.to_vec();
    for at in 0..name.len() {
        for bit in 0..8 {
            tried[at] ^= 1 << bit;
            if tried[at] != 0 && tried[at] != b'/' && dentry_hash(&tried) == hash {
                return Some(tried);
            }
            tried[at] ^= 1 << bit;
        }
    }
    None
}

/// Judges the hash level of a directory by the first block with names to which the walk comes: its address may have
/// been put back since the level was judged.
pub(crate) fn judge_level_by_block(
    j: &mut Judgement<'_>,
    dir: &mut DirWalk,
    ino: Ino,
    page: u64,
    bytes: &[u8],
) {
    if dir.opaque || !dir.names.is_empty() {
        return;
    }
    let area = Area::new(AreaLayout::BLOCK, bytes);
    let entries = area.entries(0, ino.into()).map_while(Result::ok);
    let named = entries.filter(|e| ![&b"."[..], b".."].contains(&e.name));
    let hashes: Vec<u32> = named.filter(|e| dentry_hash(e.name) == e.hash).map(|entry| entry.hash).collect();
    let fits = |level: &u8| {
        let place = Place::of(page, *level);
        hashes.iter().all(|hash| place.fits(*hash))
    };
    // One block with names of another directory does not outweigh the names of all others.
    let speaks = hashes.len() > dir.level_fits;
    if !speaks || hashes.iter().any(|hash| Place::of(page, dir.dir_level).fits(*hash)) {
        return;
    }
    let Some(level) = (0..=MAX_DEPTH as u8).find(fits) else { return };
    let text =
        format!("directory {ino}: i_dir_level is {}, which no name fits; all fit {level}", dir.dir_level);
    j.findings.add(Code::DirLevel, text);
    dir.dir_level = level;
}

impl Judgement<'_> {
    /// Before entries are judged by their places: whether another hash level is the one that they were placed
    /// by, or the names are hashed as in a directory that ignores case. Returns how many names fit the level in force.
    pub(crate) fn judge_level(&mut self, ino: Ino, inode: &mut RawInode) -> io::Result<usize> {
        if inode.inline().contains(Inline::DENTRY) || is_opaque(inode) {
            return Ok(0);
        }
        let hashes = self.placed_hashes(ino, inode)?;
        let fits = |dir_level: u8| {
            let fits = hashes.intact.iter().map(|(page, hashes)| {
                let place = Place::of(*page, dir_level);
                hashes.iter().filter(|&&hash| place.fits(hash)).count()
            });
            fits.sum::<usize>()
        };
        let all: usize = hashes.intact.iter().map(|(_, hashes)| hashes.len()).sum();
        let mut now = fits(inode.i_dir_level);
        if now < all {
            let levels = (0..=MAX_DEPTH as u8).map(|level| (fits(level), std::cmp::Reverse(level)));
            let (most, std::cmp::Reverse(level)) = levels.max().expect("there are levels");
            if most > now && (all - most) * 10 <= all {
                self.findings.add(
                    Code::DirLevel,
                    format!(
                        "directory {ino}: i_dir_level is {}, which {now} of {all} names fit; {most} fit {level}",
                        inode.i_dir_level
                    ),
                );
                (inode.i_dir_level, now) = (level, most);
            }
        }
        if hashes.folded > 0 && !hashes.other && self.rules.features.contains(Feature::CASEFOLD) {
            self.findings.add(
                Code::DirLevel,
                format!("directory {ino}: its names are hashed without case, but it is not marked so"),
            );
            inode.i_flags = (inode.flags() | FileFlags::CASEFOLD).bits().into();
        }
        Ok(now)
    }

    /// The hashes of a directory's entries, as far as [`PAGES_ASKED`] pages.
    fn placed_hashes(&mut self, ino: Ino, inode: &RawInode) -> io::Result<Hashes> {
        let mut found = Hashes::default();
        let slots = inode.slots(self.rules.flexible());
        let pages = inode.i_size.get().div_ceil(BLOCK_SIZE as u64).max(slots.addrs() as u64);
        for page in 0..pages.min(PAGES_ASKED) {
            let addr = self.image.address(inode, page)?;
            if !self.image.g.in_main(addr) {
                continue;
            }
            let area = Area::new(AreaLayout::BLOCK, &self.image.cache.get(addr)?.0);
            let mut intact = Vec::new();
            for entry in area.entries(0, ino.into()).map_while(Result::ok) {
                match entry.name {
                    b"." | b".." => {}
                    name if dentry_hash(name) == entry.hash => intact.push(entry.hash),
                    name if folded(name) == entry.hash => found.folded += 1,
                    // The hash of other names is not known where case is ignored.
                    name if !name.is_ascii() => {}
                    _ => found.other = true,
                }
            }
            found.intact.push((page, intact));
        }
        Ok(found)
    }

    /// The name that an entry had before one of its bits was flipped.
    pub(crate) fn name_of_hash(
        &mut self,
        name: &[u8],
        hash: u32,
        page: Option<u64>,
        dir_level: u8,
        place: &str,
    ) -> Option<Vec<u8>> {
        let wrong_by = dentry_hash(name) ^ hash;
        // Of a name and its hash, the one with one bit flipped is wrong.
        if wrong_by == 0
            || wrong_by.count_ones() == 1
            || page.is_some_and(|p| !right_place(hash, p, dir_level))
        {
            return None;
        }
        let right = unflipped(name, hash)?;
        self.findings.add(
            Code::DentryHash,
            format!("{place}: one bit flipped, its hash is that of {:?}", String::from_utf8_lossy(&right)),
        );
        Some(right)
    }

    /// `.` (0) or `..` (1): where it points is corrected, a second one goes.
    pub(crate) fn dot(
        &mut self,
        dir: &mut DirWalk,
        which: usize,
        right: Ino,
        target: Ino,
        kind: Option<FileKind>,
        place: &str,
    ) -> Option<(Ino, FileKind)> {
        if std::mem::replace(&mut dir.dots[which], true) {
            self.findings.add(Code::Dots, format!("{place}: a second entry of this name"));
            return None;
        }
        if target != right {
            dir.is_others |= which == 0 && (target ^ right).count_ones() > 1;
            self.findings.add(Code::Dots, format!("{place}: names inode {target}, not directory {right}"));
        } else if kind != Some(FileKind::Directory) {
            self.findings.add(Code::Dots, format!("{place}: its type is not a directory's"));
        }
        Some((right, FileKind::Directory))
    }

    /// Whether a block can be read and is not zeros, where it is a directory's. One that cannot, or is, is
    /// freed by a repair, and a check counts it as the block in use that it is.
    pub(crate) fn dentry_block(&mut self, f: &FileWalk, page: u64, addr: BlockAddr) -> io::Result<bool> {
        if f.dir.is_none() {
            return Ok(true);
        }
        let blank = is_blank(self.image.cache.get(addr)?);
        let unreadable = self.image.cache.medium.tell_unreadable(addr);
        if !blank && !unreadable {
            return Ok(true);
        }
        let (code, what) =
            if unreadable { (Code::Unreadable, CANNOT_BE_READ) } else { (Code::DentryBlank, "is zeros") };
        let consequence = "names that the files do not have in their inodes are lost";
        let dir = f.ino;
        if page == 0 {
            // It gets its first two entries anew, where it is.
            self.cuts.add(dir, 0, 1);
            let text = format!("directory {dir}: block {addr} of its first entries {what}; {consequence}");
            self.findings.add(code, text);
            return Ok(true);
        }
        self.findings.add(code, format!("directory {dir}, page {page}: block {addr} {what}; {consequence}"));
        Ok(false)
    }

    /// Puts `.` and `..` back where the first area has room for them.
    pub(crate) fn restore_dots(&mut self, dir: &mut DirWalk, ino: Ino, area: &mut Area<&mut [u8]>) -> bool {
        let mut changed = false;
        for (which, name, target) in [(0, &b"."[..], ino), (1, &b".."[..], dir.parent)] {
            if !dir.dots[which] && area.insert(name, target, FileKind::Directory) {
                self.findings.add(
                    Code::DotsMissing,
                    format!("directory {ino}: \"{}\" is missing", String::from_utf8_lossy(name)),
                );
                dir.dots[which] = true;
                changed = true;
            }
        }
        changed
    }

    /// What a directory's inode must say after its entries are known.
    pub(crate) fn settle_dir(
        &mut self,
        dir: &DirWalk,
        last_page: Option<u64>,
        inode: &mut RawInode,
        ino: Ino,
    ) {
        inode.i_dir_level = dir.dir_level;
        let links = if dir.is_orphan() { 0 } else { dir.subdirs + 2 };
        if inode.i_links.get() != links {
            self.findings.add(
                Code::InodeLinks,
                format!("directory {ino}: i_links is {}, but should be {links}", inode.i_links),
            );
            inode.i_links = links.into();
        }
        // The root's own parent is not recorded.
        if inode.i_pino.get() != dir.parent && ino != self.image.g.root_ino && !dir.is_orphan() {
            self.findings.add(
                Code::DirParent,
                format!("directory {ino}: i_pino is {}, but it is in {}", inode.i_pino, dir.parent),
            );
            inode.i_pino = dir.parent.into();
        }
        if dir.dots != [true; 2] && !inode.inline().contains(Inline::DOTS) {
            self.findings.add(Code::DotsMissing, format!("directory {ino}: \".\" or \"..\" is missing"));
            inode.i_inline |= Inline::DOTS.bits();
        }
        if inode.i_current_depth.get() < dir.depth {
            self.findings.add(
                Code::DirDepth,
                format!(
                    "directory {ino}: i_current_depth is {}, but its entries need {}",
                    inode.i_current_depth, dir.depth
                ),
            );
            inode.i_current_depth = dir.depth.into();
        }
        let size = last_page.map_or(0, |page| (page + 1) * BLOCK_SIZE as u64);
        // The kernel sets the size of a directory that it removes to zero, and frees the blocks when nobody
        // has it open.
        if inode.i_size.get() < size && !dir.is_orphan() {
            self.findings.add(
                Code::DirSize,
                format!("directory {ino}: i_size is {}, but its last block ends at {size}", inode.i_size),
            );
            inode.i_size = size.into();
        }
    }
}
