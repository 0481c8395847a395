//! How well the pages of real files compress, one by one: the shapes of `medfs_lab::distribution`.
//!
//! `MEDFS_PAGES="FOLDER..." cargo test --release -p medfs-lab --test pages -- --ignored --nocapture` prints a
//! line for each kind of file (by its ending or first bytes): pages, mean saved by LZO, its standard
//! deviation, and the share of pages in each tenth of what is saved.

use medfs_codec::PAGE_SIZE;
use medfs_codec::lzo::Encoder;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most pages of a file that are looked at, so that none outweighs the others.
const PAGES_MOST: usize = 256;

/// What is known of a kind of file.
#[derive(Default)]
struct Seen {
    files: usize,
    pages: f64,
    saved: f64,
    squares: f64,
    tenths: [f64; 10],
}

impl Seen {
    fn add(&mut self, saved: f64) {
        self.pages += 1.0;
        self.saved += saved;
        self.squares += saved * saved;
        self.tenths[((saved * 10.0) as usize).min(9)] += 1.0;
    }
}

fn kind(path: &Path, head: &[u8]) -> &'static str {
    if head.starts_with(b"SQLite format 3\0") {
        return "sqlite";
    }
    match path.extension().and_then(|e| e.to_str()).unwrap_or("") {
        "json" => "json",
        "xml" => "xml",
        "jpg" | "jpeg" | "png" | "webp" => "picture",
        "html" | "js" | "css" => "web",
        _ => "other",
    }
}

fn walk(path: &Path, out: &mut Vec<PathBuf>) {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return };
    if meta.is_file() {
        out.push(path.to_owned());
    } else if meta.is_dir() {
        let Ok(entries) = std::fs::read_dir(path) else { return };
        entries.flatten().for_each(|e| walk(&e.path(), out));
    }
}

#[test]
#[ignore = "looks at the files of MEDFS_PAGES"]
fn pages_of_real_files() {
    let folders = std::env::var("MEDFS_PAGES").expect("MEDFS_PAGES names files and folders");
    let mut files = Vec::new();
    folders.split_whitespace().for_each(|f| walk(Path::new(f), &mut files));
    let mut seen: BTreeMap<&str, Seen> = BTreeMap::new();
    let (mut encoder, mut out) = (Encoder::default(), [0; PAGE_SIZE]);
    for path in files {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let seen = seen.entry(kind(&path, &bytes)).or_default();
        seen.files += 1;
        let holds = |page: &&[u8]| page.iter().any(|&b| b != 0);
        for page in bytes.chunks_exact(PAGE_SIZE).take(PAGES_MOST).filter(holds) {
            let size = encoder.compress(page, &mut out).unwrap_or(PAGE_SIZE);
            seen.add(1.0 - size as f64 / PAGE_SIZE as f64);
        }
    }
    assert!(seen.values().any(|s| s.pages > 0.0), "no page in {folders}");
    for (kind, s) in seen.iter().filter(|(_, s)| s.pages > 0.0) {
        let mean = s.saved / s.pages;
        let deviation = (s.squares / s.pages - mean * mean).max(0.0).sqrt();
        let tenths: Vec<String> = s.tenths.iter().map(|t| format!("{:.1}", 100.0 * t / s.pages)).collect();
        println!(
            "{kind}: {} files, {} pages, {:.1}% saved, deviation {:.1}; tenths {}",
            s.files,
            s.pages,
            100.0 * mean,
            100.0 * deviation,
            tenths.join(" ")
        );
    }
}
