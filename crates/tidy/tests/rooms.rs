//! Rules for the shape of the code: lengths of functions and files, methods of a type, circles of files,
//! rooms that look up.
//!
//! What breaks a rule already is in `debts.toml` with its size, which may shrink and may not grow. An entry
//! that is no longer needed has to go.

use medfs_tidy::code::{Parsed, by_crate, call_circle, import_circle, imports};
use medfs_tidy::locks::{Ranks, out_of_order, rank_of, ranks};
use medfs_tidy::{Source, expect_none, read, sources};
use std::collections::BTreeMap;

/// Most lines of a function.
const FUNCTION: usize = 70;
/// Most lines of a file, its tests left out.
const FILE: usize = 500;
/// Most methods that a type has of its own.
const METHODS: usize = 60;
/// Most files in a circle: a folder's own files may know each other.
const CIRCLE: usize = 3;

/// What the code has of something, by its name.
type Sizes = BTreeMap<String, usize>;

/// Findings of sizes above a limit that no debt covers, and debts that nothing needs.
fn judged(sizes: &Sizes, limit: usize, debts: &Sizes) -> Vec<String> {
    let grown = sizes.iter().filter_map(|(name, &size)| {
        let allowed = debts.get(name).copied().unwrap_or(limit);
        (size > allowed).then(|| format!("{name}: {size}, at most {allowed}"))
    });
    let paid = debts.keys().filter(|name| sizes.get(*name).is_none_or(|size| *size <= limit));
    grown
        .chain(paid.map(|name| format!("{name}: within the limit of {limit}; take it off the debts")))
        .collect()
}

fn debts(of: &str) -> Sizes {
    let table: toml::Table = read("crates/tidy/debts.toml").parse().expect("debts.toml parses");
    let entries = table.get(of).and_then(toml::Value::as_table).cloned().unwrap_or_default();
    let size =
        |value: toml::Value| value.as_integer().and_then(|n| usize::try_from(n).ok()).expect("a number");
    entries.into_iter().map(|(name, value)| (name, size(value))).collect()
}

fn parsed() -> Vec<Parsed> {
    sources().iter().filter(|s| s.is_rust()).filter_map(Parsed::new).collect()
}

/// The largest size of each name.
fn largest(sizes: impl Iterator<Item = (String, usize)>) -> Sizes {
    let mut largest = Sizes::new();
    for (name, size) in sizes {
        let known = largest.entry(name).or_default();
        *known = (*known).max(size);
    }
    largest
}

/// A rule: the table of its debts, what it asks, its limit, and the sizes that the code has.
struct Rule {
    debts: &'static str,
    says: &'static str,
    limit: usize,
    sizes: fn(&[Parsed]) -> Sizes,
}

const RULES: [Rule; 7] = [
    Rule { debts: "functions", says: "a function has at most 70 lines", limit: FUNCTION, sizes: functions },
    Rule { debts: "files", says: "a file has at most 500 lines beside its tests", limit: FILE, sizes: files },
    Rule {
        debts: "methods",
        says: "a type has at most 60 methods of its own",
        limit: METHODS,
        sizes: methods,
    },
    Rule {
        debts: "imports",
        says: "a circle of imports has at most 3 files",
        limit: CIRCLE,
        sizes: import_circles,
    },
    Rule {
        debts: "calls",
        says: "a circle of calls has at most 3 files",
        limit: CIRCLE,
        sizes: call_circles,
    },
    Rule { debts: "upward", says: "a room names no higher one", limit: 0, sizes: upward_imports },
    Rule { debts: "upward_calls", says: "a room calls no higher one", limit: 0, sizes: upward_calls },
];

fn functions(files: &[Parsed]) -> Sizes {
    largest(files.iter().flat_map(|file| {
        file.functions().into_iter().map(|f| (format!("{} {}", file.path, f.name), f.lines))
    }))
}

fn files(files: &[Parsed]) -> Sizes {
    files.iter().map(|file| (file.path.clone(), file.lines)).collect()
}

fn methods(files: &[Parsed]) -> Sizes {
    let mut sizes = Sizes::new();
    for file in files {
        for (of, methods) in file.methods() {
            *sizes.entry(format!("{} {of}", file.folder)).or_default() += methods.len();
        }
    }
    sizes
}

fn import_circles(files: &[Parsed]) -> Sizes {
    let crates = by_crate(files).into_iter();
    crates.map(|(folder, files)| (folder.to_owned(), import_circle(&files).len())).collect()
}

fn call_circles(files: &[Parsed]) -> Sizes {
    let mut sizes = Sizes::new();
    for (folder, files) in by_crate(files) {
        let types: std::collections::BTreeSet<&String> =
            files.iter().flat_map(|file| file.methods().keys()).collect();
        for of in types {
            sizes.insert(format!("{folder} {of}"), call_circle(&files, of).len());
        }
    }
    sizes
}

/// All at once, as reading the code takes longer than judging it.
#[test]
fn the_code_has_the_shape_that_is_wanted() {
    let files = parsed();
    let found = RULES.iter().flat_map(|rule| {
        judged(&(rule.sizes)(&files), rule.limit, &debts(rule.debts))
            .into_iter()
            .map(|finding| format!("{}: {finding}", rule.says))
    });
    expect_none("the shape of the code", found.collect());
}

/// Writes down what is left of the debts: `cargo test -p medfs-tidy --test rooms -- --ignored debts`.
#[test]
#[ignore = "changes debts.toml"]
fn debts_that_shrank_are_written_down() {
    let files = parsed();
    let mut text = String::from(
        "# What breaks the rules of tests/rooms.rs, with its size. A size may shrink and may not grow; what is within its limit goes.\n",
    );
    for rule in &RULES {
        text += &format!("\n# {}.\n[{}]\n", rule.says, rule.debts);
        let known = debts(rule.debts);
        for (name, size) in (rule.sizes)(&files).into_iter().filter(|(_, size)| *size > rule.limit) {
            let owed = known.get(&name).map_or(rule.limit, |&debt| debt.min(size));
            if owed > rule.limit {
                text += &format!("{name:?} = {owed}\n");
            }
        }
    }
    let path = medfs_tidy::root().join("crates/tidy/debts.toml");
    std::fs::write(path, text).expect("debts.toml can be written");
}

/// The engine's rooms from the lowest up: a room knows those before it. Rooms of one floor do not know each
/// other. What is in no room composes them, and is above all.
const ROOMS: [&[&str]; 12] = [
    &["error"],
    &["options", "ranks", "stats", "types", "xattr_names"],
    &["profile"],
    &["map"],
    &["content"],
    &["delta", "cluster"],
    &["dir"],
    &["xref"],
    &["file_ops"],
    &["tree"],
    &["commit"],
    &["upkeep"],
];

/// The room of a file of the engine, and its floor.
fn room(path: &str) -> (&str, usize) {
    let inside = path.strip_prefix("crates/medfs/src/").unwrap_or(path);
    let name = inside.split_once('/').map_or(inside.trim_end_matches(".rs"), |(folder, _)| folder);
    match ROOMS.iter().position(|floor| floor.contains(&name)) {
        Some(floor) => (name, floor),
        None => ("the engine", ROOMS.len()),
    }
}

/// How many imports lead from a room to another one that is not below it.
fn upward_imports(files: &[Parsed]) -> Sizes {
    let mut upward = Sizes::new();
    for (from, to) in by_crate(files).get("crates/medfs").map(|files| imports(files)).unwrap_or_default() {
        let ((from, floor), (to, above)) = (room(from), room(to));
        if from != to && above >= floor {
            *upward.entry(format!("{from} > {to}")).or_default() += 1;
        }
    }
    upward
}

/// What the structs of the rooms are called where they are passed or held.
const STRUCTS: [&str; 8] = ["map", "content", "files", "xref", "tree", "commit", "fs", "on"];

/// Methods that lists and locks have as well.
const OF_ALL: [&str; 6] = ["len", "is_empty", "contains", "get", "push", "lock"];

/// How many methods a room calls of which all that have the name are in rooms that are not below it.
fn upward_calls(files: &[Parsed]) -> Sizes {
    let engine = by_crate(files).remove("crates/medfs").unwrap_or_default();
    let mut defined: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for file in &engine {
        for method in file.methods().values().flatten() {
            defined.entry(method.clone()).or_default().push(&file.path);
        }
    }
    let mut upward = Sizes::new();
    for file in &engine {
        let (from, floor) = room(&file.path);
        for method in file.calls_on(&STRUCTS).iter().filter(|method| !OF_ALL.contains(&method.as_str())) {
            let by = defined.get(method).map(|by| by.iter().map(|path| room(path)).collect::<Vec<_>>());
            let by = by.unwrap_or_default();
            let below = by.iter().any(|&(to, above)| to == from || above < floor);
            if let Some((to, _)) = by.first().filter(|_| !below) {
                *upward.entry(format!("{} > {to}: {method}", file.path)).or_default() += 1;
            }
        }
    }
    upward
}

#[test]
fn an_import_of_a_higher_room_is_found() {
    let planted = |path: &str, text: &str| Parsed::new(&Source::new(path, text)).expect("parses");
    let files = [
        planted("crates/medfs/src/map/inode.rs", "use crate::error::Error;"),
        planted(
            "crates/medfs/src/content/page.rs",
            "use crate::map::inode::Inode; fn f() { crate::tree::dir::g() }",
        ),
        planted("crates/medfs/src/tree/dir.rs", "use crate::content::page::Page;"),
        planted("crates/medfs/src/error.rs", "use crate::volume::Volume;"),
        planted("crates/medfs/src/tree/mod.rs", "pub(crate) mod dir;"),
        planted("crates/medfs/src/volume.rs", "use crate::tree::dir::Dir;"),
    ];
    let found: Vec<_> = upward_imports(&files).into_iter().collect();
    assert_eq!(found, [("content > tree".to_owned(), 1), ("error > the engine".to_owned(), 1)]);
}

/// The rooms of the table `| room | ...` of a document, by row: what stands in backticks in the first cell. A
/// row of a crate, or of no room, has none.
fn rooms_of(document: &str) -> Vec<Vec<&str>> {
    let rows = document.lines().skip_while(|line| !line.starts_with("| room |")).skip(2);
    let cells = rows.map_while(|line| line.strip_prefix("| ")?.split(" |").next());
    let rooms = cells.filter(|cell| cell.starts_with('`'));
    rooms
        .map(|cell| cell.split('`').skip(1).step_by(2).map(|room| room.trim_end_matches('/')).collect())
        .collect()
}

#[test]
fn the_table_of_rooms_is_that_of_the_code() {
    assert_eq!(
        rooms_of(&medfs_tidy::read("docs/ARCHITECTURE.md")),
        ROOMS,
        "docs/ARCHITECTURE.md, `| room |`"
    );
    let table = "text\n| room | what |\n|---|---|\n| crate `x` | y |\n| `map/` | `z` |\n| `a/`, `b` | |\n| others | |\n\n| `c/` | |\n";
    assert_eq!(rooms_of(table), [vec!["map"], vec!["a", "b"]]);
}

/// The rule that has these debts.
fn rule(of: &str) -> &'static Rule {
    RULES.iter().find(|rule| rule.debts == of).expect("a rule of that name")
}

/// Findings of a rule in the code as it is, with these files beside it.
fn with_planted(of: &str, files: &mut Vec<Parsed>, planted: &[(String, String)]) -> Vec<String> {
    let before = files.len();
    files.extend(planted.iter().map(|(path, text)| Parsed::new(&Source::new(path, text)).expect("parses")));
    let rule = rule(of);
    let found = judged(&(rule.sizes)(files), rule.limit, &debts(of));
    files.truncate(before);
    found
}

/// Canary: the code as it is passes, and one method or file more than a ceiling is found, in a type with a
/// debt and in one without.
#[test]
fn a_planted_method_and_a_planted_circle_are_found() {
    let mut files = parsed();
    let planted = |folder: &str, of: &str, count: usize| {
        let methods: String = (0..count).map(|n| format!("fn planted_{n}(&self) {{}}")).collect();
        [(format!("{folder}/src/planted.rs"), format!("impl {of} {{ {methods} }}"))]
    };
    let sizes = (rule("methods").sizes)(&files);
    for (name, debt) in debts("methods") {
        let (folder, of) = name.split_once(' ').expect("a folder and a type");
        let room = debt - sizes[&name];
        assert_eq!(with_planted("methods", &mut files, &planted(folder, of, room)), [""; 0]);
        let found = with_planted("methods", &mut files, &planted(folder, of, room + 1));
        assert_eq!(found, [format!("{name}: {}, at most {debt}", debt + 1)]);
    }
    assert_eq!(with_planted("methods", &mut files, &planted("crates/ftl", "Planted", METHODS)), [""; 0]);
    let found = with_planted("methods", &mut files, &planted("crates/ftl", "Planted", METHODS + 1));
    assert_eq!(found, ["crates/ftl Planted: 61, at most 60"]);

    let circle = |count: usize| -> Vec<(String, String)> {
        let file = |n: usize| {
            let next = (n + 1) % count;
            (format!("crates/ftl/src/planted_{n}.rs"), format!("use crate::planted_{next}::Planted;"))
        };
        (0..count).map(file).collect()
    };
    assert_eq!(with_planted("imports", &mut files, &circle(CIRCLE)), [""; 0]);
    let found = with_planted("imports", &mut files, &circle(CIRCLE + 1));
    assert_eq!(found, ["crates/ftl: 4, at most 3"]);
}

#[test]
fn what_grows_is_found_and_what_shrank_is_told() {
    let sizes =
        |list: &[(&str, usize)]| -> Sizes { list.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect() };
    let now = sizes(&[("a", 9), ("b", 12), ("c", 30), ("d", 21)]);
    assert_eq!(judged(&now, 10, &sizes(&[("b", 12), ("c", 30), ("d", 25)])), Vec::<String>::new());
    assert_eq!(judged(&now, 10, &sizes(&[("b", 11), ("c", 30), ("d", 25)])), ["b: 12, at most 11"]);
    assert_eq!(judged(&now, 10, &sizes(&[("a", 11), ("b", 12), ("c", 30), ("d", 21), ("e", 99)])).len(), 2);
}

/// Canary: lines, calls and names that lead up are found among the code as it is.
#[test]
fn planted_lines_and_names_and_calls_that_lead_up_are_found() {
    let mut files = parsed();
    let mut planted = |of: &str, path: &str, text: String| {
        let file = [(path.to_owned(), text)];
        with_planted(of, &mut files, &file)
    };
    let long = |lines: usize| format!("fn planted() {{\n{}}}\n", "f();\n".repeat(lines - 2));
    let path = "crates/ftl/src/planted.rs";
    assert_eq!(planted("functions", path, long(FUNCTION)), [""; 0]);
    let found = planted("functions", path, long(FUNCTION + 1));
    assert_eq!(found, ["crates/ftl/src/planted.rs planted: 71, at most 70"]);
    assert_eq!(planted("files", path, "// x\n".repeat(FILE)), [""; 0]);
    assert_eq!(
        planted("files", path, "// x\n".repeat(FILE + 1)),
        ["crates/ftl/src/planted.rs: 501, at most 500"]
    );

    let room = "crates/medfs/src/map/planted.rs";
    assert_eq!(planted("upward", room, "use crate::map::inode::Inode;".into()), [""; 0]);
    let found = planted("upward", room, "fn f(on: &crate::commit::Commit) {}".into());
    assert_eq!(found, ["map > commit: 1, at most 0"]);
    // What `Content` is given in its own room, or by the map, may be called there, and not from the map.
    let call = |of: &str, method: &str| format!("impl {of} {{ fn planted(&self) {{ self.{method}(); }} }}");
    assert_eq!(planted("upward_calls", room, call("Map", "set_addr")), [""; 0]);
    let found = planted("upward_calls", room, call("Map", "drop_page_run"));
    assert_eq!(found, ["crates/medfs/src/map/planted.rs > content: drop_page_run: 1, at most 0"]);
    let found = planted("upward_calls", room, "fn f(on: &Commit) { on.commit_closed(); }".into());
    assert_eq!(found, ["crates/medfs/src/map/planted.rs > commit: commit_closed: 1, at most 0"]);
    let beside =
        planted("upward_calls", "crates/medfs/src/content/planted.rs", call("Content", "drop_page_run"));
    assert_eq!(beside, [""; 0]);
}

/// Canary for circles of calls, as for those of imports.
#[test]
fn a_planted_circle_of_calls_is_found() {
    // Of one small crate, as the types of all are many.
    let mut files: Vec<Parsed> = parsed().into_iter().filter(|file| file.folder == "crates/sync").collect();
    let circle = |count: usize| -> Vec<(String, String)> {
        let file = |n: usize| {
            let next = (n + 1) % count;
            let text = format!("impl Planted {{ fn planted_{n}(&self) {{ self.planted_{next}(); }} }}");
            (format!("crates/sync/src/planted_{n}.rs"), text)
        };
        (0..count).map(file).collect()
    };
    assert_eq!(with_planted("calls", &mut files, &circle(CIRCLE)), [""; 0]);
    assert_eq!(with_planted("calls", &mut files, &circle(CIRCLE + 1)), ["crates/sync Planted: 4, at most 3"]);
}

fn of_the_engine(files: &[Parsed]) -> (Vec<&Parsed>, Ranks) {
    let engine = |file: &&Parsed| ["crates/medfs", "crates/store"].contains(&file.folder.as_str());
    let files: Vec<&Parsed> = files.iter().filter(engine).collect();
    let of_ranks: Vec<&Parsed> = files.iter().filter(|f| f.path.ends_with("/ranks.rs")).copied().collect();
    let ranks = ranks(&of_ranks);
    (files, ranks)
}

#[test]
fn locks_are_taken_in_their_order() {
    let files = parsed();
    let (engine, ranks) = of_the_engine(&files);
    let found = engine.iter().flat_map(|file| out_of_order(file, &ranks)).collect();
    expect_none("a function takes no lock further out than one that it holds", found);

    // Canary: two lines of the code as it is change places.
    let path = "crates/medfs/src/content/writeback.rs";
    let (first, second) = ("let _wb = inode.wb.lock();", "let mut state = inode.lock.write();");
    let text = read(path);
    let at = text.find(&format!("{first}\n        let _op")).expect("the one comes before the other");
    let (before, rest) = text.split_at(at);
    let swapped = rest.replacen(first, "let _x = 0;", 1).replacen(second, &format!("{second} {first}"), 1);
    let planted = Parsed::new(&Source::new(path, &format!("{before}{swapped}"))).expect("parses");
    let found = out_of_order(&planted, &ranks);
    assert!(found.len() == 1 && found[0].ends_with("WB is taken while OPS is held"), "{found:?}");
}

/// The locks of the numbered list of a document, in its order, as far as they are fields with a rank.
fn listed(document: &str) -> Vec<&str> {
    let list =
        document.lines().skip_while(|line| *line != "## Locks").skip(1).take_while(|l| !l.starts_with("## "));
    let rows = list.filter(|line| line.split_once(". ").is_some_and(|(n, _)| n.parse::<u8>().is_ok()));
    rows.flat_map(|row| row.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_list_of_locks_is_the_order_of_their_ranks() {
    let files = parsed();
    let (_, ranks) = of_the_engine(&files);
    let in_order = |document: &str| {
        let ranked: Vec<u64> = listed(document).iter().filter_map(|name| rank_of(name, &ranks)).collect();
        (ranked.len() >= 6).then(|| ranked.is_sorted())
    };
    let document = read("docs/ARCHITECTURE.md");
    assert_eq!(in_order(&document), Some(true), "docs/ARCHITECTURE.md, Locks: {:?}", listed(&document));
    let swapped =
        document.replacen("`wb`", "`x`", 1).replacen("`ops`", "`wb`", 1).replacen("`x`", "`ops`", 1);
    let (at, _) = document.split_once("## Locks").expect("it has such a part");
    let swapped = format!("{at}{}", swapped.get(at.len()..).unwrap_or_default());
    assert_eq!(in_order(&swapped), Some(false), "{:?}", listed(&swapped));
}
