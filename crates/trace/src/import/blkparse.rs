//! The text that blkparse prints: requests of a block device, as reads and writes of one file, `device`.
//!
//! A line is `major,minor cpu sequence seconds.nanoseconds pid action rwbs [sector + count [process]]`. A request counts at
//! one event of its life: queued, issued or completed. Behind the lines comes a summary, which begins with `CPU` or `Total`.

use super::model::{Model, Node, When};
use super::parser::{Parser, check_range, number, shown};

/// Bytes of a sector.
const SECTOR: u64 = 512;

pub(super) struct Blkparse {
    event: String,
    file: Option<Node>,
    summary: bool,
}

impl Blkparse {
    pub(super) fn new(event: char) -> Blkparse {
        Blkparse { event: event.to_string(), file: None, summary: false }
    }

    fn file(&mut self, model: &mut Model<'_>) -> Option<Node> {
        if self.file.is_none() {
            self.file = model.find(b"device", false);
        }
        self.file
    }
}

impl Parser for Blkparse {
    fn line(&mut self, line: &[u8], model: &mut Model<'_>) -> Result<(), String> {
        let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
        let mut fields = text.split_whitespace();
        let Some(first) = fields.next() else { return Ok(()) };
        self.summary |= first.starts_with("CPU") || first.starts_with("Total");
        if self.summary {
            return Ok(());
        }
        let is_device =
            first.split_once(',').is_some_and(|(a, b)| a.parse::<u32>().is_ok() && b.parse::<u32>().is_ok());
        if !is_device {
            return Err(format!("'{}' is no device number, as 8,0", shown(first.as_bytes())));
        }
        let _cpu: u32 = number(fields.next(), "the CPU")?;
        let _sequence: u64 = number(fields.next(), "the sequence number")?;
        let at = nanoseconds(fields.next())?;
        let pid: u32 = number(fields.next(), "the process")?;
        let action = fields.next().ok_or("the action is missing")?;
        let rwbs = fields.next().ok_or("the kind of request is missing")?;
        if action != self.event {
            return Ok(());
        }
        model.at(When { at, process: pid, thread: pid, ..When::default() });
        let sector = fields.next();
        let Some(node) = self.file(model) else { return Ok(()) };
        if sector.is_none() || fields.next() != Some("+") {
            if rwbs.contains('F') {
                model.fsync(node, false);
            } else {
                model.skip(&format!("{action} {rwbs} without sectors"));
            }
            return Ok(());
        }
        let sector: u64 = number(sector, "the sector")?;
        let count: u64 = number(fields.next(), "the number of sectors")?;
        let (Some(offset), Some(len)) = (sector.checked_mul(SECTOR), count.checked_mul(SECTOR)) else {
            return Err("its sectors are beyond any device".into());
        };
        check_range(offset, len)?;
        request(model, node, rwbs, offset, len);
        Ok(())
    }
}

fn request(model: &mut Model<'_>, node: Node, rwbs: &str, offset: u64, len: u64) {
    // A flush before the request, and one behind it where it must be durable by itself.
    let (flush, rest) = rwbs.strip_prefix('F').map_or((false, rwbs), |rest| (true, rest));
    if flush {
        model.fsync(node, false);
    }
    match rest.chars().next() {
        Some('W') if len > 0 => model.write_at(node, offset, len, &[]),
        Some('R') if len > 0 => model.read(node, offset, len, len, &[]),
        Some('D') if len > 0 => model.fallocate(node, 3, offset, len),
        _ if flush => {}
        _ => model.skip(&format!("request {rwbs}")),
    }
    if rest.contains('F') {
        model.fsync(node, true);
    }
}

/// `seconds.nanoseconds`.
fn nanoseconds(field: Option<&str>) -> Result<u64, String> {
    let field = field.ok_or("the time is missing")?;
    let (seconds, rest) =
        field.split_once('.').ok_or_else(|| format!("'{}' is no time", shown(field.as_bytes())))?;
    let (seconds, nanos): (u64, u64) =
        (number(Some(seconds), "the time's seconds")?, number(Some(rest), "the time's nanoseconds")?);
    if rest.len() != 9 {
        return Err(format!("'{}' is no time in nanoseconds", shown(field.as_bytes())));
    }
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}
