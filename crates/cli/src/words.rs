//! Numbers with their nouns.

/// `1 file`, `2 files`, `1,234 directories`, `3 files and directories`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let noun = if number == 1 { noun.to_owned() } else { plural(noun) };
    format!("{} {noun}", grouped(number))
}

/// `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn plural(noun: &str) -> String {
    if let Some((one, other)) = noun.split_once(" or ") {
        return format!("{} and {}", plural(one), plural(other));
    }
    match noun.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if noun.ends_with('s') => format!("{noun}es"),
        None => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn nouns_agree_with_their_numbers() {
        for (number, noun, text) in [
            (0, "page", "0 pages"),
            (1, "page", "1 page"),
            (2, "process", "2 processes"),
            (1, "directory", "1 directory"),
            (1234, "directory", "1,234 directories"),
            (1, "file or directory", "1 file or directory"),
            (3, "file or directory", "3 files and directories"),
        ] {
            assert_eq!(count(number, noun), text);
        }
    }
}
