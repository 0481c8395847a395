//! Judges bases made of blocks of other files ([`crate::slices`]) when the walk is through, as those files
//! may come later than the one that needs them.

use crate::deltas::{self, Bases, Delta, Faulty, most_pages, zone_range};
use crate::finding::Code;
use crate::judgement::Judgement;
use crate::names::inode_name;
use crate::own_list::settle_list;
use crate::zone::store_zone;
use medfs_format::Ino;
use medfs_format::node::RawInode;
use std::collections::BTreeSet;
use std::io;

impl Judgement<'_> {
    /// Judges all records with slices, and drops those that are wrong.
    pub(crate) fn settle_slices(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.slices.waiting);
        let logged = std::mem::take(&mut self.slices.logged);
        let mut listed = BTreeSet::new();
        for ino in waiting.iter().filter(|ino| !logged.contains(ino)) {
            if self.settle_dependent(ino)? {
                listed.insert(ino);
            }
        }
        settle_list(self, &listed)
    }

    /// Judges the records of a file that have slices; tells whether there are some that are right.
    fn settle_dependent(&mut self, ino: Ino) -> io::Result<bool> {
        let addr = self.image.nat(ino)?.block_addr.get();
        let mut block = self.image.cache.read(addr)?;
        let inode: &mut RawInode = block.view_mut();
        if self.rules.vet(inode, ino).is_err() {
            return Ok(false);
        }
        let flexible = self.rules.flexible();
        let Some(range) = zone_range(inode, flexible) else { return Ok(false) };
        let deltas = deltas::load(&mut self.image, inode, ino)?;
        let most = most_pages(inode, flexible, ino);
        let compact = most < medfs_format::path::max_pages(inode.slots(flexible).fanout());
        let mut faulty = Faulty { marks_below: if compact { most } else { 0 }, ..Faulty::default() };
        let (mut still, mut sliced) = (false, false);
        let mut note = |needs: Option<bool>| {
            still |= needs == Some(true);
            sliced |= needs.is_some();
        };
        // Of two records of a page in a zone, which the walk has found, the newer counts.
        let mut seen = BTreeSet::new();
        for delta in deltas.zone.iter().rev().filter(|d| seen.insert(d.index)) {
            note(self.judge_slices(ino, inode, delta, most, &mut faulty)?);
        }
        if !faulty.pages.is_empty() {
            store_zone(inode, range, &faulty.without(deltas.zone.iter().cloned()));
        }
        for (&sequence, &page) in &deltas.pages {
            let records = deltas.page(&mut self.image, ino, page)?;
            let mut faulty = Faulty { marks_below: most, ..Faulty::default() };
            for delta in records.iter().filter(|d| deltas.counts(sequence, d.index)) {
                note(self.judge_slices(ino, inode, delta, most, &mut faulty)?);
            }
            self.rewrite_compact(page, records, &faulty)?;
        }
        if !still {
            // What it needed it needs no more: it may be a source of those that come later.
            self.slices.dependents.remove(ino);
        }
        if !faulty.pages.is_empty() {
            self.write_inode(addr, &mut block)?;
        }
        Ok(sliced)
    }

    /// Judges a record: where it has slices and is right, whether it needs other files.
    fn judge_slices(
        &mut self,
        ino: Ino,
        inode: &RawInode,
        delta: &Delta,
        most: u64,
        faulty: &mut Faulty,
    ) -> io::Result<Option<bool>> {
        if delta.slices.is_empty() || u64::from(delta.index) >= most {
            return Ok(None);
        }
        let mut verdict = self.sources_of(ino, delta);
        if verdict.is_ok() {
            let mut bases = Bases::new(&self.rules, &mut self.codecs);
            verdict = bases.judge(&mut self.image, inode, &delta.record())?;
        }
        match verdict {
            Ok(()) => Ok(Some(delta.slices.iter().any(|s| s.ino.get() != ino))),
            Err((code, why)) => {
                self.drop_delta((ino, &inode_name(ino, inode)), delta, code, &why, faulty);
                Ok(None)
            }
        }
    }

    /// Whether the files that a record's slices name may be sources.
    fn sources_of(&self, ino: Ino, delta: &Delta) -> Result<(), (Code, String)> {
        for source in delta.slices.iter().map(|s| s.ino.get()).filter(|&s| s != ino) {
            if !self.image.g.is_nid(source) || !self.space.nid_reached(source) {
                let why = format!("its base has a slice of inode {source}, which does not exist");
                return Err((Code::SliceSource, why));
            }
            if self.slices.dependents.contains(source) {
                let why = format!(
                    "its base has a slice of inode {source}, which is itself made of slices of others"
                );
                return Err((Code::SliceDepth, why));
            }
        }
        Ok(())
    }
}
