//! What `dump` shows of shared record nodes: each file's entry, and whether it stands for an inode block; and
//! of removed names.

use super::{Dump, DumpError, Record, Value, codec_name, text};
use crate::log;
use medfs_codec::Codecs;
use medfs_format::BlockAddr;
use medfs_format::removed::{RemovedName, removed_names};
use medfs_format::shared::entries;

impl Dump<'_> {
    /// The shared record node in a block.
    pub(super) fn shared_node(&mut self, addr: BlockAddr) -> Result<Value, DumpError> {
        let block = self.image.cache.medium.read(addr)?;
        let mut r = Record::default();
        r.add("block_addr", addr);
        let found = match entries(&block, addr) {
            Ok(found) => found,
            Err(fault) => {
                r.put("fault", text(fault));
                return Ok(Value::Record(r));
            }
        };
        let mut codecs = Codecs::default();
        let mut rows = Vec::with_capacity(found.len());
        for entry in found {
            let mut row = Record::default();
            row.add("ino", entry.ino);
            row.add("base", entry.base);
            row.add("size", entry.delta.len() as u64);
            row.put("codec", codec_name(entry.codec));
            let state = log::inode_block(&self.image, &mut codecs, &entry)?;
            row.put("state", text(state.err().unwrap_or_else(|| "ok".into())));
            rows.push(Value::Row(row));
        }
        r.put("entries", Value::List(rows));
        Ok(Value::Record(r))
    }
    /// The node of removed names in a block.
    pub(super) fn removed_names(&mut self, addr: BlockAddr) -> Result<Value, DumpError> {
        let block = self.image.cache.medium.read(addr)?;
        let mut r = Record::default();
        r.add("block_addr", addr);
        match removed_names(&block, addr) {
            Err(fault) => r.put("fault", text(fault)),
            Ok(names) => {
                let row = |name: &RemovedName<'_>| {
                    let mut row = Record::default();
                    row.add("ino", name.ino);
                    row.add("dir", name.dir);
                    row.put("name", text(String::from_utf8_lossy(name.name)));
                    Value::Row(row)
                };
                r.put("names", Value::List(names.iter().map(row).collect()));
            }
        }
        Ok(Value::Record(r))
    }
}
