//! Rules for the source text: size, headers, words, and the direction of dependencies.

use medfs_tidy::{Source, expect_none, read, sources};
use std::collections::BTreeMap;

/// Most lines of a Rust file.
const LINES_MAX: usize = 800;
/// Most columns of a comment that has a line of its own. The code's are rustfmt's.
const COMMENT_COLUMNS: usize = 120;

fn too_long(files: &[Source]) -> Vec<String> {
    let rust = files.iter().filter(|f| f.is_rust()).map(|f| (&f.path, f.text.lines().count()));
    rust.filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect()
}

fn without_header(files: &[Source]) -> Vec<String> {
    let rust = files.iter().filter(|f| f.is_rust());
    rust.filter(|f| !f.text.starts_with("//!"))
        .map(|f| format!("{}: does not open with //!", f.path))
        .collect()
}

/// Lines that hold one of `words`. The words are put together here so that this file does not hold them.
fn lines_with(files: &[Source], words: &[String]) -> Vec<String> {
    let lines =
        files.iter().flat_map(|f| f.text.lines().enumerate().map(move |(i, line)| (&f.path, i + 1, line)));
    lines
        .filter(|(_, _, line)| words.iter().any(|w| line.contains(w.as_str())))
        .map(|(path, n, line)| format!("{path}:{n}: {}", line.trim()))
        .collect()
}

fn unfinished_words() -> Vec<String> {
    [("TO", "DO"), ("FIX", "ME"), ("todo", "!("), ("unimplemented", "!(")]
        .iter()
        .map(|(a, b)| format!("{a}{b}"))
        .collect()
}

fn machine_paths() -> Vec<String> {
    [("/wo", "rk/"), ("/fa", "rm/"), ("../sha", "red"), ("/tmp/br", "ief"), ("/tmp/", "wt/")]
        .iter()
        .map(|(a, b)| format!("{a}{b}"))
        .collect()
}

#[test]
fn files_fit_one_subject() {
    expect_none("a Rust file has at most 800 lines", too_long(&sources()));
    assert_eq!(too_long(&[Source::new("a.rs", &"x\n".repeat(801))]).len(), 1);
    assert_eq!(
        too_long(&[Source::new("a.rs", &"x\n".repeat(800)), Source::new("a.md", &"x\n".repeat(801))]).len(),
        0
    );
}

fn wide_comments(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let comments = file.text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
        let wide =
            comments.map(|(at, line)| (at + 1, line.chars().count())).filter(|(_, n)| *n > COMMENT_COLUMNS);
        found.extend(wide.map(|(line, columns)| format!("{}:{line}: {columns} columns", file.path)));
    }
    found
}

#[test]
fn comments_fit_a_screen() {
    expect_none("a line of a comment has at most 120 columns", wide_comments(&sources()));
    let line = |before: &str, columns: usize| format!("{before}{}\n", "é".repeat(columns - before.len()));
    for comment in ["// ", "    /// ", "//! "] {
        assert_eq!(wide_comments(&[Source::new("a.rs", &line(comment, 120))]), [""; 0]);
        assert_eq!(wide_comments(&[Source::new("a.rs", &line(comment, 121))]), ["a.rs:1: 121 columns"]);
    }
    let others = [Source::new("a.rs", &line("let x = ", 130)), Source::new("a.md", &line("// ", 130))];
    assert_eq!(wide_comments(&others), [""; 0]);
}

#[test]
fn modules_open_with_their_purpose() {
    expect_none("a Rust file opens with its purpose", without_header(&sources()));
    assert_eq!(without_header(&[Source::new("a.rs", "use x;"), Source::new("b.rs", "//! B.")]).len(), 1);
}

#[test]
fn nothing_is_left_unfinished() {
    let words = unfinished_words();
    expect_none("no marks of unfinished work", lines_with(&sources(), &words));
    assert_eq!(
        lines_with(&[Source::new("a.rs", &format!("fn f() {{\n {})\n}}", words[2]))], &words).len(),
        1
    );
}

/// Generators that are another one on another processor or in another release, and the seeds that nobody can print.
fn unnamed_generators() -> Vec<String> {
    [
        ("Small", "Rng"),
        ("Std", "Rng"),
        ("Thread", "Rng"),
        ("thread_", "rng"),
        ("rand::", "rng()"),
        ("rand::", "random"),
    ]
    .iter()
    .map(|(a, b)| format!("{a}{b}"))
    .collect()
}

#[test]
fn generators_go_by_name() {
    let words = unnamed_generators();
    let code: Vec<Source> = sources().into_iter().filter(Source::is_rust).collect();
    expect_none(
        "a generator whose name says what it makes, so that a seed gives the same everywhere",
        lines_with(&code, &words),
    );
    let rand: toml::Table = read("Cargo.toml").parse().expect("the workspace's manifest");
    let off = rand["workspace"]["dependencies"]["rand"].get("default-features");
    assert_eq!(off.and_then(toml::Value::as_bool), Some(false), "rand's own generators are left out");
    assert_eq!(
        lines_with(&[Source::new("a.rs", &format!("use rand::rngs::{};", words[0]))], &words).len(),
        1
    );
}

#[test]
fn no_paths_of_one_machine() {
    let words = machine_paths();
    expect_none("no paths of one machine", lines_with(&sources(), &words));
    assert_eq!(lines_with(&[Source::new("a.md", &format!("see {}x", words[0]))], &words).len(), 1);
}

/// Crates by their names, each with its layer: 0 is the lowest.
type Layers = BTreeMap<String, usize>;

/// The layers of the drawing in docs/ARCHITECTURE.md: a fenced block ```` ```layers ````, whose boxes stand
/// one on the other. A row of a box begins with `|`, and the names of its crates end at the next one. With
/// it, names that are drawn twice.
fn layers(document: &str) -> (Layers, Vec<String>) {
    let drawing = document.split_once("\n```layers\n").and_then(|(_, rest)| rest.split_once("\n```"));
    let (drawing, _) = drawing.expect("docs/ARCHITECTURE.md has a drawing of the layers");
    let boxes: Vec<&str> = drawing.split("\n+-").collect();
    let (mut layers, mut twice) = (Layers::new(), Vec::new());
    for (layer, rows) in boxes.iter().rev().enumerate() {
        let names = rows.lines().filter_map(|row| row.strip_prefix("| ")?.split('|').next());
        for name in names.flat_map(str::split_whitespace) {
            if layers.insert(name.to_owned(), layer).is_some() {
                twice.push(name.to_owned());
            }
        }
    }
    (layers, twice)
}

fn manifests() -> Vec<(String, toml::Table)> {
    let files =
        sources().into_iter().filter(|f| f.path.starts_with("crates/") && f.path.ends_with("/Cargo.toml"));
    files.map(|f| (f.path.clone(), f.text.parse().unwrap_or_else(|e| panic!("{}: {e}", f.path)))).collect()
}

fn package<'a>(manifest: &'a toml::Table, field: &str) -> &'a str {
    manifest["package"].get(field).and_then(toml::Value::as_str).unwrap_or("")
}

/// The dependencies of a crate (of any platform), without those of its tests.
fn dependencies(manifest: &toml::Table) -> Vec<&str> {
    let platforms =
        manifest.get("target").and_then(toml::Value::as_table).into_iter().flat_map(|t| t.values());
    let tables = platforms.filter_map(toml::Value::as_table).chain([manifest]);
    let lists = tables.filter_map(|t| t.get("dependencies")?.as_table());
    lists.flat_map(|list| list.keys().map(String::as_str)).collect()
}

fn upward(layers: &Layers, path: &str, manifest: &toml::Table) -> Vec<String> {
    let name = package(manifest, "name");
    let Some(own) = layers.get(name) else {
        return vec![format!("{path}: {name} is not drawn in docs/ARCHITECTURE.md")];
    };
    let ours = dependencies(manifest).into_iter().filter(|d| d.starts_with("medfs"));
    ours.filter(|d| layers.get(*d).is_none_or(|layer| layer >= own))
        .map(|d| format!("{path}: {name} may not depend on {d}"))
        .collect()
}

/// Where the drawing of a document and manifests disagree.
fn misdrawn(document: &str, manifests: &[(String, toml::Table)]) -> Vec<String> {
    let (layers, twice) = layers(document);
    let mut found: Vec<String> = manifests.iter().flat_map(|(path, m)| upward(&layers, path, m)).collect();
    found.extend(twice.into_iter().map(|name| format!("{name} is drawn twice")));
    let is_crate = |name: &str| manifests.iter().any(|(_, manifest)| package(manifest, "name") == name);
    found.extend(layers.into_keys().filter(|name| !is_crate(name)).map(|name| format!("{name} is no crate")));
    found
}

#[test]
fn the_drawing_has_all_crates_and_dependencies_point_down() {
    let architecture = read("docs/ARCHITECTURE.md");
    let real = manifests();
    expect_none("docs/ARCHITECTURE.md, drawing of the layers", misdrawn(&architecture, &real));

    // Canaries: what is drawn at another place, twice, or not at all.
    let with = |from: &str, to: &str| misdrawn(&architecture.replacen(from, to, 1), &real);
    assert!(!with("| medfs-store ", "| ").is_empty());
    assert_eq!(with("| medfs-store ", "| medfs-store medfs-store "), ["medfs-store is drawn twice"]);
    assert_eq!(with("| medfs-store ", "| medfs-store medfs-new "), ["medfs-new is no crate"]);
    let higher =
        architecture.replacen("| medfs-store ", "| ", 1).replacen("| medfs  ", "| medfs medfs-store ", 1);
    assert_eq!(misdrawn(&higher, &real), ["crates/medfs/Cargo.toml: medfs may not depend on medfs-store"]);
}

#[test]
fn only_tests_look_upwards() {
    let (layers, _) = layers(
        "\n```layers\n+-\n| medfs-device medfs-ftl | blocks\n| medfs-codec |\n+-\n| medfs-format |\n+-\n```\n",
    );
    assert_eq!(layers.len(), 4);
    let found = |text: &str| upward(&layers, "x", &text.parse::<toml::Table>().unwrap());
    let up = "[package]\nname='medfs-format'\n[target.'cfg(unix)'.dependencies]\nmedfs-device.workspace=true";
    assert_eq!(found(up), ["x: medfs-format may not depend on medfs-device"]);
    let beside = "[package]\nname='medfs-codec'\n[dependencies]\nmedfs-device.workspace=true";
    assert_eq!(found(beside), ["x: medfs-codec may not depend on medfs-device"]);
    assert_eq!(found("[package]\nname='medfs-new'"), ["x: medfs-new is not drawn in docs/ARCHITECTURE.md"]);
    let down = "[package]\nname='medfs-codec'\n[dependencies]\nmedfs-format.workspace=true";
    let tests_only = "[package]\nname='medfs-format'\n[dev-dependencies]\nmedfs-device.workspace=true";
    assert_eq!([found(down), found(tests_only)], [[""; 0], [""; 0]]);
}

#[test]
fn every_crate_is_described() {
    let (readme, architecture) = (read("README.md"), read("docs/ARCHITECTURE.md"));
    for (path, manifest) in manifests() {
        let (name, description) = (package(&manifest, "name"), package(&manifest, "description"));
        let folder = path.trim_end_matches("/Cargo.toml");
        assert!(description.len() > 20, "{path}: the description says nothing");
        assert!(readme.contains(&format!("`{folder}`")), "README.md does not name {folder}");
        assert!(architecture.contains(&format!("**{name}**")), "docs/ARCHITECTURE.md does not name {name}");
    }
}

/// Crates that firmware can carry: without the standard library, their dependencies too.
#[test]
fn firmware_needs_no_standard_library() {
    for name in ["entropy", "ftl"] {
        let text = read(&format!("crates/{name}/src/lib.rs"));
        assert!(text.contains("no_std"), "crates/{name} is not no_std");
        let path = format!("crates/{name}/Cargo.toml");
        let (_, manifest) = manifests().into_iter().find(|(p, _)| *p == path).expect("the crate's manifest");
        let dependencies =
            manifest.get("dependencies").and_then(toml::Value::as_table).cloned().unwrap_or_default();
        for (dependency, how) in dependencies {
            let off = how.get("default-features").and_then(toml::Value::as_bool) == Some(false);
            assert!(off, "{path}: {dependency} must have default-features = false");
        }
    }
    let files = sources();
    let ftl = files.iter().filter(|f| f.is_rust() && f.path.starts_with("crates/ftl/src/"));
    let uses = ftl.filter(|f| f.text.contains("std::") || f.text.contains("extern crate std"));
    expect_none("medfs-ftl uses core and alloc alone", uses.map(|f| f.path.clone()).collect());
}
