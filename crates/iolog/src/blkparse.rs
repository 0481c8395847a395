//! The text that blkparse prints (blkparse(1), default format): an event of a request on each line, then a summary.
//!
//! An event is `major,minor cpu sequence seconds.nanoseconds pid action rwbs [sector + count [process]]`.
//! Each request passes several events, such as queued (`Q`), issued (`D`) and completed (`C`).

use crate::{Span, number, shown};

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// What a line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line<'a> {
    /// Nothing.
    Empty,
    /// The summary begins: no events follow.
    Summary,
    /// Something happened to a request.
    Event(Event<'a>),
}

/// An event of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Time since the recording began, in nanoseconds.
    pub at: u64,
    /// The process that blkparse names.
    pub pid: u32,
    /// Which event it is: `Q`, `D`, `C` and others.
    pub action: &'a str,
    /// What the request asks for.
    pub request: Request<'a>,
    /// What is transferred. Flushes without data, and messages, have none.
    pub span: Option<Span>,
}

/// What a request asks for: blkparse's field RWBS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The field as it stands.
    pub rwbs: &'a str,
    /// The device's cache is flushed before the data is transferred (`F` in front).
    pub flush_before: bool,
    /// What is done with the data.
    pub op: Option<Op>,
    /// The data is durable when the request completes (`F` behind the operation).
    pub durable: bool,
}

/// What a request does with its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `R`.
    Read,
    /// `W`.
    Write,
    /// `D`, and `E`, which erases securely.
    Discard,
}

impl<'a> Request<'a> {
    /// The field holds, in this order: `F` for a flush before, the operation (`W`, `D`, `DE`, `R`, or `N` for
    /// none), then flags, among them `F` for durable data.
    fn parse(rwbs: &'a str) -> Request<'a> {
        let (flush_before, rest) = rwbs.strip_prefix('F').map_or((false, rwbs), |rest| (true, rest));
        let op = match rest.chars().next() {
            Some('R') => Some(Op::Read),
            Some('W') => Some(Op::Write),
            Some('D' | 'E') => Some(Op::Discard),
            _ => None,
        };
        Request { rwbs, flush_before, op, durable: op.is_some() && rest.contains('F') }
    }
}

/// Whether a line begins as an event does: with a device number.
pub fn is_event(line: &str) -> bool {
    let is_number = |text: &str| text.parse::<u32>().is_ok();
    let first = line.split_whitespace().next().unwrap_or("");
    first.split_once(',').is_some_and(|(major, minor)| is_number(major) && is_number(minor))
}

/// Understands a line.
///
/// # Errors
/// What of the line is no event, as a phrase.
pub fn line(text: &str) -> Result<Line<'_>, String> {
    let mut fields = text.split_whitespace();
    let Some(first) = fields.next() else { return Ok(Line::Empty) };
    if first.starts_with("CPU") || first.starts_with("Total") {
        return Ok(Line::Summary);
    }
    if !is_event(text) {
        return Err(format!("'{}' is not a device number, as 8,0", shown(first)));
    }
    let _cpu: u32 = number(fields.next(), "the CPU")?;
    let _sequence: u64 = number(fields.next(), "the sequence number")?;
    let at = nanoseconds(fields.next())?;
    let pid = number(fields.next(), "the process")?;
    let action = fields.next().ok_or("the action is missing")?;
    let request = Request::parse(fields.next().ok_or("the kind of request is missing")?);
    let span = match (fields.next(), fields.next()) {
        (Some(sector), Some("+")) => Some(span(sector, fields.next())?),
        _ => None,
    };
    Ok(Line::Event(Event { at, pid, action, request, span }))
}

/// `SECTOR + COUNT` in bytes.
fn span(sector: &str, count: Option<&str>) -> Result<Span, String> {
    let sector: u64 = number(Some(sector), "the sector")?;
    let count: u64 = number(count, "the number of sectors")?;
    let bytes = |sectors: u64| sectors.checked_mul(SECTOR);
    bytes(sector)
        .zip(bytes(count))
        .filter(|(offset, len)| offset.checked_add(*len).is_some())
        .map(|(offset, len)| Span { offset, len })
        .ok_or_else(|| "its sectors are beyond any device".into())
}

/// Nanoseconds of `seconds.nanoseconds`, the latter with nine digits.
fn nanoseconds(field: Option<&str>) -> Result<u64, String> {
    let field = field.ok_or("the time is missing")?;
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let parsed = field.split_once('.').and_then(|(seconds, nanos)| {
        let (whole, part): (u64, u64) = (seconds.parse().ok()?, nanos.parse().ok()?);
        let is_time = is_number(seconds) && is_number(nanos) && nanos.len() == 9;
        whole.checked_mul(1_000_000_000)?.checked_add(part).filter(|_| is_time)
    });
    parsed.ok_or_else(|| format!("the time is '{}', not seconds.nanoseconds", shown(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event<'_> {
        match line(text) {
            Ok(Line::Event(event)) => event,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn an_event_of_a_request() {
        let found = event("  8,0    3        1     5.000001829   697  D  WS 224 + 8 [kjournald]");
        assert_eq!((found.at, found.pid, found.action), (5_000_001_829, 697, "D"));
        assert_eq!(found.span, Some(Span { offset: 224 * 512, len: 4096 }));
        assert_eq!(event("8,0 3 1 0.000000005 697 m N cfq slice:300").span, None);
    }

    #[test]
    fn flushes_lie_before_and_behind_the_operation() {
        let of = |rwbs: &'static str| {
            let request = Request::parse(rwbs);
            (request.flush_before, request.op, request.durable)
        };
        assert_eq!(of("W"), (false, Some(Op::Write), false));
        assert_eq!(of("WFS"), (false, Some(Op::Write), true));
        assert_eq!(of("FWFSM"), (true, Some(Op::Write), true));
        assert_eq!(of("FWS"), (true, Some(Op::Write), false));
        assert_eq!(of("RA"), (false, Some(Op::Read), false));
        assert_eq!(of("DS"), (false, Some(Op::Discard), false));
        assert_eq!(of("DE"), (false, Some(Op::Discard), false));
        assert_eq!(of("FN"), (true, None, false));
        assert_eq!(of("FF"), (true, None, false));
        assert_eq!(of("N"), (false, None, false));
    }

    #[test]
    fn a_summary_and_an_empty_line_are_no_events() {
        assert_eq!(line("CPU0 (8,0):"), Ok(Line::Summary));
        assert_eq!(line("Total (8,0):"), Ok(Line::Summary));
        assert_eq!(line(""), Ok(Line::Empty));
        assert!(
            is_event(" 8,16 1 1 0.0 1 Q R 1 + 1") && !is_event("fio version 3 iolog") && !is_event("8, 0")
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, what) in [
            ("hello", "'hello' is not a device number"),
            ("8,0 x", "the CPU is 'x'"),
            ("8,0 3 1", "the time is missing"),
            ("8,0 3 1 zero 697 D W 224 + 8", "the time is 'zero'"),
            ("8,0 3 1 0.5 697 D W 224 + 8", "the time is '0.5'"),
            ("8,0 3 1 1.0123456789 697 D W 224 + 8", "the time is '1.0123456789'"),
            ("8,0 3 1 99999999999999999999.000000001 697 D W 224 + 8", "the time is '9999"),
            ("8,0 3 1 0.000000000 697", "the action is missing"),
            ("8,0 3 1 0.000000000 697 D", "the kind of request is missing"),
            ("8,0 3 1 0.000000000 697 D W x + 8", "the sector is 'x'"),
            ("8,0 3 1 0.000000000 697 D W 224 +", "the number of sectors is missing"),
            ("8,0 3 1 0.000000000 697 D W 18446744073709551615 + 8", "beyond any device"),
            ("8,0 3 1 0.000000000 697 D W 36028797018963967 + 8", "beyond any device"),
        ] {
            let message = line(text).unwrap_err();
            assert!(message.contains(what), "{text}: {message}");
        }
    }
}
