//! Addresses of a file in few words.

use medfs_format::{BlockAddr, COMPRESS_ADDR, NEW_ADDR, NULL_ADDR, is_block};

/// Addresses as `page:first-last` runs; pages without a block yet as `page:new` or `first-last:new`, the mark
/// of a compressed cluster as `page:compressed`.
pub(super) fn runs(addrs: impl Iterator<Item = BlockAddr>) -> String {
    let mut out: Vec<(u64, BlockAddr, u64)> = Vec::new();
    for (page, addr) in (0u64..).zip(addrs).filter(|(_, a)| *a != NULL_ADDR) {
        match out.last_mut() {
            Some((start, first, len))
                if page == *start + *len
                    && (addr == *first && addr == NEW_ADDR
                        || u64::from(addr) == u64::from(*first) + *len && is_block(addr)) =>
            {
                *len += 1;
            }
            _ => out.push((page, addr, 1)),
        }
    }
    let show = |&(page, first, len): &(u64, BlockAddr, u64)| match (first, len) {
        (COMPRESS_ADDR, _) => format!("{page}:compressed"),
        (NEW_ADDR, 1) => format!("{page}:new"),
        (NEW_ADDR, _) => format!("{page}-{}:new", page + len - 1),
        (_, 1) => format!("{page}:{first}"),
        _ => format!("{page}:{first}-{}", u64::from(first) + len - 1),
    };
    out.iter().map(show).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_neighbours_only() {
        assert_eq!(runs([5, 6, 7, 0, 8, 20].into_iter()), "0:5-7 4:8 5:20");
        assert_eq!(runs([COMPRESS_ADDR, 6, NEW_ADDR].into_iter()), "0:compressed 1:6 2:new");
        let new = NEW_ADDR;
        assert_eq!(
            runs([new, new, new, 5, new, 0, new - 2, new].into_iter()),
            format!("0-2:new 3:5 4:new 6:{} 7:new", new - 2)
        );
    }
}
