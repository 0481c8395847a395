//! The script that MobiGen writes and Mobibench replays: `thread microseconds call arguments`.
//!
//! `open path flags fd`, `close fd`, `read fd bytes`, `write fd bytes`, `pread fd offset bytes`,
//! `pwrite fd offset bytes`, `fsync fd`, `fdatasync fd`, `access path`, `stat path`, `lstat path`,
//! `fstat fd`, `unlink path`. Threads share their descriptors. Contents are not in it, and names only where
//! they stand in quotes.

use super::model::{Model, Node, When};
use super::parser::{Parser, check_range, number};
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Mobibench {
    open: HashMap<i64, Open>,
    /// Files that were opened without a name.
    nameless: u64,
}

struct Open {
    node: Node,
    position: u64,
}

impl Parser for Mobibench {
    fn line(&mut self, line: &[u8], model: &mut Model<'_>) -> Result<(), String> {
        let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [thread, micros, call, arguments @ ..] = &fields[..] else {
            return if fields.is_empty() { Ok(()) } else { Err("it has fewer than three fields".into()) };
        };
        let thread: u32 = number(Some(thread), "the thread")?;
        let micros: u64 = number(Some(micros), "the time")?;
        model.at(When {
            at: micros.saturating_mul(1000),
            process: 1,
            thread: thread.saturating_add(1),
            took: 0,
        });
        let arg = |at: usize| arguments.get(at).copied();
        match call.trim_end_matches("64") {
            "open" => return self.open(model, arg(0), arg(1), number(arg(2), "the descriptor")?),
            "access" | "stat" | "lstat" | "unlink" => {
                let path = path(arg(0))?;
                if *call == "unlink" {
                    model.remove(&path, false);
                } else if let Some(node) = model.find(&path, false) {
                    model.look(node);
                }
                return Ok(());
            }
            _ => {}
        }
        let descriptor: i64 = number(arg(0), "the descriptor")?;
        let Some(open) = self.open.get_mut(&descriptor) else {
            model.skip(&format!("{call} of a descriptor that was not opened"));
            return Ok(());
        };
        let node = open.node;
        match call.trim_end_matches("64") {
            "close" => {
                model.closed(node);
                self.open.remove(&descriptor);
            }
            "fsync" => model.fsync(node, false),
            "fdatasync" => model.fsync(node, true),
            "fstat" => model.look(node),
            kind @ ("read" | "write" | "pread" | "pwrite") => {
                // MobiGen takes over what the call returned.
                if arguments.last().is_some_and(|len| *len == "-1") {
                    model.skip(&format!("{kind} that failed"));
                    return Ok(());
                }
                let (offset, len): (u64, u64) = if kind.starts_with('p') {
                    (number(arg(1), "the offset")?, number(arg(2), "the number of bytes")?)
                } else {
                    let len = number(arg(1), "the number of bytes")?;
                    (open.position, len)
                };
                check_range(offset, len)?;
                if !kind.starts_with('p') {
                    open.position += len;
                }
                match kind.ends_with("read") {
                    true => model.read(node, offset, len, len, &[]),
                    false => model.write_at(node, offset, len, &[]),
                }
            }
            other => model.skip(other),
        }
        Ok(())
    }
}

/// A path, with or without quotes.
fn path(field: Option<&str>) -> Result<Vec<u8>, String> {
    let field = field.ok_or("the path is missing")?;
    let path = field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(field);
    if path.is_empty() { Err("the path is empty".into()) } else { Ok(path.as_bytes().to_vec()) }
}

impl Mobibench {
    fn open(
        &mut self,
        model: &mut Model<'_>,
        file: Option<&str>,
        flags: Option<&str>,
        descriptor: i64,
    ) -> Result<(), String> {
        let (file, flags) = (file.ok_or("the path is missing")?, flags.ok_or("the flags are missing")?);
        let has = |flag: &str| flags.split('|').any(|f| f == flag);
        if descriptor < 0 {
            model.skip("open that failed");
            return Ok(());
        }
        let opened = if file.starts_with('"') {
            let path = path(Some(file))?;
            if has("O_CREAT") {
                model.make_or_find(&path, 0o644)
            } else {
                model.find(&path, false).map(|node| (node, false))
            }
        } else {
            // A file whose name the script does not tell is one of its own, and MobiGen has made up its flags.
            self.nameless += 1;
            model
                .make_or_find(format!("/nameless/{}", self.nameless).as_bytes(), 0o644)
                .map(|(node, _)| (node, true))
        };
        let Some((node, new)) = opened else { return Ok(()) };
        if has("O_TRUNC") && !new {
            model.truncate(node, 0);
        }
        let access = if has("O_RDONLY") { libc::O_RDONLY } else { libc::O_RDWR };
        model.opened(node, access);
        let position = if has("O_APPEND") { model.size(node) } else { 0 };
        self.open.insert(descriptor, Open { node, position });
        Ok(())
    }
}
