//! How well the pages of real files compress, one by one: the shape that [`medfs_lab::content`] draws from.
//!
//! `MEDFS_PAGES="FOLDER..." cargo test --release -p medfs-lab --test pages -- --ignored --nocapture` prints a line for each kind of file
//! (by its ending or first bytes): pages, mean saved by LZO, and the share of pages in each tenth of what is saved.

use medfs_codec::lzo::Encoder;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const PAGE: usize = 4096;

/// What is known of a kind of file.
#[derive(Default)]
struct Seen {
    files: usize,
    pages: usize,
    saved: f64,
    squares: f64,
    tenths: [usize; 10],
    half: usize,
    zero: usize,
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
        "pb" | "ldb" | "log" => "records",
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
    let folders = std::env::var("MEDFS_PAGES").expect("MEDFS_PAGES names folders");
    let mut files = Vec::new();
    folders.split_whitespace().for_each(|f| walk(Path::new(f), &mut files));
    let mut seen: BTreeMap<&str, Seen> = BTreeMap::new();
    let (mut encoder, mut out) = (Encoder::default(), vec![0; 2 * PAGE]);
    for path in files {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let kind = kind(&path, &bytes);
        if bytes.len() < PAGE {
            continue;
        }
        let seen = seen.entry(kind).or_default();
        seen.files += 1;
        // At most so much of a file, so that no file outweighs the others.
        for page in bytes.chunks_exact(PAGE).take(256) {
            if page.iter().all(|&b| b == 0) {
                seen.zero += 1;
                continue;
            }
            let size = encoder.compress(page, &mut out).unwrap_or(PAGE).min(PAGE);
            let saved = 1.0 - size as f64 / PAGE as f64;
            seen.pages += 1;
            seen.saved += saved;
            seen.squares += saved * saved;
            seen.tenths[((saved * 10.0) as usize).min(9)] += 1;
            seen.half += usize::from(size <= 2000);
        }
    }
    for (kind, s) in &seen {
        let n = s.pages.max(1) as f64;
        let mean = s.saved / n;
        let tenths: Vec<String> = s.tenths.iter().map(|t| format!("{:4.1}", 100.0 * *t as f64 / n)).collect();
        println!(
            "{kind:8} {:6} files {:7} pages ({} zero): saves {:4.1}%, deviation {:4.1}, half a block {:4.1}%; {}",
            s.files,
            s.pages,
            s.zero,
            100.0 * mean,
            100.0 * (s.squares / n - mean * mean).max(0.0).sqrt(),
            100.0 * s.half as f64 / n,
            tenths.join(" ")
        );
    }
}
