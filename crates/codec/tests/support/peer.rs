//! The C LZO (Debian's liblzo2), to compare with: loaded where it is installed, never linked.
#![allow(unsafe_code)] // Calls of a C library: each states why it is right.

use libloading::Library;
use std::ffi::{c_int, c_void};

type Compress = unsafe extern "C" fn(*const u8, usize, *mut u8, *mut usize, *mut c_void) -> c_int;

/// Bytes of working memory that lzo1x_1_compress needs, on 64-bit machines.
const WORK: usize = 16384 * 8;

/// The library's two functions.
pub(crate) struct Lzo {
    compress: Compress,
    decompress: Compress,
    work: Vec<u64>,
    _library: Library,
}

impl Lzo {
    /// The library, if it is installed.
    pub(crate) fn load() -> Option<Lzo> {
        // SAFETY: liblzo2 has no initialisers that do anything.
        let library = unsafe { Library::new("liblzo2.so.2") }.ok()?;
        // SAFETY: the types are those of lzo1x.h, lzo_uint being as wide as usize; the pointers live as long as the
        // library, which is kept beside them. lzo_init only checks the sizes of types.
        unsafe {
            let compress = *library.get::<Compress>(b"lzo1x_1_compress\0").ok()?;
            let decompress = *library.get::<Compress>(b"lzo1x_decompress_safe\0").ok()?;
            Some(Lzo { compress, decompress, work: vec![0; WORK / 8], _library: library })
        }
    }

    /// `lzo1x_1_compress`. `out` must hold the worst case: a sixteenth more than the source, and 67 bytes.
    pub(crate) fn compress(&mut self, source: &[u8], out: &mut [u8]) -> usize {
        assert!(out.len() >= source.len() + source.len() / 16 + 67);
        let mut len = out.len();
        // SAFETY: source and working memory are as long as is said, and `out` as long as LZO asks for.
        let code = unsafe {
            let work = self.work.as_mut_ptr().cast();
            (self.compress)(source.as_ptr(), source.len(), out.as_mut_ptr(), &mut len, work)
        };
        assert_eq!(code, 0);
        len
    }

    /// `lzo1x_decompress_safe`: bytes written, or LZO's error code.
    pub(crate) fn decompress(&self, source: &[u8], out: &mut [u8]) -> Result<usize, i32> {
        let mut len = out.len();
        // SAFETY: both are as long as is said; the function stays within them.
        let code = unsafe {
            (self.decompress)(source.as_ptr(), source.len(), out.as_mut_ptr(), &mut len, std::ptr::null_mut())
        };
        if code == 0 { Ok(len) } else { Err(code) }
    }
}
