//! What the parsers of all logs share.

use super::model::Model;

/// Understands one line after the other.
pub(super) trait Parser {
    /// `line` has no line feed.
    fn line(&mut self, line: &[u8], model: &mut Model<'_>) -> Result<(), String>;
}

/// A line in parts, to be shown in a message.
pub(super) fn shown(line: &[u8]) -> String {
    const SHOWN: usize = 60;
    let text = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]).into_owned();
    if line.len() > SHOWN { format!("{text}...") } else { text }
}

/// A line of a log that is text.
pub(super) fn text(line: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())
}

/// A number of a field.
pub(super) fn number<T: std::str::FromStr>(field: Option<&str>, what: &str) -> Result<T, String> {
    let field = field.ok_or_else(|| format!("{what} is missing"))?;
    field.parse().map_err(|_| format!("{what} is '{}', not a number in range", shown(field.as_bytes())))
}

/// Refuses what no file can hold.
pub(super) fn check_range(offset: u64, len: u64) -> Result<(), String> {
    const LEN_MAX: u64 = 1 << 32;
    let fits = offset.checked_add(len).is_some_and(|end| end <= i64::MAX as u64) && len <= LEN_MAX;
    if fits {
        Ok(())
    } else {
        Err(format!("{len} bytes at {offset} are more than a file can hold or a request can have"))
    }
}

/// The names of a path. `..` is taken back as it stands: strace shows paths as they were given.
pub(super) fn parts(path: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for part in path.split(|&b| b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            name => parts.push(name.to_vec()),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_into_names() {
        assert_eq!(parts(b"/a//b/./c/../d/"), [b"a".to_vec(), b"b".to_vec(), b"d".to_vec()]);
        assert!(parts(b"/../..").is_empty());
    }
}
