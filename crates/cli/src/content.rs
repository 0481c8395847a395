//! What an existing file holds, so that `medfs mkfs` overwrites nothing without being told to.
//!
//! Holes are passed by; what is written is read from the beginning until something other than zeros comes, at
//! most [`LOOK_MOST`] bytes of it.

use crate::size;
use infer::MatcherType;
use medfs_device::file::read_full;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

/// Written bytes that are looked through; a file with more zeros than that is for its user to judge.
const LOOK_MOST: u64 = 1 << 30;
const CHUNK: usize = 1 << 20;
/// The beginning of a file, by which it is named.
const HEAD: usize = 8 << 10;

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing but zeros and holes.
    Zeros,
    /// Something, in words.
    Something(String),
    /// Zeros as far as was read, and more after them.
    TooMuch,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Content::Zeros => f.write_str("zeros"),
            Content::Something(what) => f.write_str(what),
            Content::TooMuch => write!(f, "more than {}, too much to scan", size::show(LOOK_MOST)),
        }
    }
}

impl Content {
    /// Looks into a file.
    pub(crate) fn of(path: &Path) -> io::Result<Content> {
        Content::within(path, LOOK_MOST)
    }

    /// Looks at no more than `most` written zeros.
    fn within(path: &Path, most: u64) -> io::Result<Content> {
        let file = File::open(path)?;
        let mut head = vec![0; HEAD];
        let len = read_full(&file, &mut head, 0)?;
        head.truncate(len);
        if head.iter().any(|&byte| byte != 0) {
            return Ok(Content::Something(name(&head)));
        }
        look_through(&file, most)
    }
}

fn look_through(file: &File, most: u64) -> io::Result<Content> {
    let len = file.metadata()?.len();
    let mut chunk = vec![0; CHUNK];
    let (mut at, mut looked) = (0, 0);
    while at < len {
        let (data, hole) = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => (data, seek(file, SeekFrom::Hole(data))?),
            Err(Errno::NXIO) => break,
            // A file system that knows nothing of holes.
            Err(_) => (at, len),
        };
        at = data;
        while at < hole {
            let wanted = CHUNK.min(usize::try_from(hole - at).unwrap_or(CHUNK));
            let read = read_full(file, &mut chunk[..wanted], at)?;
            if chunk[..read].iter().any(|&byte| byte != 0) {
                return Ok(Content::Something("data".into()));
            }
            looked += read as u64;
            at += read as u64;
            if read < wanted {
                return Ok(Content::Zeros);
            }
            if looked >= most && at < len {
                return Ok(Content::TooMuch);
            }
        }
    }
    Ok(Content::Zeros)
}

/// What a file is called that begins like this.
fn name(head: &[u8]) -> String {
    if is_text(head) {
        return "text".into();
    }
    let Some(found) = infer::get(head) else { return "data".into() };
    let kind = match found.matcher_type() {
        MatcherType::App => "a program",
        MatcherType::Archive => "an archive",
        MatcherType::Audio => "a sound recording",
        MatcherType::Book => "a book",
        MatcherType::Doc => "a document",
        MatcherType::Font => "a font",
        MatcherType::Image => "an image",
        MatcherType::Video => "a video",
        _ => "a file",
    };
    format!("{kind} ({})", found.extension())
}

/// UTF-8 without control characters, but for a character that the end of the head cuts.
fn is_text(head: &[u8]) -> bool {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() && head.len() == HEAD => {
            std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t' | '\x0C' | '\x1B'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn content(write: impl FnOnce(&File), most: u64) -> Content {
        let file = tempfile::NamedTempFile::new().unwrap();
        write(file.as_file());
        Content::within(file.path(), most).unwrap()
    }

    #[test]
    fn no_more_written_zeros_than_the_bound_are_read() {
        let zeros = |file: &File| file.write_all_at(&vec![0; 3 * CHUNK], 0).unwrap();
        assert_eq!(content(zeros, 3 * CHUNK as u64), Content::Zeros);
        assert_eq!(content(zeros, 2 * CHUNK as u64), Content::TooMuch);
        let text = Content::TooMuch.to_string();
        assert_eq!(text, "more than 1 GiB, too much to scan");
    }

    #[test]
    fn holes_count_for_nothing_and_a_byte_behind_them_is_found() {
        let far = |file: &File| file.write_all_at(&[1], 1 << 40).unwrap();
        assert_eq!(content(far, CHUNK as u64), Content::Something("data".into()));
        assert_eq!(content(|file| file.set_len(1 << 40).unwrap(), CHUNK as u64), Content::Zeros);
        assert_eq!(content(|_| (), 1), Content::Zeros);
    }

    #[test]
    fn text_is_told_from_data() {
        let long = "ä".repeat(HEAD);
        for text in ["a\tb\r\n", &long, &format!("x{long}")] {
            assert_eq!(name(&text.as_bytes()[..text.len().min(HEAD)]), "text");
        }
        for data in [&b"a\0b"[..], b"\xFF", b"ok \xC3", b"\x01"] {
            assert_eq!(name(data), "data");
        }
    }
}
