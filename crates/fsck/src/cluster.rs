//! Judging the compressed clusters of a file: their addresses, headers, checksums and content, and the count
//! of saved blocks.
//!
//! A cluster whose content is damaged stays where it is, like a block that cannot be read: reading it is an error,
//! which zeros would hide. A repair makes a hole of one whose addresses lead to what is another file's, or to
//! nothing that a cluster can be. What is merely counted wrong is counted anew.

use crate::address::{home, take_from_ones};
use crate::deltas::content_of;
use crate::file::FileWalk;
use crate::finding::Code;
use crate::image::CANNOT_BE_READ;
use crate::judgement::{Judgement, mend};
use crate::named::unnamed_block;
use crate::space::Owner;
use medfs_device::Cause;
use medfs_format::compress::{Cluster, Compression, turn_back};
use medfs_format::node::RawInode;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, COMPRESS_ADDR, NEW_ADDR, NULL_ADDR, is_block};
use std::io;
use zerocopy::little_endian::U32;

/// Where a cluster is: the slot of its first page, and that page.
struct ClusterAt<'p> {
    owner: Owner,
    page: u64,
    place: &'p str,
}

/// What a cluster is found to be.
enum Judged {
    /// It is not compressed. `is_changed`: marks were taken away or set right.
    Plain {
        is_changed: bool,
    },
    /// It stays as it is, but for addresses. `saved`: its slots that name no block.
    Sound {
        saved: u64,
        is_changed: bool,
    },
    Wrong(Code, String),
}

impl ClusterAt<'_> {
    /// Judges one cluster; addresses with a flipped bit become the right ones.
    fn judge(
        &self,
        j: &mut Judgement<'_>,
        f: &FileWalk,
        slots: &mut [U32],
        compression: Compression,
    ) -> io::Result<Judged> {
        let named = addresses(slots);
        self.turn_back_mark(j, slots, compression)?;
        let marked = addresses(slots);
        let found = match Cluster::of(&marked) {
            Ok(Cluster::Plain) => return Ok(Judged::Plain { is_changed: marked != named }),
            Ok(found) => found,
            Err(wrong) => {
                let filled = self.fill(j, slots, compression)?;
                return Ok(filled.unwrap_or_else(|| Judged::Wrong(Code::ClusterPlace, wrong.to_owned())));
            }
        };
        // Before its content counts: that of another file expands too.
        for (i, slot) in slots.iter_mut().enumerate() {
            *slot = home(j, self.owner.behind(i), self.page + i as u64, slot.get(), self.place)?.0.into();
        }
        let mended = addresses(slots);
        let (pages, is_changed) = (slots.len(), mended != named);
        let sound = || Judged::Sound { saved: found.saved(pages), is_changed };
        if j.unreadable_data(f, &mended, self.page, self.place)? {
            return Ok(sound());
        }
        let wrong = j.expand(compression, &mended, found)?;
        if (is_changed || wrong.is_some()) && self.took_mark_away(j, slots)? {
            return Ok(Judged::Plain { is_changed: true });
        }
        let Some(wrong) = wrong else { return Ok(sound()) };
        if let Some(filled) = self.fill(j, slots, compression)? {
            return Ok(filled);
        }
        for (i, &addr) in mended.iter().enumerate().filter(|(_, addr)| is_block(**addr)) {
            let is_in_main = j.image.g.in_main(addr);
            if !is_in_main || j.space.is_anothers(&mut j.image, addr, self.owner.behind(i))? {
                return Ok(Judged::Wrong(Code::ClusterContent, wrong));
            }
        }
        let (ClusterAt { page, place, .. }, name) = (self, &f.name);
        if let Some(bit) = turn_back_in(j, compression, &mended, found)? {
            let text = format!(
                "{place} ({name:?}): cluster at page {page}: its checksum is right with {bit} flipped"
            );
            j.findings.add(Code::ClusterBit, text);
            return Ok(sound());
        }
        let text = format!("{place} ({name:?}): cluster at page {page}: {wrong}; it stays where it is");
        j.findings.add(Code::ClusterDamaged, text);
        j.unreadable.insert(f.ino);
        Ok(sound())
    }

    /// Turns back the bit of a mark in a slot, of a compressed cluster or of a reserved place, where the cluster is one
    /// then.
    fn turn_back_mark(
        &self,
        j: &mut Judgement<'_>,
        slots: &mut [U32],
        compression: Compression,
    ) -> io::Result<()> {
        for at in 0..slots.len() {
            let mark = if at == 0 { COMPRESS_ADDR } else { NEW_ADDR };
            let named = slots[at].get();
            if (named ^ mark).count_ones() != 1 || j.image.g.in_main(named) {
                continue;
            }
            let mut cluster = addresses(slots);
            cluster[at] = mark;
            let is_one = match Cluster::of(&cluster) {
                Ok(Cluster::Plain) => true,
                Ok(found) => j.expand(compression, &cluster, found)?.is_none(),
                Err(_) => false,
            };
            if is_one {
                let text = format!(
                    "{}: address {named:#x} of page {} is none; with one bit flipped it is the mark {mark:#x}",
                    self.place,
                    self.page + at as u64
                );
                j.findings.add(Code::AddressBit, text);
                slots[at] = mark.into();
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes the mark away from a cluster that is not compressed, and fills its slots: one that is has no block of its
    /// first page.
    fn took_mark_away(&self, j: &mut Judgement<'_>, slots: &mut [U32]) -> io::Result<bool> {
        let Some(first) = self.theirs(j, 0)? else { return Ok(false) };
        slots[0] = first.into();
        for (i, slot) in slots.iter_mut().enumerate().skip(1) {
            if !is_block(slot.get()) {
                *slot = self.theirs(j, i)?.unwrap_or(slot.get()).into();
            }
        }
        let text = format!(
            "{}: cluster at page {}: it is marked as compressed, but block {first} is in use, and its summary names that page",
            self.place, self.page
        );
        j.findings.add(Code::AddressMissing, text);
        Ok(true)
    }

    /// The block in use that nobody names, and that is of one of its slots.
    fn theirs(&self, j: &mut Judgement<'_>, slot: usize) -> io::Result<Option<BlockAddr>> {
        let unnamed = unnamed_block(&mut j.image, self.owner.behind(slot))?;
        Ok(unnamed.filter(|&addr| !j.space.is_claimed(&j.image.g, addr)))
    }

    /// Fills slots that name no block with blocks that are theirs, where the cluster is whole with them.
    fn fill(
        &self,
        j: &mut Judgement<'_>,
        slots: &mut [U32],
        compression: Compression,
    ) -> io::Result<Option<Judged>> {
        let mut cluster = addresses(slots);
        for (i, addr) in
            cluster.iter_mut().enumerate().filter(|(_, addr)| [NULL_ADDR, NEW_ADDR].contains(addr))
        {
            *addr = self.theirs(j, i)?.unwrap_or(*addr);
        }
        if cluster == addresses(slots) {
            return Ok(None);
        }
        let Ok(found) = Cluster::of(&cluster) else { return Ok(None) };
        if j.expand(compression, &cluster, found)?.is_some() {
            return Ok(None);
        }
        slots.iter_mut().zip(cluster).for_each(|(slot, addr)| *slot = addr.into());
        let text = format!(
            "{}: cluster at page {}: slots name nothing, but their blocks are in use, and the summaries know them",
            self.place, self.page
        );
        j.findings.add(Code::AddressMissing, text);
        Ok(Some(Judged::Sound { saved: found.saved(slots.len()), is_changed: true }))
    }
}

fn addresses(slots: &[U32]) -> Vec<BlockAddr> {
    slots.iter().map(|slot| slot.get()).collect()
}

impl Judgement<'_> {
    /// Judges the clusters whose addresses a node holds, or such addresses of a file without any, from page `page` on;
    /// `first` is the first one's slot. Tells whether an address was changed.
    pub(crate) fn clusters(
        &mut self,
        f: &mut FileWalk,
        addrs: &mut [U32],
        first: Owner,
        page: u64,
        place: &str,
    ) -> io::Result<bool> {
        let Some(compression) = f.compression else { return take_from_ones(self, f.ino, addrs, first, page) };
        let pages = compression.cluster_pages();
        let mut changed = false;
        for (i, slots) in addrs.chunks_exact_mut(pages).enumerate() {
            let at = ClusterAt { owner: first.behind(i * pages), page: page + (i * pages) as u64, place };
            let wrong = match at.judge(self, f, slots, compression)? {
                Judged::Sound { saved, is_changed } => {
                    f.saved += saved;
                    changed |= is_changed | self.reserve(f, slots, at.page, place);
                    continue;
                }
                Judged::Plain { is_changed } => {
                    changed |= is_changed;
                    continue;
                }
                Judged::Wrong(code, wrong) => (code, wrong),
            };
            let name = &f.name;
            self.findings
                .add(wrong.0, format!("{place} ({name:?}): cluster at page {}: {}", at.page, wrong.1));
            let whole = slots[0].get() == COMPRESS_ADDR;
            f.lost += slots.iter().filter(|a| whole && is_block(a.get())).count() as u64;
            if whole {
                self.cuts.add(f.ino, at.page, pages as u64);
            }
            if self.fix {
                let gone = slots.iter_mut().filter(|a| whole || a.get() == COMPRESS_ADDR);
                gone.for_each(|a| *a = NULL_ADDR.into());
                (f.cut, changed) = (true, true);
            } else if let Ok(found) = Cluster::of(&addresses(slots)) {
                f.saved += found.saved(pages);
            }
        }
        Ok(changed)
    }

    /// Whether a block of a cluster cannot be read: then nothing is known of its content, and it stays.
    fn unreadable_data(
        &mut self,
        f: &FileWalk,
        cluster: &[BlockAddr],
        first: u64,
        place: &str,
    ) -> io::Result<bool> {
        for &addr in cluster.iter().filter(|&&addr| self.image.g.in_main(addr)) {
            self.image.cache.get(addr)?;
            if self.image.cache.medium.tell_unreadable(addr) {
                let what = format!(
                    "{place} ({:?}): cluster of {} pages at offset {}: block {addr} {CANNOT_BE_READ}; it stays where it is",
                    f.name,
                    cluster.len(),
                    first * BLOCK_SIZE as u64
                );
                self.findings.add(Code::UnreadableData, what);
                self.unreadable.insert(f.ino);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Every slot of a compressed cluster that names no block is reserved, unless that was given back.
    fn reserve(&mut self, f: &FileWalk, slots: &mut [U32], first: u64, place: &str) -> bool {
        if f.released || slots.iter().all(|a| a.get() != NULL_ADDR) {
            return false;
        }
        let what = format!("{place} ({:?}): cluster at page {first}: a slot that is not reserved", f.name);
        self.findings.add(Code::ClusterPlace, what);
        if self.fix {
            slots.iter_mut().filter(|a| a.get() == NULL_ADDR).for_each(|a| *a = NEW_ADDR.into());
        }
        self.fix
    }

    /// Expands a compressed cluster; says what is wrong where that fails. Addresses outside the main area are
    /// not its matter.
    pub(crate) fn expand(
        &mut self,
        compression: Compression,
        addrs: &[BlockAddr],
        cluster: Cluster,
    ) -> io::Result<Option<String>> {
        let Cluster::Compressed(count) = cluster else { return Ok(None) };
        Ok(match bytes_of(self, &addrs[1..=count])? {
            Ok(bytes) => content_of(&mut self.compressors, compression, &bytes, addrs.len()).err(),
            Err(wrong) => Some(wrong),
        })
    }

    /// Compares the number of saved blocks with what was found.
    pub(crate) fn settle_saved(&mut self, f: &FileWalk, inode: &mut RawInode) {
        let expected = if f.released { 0 } else { f.saved };
        let ino = f.ino;
        let Some(extra) = inode.extra_mut().filter(|_| f.compression.is_some()) else { return };
        if extra.i_compr_blocks.get() != expected {
            let what =
                format!("inode {ino}: i_compr_blocks is {}, but it saves {expected}", extra.i_compr_blocks);
            self.findings.add(Code::SavedBlocks, what);
            extra.i_compr_blocks = expected.into();
        }
    }
}

/// The blocks of a cluster; or what is wrong with their addresses.
fn bytes_of(j: &mut Judgement<'_>, addrs: &[BlockAddr]) -> io::Result<Result<Vec<u8>, String>> {
    let mut bytes = Vec::with_capacity(addrs.len() * BLOCK_SIZE);
    for &addr in addrs {
        if !j.image.g.in_main(addr) {
            return Ok(Err(format!("a block at {addr}, outside the main area")));
        }
        bytes.extend_from_slice(&j.image.cache.get(addr)?.0);
    }
    Ok(Ok(bytes))
}

/// Turns the bit back that alone explains a cluster's wrong checksum; which that is.
fn turn_back_in(
    j: &mut Judgement<'_>,
    compression: Compression,
    addrs: &[BlockAddr],
    cluster: Cluster,
) -> io::Result<Option<String>> {
    let Cluster::Compressed(count) = cluster else { return Ok(None) };
    let Ok(mut bytes) = bytes_of(j, &addrs[1..=count])? else { return Ok(None) };
    let Some((byte, bit)) = turn_back(&mut bytes).filter(|_| compression.checksum) else {
        return Ok(None);
    };
    if content_of(&mut j.compressors, compression, &bytes, addrs.len()).is_err() {
        return Ok(None);
    }
    let (at, byte) = (byte / BLOCK_SIZE, byte % BLOCK_SIZE);
    let (addr, mut block) = (addrs[1 + at], Block::boxed());
    block.0.copy_from_slice(&bytes[at * BLOCK_SIZE..][..BLOCK_SIZE]);
    mend(j, addr, &block, Cause::Data)?;
    Ok(Some(format!("bit {bit} of byte {byte} of block {addr}")))
}
