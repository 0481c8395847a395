//! What files of applications hold: text, XML, JSON, records as protobuf has them, pictures.
//!
//! All of it is made from a seed and looks as the real thing does to a compressor: words repeat as words do, names of fields
//! repeat exactly, pictures do not compress.

use crate::random::Random;

const WORDS: usize = 1500;

/// Kinds of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Prose.
    Text,
    /// Settings as Android keeps them.
    Xml,
    /// Records of a web service.
    Json,
    /// Records in protobuf's wire format.
    Proto,
    /// A picture or sound: does not compress.
    Picture,
}

/// Makes content. Keeps the vocabulary.
#[derive(Debug, Clone)]
pub struct Writer {
    words: Vec<String>,
    number: u64,
}

impl Writer {
    /// A writer with a vocabulary of its own.
    pub fn new(seed: u64) -> Writer {
        let mut r = Random::new(seed, "words");
        let letters = b"eeeeettttaaaooiinnsshhrrddlcumwfgypbvk";
        let word = |r: &mut Random| {
            let len = r.between(2, 9);
            (0..len).map(|_| char::from(*r.pick(letters))).collect()
        };
        Writer { words: (0..WORDS).map(|_| word(&mut r)).collect(), number: 0 }
    }

    /// A few words.
    pub fn say(&self, r: &mut Random, low: u64, high: u64) -> String {
        let count = r.between(low, high);
        let mut text = String::new();
        for n in 0..count {
            if n > 0 {
                text.push(' ');
            }
            text.push_str(&self.words[r.zipf(WORDS as u64) as usize]);
        }
        text
    }

    /// `len` bytes of a kind.
    pub fn make(&mut self, r: &mut Random, content: Content, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 512);
        while out.len() < len {
            self.number += 1;
            match content {
                Content::Text => self.sentence(r, &mut out),
                Content::Xml => self.xml(r, &mut out),
                Content::Json => self.json(r, &mut out),
                Content::Proto => self.proto(r, &mut out),
                Content::Picture => picture(r, &mut out, len),
            }
        }
        out.truncate(len);
        out
    }

    /// `len` bytes of which about `share` (0 to 1) do not compress: records with a preview picture each.
    pub fn mixed(&mut self, r: &mut Random, content: Content, share: f64, len: usize) -> Vec<u8> {
        const PIECE: usize = 512;
        let mut out = Vec::with_capacity(len + PIECE);
        while out.len() < len {
            let opaque = (PIECE as f64 * share) as usize;
            out.extend(self.make(r, content, PIECE - opaque));
            let at = out.len();
            out.resize(at + opaque, 0);
            r.fill(&mut out[at..]);
        }
        out.truncate(len);
        out
    }

    fn sentence(&self, r: &mut Random, out: &mut Vec<u8>) {
        let text = self.say(r, 5, 18);
        let mut chars = text.chars();
        out.extend(chars.next().map(|c| c.to_ascii_uppercase() as u8));
        out.extend(chars.as_str().bytes());
        out.extend(b". ");
    }

    fn xml(&self, r: &mut Random, out: &mut Vec<u8>) {
        let name = self.say(r, 1, 2).replace(' ', "_");
        let line = match r.below(4) {
            0 => format!("    <int name=\"{name}\" value=\"{}\" />\n", r.below(100_000)),
            1 => format!("    <boolean name=\"{name}_enabled\" value=\"{}\" />\n", r.happens(0.5)),
            2 => {
                format!("    <long name=\"last_{name}_time\" value=\"17200{:08}\" />\n", r.below(100_000_000))
            }
            _ => format!("    <string name=\"{name}\">{}</string>\n", self.say(r, 1, 6)),
        };
        out.extend(line.as_bytes());
    }

    fn json(&self, r: &mut Random, out: &mut Vec<u8>) {
        let record = format!(
            "{{\"id\":{},\"user\":{{\"name\":\"{}\",\"followers\":{}}},\"text\":\"{}\",\"created_at\":17200{:05},\"liked\":{}}},\n",
            10_000_000 + self.number * 977,
            self.say(r, 1, 2),
            r.below(90_000),
            self.say(r, 6, 20),
            r.below(100_000),
            r.happens(0.3)
        );
        out.extend(record.as_bytes());
    }

    fn proto(&self, r: &mut Random, out: &mut Vec<u8>) {
        varint(out, 1 << 3);
        varint(out, 1_000_000 + self.number * 13);
        let name = self.say(r, 1, 3);
        varint(out, 2 << 3 | 2);
        varint(out, name.len() as u64);
        out.extend(name.as_bytes());
        varint(out, 3 << 3);
        varint(out, 1_720_000_000_000 + r.below(10_000_000));
        // A fixed64 hash, which nothing compresses.
        varint(out, 4 << 3 | 1);
        out.extend(r.below(u64::MAX).to_le_bytes());
        let text = self.say(r, 3, 12);
        varint(out, 5 << 3 | 2);
        varint(out, text.len() as u64);
        out.extend(text.as_bytes());
    }
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A JPEG's markers, then entropy-coded bytes: 0xFF is followed by a zero, as the format has it.
fn picture(r: &mut Random, out: &mut Vec<u8>, len: usize) {
    if out.is_empty() {
        out.extend(b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x48\0\x48\0\0");
    }
    let start = out.len();
    out.resize(start + len.saturating_sub(start).clamp(64, 1 << 16), 0);
    r.fill(&mut out[start..]);
    let mut at = start;
    while at + 1 < out.len() {
        if out[at] == 0xff {
            out[at + 1] = 0;
            at += 1;
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_codec::lzo::Encoder;

    /// The share of bytes that LZO saves, page by page.
    fn saved(bytes: &[u8]) -> f64 {
        let mut encoder = Encoder::default();
        let mut out = vec![0; 5000];
        let sizes = bytes.chunks_exact(4096).map(|p| encoder.compress(p, &mut out).unwrap_or(4096).min(4096));
        1.0 - sizes.sum::<usize>() as f64 / bytes.len() as f64
    }

    #[test]
    fn content_compresses_as_its_kind_does() {
        let (mut w, mut r) = (Writer::new(1), Random::new(1, "content"));
        let mut of = |content| saved(&w.make(&mut r, content, 64 * 4096));
        let (text, xml, json, proto, picture) = (
            of(Content::Text),
            of(Content::Xml),
            of(Content::Json),
            of(Content::Proto),
            of(Content::Picture),
        );
        assert!((0.1..0.6).contains(&text), "text {text}");
        assert!((0.45..0.85).contains(&xml), "xml {xml}");
        assert!((0.3..0.8).contains(&json), "json {json}");
        assert!((0.1..0.6).contains(&proto), "proto {proto}");
        assert!(picture < 0.01, "picture {picture}");
    }

    #[test]
    fn shares_that_do_not_compress() {
        let (mut w, mut r) = (Writer::new(1), Random::new(1, "content"));
        let mut of = |share| saved(&w.mixed(&mut r, Content::Json, share, 64 * 4096));
        let (none, half, all) = (of(0.0), of(0.5), of(1.0));
        assert!(none > half + 0.1 && half > all + 0.1 && all < 0.01, "{none} {half} {all}");
    }

    #[test]
    fn pictures_have_no_markers_inside() {
        let (mut w, mut r) = (Writer::new(1), Random::new(1, "content"));
        let bytes = w.make(&mut r, Content::Picture, 100_000);
        assert!(bytes[20..bytes.len() - 1].windows(2).all(|p| p[0] != 0xff || p[1] == 0));
    }
}
