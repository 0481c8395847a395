//! What stands in front of a call in a line of strace: process and time.

use crate::import::parser::shown;

/// A time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    /// Since 1970, or since midnight.
    Absolute(u64),
    /// Since the line before.
    Since(u64),
}

/// A line in its parts.
#[derive(Debug)]
pub(super) struct Head<'a> {
    pub(super) pid: u32,
    pub(super) time: Option<Time>,
    pub(super) rest: &'a [u8],
}

/// Takes process and time off a line.
pub(super) fn head(line: &[u8]) -> Result<Head<'_>, String> {
    let mut rest = line.trim_ascii_start();
    let mut pid = 0;
    if let Some(behind) = rest.strip_prefix(b"[pid ") {
        let end = behind
            .iter()
            .position(|&b| b == b']')
            .ok_or_else(|| format!("'{}' does not end", shown(line)))?;
        pid = digits(behind[..end].trim_ascii())
            .ok_or_else(|| format!("'{}' is not a process number", shown(&behind[..end])))?;
        rest = behind[end + 1..].trim_ascii_start();
    } else if let Some((word, behind)) = word(rest)
        && let Some(number) = digits(word)
    {
        pid = number;
        rest = behind;
    }
    let mut parsed = None;
    if let Some((word, behind)) = word(rest)
        && let Some(time) = time(word)
    {
        parsed = Some(time);
        rest = behind;
    }
    Ok(Head { pid, time: parsed, rest })
}

/// The first word and what is behind it.
fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&b| b == b' ')?;
    Some((&text[..end], text[end..].trim_ascii_start()))
}

fn digits<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(word).ok()?;
    if text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// `1700000000.123456`, `12:34:56.123456`, `12:34:56`, or with `-r` `0.000123`.
fn time(word: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(word).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction_nanos = match fraction.len() {
        0 => 0,
        len @ 1..=9 => digits::<u64>(fraction.as_bytes())? * 10u64.pow(9 - len as u32),
        _ => return None,
    };
    const SECOND: u64 = 1_000_000_000;
    let clock: Vec<&str> = whole.split(':').collect();
    if let [hours, minutes, seconds] = clock[..] {
        let part = |text: &str| digits::<u64>(text.as_bytes()).filter(|&n| n < 100);
        let seconds = part(hours)? * 3600 + part(minutes)? * 60 + part(seconds)?;
        return Some(Time::Absolute(seconds * SECOND + fraction_nanos));
    }
    if fraction.is_empty() {
        return None;
    }
    let seconds: u64 = digits(whole.as_bytes())?;
    let nanos = seconds.checked_mul(SECOND)?.checked_add(fraction_nanos)?;
    // No clock shows the first year after 1970, and no call is a year apart from the one before.
    const YEAR: u64 = 365 * 86_400;
    Some(if seconds > YEAR { Time::Absolute(nanos) } else { Time::Since(nanos) })
}

/// What is behind a word.
pub(super) fn after<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(word.len()).position(|window| window == word)?;
    Some(&text[at + word.len()..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_every_kind() {
        let parsed = |line: &'static str| {
            let head = head(line.as_bytes()).unwrap();
            (head.pid, head.time, std::str::from_utf8(head.rest).unwrap())
        };
        assert_eq!(parsed("close(3) = 0"), (0, None, "close(3) = 0"));
        assert_eq!(parsed("77  close(3) = 0"), (77, None, "close(3) = 0"));
        assert_eq!(
            parsed("[pid   77] 1700000000.000002 close(3) = 0"),
            (77, Some(Time::Absolute(1_700_000_000_000_002_000)), "close(3) = 0")
        );
        assert_eq!(parsed("77 01:00:02.5 f() = 0"), (77, Some(Time::Absolute(3_602_500_000_000)), "f() = 0"));
        assert_eq!(parsed("77      0.000100 f() = 0"), (77, Some(Time::Since(100_000)), "f() = 0"));
        assert!(head(b"[pid x] close(3) = 0").is_err() && head(b"[pid 3 close").is_err());
    }
}
