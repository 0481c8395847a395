//! Our LZO and the C LZO read each other's streams.
//!
//! The C library is GPL and no part of this project: where Debian's liblzo2-2 is not installed, the tests say so
//! (`--nocapture`) and check our own both ways only.

#[path = "support/peer.rs"]
mod peer;

use medfs_codec::compress::{Compressor, Lz4, Lzo, Zstd};
use medfs_codec::{PAGE_SIZE, lzo};
use proptest::prelude::*;

/// Our stream read by us and by them, theirs by us.
fn check(data: &[u8]) {
    let mut out = vec![0; data.len() + data.len() / 16 + 67];
    let mut back = vec![0; data.len() + 1];
    let len = lzo::Encoder::default().compress(data, &mut out).expect("the worst case fits");
    assert_eq!(lzo::expand(&out[..len], &mut back), Ok(data.len()));
    assert!(back[..data.len()] == *data, "our stream, read by us");
    let Some(mut theirs) = peer::Lzo::load() else {
        println!("skipped: no liblzo2.so.2 here");
        return;
    };
    back.fill(0);
    assert_eq!(theirs.decompress(&out[..len], &mut back), Ok(data.len()), "our stream, read by the C LZO");
    assert!(back[..data.len()] == *data, "our stream, read by the C LZO");
    let len = theirs.compress(data, &mut out);
    back.fill(0);
    assert_eq!(lzo::expand(&out[..len], &mut back), Ok(data.len()), "the C LZO's stream, read by us");
    assert!(back[..data.len()] == *data, "the C LZO's stream, read by us");
}

/// Data with repetitions near and far, short and long.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let new = proptest::collection::vec(any::<u8>(), 1..600).prop_map(|bytes| (bytes, 0, 0));
    let old = (any::<u32>(), 1..3000usize).prop_map(|(back, len)| (Vec::new(), back as usize, len));
    let parts = proptest::collection::vec(prop_oneof![new, old], 0..60);
    parts.prop_map(|parts| {
        let mut data = Vec::new();
        for (bytes, back, len) in parts {
            data.extend_from_slice(&bytes);
            if !data.is_empty() {
                let from = data.len() - 1 - back % data.len();
                (0..len).for_each(|i| data.push(data[from + i]));
            }
        }
        data
    })
}

proptest! {
    #[test]
    fn streams_are_exchanged_with_the_c_library(data in data()) {
        check(&data);
    }

    #[test]
    fn compressors_keep_to_their_output(data in data(), room in 0..20_000usize, cut in any::<prop::sample::Index>()) {
        let all: [&mut dyn Compressor; 3] = [&mut Lzo::default(), &mut Lz4::default(), &mut Zstd::default()];
        for compressor in all {
            let mut out = vec![0; room];
            let Some(len) = compressor.compress(&data, &mut out) else { continue };
            let mut back = vec![0; data.len()];
            prop_assert_eq!(compressor.expand(&out[..len], &mut back), Ok(data.len()));
            prop_assert!(back == data);
            let smaller = data.len().saturating_sub(1);
            let short = compressor.expand(&out[..len], &mut back[..smaller]);
            prop_assert!(short.is_err() || data.is_empty());
            let _ = compressor.expand(&out[..cut.index(len + 1)], &mut back);
        }
    }

    #[test]
    fn any_bytes_are_data_or_an_error(source in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut out = [0; PAGE_SIZE];
        let all: [&mut dyn Compressor; 3] = [&mut Lzo::default(), &mut Lz4::default(), &mut Zstd::default()];
        for compressor in all {
            if let Ok(len) = compressor.expand(&source, &mut out) {
                prop_assert!(len <= PAGE_SIZE);
            }
        }
    }
}

#[test]
fn clusters_are_exchanged_with_the_c_library() {
    // A cluster of 256 pages, the largest F2FS has: distances beyond all that LZO reaches, runs of all lengths.
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize
    };
    let mut data: Vec<u8> = Vec::new();
    while data.len() < 256 * PAGE_SIZE {
        let len = next() % 700 + 1;
        match next() % 4 {
            0 => data.extend((0..len).map(|_| next() as u8)),
            1 => data.extend(std::iter::repeat_n(next() as u8, len * 4)),
            _ => {
                let from = data.len().saturating_sub(next() % 60_000 + 1);
                (0..len.min(data.len() - from)).for_each(|i| data.push(data[from + i]));
            }
        }
    }
    data.truncate(256 * PAGE_SIZE);
    check(&data);
    check(&[0; 256 * PAGE_SIZE]);
    for len in 0..300 {
        check(&data[..len]);
    }
}
