//! Puts the files of a tar archive into a volume, with owners, modes, times, hard links and extended attributes.

use crate::copy_in::{Filled, Filler};
use crate::error::{During, Error, Result, shown};
use crate::metadata::Metadata;
use crate::paths::{Held, is_safe_name};
use medfs::{FileKind, Files, Ino, Posix, Timestamp, Volume};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use tar::{Archive, Entry, EntryType};

/// Prefix of extended attributes in extended headers.
const XATTR_PREFIX: &str = "SCHILY.xattr.";
/// First bytes of compressed archives, with the program that unpacks them.
const COMPRESSED: [(&[u8], &str); 5] = [
    (b"\x1F\x8B", "gzip"),
    (b"\x28\xB5\x2F\xFD", "zstd"),
    (b"\xFD7zXZ", "xz"),
    (b"BZh", "bzip2"),
    (b"\x04\x22\x4D\x18", "lz4"),
];
/// Bytes of a header.
const HEADER: usize = 512;
/// Zeros that are looked through before an archive is begun with: an empty one is nothing else.
const ZEROS_MOST: usize = 1 << 20;
/// Mode of directories an archive implies and does not list.
const IMPLIED_PERM: u16 = 0o755;

/// An archive that is to be read: its beginning is that of one.
pub struct Opened {
    stream: Box<dyn Read>,
    len: Option<u64>,
}

impl Opened {
    /// Bytes of the archive, where it is a file.
    pub fn size(&self) -> Option<u64> {
        self.len
    }
}

/// Opens an archive, before anything is made of it; `-` is standard input.
///
/// # Errors
/// It cannot be read, or is no tar archive, or is compressed.
pub fn open(source: &Path) -> Result<Opened> {
    if source.as_os_str() == "-" {
        return checked(io::stdin().lock(), None);
    }
    let file = File::open(source)?;
    let len = file.metadata()?.len();
    checked(file, Some(len))
}

/// Looks at as much of a stream as tells whether it is an archive.
fn checked(mut stream: impl Read + 'static, len: Option<u64>) -> Result<Opened> {
    let mut head = Vec::new();
    while head.len() < ZEROS_MOST && is_zeros(&head) {
        let before = head.len();
        stream.by_ref().take(HEADER as u64).read_to_end(&mut head)?;
        if head.len() == before {
            break;
        }
    }
    refuse_compressed(&head)?;
    if !is_zeros(&head) && !begins_as_one(&head) {
        return Err(no_archive());
    }
    Ok(Opened { stream: Box::new(io::Cursor::new(head).chain(stream)), len })
}

fn no_archive() -> Error {
    Error::refused("not a tar archive")
}

fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}

/// Whether bytes begin with a header whose checksum is right.
fn begins_as_one(head: &[u8]) -> bool {
    let Some(bytes) = head.get(..HEADER) else { return false };
    // The checksum counts itself as spaces.
    let sum = |of: &[u8]| of.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    let right = sum(&bytes[..148]) + 8 * u32::from(b' ') + sum(&bytes[156..]);
    tar::Header::from_byte_slice(bytes).cksum().is_ok_and(|stored| stored == right)
}

/// Fills a volume from an archive; `progress` is told of bytes of content.
///
/// # Errors
/// The archive is damaged or leads out of itself, or the volume refuses a file.
pub fn read(volume: &Volume, opened: Opened, progress: &dyn Fn(u64)) -> Result<Filled> {
    let stream = BufReader::with_capacity(1 << 20, opened.stream);
    let mut filler = Filler::new(volume, progress);
    let (mut archive, mut last) = (Archive::new(stream), None);
    for entry in archive.entries()? {
        let mut entry = match (entry, &last) {
            (Ok(entry), _) => entry,
            (Err(_), None) => return Err(no_archive()),
            // The cause would tell what it took for a header.
            (Err(_), Some(last)) => {
                return Err(Error::refused(format!("the tar archive is damaged or cut short after {last}")));
            }
        };
        let path = shown(&entry.path_bytes());
        one(volume, &mut filler, &mut entry).during(|| path.clone())?;
        last = Some(path);
    }
    if last.is_none() && !is_zero(archive.into_inner())? {
        return Err(no_archive());
    }
    filler.end()
}

/// Whether nothing but zeros follows.
fn is_zero(mut stream: impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = stream.fill_buf()?;
        let len = bytes.len();
        if len == 0 || bytes.iter().any(|&byte| byte != 0) {
            return Ok(len == 0);
        }
        stream.consume(len);
    }
}

fn refuse_compressed(start: &[u8]) -> Result<()> {
    match COMPRESSED.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, program)) => Err(Error::refused(format!(
            "the archive is compressed: decompress it in a pipe, as in '{program} -dc ARCHIVE | medfs mkfs --from - ...'"
        ))),
        None => Ok(()),
    }
}

fn one<R: Read>(volume: &Volume, filler: &mut Filler<'_>, entry: &mut Entry<'_, R>) -> Result<()> {
    let names = components(&entry.path_bytes())?;
    let entry_type = entry.header().entry_type();
    let Some((name, parents)) = names.split_last() else {
        // The archive's own root.
        let meta = metadata(entry, FileKind::Directory)?;
        filler.directory(volume.root(), meta);
        return Ok(());
    };
    let parent = directory(volume, filler, parents)?;
    if entry_type == EntryType::Link {
        let target = entry.link_name_bytes().ok_or_else(|| Error::refused("a hard link without a target"))?;
        let target = existing(volume, &components(&target)?)?;
        return filler.link(target.ino(), parent, name);
    }
    let kind = match entry_type {
        EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => FileKind::Regular,
        EntryType::Directory => FileKind::Directory,
        EntryType::Symlink => FileKind::Symlink,
        EntryType::Char => FileKind::CharDevice,
        EntryType::Block => FileKind::BlockDevice,
        EntryType::Fifo => FileKind::Fifo,
        other => {
            let what = format!("entries of type {:?} are not supported", char::from(other.as_byte()));
            return Err(Error::refused(what));
        }
    };
    let meta = metadata(entry, kind)?;
    let link = entry.link_name_bytes().map(|l| l.into_owned());
    let held = filler.create(parent, name, &meta, link.as_deref())?;
    if kind == FileKind::Directory {
        return Ok(());
    }
    if kind == FileKind::Regular {
        filler.copy_stream(held.ino(), entry)?;
    }
    let path = entry.path()?.into_owned();
    filler.finish(held.ino(), &meta, &path)
}

/// Names of an archive path; one that leads out of the archive is refused.
fn components(path: &[u8]) -> Result<Vec<Vec<u8>>> {
    let names: Vec<Vec<u8>> =
        path.split(|&b| b == b'/').filter(|c| !c.is_empty() && *c != b".").map(<[u8]>::to_vec).collect();
    if !names.iter().all(|n| is_safe_name(n)) {
        return Err(Error::refused("the path leads out of the archive"));
    }
    Ok(names)
}

/// The directory with these names; what is missing of it is made.
fn directory(volume: &Volume, filler: &mut Filler<'_>, names: &[Vec<u8>]) -> Result<Ino> {
    let mut at = volume.root();
    for name in names {
        at = match volume.lookup(at, name) {
            Ok(attr) => Held::new(volume, attr).ino(),
            Err(medfs::Error::Posix(Posix::NotFound)) => {
                let time = Timestamp::default();
                let implied = Metadata {
                    kind: FileKind::Directory,
                    perm: IMPLIED_PERM,
                    uid: 0,
                    gid: 0,
                    rdev: 0,
                    atime: time,
                    mtime: time,
                    xattrs: Vec::new(),
                };
                filler.create(at, name, &implied, None)?.ino()
            }
            Err(e) => return Err(e.into()),
        };
    }
    Ok(at)
}

fn existing<'v>(volume: &'v Volume, names: &[Vec<u8>]) -> Result<Held<'v>> {
    let mut held = Held::root(volume)?;
    for name in names {
        held = Held::new(
            volume,
            volume
                .lookup(held.ino(), name)
                .during(|| "the hard link's target is not in the archive".into())?,
        );
    }
    Ok(held)
}

fn metadata<R: Read>(entry: &mut Entry<'_, R>, kind: FileKind) -> Result<Metadata> {
    let header = entry.header();
    let mtime = Timestamp { secs: header.mtime()? as i64, nanos: 0 };
    let device = kind == FileKind::CharDevice || kind == FileKind::BlockDevice;
    let rdev = if device {
        let numbers = header.device_major()?.zip(header.device_minor()?);
        let (major, minor) = numbers.ok_or_else(|| Error::refused("a device without its number"))?;
        rustix::fs::makedev(major, minor)
    } else {
        0
    };
    let mut meta = Metadata {
        kind,
        perm: (header.mode()? & 0o7777) as u16,
        uid: number(header.uid()?, "the owner's number is too large")?,
        gid: number(header.gid()?, "the group's number is too large")?,
        rdev,
        atime: mtime,
        mtime,
        xattrs: Vec::new(),
    };
    let Some(extensions) = entry.pax_extensions()? else { return Ok(meta) };
    for extension in extensions {
        let extension = extension?;
        let key = extension.key().map_err(io::Error::other)?;
        let value = extension.value_bytes();
        match key {
            "mtime" => meta.mtime = decimal_time(value).unwrap_or(meta.mtime),
            "atime" => meta.atime = decimal_time(value).unwrap_or(meta.atime),
            _ => {
                if let Some(name) = key.strip_prefix(XATTR_PREFIX) {
                    meta.xattrs.push((name.as_bytes().to_vec(), value.to_vec()));
                }
            }
        }
    }
    Ok(meta)
}

fn number(of: u64, too_large: &str) -> Result<u32> {
    of.try_into().map_err(|_| Error::refused(too_large))
}

/// `1700000000.25`; before 1970 it is `-0.75` for a quarter past a whole second.
fn decimal_time(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let secs: i64 = whole.parse().ok()?;
    let digits: String = fraction.chars().chain(std::iter::repeat('0')).take(9).collect();
    let nanos: u32 = digits.parse().ok()?;
    if text.starts_with('-') && nanos > 0 {
        return Some(Timestamp { secs: secs.checked_sub(1)?, nanos: 1_000_000_000 - nanos });
    }
    Some(Timestamp { secs, nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let time = |text: &str| decimal_time(text.as_bytes()).map(|t| (t.secs, t.nanos));
        assert_eq!(time("12"), Some((12, 0)));
        assert_eq!(time("1700000000.25"), Some((1_700_000_000, 250_000_000)));
        assert_eq!(time("1.1234567891"), Some((1, 123_456_789)));
        assert_eq!(time("-0.75"), Some((-1, 250_000_000)));
        for wrong in ["", "x", "1.x", "99999999999999999999"] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn paths_stay_inside() {
        assert_eq!(components(b"./a//b/").unwrap(), [b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(components(b"/etc/passwd").unwrap().len(), 2);
        assert!(components(b"./").unwrap().is_empty());
        assert!(components(b"a/../../b").is_err());
    }
}
