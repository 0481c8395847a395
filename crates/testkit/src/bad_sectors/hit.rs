//! What is on a block: what a read-only mount cannot read while the block cannot be read.

use super::{Base, mounter_of};
use crate::images::COMPRESSED;
use crate::model::{Inode, Model, PAGE};
use crate::subject::{FileSystem, list};
use medfs::{FileKind, Ino};
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::read_block;
use medfs_format::{delta, node};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What cannot be read while a block cannot.
#[derive(Debug, Default)]
pub(super) struct Hit {
    /// Nothing can.
    pub(super) all: bool,
    /// Inodes of which more than single pages cannot, or of which not all is known any more.
    pub(super) inos: BTreeSet<Ino>,
    pub(super) pages: BTreeSet<(Ino, u64)>,
}

impl Hit {
    pub(super) fn of(base: &Base, block: u64) -> Hit {
        let device = FaultDevice::new(base.image.snapshot(), 0);
        device.arm(Fault::on(Kind::Read, Effect::IO).within(block..block + 1));
        let Ok(fs) = mounter_of(&format!("{},ro", base.scene.options))(Arc::new(device)) else {
            return Hit { all: true, ..Hit::default() };
        };
        let mut hit = Hit::default();
        for (_, inode) in base.start.inodes() {
            hit.look_at(&*fs, &base.start, inode);
        }
        hit
    }

    fn look_at(&mut self, fs: &dyn FileSystem, model: &Model, inode: &Inode) {
        let ino = inode.ino;
        let attributes = fs.getattr(ino).map(drop).and_then(|()| match inode.kind {
            FileKind::Symlink => fs.readlink(ino).map(drop),
            _ => fs.listxattr(ino).map(drop),
        });
        let entries = match inode.is_dir() {
            true => list(fs, ino, 0, usize::MAX).map(drop),
            false => Ok(()),
        };
        if attributes.is_err() || entries.is_err() {
            self.inos.insert(ino);
            return;
        }
        for (name, &child) in &inode.entries {
            match fs.lookup(ino, name) {
                Ok(attr) => fs.release(attr.ino, 1),
                Err(_) if fs.getattr(model.inode(child).ino).is_err() => {}
                Err(_) => drop(self.inos.insert(ino)),
            }
        }
        for index in 0..inode.content.size().div_ceil(PAGE).min(4096) {
            if fs.read(ino, index * PAGE, &mut [0; PAGE as usize]).is_err() {
                self.pages.insert((ino, index));
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.all && self.inos.is_empty() && self.pages.is_empty()
    }

    pub(super) fn has(&self, ino: Ino) -> bool {
        self.all || self.inos.contains(&ino) || self.pages.range((ino, 0)..=(ino, u64::MAX)).next().is_some()
    }

    /// Number of the node that the block is, and of its inode, where it is one of what is hit.
    fn node(&self, base: &Base, block: u64) -> Option<(u32, Ino)> {
        let content = read_block(&base.image, block).expect("memory is readable");
        let footer = node::footer(&content);
        let (nid, ino) = (footer.nid.get(), footer.ino.get());
        (block >= base.main && ino > 0 && nid < 100_000 && self.has(ino)).then_some((nid, ino))
    }

    /// Whether a checksum tells of a flipped bit, or what it changes is content of pages alone.
    pub(super) fn is_told(&self, base: &Base, block: u64) -> bool {
        if self.all || block < base.main || self.is_empty() {
            return false;
        }
        match self.node(base, block) {
            Some((nid, ino)) => nid == ino,
            None => self.inos.is_empty(),
        }
    }

    /// Whether the block is the place of a page, and of nothing else: what is written over it needs nothing of it.
    pub(super) fn is_plain_page(&self, base: &Base, block: u64) -> bool {
        let content = read_block(&base.image, block).expect("memory is readable");
        let compact = self.pages.iter().any(|(ino, _)| delta::compact_records(&content, *ino).is_ok());
        !self.all
            && block >= base.main
            && self.inos.is_empty()
            && self.node(base, block).is_none()
            && !compact
            && !COMPRESSED.contains(&base.scene.features)
    }
}
