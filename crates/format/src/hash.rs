//! The directory hash: TEA over 16-byte chunks of the name, as F2FS's dentries carry it.

const DELTA: u32 = 0x9E37_79B9;
const SEED: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];

fn tea_transform(buf: &mut [u32; 4], chunk: &[u32; 4]) {
    let (mut b0, mut b1) = (buf[0], buf[1]);
    let [a, b, c, d] = *chunk;
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        b0 =
            b0.wrapping_add(((b1 << 4).wrapping_add(a)) ^ b1.wrapping_add(sum) ^ ((b1 >> 5).wrapping_add(b)));
        b1 =
            b1.wrapping_add(((b0 << 4).wrapping_add(c)) ^ b0.wrapping_add(sum) ^ ((b0 >> 5).wrapping_add(d)));
    }
    buf[0] = buf[0].wrapping_add(b0);
    buf[1] = buf[1].wrapping_add(b1);
}

/// Packs up to 16 bytes into four words, padded with the remaining length.
fn chunk_words(bytes: &[u8], remaining: usize) -> [u32; 4] {
    let mut pad = remaining as u32 | ((remaining as u32) << 8);
    pad |= pad << 16;
    let mut words = [pad; 4];
    let take = bytes.len().min(16);
    let (mut value, mut word) = (pad, 0);
    for (i, &b) in bytes[..take].iter().enumerate() {
        if i % 4 == 0 {
            value = pad;
        }
        value = u32::from(b).wrapping_add(value << 8);
        if i % 4 == 3 {
            words[word] = value;
            word += 1;
            value = pad;
        }
    }
    if word < 4 {
        words[word] = value;
    }
    words
}

/// Hash of a file name; 0 for `.` and `..`.
pub fn dentry_hash(name: &[u8]) -> u32 {
    if name == b"." || name == b".." {
        return 0;
    }
    let mut buf = SEED;
    let mut rest = name;
    loop {
        tea_transform(&mut buf, &chunk_words(rest, rest.len()));
        if rest.len() <= 16 {
            break;
        }
        rest = &rest[16..];
    }
    buf[0]
}
