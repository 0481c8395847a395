//! stub
use crate::error::*;
use crate::fs::Fs;
use crate::types::*;
impl Fs {
    pub(crate) fn lookup(&self, _p: Ino, _n: &[u8]) -> Result<Attr> { Err(Error::NoSpace) }
    pub(crate) fn create(&self, _p: Ino, _n: &[u8], _x:&NewFile) -> Result<Attr> { Err(Error::NoSpace) }
    pub(crate) fn tmpfile(&self, _p: Ino, _x:&NewFile) -> Result<Attr> { Err(Error::NoSpace) }
    pub(crate) fn symlink(&self, _p: Ino, _n: &[u8], _t: &[u8], _u:u32,_g:u32) -> Result<Attr> { Err(Error::NoSpace) }
    pub(crate) fn readlink(&self, _p: Ino) -> Result<Vec<u8>> { Err(Error::NoSpace) }
    pub(crate) fn link(&self, _i: Ino, _p: Ino, _n: &[u8]) -> Result<Attr> { Err(Error::NoSpace) }
    pub(crate) fn unlink(&self, _p: Ino, _n: &[u8]) -> Result<()> { Err(Error::NoSpace) }
    pub(crate) fn rmdir(&self, _p: Ino, _n: &[u8]) -> Result<()> { Err(Error::NoSpace) }
    pub(crate) fn rename(&self, _p: Ino, _n: &[u8], _q: Ino, _m: &[u8], _f: RenameFlags) -> Result<()> { Err(Error::NoSpace) }
    pub(crate) fn readdir(&self, _p: Ino, _n: u64, _e: &mut dyn FnMut(DirEntry)->bool) -> Result<()> { Err(Error::NoSpace) }
    pub(crate) fn release(&self, _i: Ino, _c: u64) -> Result<()> { Ok(()) }
    pub(crate) fn free_orphans_at_mount(&self) -> Result<()> { Ok(()) }
}
