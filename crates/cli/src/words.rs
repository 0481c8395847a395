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

/// Columns of a terminal.
pub(crate) const COLUMNS: usize = 80;

/// `  label      value`: where the value needs several lines, they begin below each other. `width` is that of all
/// labels.
pub(crate) fn field(width: usize, label: &str, value: &str) -> String {
    filled(value, &format!("  {label:<width$} "))
}

/// A text behind what its first line begins with, in lines that fit a terminal.
pub(crate) fn filled(text: &str, before: &str) -> String {
    let indent = " ".repeat(before.chars().count());
    let options = textwrap::Options::new(COLUMNS).break_words(false).initial_indent(before);
    let options = options.subsequent_indent(&indent).word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options.word_separator(textwrap::WordSeparator::AsciiSpace))
}

/// A sentence in lines of so many columns, the later ones indented. A command in it, between quotes, stays in one
/// line, so that it can be copied.
pub(crate) fn wrapped(text: &str, columns: usize) -> String {
    const KEPT: char = '\u{1}';
    let (mut kept, mut is_command) = (String::new(), false);
    for (at, c) in text.char_indices() {
        let (before, after) = (text[..at].chars().next_back(), text[at + c.len_utf8()..].chars().next());
        is_command = match c {
            '\'' if is_command => after.is_some_and(|c| !" ;,.:)".contains(c)),
            '\'' => before.is_none_or(|c| " (".contains(c)) && text[at + 1..].contains('\''),
            _ => is_command,
        };
        kept.push(if c == ' ' && is_command { KEPT } else { c });
    }
    let options = textwrap::Options::new(columns).break_words(false).subsequent_indent("  ");
    let options = options.word_splitter(textwrap::WordSplitter::NoHyphenation);
    let options = options.word_separator(textwrap::WordSeparator::AsciiSpace);
    textwrap::fill(&kept, options).replace(KEPT, " ")
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
    fn a_field_fits_a_terminal() {
        let text = field(10, "features", &["inode_checksum"; 9].join(", "));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 1 && lines.iter().all(|line| line.len() <= COLUMNS), "{text}");
        assert!(
            lines[0].starts_with("  features   inode") && lines[1].starts_with("             inode"),
            "{text}"
        );
        assert_eq!(field(5, "path", "/a-b"), "  path  /a-b");
    }

    #[test]
    fn a_sentence_is_wrapped_and_its_command_is_not() {
        let text = "one's words (and more): 'medfs get --salvage IMAGE DIRECTORY' copies all readable files";
        let lines = [
            "one's words (and more):",
            "  'medfs get --salvage IMAGE DIRECTORY' copies",
            "  all readable files",
        ];
        assert_eq!(wrapped(text, 47), lines.join("\n"));
        assert_eq!(wrapped("a 'b", 80), "a 'b");
    }

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
