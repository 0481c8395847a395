//! Rebuilding a page from what is stored of it: codec, delta and checksum. Who reads deltas and who checks
//! them do it here.
//!
//! Invariant: a page is good only where its checksum is the stored one, as a delta decodes with a wrong base too.

use crate::{CodecError, CodecTag, Codecs, Page, page_checksum};
use thiserror::Error;

/// Why a stored delta does not make the page that it was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RebuildError {
    /// Its codec is not known.
    #[error(transparent)]
    Codec(CodecError),
    /// Its bytes are no delta of its codec.
    #[error(transparent)]
    Delta(CodecError),
    /// It makes another page: bytes or base are wrong.
    #[error("checksum {stored:#010x}, but computed {computed:#010x}")]
    Checksum {
        /// [`page_checksum`] that is stored with the delta.
        stored: u32,
        /// That of the page it makes.
        computed: u32,
    },
}

impl Codecs {
    /// Turns the base that `page` holds into the page that a stored delta was made of: `tag` as it is stored,
    /// `checksum` the [`page_checksum`] that belongs to it.
    ///
    /// # Errors
    /// The delta does not make that page with this base; `page` holds nothing of worth then.
    pub fn rebuild(
        &mut self,
        tag: u8,
        delta: &[u8],
        checksum: u32,
        page: &mut Page,
    ) -> Result<(), RebuildError> {
        let tag = CodecTag::try_from(tag).map_err(RebuildError::Codec)?;
        self.patch(tag, page, delta).map_err(RebuildError::Delta)?;
        compare(page, checksum)
    }

    /// The same where `page` is a copy of `base`, made of what is shared with others say: what changed is
    /// written to it and nothing is copied once more.
    ///
    /// # Errors
    /// As for [`Codecs::rebuild`].
    pub fn rebuild_copy(
        &mut self,
        tag: u8,
        base: &Page,
        delta: &[u8],
        checksum: u32,
        page: &mut Page,
    ) -> Result<(), RebuildError> {
        let tag = CodecTag::try_from(tag).map_err(RebuildError::Codec)?;
        self.patch_copy(tag, base, page, delta).map_err(RebuildError::Delta)?;
        compare(page, checksum)
    }
}

/// Whether a page is the one whose checksum is stored.
fn compare(page: &Page, stored: u32) -> Result<(), RebuildError> {
    let computed = page_checksum(page);
    if computed == stored { Ok(()) } else { Err(RebuildError::Checksum { stored, computed }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_SIZE;

    #[test]
    fn each_fault_is_told_from_the_others() {
        let base = [7; PAGE_SIZE];
        let mut page = base;
        page[100..110].fill(9);
        let (mut codecs, mut room) = (Codecs::default(), [0; 256]);
        let encoded = codecs.encode(&base, &page, &mut room).expect("ten bytes differ");
        let (tag, delta, checksum) = (encoded.tag as u8, &room[..encoded.len], page_checksum(&page));
        let mut rebuilt = base;
        assert_eq!(codecs.rebuild(tag, delta, checksum, &mut rebuilt), Ok(()));
        assert_eq!(rebuilt, page);
        let mut rebuilt = base;
        assert_eq!(codecs.rebuild_copy(tag, &base, delta, checksum, &mut rebuilt), Ok(()));
        assert_eq!(rebuilt, page);
        let unknown = codecs.rebuild(0, delta, checksum, &mut base.clone());
        assert_eq!(unknown, Err(RebuildError::Codec(CodecError::UnknownTag(0))));
        let cut = codecs.rebuild(tag, &delta[..delta.len() - 1], checksum, &mut base.clone());
        assert!(matches!(cut, Err(RebuildError::Delta(_))), "{cut:?}");
        let mut other = base;
        other[0] = 1;
        let wrong = codecs.rebuild(tag, delta, checksum, &mut other);
        assert_eq!(wrong, Err(RebuildError::Checksum { stored: checksum, computed: page_checksum(&other) }));
    }
}
