//! docs/SEMANTICS.md: every promise has proofs, and every test that they name exists.
//!
//! A promise is a paragraph that opens with `**P7.**`. Its proofs are rows of the table at the document's
//! end: `| P7 | path | test_name<br>other_name |`. A proof is a Rust file with the names of tests in it, or a
//! program of the repository. The tests that `./x test` leaves out exist, too, and the lines that `tools/canaries`
//! breaks.

use medfs_tidy::{Source, expect_none, read, root, sources};

/// A row of the table of proofs.
#[derive(Debug, PartialEq, Eq)]
struct Proof<'d> {
    promise: usize,
    path: &'d str,
    tests: Vec<&'d str>,
}

/// The numbers of a document's promises, in its order.
fn promises(document: &str) -> Vec<usize> {
    let paragraphs = document.split("\n\n").map(str::trim);
    paragraphs.filter_map(|p| p.strip_prefix("**P")?.split_once(".**")?.0.parse().ok()).collect()
}

fn proof(line: &str) -> Option<Proof<'_>> {
    let cells: Vec<&str> = line.strip_prefix("| P")?.trim_end_matches('|').split(" | ").collect();
    let [promise, path, tests] = cells[..] else { return None };
    let tests = tests.trim().split("<br>").filter(|name| !name.is_empty()).collect();
    Some(Proof { promise: promise.parse().ok()?, path: path.trim_matches('`'), tests })
}

fn proofs(document: &str) -> Vec<Proof<'_>> {
    document.lines().filter_map(proof).collect()
}

/// What is wrong with a document's promises and proofs; `load` gives the text of a file of the repository.
fn unproved(document: &str, load: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let (promises, proofs) = (promises(document), proofs(document));
    let without = promises.iter().filter(|&&number| proofs.iter().all(|proof| proof.promise != number));
    let mut findings: Vec<String> = without.map(|number| format!("P{number} names no proof")).collect();
    for Proof { promise, path, tests } in &proofs {
        if !promises.contains(promise) {
            findings.push(format!("there is no P{promise}"));
        }
        let Some(code) = load(path) else {
            findings.push(format!("P{promise}: {path} does not exist"));
            continue;
        };
        if path.ends_with(".rs") && tests.is_empty() {
            findings.push(format!("P{promise}: {path}: no test is named"));
        }
        let missing = tests.iter().filter(|name| !has_test(&code, name));
        findings.extend(missing.map(|name| format!("P{promise}: {path} has no test {name}")));
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
    let numbers = promises(&document);
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>(), "promises are numbered in order");
    assert_eq!(numbers.len(), document.matches("**P").count(), "every promise is a paragraph of its own");
    let load = |path: &str| std::fs::read_to_string(root().join(path)).ok();
    expect_none("every promise of docs/SEMANTICS.md names tests that exist", unproved(&document, load));
}

#[test]
fn missing_proofs_are_found() {
    let load = |path: &str| {
        let code = "#[test]\nfn good() {}\n#[test]\n#[ignore]\nfn slow() {}\nfn helper() {}\n";
        (path == "a.rs").then(|| code.to_owned())
    };
    let count = |rows: &str| unproved(&format!("**P1.** It holds.\n\n{rows}"), load).len();
    assert_eq!(count("| P1 | `a.rs` | good |"), 0);
    assert_eq!(count(""), 1);
    assert_eq!(count("| P1 | `b.rs` | good |"), 1);
    assert_eq!(count("| P1 | `a.rs` |  |"), 1);
    assert_eq!(count("| P1 | `a.rs` | good |\n| P2 | `a.rs` | good |"), 1);
    assert_eq!(count("| P1 | `a.rs` | good<br>slow<br>helper<br>none |"), 3);
    assert_eq!(promises("x\n\n**P1.** One\nthing.\n\n**P2.** Two."), [1, 2]);
    assert_eq!(
        proofs("| P3 | `a.rs` | x<br>y |"),
        [Proof { promise: 3, path: "a.rs", tests: vec!["x", "y"] }]
    );
}

/// Each line of `tools/slow-tests` is a test program and a test of it, which may be in a module.
fn unknown_slow(list: &str, code: &[Source]) -> Vec<String> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    let is_known = |line: &&str| {
        let test = line.split(' ').nth(1).and_then(|test| test.rsplit("::").next());
        test.is_some_and(|test| code.iter().any(|source| has_test(&source.text, test)))
    };
    lines
        .filter(|line| !is_known(line))
        .map(|line| format!("tools/slow-tests: no such test: {line}"))
        .collect()
}

#[test]
fn the_tests_that_are_left_out_exist() {
    expect_none("tests that are left out", unknown_slow(&read("tools/slow-tests"), &sources()));
    let code = [Source::new("gc.rs", "#[test]\nfn takes_long() {}\n")];
    assert_eq!(unknown_slow("# tests\nengine gc::takes_long", &code), [""; 0]);
    assert_eq!(unknown_slow("engine gc::took_long\nengine", &code).len(), 2);
}

/// The canaries of a list whose lines are not in their files, once each; `load` gives the text of a file.
fn lost_canaries(list: &str, load: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let table: toml::Table = list.parse().expect("the list parses");
    let canaries = table["canary"].as_array().expect("a list of canaries");
    let mut findings = Vec::new();
    for canary in canaries {
        let text = |key: &str| canary[key].as_str().expect("a text").to_owned();
        let code = load(&text("file")).unwrap_or_default();
        for change in canary["changes"].as_array().expect("a list of changes") {
            let old = change["old"].as_str().expect("a text");
            let count = code.matches(old).count();
            if count != 1 {
                findings.push(format!("{}: {count} times in {}: {old}", text("name"), text("file")));
            }
        }
    }
    findings
}

#[test]
fn every_canary_finds_what_it_breaks() {
    let load = |path: &str| std::fs::read_to_string(root().join(path)).ok();
    expect_none(
        "lines that tools/canaries breaks are in the code once",
        lost_canaries(&read("tools/canaries.toml"), load),
    );
    let list = "[[canary]]\nname = 'a'\nfile = 'a.rs'\nchanges = [{ old = 'x();', new = '' }]";
    let count = |code: &str| lost_canaries(list, |_| Some(code.into())).len();
    assert_eq!([count("x();"), count("y();"), count("x(); x();")], [0, 1, 1]);
}
