//! What `medfs get` says at its end: every path that failed, with its reason.

use super::More;
use super::args::GetArgs;
use super::map::Keeper;
use crate::damaged::Hidden;
use crate::list::failure_line;
use crate::{damaged, exit, json, size, words};
use anyhow::Result;
use medfs_device::quote;
use medfs_rescue::{Failure, Outcome};
use serde::Serialize;
use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// What `--json` prints.
#[derive(Serialize)]
struct Printed {
    image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_hex: Option<String>,
    files: u64,
    directories: u64,
    bytes: u64,
    /// Of those, what no directory names.
    unnamed: u64,
    /// Of these, what is where its inode says; the others are under numbers.
    placed: u64,
    /// Of files and directories, those that are not whole.
    not_whole: u64,
    /// What no directory names, and was not copied.
    not_named: u64,
    /// Inodes that no directory has led to and that cannot be read.
    not_read: u64,
    /// What was not tried, as the copying ended before; of a part of a volume it is not known.
    not_tried: Option<u64>,
    /// What is lost, with its name.
    gone: u64,
    /// Bytes of the device that cannot be read.
    bad_bytes: u64,
    /// Bytes of the volume behind the end of the device.
    missing_bytes: u64,
    /// What was not copied or incomplete.
    failed: Vec<Failed>,
    /// Failures beyond those listed.
    failed_more: u64,
    exit: u8,
}

#[derive(Serialize)]
struct Failed {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    ino: Option<u32>,
    reason: String,
    /// Absent where the ranges are not known, as of a file that was not brought at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lost: Vec<LostRange>,
}

#[derive(Serialize)]
struct LostRange {
    offset: u64,
    length: u64,
}

impl From<&Failure> for Failed {
    fn from(failure: &Failure) -> Failed {
        let (path, path_hex) = json::name(&failure.path);
        let range =
            |range: &std::ops::Range<u64>| LostRange { offset: range.start, length: range.end - range.start };
        Failed {
            path,
            path_hex,
            ino: failure.ino,
            reason: exit::without_numbers(&failure.reason),
            lost_bytes: (failure.lost.bytes > 0).then_some(failure.lost.bytes),
            lost: failure.lost.ranges.iter().map(range).collect(),
        }
    }
}

/// Tells what came of it; the exit code. `ended`: what ended the copying before all was copied.
pub(super) fn tell(
    args: &GetArgs,
    outcome: &Outcome,
    ended: io::Result<()>,
    keeper: &Keeper,
    more: More,
) -> Result<u8> {
    let is_all = outcome.is_whole() && ended.is_ok();
    let code = if is_all { exit::SUCCESS } else { exit::FAILURE };
    tell_failures(outcome);
    if ended.is_ok() && (args.recursive || args.salvage) {
        count_failures(outcome);
    }
    tell_missing(args, outcome);
    if more.fills {
        errln!("medfs get: {}", damaged::salvage_fills(&args.image));
    }
    more.newer.tell("get", &args.image);
    let copied = outcome.files + outcome.directories;
    let more = match (is_all, copied) {
        (true, 1) => "; 1 file or directory was copied whole".to_owned(),
        (true, _) => format!("; all {} were copied whole", words::count(copied, "file or directory")),
        (false, _) => String::new(),
    };
    keeper.tell_missing("get", &args.image, &more);
    if keeper.bad_bytes() > 0 {
        errln!("medfs get: {} of the device cannot be read", size::show(keeper.bad_bytes()));
    }
    if args.json {
        let (image, image_hex) = json::name(args.image.as_os_str().as_bytes());
        json::print(&Printed {
            image,
            image_hex,
            files: outcome.files,
            directories: outcome.directories,
            bytes: outcome.bytes,
            unnamed: outcome.unnamed,
            placed: outcome.placed,
            not_whole: outcome.flawed,
            not_named: outcome.unmet,
            not_read: outcome.unmet_unread,
            not_tried: outcome.untried,
            gone: outcome.gone,
            bad_bytes: keeper.bad_bytes(),
            missing_bytes: keeper.missing_bytes(),
            failed: outcome.failures.iter().map(Failed::from).collect(),
            failed_more: outcome.more_failures,
            exit: code,
        })?;
    } else if args.salvage && ended.is_ok() {
        let all = words::count(outcome.files + outcome.directories, "file or directory");
        let flawed = match outcome.flawed {
            0 => String::new(),
            flawed => format!(", {} of them incomplete,", words::grouped(flawed)),
        };
        let content = size::show(outcome.bytes);
        outln!(
            "{all} copied{}{flawed} {content} of content{}",
            if flawed.is_empty() { "," } else { "" },
            without_names(outcome)
        );
    }
    ended.map_err(|_| not_tried(outcome))?;
    Ok(code)
}

/// Names each path that failed.
fn tell_failures(outcome: &Outcome) {
    for line in lines(&outcome.failures) {
        errln!("{line}");
    }
    if outcome.more_failures > 0 {
        errln!("medfs get: and {} more", words::count(outcome.more_failures, "file or directory"));
    }
}

/// Counts the paths that failed, where some did.
fn count_failures(outcome: &Outcome) {
    if outcome.failed_of_files() > 0 {
        let failed = words::count(outcome.failed_of_files(), "file or directory");
        let whole = match outcome.whole() {
            0 => "nothing was copied completely".to_owned(),
            whole => format!("{} copied whole", words::count(whole, "file or directory")),
        };
        errln!("medfs get: {failed} not copied or incomplete; {whole}");
    }
}

/// Failures for one reason that have it for themselves.
const ALONE: usize = 3;

/// Each failure in a line. The reason of many is told once, with their paths below it.
fn lines(failures: &[Failure]) -> Vec<String> {
    let mut of_reason: HashMap<&str, Vec<&Failure>> = HashMap::new();
    for failure in failures {
        of_reason.entry(&failure.reason).or_default().push(failure);
    }
    let mut lines = Vec::new();
    for failure in failures {
        match of_reason.get(&*failure.reason).map_or(0, Vec::len) {
            0 => {}
            count if count <= ALONE => lines.push(format!("medfs get: {}", failure_line(failure))),
            count => {
                let count = words::count(count as u64, "file or directory");
                lines.push(format!(
                    "medfs get: {count}, of each: {}:",
                    exit::without_numbers(&failure.reason)
                ));
                let all = of_reason.remove(&*failure.reason).unwrap_or_default();
                lines.extend(all.iter().map(|failure| format!("  {}", quote::for_terminal(&failure.path))));
            }
        }
    }
    lines
}

/// What was not tried as the disk is full. The file that could not be written is among the failures, with the reason.
fn not_tried(outcome: &Outcome) -> anyhow::Error {
    let copied = match outcome.whole() {
        0 => "nothing was copied whole".to_owned(),
        1 => "1 file or directory was copied whole".to_owned(),
        whole => format!("{} were copied whole", words::count(whole, "file or directory")),
    };
    let failed = words::grouped(outcome.failed_of_files());
    let rest = match outcome.untried {
        Some(untried) => format!("{} not tried", words::grouped(untried)),
        None => "the rest was not tried".to_owned(),
    };
    let way = "make room, or name a directory on a larger disk, and run it again";
    anyhow::anyhow!("{copied}, {failed} in part or not at all, {rest}: {way}")
}

/// What is known to be missing, without a name of its own.
fn tell_missing(args: &GetArgs, outcome: &Outcome) {
    if outcome.unmet > 0 {
        let (unmet, are) = (words::count(outcome.unmet, "file or directory"), are(outcome.unmet));
        errln!("medfs get: {unmet} without a directory entry {are} in the volume and not copied");
    }
    if outcome.unmet_unread > 0 {
        let unread = words::count(outcome.unmet_unread, "file or directory");
        errln!("medfs get: {unread} more cannot be read");
    }
    if outcome.gone > 0 {
        let (gone, are) = (words::count(outcome.gone, "file or directory"), are(outcome.gone));
        errln!("medfs get: {gone} {are} lost: neither name nor content is left");
    }
    let hidden = Hidden::of(outcome.unmet + outcome.torn > 0, outcome.unread + outcome.unmet_unread > 0);
    if let Some(hidden) = hidden.filter(|_| !args.salvage) {
        errln!("medfs get: {}", damaged::salvage_finds(&args.image, hidden));
    }
}

/// Where files went that no directory names; nothing where there are none.
fn without_names(outcome: &Outcome) -> String {
    let (unnamed, placed) = (outcome.unnamed, outcome.placed);
    if unnamed == 0 {
        return String::new();
    }
    let all = words::count(unnamed, "file or directory");
    format!(
        "; {all} had no directory entry: {} {} where the inodes say, {} in by-inode",
        words::grouped(placed),
        are(placed),
        words::grouped(unnamed - placed)
    )
}

fn are(number: u64) -> &'static str {
    if number == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_rescue::Lost;

    fn failed(path: &str, reason: &str) -> Failure {
        Failure { path: path.into(), ino: None, reason: reason.into(), lost: Lost::default() }
    }

    #[test]
    fn what_is_so_of_many_is_told_once() {
        let mut failures = vec![failed("/first", "alone")];
        failures.extend((0..4).map(|n| failed(&format!("/lost {n}"), "its inode is lost")));
        failures.insert(3, failed("/second", "two"));
        failures.push(failed("/third", "two"));
        let expected = [
            "medfs get: /first: alone",
            "medfs get: 4 files and directories, of each: its inode is lost:",
            "  '/lost 0'",
            "  '/lost 1'",
            "  '/lost 2'",
            "  '/lost 3'",
            "medfs get: /second: two",
            "medfs get: /third: two",
        ];
        assert_eq!(lines(&failures), expected);
    }
}
