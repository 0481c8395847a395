//! Judging the compressed clusters of a file: their addresses, headers, checksums and content, and the count
//! of saved blocks.
//!
//! A repair takes away what cannot be expanded: the cluster becomes a hole. What is merely counted wrong is
//! counted anew.

use crate::deltas::content_of;
use crate::file::FileWalk;
use crate::finding::Code;
use crate::image::CANNOT_BE_READ;
use crate::judgement::Judgement;
use medfs_format::compress::{Cluster, Compression};
use medfs_format::node::RawInode;
use medfs_format::{BLOCK_SIZE, BlockAddr, COMPRESS_ADDR, NEW_ADDR, NULL_ADDR};
use std::io;
use zerocopy::little_endian::U32;

impl Judgement<'_> {
    /// Judges the clusters whose addresses a node holds, from page `page` on. Tells whether an address was taken away.
    pub(crate) fn clusters(
        &mut self,
        f: &mut FileWalk,
        addrs: &mut [U32],
        page: u64,
        place: &str,
    ) -> io::Result<bool> {
        let Some(compression) = f.compression else { return Ok(false) };
        let pages = compression.cluster_pages();
        let mut changed = false;
        for (i, slots) in addrs.chunks_exact_mut(pages).enumerate() {
            let first = page + (i * pages) as u64;
            let cluster: Vec<BlockAddr> = slots.iter().map(|a| a.get()).collect();
            let wrong = match Cluster::of(&cluster) {
                Ok(Cluster::Plain) => continue,
                Ok(found) if self.unreadable_data(f, &cluster, first, place)? => {
                    f.saved += found.saved(pages);
                    changed |= self.reserve(f, slots, first, place);
                    continue;
                }
                Ok(found) => {
                    let Some(wrong) = self.expand(compression, &cluster, found)? else {
                        f.saved += found.saved(pages);
                        changed |= self.reserve(f, slots, first, place);
                        continue;
                    };
                    (Code::ClusterContent, wrong)
                }
                Err(wrong) => (Code::ClusterPlace, wrong.to_owned()),
            };
            let name = &f.name;
            self.findings.add(wrong.0, format!("{place} ({name:?}): cluster at page {first}: {}", wrong.1));
            if self.fix {
                let whole = cluster[0] == COMPRESS_ADDR;
                let gone = slots.iter_mut().filter(|a| whole || a.get() == COMPRESS_ADDR);
                gone.for_each(|a| *a = NULL_ADDR.into());
                (f.cut, changed) = (true, true);
            } else if let Ok(found) = Cluster::of(&cluster) {
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
    fn expand(
        &mut self,
        compression: Compression,
        addrs: &[BlockAddr],
        cluster: Cluster,
    ) -> io::Result<Option<String>> {
        let Cluster::Compressed(count) = cluster else { return Ok(None) };
        let mut bytes = Vec::with_capacity(count * BLOCK_SIZE);
        for &addr in &addrs[1..=count] {
            if !self.image.g.in_main(addr) {
                return Ok(Some(format!("a block at {addr}, outside the main area")));
            }
            bytes.extend_from_slice(&self.image.cache.read(addr)?.0);
        }
        Ok(content_of(&mut self.compressors, compression, &bytes, addrs.len()).err())
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
