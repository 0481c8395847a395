//! Inodes that only the journals led to of a checkpoint that is lost, and whose names are lost too.
//!
//! No count tells then how many nodes the checkpoint had. An inode to which neither the NAT nor a name leads may be
//! that of a removed file. One whose directory has lost entries, or is lost itself, counts as a file that was named
//! there.
//!
//! Where only the journals are lost, the count is no help either: an older block of a directory may name files that
//! were removed. A directory is written with each checkpoint that names a file in it or removes one, so that an inode
//! of a later version than its directory's tells that the directory's newest block is lost.

use crate::damage_found::counted_inodes;
use crate::walk::Walker;
use medfs_format::Ino;
use medfs_format::footer::footer;
use medfs_format::node::RawInode;
use std::io;

/// Lets the NAT lead to what may have lost its name.
pub(crate) fn take_up(w: &mut Walker<'_, '_>) -> io::Result<()> {
    let reckoned = w.image.reckoned;
    let doubtful = if reckoned || w.image.journals_may_be_lost { w.image.doubtful() } else { Vec::new() };
    for (ino, addr) in doubtful {
        let block = w.image.cache.read(addr)?;
        let f = footer(&block);
        let inode: &RawInode = block.view();
        if (f.nid.get(), f.ino.get()) == (ino, ino) && !w.rules.is_doubtful(inode) {
            let (dir, version) = (inode.i_pino.get(), f.cp_ver.get() as u32);
            let named = reckoned && (lacks_names(w, dir) || is_lost(w, dir)?);
            if named || is_older(w, dir, version)? {
                w.image.take_up(ino)?;
            }
        }
    }
    // In a repair orphans are not come to.
    let orphans = if w.fix { w.image.orphans.len() as u32 } else { 0 };
    let has_all = w.image.journals_may_be_lost && w.space.inodes + orphans >= counted_inodes(w);
    w.j.removed_may_be_back = w.image.reckoned || has_all;
    w.j.image.take_up_the_rest(&mut w.j.findings)
}

/// Whether a directory may have named more than it does.
fn lacks_names(w: &Walker<'_, '_>, dir: Ino) -> bool {
    w.j.cuts.files.contains(&dir) || w.j.doubted.contains(&dir) || w.j.short.contains(&dir)
}

/// Whether a file without a name was removed, for all that is known: what the journals said of it is lost, and its
/// directory names all that it did, or as many files are named as the checkpoint counts.
pub(crate) fn may_be_removed(w: &Walker<'_, '_>, ino: Ino, dir: Ino) -> bool {
    w.removed_may_be_back
        && !w.image.strays.fsynced.contains(&ino)
        && !(w.image.reckoned && lacks_names(w, dir))
}

/// Whether the node of a directory that was walked is of an earlier version.
fn is_older(w: &mut Walker<'_, '_>, dir: Ino, version: u32) -> io::Result<bool> {
    if !w.image.g.is_nid(dir) || !w.space.nid_reached(dir) {
        return Ok(false);
    }
    let addr = w.image.nat(dir)?.block_addr.get();
    Ok(w.image.g.in_main(addr) && (footer(w.image.cache.get(addr)?).cp_ver.get() as u32) < version)
}

/// Whether the NAT leads to a directory that no name led to.
fn is_lost(w: &mut Walker<'_, '_>, dir: Ino) -> io::Result<bool> {
    if !w.image.g.is_nid(dir) || w.space.nid_reached(dir) {
        return Ok(false);
    }
    let addr = w.image.nat(dir)?.block_addr.get();
    Ok(w.image.g.in_main(addr))
}
