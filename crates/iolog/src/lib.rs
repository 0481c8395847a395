//! Text logs of I/O that other tools write, line by line: what blkparse prints of a block device
//! ([`blkparse`]), and fio's iolog ([`fio`]).
//!
//! A line is understood or refused, and the refusal says which field is wrong. What a line means for files or
//! for a device is decided by the crates that ask. Times are nanoseconds.
#![forbid(unsafe_code)]

pub mod blkparse;
pub mod fio;

/// Bytes of a file or device that a line names. Nothing says that they exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Where they begin.
    pub offset: u64,
    /// How many they are.
    pub len: u64,
}

/// Most characters of a log that a message repeats.
const SHOWN: usize = 60;

/// A part of a log, cut so that a message can show it.
fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

/// The number in a field.
fn number<T: std::str::FromStr>(field: Option<&str>, what: &str) -> Result<T, String> {
    let field = field.ok_or_else(|| format!("{what} is missing"))?;
    field.parse().map_err(|_| format!("{what} is '{}', not a number in range", shown(field)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines made of the words that parsers look for, in any order, never panic.
    #[test]
    fn no_line_panics() {
        const PARTS: [&str; 16] = [
            "8,0",
            " ",
            " ",
            ",",
            "D",
            "FWS",
            "+",
            "0.1",
            "99999999999999999999",
            "-1",
            "CPU0",
            "wait",
            "add",
            "/f",
            "fio version 3 iolog",
            "\u{fffd}",
        ];
        let mut state = 1u64;
        for _ in 0..5000 {
            let mut log = fio::Iolog::default();
            for _ in 0..4 {
                let mut line = String::new();
                for _ in 0..9 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    line.push_str(PARTS[(state >> 33) as usize % PARTS.len()]);
                }
                let _ = blkparse::line(&line);
                let _ = log.line(&line);
            }
        }
    }

    #[test]
    fn a_long_field_is_cut_in_messages() {
        let message = number::<u32>(Some(&"é".repeat(100)), "the sector").unwrap_err();
        assert_eq!(message, format!("the sector is '{}...', not a number in range", "é".repeat(SHOWN)));
    }
}
