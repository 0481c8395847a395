//! Maps of what cannot be read, in the format of GNU ddrescue's mapfiles.
//!
//! A map begins with the comment of the program that made it. Lines `POSITION SIZE STATUS` follow each other
//! without a gap, behind a line with the present position. Status `-` is a range that cannot be read; `*` and
//! `/` are ranges that ddrescue has not given up yet; `?` was not tried and `+` was read. Of a map of
//! ddrescue's the ranges are kept as they are, but for those that were found bad here: its `+` says that a
//! range is in the copy that ddrescue makes. What was read here is noted in comments.
//!
//! Invariant: the ranges of a map begin at 0, follow each other, and neighbours differ in status. Of a file
//! that breaks the form nothing is taken.

use crate::ranges::Ranges;
use medfs_format::BLOCK_SIZE;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write as _};
use std::ops::Range;
use std::path::Path;

/// First line of maps that were made here: `?` means that the range was not needed.
const OURS: &str = "# Mapfile. Created by medfs";
/// How the first lines of ddrescue's maps begin, of today and before version 1.20.
const DDRESCUES: [&str; 2] =
    ["# Mapfile. Created by GNU ddrescue", "# Rescue Logfile. Created by GNU ddrescue"];
/// The volume on the device, in a map that was made here.
const VOLUME: &str = "# Volume: ";
/// A range that was read here, in a map of ddrescue's.
const READ_HERE: &str = "# Read by medfs: ";
/// Longest map that is read.
const BYTES_MAX: u64 = 256 << 20;
/// ddrescue's marks.
const UNTRIED: char = '?';
const BAD: char = '-';
const READ: char = '+';
const STATUSES: &str = "?*/-+";
/// What ddrescue may be doing.
const PHASES: &str = "?*/-FG+";

/// The bytes of a device that are known to be bad.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapfile {
    ranges: Ranges,
    /// Of a map that was made here: which volume the device has.
    volume: Option<String>,
    /// Of a map of ddrescue's.
    foreign: Option<Foreign>,
}

/// What a map of ddrescue's has beside its ranges.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Foreign {
    /// Its lines that are no ranges.
    head: Vec<String>,
    /// What was read here.
    read: Ranges,
}

impl Mapfile {
    /// A map of a device of so many bytes, of which nothing is known.
    pub fn new(bytes: u64) -> Mapfile {
        let mut ranges = Ranges::default();
        ranges.set(0..bytes, UNTRIED);
        Mapfile { ranges, volume: None, foreign: None }
    }

    /// Reads a map; `None` where there is no such file, or an empty one.
    pub fn read(path: &Path) -> io::Result<Option<Mapfile>> {
        match std::fs::metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
            Ok(meta) if !meta.is_file() => return Err(invalid("it is not a regular file")),
            Ok(meta) if meta.len() > BYTES_MAX => return Err(invalid("it is too large for a mapfile")),
            Ok(_) => {}
        }
        let mut file = File::open(path)?;
        let longest = DDRESCUES[1].len();
        let mut text = Vec::new();
        Read::by_ref(&mut file).take(longest as u64).read_to_end(&mut text)?;
        // As mktemp(1) makes a file.
        if text.is_empty() {
            return Ok(None);
        }
        if !is_head(&text) {
            return Err(invalid(NO_HEAD));
        }
        file.read_to_end(&mut text)?;
        let text = String::from_utf8(text).map_err(|_| invalid("it is not text"))?;
        Mapfile::parse(&text).map(Some)
    }

    /// The end of what it knows, in bytes.
    pub fn end(&self) -> u64 {
        self.ranges.end()
    }

    /// The volume on the device, where the map says it.
    pub fn volume(&self) -> Option<&str> {
        self.volume.as_deref()
    }

    /// Notes which volume the device has, in one word, in a map that was made here.
    pub fn set_volume(&mut self, volume: &str) {
        if self.foreign.is_none() {
            self.volume = Some(volume.to_owned());
        }
    }

    /// Whether it has all of a device of so many bytes that begins at this byte of a disk, but for a part of a block.
    /// Then it may be a map of the disk.
    pub fn reaches(&self, start: u64, bytes: u64) -> bool {
        start.saturating_add(bytes).saturating_sub(self.end()) < BLOCK_SIZE as u64
    }

    /// `InvalidData` where it does not end with a device of so many bytes, but for a part of a block, so that
    /// it is of another one. `cut_short`: of a device that may have been longer.
    pub fn check_fits(&self, bytes: u64, cut_short: bool) -> io::Result<()> {
        let end = self.end();
        let longer = !cut_short && end.saturating_sub(bytes) >= BLOCK_SIZE as u64;
        let shorter = bytes.saturating_sub(end) >= BLOCK_SIZE as u64;
        if !longer && !shorter {
            return Ok(());
        }
        let text = format!("it is of a device of {end} bytes, and this one has {bytes}");
        Err(io::Error::new(ErrorKind::InvalidData, text))
    }

    /// The map with a device's last block as a whole.
    pub fn extended(mut self, bytes: u64) -> Mapfile {
        self.ranges.set(self.end()..bytes.max(self.end()), UNTRIED);
        self
    }

    /// Takes the text of a map.
    pub fn parse(text: &str) -> io::Result<Mapfile> {
        if !is_head(text.as_bytes()) {
            return Err(invalid(NO_HEAD));
        }
        let ours = text.starts_with(OURS);
        let mut map = Mapfile { ranges: Ranges::default(), volume: None, foreign: None };
        let (mut foreign, mut has_status) = (Foreign::default(), false);
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |what: &str| invalid(&format!("line {number}: {what}"));
            if let Some(volume) = line.strip_prefix(VOLUME).filter(|_| ours) {
                map.volume = Some(volume.to_owned());
            } else if let Some(range) = line.strip_prefix(READ_HERE) {
                let (range, _) = range_of(&format!("{range} +")).map_err(wrong)?;
                foreign.read.set(range, READ);
            } else if line.starts_with('#') || line.trim().is_empty() {
                foreign.head.push(line.to_owned());
            } else if !has_status {
                has_status = is_status(line);
                if !has_status {
                    return Err(wrong("expected POSITION STATUS PASS"));
                }
                foreign.head.push(line.to_owned());
            } else {
                let (range, mark) = range_of(line).map_err(wrong)?;
                if range.start != map.end() {
                    return Err(wrong("the ranges do not follow each other"));
                }
                map.ranges.set(range, mark);
            }
        }
        if map.end() == 0 {
            return Err(invalid("it has no ranges"));
        }
        map.foreign = (!ours).then_some(foreign);
        Ok(map)
    }

    /// Whether another program made it.
    pub fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// Whether some byte of a range is known to be bad: it could not be read, or another program has not read
    /// it, and neither was it here.
    pub fn is_bad(&self, bytes: Range<u64>) -> bool {
        self.bad_parts(bytes).next().is_some()
    }

    /// The parts of a range that are known to be bad. ddrescue's are sectors, and not blocks of a volume.
    pub fn bad_parts(&self, bytes: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.ranges.overlapping(bytes.clone()).filter_map(move |(range, mark)| {
            let part = range.start.max(bytes.start)..range.end.min(bytes.end);
            let is_bad = match (mark, &self.foreign) {
                (READ, _) | (UNTRIED, None) => false,
                (_, Some(foreign)) => !foreign.read.covers(part.clone()),
                (_, None) => true,
            };
            is_bad.then_some(part)
        })
    }

    /// Bytes that could not be read, here neither where another program could not.
    pub fn bad_bytes(&self) -> u64 {
        self.bad_bytes_in(0..self.end())
    }

    /// Those of a range.
    pub fn bad_bytes_in(&self, of: Range<u64>) -> u64 {
        let read_here = |bad: &Range<u64>| -> u64 {
            let read = self.foreign.iter().flat_map(|foreign| foreign.read.overlapping(bad.clone()));
            read.map(|(range, _)| range.end.min(bad.end) - range.start.max(bad.start)).sum()
        };
        let bad = self.ranges.overlapping(of.clone()).filter(|(_, mark)| *mark == BAD);
        let bad = bad.map(|(range, _)| range.start.max(of.start)..range.end.min(of.end));
        bad.map(|range| range.end - range.start - read_here(&range)).sum()
    }

    /// Notes that a range cannot be read.
    pub fn set_bad(&mut self, bytes: Range<u64>) {
        if let Some(foreign) = &mut self.foreign {
            foreign.read.clear(bytes.clone());
        }
        self.ranges.set(bytes, BAD);
    }

    /// Notes that a range was read.
    pub fn set_read(&mut self, bytes: Range<u64>) {
        match &mut self.foreign {
            Some(foreign) => foreign.read.set(bytes, READ),
            None => self.ranges.set(bytes, READ),
        }
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match &self.foreign {
            Some(foreign) => foreign.head.iter().for_each(|line| text.extend([line, "\n"])),
            None => {
                let _ = writeln!(text, "{OURS}\n# '-' cannot be read, '+' was read, '?' was not needed");
                if let Some(volume) = &self.volume {
                    let _ = writeln!(text, "{VOLUME}{volume}");
                }
                let _ = writeln!(text, "0x00000000     ?     1");
            }
        }
        let read = self.foreign.iter().flat_map(|foreign| foreign.read.iter());
        for (range, _) in read {
            let _ = writeln!(text, "{READ_HERE}{:#010x}  {:#010x}", range.start, range.end - range.start);
        }
        for (range, mark) in self.ranges.iter() {
            let _ = writeln!(text, "{:#010x}  {:#010x}  {mark}", range.start, range.end - range.start);
        }
        text
    }

    /// Writes the file, durable, in place of the old one.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".{}.new", std::process::id()));
        let written = File::create_new(&new).and_then(|mut file| {
            file.write_all(self.text().as_bytes())?;
            file.sync_all()
        });
        let written = written.and_then(|()| std::fs::rename(&new, path));
        if written.as_ref().is_err_and(|e| e.kind() != ErrorKind::AlreadyExists) {
            let _ = std::fs::remove_file(&new);
        }
        written
    }
}

const NO_HEAD: &str = "it does not begin with the header of a ddrescue or medfs map";

/// Whether a text begins as a map does.
fn is_head(text: &[u8]) -> bool {
    text.starts_with(OURS.as_bytes()) || DDRESCUES.iter().any(|head| text.starts_with(head.as_bytes()))
}

/// Whether a line says where ddrescue is, and what it does.
fn is_status(line: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [position, phase, ref pass @ ..] = fields[..] else { return false };
    let known = phase.len() == 1 && PHASES.contains(phase);
    number_of(position).is_some()
        && known
        && pass.len() <= 1
        && pass.iter().all(|pass| number_of(pass).is_some())
}

/// The range of a line, and its status.
fn range_of(line: &str) -> Result<(Range<u64>, char), &'static str> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [position, size, mark] = fields[..] else { return Err("expected POSITION SIZE STATUS") };
    let (Some(position), Some(size)) = (number_of(position), number_of(size)) else {
        return Err("not a number");
    };
    let mark =
        mark.chars().next().filter(|c| mark.len() == 1 && STATUSES.contains(*c)).ok_or("unknown status")?;
    let end = position.checked_add(size).filter(|_| size > 0).ok_or("a range that is empty or too large")?;
    Ok((position..end, mark))
}

fn number_of(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not a mapfile: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As GNU ddrescue 1.27 writes it.
    const OF_DDRESCUE: &str = "\
# Mapfile. Created by GNU ddrescue version 1.27
# Command line: ddrescue -d /dev/sdb card.img card.map
# current_pos  current_status  current_pass
0x00003000     ?               1
#      pos        size  status
0x00000000  0x00002000  +
0x00002000  0x00000200  -
0x00002200  0x00001E00  +
0x00004000  0x00001000  ?
";

    #[test]
    fn bad_ranges_are_kept_and_joined() {
        let mut map = Mapfile::new(0x10000);
        for at in [0x3000, 0x5000, 0x4000, 0, 0xf000] {
            map.set_bad(at..at + 0x1000);
        }
        assert!(map.is_bad(0x3fff..0x4001) && !map.is_bad(0x1000..0x3000) && map.is_bad(0..1));
        assert_eq!((map.bad_bytes(), map.bad_bytes_in(0x3800..0x5000)), (0x5000, 0x1800));
        let again = Mapfile::parse(&map.text()).unwrap();
        assert_eq!(again, map);
        assert_eq!(map.text().lines().count(), 3 + 5, "{}", map.text());
        map.set_read(0x4000..0x5000);
        assert!(!map.is_bad(0x4000..0x5000) && map.is_bad(0x4fff..0x5001));
        assert!(map.text().contains("0x00003000  0x00001000  -"), "{}", map.text());
        assert!(map.text().contains("0x00004000  0x00001000  +"), "{}", map.text());
        map.set_volume("some");
        assert_eq!(Mapfile::parse(&map.text()).unwrap().volume(), Some("some"));
    }

    #[test]
    fn a_map_of_ddrescue_is_kept_but_for_what_is_bad() {
        let mut map = Mapfile::parse(OF_DDRESCUE).unwrap();
        assert!(map.is_foreign() && map.is_bad(0x2000..0x3000) && !map.is_bad(0x1000..0x2000));
        assert!(map.is_bad(0x4000..0x5000), "what ddrescue has not read is not in its image");
        assert_eq!(map.text().to_lowercase(), OF_DDRESCUE.to_lowercase());
        map.set_bad(0x1000..0x2000);
        let text = map.text();
        assert!(
            text.contains("0x00001000  0x00001200  -") && text.starts_with("# Mapfile. Created by GNU"),
            "{text}"
        );
    }

    /// ddrescue would take a `+` for what is in its own copy.
    #[test]
    fn what_was_read_beside_ddrescue_is_noted_beside_its_ranges() {
        let mut map = Mapfile::parse(OF_DDRESCUE).unwrap();
        map.set_read(0x4000..0x5000);
        map.set_read(0x2000..0x3000);
        assert!(!map.is_bad(0x2000..0x5000));
        let again = Mapfile::parse(&map.text()).unwrap();
        assert_eq!(again, map);
        let ranges = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_lowercase).collect()
        };
        assert_eq!(ranges(&map.text()), ranges(OF_DDRESCUE));
        map.set_bad(0x4000..0x4200);
        assert!(map.is_bad(0x4000..0x4001) && !map.is_bad(0x4200..0x5000));
    }

    #[test]
    fn a_map_is_of_a_device_of_its_size() {
        let map = Mapfile::parse(OF_DDRESCUE).unwrap();
        // A device need not end with a whole block.
        assert!(map.check_fits(0x4800, false).is_ok() && map.check_fits(0x5800, false).is_ok());
        assert!(map.check_fits(0x4000, false).is_err() && map.check_fits(0x6000, false).is_err());
        assert!(map.check_fits(0x4000, true).is_ok() && map.check_fits(0x6000, true).is_err());
        let map = map.extended(0x5800);
        assert!(map.is_bad(0x5000..0x5800), "what ddrescue has not read is not in its image");
        assert_eq!(Mapfile::parse(&map.text()).unwrap(), map);
    }

    #[test]
    fn what_is_no_map_is_refused() {
        let head = "# Mapfile. Created by GNU ddrescue version 1.27\n";
        assert!(Mapfile::parse(&format!("{head}0 ? 1\n0 5 +\n")).is_ok());
        for wrong in [
            "",
            "0 ? 1\n0 5",
            "0 ? 1\n0 5 x",
            "0 ? 1\n0 0 -",
            "0 ? 1\n1 5 -",
            "0 ? 1\n0 5 +\n6 1 -",
            "0 ? 1\n0 x -",
            "0 ? 1",
            "hello",
            "hello\n0 5 +",
            "0 ? one\n0 5 +",
            "0 ? 1 2\n0 5 +",
            "0 x 1\n0 5 +",
            "0 ? 1\n0 0xffffffffffffffff +\n0xffffffffffffffff 1 -",
        ] {
            assert!(Mapfile::parse(&format!("{head}{wrong}")).is_err(), "{wrong}");
        }
        for other in ["", "hello", "0 ? 1\n0 5 +\n", "# only\n0 ? 1\n0 5 +\n"] {
            assert!(Mapfile::parse(other).is_err(), "{other}");
        }
    }
}
