//! The tie of a file's compact pages: what tells that a block which is one of them is not the one that it should be.
//!
//! A device that loses a write, or writes to another place, leaves an older compact page where a later one should be: a
//! sound one of the same file. Its records count less, or not at all, so that pages would be older than they are.
//!
//! Invariant: the tie is in the zone, and so in the inode block, which is durable together with the addresses of the
//! compact pages; and these never change.

use super::{ZONE_COMPACT, ZONE_HEADER_SIZE, ZONE_NOTES, compact_header};
use crate::{Block, crc};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Flag of a zone: its last bytes are the [`Tie`] of the file's compact pages.
pub const ZONE_TIED: u8 = 4;
/// Bytes of a zone's tie.
pub const TIE_SIZE: usize = size_of::<Tie>();

/// Which compact pages a file has, and at which places (8 bytes): sums modulo 2^32, to which each page adds its
/// [number](compact_id).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Tie {
    /// Of the numbers.
    pub sum: U32,
    /// Of the numbers, each times its place counted from 1.
    pub placed: U32,
}

impl Tie {
    /// A compact page came to a place.
    pub fn add(&mut self, place: u32, id: u32) {
        self.sum = self.sum.get().wrapping_add(id).into();
        self.placed = self.placed.get().wrapping_add(id.wrapping_mul(place + 1)).into();
    }

    /// A compact page left a place.
    pub fn take(&mut self, place: u32, id: u32) {
        self.add(place, id.wrapping_neg());
    }

    /// The one place below `places` at which something else was `found`; `None` where there is none, or several may
    /// be it.
    pub fn differs_at(self, found: Tie, places: u32) -> Option<u32> {
        let id = self.sum.get().wrapping_sub(found.sum.get());
        let placed = self.placed.get().wrapping_sub(found.placed.get());
        let mut fitting = (0..places).filter(|place| id != 0 && id.wrapping_mul(place + 1) == placed);
        fitting.next().filter(|_| fitting.next().is_none())
    }
}

const _: () = assert!(TIE_SIZE == 8);

/// Which compact pages a zone with a sound header says that its file has; `None` where it does not say so.
pub fn tie(zone: &[u8]) -> Option<Tie> {
    let tied = zone[1] & ZONE_TIED != 0;
    tied.then(|| Tie::read_from_suffix(zone).ok()).flatten().map(|(_, tie)| tie)
}

/// Says in a zone which compact pages its file has; `false` (zone untouched) where it has no room to say so. Notes go
/// where it did not say so before.
pub fn set_tie(zone: &mut [u8], tie: Tie) -> bool {
    let used = usize::from(u16::from_le_bytes([zone[2], zone[3]]));
    if zone[1] & ZONE_COMPACT == 0 || ZONE_HEADER_SIZE + used + TIE_SIZE > zone.len() {
        return false;
    }
    if zone[1] & ZONE_TIED == 0 {
        zone[ZONE_HEADER_SIZE + used..].fill(0);
        zone[1] = (zone[1] & !ZONE_NOTES) | ZONE_TIED;
    }
    let at = zone.len() - TIE_SIZE;
    zone[at..].copy_from_slice(tie.as_bytes());
    true
}

/// Takes a zone's tie for no tie, as where its header is damaged.
pub fn untie(zone: &mut [u8]) {
    zone[1] &= !ZONE_TIED;
}

/// The number that a compact page has in the [`Tie`] of its file: made of sequence number and mark.
pub fn compact_id(page: &Block) -> u32 {
    let header = compact_header(page);
    crc::chain(crc::f2fs(header.sequence.as_bytes()), header.mark.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::*;

    fn record(index: u32, delta: &[u8]) -> Record<'_> {
        Record { index, codec: 2, checksum: 0x1234_5678 + index, slices: &[], delta }
    }

    #[test]
    fn a_tie_lies_behind_all_else_and_goes_with_the_compact_pages() {
        let note = RawNote { page: 600.into(), addr: 700.into(), len: 1.into() };
        let one = [record(1, b"one")];
        let mut zone = empty_zone(ZONE_HEADER_SIZE + one[0].size() + notes_size(1) + TIE_SIZE);
        let room = zone_room(&zone);
        let mut tie = Tie::default();
        tie.add(3, 77);
        assert!(!set_tie(&mut zone, tie), "no compact pages");
        set_compact(&mut zone, true, 5);
        assert!(fill_zone(&mut zone, &one) && set_notes(&mut zone, &[note]));
        assert!(set_tie(&mut zone, tie) && notes(&zone, 9).unwrap().is_empty());
        assert_eq!((super::tie(&zone), zone_room(&zone)), (Some(tie), room - TIE_SIZE));
        assert!(set_notes(&mut zone, &[note]), "there is room for one");
        assert!(!set_notes(&mut zone, &[note, note]));
        assert!(
            !fill_zone(&mut zone, &[record(1, &[7; 26])]) && fill_zone(&mut zone, &[record(1, &[7; 15])])
        );
        set_compact(&mut zone, true, 6);
        assert_eq!(super::tie(&zone), Some(tie));
        assert_eq!(zone_header(&zone, 9).unwrap().flags, ZONE_COMPACT | ZONE_TIED);
        assert_eq!(records(&zone, 9).unwrap(), [record(1, &[7; 15])]);
        set_compact(&mut zone, false, 0);
        assert_eq!((super::tie(&zone), zone_room(&zone)), (None, room));
        assert!(zone.ends_with(&[0; TIE_SIZE]) && zone_header(&zone, 9).unwrap().flags == 0);
        set_compact(&mut zone, true, 0);
        assert!(fill_zone(&mut zone, &[record(1, &[7; 20])]) && !set_tie(&mut zone, tie), "no room");
    }

    #[test]
    fn a_tie_tells_the_one_place_that_has_another_page() {
        let ids: Vec<u32> = (0..40).map(|n| compact_id(&compact_page(11, n, &[record(n, b"d")]))).collect();
        let of = |pages: &[(u32, u32)]| {
            let mut tie = Tie::default();
            pages.iter().for_each(|&(place, id)| tie.add(place, id));
            tie
        };
        let pages: Vec<(u32, u32)> = (0..30).map(|place| (place * 34, ids[place as usize])).collect();
        let tie = of(&pages);
        for at in 0..pages.len() {
            for other in [ids[(at + 1) % 30], ids[35]] {
                let mut wrong = pages.clone();
                wrong[at].1 = other;
                assert_eq!(tie.differs_at(of(&wrong), 1018), Some(pages[at].0));
                assert_eq!(tie.differs_at(of(&wrong), pages[at].0), None);
            }
            let mut missing = tie;
            missing.take(pages[at].0, pages[at].1);
            assert_eq!(tie.differs_at(missing, 1018), Some(pages[at].0));
        }
        let mut two = pages.clone();
        (two[4].1, two[9].1) = (ids[35], ids[36]);
        assert_eq!((tie.differs_at(of(&two), 1018), tie.differs_at(tie, 1018)), (None, None));
        let mut swapped = pages;
        (swapped[4].1, swapped[9].1) = (swapped[9].1, swapped[4].1);
        assert!(of(&swapped) != tie && tie.differs_at(of(&swapped), 1018).is_none());
    }

    #[test]
    fn pages_of_one_sequence_number_have_other_numbers_and_keep_them() {
        let (one, two) =
            (compact_page(11, 5, &[record(7, b"one")]), compact_page(11, 5, &[record(7, b"two")]));
        assert_ne!(compact_id(&one), compact_id(&two));
        let emptied = compact_page_with(&one, &[]);
        assert_eq!(compact_records(&emptied, 11).unwrap(), (5, vec![]));
        assert_eq!(compact_id(&emptied), compact_id(&one));
    }
}
