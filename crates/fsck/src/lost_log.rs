//! The fsync log where no checkpoint is left that says where it begins.
//!
//! Nodes carry the version of the checkpoint behind which they were written. Nodes of a version that none has to which
//! the NAT leads were written behind the newest checkpoint; each names the next one, and the log begins at the one that
//! no other names. The checkpoint that is reckoned takes that version, as a repair's does that keeps a log: the number
//! alone tells nodes of the log.
//!
//! Invariant: where a later checkpoint had begun, the log counts for nothing, as that may have taken it up. Then the
//! NAT leads to a node of that version, or an inode of it was not written by an fsync.
//! Memory: an entry for each node of the newest version, [`MOST_NODES`] at most; of more nothing is taken.

use crate::cache::is_erased;
use crate::finding::Findings;
use crate::image::Image;
use crate::log;
use crate::no_pack::{newest_known, set_header};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use medfs_format::checkpoint::CpFlags;
use medfs_format::footer::footer;
use medfs_format::sit::test_bit;
use medfs_format::summary::{LOG_COUNT, Log};
use medfs_format::{BLOCKS_PER_SEG, BlockAddr, SegNo};
use std::io;

/// Nodes of one version.
const MOST_NODES: usize = 1 << 20;

/// A node that may be one of the log.
struct Link {
    /// All of the version in its footer.
    version: u64,
    next: BlockAddr,
    is_fsync: bool,
    /// It is an inode that no fsync wrote.
    is_of_checkpoint: bool,
}

/// Nodes by their blocks.
type Links = HashMap<BlockAddr, Link>;

/// Lets the checkpoint that is reckoned be the one before the fsync log, where one is found: where it begins.
pub(crate) fn find(image: &mut Image<'_>) -> io::Result<Option<BlockAddr>> {
    let links = newest_links(image)?;
    let Some(log) = longest(&links) else { return Ok(None) };
    let version = links[&log[0]].version;
    if links.values().any(|link| link.version == version && link.is_of_checkpoint) {
        return Ok(None);
    }
    let mut header = image.checkpoint();
    // Footers have the lower half of the number.
    let upper = header.checkpoint_ver.get() & !u64::from(u32::MAX);
    header.checkpoint_ver = (upper | u64::from(version as u32)).into();
    header.ckpt_flags = (header.flags() | CpFlags::NOCRC_RECOVERY).bits().into();
    set_header(image, header);
    image.strays.logged = log.iter().copied().collect();
    Ok(Some(log[0]))
}

/// The nodes of the newest version, where that is newer than all to which the NAT leads.
fn newest_links(image: &mut Image<'_>) -> io::Result<Links> {
    let (mut newest, mut links) = (newest_known(image), Links::new());
    for segno in 0..image.g.segment_count_main {
        let entry = image.sit(segno)?;
        let (start, is_free) = (image.g.seg_start(segno), entry.valid_map.iter().all(|&byte| byte == 0));
        // A log fills a free segment from its start, where an earlier crash may have left other nodes. What a
        // checkpoint has freed of them may have been discarded.
        let may_hold = match is_free {
            true => link(image, start)?.is_some() || is_erased(image.cache.get(start)?),
            false => image.may_hold_nodes(segno, &entry)?,
        };
        for addr in (start..start + BLOCKS_PER_SEG).filter(|_| may_hold) {
            let Some(link) = link(image, addr)? else { continue };
            let version = link.version as u32;
            if version < newest || version == newest && links.is_empty() {
                continue;
            }
            if version > newest {
                (newest, links) = (version, Links::new());
            }
            if links.len() == MOST_NODES {
                return Ok(Links::new());
            }
            links.insert(addr, link);
        }
    }
    Ok(links)
}

/// The node in a block, if one is there.
fn link(image: &mut Image<'_>, addr: BlockAddr) -> io::Result<Option<Link>> {
    let f = *footer(image.cache.get(addr)?);
    let is_read = !image.cache.medium.tell_unreadable(addr); // nobody may need it
    let (nid, ino) = (f.nid.get(), f.ino.get());
    // Nodes that files share have the number of the inode of nodes.
    let is_shared = image.raw_sb().is_delta_volume() && nid == image.g.node_ino;
    let is_node = is_shared || image.g.is_nid(nid) && image.g.is_nid(ino);
    let (version, next, is_fsync) = (f.cp_ver.get(), f.next_blkaddr.get(), f.is_of_fsync());
    let is_of_checkpoint = nid == ino && !is_fsync && !is_shared;
    let link = Link { version, next, is_fsync, is_of_checkpoint };
    Ok((is_read && is_node && image.g.in_main(next)).then_some(link))
}

/// The segments of a log that begins there, and of what its nodes name.
pub(crate) fn segments(image: &mut Image<'_>, start: BlockAddr) -> io::Result<HashSet<SegNo>> {
    (0..LOG_COUNT).for_each(|_| image.begin_log(SegNo::MAX, false));
    begin_at(image, start)?;
    let walk = log::walk(image, &mut Findings::new(0), false)?;
    image.cursegs.clear();
    Ok(walk.segments)
}

/// Lets the log of warm nodes go on there.
pub(crate) fn begin_at(image: &mut Image<'_>, start: BlockAddr) -> io::Result<()> {
    let (segno, blkoff) = (image.g.segno(start), image.g.offset_in_seg(start));
    let entry = image.sit(segno)?;
    let fills_holes = (blkoff..BLOCKS_PER_SEG).any(|offset| test_bit(&entry.valid_map, offset as usize));
    let log = &mut image.cursegs[Log::WarmNode as usize];
    (log.segno, log.blkoff, log.alloc_type, log.known) = (segno, blkoff, fills_holes.into(), false);
    Ok(())
}

/// Of the rows of nodes that name each other the one with the most fsyncs in it, and its blocks in their order. Where
/// rows meet, what follows counts for the one that begins first on the device.
fn longest(links: &Links) -> Option<Vec<BlockAddr>> {
    let next_of = |link: &Link| links.get(&link.next).filter(|next| next.version == link.version);
    let named: HashSet<BlockAddr> =
        links.values().filter(|&link| next_of(link).is_some()).map(|link| link.next).collect();
    let mut starts: Vec<BlockAddr> = links.keys().copied().filter(|addr| !named.contains(addr)).collect();
    starts.sort_unstable();
    let mut met = HashSet::new();
    let mut best: Option<(usize, Vec<BlockAddr>)> = None;
    for start in starts {
        let (mut row, mut fsyncs, mut at) = (Vec::new(), 0, start);
        while let Some(link) = links.get(&at).filter(|_| met.insert(at)) {
            row.push(at);
            fsyncs += usize::from(link.is_fsync);
            if next_of(link).is_none() {
                break;
            }
            at = link.next;
        }
        if fsyncs > 0 && best.as_ref().is_none_or(|(most, _)| fsyncs > *most) {
            best = Some((fsyncs, row));
        }
    }
    best.map(|(_, row)| row)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(nodes: &[(BlockAddr, u64, BlockAddr, bool)]) -> Links {
        nodes
            .iter()
            .map(|&(addr, version, next, is_fsync)| {
                (addr, Link { version, next, is_fsync, is_of_checkpoint: false })
            })
            .collect()
    }

    #[test]
    fn the_log_is_the_row_with_the_most_fsyncs() {
        let one = [(10, 5, 11, false), (11, 5, 12, false), (12, 5, 13, false)];
        let other = [(30, 5, 31, true), (31, 5, 50, false), (50, 5, 51, true)];
        let of_another = [(51, 6, 52, true)];
        let all: Vec<_> = one.into_iter().chain(other).chain(of_another).collect();
        assert_eq!(longest(&links(&all)), Some(vec![30, 31, 50]));
        assert_eq!(longest(&links(&one)), None, "no fsync is in it");
        assert_eq!(longest(&links(&[])), None);
    }

    #[test]
    fn circles_end() {
        assert_eq!(longest(&links(&[(10, 5, 11, true), (11, 5, 10, true)])), None, "it has no beginning");
        let led_into = [(9, 5, 10, true), (10, 5, 11, true), (11, 5, 10, true)];
        assert_eq!(longest(&links(&led_into)), Some(vec![9, 10, 11]));
        // Each node is looked at once, however many lead to it.
        let many: Vec<_> = (0..20_000).map(|n| (n, 5, 20_000, true)).collect();
        let chain: Vec<_> = (20_000..40_000).map(|n| (n, 5, n + 1, true)).collect();
        let row = longest(&links(&[many, chain].concat())).expect("a row");
        assert_eq!((row.len(), row[0]), (20_001, 0));
    }
}
