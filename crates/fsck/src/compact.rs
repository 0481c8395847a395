//! Compact pages as the walk comes to them: whether each is one of its file, and what becomes of those that are not.
//!
//! Which pages a broken compact page had records of cannot be told; a repair frees it, and says which file
//! lost updates. The records of sound ones are judged by [`crate::zone`], once the walk of the file is
//! through.
//!
//! A sound compact page in the place of another one, as a lost write leaves it, is told by the zone's tie.
//!
//! Invariant: a check counts a broken compact page as the block in use that it is, a repair does not, so that
//! each fault is one finding.

use crate::deltas::PLACES;
use crate::file::{FileWalk, Region, Zone};
use crate::finding::{Code, Reverted};
use crate::image::CANNOT_BE_READ;
use crate::judgement::Judgement;
use crate::names::inode_name;
use medfs_device::Cause;
use medfs_format::delta::{self, Record, Tie};
use medfs_format::flip::Bit;
use medfs_format::node::RawInode;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Ino};
use std::io;
use zerocopy::IntoBytes;

/// The one bit that makes a block a compact page of a file, where it is none.
fn unflipped(block: &Block, ino: Ino) -> Option<Bit> {
    delta::compact_records(block, ino).err()?;
    let bit = delta::flipped_bit(block)?;
    let mut mended = Box::new(block.clone());
    bit.flip(&mut mended);
    delta::compact_records(&mended, ino).is_ok().then_some(bit)
}

/// What the loss of a compact page costs.
const UNTOLD: &str = ", after which pages of the file may be what they were before their last update: which ones cannot be told";

fn pages_of(records: &[Record<'_>]) -> String {
    let pages: Vec<String> = records.iter().map(|r| r.index.to_string()).collect();
    if pages.is_empty() { "none".into() } else { pages.join(", ") }
}

impl FileWalk {
    /// Notes that a block is cut off the file, which may be one of its compact pages.
    pub(crate) fn cut_compact(&mut self, page: u64) {
        let place = self.region.as_ref().and_then(|region| page.checked_sub(region.start));
        if let (Some(place), Some(zone)) = (place.and_then(|place| u32::try_from(place).ok()), &mut self.zone)
            && let Some((sequence, _)) = zone.places.remove(&place)
        {
            zone.deltas.pages.remove(&sequence);
        }
    }
}

/// Judges whether a file's compact pages, to which the walk came, are those that it had; has its zone say what is
/// left of them.
pub(crate) fn settle_tie(
    j: &mut Judgement<'_>,
    f: &FileWalk,
    inode: &mut RawInode,
    zone: &mut Zone,
) -> io::Result<()> {
    let mut found = Tie::default();
    zone.places.iter().for_each(|(&place, &(_, id))| found.add(place, id));
    let Some(tie) = zone.tie.filter(|tie| *tie != found) else { return Ok(()) };
    if !zone.told {
        let place = tie.differs_at(found, PLACES as u32);
        let other = place.and_then(|place| zone.places.get(&place));
        let addr = other.and_then(|(sequence, _)| zone.deltas.pages.remove(sequence));
        let what = match (place, addr) {
            (Some(place), Some(addr)) => format!(
                "compact page {place} (block {addr}) is an older or another one than its inode speaks of; a repair empties it"
            ),
            (Some(place), None) => format!("compact page {place}, of which its inode speaks, is missing"),
            (None, _) => "its compact pages are not those of which its inode speaks".to_owned(),
        };
        let text = format!("{}: {what}{UNTOLD}", inode_name(f.ino, inode));
        j.findings.add(Code::CompactOther, text);
        j.revert(f.ino, None);
        if let Some(addr) = addr {
            let emptied = delta::compact_page_with(j.image.cache.get(addr)?, &[]);
            j.write(addr, &emptied, Cause::Compact)?;
        }
    }
    let fits = delta::set_tie(&mut inode.as_mut_bytes()[zone.range.clone()], found);
    debug_assert!(fits, "it had room before");
    Ok(())
}

impl Judgement<'_> {
    /// Judges a block of a file that may be one of its compact pages; `false` where a repair has to free it.
    pub(crate) fn compact_block(&mut self, f: &mut FileWalk, page: u64, addr: BlockAddr) -> io::Result<bool> {
        let Some(region) = f.region.take() else { return Ok(true) };
        let stays = if page < region.start {
            true
        } else if f.zone.as_ref().is_some_and(|zone| zone.compact) {
            self.own_compact_block(f, &region, page, addr)?
        } else if page >= region.end {
            self.denied_compact_block(f, &region, page, addr)?
        } else {
            true
        };
        if let Some(zone) = f.zone.as_mut().filter(|_| !stays && page < region.start + PLACES) {
            zone.told = true;
        }
        f.region = Some(region);
        Ok(stays)
    }

    /// A repair frees a compact page, for which these pages lose their last updates: `false`, it does not stay.
    fn frees(&mut self, ino: Ino, code: Code, text: String, pages: Reverted) -> bool {
        self.findings.add(code, text);
        self.revert(ino, pages);
        false
    }

    /// A block where the file says that it has compact pages.
    fn own_compact_block(
        &mut self,
        f: &mut FileWalk,
        region: &Region,
        page: u64,
        addr: BlockAddr,
    ) -> io::Result<bool> {
        let (place, name) = (page - region.start, &region.name);
        if place >= PLACES {
            let text = format!(
                "{name}: block {addr} as page {page}, behind the {PLACES} places for its compact pages; a repair frees it"
            );
            self.findings.add(Code::CompactRoom, text);
            return Ok(false);
        }
        let mut block = self.image.cache.read(addr)?;
        if self.image.cache.medium.tell_unreadable(addr) {
            let text = format!(
                "{name}: compact page {place}, block {addr}, {CANNOT_BE_READ}; a repair frees it{UNTOLD}"
            );
            return Ok(self.frees(f.ino, Code::Unreadable, text, None));
        }
        if let Some(bit) = unflipped(&block, f.ino) {
            bit.flip(&mut block);
            self.findings.add(
                Code::CompactPage,
                format!(
                    "{name}: compact page {place} (block {addr}) is valid with {bit} flipped; a repair flips it back"
                ),
            );
            self.write(addr, &block, Cause::Compact)?;
        }
        let (sequence, _) = match delta::compact_records(&block, f.ino) {
            Ok(sound) => sound,
            Err(error) => {
                let text = format!(
                    "{name}: {error} (compact page {place}, block {addr}); a repair frees it{UNTOLD}"
                );
                return Ok(self.frees(f.ino, Code::CompactPage, text, None));
            }
        };
        let zone = f.zone.as_mut().expect("it says that there are compact pages");
        if let Some(other) = zone.deltas.pages.get(&sequence) {
            let text = format!(
                "{name}: compact page {place} (block {addr}) has sequence number {sequence}, as block {other} has; a repair \
                 frees it{UNTOLD}"
            );
            return Ok(self.frees(f.ino, Code::CompactTwice, text, None));
        }
        zone.deltas.pages.insert(sequence, addr);
        zone.places.insert(place as u32, (sequence, delta::compact_id(&block)));
        Ok(true)
    }

    /// A block beyond the end of a file that denies that it has compact pages. It may be any block, as
    /// fallocate can leave some there; but a sound compact page of this very file is none of those.
    fn denied_compact_block(
        &mut self,
        f: &mut FileWalk,
        region: &Region,
        page: u64,
        addr: BlockAddr,
    ) -> io::Result<bool> {
        if page - region.start >= PLACES {
            return Ok(true);
        }
        let block: &Block = self.image.cache.get(addr)?;
        let Ok((sequence, records)) = delta::compact_records(block, f.ino) else { return Ok(true) };
        let name = &region.name;
        let Some(zone) = &mut f.zone else {
            let text = format!(
                "{name}: block {addr} is a compact page, but the file has no delta zone; a repair frees it, after which \
                 these pages may be what they were before their last update: {}",
                pages_of(&records)
            );
            let pages = records.iter().map(|r| r.index).collect();
            return Ok(self.frees(f.ino, Code::CompactFlag, text, Some(pages)));
        };
        if !zone.header_damaged {
            let text = format!(
                "{name}: block {addr} is a compact page, but the delta zone's flag says there are none; a repair sets the flag"
            );
            self.findings.add(Code::CompactFlag, text);
        }
        (zone.compact, zone.denied) = (true, true);
        zone.deltas.pages.insert(sequence, addr);
        Ok(true)
    }

    /// Sees to it that a file with compact pages ends before them.
    pub(crate) fn end_before_compact(&mut self, f: &FileWalk, inode: &mut RawInode) {
        let (Some(region), Some(zone)) = (&f.region, &f.zone) else { return };
        if !zone.compact || region.end <= region.start {
            return;
        }
        let text = format!(
            "{}: {} pages, but with its compact pages it has room for {}; a repair makes it end there",
            region.name, region.end, region.start
        );
        self.findings.add(Code::CompactRoom, text);
        inode.i_size = (region.start * BLOCK_SIZE as u64).into();
    }
}
