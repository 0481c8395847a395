//! Everything that the program may say to people, in one list, so that its wording is read as a whole when it changes.
//!
//! The list is `messages.txt`, by file; `MEDFS_BLESS=1 cargo test -p medfs-tidy --test messages` writes it
//! anew. Doc comments are not in it: they make the help of commands and their options. What literals say is,
//! such as the help of mount options. What the lab's workloads and tests say is not.

use medfs_tidy::code::Parsed;
use medfs_tidy::{expect_none, read, root, sources};
use std::collections::BTreeSet;
use std::fmt::Write;

const LIST: &str = "crates/tidy/messages.txt";
/// Crates whose literals are content, or are read by nobody but developers.
const LEFT_OUT: [&str; 4] = ["crates/lab", "crates/testkit", "crates/tidy", "crates/sync"];

fn said() -> String {
    let mut files: Vec<Parsed> = sources().iter().filter(|s| s.is_rust()).filter_map(Parsed::new).collect();
    files.retain(|file| !LEFT_OUT.contains(&file.folder.as_str()));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let mut text = String::new();
    for file in files {
        let sentences = file.sentences();
        if !sentences.is_empty() {
            let _ = writeln!(text, "{}", file.path);
            for sentence in sentences {
                let _ = writeln!(text, "    {sentence}");
            }
        }
    }
    text
}

/// Lines that only one of two lists has.
fn differences(known: &str, said: &str) -> Vec<String> {
    let (known, said): (BTreeSet<&str>, BTreeSet<&str>) = (known.lines().collect(), said.lines().collect());
    let new = said.difference(&known).map(|line| format!("new: {}", line.trim()));
    new.chain(known.difference(&said).map(|line| format!("gone: {}", line.trim()))).collect()
}

#[test]
fn what_is_said_to_people_is_listed() {
    let said = said();
    if std::env::var_os("MEDFS_BLESS").is_some() {
        std::fs::write(root().join(LIST), &said).expect("the repository can be written");
        return;
    }
    expect_none(
        "read these sentences as their reader will, then MEDFS_BLESS=1 cargo test -p medfs-tidy --test messages",
        differences(&read(LIST), &said),
    );
}

#[test]
fn a_changed_sentence_is_found() {
    assert_eq!(differences("a.rs\n    one\n", "a.rs\n    two\n"), ["new: two", "gone: one"]);
}
