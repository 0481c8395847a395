//! What blkparse prints: requests of a block device, as reads and writes of one file, `device`.
//!
//! A request counts at one event of its life: queued, issued or completed.

use super::model::{Model, Node, When};
use super::parser::{Parser, check_range, text};
use medfs_iolog::blkparse::{Event, Line, Op, line};

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
    fn line(&mut self, bytes: &[u8], model: &mut Model<'_>) -> Result<(), String> {
        let text = text(bytes)?;
        if self.summary {
            return Ok(());
        }
        match line(text)? {
            Line::Summary => self.summary = true,
            Line::Event(event) if event.action == self.event => {
                model.at(When { at: event.at, process: event.pid, thread: event.pid, ..When::default() });
                if let Some(node) = self.file(model) {
                    perform(model, node, &event)?;
                }
            }
            Line::Empty | Line::Event(_) => {}
        }
        Ok(())
    }
}

fn perform(model: &mut Model<'_>, node: Node, event: &Event<'_>) -> Result<(), String> {
    let request = event.request;
    let span = event.span.filter(|span| span.len > 0);
    if let Some(span) = span {
        check_range(span.offset, span.len)?;
    }
    if request.flush_before {
        model.fsync(node, false);
    }
    match (request.op, span) {
        (Some(Op::Write), Some(span)) => model.write_at(node, span.offset, span.len, &[]),
        (Some(Op::Read), Some(span)) => model.read(node, span.offset, span.len, span.len, &[]),
        (Some(Op::Discard), Some(span)) => model.fallocate(node, 3, span.offset, span.len),
        _ if request.flush_before => {}
        _ if event.span.is_none() => {
            model.skip(&format!("{} {} without sectors", event.action, request.rwbs))
        }
        _ => model.skip(&format!("request {}", request.rwbs)),
    }
    if request.durable && span.is_some() {
        model.fsync(node, true);
    }
    Ok(())
}
