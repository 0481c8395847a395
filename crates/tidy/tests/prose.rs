//! The documents are read by people: a sentence has at most 35 words.

use medfs_tidy::prose::sentences;
use medfs_tidy::{Source, expect_none, sources};

/// Most words of a sentence.
const WORDS: usize = 35;

fn long_sentences(files: &[Source]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for sentence in sentences(&file.text).iter().filter(|sentence| sentence.words.len() > WORDS) {
            let (words, line) = (&sentence.words, sentence.line);
            found.push(format!("{}:{line}: {} words: {}", file.path, words.len(), words.join(" ")));
        }
    }
    found
}

#[test]
fn a_sentence_has_at_most_35_words() {
    expect_none("a sentence of a document has at most 35 words", long_sentences(&sources()));
}

/// Canary: one word more is found, wherever a document can have a sentence.
#[test]
fn a_planted_long_sentence_is_found() {
    let words = |count: usize| vec!["word"; count].join(" ");
    for (before, behind) in
        [("", "."), ("# ", ""), ("- An item. ", ""), ("| cell | ", " |"), ("3. ", "\n   `go on`: so.")]
    {
        let planted = |count: usize| {
            [Source::new("docs/A.md", &format!("Short.\n\n{before}{}{behind}\n", words(count)))]
        };
        let more = behind.split_whitespace().filter(|word| word.contains(char::is_alphabetic)).count();
        let more = if more == 0 { 0 } else { 2 };
        assert_eq!(long_sentences(&planted(WORDS - more)), [""; 0], "{before}");
        let found = long_sentences(&planted(WORDS + 1 - more));
        assert_eq!(found.len(), 1, "{before}");
        assert!(found[0].starts_with("docs/A.md:3: 36 words: "), "{found:?}");
    }
    let code = format!("```\n{}\n```\n", words(WORDS + 1));
    assert_eq!(
        long_sentences(&[Source::new("A.md", &code), Source::new("a.rs", &words(WORDS + 1))]),
        [""; 0]
    );
}
