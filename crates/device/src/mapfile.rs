//! Maps of what cannot be read, in the format of GNU ddrescue's mapfiles.
//!
//! A map is lines `POSITION SIZE STATUS` that follow each other without a gap, behind a line with the present position. Status `-` is a range
//! that cannot be read; `*` and `/` are ranges that ddrescue has not given up yet; `?` was not tried and `+` was read. A map of ddrescue's is kept as it
//! is but for the ranges that were found bad here.
//!
//! Invariant: the ranges of a map begin at 0, follow each other, and neighbours differ in status. Of a file that breaks the form nothing is taken.

use medfs_format::BLOCK_SIZE;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::ops::Range;
use std::path::Path;

/// First line of maps that were made here: `?` means that nobody needed the range.
const OURS: &str = "# Mapfile. Created by medfs";
/// Longest map that is read.
const BYTES_MAX: u64 = 256 << 20;
/// ddrescue's marks.
const UNTRIED: char = '?';
const BAD: char = '-';
const STATUSES: &str = "?*/-+";

/// Which bytes of a device are known to be bad.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapfile {
    /// Ranges by where they begin: end and status.
    ranges: BTreeMap<u64, (u64, char)>,
    /// Of a map of another program's: its lines that are no ranges.
    foreign: Option<Vec<String>>,
}

impl Mapfile {
    /// A map of a device of so many bytes, of which nothing is known.
    pub fn new(bytes: u64) -> Mapfile {
        let mut ranges = BTreeMap::new();
        if bytes > 0 {
            ranges.insert(0, (bytes, UNTRIED));
        }
        Mapfile { ranges, foreign: None }
    }

    /// Reads a map; `None` where there is no such file.
    pub fn read(path: &Path) -> io::Result<Option<Mapfile>> {
        match std::fs::metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
            Ok(meta) if meta.len() > BYTES_MAX => return Err(invalid("it is too long for one")),
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(path)?;
        // As mktemp(1) makes a file.
        if text.is_empty() { Ok(None) } else { Mapfile::parse(&text).map(Some) }
    }

    /// Where what it knows ends, in bytes.
    pub fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, (end, _))| *end)
    }

    /// `InvalidData` where it knows more than a block behind the end of a device of so many bytes, so that it is of another one.
    pub fn check_fits(&self, bytes: u64) -> io::Result<()> {
        let end = self.end();
        if end.saturating_sub(bytes) < BLOCK_SIZE as u64 {
            return Ok(());
        }
        let text = format!("it is of a device of {end} bytes, and this one has {bytes}");
        Err(io::Error::new(ErrorKind::InvalidData, text))
    }

    /// The map of a device of so many bytes, or more. What lies behind its end is not tried: it was of a part of the device, or of a
    /// device that was smaller.
    pub fn extended(mut self, bytes: u64) -> Mapfile {
        let end = self.end();
        if end < bytes {
            self.ranges.insert(end, (bytes, UNTRIED));
            self.merge();
        }
        self
    }

    /// Takes the text of a map.
    pub fn parse(text: &str) -> io::Result<Mapfile> {
        let (mut head, mut has_status, mut ranges) = (Vec::new(), false, BTreeMap::new());
        let mut end = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let wrong = |what: &str| invalid(&format!("line {number}: {what}"));
            let is_comment = line.starts_with('#') || line.trim().is_empty();
            if is_comment || !has_status {
                has_status |= !is_comment;
                head.push(line.to_owned());
                continue;
            }
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [position, size, mark] = fields[..] else {
                return Err(wrong("expected POSITION SIZE STATUS"));
            };
            let (position, size) = (number_of(position), number_of(size));
            let (Some(position), Some(size)) = (position, size) else { return Err(wrong("not a number")) };
            let mark = mark.chars().next().filter(|c| mark.len() == 1 && STATUSES.contains(*c));
            let Some(mark) = mark else { return Err(wrong("unknown status")) };
            let next = position.checked_add(size).filter(|_| position == end && size > 0);
            let Some(next) = next else { return Err(wrong("the ranges do not follow each other")) };
            ranges.insert(position, (next, mark));
            end = next;
        }
        if !has_status {
            return Err(invalid("it has no status line"));
        }
        let ours = head.first().is_some_and(|line| line.starts_with(OURS));
        let mut map = Mapfile { ranges, foreign: (!ours).then_some(head) };
        map.merge();
        Ok(map)
    }

    /// Whether another program made it.
    pub fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// Whether some byte of a range is known to be bad: it could not be read, or another program has not read it.
    pub fn is_bad(&self, bytes: Range<u64>) -> bool {
        self.overlapping(bytes).any(|(_, mark)| match mark {
            '+' => false,
            UNTRIED => self.is_foreign(),
            _ => true,
        })
    }

    /// Bytes that could not be read.
    pub fn bad_bytes(&self) -> u64 {
        self.ranges.iter().filter(|(_, (_, mark))| *mark == BAD).map(|(start, (end, _))| end - start).sum()
    }

    /// Notes that a range cannot be read.
    pub fn set_bad(&mut self, bytes: Range<u64>) {
        self.set(bytes, BAD);
    }

    /// Notes that a range, which was bad, can be read.
    pub fn set_good(&mut self, bytes: Range<u64>) {
        if !self.is_foreign() {
            self.set(bytes, UNTRIED);
        }
    }

    fn overlapping(&self, bytes: Range<u64>) -> impl Iterator<Item = (Range<u64>, char)> + '_ {
        let first = self.ranges.range(..=bytes.start).next_back().map_or(bytes.start, |(start, _)| *start);
        let all = self.ranges.range(first..bytes.end).map(|(start, (end, mark))| (*start..*end, *mark));
        all.filter(move |(range, _)| range.end > bytes.start)
    }

    fn set(&mut self, bytes: Range<u64>, mark: char) {
        let mut start = bytes.start;
        let old: Vec<_> = self.overlapping(bytes.clone()).collect();
        for (range, other) in old {
            self.ranges.remove(&range.start);
            if range.start < bytes.start {
                self.ranges.insert(range.start, (bytes.start, other));
            }
            if range.end > bytes.end {
                self.ranges.insert(bytes.end, (range.end, other));
            }
        }
        let mut end = bytes.end;
        if let Some((&before, &(until, other))) = self.ranges.range(..start).next_back()
            && (until, other) == (start, mark)
        {
            start = before;
        }
        if let Some(&(until, other)) = self.ranges.get(&end)
            && other == mark
        {
            self.ranges.remove(&end);
            end = until;
        }
        self.ranges.insert(start, (end, mark));
    }

    /// Makes one range of neighbours of one status.
    fn merge(&mut self) {
        let mut merged: Vec<(u64, (u64, char))> = Vec::new();
        for (&start, &(end, mark)) in &self.ranges {
            match merged.last_mut() {
                Some((_, (until, other))) if (*until, *other) == (start, mark) => *until = end,
                _ => merged.push((start, (end, mark))),
            }
        }
        self.ranges = merged.into_iter().collect();
    }

    /// The text of the file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match &self.foreign {
            Some(head) => head.iter().for_each(|line| text.extend([line, "\n"])),
            None => {
                let _ = writeln!(
                    text,
                    "{OURS}\n# '-' cannot be read, '?' was not needed, or was read\n0x00000000     ?     1"
                );
            }
        }
        for (start, (end, mark)) in &self.ranges {
            let _ = writeln!(text, "{start:#010x}  {:#010x}  {mark}", end - start);
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

fn number_of(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not a mapfile of ddrescue's: {what}"))
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
        assert_eq!(map.bad_bytes(), 0x5000);
        let again = Mapfile::parse(&map.text()).unwrap();
        assert_eq!(again, map);
        assert_eq!(map.text().lines().count(), 3 + 5, "{}", map.text());
        map.set_good(0x4000..0x5000);
        assert!(!map.is_bad(0x4000..0x5000) && map.is_bad(0x4fff..0x5001));
        assert!(map.text().contains("0x00003000  0x00001000  -"), "{}", map.text());
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

    #[test]
    fn a_map_of_a_part_of_the_device_stays_a_map() {
        let mut map = Mapfile::parse(OF_DDRESCUE).unwrap().extended(0x9000);
        assert!(map.is_bad(0x8000..0x9000), "what ddrescue has not read is not in its image");
        map.set_bad(0x7000..0x8000);
        assert_eq!(Mapfile::parse(&map.text()).unwrap(), map);
        // A device need not end with a whole block.
        assert!(Mapfile::parse(OF_DDRESCUE).unwrap().check_fits(0x4800).is_ok());
        assert!(Mapfile::parse(OF_DDRESCUE).unwrap().check_fits(0x4000).is_err());
    }

    #[test]
    fn what_is_no_map_is_refused() {
        for wrong in [
            "",
            "# only\n",
            "0 ? 1\n0 5",
            "0 ? 1\n0 5 x",
            "0 ? 1\n0 0 -",
            "0 ? 1\n1 5 -",
            "0 ? 1\n0 5 +\n6 1 -",
            "0 ? 1\n0 x -",
        ] {
            assert!(Mapfile::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Mapfile::parse("0 ? 1\n0 0xffffffffffffffff +\n0xffffffffffffffff 1 -").is_err());
    }
}
