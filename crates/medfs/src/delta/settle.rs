//! Places for records that the zone had no room for: compact pages, or none.
//!
//! Locks: the inode's, exclusive, and the operation lock.

use super::compact_write::{Yield, pack};
use super::layer::DeltaPages;
use super::zone::has_nodes;
use crate::content::page_plan::Pending;
use crate::content::placement::Purpose;
use crate::content::record::{OwnedRecord, total_size};
use crate::error::{Error, Result};
use crate::map::inode::{Inode, InodeState};
use crate::stats::Counters;
use medfs_format::Ino;
use std::sync::Arc;

/// Records that a compact page must take at least, for each one made, to be worth its block and that of its node.
const WORTH_A_COMPACT_PAGE: usize = 3;

impl DeltaPages<'_> {
    /// Finds places for records that the zone had no room for: the zone's oldest records, and then these, go
    /// into compact pages until the rest fits the zone. Returns the pages that must be written as a whole
    /// instead.
    pub(crate) fn settle_pending(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        mut pending: Vec<Pending>,
    ) -> Result<Vec<u64>> {
        let mut whole = Vec::new();
        while !pending.is_empty() {
            let plan = self.plan(inode, &pending)?;
            if plan.is_worth_it() || pending.iter().all(|p| p.must) {
                match self.carry_out(inode, state, plan) {
                    Ok(()) => {
                        for p in &pending {
                            match &p.leaves {
                                Some(slot) => self.leave_block(inode, state, &p.record, slot)?,
                                None => self.record_kept(inode, state, &p.record),
                            }
                        }
                        break;
                    }
                    Err(Error::NoSpace) => {}
                    Err(e) if self.is_damage(&e) => {
                        self.note_damage("no compact page is made", inode.ino, &e)
                    }
                    Err(e) => return Err(e),
                }
            }
            let largest = (0..pending.len()).max_by_key(|&i| (!pending[i].must, pending[i].record.size()));
            let given_up = pending.swap_remove(largest.expect("not empty"));
            whole.extend(self.give_up_pending(inode.ino, vec![given_up]));
        }
        Ok(whole)
    }

    /// The pages of records for which there is no place.
    pub(crate) fn give_up_pending(&self, ino: Ino, pending: Vec<Pending>) -> Vec<u64> {
        pending.iter().for_each(|p| self.refs.disclaim(ino, p.record.index));
        pending.iter().map(Pending::index).collect()
    }

    fn plan(&self, inode: &Inode, pending: &[Pending]) -> Result<Plan> {
        let mut records = self.zone(inode).records()?;
        records.retain(|r| pending.iter().all(|p| p.record.index != r.index));
        records.extend(pending.iter().map(|p| p.record.clone()));
        let room = if self.deltas.has_inline() { self.zone(inode).frozen_room() } else { 0 };
        if self.deltas.alone.is_some() {
            // Like with like, so that small ones fill a block.
            records.sort_by_key(OwnedRecord::size);
        }
        Ok(Plan::of(records, room, self.deltas.most_sharing()))
    }

    /// Of blocked pages, those that only other pages of the same file need: these become whole in the same
    /// change of the inode, after which the former may be written too. Returns them. At most `room` pages become whole;
    /// what needs more stays blocked.
    pub(crate) fn free_of_own(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        blocked: &mut Vec<u64>,
        room: &mut usize,
        purpose: Purpose,
    ) -> Result<Vec<u64>> {
        let mut freed = Vec::new();
        for index in std::mem::take(blocked) {
            let others = match purpose {
                Purpose::Checkpoint => self.refs.others_need_now(inode.ino, index..index + 1),
                _ => self.refs.others_need(inode.ino, index..index + 1),
            };
            let mut dependents = if others { Vec::new() } else { self.refs.own(inode.ino, index..index + 1) };
            let waits = others || dependents.len() > *room;
            dependents.truncate(*room);
            *room -= dependents.len();
            self.make_whole_or_give_up(inode, state, &dependents)?;
            Counters::add(&self.deltas.counters.released, dependents.len() as u64);
            if waits { blocked.push(index) } else { freed.push(index) }
        }
        Ok(freed)
    }

    fn carry_out(&self, inode: &Arc<Inode>, state: &mut InodeState, plan: Plan) -> Result<()> {
        let before = self.zone(inode).records()?;
        let first = !has_nodes(inode) || !self.has_compact(inode);
        if self.zone_header(inode)?.is_none() && !self.zone(inode).grow(0)? {
            return Err(Error::NoSpace);
        }
        self.zone(inode).store(&plan.stay);
        plan.stay.iter().for_each(|record| self.compact().mask_compact(inode, record.index));
        if plan.pages.is_empty() {
            return Ok(());
        }
        if first {
            self.zone(inode).freeze()?;
            self.zone(inode).set_compact(true, 0);
        }
        let written = self.compact().write_compact(inode, state, plan.pages, Yield::IfItPays);
        if written.is_err() && !self.zone(inode).store(&before) {
            // The zone has shrunk: what it held and holds no more is written as a whole.
            let stay = self.zone(inode).records()?;
            for record in before.iter().filter(|r| r.is_delta() && stay.iter().all(|s| s.index != r.index)) {
                self.load_whole(inode, state, record)?;
            }
        }
        written
    }
}

/// Where the records of a zone and those it has no room for are to go.
struct Plan {
    /// Into compact pages.
    pages: Vec<Vec<OwnedRecord>>,
    /// Into the zone.
    stay: Vec<OwnedRecord>,
}

impl Plan {
    /// Fills compact pages with the oldest records until the rest fits `room` bytes.
    fn of(records: Vec<OwnedRecord>, room: usize, sharing: usize) -> Plan {
        let mut left = total_size(&records);
        let mut pages = pack(records, sharing);
        let fits_from = pages.iter().position(|page| {
            let fits = left <= room;
            left -= total_size(page);
            fits
        });
        let stay = pages.split_off(fits_from.unwrap_or(pages.len()));
        Plan { pages, stay: stay.into_iter().flatten().collect() }
    }

    /// Whether it saves more blocks than it writes.
    fn is_worth_it(&self) -> bool {
        let moved: usize = self.pages.iter().map(|page| page.iter().filter(|r| r.is_delta()).count()).sum();
        moved >= WORTH_A_COMPACT_PAGE * self.pages.len()
    }
}
