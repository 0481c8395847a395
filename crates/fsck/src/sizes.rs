//! Sizes of regular files, judged by the pages for which they have blocks.
//!
//! A file may have blocks behind its end: `fallocate` leaves such as were never written, which are not counted here,
//! and a mark in the inode where they are meant to stay.

use crate::evidence::doubt;
use crate::file::FileWalk;
use crate::finding::Code;
use crate::inode::used_of;
use crate::judgement::Judgement;
use medfs_format::BLOCK_SIZE;
use medfs_format::node::{Advise, Inline, MANY_BEHIND_END, RawInode};
use std::io;

const PAGE: u64 = BLOCK_SIZE as u64;
/// As [`MANY_BEHIND_END`] where they follow the end without a hole, and a flipped bit of the size explains them.
const SOME: u64 = 2;

/// Judges the size of a regular file that was walked.
pub(crate) fn judge_size(j: &mut Judgement<'_>, f: &FileWalk, inode: &mut RawInode) -> io::Result<()> {
    if f.doubtful {
        j.settle_size(f, inode);
    }
    let keeps = inode.advise().contains(Advise::KEEP_SIZE);
    let last = f.last_page.filter(|&page| f.region.as_ref().is_none_or(|r| page < r.start));
    if f.size_turned > 0 {
        replace_junk(j, f, inode, last.filter(|_| !keeps));
    } else if let Some(last) = last.filter(|_| !f.doubtful && !keeps) {
        return judge_end(j, f, inode, last);
    }
    Ok(())
}

/// Of a file whose size was one that no file has: one up to the last page is nearest to what it had.
fn replace_junk(j: &mut Judgement<'_>, f: &FileWalk, inode: &mut RawInode, last: Option<u64>) {
    let size = inode.i_size.get();
    let is_one_bit = f.size_turned == 1;
    let fits = last.is_none_or(|last| size.div_ceil(PAGE) == last + 1 || is_one_bit && size > last * PAGE);
    if let Some(last) = last.filter(|_| !fits) {
        let end = (last + 1) * PAGE;
        let text = format!("inode {}: i_size becomes {end}, as its last block is that of page {last}", f.ino);
        j.findings.add(Code::InodeField, text);
        inode.i_size = end.into();
    }
    // That a larger size is right, content that ends there tells.
    let (is_inline, flexible) = (inode.inline().contains(Inline::DATA), j.rules.flexible());
    let is_seen = !is_inline || used_of(inode, flexible).0 == inode.i_size.get();
    if !fits || !is_one_bit || !is_seen {
        doubt(j, f.ino);
    }
}

/// Of a file without a checksum: whether it ended behind its last page, before a bit of its size was lost.
fn judge_end(j: &mut Judgement<'_>, f: &FileWalk, inode: &mut RawInode, last: u64) -> io::Result<()> {
    let (ino, size) = (f.ino, inode.i_size.get());
    let has_checksum = j.rules.seed.is_some() && inode.extra_fits(12);
    // Of a file that was cut, power may have been lost before its blocks went.
    let is_excused = inode.may_reach_behind_end() || size == 0;
    if has_checksum || is_excused || f.past_end < SOME {
        return Ok(());
    }
    let is_run = last + 1 == f.end + f.past_end;
    let right = (0..u64::BITS).map(|bit| size ^ 1 << bit).find(|size| size.div_ceil(PAGE) == last + 1);
    let end = (last + 1) * PAGE;
    let addr = j.image.address(inode, last)?;
    let was_pinned = j.image.g.ends_segment(addr);
    match right.filter(|_| !was_pinned && (is_run || f.past_end >= MANY_BEHIND_END)) {
        Some(right) => {
            let text = format!(
                "inode {ino}: i_size is {size}, but it has blocks up to {end}; with one bit flipped it is {right}"
            );
            j.findings.add(Code::InodeField, text);
            inode.i_size = right.into();
        }
        None if f.past_end >= MANY_BEHIND_END && !was_pinned => {
            let text = format!(
                "inode {ino}: i_size is {size}, but {} of its blocks lie behind that, up to {end}; \
                 a repair keeps both, and marks the file as one that has blocks behind its end",
                f.past_end
            );
            j.findings.add(Code::InodeField, text);
            inode.i_advise |= Advise::KEEP_SIZE.bits();
            doubt(j, ino);
        }
        None => {}
    }
    Ok(())
}

/// By how many bits the size of an inode differs from the one that was read.
pub(crate) fn turned(was: &RawInode, is: &RawInode) -> u32 {
    (was.i_size.get() ^ is.i_size.get()).count_ones()
}
