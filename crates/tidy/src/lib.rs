//! Rules of the house, checked as tests.
//!
//! Purpose: what reviewers would otherwise repeat. The tests read the repository's own text; this
//! library finds it. Every rule is a function over text that returns its findings, so that a test can
//! also show that the rule finds what it is for.
#![forbid(unsafe_code)]

pub mod code;
pub mod locks;
pub mod prose;

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the repository.
#[derive(Debug)]
pub struct Source {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Source {
    /// A file that is not on disk, to try a rule on.
    pub fn new(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into() }
    }

    /// Whether it is a Rust file.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace is there")
}

/// One file, by its path from the root.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every text file of the repository: build results, version control and binary files are left out.
pub fn sources() -> Vec<Source> {
    let (root, mut found) = (root(), Vec::new());
    visit(&root, &root, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn visit(root: &Path, dir: &Path, found: &mut Vec<Source>) {
    /// At the root alone: a module may have such a name.
    const OUTPUT: [&str; 2] = ["target", "out"];
    const LEFT_OUT: [&str; 2] = [".git", "proptest-regressions"];
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())).flatten() {
        let path = entry.path();
        let name = entry.file_name();
        let is = |names: &[&str]| names.iter().any(|&left_out| name == left_out);
        if is(&LEFT_OUT) || dir == root && is(&OUTPUT) {
            continue;
        }
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            visit(root, &path, found);
        } else if name != "Cargo.lock"
            && entry.metadata().is_ok_and(|m| m.is_file() && m.len() < 1 << 20)
            && let Ok(text) = fs::read_to_string(&path)
        {
            let path = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            found.push(Source { path, text });
        }
    }
}

/// Fails with all findings of a rule.
pub fn expect_none(rule: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "{rule}:\n{}", findings.join("\n"));
}
