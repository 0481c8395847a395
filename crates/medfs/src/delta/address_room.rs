//! The zone gives way to addresses, and a log gets its pages ahead of need.
//!
//! Locks: the inode's, exclusive, and the operation lock.

use super::layer::DeltaPages;
use super::zone::{GROWTH_SLOTS, LOG_SLOTS, has_nodes, may_have_one, zone_bytes};
use crate::content::record::total_size;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::stats::Counters;
use medfs_format::delta::{self, ZONE_HEADER_SIZE};
use medfs_format::node::{DEF_ADDRS_PER_INODE, DEFAULT_INLINE_XATTR_ADDRS};
use medfs_format::{NEW_ADDR, NULL_ADDR};
use std::sync::Arc;

/// Pages that a log gets ahead of need.
const RESERVED_AHEAD: usize = 63;

impl DeltaPages<'_> {
    /// Makes room for the address of page `index` before it is looked for: a zone gives way, oldest deltas
    /// first (case 1), and freezes at its final size where the file is about to get its first direct node.
    /// Tells whether the inode's slots are divided anew: slots found before are of no use then.
    pub(crate) fn make_address_room(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        index: u64,
    ) -> Result<bool> {
        if !self.is_delta_volume() {
            return Ok(false);
        }
        let slots = self.slots(inode);
        if index >= delta::compact_start(slots.fanout()) {
            self.compact().leave_compact(inode, state)?;
        }
        let most = DEF_ADDRS_PER_INODE - slots.extra;
        let frozen = self.zone(inode).frozen_slots();
        let behind = index >= slots.addrs() as u64;
        // The last moment at which a file that has no zone yet can still get one.
        let kept = (most - frozen) / slots.cluster * slots.cluster;
        let reserving = slots.inline_xattr < frozen && index >= kept as u64;
        if !(behind || reserving) || !may_have_one(inode) || has_nodes(inode) {
            return Ok(false);
        }
        if reserving && self.deltas.makes_records() {
            let fits = self.zone(inode).used_addrs() <= kept;
            return Ok(fits && self.zone(inode).set_inline_size(frozen)?);
        }
        if !behind {
            return Ok(false);
        }
        let needed = usize::try_from(index + 1).unwrap_or(most).min(most).next_multiple_of(slots.cluster);
        let wanted = most.saturating_sub(needed + GROWTH_SLOTS);
        let size = wanted.max(frozen).max(DEFAULT_INLINE_XATTR_ADDRS).min(slots.inline_xattr);
        if size < slots.inline_xattr {
            self.shrink_zone(inode, state, size)?;
        }
        Ok(self.slots(inode) != slots)
    }

    /// Reserves the pages behind one that a log has just got outside its inode, so that the node with their
    /// addresses need not be written with each of them. Where there is no room, they are reserved when they
    /// come.
    pub(crate) fn reserve_ahead(&self, inode: &Inode, slot: &Slot, index: u64) {
        if slot.is_inode()
            || !self.is_delta_volume()
            || !may_have_one(inode)
            || self.zone(inode).frozen_slots() != LOG_SLOTS
        {
            return;
        }
        for next in (index + 1..).take(RESERVED_AHEAD).map_while(|next| slot.step_to(next)) {
            if next.addr() != NULL_ADDR || self.space.reserve(1).is_err() {
                return;
            }
            self.set_addr(inode, &next, NEW_ADDR);
            self.count_block(inode);
        }
    }

    pub(super) fn shrink_zone(&self, inode: &Arc<Inode>, state: &mut InodeState, size: usize) -> Result<()> {
        let room = zone_bytes(size);
        loop {
            let records = self.zone(inode).records()?;
            match records.first() {
                Some(oldest) if total_size(&records) + ZONE_HEADER_SIZE > room => {
                    let made = self.make_whole(inode, state, oldest.index.into());
                    if self.pass_by("a zone stays as large as it is", inode.ino, made)?.is_none() {
                        return Ok(());
                    }
                    Counters::add(&self.deltas.counters.evicted_by_growth, 1);
                }
                // Where attributes are in the way, the file gets a direct node and keeps its zone as it is.
                _ => return self.zone(inode).set_inline_size(size).map(drop),
            }
        }
    }
}
