//! The paper's delta: XOR of page and base, compressed (MedFS, section 4.1).

use crate::compress::{Compressor, Lz4, Lzo, Zstd};
use crate::{CodecError, CodecTag, DeltaCodec, PAGE_SIZE, Page};

/// XOR, then a compressor.
pub struct Xor<C> {
    tag: CodecTag,
    compressor: C,
    xor: Page,
}

impl<C> Xor<C> {
    fn new(tag: CodecTag, compressor: C) -> Self {
        Xor { tag, compressor, xor: [0; PAGE_SIZE] }
    }
}

/// `xor-lzo`.
pub fn lzo() -> Xor<Lzo> {
    Xor::new(CodecTag::XorLzo, Lzo::default())
}

/// `xor-lz4`.
pub fn lz4() -> Xor<Lz4> {
    Xor::new(CodecTag::XorLz4, Lz4::default())
}

/// `xor-zstd`.
pub fn zstd() -> Xor<Zstd> {
    Xor::new(CodecTag::XorZstd, Zstd::default())
}

impl<C: Compressor> DeltaCodec for Xor<C> {
    fn tag(&self) -> CodecTag {
        self.tag
    }

    fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<usize> {
        self.xor.iter_mut().zip(base.iter().zip(page)).for_each(|(xor, (a, b))| *xor = a ^ b);
        let room = out.len().min(PAGE_SIZE);
        self.compressor.compress(&self.xor, &mut out[..room])
    }

    fn decode(&mut self, base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> {
        self.expand(delta)?;
        page.iter_mut().zip(base.iter().zip(&self.xor)).for_each(|(page, (a, b))| *page = a ^ b);
        Ok(())
    }

    fn patch_copy(&mut self, _: &Page, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
        self.patch(page, delta)
    }

    fn patch(&mut self, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
        self.expand(delta)?;
        xor_into(page, &self.xor);
        Ok(())
    }
}

impl<C: Compressor> Xor<C> {
    fn expand(&mut self, delta: &[u8]) -> Result<(), CodecError> {
        match self.compressor.expand(delta, &mut self.xor) {
            Ok(PAGE_SIZE) => Ok(()),
            _ => Err(CodecError::Damaged(self.tag)),
        }
    }
}

/// `page ^= other`.
fn xor_into(page: &mut Page, other: &Page) {
    page.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
}
