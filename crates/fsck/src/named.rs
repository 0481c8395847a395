//! What nodes name: what is in use and named by nobody, and what a node names though a summary says that it is
//! another's.
//!
//! A summary may be older than the blocks of its segment, where its write was torn; an address may be damaged. Of a
//! block that a slot names and whose summary names another, the slot is right unless a block in use that nobody names
//! says that it is that slot's.
//!
//! Memory, where one file at least lacks blocks: while they are looked for, a bit for each block of the main area and
//! each node id; then an entry for each block that nobody names, and for each that has two to claim it, up to
//! [`MAX_BLOCKS`] of a kind.

use crate::SECTOR;
use crate::image::Image;
use crate::slots::{has_no_addresses, most_addresses};
use crate::space::{Kind, Owner, recorded};
use crate::unnamed::{Unnamed, above, leave_single};
use foldhash::{HashMap, HashSet};
use medfs_format::node::{ADDRS_PER_BLOCK, RawDirectNode, RawIndirectNode, RawInode, footer};
use medfs_format::path::{BELOW_INODE, NodeKind, XATTR_NODE_OFFSET, node_kind};
use medfs_format::sit::{VALID_MAP_SIZE, set_bit, test_bit};
use medfs_format::summary::RawSummary;
use medfs_format::{BLOCKS_PER_SEG, BlockAddr, Ino, NULL_ADDR, Nid};
use std::collections::BTreeSet;
use std::io;
use std::mem::offset_of;

/// Blocks of one kind that are taken up in one pass.
pub(crate) const MAX_BLOCKS: usize = 1 << 22;

/// What nobody names on a volume, looked for once in a pass.
pub(crate) fn unnamed<'i>(image: &'i mut Image<'_>) -> io::Result<&'i Unnamed> {
    if image.unnamed.is_none() {
        image.unnamed = Some(find_unnamed(image)?);
    }
    Ok(image.unnamed.as_ref().expect("just found"))
}

/// The block in use that nobody names, of which the summary says that this slot has it; `None` where there is none, or
/// more than one.
pub(crate) fn unnamed_block(image: &mut Image<'_>, owner: Owner) -> io::Result<Option<BlockAddr>> {
    Ok(unnamed(image)?.block_of(owner.nid, owner.ofs_in_node))
}

/// The inodes that name as their first block one that another slot names too. Kept as it was when first asked for,
/// while [`unnamed`] is not: what is mended on the walk is of no use here.
pub(crate) fn namers<'i>(image: &'i mut Image<'_>) -> io::Result<&'i HashMap<BlockAddr, Vec<Ino>>> {
    if image.namers.is_none() {
        image.namers = Some(find_unnamed(image)?.namers);
    }
    Ok(image.namers.as_ref().expect("just found"))
}

/// Looks for what nobody names on the whole volume.
pub(crate) fn find_unnamed(image: &mut Image<'_>) -> io::Result<Unnamed> {
    let mut named = Named {
        blocks: vec![0; image.g.segment_count_main as usize * VALID_MAP_SIZE],
        nids: vec![0; (image.g.max_nid() as usize).div_ceil(8)],
        twice: HashSet::default(),
        disputed: HashMap::default(),
    };
    each_entry(image, &mut |image, nid, _, addr| named.add(image, nid, addr))?;
    let mut found = Unnamed {
        twice: std::mem::take(&mut named.twice),
        disputed: std::mem::take(&mut named.disputed),
        ..Unnamed::default()
    };
    each_entry(image, &mut |image, nid, ino, addr| {
        let at = *footer(image.cache.get(addr)?);
        if nid == ino
            && !found.twice.is_empty()
            && let Some(first) = first_block(image, addr)?.filter(|first| found.twice.contains(first))
        {
            found.namers.entry(first).or_default().push(ino);
        }
        // Place 0 is the inode's.
        let is_own = (at.nid.get(), at.ino.get()) == (nid, ino) && nid != ino && at.node_offset() != 0;
        if is_own && !test_bit(&named.nids, nid as usize) && image.is_valid(addr)? {
            found.nodes.entry(ino).or_default().push((at.node_offset(), nid));
        }
        Ok(())
    })?;
    for nodes in found.nodes.values_mut() {
        nodes.sort_unstable();
        leave_single(nodes, |(place, _)| u64::from(*place));
    }
    find_blocks(image, &named, &mut found)?;
    Ok(found)
}

/// What nodes name.
struct Named {
    blocks: Vec<u8>,
    nids: Vec<u8>,
    /// Blocks that more than one slot names.
    twice: HashSet<BlockAddr>,
    /// The slot that names a block, where the summary names another one.
    disputed: HashMap<BlockAddr, (Nid, u16)>,
}

impl Named {
    fn add(&mut self, image: &mut Image<'_>, nid: Nid, addr: BlockAddr) -> io::Result<()> {
        let flexible = image.flexible();
        let max_nid = image.g.max_nid();
        let block = image.cache.get(addr)?;
        let at = footer(block);
        if at.nid.get() != nid {
            return Ok(());
        }
        let mut before = 0;
        let (addrs, nids): (&[_], &[_]) = match node_kind(at.node_offset()) {
            _ if at.ino.get() == nid => {
                let inode: &RawInode = block.view();
                let extra = inode.possible_slots(flexible).map_or(0, |slots| slots.extra);
                let addrs = if has_no_addresses(inode) { &[] } else { &inode.i_addr[extra..] };
                set(&mut self.nids, inode.i_xattr_nid.get(), max_nid);
                before = offset_of!(RawInode, i_addr) / size_of::<BlockAddr>() + extra;
                (addrs, &inode.i_nid)
            }
            NodeKind::Direct => (&block.view::<RawDirectNode>().addr, &[]),
            NodeKind::Indirect => (&[], &block.view::<RawIndirectNode>().nid),
            NodeKind::Inode | NodeKind::Xattr => (&[], &[]),
        };
        nids.iter().for_each(|named| set(&mut self.nids, named.get(), max_nid));
        let addrs: Vec<BlockAddr> = addrs.iter().map(|named| named.get()).collect();
        self.add_blocks(image, nid, &addrs, before)
    }

    /// Adds what the slots of a node name; `before` is how many slots would fit before the first.
    fn add_blocks(
        &mut self,
        image: &mut Image<'_>,
        nid: Nid,
        addrs: &[BlockAddr],
        before: usize,
    ) -> io::Result<()> {
        let (main, end) = (image.g.main_blkaddr, (self.blocks.len() * 8) as u32);
        let (version, is_blank) = (image.nat(nid)?.version, image.blank.contains(&nid));
        let (mut disputed, mut agreed) = (Vec::new(), BTreeSet::new());
        let sector = |slot: usize| (before + slot) / (SECTOR / size_of::<BlockAddr>());
        for (slot, &named) in addrs.iter().enumerate().filter(|(_, named)| named.wrapping_sub(main) < end) {
            let bit = (named - main) as usize;
            if test_bit(&self.blocks, bit) && self.twice.len() < MAX_BLOCKS {
                self.twice.insert(named);
            }
            set_bit(&mut self.blocks, bit);
            let owner = Owner::slot(nid, slot as u16, version);
            match recorded(image, named, Kind::Data)? {
                Some(sum) if !owner.is_now_of(&sum) => disputed.push((named, slot, sum)),
                _ => drop(agreed.insert(sector(slot))),
            }
        }
        // Of a node with a sector of another one all blocks that are named there are that one's, at their slots.
        let is_at_home = |of: Nid, (_, slot, sum): &(_, usize, RawSummary)| {
            sum.nid.get() == of && usize::from(sum.ofs_in_node.get()) == *slot
        };
        for named in disputed.chunk_by(|a, b| sector(a.1) == sector(b.1)) {
            let (of, is_whole) = (named[0].2.nid.get(), agreed.is_empty() || named.len() > 1);
            let is_copy = is_whole
                && !agreed.contains(&sector(named[0].1))
                && named.iter().all(|named| is_at_home(of, named));
            if !is_copy && !is_blank && self.disputed.len() < MAX_BLOCKS {
                self.disputed.extend(named.iter().map(|&(named, slot, _)| (named, (nid, slot as u16))));
            }
        }
        Ok(())
    }
}

fn set(bits: &mut [u8], at: u32, end: u32) {
    if at < end {
        set_bit(bits, at as usize);
    }
}

/// The first block that the inode at an address names.
pub(crate) fn first_block(image: &mut Image<'_>, addr: BlockAddr) -> io::Result<Option<BlockAddr>> {
    let (flexible, g) = (image.flexible(), image.g.clone());
    let inode: &RawInode = image.cache.get(addr)?.view();
    let Some(slots) = inode.possible_slots(flexible).filter(|_| !has_no_addresses(inode)) else {
        return Ok(None);
    };
    let mut named = inode.i_addr[slots.extra..].iter().map(|addr| addr.get()).take(slots.addrs());
    Ok(named.find(|&addr| g.in_main(addr)))
}

/// The nodes that the NAT leads to: each with its inode, and its block.
fn each_entry(
    image: &mut Image<'_>,
    each: &mut dyn FnMut(&mut Image<'_>, Nid, Ino, BlockAddr) -> io::Result<()>,
) -> io::Result<()> {
    for index in 0..image.g.nat_blocks() {
        for (nid, entry) in image.nodes_in(index)? {
            let addr = entry.block_addr.get();
            if image.g.in_main(addr) {
                each(image, nid, entry.ino.get(), addr)?;
            }
        }
    }
    Ok(())
}

fn find_blocks(image: &mut Image<'_>, named: &Named, found: &mut Unnamed) -> io::Result<()> {
    let mut count = 0;
    for segno in 0..image.g.segment_count_main {
        let entry = image.sit(segno)?;
        let Some(sum) = image.data_summary(segno, entry.seg_type())? else { continue };
        for at in 0..BLOCKS_PER_SEG as usize {
            let bit = segno as usize * BLOCKS_PER_SEG as usize + at;
            let (owner, nid) = (sum.entries[at], sum.entries[at].nid.get());
            let is_unnamed = test_bit(&entry.valid_map, at) && !test_bit(&named.blocks, bit);
            if !is_unnamed || !image.g.is_nid(nid) || image.nat(nid)?.version != owner.version {
                continue;
            }
            if let Some(ino) = ino_of_slot(image, nid, owner.ofs_in_node.get())?
                && count < MAX_BLOCKS
            {
                let blocks = found.blocks.entry(nid).or_default();
                if blocks.is_empty() {
                    found.holders.entry(ino).or_default().push(nid);
                }
                blocks.push((owner.ofs_in_node.get(), image.g.seg_start(segno) + at as u32));
                count += 1;
            }
        }
    }
    for blocks in found.blocks.values_mut() {
        blocks.sort_unstable();
        leave_single(blocks, |(slot, _)| u64::from(*slot));
    }
    found.holders.values_mut().for_each(|nids| nids.sort_unstable());
    Ok(())
}

/// Whose a slot for addresses is; `None` where no such node is there.
fn ino_of_slot(image: &mut Image<'_>, nid: Nid, slot: u16) -> io::Result<Option<Ino>> {
    let (entry, flexible) = (image.nat(nid)?, image.flexible());
    let addr = entry.block_addr.get();
    if !image.g.in_main(addr) {
        return Ok(None);
    }
    let block = image.cache.get(addr)?;
    let at = footer(block);
    let slots = match node_kind(at.node_offset()) {
        _ if (at.nid.get(), at.ino.get()) != (nid, entry.ino.get()) => 0,
        _ if at.ino.get() == nid => most_addresses(block.view(), flexible),
        NodeKind::Direct => ADDRS_PER_BLOCK,
        _ => 0,
    };
    Ok((usize::from(slot) < slots).then_some(entry.ino.get()))
}

/// The node that is named at a place of a file, as its inode and the nodes on the way say; 0 where that is none.
pub(crate) fn named_at(image: &mut Image<'_>, ino: Ino, offset: u32) -> io::Result<Nid> {
    if offset == 0 || offset == XATTR_NODE_OFFSET {
        return Ok(0);
    }
    let (nid, at) = match above(offset) {
        Some((above, at)) => (named_at(image, ino, above)?, at),
        None => (ino, BELOW_INODE.iter().position(|below| *below == offset).expect("it is below the inode")),
    };
    if nid == ino && above(offset).is_some() {
        return Ok(0); // the inode names itself as the node above
    }
    let addr = if image.g.is_nid(nid) { image.nat(nid)?.block_addr.get() } else { NULL_ADDR };
    if !image.g.in_main(addr) {
        return Ok(0);
    }
    let block = image.cache.get(addr)?;
    Ok(match nid == ino {
        true => block.view::<RawInode>().i_nid[at].get(),
        // A damaged footer may name a place that no file has.
        false => block.view::<RawIndirectNode>().nid.get(at).map_or(0, |nid| nid.get()),
    })
}
