//! What files of applications hold: text, XML, JSON, records as protobuf has them, pictures.
//!
//! All of it is made from a seed and looks as the real thing does to a compressor: words repeat as words do,
//! names of fields repeat exactly, pictures do not compress. How much of a page compressors save is drawn
//! page by page ([`crate::distribution`]).

use crate::distribution::Shape;
use crate::random::Random;
use medfs_codec::PAGE_SIZE;
use medfs_codec::lzo::Encoder;

const WORDS: usize = 1500;
/// Pages of a kind that are looked at to know how it compresses by itself.
const LOOKED_AT: usize = 8;
/// Bytes of a page that are made at a time: what compresses and what does not lie side by side in them.
const PIECE: usize = 512;
/// What is repeated is cut into runs of this length, which a compressor finds.
const RUN: usize = 320;

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
    /// What LZO saves of pages of the kinds that were made, as they are.
    plain: Vec<(Content, f64)>,
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
        Writer { words: (0..WORDS).map(|_| word(&mut r)).collect(), number: 0, plain: Vec::new() }
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

    /// `len` bytes of a kind, of pages of which compressors save as much as pages of this shape.
    pub fn pages(&mut self, r: &mut Random, content: Content, shape: Shape, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len);
        while out.len() < len {
            let saved = shape.draw(r);
            out.extend(self.saving(r, content, saved, PAGE_SIZE.min(len - out.len())));
        }
        out
    }

    /// `len` bytes of a kind, at most a page, of which compressors save about `saved` (0 to 1): where the
    /// kind saves more by itself a part is noise, as of hashes and preview pictures; where it saves less a
    /// part repeats what came before, as rows of states do.
    pub fn saving(&mut self, r: &mut Random, content: Content, saved: f64, len: usize) -> Vec<u8> {
        let plain = self.saved_of(content);
        let noise = (1.0 - saved / plain).clamp(0.0, 1.0);
        let repeated = ((saved - plain) / (1.0 - plain)).clamp(0.0, 1.0);
        let mut out: Vec<u8> = Vec::with_capacity(len + PIECE);
        let fresh = self.make(r, content, ((1.0 - noise - repeated) * len as f64).ceil() as usize);
        let mut next = fresh.chunks(((1.0 - noise - repeated) * PIECE as f64).ceil().max(1.0) as usize);
        while out.len() < len {
            let start = out.len();
            out.extend(next.next().unwrap_or_default());
            let at = out.len();
            out.resize(at + (noise * PIECE as f64) as usize, 0);
            r.fill(&mut out[at..]);
            while out.len() < start + PIECE {
                repeat(r, &mut out);
            }
            out.truncate(start + PIECE);
        }
        out.truncate(len);
        out
    }

    /// What LZO saves of pages of a kind that are left as they are made.
    fn saved_of(&mut self, content: Content) -> f64 {
        if let Some((_, saved)) = self.plain.iter().find(|(c, _)| *c == content) {
            return *saved;
        }
        let pages = self.make(&mut Random::new(1, "plain"), content, LOOKED_AT * PAGE_SIZE);
        let (mut encoder, mut out) = (Encoder::default(), [0; PAGE_SIZE]);
        let size = |page: &[u8]| encoder.compress(page, &mut out).unwrap_or(PAGE_SIZE) as f64;
        let saved = 1.0 - pages.chunks(PAGE_SIZE).map(size).sum::<f64>() / pages.len() as f64;
        // Of what does not compress no share is known: noise is as good.
        let saved = saved.max(0.01);
        self.plain.push((content, saved));
        saved
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

/// Adds a run of what is there already.
fn repeat(r: &mut Random, out: &mut Vec<u8>) {
    let from = r.below(out.len().saturating_sub(RUN) as u64) as usize;
    let to = (from + RUN).min(out.len());
    if from == to {
        out.push(b' ');
    } else {
        out.extend_from_within(from..to);
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

    /// What is asked for is what LZO saves, about: the less there is that repeats, the less of it is found.
    #[test]
    fn pages_save_what_is_asked_for() {
        let (mut w, mut r) = (Writer::new(1), Random::new(1, "content"));
        for content in [Content::Json, Content::Proto, Content::Xml, Content::Text] {
            for wanted in [0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95] {
                let pages: Vec<u8> = (0..32).flat_map(|_| w.saving(&mut r, content, wanted, 4096)).collect();
                let got = saved(&pages);
                assert!((got - wanted).abs() < 0.1, "{content:?}: {wanted} wanted, {got} saved");
            }
        }
    }

    #[test]
    fn pages_are_spread_as_their_shape() {
        let (mut w, mut r) = (Writer::new(1), Random::new(1, "content"));
        for shape in Shape::ALL {
            let pages = w.pages(&mut r, Content::Json, shape, 600 * 4096);
            assert!((saved(&pages) - shape.mean()).abs() < 0.04, "{shape:?}: {}", saved(&pages));
            let half = pages.chunks_exact(4096).filter(|page| saved(page) > 0.5).count() as f64 / 600.0;
            let wanted = if shape == Shape::Structured { 0.5..0.9 } else { 0.0..0.1 };
            assert!(wanted.contains(&half), "{shape:?}: {half} of the pages fit half a block");
        }
    }

    #[test]
    fn pictures_have_no_markers_inside() {
        let (mut w, mut r) = (Writer::new(1), Random::new(1, "content"));
        let bytes = w.make(&mut r, Content::Picture, 100_000);
        assert!(bytes[20..bytes.len() - 1].windows(2).all(|p| p[0] != 0xff || p[1] == 0));
    }
}
