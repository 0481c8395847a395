//! How many blocks a file has, as `i_blocks` counts them.

use crate::error::Result;
use crate::map::Map;
use crate::map::inode::Inode;
use crate::map::node_tree::{child_offset, read_nid, subtree};
use medfs_format::node::{Inline, NIDS_PER_BLOCK, RawDirectNode, RawInode};
use medfs_format::{COMPRESS_ADDR, NULL_ADDR};

/// The blocks that an inode and its nodes lead to, with these themselves. The caller holds the file's lock.
pub(crate) fn count_blocks(map: &Map, inode: &Inode) -> Result<u64> {
    let slots = map.slots(inode);
    let released = inode.raw(RawInode::saved_blocks_released);
    let is_block = |addr: u32| addr != NULL_ADDR && !(released && addr == COMPRESS_ADDR);
    let mut count = inode.raw(|r| {
        let is_inline = r.inline().intersects(Inline::DATA | Inline::DENTRY);
        let addrs = if is_inline { 0 } else { slots.addrs() };
        let own = r.i_addr[slots.extra..][..addrs].iter().filter(|addr| is_block(addr.get())).count();
        1 + own as u64 + u64::from(r.i_xattr_nid.get() != 0)
    });
    let mut waiting: Vec<_> = (0..5)
        .map(|at| {
            let (level, offset, _) = subtree(slots.fanout(), at);
            (read_nid(&inode.node, at), level, offset)
        })
        .collect();
    while let Some((nid, level, offset)) = waiting.pop() {
        if nid == 0 {
            continue;
        }
        let node = map.child(inode, nid, offset)?;
        count += 1;
        match level {
            0 => {
                count += node.read(|d| {
                    let addrs = &d.block.view::<RawDirectNode>().addr[..slots.addrs_per_block()];
                    addrs.iter().filter(|addr| is_block(addr.get())).count() as u64
                });
            }
            _ => waiting.extend(
                (0..NIDS_PER_BLOCK)
                    .map(|at| (read_nid(&node, at), level - 1, child_offset(offset, level - 1, at))),
            ),
        }
    }
    Ok(count)
}
