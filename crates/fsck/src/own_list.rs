//! The list of the files that have records with slices, `.medfs` in the root directory. Who mounts the volume reads
//! these files alone, to know which blocks others need: what the list lacks would be overwritten or freed.

use crate::finding::Code;
use crate::judgement::Judgement;
use medfs_format::dentry::HIDDEN_LIST;
use medfs_format::node::{FileKind, Inline, RawInode};
use medfs_format::{Block, BlockAddr, Ino};
use std::collections::BTreeSet;
use std::io;
use zerocopy::IntoBytes;

/// Whether a name is one of medfs's own, and of no file of a user.
pub(crate) fn is_own(w: &Judgement<'_>, dir: Ino, name: &[u8]) -> bool {
    let own = [HIDDEN_LIST, medfs_format::dentry::HIDDEN_DIR];
    w.image.raw_sb().is_delta_volume() && dir == w.image.g.root_ino && own.contains(&name)
}

/// Judges whether the list names these files, and completes it.
pub(crate) fn settle_list(w: &mut Judgement<'_>, wanted: &BTreeSet<Ino>) -> io::Result<()> {
    if wanted.is_empty() || !w.image.raw_sb().is_delta_volume() {
        return Ok(());
    }
    let list = own_list(w)?;
    let named = list.as_ref().map(|(_, block)| listed(block.view(), w.rules.flexible()));
    let named = named.unwrap_or_default();
    let missing: Vec<Ino> = wanted.difference(&named).copied().collect();
    let Some(first) = missing.first() else { return Ok(()) };
    let files = missing.len();
    let s = if files == 1 { "" } else { "s" };
    let text = format!(
        "the list of files that need blocks of others (.medfs) lacks {files} file{s}, the first is inode {first}; a repair completes it"
    );
    w.findings.add(Code::SliceList, text);
    // A volume that is made readable keeps what it has: nothing is written to it.
    if !w.fix || !w.names {
        return Ok(());
    }
    match list {
        Some((addr, mut block)) => {
            fill(block.view_mut(), wanted.iter().chain(named.difference(wanted)), w.rules.flexible());
            w.write_inode(addr, &mut block)
        }
        None => w.maker().make_list(wanted),
    }
}

/// The list's inode, where the root directory leads to one.
fn own_list(w: &mut Judgement<'_>) -> io::Result<Option<(BlockAddr, Box<Block>)>> {
    let root = w.image.g.root_ino;
    let Some(ino) = w.find(root, HIDDEN_LIST)?.filter(|ino| w.space.nid_reached(*ino)) else {
        return Ok(None);
    };
    let found = w.readable_inode(ino)?;
    Ok(found.filter(|(_, block)| {
        let inode: &RawInode = block.view();
        FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Regular)
            && inode.inline().contains(Inline::DATA)
    }))
}

impl crate::maker::Maker<'_, '_> {
    /// A new list; where the volume is full there is none.
    fn make_list(&mut self, wanted: &BTreeSet<Ino>) -> io::Result<()> {
        let root = self.image.g.root_ino;
        // Something else has its name.
        if self.find(root, HIDDEN_LIST)?.is_some() {
            return Ok(());
        }
        let Some(spot) = self.room_in(root, HIDDEN_LIST)? else { return Ok(()) };
        let Some(ino) = self.new_nid()? else { return Ok(()) };
        let mut block = self.new_directory(ino, root, HIDDEN_LIST)?;
        let inode: &mut RawInode = block.view_mut();
        inode.i_mode = FileKind::Regular.mode_bits().into();
        inode.i_links = 1.into();
        inode.i_current_depth = 0.into();
        inode.i_inline = inode.i_inline & !Inline::DENTRY.bits() | (Inline::DATA | Inline::XATTR).bits();
        fill(inode, wanted.iter(), self.rules.flexible());
        if self.make_inode(ino, block)? {
            self.put(root, spot, HIDDEN_LIST, ino, FileKind::Regular)?;
        }
        Ok(())
    }
}

/// The files that a list names.
fn listed(list: &RawInode, flexible: bool) -> BTreeSet<Ino> {
    let range = list.slots(flexible).inline_content_range();
    let len = range.len().min(list.i_size.get() as usize);
    let inos = list.as_bytes()[range.start..range.start + len].chunks_exact(size_of::<Ino>());
    inos.map(|ino| Ino::from_le_bytes(ino.try_into().expect("four bytes"))).collect()
}

/// Makes a list name files, as many as it has room for.
fn fill<'i>(list: &mut RawInode, files: impl Iterator<Item = &'i Ino>, flexible: bool) {
    let range = list.slots(flexible).inline_content_range();
    let mut bytes: Vec<u8> = files.flat_map(|ino| ino.to_le_bytes()).collect();
    bytes.truncate(range.len() / size_of::<Ino>() * size_of::<Ino>());
    list.i_inline |= Inline::DATA_EXIST.bits();
    list.i_size = (bytes.len() as u64).into();
    let area = &mut list.as_mut_bytes()[range];
    area.fill(0);
    area[..bytes.len()].copy_from_slice(&bytes);
}
