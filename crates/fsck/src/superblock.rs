//! Which copy of the superblock counts, and which of them have to be written anew.

use crate::finding::{Code, Findings};
use crate::image::{CANNOT_BE_READ, Stop};
use crate::medium::Medium;
use crate::no_super;
use medfs_format::superblock::RawSuperblock;
use medfs_format::{Block, Geometry, weigh};
use std::io;
use zerocopy::IntoBytes;

/// A superblock with its geometry, and the copies to be written anew.
pub(crate) type Superblock = (Box<Block>, Geometry, Vec<u32>);

/// The copy that counts; `None` where there is none.
pub(crate) fn in_force(medium: &Medium<'_>, findings: &mut Findings) -> Result<Option<Superblock>, Stop> {
    if medium.block_count() < 2 {
        findings.add(Code::NoSuperblock, "the device is smaller than a superblock");
        return Err(Stop::Fatal);
    }
    let mut bad_copies = Vec::new();
    let mut valid = Vec::new();
    for copy in 0..2u32 {
        let block = medium.read(copy)?;
        match RawSuperblock::in_block(&block).validate() {
            Ok(g) => valid.push((copy, block, g)),
            Err(e) => {
                let why = if medium.tell_unreadable(copy) { CANNOT_BE_READ.into() } else { e.in_it() };
                findings.add(Code::SuperblockCopy, format!("copy {} of the superblock: {why}", copy + 1));
                bad_copies.push(copy);
            }
        }
    }
    // The second copy alone may be the first one of a volume that begins a block later.
    if bad_copies == [0]
        && let Some(begin) = no_super::volume_behind(medium, 2)?
    {
        findings.add(Code::NoSuperblock, no_super::begins_elsewhere(begin));
        return Err(Stop::Fatal);
    }
    if valid.is_empty() {
        unflip_superblocks(medium, &mut valid, findings)?;
    }
    let pending =
        valid.iter().find_map(|(_, block, _)| RawSuperblock::in_block(block).check_no_nvram().err());
    if let Some(error) = pending.filter(|_| !medium.shows_last_checkpoint()) {
        findings.add(Code::NvramPending, error.to_string());
        return Err(Stop::Fatal);
    }
    let Some(sb) = choose(medium, &valid, &mut bad_copies, findings)? else { return Ok(None) };
    let mut block = valid.swap_remove(0).1;
    *RawSuperblock::in_block_mut(&mut block) = sb;
    let g = RawSuperblock::in_block(&block).validate().expect("it was chosen of valid ones");
    let end = g.end();
    if end > medium.block_count() {
        findings.add(
            Code::Truncated,
            format!(
                "the device has {} blocks but the volume needs {end}: it was cut short",
                medium.block_count()
            ),
        );
        return Err(Stop::Fatal);
    }
    Ok(Some((block, g, bad_copies)))
}

/// The superblock that counts, and which valid copies differ from it, as a finding.
fn choose(
    medium: &Medium<'_>,
    valid: &[(u32, Box<Block>, Geometry)],
    bad_copies: &mut Vec<u32>,
    findings: &mut Findings,
) -> io::Result<Option<RawSuperblock>> {
    let copies: Vec<&RawSuperblock> =
        valid.iter().map(|(_, block, _)| RawSuperblock::in_block(block)).collect();
    let again = medium.again();
    let chosen = weigh::in_force(&copies, &mut |addr| {
        if u64::from(addr) >= again.block_count() {
            return Ok(None);
        }
        let block = again.read(addr)?;
        Ok::<_, io::Error>((!again.is_unreadable(addr)).then_some(block))
    })?;
    let (Some(sb), [first, second]) = (&chosen, &copies[..]) else { return Ok(chosen) };
    if first.agrees_with(second) {
        return Ok(chosen);
    }
    let is = |copy: &RawSuperblock| copy.as_bytes() == sb.as_bytes();
    let differ = "the two copies of the superblock differ";
    let (code, text) = if first.is_delta_volume() != second.is_delta_volume() {
        let text = "one copy of the superblock is of a volume with deltas, the other of plain F2FS: an import or \
                    export was interrupted, and it is plain F2FS";
        (Code::SuperblockKinds, text.to_owned())
    } else if is(first) {
        (Code::SuperblocksDiffer, format!("{differ}; the first one counts"))
    } else if is(second) {
        let text =
            format!("{differ}; the second one counts, as the volume and its features agree with it alone");
        (Code::SuperblocksDiffer, text)
    } else {
        (Code::SuperblocksDiffer, format!("{differ}; of each counts what the volume agrees with"))
    };
    findings.add(code, text);
    bad_copies.extend([(0, first), (1, second)].into_iter().filter(|(_, copy)| !is(copy)).map(|(at, _)| at));
    Ok(chosen)
}

/// Where no copy is usable: those in which one flipped bit is all that is wrong.
fn unflip_superblocks(
    medium: &Medium<'_>,
    valid: &mut Vec<(u32, Box<Block>, Geometry)>,
    findings: &mut Findings,
) -> io::Result<()> {
    for copy in 0..2u32 {
        let mut block = medium.read(copy)?;
        let Some(bit) = RawSuperblock::flipped_bit(&block) else { continue };
        bit.flip(&mut block);
        if let Ok(g) = RawSuperblock::in_block(&block).validate() {
            let text = format!("copy {} of the superblock is valid with {bit} flipped", copy + 1);
            findings.add(Code::SuperblockCopy, text);
            valid.push((copy, block, g));
        }
    }
    Ok(())
}
