//! What all judges know and change: the volume, what was reached of it, and what is wrong.
//!
//! A judge is a method that looks at one kind of structure and calls no walk. Only the walk ([`crate::walk`])
//! goes on to what a structure names.

use crate::damaged::LostFile;
use crate::finding::{Code, Cuts, Findings, Losses, Reverted};
use crate::image::{CANNOT_BE_READ, Image};
use crate::inode::Rules;
use crate::mend::Mend;
use crate::reach::{Anew, Links};
use crate::slices::Slices;
use crate::space::Space;
use crate::supply::Supply;
use crate::usual::Usual;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use medfs_codec::Codecs;
use medfs_codec::compress::Compressors;
use medfs_device::Cause;
use medfs_format::node::RawInode;
use medfs_format::{Block, BlockAddr, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// A volume under judgement.
pub(crate) struct Judgement<'d> {
    pub(crate) image: Image<'d>,
    pub(crate) rules: Rules,
    pub(crate) findings: Findings,
    pub(crate) space: Space,
    pub(crate) links: HashMap<Ino, Links>,
    /// What is wrong is mended.
    pub(crate) fix: bool,
    /// Whether what has no name gets one.
    pub(crate) names: bool,
    /// What journals said is lost, and a file without a name may be one that was removed.
    pub(crate) removed_may_be_back: bool,
    /// Orphans that a repair frees.
    pub(crate) orphans: HashSet<Ino>,
    pub(crate) supply: Supply,
    pub(crate) codecs: Codecs,
    pub(crate) compressors: Compressors,
    pub(crate) slices: Slices,
    pub(crate) losses: Losses,
    /// Names whose inode is lost.
    pub(crate) lost: Vec<LostFile>,
    /// The inodes of these, of all of them.
    pub(crate) told: HashSet<Ino>,
    /// Symbolic links that were given up because their targets are lost.
    pub(crate) targets_lost: BTreeSet<Ino>,
    /// Names of medfs's own records that have lost their inodes.
    pub(crate) own_lost: u32,
    /// The last inode block of each file in the fsync log.
    pub(crate) logged: HashMap<Ino, BlockAddr>,
    /// Directories that are made anew.
    pub(crate) anew: Anew,
    /// What was cut off.
    pub(crate) cuts: Cuts,
    /// Files with pages whose last updates are dropped.
    pub(crate) reverted: BTreeMap<Ino, Reverted>,
    /// Files and directories that count more blocks as their own than were found, and of which nothing was cut off.
    pub(crate) short: BTreeSet<Ino>,
    /// Files and directories that are kept as they read, though the checksum or a field of their inode is wrong.
    pub(crate) doubted: BTreeSet<Ino>,
    /// Files with content that cannot be read or expanded, and which stays.
    pub(crate) unreadable: BTreeSet<Ino>,
    /// Files and directories that go to lost+found under their numbers.
    pub(crate) nameless: BTreeSet<Ino>,
    /// How the first inodes of the volume divide their slots, once that was wanted.
    pub(crate) usual: Option<Usual>,
}

impl<'d> Judgement<'d> {
    pub(crate) fn new(image: Image<'d>, findings: Findings, mend: Mend) -> Judgement<'d> {
        let fix = mend != Mend::Nothing;
        Judgement {
            rules: Rules::of(&image),
            space: Space::new(&image, fix),
            slices: Slices::new(image.g.max_nid()),
            image,
            cuts: Cuts::new(&findings),
            findings,
            links: HashMap::new(),
            fix,
            names: mend != Mend::AllButNames,
            removed_may_be_back: false,
            orphans: HashSet::new(),
            supply: Supply::default(),
            codecs: Codecs::default(),
            compressors: Compressors::default(),
            losses: Losses::default(),
            lost: Vec::new(),
            told: HashSet::new(),
            targets_lost: BTreeSet::new(),
            own_lost: 0,
            logged: HashMap::new(),
            anew: Anew::default(),
            reverted: BTreeMap::new(),
            short: BTreeSet::new(),
            doubted: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            nameless: BTreeSet::new(),
            usual: None,
        }
    }

    /// Writes an inode block when fixing, sealed.
    pub(crate) fn write_inode(&mut self, addr: BlockAddr, block: &mut Block) -> io::Result<()> {
        if let Some(seed) = self.rules.seed {
            block.view_mut::<RawInode>().seal(seed);
        }
        self.write(addr, block, Cause::Node)
    }

    pub(crate) fn write(&mut self, addr: BlockAddr, block: &Block, cause: Cause) -> io::Result<()> {
        if self.fix { self.image.cache.write(addr, block, cause) } else { Ok(()) }
    }

    /// Notes that these pages of a file lose their last updates, or, with `None`, that any of its pages may.
    pub(crate) fn revert(&mut self, ino: Ino, pages: Reverted) {
        let all = self.reverted.entry(ino).or_insert_with(|| Some(BTreeSet::new()));
        match (all.as_mut(), pages) {
            (Some(all), Some(pages)) => all.extend(pages),
            (_, None) => *all = None,
            (None, Some(_)) => {}
        }
    }

    /// Makes findings of the blocks that cannot be read or written, as far as there are none of them yet.
    pub(crate) fn tell_medium(&mut self) {
        let medium = &self.image.cache.medium;
        for addr in medium.take_untold() {
            let what = self.image.g.purpose(addr);
            self.findings.add(Code::Unreadable, format!("block {addr} ({what}) {CANNOT_BE_READ}"));
        }
        for addr in medium.unwritable() {
            let what = self.image.g.purpose(addr);
            let text = format!("block {addr} ({what}) cannot be written: the device has to be replaced");
            self.findings.add(Code::Unwritable, text);
        }
    }
}

/// Notes that a directory is lost, and that a repair makes it anew.
pub(crate) fn note_remade(j: &mut Judgement<'_>, dir: Ino) {
    j.losses.remade += 1;
    j.anew.remade.insert(dir);
}

/// Writes a block when fixing that leads to what is judged by it: a check goes by it too, though it writes nothing.
pub(crate) fn mend(j: &mut Judgement<'_>, addr: BlockAddr, block: &Block, cause: Cause) -> io::Result<()> {
    if j.fix {
        return j.image.cache.write(addr, block, cause);
    }
    j.image.cache.take_for_repaired(addr, block);
    Ok(())
}
