//! Files that the checkpoint counts and that are lost without a trace: nothing names them, and no node is left.

use crate::damage_found::counted_inodes;
use crate::walk::Walker;
use foldhash::HashSet;
use medfs_format::Ino;
use std::io;

/// How many inodes of the checkpoint were not reached, and nothing else tells of them.
pub(crate) fn gone(w: &mut Walker<'_, '_>, reached: u32) -> io::Result<u64> {
    let mut told: HashSet<Ino> = w.told.iter().chain(&w.foreign.led).copied().collect();
    told.extend(w.nameless.iter().chain(&w.anew.remade).chain(&w.anew.files));
    let logged: Vec<Ino> = w.logged.keys().copied().collect();
    for ino in logged {
        let entry = w.image.nat(ino)?;
        // New files of the log are not in the checkpoint's count.
        if entry.ino.get() == ino && w.image.g.in_main(entry.block_addr.get()) {
            told.insert(ino);
        }
    }
    told.retain(|&ino| !w.space.nid_reached(ino));
    Ok(u64::from(counted_inodes(w)).saturating_sub(u64::from(reached) + told.len() as u64))
}
