//! fio's iolog, versions 2 and 3: a line names a file and what is done with it; version 3 has microseconds in front.

use super::model::{Model, Node, When};
use super::parser::{Parser, check_range, number, shown};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Fio {
    version: u32,
    nodes: HashMap<String, Node>,
    /// Nanoseconds, from waits of version 2 and from times of version 3.
    at: u64,
}

impl Parser for Fio {
    fn line(&mut self, line: &[u8], model: &mut Model<'_>) -> Result<(), String> {
        let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
        if self.version == 0 {
            self.version = match text.trim() {
                "fio version 2 iolog" => 2,
                "fio version 3 iolog" => 3,
                _ => return Err(format!("'{}' does not begin an iolog of version 2 or 3", shown(line))),
            };
            return Ok(());
        }
        let mut fields = text.split_whitespace();
        if self.version == 3 {
            let Some(time) = fields.next() else { return Ok(()) };
            self.at = number::<u64>(Some(time), "the time")?.saturating_mul(1000);
        }
        let Some(name) = fields.next() else { return Ok(()) };
        let action = fields.next().ok_or("the action is missing")?;
        model.at(When { at: self.at, process: 1, thread: 1, ..When::default() });
        match action {
            "add" => {
                if let Some(node) = model.find(name.as_bytes(), false) {
                    self.nodes.insert(name.to_owned(), node);
                }
                return Ok(());
            }
            "wait" => {
                let micros: u64 = number(fields.next(), "the time to wait")?;
                self.at = self.at.saturating_add(micros.saturating_mul(1000));
                return Ok(());
            }
            _ => {}
        }
        let Some(&node) = self.nodes.get(name) else {
            return Err(format!("{} was not added before it is used", shown(name.as_bytes())));
        };
        self.act(model, node, action, &mut fields)
    }
}

impl Fio {
    fn act<'a>(
        &self,
        model: &mut Model<'_>,
        node: Node,
        action: &str,
        fields: &mut impl Iterator<Item = &'a str>,
    ) -> Result<(), String> {
        let range = |fields: &mut dyn Iterator<Item = &'a str>| -> Result<(u64, u64), String> {
            let (offset, len): (u64, u64) =
                (number(fields.next(), "the offset")?, number(fields.next(), "the length")?);
            check_range(offset, len)?;
            Ok((offset, len))
        };
        match action {
            "open" => model.opened(node, libc::O_RDWR),
            "close" => model.closed(node),
            "read" => {
                let (offset, len) = range(fields)?;
                model.read(node, offset, len, len, &[]);
            }
            "write" => {
                let (offset, len) = range(fields)?;
                model.write_at(node, offset, len, &[]);
            }
            "trim" => {
                let (offset, len) = range(fields)?;
                // A hole, of the size as it is.
                model.fallocate(node, 3, offset, len);
            }
            "sync" => model.fsync(node, false),
            "datasync" => model.fsync(node, true),
            other => return Err(format!("'{}' is no action", shown(other.as_bytes()))),
        }
        Ok(())
    }
}
