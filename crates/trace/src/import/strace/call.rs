//! A call in a line of strace: its name, arguments and result.

use crate::import::parser::shown;

/// A whole call.
#[derive(Debug, Default)]
pub(super) struct Call {
    pub(super) name: String,
    args: Vec<Vec<u8>>,
    /// `None`: it did not return, or its result is no number.
    pub(super) result: Option<i64>,
    /// Name of the error.
    pub(super) error: String,
    /// Nanoseconds.
    pub(super) took: u64,
}

impl Call {
    /// An argument as it stands; empty where there is none.
    pub(super) fn arg(&self, at: usize) -> &[u8] {
        self.args.get(at).map_or(&[], |arg| &arg[..])
    }

    /// Whether any argument has this in it.
    pub(super) fn mentions(&self, word: &[u8]) -> bool {
        self.args.iter().any(|arg| super::line::after(arg, word).is_some())
    }

    /// A number.
    pub(super) fn number(&self, at: usize) -> Option<u64> {
        integer(self.arg(at)).and_then(|n| u64::try_from(n).ok())
    }

    /// An octal mode.
    pub(super) fn mode(&self, at: usize) -> Option<u16> {
        let text = std::str::from_utf8(self.arg(at)).ok()?;
        u16::from_str_radix(text.trim_start_matches('0'), 8)
            .ok()
            .map(|mode| mode & 0o7777)
            .or((text == "000").then_some(0))
    }

    /// A string that is whole.
    pub(super) fn text(&self, at: usize) -> Option<Vec<u8>> {
        let (text, whole) = string(self.arg(at));
        whole.then_some(text)
    }

    /// An absolute path.
    pub(super) fn path(&self, at: usize) -> Option<Vec<u8>> {
        self.text(at).filter(|path| path.starts_with(b"/"))
    }

    /// A path below a directory's descriptor, which `-y` shows with its path.
    pub(super) fn path_at(&self, directory: usize, at: usize) -> Option<Vec<u8>> {
        let path = self.text(at)?;
        if path.starts_with(b"/") {
            return Some(path);
        }
        let below = shown_path(self.arg(directory))?;
        below.starts_with(b"/").then(|| [&below[..], b"/", &path].concat())
    }

    /// The size in a `stat` structure that is shown.
    pub(super) fn size_shown(&self) -> Option<u64> {
        let named = self.args.iter().find_map(|arg| {
            super::line::after(arg, b"st_size=").or_else(|| super::line::after(arg, b"stx_size="))
        })?;
        let end = named.iter().position(|b| !b.is_ascii_digit()).unwrap_or(named.len());
        std::str::from_utf8(&named[..end]).ok()?.parse().ok()
    }
}

/// Reads `name(arguments) = result`.
pub(super) fn parse(text: &[u8]) -> Result<Call, String> {
    let malformed = || format!("'{}' is not a call with its result", shown(text));
    let open = text.iter().position(|&b| b == b'(').ok_or_else(malformed)?;
    let name = std::str::from_utf8(&text[..open]).map_err(|_| malformed())?;
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(malformed());
    }
    let (args, behind) = arguments(&text[open + 1..]).ok_or_else(malformed)?;
    let result = behind.trim_ascii_start().strip_prefix(b"=").ok_or_else(malformed)?.trim_ascii();
    let mut call = Call { name: name.to_owned(), args, ..Call::default() };
    let end = result.iter().position(|b| matches!(b, b' ' | b'<')).unwrap_or(result.len());
    call.result = integer(&result[..end]);
    let mut words = result[end..].split(|&b| b == b' ').filter(|word| !word.is_empty());
    if call.result == Some(-1) {
        call.error = words.next().map(|word| String::from_utf8_lossy(word).into_owned()).unwrap_or_default();
    }
    if let Some(seconds) = words.next_back().and_then(|word| word.strip_prefix(b"<")?.strip_suffix(b">"))
        && let Some(seconds) = std::str::from_utf8(seconds).ok().and_then(|text| text.parse::<f64>().ok())
        && (0.0..1e9).contains(&seconds)
    {
        call.took = (seconds * 1e9) as u64;
    }
    Ok(call)
}

/// The arguments up to the closing parenthesis, and what is behind it.
fn arguments(text: &[u8]) -> Option<(Vec<Vec<u8>>, &[u8])> {
    let (mut args, mut depth, mut begin, mut quoted, mut at) = (Vec::new(), 0u32, 0, false, 0);
    while at < text.len() {
        match text[at] {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                let last = text[begin..at].trim_ascii();
                if !last.is_empty() || !args.is_empty() {
                    args.push(last.to_vec());
                }
                return Some((args, &text[at + 1..]));
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                args.push(text[begin..at].trim_ascii().to_vec());
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn integer(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The bytes of a quoted string, and whether it is whole.
pub(super) fn string(argument: &[u8]) -> (Vec<u8>, bool) {
    let Some(inner) = argument.strip_prefix(b"\"") else { return (Vec::new(), false) };
    let Some(end) = closing_quote(inner) else { return (Vec::new(), false) };
    (unescape(&inner[..end]), !inner[end..].ends_with(b"..."))
}

fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            b'"' => return Some(at),
            _ => at += 1,
        }
    }
    None
}

/// Undoes the escapes of strace's strings: those of C.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 4);
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some((&kind, behind)) = rest.split_first() else { break };
        rest = behind;
        match kind {
            b'x' => {
                let digits = rest.iter().take(2).take_while(|b| b.is_ascii_hexdigit()).count();
                bytes.push(radix(&rest[..digits], 16));
                rest = &rest[digits..];
            }
            b'0'..=b'7' => {
                let more = rest.iter().take(2).take_while(|b| (b'0'..=b'7').contains(*b)).count();
                let value = std::iter::once(kind).chain(rest[..more].iter().copied()).collect::<Vec<u8>>();
                bytes.push(radix(&value, 8));
                rest = &rest[more..];
            }
            b'n' => bytes.push(b'\n'),
            b't' => bytes.push(b'\t'),
            b'r' => bytes.push(b'\r'),
            b'f' => bytes.push(0x0c),
            b'v' => bytes.push(0x0b),
            other => bytes.push(other),
        }
    }
    bytes
}

fn radix(digits: &[u8], radix: u32) -> u8 {
    let text = std::str::from_utf8(digits).unwrap_or_default();
    u32::from_str_radix(text, radix).map_or(0, |value| value as u8)
}

/// The bytes of all strings of an `iovec` list, as far as they are whole.
pub(super) fn vector(argument: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = argument;
    while let Some(at) = super::line::after(rest, b"iov_base=") {
        let (part, whole) = string_at(at);
        bytes.extend_from_slice(&part);
        if !whole {
            break;
        }
        rest = at;
    }
    bytes
}

/// A quoted string that something follows.
fn string_at(text: &[u8]) -> (Vec<u8>, bool) {
    let Some(inner) = text.strip_prefix(b"\"") else { return (Vec::new(), false) };
    let Some(end) = closing_quote(inner) else { return (Vec::new(), false) };
    (unescape(&inner[..end]), !inner[end + 1..].starts_with(b"..."))
}

/// Number and path of `3</path>`, the path where `-y` shows one.
pub(super) fn descriptor(argument: &[u8]) -> Option<(i64, Option<Vec<u8>>)> {
    let end = argument.iter().position(|b| !b.is_ascii_digit()).unwrap_or(argument.len());
    let number = integer(&argument[..end])?;
    Some((number, shown_path(argument)))
}

/// The path between angle brackets.
fn shown_path(text: &[u8]) -> Option<Vec<u8>> {
    let begin = text.iter().position(|&b| b == b'<')?;
    let end = text[begin..].iter().position(|&b| b == b'>')? + begin;
    let deleted: &[u8] = if text[end..].starts_with(b">(deleted)") { b" (deleted)" } else { b"" };
    Some([&unescape(&text[begin + 1..end])[..], deleted].concat())
}

/// The bits of fallocate's mode.
pub(super) fn fallocate_mode(argument: &[u8]) -> Option<u32> {
    if let Some(number) = integer(argument) {
        return u32::try_from(number).ok();
    }
    const MODES: [(&[u8], u32); 5] = [
        (b"FALLOC_FL_KEEP_SIZE", 0x01),
        (b"FALLOC_FL_PUNCH_HOLE", 0x02),
        (b"FALLOC_FL_COLLAPSE_RANGE", 0x08),
        (b"FALLOC_FL_ZERO_RANGE", 0x10),
        (b"FALLOC_FL_INSERT_RANGE", 0x20),
    ];
    argument
        .split(|&b| b == b'|')
        .try_fold(0, |bits, word| MODES.iter().find(|(name, _)| *name == word).map(|(_, bit)| bits | bit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_with_everything() {
        let call = parse(br#"pwrite64(3<\x2f\x61>, "\x61\"\012)\n"..., 9, 4096) = 9 <0.000021>"#).unwrap();
        assert_eq!((&*call.name, call.result, call.took), ("pwrite64", Some(9), 21_000));
        assert_eq!(descriptor(call.arg(0)), Some((3, Some(b"/a".to_vec()))));
        assert_eq!(string(call.arg(1)), (b"a\"\n)\n".to_vec(), false));
        assert_eq!((call.number(2), call.number(3)), (Some(9), Some(4096)));
    }

    #[test]
    fn results_of_every_kind() {
        let call =
            parse(br#"openat(AT_FDCWD<\x2f\x61>, "\x62", O_RDWR|O_CREAT, 0644) = 5<\x2f\x61\x2f\x62>"#)
                .unwrap();
        assert_eq!(call.result, Some(5));
        assert_eq!((call.path_at(0, 1).as_deref(), call.mode(3)), (Some(&b"/a/b"[..]), Some(0o644)));
        let call = parse(br#"stat("/x", 0x7ffe) = -1 ENOENT (No such file or directory) <0.5>"#).unwrap();
        assert_eq!((call.result, &*call.error, call.took), (Some(-1), "ENOENT", 500_000_000));
        assert_eq!(parse(b"exit_group(0) = ?").unwrap().result, None);
        assert_eq!(
            parse(br#"fstat(3</x>, {st_mode=S_IFREG|0644, st_size=77, ...}) = 0"#).unwrap().size_shown(),
            Some(77)
        );
        let call =
            parse(br#"writev(3</x>, [{iov_base="ab", iov_len=2}, {iov_base="\x63", iov_len=1}], 2) = 3"#)
                .unwrap();
        assert_eq!(vector(call.arg(1)), b"abc");
        for wrong in ["", "close(3", "close 3", "(3) = 0", "cl-ose(3) = 0", "close(3)"] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert_eq!(fallocate_mode(b"FALLOC_FL_KEEP_SIZE|FALLOC_FL_PUNCH_HOLE"), Some(3));
        assert_eq!(fallocate_mode(b"FALLOC_FL_SOMETHING"), None);
    }
}
