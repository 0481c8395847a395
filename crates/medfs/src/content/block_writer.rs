//! The one place where data blocks get their addresses.
//!
//! Purpose: for each block the placement policy is asked, the segments hand the block out, its owner goes
//! into the summary, and it is counted. Addresses in nodes are the caller's business.
//! Invariant: a data block is handed out here alone, whether its page is written, moved, copied, compressed
//! or recovered. Locks: the inode's lock, exclusive, and the operation lock are held by callers; `segs` and
//! `space` are taken one after the other.

use crate::content::placement::{PageRef, Placement, Target};
use crate::error::Result;
use crate::map::Map;
use crate::map::node_tree::Slot;
use crate::stats::Counters;
use medfs_device::Temperature;
use medfs_format::summary::{Log, RawSummary};
use medfs_format::{BlockAddr, NULL_ADDR, is_block};
use medfs_store::{Planned, Withheld};

/// Hands out data blocks of a volume.
pub(crate) struct BlockWriter<'a> {
    pub(super) map: &'a Map,
    pub(super) placement: &'a dyn Placement,
}

impl BlockWriter<'_> {
    /// Gives a page its block, in place of the one that its slot names, if any; tells too whether the page was to be
    /// overwritten, and must not. `NoSpace`, with nothing changed, where there is none.
    pub(crate) fn assign(&self, slot: &Slot, page: &PageRef) -> Result<(BlockAddr, bool)> {
        let target = self.placement.target(page, slot, &self.map.store);
        if target == Target::InPlace && self.is_barred(page) {
            let beside = PageRef { own: None, ..*page };
            let target = self.placement.target(&beside, slot, &self.map.store);
            return Ok((self.assign_to(target, slot, &beside)?, true));
        }
        Ok((self.assign_to(target, slot, page)?, false))
    }

    /// The same by what the policy said.
    fn assign_to(&self, mut target: Target, slot: &Slot, page: &PageRef) -> Result<BlockAddr> {
        if let Target::At(addr) = target {
            match self.assign_at(slot, page, addr)? {
                true => {
                    if page.stays() {
                        self.plan(addr, Planned::Stays);
                    }
                    self.map.space.wrote(1);
                    return Ok(addr);
                }
                false => target = Target::Append(page.log()),
            }
        }
        let addr = match target {
            Target::InPlace | Target::At(_) => {
                Counters::add(&self.map.counters.in_place_blocks, 1);
                let own = page.own.unwrap_or(NULL_ADDR);
                self.plan(own, Planned::InPlace(page.batch.ino));
                own
            }
            Target::Append(log) => {
                let (owner, old) = (self.owner(slot)?, slot.addr());
                let at = (self.map.elapsed(), page.batch.purpose.spare());
                let addr = self.map.segs.lock().replace(&self.map.io, log, owner, at, old)?;
                if page.batch.pinned {
                    self.plan(addr, Planned::Stays);
                }
                addr
            }
        };
        debug_assert!(is_block(addr), "a block of its own, or a new one");
        self.map.space.wrote(1);
        Ok(addr)
    }

    /// Tells the seals what becomes of a block that is about to be written.
    fn plan(&self, addr: BlockAddr, planned: Planned) {
        if let Some(seals) = &self.map.seals {
            seals.plan(addr, planned);
        }
    }

    /// Whether a page's block must stay as it is because a sealed node or a record in NVRAM depends on it.
    fn is_barred(&self, page: &PageRef) -> bool {
        let durable = self.map.io.durable_writes();
        let sealed = |own| self.map.seals.as_ref().is_some_and(|seals| seals.bars(own, durable));
        page.own.is_some_and(|own| sealed(own) || self.map.since.in_nvram.needs(own))
    }

    /// Gives a page a block that is reserved for its file; `false` where it was given back meanwhile.
    fn assign_at(&self, slot: &Slot, page: &PageRef, addr: BlockAddr) -> Result<bool> {
        let (owner, now, old) = (self.owner(slot)?, self.map.elapsed(), slot.addr());
        let segno = self.map.geo.segno(addr);
        let mut segs = self.map.segs.lock();
        if segs.free.withheld(segno) != Some(Withheld::Reserved(page.batch.ino)) {
            return Ok(false);
        }
        let mut reserving = segs.reserving(&self.map.io);
        if !reserving.is_writable(addr)? {
            return Ok(false);
        }
        reserving.replace((addr, page.log()), owner, now, old)?;
        Ok(true)
    }

    /// New blocks for these slots beside those that they name: all of them, or none.
    pub(crate) fn assign_beside(&self, slots: &[Slot], page: &PageRef) -> Result<Vec<BlockAddr>> {
        let (now, spare) = (self.map.elapsed(), page.batch.purpose.spare());
        let page = PageRef { own: None, ..*page };
        let mut new = Vec::with_capacity(slots.len());
        for slot in slots {
            let owner = self.owner(slot)?;
            let log = match self.placement.target(&page, slot, &self.map.store) {
                Target::Append(log) => log,
                Target::InPlace | Target::At(_) => page.log(),
            };
            let mut segs = self.map.segs.lock();
            match segs.allocate(&self.map.io, log, owner, now, spare) {
                Ok(addr) => new.push(addr),
                Err(e) => {
                    new.iter().try_for_each(|&addr| segs.mark_invalid(&self.map.io, addr, now))?;
                    return Err(e.into());
                }
            }
        }
        self.map.space.wrote(new.len() as u64);
        Ok(new)
    }

    /// For roll-forward: makes `addr`, written before power was lost, the block of a slot in place of the one it names.
    /// A volume that is only read needs no SIT for that.
    pub(crate) fn replay(&self, slot: &Slot, addr: BlockAddr, log: Log) -> Result<()> {
        let (owner, now, old) = (self.owner(slot)?, self.map.elapsed(), slot.addr());
        let mut segs = self.map.segs.lock();
        if is_block(old) {
            segs.mark_invalid(&self.map.io, old, now)?;
        }
        if is_block(addr) && !self.map.has_lost_use_of(&mut segs, addr) {
            segs.set_owner(&self.map.io, addr, log, owner)?;
            segs.mark_valid(&self.map.io, addr, now)?;
        }
        Ok(())
    }

    /// Who owns the block of a slot, as the SSA has it.
    fn owner(&self, slot: &Slot) -> Result<RawSummary> {
        Ok(RawSummary {
            nid: slot.node.nid.into(),
            version: self.map.node_version(slot.node.nid)?,
            ofs_in_node: slot.offset.into(),
        })
    }
}

/// How often the blocks of a log change, as the device is told.
pub(crate) fn temperature(log: Log) -> Temperature {
    match log {
        Log::HotData | Log::HotNode => Temperature::Hot,
        Log::WarmData | Log::WarmNode => Temperature::Warm,
        Log::ColdData | Log::ColdNode => Temperature::Cold,
    }
}
