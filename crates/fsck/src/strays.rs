//! Nodes that the NAT does not lead to: where its blocks were lost, or an entry is wrong, it is made anew
//! from the nodes themselves.
//!
//! A node says its number and its inode in its footer. SIT and SSA say which blocks hold nodes, so that of
//! all others none is read. An entry is replaced only where it leads to no node of that number, or to an
//! older one; what SIT says of either counts for nothing.
//!
//! Journals that are empty may be lost, unless their place shows that they are not: what the last checkpoint
//! changed is then in neither table, and SIT calls its nodes free. They are in the segments that the node
//! logs write to, before the place where these go on: there the newest node of a number counts. One whose
//! number has no entry may be a removed file's. It counts where something names it. Those that nothing names
//! count where the checkpoint has more nodes than were found so: a file that comes back is better than one
//! that is lost. So it is where SIT is lost, which would say that a node without an entry is in use. In a segment
//! whose SIT entry counts more blocks than it shows, what something names counts too.
//!
//! Memory: an entry for each node that the NAT has lost, of which one pass takes [`MAX_STRAYS`].

use crate::cache::is_erased;
use crate::finding::{Code, Findings, counted};
use crate::image::Image;
use crate::no_pack::{has_found_log, is_new_and_fsynced, newest_known, newest_of};
use foldhash::{HashMap, HashMapExt, HashSet};
use medfs_format::checkpoint::ChainVersion;
use medfs_format::nat::{self, RawNatBlock, RawNatEntry};
use medfs_format::node::{RawIndirectNode, RawInode, footer};
use medfs_format::sit::{RawSitEntry, test_bit};
use medfs_format::summary::{RawSummaryBlock, SUM_TYPE_NODE};
use medfs_format::{BLOCKS_PER_SEG, BlockAddr, Ino, NULL_ADDR, Nid, SegNo};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Nodes taken up in one pass.
const MAX_STRAYS: usize = 1 << 20;

/// What is known of nodes that the NAT does not lead to.
#[derive(Default)]
pub(crate) struct Strays {
    /// Whether they were looked for.
    found: bool,
    /// The numbers of all: not free, even where nobody takes them up.
    pub(crate) seen: HashSet<Nid>,
    /// Those that may be a removed file's.
    doubtful: HashMap<Nid, Stray>,
    /// Of those of which there is another one: that one, and whether it is as good. Of inodes it may be worse.
    rivals: HashMap<Nid, (Stray, bool)>,
    /// Blocks of the fsync log's nodes, which SIT may call in use by mistake.
    pub(crate) logged: HashSet<BlockAddr>,
    /// How many of these there are in the last checkpoint, and how many were taken up.
    missing: u32,
    taken_up: u32,
    /// New files that were fsynced behind a lost checkpoint: no directory names them yet.
    pub(crate) fsynced: BTreeSet<Ino>,
    /// The newest version of a node that was seen.
    pub(crate) newest: u32,
}

/// What else says of a block that it is the node of its footer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trust {
    /// The checksum of an inode, which is of its number too, is wrong; or its footer is that of the block before.
    Denied,
    /// The summary names another node.
    Doubted,
    /// The summary is not known.
    Unsaid,
    Sound,
}

/// A block that holds a node the NAT does not lead to. Of two of one number the greater counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stray {
    /// When it was written.
    version: u32,
    trust: Trust,
    /// SIT says that the block is in use, rather than nothing.
    valid: bool,
    addr: BlockAddr,
    ino: Ino,
}

impl Strays {
    /// Another block than the one that the NAT was made to lead to, and whether it is as good; asked for once.
    pub(crate) fn rival(&mut self, nid: Nid) -> Option<(Stray, bool)> {
        self.rivals.remove(&nid)
    }
}

impl Stray {
    pub(crate) fn addr(self) -> BlockAddr {
        self.addr
    }

    /// Whether nothing but the address tells which of two counts.
    fn is_rival_of(&self, other: &Stray) -> bool {
        (self.version, self.trust, self.valid) == (other.version, other.trust, other.valid)
    }
}

/// Lets the NAT lead to the other node of a number, where there is one, and otherwise nowhere: the one that it was made
/// to lead to is none of that number.
pub(crate) fn lead_back(image: &mut Image<'_>, nid: Nid) -> io::Result<()> {
    image.nat_changes.remove(&nid);
    look_again(image);
    match image.strays.rival(nid) {
        Some((rival, _)) => image.lead_to(nid, rival),
        None => Ok(()),
    }
}

/// Forgets what was found of lost files and of what nobody names: other nodes count now.
pub(crate) fn look_again(image: &mut Image<'_>) {
    (image.lost_blocks, image.lost_files, image.unnamed) = (None, None, None);
}

/// Whether an entry counts more blocks than it calls in use: a bit of it is flipped, and one of the others is in use.
fn is_short(entry: &RawSitEntry) -> bool {
    u32::from(entry.valid_blocks()) > entry.valid_map.iter().map(|byte| byte.count_ones()).sum()
}

/// Whether the block with a node's NAT entry cannot be read, or was erased: that it has none says nothing then.
fn is_nat_lost(image: &mut Image<'_>, nid: Nid) -> io::Result<bool> {
    let index = nid / nat::ENTRIES_PER_BLOCK as u32;
    let addr = image.g.nat_block(index, image.nat_second(index));
    let erased = is_erased(image.cache.get(addr)?);
    Ok(erased || image.cache.medium.is_unreadable(addr))
}

impl Image<'_> {
    /// Lets the NAT lead to every node that SIT and SSA speak of, in memory; once in a pass.
    pub(crate) fn find_strays(&mut self, findings: &mut Findings) -> io::Result<()> {
        if std::mem::replace(&mut self.strays.found, true) {
            return Ok(());
        }
        let mut strays: HashMap<Nid, Stray> = HashMap::new();
        let mut short = false;
        for segno in 0..self.g.segment_count_main {
            let entry = self.sit(segno)?;
            short |= is_short(&entry);
            let current = self.curseg_of(segno).is_some();
            if current || self.reckoned || self.sit_lost(segno) || entry.valid_map.iter().any(|&b| b != 0) {
                self.strays_in(segno, &entry, &mut strays)?;
            }
        }
        leave_out_others(self, &mut strays)?;
        let mut found: BTreeMap<u32, Vec<Nid>> = BTreeMap::new();
        let mut unsaid = false;
        let mut strays: Vec<(Nid, Stray)> = strays.into_iter().collect();
        strays.sort_unstable_by_key(|&(_, stray)| std::cmp::Reverse(stray));
        self.strays.seen.extend(strays.iter().map(|(nid, _)| nid));
        let versions = strays.iter().filter(|(_, stray)| stray.trust > Trust::Denied).map(|(_, s)| s.version);
        let newest = newest_of(versions.chain([newest_known(self)]));
        self.strays.newest = newest;
        for (nid, stray) in strays {
            let is_sound = stray.version == newest && nid == stray.ino && stray.trust > Trust::Denied;
            let is_sound = is_sound && !has_found_log(self);
            if is_sound && is_new_and_fsynced(self, nid, stray.addr)? {
                self.lead_to(nid, stray)?;
                self.strays.fsynced.insert(nid);
                found.entry(nid / nat::ENTRIES_PER_BLOCK as u32).or_default().push(nid);
                continue;
            }
            let unknown = !stray.valid && self.nat(nid)?.block_addr.get() == NULL_ADDR;
            let sit_lost = self.sit_lost(self.g.segno(stray.addr));
            if unknown && !(sit_lost && is_nat_lost(self, nid)?) {
                unsaid |= sit_lost;
                self.strays.doubtful.insert(nid, stray);
                continue;
            }
            if self.leads_elsewhere(nid, stray)? {
                self.lead_to(nid, stray)?;
                found.entry(nid / nat::ENTRIES_PER_BLOCK as u32).or_default().push(nid);
            }
        }
        for (index, nids) in found {
            let first = nids.iter().min().expect("not empty");
            let text = format!(
                "NAT block {index}: {} rebuilt from nodes that the table does not reach, the first is node {first}",
                counted(nids.len() as u64, "entry")
            );
            findings.add(Code::NatLost, text);
        }
        if !self.journals_may_be_lost && !short && !unsaid {
            self.strays.doubtful.clear();
        }
        let lost = (self.journals_may_be_lost || unsaid) && !self.strays.doubtful.is_empty();
        self.strays.missing = if lost { self.missing_entries()? } else { 0 };
        Ok(())
    }

    /// Lets the NAT lead to a block, in memory.
    pub(crate) fn lead_to(&mut self, nid: Nid, stray: Stray) -> io::Result<()> {
        let version = self.stale_version(nid)?;
        let entry = RawNatEntry { version, ino: stray.ino.into(), block_addr: stray.addr.into() };
        self.nat_changes.insert(nid, entry);
        Ok(())
    }

    /// Where the nodes are that may be a removed file's.
    pub(crate) fn doubtful(&self) -> Vec<(Nid, BlockAddr)> {
        self.strays.doubtful.iter().map(|(&nid, stray)| (nid, stray.addr)).collect()
    }

    /// Lets the NAT lead to a node that something names, where only the journals did.
    pub(crate) fn take_up(&mut self, nid: Nid) -> io::Result<()> {
        let Some(stray) = self.strays.doubtful.remove(&nid) else { return Ok(()) };
        self.strays.taken_up += 1;
        self.lead_to(nid, stray)
    }

    /// Lets the NAT lead to the nodes that nothing names, where there are some that only the journals led to
    /// among them.
    pub(crate) fn take_up_the_rest(&mut self, findings: &mut Findings) -> io::Result<()> {
        let rest = std::mem::take(&mut self.strays.doubtful);
        if self.strays.taken_up < self.strays.missing {
            for (nid, stray) in rest {
                self.strays.taken_up += 1;
                self.lead_to(nid, stray)?;
            }
        }
        let count = self.strays.taken_up;
        if count > 0 {
            look_again(self);
            let text = format!(
                "{} without a NAT entry: the journals' entries are lost and are rebuilt from the nodes",
                counted(count, "node")
            );
            findings.add(Code::NatLost, text);
        }
        Ok(())
    }

    /// Looks for nodes before the walk where the NAT may lead to older ones.
    pub(crate) fn find_strays_of_lost_journals(&mut self, findings: &mut Findings) -> io::Result<()> {
        if self.journals_may_be_lost { self.find_strays(findings) } else { Ok(()) }
    }

    /// How many more nodes the checkpoint has than the NAT.
    fn missing_entries(&mut self) -> io::Result<u32> {
        let mut entries = 0;
        for index in 0..self.g.nat_blocks() {
            let nodes = self.nodes_in(index)?;
            entries +=
                nodes.iter().filter(|(_, entry)| self.g.in_main(entry.block_addr.get())).count() as u32;
        }
        Ok(self.checkpoint().valid_node_count.get().saturating_sub(entries))
    }

    /// Whether SIT or SSA says that the blocks of a segment are nodes, or neither can say anything.
    pub(crate) fn may_hold_nodes(&mut self, segno: SegNo, entry: &RawSitEntry) -> io::Result<bool> {
        if let Some(log) = self.curseg_of(segno) {
            return Ok(log >= 3);
        }
        let lost = self.sit_lost(segno);
        let addr = self.g.ssa_block(segno);
        let of_nodes = self.cache.get(addr)?.view::<RawSummaryBlock>().footer.entry_type == SUM_TYPE_NODE;
        Ok(of_nodes || (!lost && entry.seg_type() >= 3) || (lost && self.ssa_lost(segno)?))
    }

    /// The nodes of a segment that the NAT does not lead to.
    fn strays_in(
        &mut self,
        segno: SegNo,
        entry: &RawSitEntry,
        strays: &mut HashMap<Nid, Stray>,
    ) -> io::Result<()> {
        let lost = self.sit_lost(segno);
        let any = lost || is_short(entry);
        let log = self.curseg_of(segno);
        // Where the logs were is not known without a checkpoint.
        let anywhere = self.reckoned && entry.valid_map.iter().all(|&b| b == 0);
        if !self.may_hold_nodes(segno, entry)? && !anywhere {
            return Ok(());
        }
        // A checkpoint that is reckoned lies behind all nodes but those of a log that was found.
        let version = (!self.reckoned || has_found_log(self)).then(|| self.chain_version());
        let (seed, layouts, owners) = (self.inode_seed(), self.layouts(), owners_in(self, segno)?);
        let start = self.g.seg_start(segno);
        let appended =
            log.map(|log| &self.cursegs[log]).filter(|c| c.alloc_type == 0 && self.journals_may_be_lost);
        let appended = if self.reckoned { BLOCKS_PER_SEG } else { appended.map_or(0, |c| c.blkoff) };
        for offset in 0..BLOCKS_PER_SEG {
            let (addr, valid) = (start + offset, test_bit(&entry.valid_map, offset as usize));
            if !valid && !any && offset >= appended {
                continue;
            }
            // Also where SSA and NAT agree: a node that was written to a wrong place is there all the same.
            let f = *footer(self.cache.get(addr)?);
            if !valid {
                self.cache.medium.tell_unreadable(addr); // nobody may need it
            }
            let (nid, ino) = (f.nid.get(), f.ino.get());
            // What fsync wrote since the checkpoint is of no account here.
            let since = !(valid && self.may_be_in_use(addr))
                && version.is_some_and(|version| version.belongs(f.cp_ver.get()));
            if !self.g.is_nid(nid) || !self.g.is_nid(ino) || since || self.nat(nid)?.block_addr.get() == addr
            {
                continue;
            }
            let inode: &RawInode = self.cache.get(addr)?.view();
            // A node names the block behind it.
            let is_denied = f.next_blkaddr.get() == addr
                || nid == ino && seed.is_some_and(|seed| !inode.is_sealed(layouts, seed));
            let trust = match owners.as_ref().map(|owners| owners[offset as usize] == nid) {
                _ if is_denied => Trust::Denied,
                Some(false) => Trust::Doubted,
                None => Trust::Unsaid,
                Some(true) => Trust::Sound,
            };
            let stray = Stray { version: f.cp_ver.get() as u32, trust, valid, addr, ino };
            if strays.len() < MAX_STRAYS || strays.contains_key(&nid) {
                let known = strays.get(&nid).filter(|known| nid == ino || known.is_rival_of(&stray));
                if let Some(known) = known {
                    let (second, is_equal) = (stray.min(*known), known.is_rival_of(&stray));
                    let rival = self.strays.rivals.entry(nid).or_insert((second, is_equal));
                    *rival = (second, is_equal).max(*rival);
                }
                strays.entry(nid).and_modify(|s| *s = stray.max(*s)).or_insert(stray);
            }
        }
        Ok(())
    }

    /// Whether a node of the checkpoint's version may be in use all the same, as SIT says: a repair wrote it before
    /// it renewed the checkpoint, and it is none of the fsync log.
    fn may_be_in_use(&self, addr: BlockAddr) -> bool {
        (self.reckoned || !self.chain_version().has_checksum()) && !self.strays.logged.contains(&addr)
    }

    /// Whether a node's NAT entry leads to no such node, or to one that is older than the stray.
    fn leads_elsewhere(&mut self, nid: Nid, stray: Stray) -> io::Result<bool> {
        let addr = self.nat(nid)?.block_addr.get();
        if !self.g.in_main(addr) {
            return Ok(true);
        }
        let f = *footer(self.cache.get(addr)?);
        let right = f.nid.get() == nid && self.g.is_nid(f.ino.get());
        let version = self.checkpoint().checkpoint_ver.get() as u32;
        let newer = stray.version > f.cp_ver.get() as u32 && (self.reckoned || stray.version <= version);
        Ok(!right || newer)
    }

    /// The version in the copy of a node's NAT entry that is not in force: most have never changed theirs.
    fn stale_version(&mut self, nid: Nid) -> io::Result<u8> {
        let index = nid / nat::ENTRIES_PER_BLOCK as u32;
        let (now, other) = [false, true].map(|second| self.g.nat_block(index, second)).into();
        let (now, other) = if self.nat_second(index) { (other, now) } else { (now, other) };
        self.cache.get(now)?;
        let addr = if self.cache.medium.is_unreadable(now) { other } else { now };
        let block: &RawNatBlock = self.cache.get(addr)?.view();
        Ok(block.entries[nid as usize % nat::ENTRIES_PER_BLOCK].version)
    }

    /// The version of nodes that were written since the checkpoint.
    pub(crate) fn chain_version(&self) -> ChainVersion {
        let cp = self.checkpoint();
        let at = (cp.checksum_offset.get() as usize).min(medfs_format::checkpoint::CHECKSUM_OFFSET);
        let crc = u32::from_le_bytes(self.cp[at..at + 4].try_into().expect("four bytes"));
        ChainVersion::of(&cp, crc)
    }
}

/// Leaves out what is not of its number by more than the NAT, which knows its block as another node's: inodes with a
/// wrong checksum, blocks whose summary names that node too, and, where no summary says it, those of a number that one
/// flipped bit makes of that node's and that do not say themselves whose they are, or whose own block, as the NAT knows
/// it, is in use. The sector of the footer alone is of this one, unless the other node has another block, too.
fn leave_out_others(image: &mut Image<'_>, strays: &mut HashMap<Nid, Stray>) -> io::Result<()> {
    let distrusted = strays.iter().filter(|(_, stray)| stray.trust < Trust::Sound);
    let distrusted: HashMap<BlockAddr, Nid> = distrusted.map(|(nid, stray)| (stray.addr, *nid)).collect();
    if distrusted.is_empty() {
        return Ok(());
    }
    for index in 0..image.g.nat_blocks() {
        for (nid, entry) in image.nodes_in(index)? {
            let addr = entry.block_addr.get();
            let Some(&other) = distrusted.get(&addr).filter(|other| **other != nid) else { continue };
            let Some(stray) = strays.get(&other).filter(|_| !strays.contains_key(&nid)) else { continue };
            let is_other = match stray.trust {
                Trust::Denied => true,
                Trust::Unsaid => {
                    let is_turned = (nid ^ other).count_ones() == 1
                        && stray.ino == entry.ino.get()
                        && !says_itself(image, other, *stray, nid)?;
                    let own = image.nat(other)?.block_addr.get();
                    is_turned || image.g.in_main(own) && image.is_valid(own)?
                }
                _ => {
                    let owners = owners_in(image, image.g.segno(addr))?;
                    owners.is_some_and(|owners| owners[image.g.offset_in_seg(addr) as usize] == nid)
                }
            };
            if is_other {
                strays.remove(&other);
            }
        }
    }
    Ok(())
}

/// Whether a block is of the number in its footer, and not of the one that the NAT knows it by, which is a flipped bit
/// away: it is an inode by its number and its place in the file, or its file's inode, or an indirect node below that,
/// names this number and not the other one.
fn says_itself(image: &mut Image<'_>, nid: Nid, stray: Stray, other: Nid) -> io::Result<bool> {
    if nid == stray.ino {
        return Ok(footer(image.cache.get(stray.addr)?).node_offset() == 0);
    }
    let at = image.nat(stray.ino)?.block_addr.get();
    if !image.g.in_main(at) || footer(image.cache.get(at)?).nid.get() != stray.ino {
        return Ok(false);
    }
    let inode: &RawInode = image.cache.get(at)?.view();
    let mut named: Vec<Nid> = inode.i_nid.iter().map(|nid| nid.get()).collect();
    let indirect = [named[2], named[3]];
    named.push(inode.i_xattr_nid.get());
    for nid in indirect {
        let at = if image.g.is_nid(nid) { image.nat(nid)?.block_addr.get() } else { NULL_ADDR };
        if image.g.in_main(at) {
            let node: &RawIndirectNode = image.cache.get(at)?.view();
            named.extend(node.nid.iter().map(|nid| nid.get()));
        }
    }
    Ok(named.contains(&nid) && !named.contains(&other))
}

/// The nodes that the summary of a segment names, where it is one of nodes and known.
fn owners_in(image: &mut Image<'_>, segno: SegNo) -> io::Result<Option<Vec<Nid>>> {
    let of = |sum: &RawSummaryBlock| sum.entries.iter().map(|entry| entry.nid.get()).collect();
    if let Some(log) = image.curseg_of(segno) {
        let curseg = &image.cursegs[log];
        return Ok((log >= 3 && curseg.known).then(|| of(&curseg.sum)));
    }
    if image.ssa_lost(segno)? {
        return Ok(None);
    }
    let addr = image.g.ssa_block(segno);
    let sum: &RawSummaryBlock = image.cache.get(addr)?.view();
    Ok((sum.footer.entry_type == SUM_TYPE_NODE).then(|| of(sum)))
}
