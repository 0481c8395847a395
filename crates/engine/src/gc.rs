//! stub
use crate::error::Result;
use crate::fs::Fs;
#[derive(Default)]
pub(crate) struct Cleaner;
impl Fs {
    pub(crate) fn make_room(&self) -> Result<()> { Ok(()) }
    pub(crate) fn background_clean(&self) -> Result<bool> { Ok(false) }
}
