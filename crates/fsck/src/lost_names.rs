//! Inodes that only the journals led to of a checkpoint that is lost, and whose names are lost too.
//!
//! No count tells then how many nodes the checkpoint had. An inode to which neither the NAT nor a name leads may be
//! that of a removed file. One whose directory has lost entries, or is lost itself, counts as a file that was named
//! there.

use crate::walk::Walker;
use medfs_format::Ino;
use medfs_format::footer::footer;
use medfs_format::node::RawInode;
use std::collections::HashSet;
use std::io;

/// Lets the NAT lead to what may have lost its name.
pub(crate) fn take_up(w: &mut Walker<'_, '_>) -> io::Result<()> {
    if w.image.reckoned {
        let lacking: HashSet<Ino> =
            w.j.cuts.list.iter().map(|cut| cut.ino).chain(w.j.doubted.iter().copied()).collect();
        for (ino, addr) in w.image.doubtful() {
            let block = w.image.cache.read(addr)?;
            let f = footer(&block);
            let inode: &RawInode = block.view();
            if (f.nid.get(), f.ino.get()) == (ino, ino) && !w.rules.is_doubtful(inode) {
                let dir = inode.i_pino.get();
                if lacking.contains(&dir) || is_lost(w, dir)? {
                    w.image.take_up(ino)?;
                }
            }
        }
    }
    w.j.image.take_up_the_rest(&mut w.j.findings)
}

/// Whether the NAT leads to a directory that no name led to.
fn is_lost(w: &mut Walker<'_, '_>, dir: Ino) -> io::Result<bool> {
    if !w.image.g.is_nid(dir) || w.space.nid_reached(dir) {
        return Ok(false);
    }
    let addr = w.image.nat(dir)?.block_addr.get();
    Ok(w.image.g.in_main(addr))
}
