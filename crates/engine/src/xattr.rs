//! stub
use crate::error::*;
use crate::fs::Fs;
use crate::inode::*;
use crate::types::*;
impl Fs {
    pub(crate) fn acl_chmod(&self, _i: &Inode, _p: u16) -> Result<()> { Ok(()) }
    pub(crate) fn getxattr(&self, _p: Ino, _n: &[u8]) -> Result<Vec<u8>> { Err(Error::NoSpace) }
    pub(crate) fn listxattr(&self, _p: Ino) -> Result<Vec<Vec<u8>>> { Err(Error::NoSpace) }
    pub(crate) fn setxattr(&self, _p: Ino, _n: &[u8], _v: &[u8], _m: XattrMode) -> Result<()> { Err(Error::NoSpace) }
    pub(crate) fn removexattr(&self, _p: Ino, _n: &[u8]) -> Result<()> { Err(Error::NoSpace) }
}
