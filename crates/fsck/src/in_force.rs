//! Which of the two checkpoint packs is in force.
//!
//! The newest that is whole, but for one bit in its first or last block maybe, or of which one header is
//! damaged, or an older one, and the other shows that the checkpoint was complete. Journals that cannot be
//! read are made anew from the nodes. Where that one is lost, the nodes tell ([`no_pack`]).
//!
//! Invariant: a newer checkpoint that is lost is a finding that says so.

use crate::cache::Cache;
use crate::finding::{Code, Findings};
use crate::image::Stop;
use crate::medium::Medium;
use crate::no_pack::{self, Pack};
use crate::pack;
use crate::superblock;
use medfs_device::BlockDevice;
use medfs_format::checkpoint::{RawCheckpoint, verify_checksum};
use medfs_format::header_left::{
    BEING_WRITTEN, HeaderLeft, any_header, is_torn_header, was_begun_after, was_followed, was_succeeded,
    was_surely_begun_after,
};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, FormatError, Geometry};
use std::io;

/// A pack that can be used.
struct Usable {
    pack: Pack,
    version: u64,
    /// Nodes tell that a newer checkpoint is lost, or may be.
    outdated: bool,
}

/// What of the packs there is to go by.
pub(crate) enum InForce {
    /// One that counts.
    Whole(Pack),
    /// One before another that is lost.
    Outdated(Pack),
    /// Nothing.
    Lost,
}

impl Usable {
    /// Whether it counts rather than another one: of two of one version, as `sload.f2fs` leaves them, the first pack.
    fn counts_before(&self, other: &Usable) -> bool {
        is_newer(self.version, other.version) || (self.version, self.pack.0) == (other.version, 0)
    }
}

/// What is said of files whose newest checkpoint is lost.
const AS_NODES: &str =
    "files are as their newest nodes say; some changes may be missing, and removed files may be back";

fn is_newer(version: u64, than: u64) -> bool {
    (version.wrapping_sub(than) as i64) > 0
}

/// Chooses the pack in force.
pub(crate) fn pack(cache: &mut Cache<'_>, g: &Geometry, findings: &mut Findings) -> Result<InForce, Stop> {
    let mut best: Option<Usable> = None;
    let mut flipped = Vec::new();
    let mut broken = Vec::new();
    for index in 0..2 {
        match pack::read_header(cache, g, index)? {
            Ok((bytes, version, unflipped)) => {
                if !unflipped.is_empty() {
                    flipped
                        .push((index, unflipped.iter().map(|(.., bit)| bit.to_string()).collect::<Vec<_>>()));
                }
                let unflipped = unflipped.into_iter().map(|(addr, block, _)| (addr, block)).collect();
                let journals = pack::journals_readable(cache, g, index, &bytes)?;
                if let Err(e) = &journals {
                    findings.add(Code::CheckpointPack, format!("checkpoint pack {}: {e}", index + 1));
                }
                let usable = Usable { pack: (index, bytes, unflipped), version, outdated: false };
                if best.as_ref().is_none_or(|best| usable.counts_before(best)) {
                    best = Some(usable);
                }
            }
            Err(e) => broken.push((index, e)),
        }
    }
    let Some(best) = best else { return of_what_is_left(cache, g, broken, findings) };
    debug_assert!(best.pack.1.len() >= BLOCK_SIZE);
    for (index, bits) in flipped {
        let code = if index == best.pack.0 { Code::CheckpointBit } else { Code::CheckpointPack };
        let bits = bits.join(" and ");
        findings
            .add(code, format!("checkpoint pack {}: the checksum matches with {bits} flipped", index + 1));
    }
    let mut counts = newest_inside(cache, g, best, findings)?;
    if broken.is_empty() {
        counts = beside_a_whole_one(cache, g, counts, findings)?;
    }
    for (index, error) in broken {
        if index != counts.pack.0 {
            counts = beside_a_broken_one(cache, g, counts, (index, error), findings)?;
        }
    }
    Ok(match counts.outdated {
        true => InForce::Outdated(counts.pack),
        false => InForce::Whole(counts.pack),
    })
}

/// Neither pack can be used as it is.
fn of_what_is_left(
    cache: &mut Cache<'_>,
    g: &Geometry,
    broken: Vec<(usize, FormatError)>,
    findings: &mut Findings,
) -> Result<InForce, Stop> {
    for (index, e) in broken {
        findings.add(Code::CheckpointPack, format!("checkpoint pack {}: {e}", index + 1));
    }
    if let Some(pack) = no_pack::pack_of_one_header(cache, g)? {
        if asked(cache, g, &pack, was_succeeded)? || asked(cache, g, &pack, was_begun_after)? {
            let text = "neither checkpoint pack is whole, and the one with one of its two headers may be older than the last one";
            findings.add(Code::CheckpointOlder, format!("{text}: {AS_NODES}"));
            return Ok(InForce::Outdated(pack));
        }
        let text = "neither checkpoint pack is whole; the newest one with one of its two headers counts";
        findings.add(Code::CheckpointLost, text);
        return Ok(InForce::Whole(pack));
    }
    let text = "neither checkpoint pack is usable; a repair rebuilds one from the tables and the nodes: what was fsynced last may be \
                missing, and removed files may be back";
    findings.add(Code::CheckpointLost, text);
    Ok(InForce::Lost)
}

/// The pack that counts of one that can be used and one with a damaged header.
fn beside_a_broken_one(
    cache: &mut Cache<'_>,
    g: &Geometry,
    usable: Usable,
    (index, error): (usize, FormatError),
    findings: &mut Findings,
) -> io::Result<Usable> {
    let place = format!("checkpoint pack {}: {error}", index + 1);
    if let Some((half, torn)) = of_one_header(cache, g, index, usable.version)?
        && half.counts_before(&usable)
    {
        let (is, was) = (half.version, usable.version);
        let (code, how) = match torn {
            true => (Code::CheckpointTorn, ", as power loss at the end of a checkpoint leaves it"),
            false => (Code::CheckpointHeader, ""),
        };
        let than = if is == was { "the other pack's of that version".to_owned() } else { was.to_string() };
        let text = format!(
            "{place}{how}; its other header is whole: checkpoint {is} is complete, and counts before {than}"
        );
        findings.add(code, text);
        return Ok(half);
    }
    let (code, text) = what_it_means(cache, g, &usable, index, place)?;
    findings.add(code, text);
    Ok(Usable { outdated: code == Code::CheckpointOlder, ..usable })
}

/// What the damage of the pack `index` beside a usable one says of the volume.
fn what_it_means(
    cache: &Cache<'_>,
    g: &Geometry,
    usable: &Usable,
    index: usize,
    place: String,
) -> io::Result<(Code, String)> {
    let version = usable.version;
    let as_of = format!("the volume is as of checkpoint {version} of the other pack");
    let only = "only fsynced data is there";
    let may_be_older = || {
        let text =
            format!("{place}; checkpoint {version} of the other pack may be older than that one: {AS_NODES}");
        (Code::CheckpointOlder, text)
    };
    Ok(match left_of(cache, g, index, version)? {
        _ if asked(cache, g, &usable.pack, was_succeeded)? => (
            Code::CheckpointOlder,
            format!(
                "{place}; nodes show that a newer one than {version} of the other pack was complete: {AS_NODES}"
            ),
        ),
        _ if cache.medium.passes_unfinished() && asked(cache, g, &usable.pack, was_begun_after)? => (
            Code::CheckpointOlder,
            format!(
                "{place}; a newer checkpoint than {version} of the other pack is not finished: {AS_NODES}"
            ),
        ),
        Left::Header { version: later, .. } if is_newer(later, version) => (
            Code::CheckpointTorn,
            format!(
                "{place}; {as_of}: of the changes for checkpoint {later}, which has no second header, {only}; \
                 'medfs get --salvage' brings the files of that one where it is complete otherwise"
            ),
        ),
        Left::Repair => {
            (Code::CheckpointPack, format!("{place}: a repair was interrupted when it wrote this pack"))
        }
        Left::Torn { has_older: true } => {
            (Code::CheckpointTorn, format!("{place}, as power loss during a checkpoint leaves it"))
        }
        Left::Torn { has_older: false } => (
            Code::CheckpointTorn,
            format!(
                "{place}, as power loss during a checkpoint leaves it; {as_of}, and of all later changes, {only}"
            ),
        ),
        Left::Nothing if asked(cache, g, &usable.pack, was_begun_after)? => may_be_older(),
        Left::Header { .. } if asked(cache, g, &usable.pack, was_surely_begun_after)? => may_be_older(),
        Left::Header { first_is_blank: false, .. } => {
            (Code::CheckpointTorn, format!("{place}, as power loss during a checkpoint leaves it"))
        }
        Left::Header { .. } => (Code::CheckpointPack, place),
        Left::Nothing if asked(cache, g, &usable.pack, was_followed)? => (
            Code::CheckpointPack,
            format!(
                "{place}; {as_of}: what was fsynced since is there, and nothing shows that a newer one was made"
            ),
        ),
        Left::Nothing => (
            Code::CheckpointPack,
            format!("{place}; {as_of}: neither header is left to tell whether it was an older one"),
        ),
    })
}

/// The pack that counts of two that are whole: the older one may be so by its first header alone, as the write
/// of a newer one was lost.
fn beside_a_whole_one(
    cache: &mut Cache<'_>,
    g: &Geometry,
    usable: Usable,
    findings: &mut Findings,
) -> io::Result<Usable> {
    let index = 1 - usable.pack.0;
    if let Some((half, _)) = of_one_header(cache, g, index, usable.version)? {
        findings.add(Code::CheckpointHeader, first_is_older(&half, &usable));
        return Ok(half);
    }
    if asked(cache, g, &usable.pack, was_succeeded)? {
        let text = format!(
            "checkpoint pack {}: it is of an older checkpoint than {}, and nodes show that a newer one than that was \
             complete: {AS_NODES}",
            index + 1,
            usable.version
        );
        findings.add(Code::CheckpointOlder, text);
        return Ok(Usable { outdated: true, ..usable });
    }
    Ok(usable)
}

/// A pack with an older header in the place of its first one, where it counts.
fn newest_inside(
    cache: &mut Cache<'_>,
    g: &Geometry,
    usable: Usable,
    findings: &mut Findings,
) -> io::Result<Usable> {
    let mut counts = usable;
    for index in 0..2 {
        let left = HeaderLeft::inside(g, index, &mut readable(&cache.medium.again()))?;
        let inside = match left {
            Some(left) => with_left(cache, g, index, left)?,
            None => None,
        };
        if let Some((inside, _)) = inside.filter(|(inside, _)| is_newer(inside.version, counts.version)) {
            findings.add(Code::CheckpointHeader, first_is_older(&inside, &counts));
            counts = inside;
        }
    }
    Ok(counts)
}

fn first_is_older(half: &Usable, than: &Usable) -> String {
    let (number, is, was) = (half.pack.0 + 1, half.version, than.version);
    format!(
        "checkpoint pack {number}: its first header is of an older checkpoint; the last one is whole: checkpoint {is} is \
         complete, and counts before {was}"
    )
}

/// A pack with one damaged header, and whether power loss leaves it so.
fn of_one_header(
    cache: &mut Cache<'_>,
    g: &Geometry,
    index: usize,
    than: u64,
) -> io::Result<Option<(Usable, bool)>> {
    match HeaderLeft::of(g, index, than, &mut readable(&cache.medium.again()))? {
        Some(left) => with_left(cache, g, index, left),
        None => Ok(None),
    }
}

/// The pack of which this header is left, and whether power loss leaves it so.
fn with_left(
    cache: &Cache<'_>,
    g: &Geometry,
    index: usize,
    left: HeaderLeft,
) -> io::Result<Option<(Usable, bool)>> {
    let medium = cache.medium.again();
    let mut read = readable(&medium);
    let mut bytes = left.block.0.to_vec();
    for i in 0..g.cp_payload {
        let Some(block) = read(g.cp_pack(index) + 1 + i)? else { return Ok(None) };
        bytes.extend_from_slice(&block.0);
    }
    let version = left.version();
    let pack = (index, bytes, vec![(left.lost, left.block)]);
    let usable = Usable { pack, version, outdated: false };
    Ok(Some((usable, left.torn)))
}

/// The last block of the newer of two checkpoints, where all that tells of that block is the first one, and where
/// it would be.
pub(crate) fn missing_end(dev: &dyn BlockDevice) -> Result<Option<(BlockAddr, Box<Block>)>, Stop> {
    let mut findings = Findings::new(0);
    let medium = Medium::lenient(dev);
    let Some((_, g, _)) = superblock::in_force(&medium, &mut findings)? else { return Ok(None) };
    let mut cache = Cache::new(medium);
    let InForce::Whole((counts, bytes, _)) = pack(&mut cache, &g, &mut findings)? else { return Ok(None) };
    let (start, block) = (g.cp_pack(1 - counts), cache.read(g.cp_pack(1 - counts))?);
    let header = RawCheckpoint::in_block(&block);
    let mut head = Block::boxed();
    head.0.copy_from_slice(&bytes[..BLOCK_SIZE]);
    let than = RawCheckpoint::in_block(&head).checkpoint_ver.get();
    let sound = verify_checksum(&block, start).is_ok() && header.validate(start, &g).is_ok();
    if !sound || !is_newer(header.checkpoint_ver.get(), than) {
        return Ok(None);
    }
    let last = start + header.cp_pack_total_block_count.get() - 1;
    Ok(Some((last, block)))
}

/// Reads blocks past the cache; `None` for one that cannot be read.
fn readable(medium: &Medium<'_>) -> impl FnMut(BlockAddr) -> io::Result<Option<Box<Block>>> {
    |addr| {
        let block = medium.read(addr)?;
        Ok((!medium.is_unreadable(addr)).then_some(block))
    }
}

/// What is left of a damaged pack.
enum Left {
    /// One of its headers. Power loss puts no zeros in the place of the first one, and a sector that cannot be
    /// read is none of its doing. In the place of the last one may be the summary of a log without entries, which
    /// is zeros, of a checkpoint that was being made.
    Header {
        version: u64,
        first_is_blank: bool,
    },
    /// A repair was writing it.
    Repair,
    /// A part of the first one, with an older one behind it maybe.
    Torn {
        has_older: bool,
    },
    Nothing,
}

fn left_of(cache: &Cache<'_>, g: &Geometry, index: usize, than: u64) -> io::Result<Left> {
    let medium = cache.medium.again();
    let start = g.cp_pack(index);
    let header = any_header(g, index, &mut readable(&medium))?;
    let version = header.map(|header| RawCheckpoint::in_block(&header).checkpoint_ver.get());
    let first = medium.read(start)?;
    let is_torn = is_torn_header(&first, than) && !medium.is_unreadable(start);
    Ok(match version {
        _ if first.0.starts_with(BEING_WRITTEN) => Left::Repair,
        Some(version) if is_newer(version, than) || !is_torn => {
            Left::Header { version, first_is_blank: first.0.iter().all(|&byte| byte == 0) }
        }
        None if !is_torn => Left::Nothing,
        version => Left::Torn { has_older: version.is_some() },
    })
}

/// What the logs of nodes tell of what came after a pack's checkpoint.
type Asks = fn(
    &Geometry,
    &RawCheckpoint,
    u32,
    &mut dyn FnMut(BlockAddr) -> io::Result<Option<Box<Block>>>,
) -> io::Result<bool>;

fn asked(cache: &Cache<'_>, g: &Geometry, (index, bytes, _): &Pack, asks: Asks) -> io::Result<bool> {
    let mut head = Block::boxed();
    head.0.copy_from_slice(&bytes[..BLOCK_SIZE]);
    let crc = verify_checksum(&head, g.cp_pack(*index)).unwrap_or_default();
    asks(g, RawCheckpoint::in_block(&head), crc, &mut readable(&cache.medium.again()))
}
