//! What `dump` shows of a file's deltas: the zone, its records, and the compact pages with theirs.
//!
//! A record's state is `ok`, what a check says of it, or why it does not count: `masked` by one in the zone
//! or in a later compact page, or `forgotten` with its compact page, which waits to be freed.

use super::{Dump, DumpError, Record, Value, text};
use crate::deltas::{self, Bases, Delta, Deltas};
use medfs_codec::Codecs;
use medfs_format::delta::{self, RawSlice};
use medfs_format::node::RawInode;
use medfs_format::{BlockAddr, Ino, NEW_ADDR};
use std::collections::BTreeSet;
use zerocopy::IntoBytes;

/// The file that is shown.
struct File<'i> {
    ino: Ino,
    inode: &'i RawInode,
    codecs: Codecs,
}

impl Dump<'_> {
    /// The delta zone, where there is one, and the compact pages.
    pub(super) fn deltas(&mut self, inode: &RawInode, ino: Ino, r: &mut Record) -> Result<(), DumpError> {
        let Some(range) = deltas::zone_range(inode, self.rules.flexible()).filter(|_| self.is_delta_volume())
        else {
            return Ok(());
        };
        let zone = &inode.as_bytes()[range];
        r.add("delta_zone_size", zone.len() as u64);
        let (records, error) = delta::parse_prefix(zone, ino);
        if let Ok(header) = delta::zone_header(zone, ino) {
            r.add("delta_zone_used", header.used.get());
            let names =
                [(delta::ZONE_COMPACT, "compact"), (delta::ZONE_NOTES, "notes"), (delta::ZONE_TIED, "tied")];
            let set: Vec<&str> =
                names.iter().filter(|(f, _)| header.flags & f != 0).map(|(_, name)| *name).collect();
            r.put("delta_zone_flags", text(set.join(" ")));
            r.add("delta_zone_first", header.first.get());
        }
        if let Some(error) = error {
            r.put("delta_zone_fault", text(error));
        }
        let mut rows: Vec<Value> = Vec::with_capacity(records.len());
        let mut file = File { ino, inode, codecs: Codecs::default() };
        let mut seen = BTreeSet::new();
        for delta in records.iter().rev().map(Delta::from) {
            let masked = (!seen.insert(delta.index)).then_some("masked");
            rows.push(self.delta(&mut file, &delta, masked)?);
        }
        rows.reverse();
        r.put("deltas", Value::List(rows));
        self.compact_pages(&mut file, r)
    }

    fn compact_pages(&mut self, file: &mut File<'_>, r: &mut Record) -> Result<(), DumpError> {
        let (inode, ino) = (file.inode, file.ino);
        let start = delta::compact_start(inode.slots(self.rules.flexible()).fanout());
        if deltas::most_pages(inode, self.rules.flexible(), ino) != start {
            return Ok(());
        }
        let all = deltas::load(&mut self.image, inode, ino)?;
        let mut rows = Vec::new();
        for (place, addr) in deltas::places(&mut self.image, inode)? {
            let mut row = Record::default();
            row.add("place", place);
            row.add("block", addr);
            match delta::compact_records(self.image.cache.get(addr)?, ino).map(|(sequence, _)| sequence) {
                Err(error) => row.put("state", text(error)),
                Ok(sequence) => self.compact_page(file, &all, sequence, addr, &mut row)?,
            }
            rows.push(Value::Row(row));
        }
        r.put("compact_pages", Value::List(rows));
        Ok(())
    }

    fn compact_page(
        &mut self,
        file: &mut File<'_>,
        all: &Deltas,
        sequence: u32,
        addr: BlockAddr,
        row: &mut Record,
    ) -> Result<(), DumpError> {
        let records = all.page(&mut self.image, file.ino, addr)?;
        let twice = all.pages.get(&sequence) != Some(&addr);
        let state = match (twice, sequence < all.first) {
            (true, _) => Some("another page has its number"),
            (_, true) => Some("forgotten"),
            _ => None,
        };
        let counts = |d: &Delta| state.is_none() && all.counts(sequence, d.index);
        let counting = records.iter().filter(|d| counts(d)).count();
        row.add("sequence", sequence);
        row.add("counting", counting as u64);
        row.add("masked", (records.len() - counting) as u64);
        row.put("state", text(state.unwrap_or("ok")));
        let mut rows = Vec::with_capacity(records.len());
        for delta in &records {
            let state = if counts(delta) { None } else { Some(state.unwrap_or("masked")) };
            rows.push(self.delta(file, delta, state)?);
        }
        row.put("deltas", Value::List(rows));
        Ok(())
    }

    /// A record; with a state it is not judged.
    fn delta(&mut self, file: &mut File<'_>, delta: &Delta, state: Option<&str>) -> Result<Value, DumpError> {
        let record = delta.record();
        let mut row = Record::default();
        row.add("page", record.index);
        row.add("size", record.delta.len() as u64);
        if delta.is_mark() {
            row.put("codec", text("none"));
        } else {
            row.put("codec", super::codec_name(record.codec));
            row.put("checksum", text(format_args!("{:#010x}", record.checksum)));
            row.put("base", self.base(file.inode, &record)?);
        }
        let judged = match state {
            Some(state) => state.to_owned(),
            None => {
                let mut bases = Bases::new(&self.rules, &mut file.codecs);
                let verdict = bases.judge(&mut self.image, file.inode, &record)?;
                verdict.map_or_else(|(_, why)| why, |()| "ok".into())
            }
        };
        row.put("state", text(judged));
        if !record.slices.is_empty() {
            row.put("slices", Value::List(record.slices.iter().map(slice).collect()));
        }
        Ok(Value::Row(row))
    }

    fn base(&mut self, inode: &RawInode, record: &delta::Record<'_>) -> Result<Value, DumpError> {
        if !record.slices.is_empty() {
            return Ok(text("slices"));
        }
        Ok(match self.image.address(inode, record.index.into())? {
            _ if self.rules.has_compression()
                && deltas::in_cluster(&mut self.image, inode, record.index.into())? =>
            {
                text("cluster")
            }
            NEW_ADDR => text("zeros"),
            addr if self.image.g.in_main(addr) => addr.into(),
            _ => text("none"),
        })
    }
}

fn slice(slice: &RawSlice) -> Value {
    let mut row = Record::default();
    row.add("ino", slice.ino.get());
    row.add("page", slice.page.get());
    row.add("from", slice.from.get());
    row.add("to", slice.to.get());
    row.add("len", slice.len.get());
    Value::Row(row)
}
