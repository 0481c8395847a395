//! What a repaired volume must still show, by what was struck of it: see [`super`].

use super::*;
use crate::model::{Id, Inode, PAGE, ROOT};
use crate::observe::{compare, compare_attributes, compare_inode};
use medfs_format::BLOCKS_PER_SEG;

/// Whether power loss during the newest checkpoint leaves a volume like that: sectors of its first header are missing,
/// or its last one is, and nothing was fsynced behind it, or that is lost too.
fn seems_unfinished(targets: &[Target], hits: &[(Target, Damage)], has_log: bool) -> bool {
    let is_first = |t: &Target| t.part == Part::Pack(true) && t.block.is_multiple_of(BLOCKS_PER_SEG.into());
    let last = targets.iter().rfind(|t| t.part == Part::Pack(true));
    let is_torn = |damage| matches!(damage, Damage::Torn | Damage::TornOlder);
    let has_lost = |of: &dyn Fn(&Target) -> bool| hits.iter().any(|(target, _)| of(target));
    hits.iter().any(|(target, damage)| is_first(target) && is_torn(*damage))
        || has_lost(&|target| Some(target) == last)
            && (!has_log || has_lost(&|target| target.part == Part::Log))
}

impl Volume {
    pub(super) fn judge(&self, hits: &[(Target, Damage)], found: &Model) -> Result<(), Failure> {
        let struck: BTreeSet<u64> = hits.iter().map(|(t, _)| t.block).collect();
        let mut allowed = vec![&self.shown];
        let log = hits.iter().any(|hit| hit.0.part == Part::Log && !self.tells_its_bit(*hit))
            || self.loses_shared_nodes(&struck);
        if log {
            allowed.push(&self.at_checkpoint);
        }
        if hits.iter().any(|(t, _)| t.part == Part::Pack(true)) {
            allowed.push(&self.at_checkpoint);
            let has_log = compare(&self.shown, &self.at_checkpoint).is_err();
            if seems_unfinished(&self.targets, hits, has_log) {
                allowed.extend(&self.by_other_pack);
            }
        }
        let by_ino: BTreeMap<Ino, Id> = found.inodes().map(|(id, inode)| (inode.ino, id)).collect();
        for (id, inode) in self.shown.inodes() {
            let hit = self.is_hit(inode.ino, hits);
            let versions: Vec<&Inode> =
                allowed.iter().filter_map(|m| m.of_ino(inode.ino).map(|(_, i)| i)).collect();
            let path = self.shown.path_of(id);
            let Some(&at) = by_ino.get(&inode.ino) else {
                if hit && self.may_be_gone(inode, hits) || versions.len() < allowed.len() {
                    continue;
                }
                return fail("lost", format!("{path} (inode {})", inode.ino));
            };
            // A file that the checkpoint does not have is gone with the log: its number may be another's then.
            if versions.len() < allowed.len() && !self.has_a_name_of(id, found, at) {
                continue;
            }
            if log && versions.get(1).is_some_and(|before| compare_inode(before, inode).is_err()) {
                continue; // as at any of its fsyncs
            }
            let judged = versions.iter().map(|v| self.judge_inode(v, found.inode(at), hit, hits, &struck));
            if let Some(Err(e)) = judged.reduce(|first, next| first.or_else(|e| next.map_err(|_| e))) {
                let place = found.path_of(at);
                return fail("content", format!("{path} (inode {}), found as {place}: {e}", inode.ino));
            }
            if allowed.len() == 1 {
                self.judge_place(id, at, found, hits, &struck)?;
            }
        }
        Ok(())
    }

    /// Whether a block of the log with one flipped bit is a node whose checksum tells it.
    fn tells_its_bit(&self, (target, damage): (Target, Damage)) -> bool {
        let (sb, block) = (self.block(0), self.block(target.block));
        let f = footer(&block);
        let is_sealed = RawSuperblock::in_block(&sb).features().contains(Feature::INODE_CHECKSUM);
        damage == Damage::Flipped && is_sealed && f.nid == f.ino && f.node_offset() == 0
    }

    /// Whether what was found has one of the file's names, wherever.
    fn has_a_name_of(&self, id: Id, found: &Model, at: Id) -> bool {
        fn names(model: &Model, id: Id) -> BTreeSet<&[u8]> {
            model.names_of(id).iter().map(|(_, name)| &name[..]).collect()
        }
        !names(&self.shown, id).is_disjoint(&names(found, at))
    }

    /// Whether nothing says any more that the volume's log has shared nodes: where no file has deltas, the
    /// superblock alone does.
    fn loses_shared_nodes(&self, struck: &BTreeSet<u64>) -> bool {
        self.shared && [0, 1].iter().all(|copy| struck.contains(copy))
    }

    /// Whether a file with a struck block of its own may be lost: its inode was struck, or a flipped bit made
    /// it another file's.
    fn may_be_gone(&self, inode: &Inode, hits: &[(Target, Damage)]) -> bool {
        if self.is_left_without_inode(inode, hits) {
            return false;
        }
        let own = &self.own[&inode.ino];
        hits.iter().any(|(t, _)| own.contains(&t.block) && matches!(t.part, Part::Inode(_) | Part::Log))
    }

    /// The inodes of files of which something is left without them.
    pub fn inodes_of_spread_files(&self) -> Vec<Target> {
        let files: BTreeSet<u64> = self
            .own
            .iter()
            .filter(|(ino, _)| self.spread.contains(ino))
            .flat_map(|(_, own)| own)
            .copied()
            .collect();
        let is_one = |t: &&Target| t.part == Part::Inode(false) && files.contains(&t.block);
        self.targets.iter().filter(is_one).copied().collect()
    }

    /// Whether a file has lost its inode, and beside it nodes at most, and is made of what is left. What leads to it
    /// may be struck too.
    fn is_left_without_inode(&self, inode: &Inode, hits: &[(Target, Damage)]) -> bool {
        let Some(own) = self.own.get(&inode.ino) else { return false };
        let mut is_lost = false;
        for (target, damage) in hits {
            let is_own = own.contains(&target.block);
            match target.part {
                Part::Inode(_) if self.inodes.get(&target.block) == Some(&inode.ino) => {
                    is_lost = !Damage::IN_PART.contains(damage);
                }
                Part::Direct | Part::Indirect if is_own && Damage::IN_PART.contains(damage) => return false,
                Part::Direct | Part::Indirect | Part::Dentries | Part::Inode(_) => {}
                _ => return false,
            }
        }
        // Pages that are only reserved leave nothing.
        let is_struck = |block: &u64| hits.iter().any(|(target, _)| target.block == *block);
        let has_more = own.iter().any(|block| !self.inodes.contains_key(block) && !is_struck(block));
        is_lost
            && has_more
            && inode.kind == FileKind::Regular
            && self.spread.contains(&inode.ino)
            && self.is_division_known(inode, hits)
    }

    /// Whether something tells if a file that has lost its inode is divided into clusters: there are no such files,
    /// it has no direct nodes, no holes and no clusters, or compressed clusters in what is left.
    fn is_division_known(&self, inode: &Inode, hits: &[(Target, Damage)]) -> bool {
        let own = &self.own[&inode.ino];
        let has_nodes = self
            .targets
            .iter()
            .any(|t| own.contains(&t.block) && matches!(t.part, Part::Direct | Part::Indirect));
        let is_struck =
            |block: &u64| hits.iter().any(|(t, _)| t.block == *block && !matches!(t.part, Part::Inode(_)));
        let is_told = self.marked.get(&inode.ino).is_some_and(|marked| !marked.iter().all(is_struck));
        let is_plain = !self.compressed.contains_key(&inode.ino)
            && !hits.iter().any(|(t, _)| own.contains(&t.block) && t.part == Part::Direct);
        let is_dense = inode.content.pages().count() as u64 == inode.content.size().div_ceil(PAGE);
        self.compressed.is_empty() || !has_nodes || is_told || (is_plain && is_dense)
    }

    /// Judges a file that was made anew without its inode. What the inode had of deltas nobody else has, and where a
    /// direct node was in the file nobody knows who has lost both.
    fn judge_made_anew(&self, was: &Inode, is: &Inode, hits: &[(Target, Damage)]) -> Result<(), String> {
        let own = &self.own[&was.ino];
        let has_lost = |part: Part| hits.iter().any(|(t, _)| t.part == part && own.contains(&t.block));
        let (may_have_holes, deltas) = (has_lost(Part::Direct), &self.in_zone[&was.ino]);
        // A file that was cut ends within a compressed cluster, whose other pages are zeros.
        let unit = self.compressed.get(&was.ino).map_or(PAGE, |pages| pages * PAGE);
        let (size, end) = (is.content.size(), was.content.size().next_multiple_of(unit));
        let full = was.content.pages().filter(|(index, page)| {
            page.iter().any(|&b| b != 0)
                && !may_have_holes
                && !deltas.contains(index)
                && !self.is_of_shared_nodes(was, *index)
        });
        let least = full.map(|(index, _)| (index + 1) * PAGE).max().unwrap_or(0).min(was.content.size());
        if !(least..=end).contains(&size) {
            return Err(format!("size {size} instead of {}", was.content.size()));
        }
        for (index, _) in was.content.pages().chain(is.content.pages()) {
            if deltas.contains(&index) || self.is_of_shared_nodes(was, index) {
                continue;
            }
            let (was, is) = (was.content.page(index), is.content.page(index));
            let may_be_hole = may_have_holes || !self.whole_summaries;
            if was != is && (!may_be_hole || is.iter().any(|&b| b != 0)) {
                return Err(format!("page {index} is another one"));
            }
        }
        Ok(())
    }

    /// Whether a page may be what nodes of the log say that files share: deltas of the inode block that was lost.
    fn is_of_shared_nodes(&self, inode: &Inode, page: u64) -> bool {
        let before = self.at_checkpoint.of_ino(inode.ino);
        self.shared && before.is_none_or(|(_, before)| before.content.page(page) != inode.content.page(page))
    }

    /// Groups of blocks whose loss leaves a file without its inode and without something beside it: a node, or what
    /// leads to it.
    pub fn groups_with_inodes(&self) -> Vec<Vec<Target>> {
        let mut groups = Vec::new();
        let files =
            self.shown.inodes().filter(|(_, inode)| self.spread.contains(&inode.ino) && !inode.is_dir());
        for (id, inode) in files {
            let above = self.shown.names_of(id).iter().map(|(dir, _)| self.shown.inode(*dir).ino);
            let beside: BTreeSet<u64> = above
                .filter_map(|dir| self.own.get(&dir))
                .chain(self.own.get(&inode.ino))
                .flatten()
                .copied()
                .collect();
            let own = |t: &&Target| self.inodes.get(&t.block) == Some(&inode.ino);
            let Some(lost) = self.targets.iter().find(own) else { continue };
            let parts = [Part::Direct, Part::Indirect, Part::Dentries, Part::Inode(true)];
            let others = self.targets.iter().filter(|t| beside.contains(&t.block) && parts.contains(&t.part));
            groups.extend(others.map(|other| vec![*lost, *other]));
        }
        groups
    }

    /// Whether a struck block is one of a file's, or of a file that it is made from. One that has lost its inode
    /// alone has all the blocks that others are made from.
    fn is_hit(&self, ino: Ino, hits: &[(Target, Damage)]) -> bool {
        let only_lends = |(target, damage): &(Target, Damage)| {
            let owner = self.inodes.get(&target.block).filter(|owner| **owner != ino);
            hits.len() == 1
                && !Damage::IN_PART.contains(damage)
                && owner.is_some_and(|owner| self.spread.contains(owner))
        };
        let own = self.own.get(&ino);
        own.is_some_and(|own| hits.iter().any(|hit| own.contains(&hit.0.block) && !only_lends(hit)))
    }

    pub(super) fn is_struck(&self, ino: Ino, struck: &BTreeSet<u64>) -> bool {
        self.own.get(&ino).is_some_and(|own| !own.is_disjoint(struck))
    }

    fn judge_inode(
        &self,
        was: &Inode,
        is: &Inode,
        hit: bool,
        hits: &[(Target, Damage)],
        struck: &BTreeSet<u64>,
    ) -> Result<(), String> {
        if self.is_left_without_inode(was, hits) {
            return self.judge_made_anew(was, is, hits);
        }
        if hit {
            let own = &self.own[&was.ino];
            let nodes = |t: &Target| own.contains(&t.block);
            let only = |parts: &[Part]| hits.iter().all(|(t, _)| !nodes(t) || parts.contains(&t.part));
            let in_part = hits.iter().any(|(t, d)| nodes(t) && Damage::IN_PART.contains(d));
            // Others know what one flipped bit or sector of a node was, where nothing else is damaged.
            let alone = hits.len() == 1 && self.whole_summaries;
            if was.is_dir() || (in_part && !alone) || !only(&[Part::Direct, Part::Indirect, Part::Xattr]) {
                return Ok(());
            }
            if was.content.size() != is.content.size() {
                return Err(format!("size {} instead of {}", is.content.size(), was.content.size()));
            }
            let xattrs_only = only(&[Part::Xattr]);
            if self.reverting.contains(&was.ino) && !xattrs_only {
                return Ok(());
            }
            let known = hits.len() == 1 && !self.compressed.contains_key(&was.ino) && self.whole_summaries;
            for (index, _) in was.content.pages().chain(is.content.pages()) {
                let (was, is) = (was.content.page(index), is.content.page(index));
                if was != is && (xattrs_only || known || is.iter().any(|&b| b != 0)) {
                    return Err(format!("page {index} is another one"));
                }
            }
            return Ok(());
        }
        let in_struck = |ino: Ino| {
            let names = self.shown.of_ino(ino).into_iter();
            names
                .flat_map(|(id, _)| self.shown.names_of(id))
                .any(|(dir, _)| self.is_struck(self.shown.inode(*dir).ino, struck))
        };
        if was.is_dir() || in_struck(was.ino) {
            let mut was = was.clone();
            // A directory's time is that of its last new entry, and its links are those of the directories in it.
            (was.nlink, was.mtime) = (is.nlink, if was.is_dir() { None } else { was.mtime });
            return if was.is_dir() { compare_attributes(&was, is) } else { compare_inode(&was, is) };
        }
        // Names of another directory in a block may be more names of a file that has many.
        let has_others = hits.iter().any(|hit| (hit.0.part, hit.1) == (Part::Dentries, Damage::TornOlder));
        if has_others && was.nlink > 1 && is.nlink > was.nlink {
            return compare_inode(&Inode { nlink: is.nlink, ..was.clone() }, is);
        }
        compare_inode(was, is)
    }

    /// Every name is at its place, unless a directory on the way was struck.
    fn judge_place(
        &self,
        id: Id,
        at: Id,
        found: &Model,
        hits: &[(Target, Damage)],
        struck: &BTreeSet<u64>,
    ) -> Result<(), Failure> {
        let inode = self.shown.inode(id);
        if self.is_struck(inode.ino, struck) && !self.is_left_without_inode(inode, hits) {
            return Ok(());
        }
        for &(dir, ref name) in self.shown.names_of(id) {
            let mut above = dir;
            let mut whole = true;
            loop {
                whole &= !self.is_struck(self.shown.inode(above).ino, struck);
                match self.shown.names_of(above).first() {
                    Some((next, _)) if above != ROOT => above = *next,
                    _ => break,
                }
            }
            let path = format!("{}/{}", self.shown.path_of(dir), String::from_utf8_lossy(name));
            let dir_ino = self.shown.inode(dir).ino;
            let here = found.of_ino(dir_ino).map(|(id, _)| id);
            let there = here.and_then(|here| found.lookup(here, name).ok());
            if whole && there != Some(at) {
                return fail("place", format!("{path} (inode {})", inode.ino));
            }
        }
        Ok(())
    }
}
