//! The records of a journal, found one behind the other.

use super::record::{JC_SIZE, MAX_RECORD, Record, sequence_of};
use super::{Meta, RING_START, round_up};
use crate::{FormatError, Structure};

/// The content of a journal.
#[derive(Debug)]
pub struct Scanned<'a> {
    /// Its records, in order, with the place of each.
    pub records: Vec<(u64, Record<'a>)>,
    /// Offset of the next record.
    pub next: u64,
    /// Its sequence.
    pub sequence: u64,
    /// Bytes of the ring that they take, gaps included.
    pub used: u64,
}

/// Where a record of `size` bytes begins that comes behind `at`: there, or at the ring's start. The bytes
/// that are left over where it is not `at` are returned too. The caller has seen that it fits the ring.
pub fn next_start(meta: &Meta, at: u64, size: u64) -> (u64, u64) {
    if at + size <= meta.size { (at, 0) } else { (RING_START, meta.size - at) }
}

/// The records of a journal, from the first live one on. `memory` is all of it. A bad record before a good
/// one is an error.
pub fn scan<'a>(memory: &'a [u8], meta: &Meta) -> Result<Scanned<'a>, FormatError> {
    match scan_to_damage(memory, meta)? {
        (scanned, None) => Ok(scanned),
        (_, Some(damage)) => Err(damage),
    }
}

/// The same up to a bad record before a good one, and what that is.
pub fn scan_to_damage<'a>(
    memory: &'a [u8],
    meta: &Meta,
) -> Result<(Scanned<'a>, Option<FormatError>), FormatError> {
    let Some(memory) = memory.get(..meta.size as usize) else {
        let value = format!("{} bytes, of {}", memory.len(), meta.size);
        return Err(FormatError::corrupt(Structure::NvramJournal, 0u32, "size", value));
    };
    let ring = meta.size - RING_START;
    let (mut records, mut next, mut sequence) = (Vec::new(), meta.first, meta.sequence);
    let mut used = 0;
    loop {
        let found = [(next, 0), (RING_START, meta.size - next)].into_iter().find_map(|(at, gap)| {
            let record = Record::parse(memory.get(at as usize..)?, at).ok()?;
            let belongs = record.stamp.sequence == sequence && record.stamp.generation == meta.generation;
            belongs.then_some((at, gap, record))
        });
        let Some((at, gap, record)) = found else { break };
        let end = round_up(at + record.size() as u64, meta.unit.into());
        used += gap + (end - at);
        if used > ring {
            break;
        }
        records.push((at, record));
        sequence = sequence.wrapping_add(1);
        next = if end == meta.size { RING_START } else { end };
    }
    let damage = later(memory, meta, sequence, &records).map(|(at, found)| {
        let value = format!("record {sequence} is none, and record {found} lies at {at:#x}");
        FormatError::corrupt(Structure::NvramRecord, next, "record", value)
    });
    Ok((Scanned { records, next, sequence, used }, damage))
}

/// A record of the journal's generation that is not older than `sequence`, anywhere in the ring but within
/// the records that are known: these have bytes of users in them. Who writes such bytes does not know the
/// generation.
fn later(memory: &[u8], meta: &Meta, sequence: u64, known: &[(u64, Record<'_>)]) -> Option<(u64, u64)> {
    let mut extents: Vec<(u64, u64)> =
        known.iter().map(|(at, record)| (*at, at + record.size() as u64)).collect();
    extents.sort_unstable();
    let mut extents = extents.into_iter().peekable();
    for at in (RING_START..meta.size).step_by(meta.unit as usize) {
        while extents.next_if(|&(_, end)| end <= at).is_some() {}
        if extents.peek().is_some_and(|&(start, _)| start <= at) {
            continue;
        }
        let bytes = &memory[at as usize..];
        let bytes = &bytes[..bytes.len().min(MAX_RECORD + JC_SIZE)];
        if sequence_of(bytes).is_none_or(|found| found < sequence) {
            continue;
        }
        if let Ok(record) = Record::parse_of(bytes, at, meta.generation) {
            return Some((at, record.stamp.sequence));
        }
    }
    None
}
