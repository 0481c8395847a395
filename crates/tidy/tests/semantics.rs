//! docs/SEMANTICS.md: every promise names tests, and every test it names exists.
//!
//! A promise is a paragraph that opens with `**P7.**` and ends with its proofs in parentheses:
//! `(Proof: crates/x/tests/y.rs test_name, other_name; tools/z)`. A proof is a Rust file with the names of
//! tests in it, or a program of the repository.

use medfs_tidy::{expect_none, read, root};

/// The promises of a document: number and text.
fn promises(document: &str) -> Vec<(usize, String)> {
    let paragraphs = document.split("\n\n").map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "));
    let numbered = paragraphs.filter_map(|p| {
        let (number, text) = p.strip_prefix("**P")?.split_once(".**")?;
        Some((number.parse().ok()?, text.to_owned()))
    });
    numbered.collect()
}

/// What is wrong with a promise's proofs; `load` gives the text of a file of the repository.
fn unproved(text: &str, load: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let Some((_, proofs)) = text.trim_end_matches(')').rsplit_once("(Proof: ") else {
        return vec!["names no proof".into()];
    };
    let mut findings = Vec::new();
    for proof in proofs.split("; ") {
        let proof = proof.replace('`', "");
        let (path, names) = proof.split_once(' ').unwrap_or((&proof, ""));
        let Some(code) = load(path) else {
            findings.push(format!("{path} does not exist"));
            continue;
        };
        if path.ends_with(".rs") && names.is_empty() {
            findings.push(format!("{path}: no test is named"));
        }
        let names = names.split(", ").filter(|n| !n.is_empty());
        findings.extend(names.filter(|n| !has_test(&code, n)).map(|n| format!("{path} has no test {n}")));
    }
    findings
}

/// Whether `code` has a test function `name`: one with `#[test]` or the like just above it, and not ignored.
fn has_test(code: &str, name: &str) -> bool {
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    let Some(at) = lines.iter().position(|l| l.starts_with(&format!("fn {name}("))) else { return false };
    let above = lines[..at].iter().rev().take_while(|l| l.starts_with("#[") || l.starts_with("//"));
    let attributes: Vec<&&str> = above.filter(|l| l.starts_with("#[")).collect();
    attributes.iter().any(|l| l.contains("test")) && !attributes.iter().any(|l| l.starts_with("#[ignore"))
}

#[test]
fn every_promise_has_a_test() {
    let document = read("docs/SEMANTICS.md");
    let promises = promises(&document);
    let numbers: Vec<usize> = promises.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>(), "promises are numbered in order");
    assert_eq!(numbers.len(), document.matches("**P").count(), "every promise is a paragraph of its own");
    let load = |path: &str| std::fs::read_to_string(root().join(path)).ok();
    let findings = promises
        .iter()
        .flat_map(|(n, text)| unproved(text, load).into_iter().map(move |f| format!("P{n}: {f}")));
    expect_none("every promise of docs/SEMANTICS.md names tests that exist", findings.collect());
}

#[test]
fn missing_proofs_are_found() {
    let load = |path: &str| {
        let code = "#[test]\nfn good() {}\n#[test]\n#[ignore]\nfn slow() {}\nfn helper() {}\n";
        (path == "a.rs").then(|| code.to_owned())
    };
    let count = |text: &str| unproved(text, load).len();
    assert_eq!(count("It holds. (Proof: `a.rs` good)"), 0);
    assert_eq!(count("It holds."), 1);
    assert_eq!(count("It holds. (Proof: `b.rs` good)"), 1);
    assert_eq!(count("It holds. (Proof: `a.rs`)"), 1);
    assert_eq!(count("It holds. (Proof: `a.rs` good, slow, helper, none)"), 3);
    assert_eq!(promises("x\n\n**P1.** One\nthing. (Proof: a)\n\n**P2.** Two.").len(), 2);
}
