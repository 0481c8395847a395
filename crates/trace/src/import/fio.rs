//! fio's iolog, versions 2 and 3.

use super::model::{Model, Node, When};
use super::parser::{Parser, check_range, shown, text};
use medfs_iolog::fio::{Action, Iolog};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Fio {
    log: Iolog,
    nodes: HashMap<String, Node>,
}

impl Parser for Fio {
    fn line(&mut self, line: &[u8], model: &mut Model<'_>) -> Result<(), String> {
        let Some(entry) = self.log.line(text(line)?)? else { return Ok(()) };
        model.at(When { at: entry.at, process: 1, thread: 1, ..When::default() });
        if entry.action == Action::Add {
            if let Some(node) = model.find(entry.file.as_bytes(), false) {
                self.nodes.insert(entry.file.to_owned(), node);
            }
            return Ok(());
        }
        let Some(&node) = self.nodes.get(entry.file) else {
            return Err(format!("{} was not added before it is used", shown(entry.file.as_bytes())));
        };
        perform(model, node, entry.action)
    }
}

fn perform(model: &mut Model<'_>, node: Node, action: Action) -> Result<(), String> {
    if let Action::Read(span) | Action::Write(span) | Action::Trim(span) = action {
        check_range(span.offset, span.len)?;
    }
    match action {
        Action::Add => {}
        Action::Open => model.opened(node, libc::O_RDWR),
        Action::Close => model.closed(node),
        Action::Sync => model.fsync(node, false),
        Action::DataSync => model.fsync(node, true),
        Action::Read(span) => model.read(node, span.offset, span.len, span.len, &[]),
        Action::Write(span) => model.write_at(node, span.offset, span.len, &[]),
        // A hole, of the size as it is.
        Action::Trim(span) => model.fallocate(node, 3, span.offset, span.len),
    }
    Ok(())
}
