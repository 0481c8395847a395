//! A file whose ranges change as a whole: reserved, punched, zeroed, moved.

use crate::content::Content;
use crate::map::inode::Inode;
use std::ops::Deref;
use std::sync::Arc;

/// Ranges of a file that change as a whole.
#[derive(Clone, Copy)]
pub(super) struct FileRange<'a> {
    pub(super) content: &'a Content,
    pub(super) inode: &'a Arc<Inode>,
}

impl Deref for FileRange<'_> {
    type Target = Content;

    fn deref(&self) -> &Content {
        self.content
    }
}
