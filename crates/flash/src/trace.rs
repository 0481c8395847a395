//! Block traces of others: what blkparse prints, MSR Cambridge's CSV, fio's I/O logs, and a plain CSV with ratios.
//!
//! Every line is understood or refused with its number; nothing is guessed. Requests are widened to whole
//! pages of 4 KiB.

use crate::error::{FlashError, Result};
use medfs_iolog::Span;
use medfs_iolog::blkparse;
use medfs_iolog::fio::{self, Iolog};
use serde::{Deserialize, Serialize};
use std::io::BufRead;

const PAGE: u64 = medfs_ftl::PAGE as u64;
/// Most pages of one request: what is larger is no request of a block device.
const PAGES_MAX: u64 = 1 << 20;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Writes.
    Write,
    /// Reads.
    Read,
    /// Trims.
    Trim,
    /// Flushes.
    Flush,
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The line it stands on.
    pub line: u64,
    /// Arrival in nanoseconds.
    pub at: u64,
    /// Its kind.
    pub op: Op,
    /// First page of 4 KiB.
    pub page: u64,
    /// Pages; 0 for flushes.
    pub pages: u32,
    /// Of each page written entropy in bits and compressed size over the page's, where the trace says so; one
    /// for all, or one each.
    pub ratios: Vec<(Option<f64>, f64)>,
}

/// The form of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text of blkparse: its requests as they are issued to the device (action D).
    Blkparse,
    /// MSR Cambridge: timestamp, host, disk, type, offset, size, response time.
    Msr,
    /// fio's I/O log, version 2 or 3.
    Fio,
    /// `time_us,op,offset,bytes,entropy,ratio`; the last two for each page, separated by `;`, or empty.
    Csv,
}

/// Names of the forms.
pub const FORMATS: [(&str, Format); 4] =
    [("blkparse", Format::Blkparse), ("msr", Format::Msr), ("fio", Format::Fio), ("csv", Format::Csv)];

/// First line of a plain CSV.
pub const CSV_HEADER: &str = "time_us,op,offset,bytes,entropy,ratio";

impl Format {
    /// The form by its name.
    ///
    /// # Errors
    /// No such form.
    pub fn find(name: &str) -> Result<Format> {
        let found = FORMATS.iter().find(|(known, _)| *known == name);
        let names: Vec<&str> = FORMATS.iter().map(|(name, _)| *name).collect();
        found.map(|(_, format)| *format).ok_or_else(|| {
            FlashError::Usage(format!("no trace format '{name}': use one of {}", names.join(", ")))
        })
    }

    /// The form that a trace's first line tells; `None` where it tells none.
    pub fn guess(line: &str) -> Option<Format> {
        let line = line.trim();
        if line == CSV_HEADER {
            return Some(Format::Csv);
        }
        if fio::is_header(line) {
            return Some(Format::Fio);
        }
        if blkparse::is_event(line) {
            return Some(Format::Blkparse);
        }
        let fields: Vec<&str> = line.split(',').collect();
        (fields.len() == 7 && is_number(fields[0]) && ["Read", "Write"].contains(&fields[3]))
            .then_some(Format::Msr)
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The requests of a trace.
pub struct Trace<R> {
    input: R,
    name: String,
    format: Format,
    line: u64,
    text: String,
    /// Arrival of the first request: times count from there.
    begin: Option<u64>,
    iolog: Iolog,
    /// CSV: the header was seen.
    started: bool,
    /// The transfer of a request that asks for a flush before it.
    behind_flush: Option<Request>,
    ended: bool,
}

type Parsed = std::result::Result<Option<Request>, String>;

impl<R: BufRead> Trace<R> {
    /// Reads a trace; `name` is for errors.
    pub fn new(input: R, name: &str, format: Format) -> Trace<R> {
        Trace {
            input,
            name: name.to_owned(),
            format,
            line: 0,
            text: String::new(),
            begin: None,
            iolog: Iolog::default(),
            started: false,
            behind_flush: None,
            ended: false,
        }
    }

    fn parse(&mut self) -> Parsed {
        let text = std::mem::take(&mut self.text);
        let line = text.trim();
        let parsed = match self.format {
            _ if line.is_empty() || line.starts_with('#') => Ok(None),
            Format::Blkparse => self.blkparse(line),
            Format::Msr => self.msr(line),
            Format::Fio => self.fio(line),
            Format::Csv => self.csv(line),
        };
        self.text = text;
        parsed
    }

    /// Makes a request of bytes one of pages, with its time from the first one's.
    fn request(&mut self, at: u64, op: Op, offset: u64, bytes: u64) -> Parsed {
        let begin = *self.begin.get_or_insert(at);
        let at = at.saturating_sub(begin);
        let end = offset.checked_add(bytes).ok_or("the request ends beyond any device")?;
        if op == Op::Flush {
            return Ok(Some(Request { line: self.line, at, op, page: 0, pages: 0, ratios: Vec::new() }));
        }
        if bytes == 0 {
            return Err("the request has no bytes".into());
        }
        let (page, last) = (offset / PAGE, end.div_ceil(PAGE));
        if last - page > PAGES_MAX {
            return Err(format!("a request of {bytes} bytes is too large"));
        }
        let pages = (last - page) as u32;
        Ok(Some(Request { line: self.line, at, op, page, pages, ratios: Vec::new() }))
    }

    /// Requests count when they are issued to the device (action D).
    fn blkparse(&mut self, line: &str) -> Parsed {
        let event = match blkparse::line(line)? {
            blkparse::Line::Event(event) if event.action == "D" => event,
            blkparse::Line::Event(_) | blkparse::Line::Empty => return Ok(None),
            blkparse::Line::Summary => {
                self.ended = true;
                return Ok(None);
            }
        };
        let request = event.request;
        let op = match request.op {
            Some(blkparse::Op::Read) => Op::Read,
            Some(blkparse::Op::Write) => Op::Write,
            Some(blkparse::Op::Discard) => Op::Trim,
            None if request.flush_before => return self.request(event.at, Op::Flush, 0, 0),
            None if request.rwbs.starts_with('N') => return Ok(None),
            None => return Err(format!("'{}' is not a kind of request", request.rwbs)),
        };
        let span = match event.span {
            Some(Span { len: 0, .. }) => return self.request(event.at, Op::Flush, 0, 0),
            Some(span) => span,
            None if request.flush_before => return self.request(event.at, Op::Flush, 0, 0),
            None => return Err("an issued request has 'SECTOR + COUNT'".into()),
        };
        let transfer = self.request(event.at, op, span.offset, span.len)?;
        if !request.flush_before {
            return Ok(transfer);
        }
        self.behind_flush = transfer;
        self.request(event.at, Op::Flush, 0, 0)
    }

    /// `128166372003061629,hm,1,Read,383496192,32768,113736`: times in 100 ns.
    fn msr(&mut self, line: &str) -> Parsed {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [time, _, _, op, offset, size, _] = fields[..] else {
            return Err(format!("{} fields: expected the 7 of MSR Cambridge's traces", fields.len()));
        };
        let op = match op {
            "Write" => Op::Write,
            "Read" => Op::Read,
            other => return Err(format!("'{other}' is neither Read nor Write")),
        };
        let at = number(time, "timestamp")?;
        let begin = *self.begin.get_or_insert(at);
        let since = at.saturating_sub(begin).checked_mul(100).ok_or("the timestamp is out of range")?;
        let (offset, size) = (number(offset, "offset")?, number(size, "size")?);
        let request = self.request(begin, op, offset, size)?;
        Ok(request.map(|r| Request { at: since, ..r }))
    }

    fn fio(&mut self, line: &str) -> Parsed {
        let Some(entry) = self.iolog.line(line)? else { return Ok(None) };
        let (op, span) = match entry.action {
            fio::Action::Add | fio::Action::Open | fio::Action::Close => return Ok(None),
            fio::Action::Sync | fio::Action::DataSync => return self.request(entry.at, Op::Flush, 0, 0),
            fio::Action::Read(span) => (Op::Read, span),
            fio::Action::Write(span) => (Op::Write, span),
            fio::Action::Trim(span) => (Op::Trim, span),
        };
        self.request(entry.at, op, span.offset, span.len)
    }

    fn csv(&mut self, line: &str) -> Parsed {
        if !self.started {
            self.started = true;
            return if line == CSV_HEADER {
                Ok(None)
            } else {
                Err(format!("the first line must be '{CSV_HEADER}'"))
            };
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [time, op, offset, bytes, entropies, ratios] = fields[..] else {
            return Err(format!("{} fields: expected 6", fields.len()));
        };
        let op = match op {
            "write" => Op::Write,
            "read" => Op::Read,
            "trim" => Op::Trim,
            "flush" => Op::Flush,
            other => return Err(format!("'{other}' is not write, read, trim or flush")),
        };
        let micros: f64 = time.parse().map_err(|_| format!("time_us is '{time}', not a number"))?;
        if !(0.0..1e15).contains(&micros) {
            return Err(format!("time_us is {micros}: out of range"));
        }
        let (offset, bytes) = (number(offset, "offset")?, number(bytes, "bytes")?);
        let Some(mut request) = self.request((micros * 1000.0) as u64, op, offset, bytes)? else {
            return Ok(None);
        };
        request.ratios = per_page(entropies, ratios, request.pages)?;
        Ok(Some(request))
    }
}

/// The columns of a CSV that speak of single pages.
fn per_page(
    entropies: &str,
    ratios: &str,
    pages: u32,
) -> std::result::Result<Vec<(Option<f64>, f64)>, String> {
    let ratios = list(ratios, "ratio", 1.0, pages)?;
    let entropies = list(entropies, "entropy", 8.0, pages)?;
    if ratios.is_empty() && !entropies.is_empty() {
        return Err("an entropy without a ratio".into());
    }
    let entropy = |i: usize| entropies.get(i).or(entropies.first()).copied();
    Ok(ratios.iter().enumerate().map(|(i, ratio)| (entropy(i), *ratio)).collect())
}

fn list(text: &str, field: &str, most: f64, pages: u32) -> std::result::Result<Vec<f64>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let parse = |part: &str| {
        let value: Option<f64> = part.trim().parse().ok();
        value
            .filter(|v| (0.0..=most).contains(v))
            .ok_or_else(|| format!("{field} is '{part}': it must be from 0 to {most}"))
    };
    let values = text.split(';').map(parse).collect::<std::result::Result<Vec<f64>, String>>()?;
    if values.len() != 1 && values.len() != pages as usize {
        return Err(format!("{} values of {field} for {pages} pages: give one, or one each", values.len()));
    }
    Ok(values)
}

fn number(text: &str, field: &str) -> std::result::Result<u64, String> {
    text.parse().map_err(|_| format!("{field} is '{text}', not an integer"))
}

impl<R: BufRead> Iterator for Trace<R> {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        if let Some(transfer) = self.behind_flush.take() {
            return Some(Ok(transfer));
        }
        while !self.ended {
            self.text.clear();
            self.line += 1;
            let mut bytes = Vec::new();
            // No line of a trace is longer: a file without ends of lines is not read into memory.
            match std::io::Read::take(&mut self.input, 1 << 20).read_until(b'\n', &mut bytes) {
                Ok(0) => return None,
                Ok(_) => {}
                Err(e) => {
                    self.ended = true;
                    return Some(Err(FlashError::Io(self.name.clone(), e)));
                }
            }
            let wrong = |what: String, this: &mut Self| {
                this.ended = true;
                Some(Err(FlashError::Trace(this.name.clone(), this.line, what)))
            };
            match String::from_utf8(bytes) {
                Ok(text) if text.len() < 1 << 20 => self.text = text,
                Ok(_) => return wrong("the line is too long".into(), self),
                Err(_) => return wrong("the line is not text".into(), self),
            }
            match self.parse() {
                Ok(Some(request)) => return Some(Ok(request)),
                Ok(None) => {}
                Err(what) => return wrong(what, self),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str, format: Format) -> Vec<Request> {
        Trace::new(text.as_bytes(), "t", format).map(|r| r.unwrap()).collect()
    }

    fn short(text: &str, format: Format) -> Vec<(u64, Op, u64, u32)> {
        all(text, format).into_iter().map(|r| (r.at, r.op, r.page, r.pages)).collect()
    }

    fn error(text: &str, format: Format) -> String {
        let last = Trace::new(text.as_bytes(), "some.trace", format).last().unwrap();
        last.unwrap_err().to_string()
    }

    #[test]
    fn blkparse_text() {
        let text = "  8,0    3        1     5.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        1     5.000000100   697  D  WS 224 + 8 [kjournald]
  8,0    3        2     5.000001829   697  D   R 9 + 8 [x]
  8,0    3        2     5.100000000   697  D   D 80 + 80 [x]
  8,0    3        2     5.200000000   697  D  FN [kworker]
  8,0    3        3     5.200000000   697  m   N cfq workload slice:300

CPU0 (8,0):
 Reads Queued:           0,        0KiB\n";
        let wanted = [
            (0, Op::Write, 28, 1),
            (1729, Op::Read, 1, 2),
            (99_999_900, Op::Trim, 10, 10),
            (199_999_900, Op::Flush, 0, 0),
        ];
        assert_eq!(short(text, Format::Blkparse), wanted);
        for (text, what) in [
            ("8,0 3 1 0.000000000 697 D W 224\n", "line 1: an issued request"),
            ("8,0 3 1 0.000000000 697 D W 224 +\n", "line 1: the number of sectors is missing"),
            ("8,0 3 1 zero 697 D W 224 + 8 [x]\n", "'zero'"),
            ("8,0 3 1 0.000000000 697 D W x + 8 [x]\n", "sector is 'x'"),
            ("8,0 3 1\n", "the time is missing"),
            ("8,0 3 1 0.000000000 697 D W 18446744073709551615 + 8 [x]\n", "beyond any device"),
            ("hello\n", "'hello' is not a device number"),
        ] {
            assert!(error(text, Format::Blkparse).contains(what), "{}", error(text, Format::Blkparse));
        }
    }

    #[test]
    fn a_flush_before_a_write_is_a_request_of_its_own() {
        let text = "8,0 3 1 0.000000000 697 D FWFS 224 + 8 [x]\n8,0 3 1 0.000000007 697 D FF 0 + 0 [x]\n";
        let wanted = [(0, Op::Flush, 0, 0), (0, Op::Write, 28, 1), (7, Op::Flush, 0, 0)];
        assert_eq!(short(text, Format::Blkparse), wanted);
    }

    #[test]
    fn msr_cambridge() {
        let text = "128166372003061629,hm,1,Read,383496192,32768,113736
128166372016382155,hm,1,Write,2822144000,4096,87237\n";
        assert_eq!(
            short(text, Format::Msr),
            [(0, Op::Read, 93627, 8), (1_332_052_600, Op::Write, 689_000, 1)]
        );
        assert!(error("1,hm,1,Erase,0,4096,1\n", Format::Msr).contains("some.trace, line 1: 'Erase'"));
        assert!(error("1,hm,1,Read,0,4096,1\n1,hm,1,Read,0\n", Format::Msr).contains("line 2: 5 fields"));
        assert!(error("1,hm,1,Read,0,0,1\n", Format::Msr).contains("no bytes"));
    }

    #[test]
    fn logs_of_fio() {
        let text = "fio version 3 iolog\n24 /f add\n129 /f open\n133 /f read 0 4096\n1906 /f write 45056 8192
2244 /f sync 61440 0\n2300 /f trim 0 4096\n3682 /f close\n";
        let wanted = [
            (0, Op::Read, 0, 1),
            (1_773_000, Op::Write, 11, 2),
            (2_111_000, Op::Flush, 0, 0),
            (2_167_000, Op::Trim, 0, 1),
        ];
        assert_eq!(short(text, Format::Fio), wanted);
        assert_eq!(
            short("fio version 2 iolog\n/f add\n/f write 4096 1\n/f wait 5\n/f read 0 1\n", Format::Fio)
                .len(),
            2
        );
        assert!(error("/f add\n", Format::Fio).contains("line 1"));
        assert!(
            error("fio version 3 iolog\n1 /f write 9\n", Format::Fio)
                .contains("line 2: the length is missing")
        );
    }

    #[test]
    fn plain_csv_with_ratios() {
        let text = format!(
            "{CSV_HEADER}\n0,write,4096,8192,1.5;7.9,0.17;0.99\n10.5,write,0,4096,,0.5\n20,flush,0,0,,\n30,read,0,1,,\n"
        );
        let requests = all(&text, Format::Csv);
        assert_eq!(requests[0].ratios, [(Some(1.5), 0.17), (Some(7.9), 0.99)]);
        assert_eq!(requests[1].ratios, [(None, 0.5)]);
        assert_eq!(requests.iter().map(|r| r.at).collect::<Vec<_>>(), [0, 10_500, 20_000, 30_000]);
        let one = |row: &str| error(&format!("{CSV_HEADER}\n{row}\n"), Format::Csv);
        assert!(one("0,write,0,8192,,0.1;0.2;0.3").contains("line 2: 3 values of ratio for 2 pages"));
        assert!(one("0,write,0,4096,,1.5").contains("ratio is '1.5'"));
        assert!(one("0,write,0,4096,9,0.5").contains("entropy is '9'"));
        assert!(one("x,write,0,4096,,").contains("time_us is 'x'"));
        assert!(one("0,erase,0,4096,,").contains("'erase'"));
        assert!(error("time,op\n", Format::Csv).contains("first line"));
    }

    #[test]
    fn the_form_is_told_by_the_first_line() {
        let guess = |line: &str| Format::guess(line);
        assert_eq!(
            guess("  8,0    3        1     5.000000000   697  Q   W 223490 + 8 [k]"),
            Some(Format::Blkparse)
        );
        assert_eq!(guess("128166372003061629,hm,1,Read,383496192,32768,113736"), Some(Format::Msr));
        assert_eq!(guess("fio version 3 iolog"), Some(Format::Fio));
        assert_eq!(guess(CSV_HEADER), Some(Format::Csv));
        assert_eq!(guess("hello"), None);
        assert_eq!(guess(""), None);
    }

    #[test]
    fn damaged_traces_never_panic() {
        let mut state = 1u64;
        let parts = [
            "8,0",
            " ",
            ",",
            "D",
            "W",
            "+",
            "0.1",
            "99999999999999999999",
            "-1",
            "\n",
            "Read",
            ";",
            "fio version 3 iolog\n",
            "\u{fffd}",
        ];
        for _ in 0..3000 {
            let mut text = String::new();
            for _ in 0..20 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(parts[(state >> 33) as usize % parts.len()]);
            }
            for (_, format) in FORMATS {
                Trace::new(text.as_bytes(), "t", format).for_each(drop);
            }
        }
    }
}
