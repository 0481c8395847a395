//! `medfs help findings` and medfs-findings(7): what the numbers of findings mean.
//!
//! The meanings are those by which the check itself has them ([`medfs_fsck::Code`]).

use crate::exit::{self, Coded};
use crate::words;
use anyhow::Result;
use medfs_fsck::{Code, Severity};
use roff::{Roff, bold, roman};
use std::ffi::OsString;

/// What stands before the list.
const BEFORE: &str = "\
'medfs fsck' begins each finding with its number, which never changes its
meaning. Each is one of three:

  warning  the volume is consistent; a repair tidies what does not stay
  error    the volume is inconsistent, and a repair mends it
  fatal    the check ends there; only F0107 can be repaired, with --nvram FILE";

/// The numbers, areas first.
const AREAS: [(u16, &str); 11] = [
    (1, "Superblock"),
    (2, "Checkpoint"),
    (3, "SIT: which blocks are in use"),
    (4, "NAT: where nodes are"),
    (5, "SSA: whose the blocks are"),
    (6, "Inodes"),
    (7, "Nodes, addresses, and the fsync log"),
    (8, "Directories"),
    (9, "Deltas"),
    (10, "Compressed clusters"),
    (11, "The device"),
];

fn of_area(area: u16) -> impl Iterator<Item = Code> {
    Code::ALL.iter().copied().filter(move |&code| code as u16 / 100 == area)
}

fn severity(code: Code) -> &'static str {
    match code.severity() {
        Severity::Warning => "warning",
        Severity::Error => "error",
        Severity::Fatal => "fatal",
    }
}

/// What a finding means, in plain words.
fn meaning(code: Code) -> String {
    let stays = if code.stays() { " A repair leaves it as it is." } else { "" };
    format!("{}{stays}", code.meaning().replace('`', "'"))
}

/// A finding as a row of a terminal, or as several, of which all but the first are indented.
fn row(code: Code, indent: usize) -> String {
    words::filled(&meaning(code), &format!("{:indent$}{code}  {:7}  ", "", severity(code)))
}

/// `medfs help findings [CODE...]`
pub(crate) fn help(codes: &[OsString]) -> u8 {
    exit::run("help", exit::FAILURE, || if codes.is_empty() { all() } else { some(codes) })
}

fn all() -> Result<u8> {
    outln!("{BEFORE}");
    for (area, title) in AREAS {
        outln!("\n{title}");
        for code in of_area(area) {
            outln!("{}", row(code, 2));
        }
    }
    Ok(exit::SUCCESS)
}

fn some(codes: &[OsString]) -> Result<u8> {
    for wanted in codes {
        let wanted = wanted.to_string_lossy();
        let number = wanted.trim_start_matches(['F', 'f']).parse::<u16>();
        let found = Code::ALL.iter().copied().find(|&code| number.as_ref() == Ok(&(code as u16)));
        let Some(code) = found else {
            let text = format!("no finding has the number '{wanted}': 'medfs help findings' lists all");
            return Err(Coded::new(exit::USAGE, text).into());
        };
        outln!("{}", row(code, 0));
    }
    Ok(exit::SUCCESS)
}

/// medfs-findings(7)
pub(crate) fn manual() -> String {
    let mut page = Roff::new();
    let source = concat!("medfs ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["medfs-findings", "7", "", source, "medfs"]);
    page.control("SH", ["NAME"]);
    page.text([roman("medfs-findings - what the findings of medfs-fsck(1) mean")]);
    page.control("SH", ["DESCRIPTION"]);
    let (text, severities) = BEFORE.split_once("\n\n").expect("a paragraph and a list");
    page.text([roman(text.replace('\n', " "))]);
    for line in severities.lines() {
        let (name, means) = line.trim().split_once("  ").expect("a word and what it means");
        page.control("TP", ["10"]);
        page.text([bold(name)]);
        page.text([roman(means.trim())]);
    }
    for (area, title) in AREAS {
        page.control("SH", [title.to_uppercase().as_str()]);
        for code in of_area(area) {
            page.control("TP", ["10"]);
            page.text([bold(code.to_string()), roman(format!(" ({})", severity(code)))]);
            page.text([roman(meaning(code))]);
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([roman("medfs-fsck(1), medfs-damaged(7)")]);
    page.to_roff()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_has_a_meaning_and_an_area() {
        let listed: Vec<Code> = AREAS.iter().flat_map(|&(area, _)| of_area(area)).collect();
        assert_eq!(listed, Code::ALL, "in their order");
        for &code in Code::ALL {
            let text = meaning(code);
            assert!(text.ends_with('.') && !text.contains("  ") && text.len() > 15, "{code}: {text}");
            assert!(manual().contains(&code.to_string()), "{code}");
            let row = row(code, 2);
            assert!(row.lines().all(|line| line.len() <= words::COLUMNS), "{row}");
            let words = row.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words, format!("{code} {} {text}", severity(code)));
        }
    }
}
