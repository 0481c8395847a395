//! Names on a terminal, quoted as GNU ls does: what a shell would take apart is quoted, and control
//! characters and bytes that are not UTF-8 are escapes, so that no name moves the cursor or pretends to be
//! two.

/// Characters that mean something to a shell.
const SPECIAL: &str = " !\"$&'()*;<=>?[\\]^`|";

use std::fmt::Arguments;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as a word of a command that its reader can copy.
pub fn path(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    // A name that begins as an option does would be taken for one.
    if bytes.starts_with(b"-") { for_terminal(&[b"./", bytes].concat()) } else { for_terminal(bytes) }
}

/// A command in a sentence, in quotes: `'medfs umount /mnt'`, `"medfs umount '/mnt/my card'"`.
pub fn hint(command: Arguments<'_>) -> String {
    let command = command.to_string();
    match command.contains('\'') {
        true => format!("\"{command}\""),
        false => format!("'{command}'"),
    }
}

/// A name as a shell would have to be told it: `plain`, `'two words'`, `"it's"`, `'line'$'\n''feed'`.
pub fn for_terminal(name: &[u8]) -> String {
    let pieces = pieces(name);
    let plain = |c: &char| !SPECIAL.contains(*c);
    let mut text = String::new();
    if pieces.iter().any(|piece| matches!(piece, Piece::Escape(_))) {
        quoted_with_escapes(&pieces, &mut text);
        return text;
    }
    text.extend(pieces.iter().map(Piece::plain));
    let starts_specially = text.starts_with(['~', '#']) || text == "{" || text == "}";
    if !text.is_empty() && text.chars().all(|c| plain(&c)) && !starts_specially {
        return text;
    }
    match text.contains('\'') {
        true if !text.contains(['"', '$', '`', '\\', '!']) => format!("\"{text}\""),
        true => format!("'{}'", text.replace('\'', "'\\''")),
        false => format!("'{text}'"),
    }
}

/// A character to show, or an escape in place of what cannot be shown.
enum Piece {
    Plain(char),
    Escape(String),
}

impl Piece {
    fn plain(&self) -> char {
        match self {
            Piece::Plain(c) => *c,
            Piece::Escape(_) => '?',
        }
    }
}

/// Whether a character shows nothing, or turns the order of those behind it: two names with it may look alike.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

fn pieces(name: &[u8]) -> Vec<Piece> {
    let octal = |byte: u8| Piece::Escape(format!("\\{byte:03o}"));
    let mut pieces = Vec::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => pieces.push(Piece::Escape("\\n".into())),
                '\t' => pieces.push(Piece::Escape("\\t".into())),
                '\r' => pieces.push(Piece::Escape("\\r".into())),
                c if c.is_control() || is_unseen(c) => pieces.extend(c.to_string().bytes().map(octal)),
                c => pieces.push(Piece::Plain(c)),
            }
        }
        pieces.extend(chunk.invalid().iter().copied().map(octal));
    }
    pieces
}

/// `'plain'$'\escape''plain'`, beginning within quotes as GNU ls does.
fn quoted_with_escapes(pieces: &[Piece], text: &mut String) {
    text.push('\'');
    let mut in_escape = false;
    for piece in pieces {
        match (piece, in_escape) {
            (Piece::Plain(_), true) => text.push_str("''"),
            (Piece::Escape(_), false) => text.push_str("'$'"),
            _ => {}
        }
        match piece {
            Piece::Plain('\'') => text.push_str("'\\''"),
            Piece::Plain(c) => text.push(*c),
            Piece::Escape(escape) => text.push_str(escape),
        }
        in_escape = matches!(piece, Piece::Escape(_));
    }
    text.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, and what GNU ls 9.1 shows of them on a terminal in a UTF-8 locale.
    const NAMES: &[(&[u8], &str)] = &[
        (b"plain-1.2_x", "plain-1.2_x"),
        ("Größe".as_bytes(), "Größe"),
        (b"two words", "'two words'"),
        (b"it's", "\"it's\""),
        (b"it's $5", "'it'\\''s $5'"),
        (b"a\nb", "'a'$'\\n''b'"),
        (b"a\n", "'a'$'\\n'"),
        (b"\x1b[31m", "''$'\\033''[31m'"),
        (b"a\xffb", "'a'$'\\377''b'"),
        (b"~me", "'~me'"),
        (b"me~", "me~"),
        (b"#x", "'#x'"),
        (b"a=b", "'a=b'"),
        (b"{a}", "{a}"),
        (b"tab\there\r", "'tab'$'\\t''here'$'\\r'"),
        (b"to the left \xe2\x80\xaegpj", "'to the left '$'\\342\\200\\256''gpj'"),
    ];

    #[test]
    fn names_are_quoted_as_gnu_ls_quotes_them() {
        for (name, shown) in NAMES {
            assert_eq!(for_terminal(name), *shown);
        }
    }

    #[test]
    fn a_command_can_be_copied() {
        for (dir, shown) in [
            ("/mnt", "'medfs umount /mnt'"),
            ("/my card", "\"medfs umount '/my card'\""),
            ("-d", "'medfs umount ./-d'"),
        ] {
            assert_eq!(hint(format_args!("medfs umount {}", path(Path::new(dir)))), shown);
        }
    }

    #[test]
    fn a_shell_reads_the_name_back_and_nothing_reaches_the_terminal() {
        for byte in 1..=255u8 {
            for name in [vec![byte], vec![b'a', byte, b'\''], vec![byte, byte, b' ']] {
                let shown = for_terminal(&name);
                assert!(!shown.chars().any(char::is_control), "{shown:?}");
                if byte % 16 == 7 || byte == b'\n' {
                    let echo = format!("printf %s {shown}");
                    let read = std::process::Command::new("bash").args(["-c", &echo]).output().unwrap();
                    assert_eq!(read.stdout, name, "{shown}");
                }
            }
        }
    }
}
