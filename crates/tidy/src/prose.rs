//! The sentences of a Markdown document and their lengths.
//!
//! Purpose: a reader follows one fact at a time. A paragraph, a heading, a list item and a cell of a table
//! are texts of their own; fenced blocks are left out. A code span is one word. Only `.`, `!` and `?` end a
//! sentence, so that a chain of clauses behind colons and semicolons counts as what it is to its reader: one
//! sentence.

/// A sentence of a document.
#[derive(Debug, PartialEq, Eq)]
pub struct Sentence {
    /// The line its text begins in: that of the paragraph, the item or the row.
    pub line: usize,
    /// Its words. A code span among them is one backtick.
    pub words: Vec<String>,
}

/// Words with a period that end no sentence.
const ABBREVIATIONS: [&str; 6] = ["e.g.", "i.e.", "vs.", "cf.", "Eq.", "Fig."];

/// All sentences of a document.
pub fn sentences(markdown: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    for (line, text) in texts(markdown) {
        let mut words = Vec::new();
        for word in without_addresses(&text).split_whitespace() {
            words.push(word.to_owned());
            if ends_sentence(word) {
                found.push(Sentence { line, words: std::mem::take(&mut words) });
            }
        }
        found.push(Sentence { line, words });
    }
    for sentence in &mut found {
        sentence.words.retain(|word| word.contains(|c: char| c.is_alphanumeric() || c == '`'));
    }
    found.retain(|sentence| !sentence.words.is_empty());
    found
}

fn ends_sentence(word: &str) -> bool {
    let word = word.trim_end_matches([')', ']', '"', '\'', '*', '_']);
    let ends = word.ends_with(['.', '!', '?']) && !word.ends_with("..");
    ends && !ABBREVIATIONS.contains(&word.trim_start_matches('('))
}

/// The texts of a document, each with its first line. Code spans are a backtick each.
fn texts(markdown: &str) -> Vec<(usize, String)> {
    let (mut texts, mut fenced, mut open): (Vec<(usize, String)>, bool, bool) = (Vec::new(), false, false);
    for (at, line) in markdown.lines().enumerate() {
        let (number, line) = (at + 1, line.trim());
        if line.starts_with("```") {
            (fenced, open) = (!fenced, false);
        } else if fenced || line.is_empty() {
            open = false;
        } else if line.starts_with('|') {
            texts.extend(without_code(line).split('|').map(|cell| (number, cell.to_owned())));
            open = false;
        } else if let Some(item) = item(line) {
            texts.push((number, item.to_owned()));
            open = true;
        } else if let Some((_, text)) = texts.last_mut().filter(|_| open) {
            text.push(' ');
            text.push_str(line);
        } else {
            texts.push((number, line.to_owned()));
            open = !line.starts_with('#');
        }
    }
    texts.into_iter().map(|(line, text)| (line, without_code(&text))).collect()
}

/// What a line that begins an item of a list has behind its mark.
fn item(line: &str) -> Option<&str> {
    let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = || number.strip_prefix(". ").filter(|_| number.len() < line.len());
    line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or_else(numbered)
}

/// A text with a backtick in place of each code span.
fn without_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(at, part)| if at % 2 == 0 { part } else { "`" }).collect()
}

/// A text whose links have lost their addresses.
fn without_addresses(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(markdown: &str) -> Vec<(usize, usize)> {
        sentences(markdown).iter().map(|sentence| (sentence.line, sentence.words.len())).collect()
    }

    #[test]
    fn texts_are_paragraphs_items_and_cells() {
        let document = "# A title\none two\nthree. Four!\n\n- an item\n  goes on\n- next\n1. third\n\n```sh\nleft out\n```\n| a cell | two |\n";
        assert_eq!(lengths(document), [(1, 2), (2, 3), (2, 1), (5, 4), (7, 1), (8, 1), (13, 2), (13, 1)]);
    }

    #[test]
    fn spans_and_links_are_short() {
        assert_eq!(lengths("see `a b | c`, `d\ne` and [one two](http://x/y z)."), [(1, 6)]);
        assert_eq!(lengths("| `a | b` | c |"), [(1, 1), (1, 1)]);
    }

    #[test]
    fn a_sentence_ends_at_its_period_alone() {
        assert_eq!(
            lengths("One (two.) Three: four; five – e.g. six .. seven 8.5 nine? Ten"),
            [(1, 2), (1, 8), (1, 1)]
        );
    }
}
