//! Pairs of pages: versions of pages that SQLite and an application wrote, and a synthetic grid.

use medfs_codec::{PAGE_SIZE, Page};
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};
use rand_chacha::ChaCha12Rng;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::path::Path;

/// A page and the one it is compared with.
pub(crate) type Pair = (Box<Page>, Box<Page>);

/// Pairs of one kind.
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) pairs: Vec<Pair>,
}

/// Rows of a table before its transactions.
const ROWS: i64 = 3000;
/// Transactions of a workload.
const TRANSACTIONS: usize = 400;
/// Versions of a page that are compared with the same base, as those of a file with deltas are.
const HELD: usize = 8;

/// `percent` of a page's bytes changed, in `clusters` runs of random bytes at random places.
pub(crate) fn grid(percent: usize, clusters: usize, pairs: usize) -> Set {
    let mut random = ChaCha12Rng::seed_from_u64((percent * 100 + clusters) as u64);
    let pairs = (0..pairs).map(|_| grid_pair(percent, clusters, &mut random)).collect();
    Set { name: format!("{percent}% in {clusters}"), pairs }
}

fn grid_pair(percent: usize, clusters: usize, random: &mut ChaCha12Rng) -> Pair {
    let mut base = Box::new([0; PAGE_SIZE]);
    random.fill_bytes(&mut *base);
    let mut page = base.clone();
    let changed = PAGE_SIZE * percent / 100;
    let stride = PAGE_SIZE / clusters;
    for i in 0..clusters {
        let len = changed * (i + 1) / clusters - changed * i / clusters;
        let start = i * stride + random.random_range(0..=stride - len);
        page[start..start + len].iter_mut().for_each(|b| *b ^= random.random_range(1..=255u8));
    }
    (base, page)
}

/// What is remembered of a page of a watched file.
struct Version {
    last: Box<Page>,
    held: Box<Page>,
    age: usize,
}

/// A file whose pages are compared whenever it was written.
#[derive(Default)]
struct Watched {
    pages: BTreeMap<usize, Version>,
    steps: Vec<Pair>,
    held: Vec<Pair>,
}

impl Watched {
    fn look(&mut self, content: &[u8]) {
        for (i, page) in content.as_chunks::<PAGE_SIZE>().0.iter().enumerate() {
            let Some(version) = self.pages.get_mut(&i) else {
                let page = Box::new(*page);
                self.pages.insert(i, Version { last: page.clone(), held: page, age: 0 });
                continue;
            };
            if *version.last == *page {
                continue;
            }
            let new = Box::new(*page);
            self.steps.push((std::mem::replace(&mut version.last, new.clone()), new.clone()));
            self.held.push((version.held.clone(), new.clone()));
            version.age += 1;
            if version.age == HELD {
                (version.held, version.age) = (new, 0);
            }
        }
    }

    /// The pairs: each version with the one before, and with the base that is held for [`HELD`] versions.
    fn sets(self, name: &str) -> [Set; 2] {
        [
            Set { name: name.to_owned(), pairs: self.steps },
            Set { name: format!("{name}, held base"), pairs: self.held },
        ]
    }
}

/// Text as applications store it: words, `len` bytes of them.
pub(crate) fn text(random: &mut ChaCha12Rng, len: usize) -> String {
    const WORDS: [&str; 16] = [
        "lorem",
        "ipsums",
        "dolored",
        "ametting",
        "tempor",
        "magnas",
        "aliquaed",
        "veniam",
        "quis",
        "nostruds",
        "ullamco",
        "commodoed",
        "irure",
        "veliting",
        "esse",
        "a",
    ];
    let mut text = String::new();
    while text.len() < len {
        text += WORDS.choose(random).unwrap_or(&"");
        text += " ";
    }
    text.truncate(len);
    text
}

fn open(path: &Path, journal: &str) -> Connection {
    let connection = Connection::open(path).expect("a database in a temporary directory");
    connection.pragma_update(None, "page_size", PAGE_SIZE as i64).expect("page size");
    connection.pragma_update(None, "journal_mode", journal).expect("journal mode");
    connection.pragma_update(None, "synchronous", "OFF").expect("nobody cuts the power");
    connection.pragma_update(None, "wal_autocheckpoint", 100).expect("checkpoints");
    connection
}

/// A number that SQLite stores in four bytes.
fn number(random: &mut ChaCha12Rng) -> i64 {
    random.random_range(1 << 24..1 << 30)
}

fn fill(connection: &Connection, random: &mut ChaCha12Rng) {
    connection
        .execute_batch(
            "create table t(id integer primary key, k integer not null, n integer not null, name text, body text);
             create index t_k on t(k);
             begin;",
        )
        .expect("a table");
    for _ in 0..ROWS {
        insert(connection, random);
    }
    connection.execute_batch("commit").expect("commit");
}

fn insert(connection: &Connection, random: &mut ChaCha12Rng) {
    let mut statement =
        connection.prepare_cached("insert into t(k, n, name, body) values(?, ?, ?, ?)").expect("insert");
    let (name, body) = (text(random, 16), text(random, 72));
    let key = random.random_range(0..1i64 << 30);
    statement.execute(params![key, number(random), name, body]).expect("inserted");
}

fn update(connection: &Connection, random: &mut ChaCha12Rng, set: &str, value: &dyn rusqlite::ToSql) {
    let mut statement =
        connection.prepare_cached(&format!("update t set {set} where id = ?")).expect("update");
    statement.execute(params![value, random.random_range(1..=ROWS)]).expect("updated");
}

fn fixed(connection: &Connection, random: &mut ChaCha12Rng) {
    let number = number(random);
    update(connection, random, "n = ?", &number);
}

fn rewrite(connection: &Connection, random: &mut ChaCha12Rng) {
    let body = text(random, 72);
    update(connection, random, "body = ?", &body);
}

fn grow(connection: &Connection, random: &mut ChaCha12Rng) {
    let more = text(random, 12);
    update(connection, random, "body = body || ?", &more);
}

fn mixed(connection: &Connection, random: &mut ChaCha12Rng) {
    match random.random_range(0..5) {
        0 => fixed(connection, random),
        1 => rewrite(connection, random),
        2 => grow(connection, random),
        3 => insert(connection, random),
        _ => {
            let id = random.random_range(1..=ROWS);
            connection.execute("delete from t where id = ?", [id]).expect("deleted");
        }
    }
}

/// A transaction of a workload.
type Transaction = fn(&Connection, &mut ChaCha12Rng);

/// Runs [`TRANSACTIONS`] of a workload and returns the versions of the file's pages that it left behind.
fn workload(name: &str, journal: &str, file: &str, transaction: Transaction) -> [Set; 2] {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (database, watched_path) = (dir.path().join("t.db"), dir.path().join(file));
    let mut random = ChaCha12Rng::seed_from_u64(7);
    let connection = open(&database, journal);
    fill(&connection, &mut random);
    let mut watched = Watched::default();
    for _ in 0..TRANSACTIONS {
        connection.execute_batch("begin immediate").expect("begin");
        transaction(&connection, &mut random);
        connection.execute_batch("commit").expect("commit");
        watched.look(&std::fs::read(&watched_path).unwrap_or_default());
    }
    watched.sets(name)
}

/// A preferences file as applications write it: one value changes, and with its length all that follows moves.
fn preferences() -> [Set; 2] {
    let mut random = ChaCha12Rng::seed_from_u64(11);
    let mut values: BTreeMap<String, String> =
        (0..150).map(|i| (format!("key_{i}_{}", text(&mut random, 9)), text(&mut random, 30))).collect();
    let mut watched = Watched::default();
    for _ in 0..TRANSACTIONS {
        let key = values.keys().nth(random.random_range(0..values.len())).cloned().unwrap_or_default();
        let len = random.random_range(4..40);
        values.insert(key, text(&mut random, len));
        let lines = values.iter().map(|(k, v)| format!("    <string name=\"{k}\">{v}</string>\n"));
        watched.look(lines.collect::<String>().as_bytes());
    }
    watched.sets("preferences")
}

/// The versions of real pages, kind by kind.
pub(crate) fn real() -> Vec<Set> {
    let mut sets = Vec::new();
    sets.extend(workload("fixed-width updates", "DELETE", "t.db", fixed));
    sets.extend(workload("same-length texts", "DELETE", "t.db", rewrite));
    sets.extend(workload("growing texts", "DELETE", "t.db", grow));
    sets.extend(workload("inserts", "DELETE", "t.db", insert));
    sets.extend(workload("mixed", "DELETE", "t.db", mixed));
    sets.extend(workload("WAL file, mixed", "WAL", "t.db-wal", mixed));
    sets.extend(workload("journal file, mixed", "PERSIST", "t.db-journal", mixed));
    sets.extend(preferences());
    sets
}
