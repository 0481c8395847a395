//! The fields of each structure by their names, with their places in it.

use medfs_format::checkpoint::{RawCheckpoint, RawOrphanBlock};
use medfs_format::compress::CLUSTER_HEADER_SIZE;
use medfs_format::delta::{RECORD_HEADER_SIZE, RawCompactHeader, RawRecord, RawSlice, RawZoneHeader};
use medfs_format::dentry::RawDirEntry;
use medfs_format::nat::RawNatEntry;
use medfs_format::node::{self, RawDirectNode, RawExtraAttr, RawIndirectNode, RawInode, RawNodeFooter};
use medfs_format::shared::{ENTRY_SIZE, RawSharedEntry, RawSharedHeader};
use medfs_format::sit::RawSitEntry;
use medfs_format::summary::{RawJournal, RawSummary, RawSummaryFooter};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{BLOCK_SIZE, xattr};
use std::mem::offset_of;

/// A named field: offset and size in bytes.
pub(super) type Field = (&'static str, usize, usize);

const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! fields {
    ($type:ty: $($field:ident)*) => {
        &[$((stringify!($field), offset_of!($type, $field), size_of_field::<$type, _>(|t| &t.$field)),)*]
    };
}

pub(super) const SUPERBLOCK: &[Field] = fields!(RawSuperblock:
    magic log_blocksize log_blocks_per_seg segs_per_sec secs_per_zone checksum_offset block_count section_count
    segment_count segment_count_main cp_blkaddr main_blkaddr root_ino uuid extension_count cp_payload feature qf_ino crc);
pub(super) const CHECKPOINT: &[Field] = fields!(RawCheckpoint:
    checkpoint_ver user_block_count valid_block_count rsvd_segment_count overprov_segment_count free_segment_count
    cur_node_segno cur_node_blkoff cur_data_segno cur_data_blkoff ckpt_flags cp_pack_total_block_count
    cp_pack_start_sum valid_node_count valid_inode_count next_free_nid sit_ver_bitmap_bytesize
    nat_ver_bitmap_bytesize checksum_offset elapsed_time alloc_type);
pub(super) const NAT: &[Field] = fields!(RawNatEntry: version ino block_addr);
pub(super) const SIT: &[Field] = fields!(RawSitEntry: vblocks valid_map mtime);
pub(super) const SUMMARY: &[Field] = fields!(RawSummary: nid version ofs_in_node);
pub(super) const SUMMARY_FOOTER: &[Field] = fields!(RawSummaryFooter: entry_type check_sum);
pub(super) const JOURNAL: &[Field] = fields!(RawJournal: count);
pub(super) const ORPHANS: &[Field] = fields!(RawOrphanBlock: ino entry_count);
pub(super) const INODE: &[Field] = fields!(RawInode:
    i_mode i_advise i_inline i_uid i_gid i_links i_size i_blocks i_atime i_ctime i_mtime i_atime_nsec i_ctime_nsec
    i_mtime_nsec i_generation i_current_depth i_xattr_nid i_flags i_pino i_namelen i_name i_dir_level i_ext i_addr i_nid);
pub(super) const EXTRA: &[Field] = fields!(RawExtraAttr: i_extra_isize i_inline_xattr_size i_projid i_inode_checksum i_crtime
        i_compr_blocks i_compress_algorithm i_log_cluster_size i_compress_flag);
pub(super) const DIRECT: &[Field] = fields!(RawDirectNode: addr);
pub(super) const INDIRECT: &[Field] = fields!(RawIndirectNode: nid);
pub(super) const ZONE: &[Field] = fields!(RawZoneHeader: version flags used first);
pub(super) const COMPACT: &[Field] = fields!(RawCompactHeader: magic ino sequence used mark checksum);
pub(super) const SLICE: &[Field] = fields!(RawSlice: ino page from to len);
pub(super) const DELTA: &[Field] = &[
    ("index", offset_of!(RawRecord, index), 4),
    ("size", offset_of!(RawRecord, size), 2),
    ("codec", offset_of!(RawRecord, codec), 1),
    ("slices", offset_of!(RawRecord, slices), 1),
    ("checksum", offset_of!(RawRecord, checksum), 4),
    ("delta", RECORD_HEADER_SIZE, 256),
];
pub(super) const SHARED_NODE: &[Field] = fields!(RawSharedHeader: magic used reserved checksum);
pub(super) const SHARED_ENTRY: &[Field] = &[
    ("ino", offset_of!(RawSharedEntry, ino), 4),
    ("base", offset_of!(RawSharedEntry, base), 4),
    ("checksum", offset_of!(RawSharedEntry, checksum), 4),
    ("size", offset_of!(RawSharedEntry, size), 2),
    ("codec", offset_of!(RawSharedEntry, codec), 1),
    ("delta", ENTRY_SIZE, 256),
];
pub(super) const CLUSTER: &[Field] =
    &[("clen", 0, 4), ("chksum", 4, 4), ("cdata", CLUSTER_HEADER_SIZE, BLOCK_SIZE - CLUSTER_HEADER_SIZE)];
pub(super) const FIRST_XATTR: &[Field] = &[
    ("h_magic", 0, 4),
    ("e_name_index", xattr::HEADER_SIZE, 1),
    ("e_name_len", xattr::HEADER_SIZE + 1, 1),
    ("e_value_size", xattr::HEADER_SIZE + 2, 2),
];
pub(super) const FOOTER: &[Field] = fields!(RawNodeFooter: nid ino flag cp_ver next_blkaddr);
pub(super) const DENTRY: &[Field] = fields!(RawDirEntry: hash_code ino name_len file_type);

pub(super) const NAME: &[Field] = &[("name", 0, node::NAME_LEN)];
pub(super) const FOOTER_DOTTED: &[Field] = &[
    ("footer.nid", FOOTER[0].1, FOOTER[0].2),
    ("footer.ino", FOOTER[1].1, FOOTER[1].2),
    ("footer.flag", FOOTER[2].1, FOOTER[2].2),
    ("footer.cp_ver", FOOTER[3].1, FOOTER[3].2),
    ("footer.next_blkaddr", FOOTER[4].1, FOOTER[4].2),
];

/// Bytes of an element of a field.
pub(super) fn width(name: &str, size: usize) -> usize {
    match name {
        "cur_node_blkoff" | "cur_data_blkoff" => 2,
        "alloc_type" | "i_name" | "delta" | "cdata" | "valid_map" | "uuid" | "name" => 1,
        _ if size > 8 => 4,
        _ => size,
    }
}

/// Name and index of `name[index]`.
pub(super) fn split(field: &str) -> (&str, usize) {
    match field.split_once('[') {
        Some((name, rest)) => (name, rest.trim_end_matches(']').parse::<usize>().expect("an index")),
        None => (field, 0),
    }
}

/// Splits `name[index]` and finds offset and width.
pub(super) fn resolve(fields: &[Field], field: &str) -> (usize, usize) {
    let (name, index) = split(field);
    let &(_, offset, size) =
        fields.iter().find(|(n, ..)| *n == name).unwrap_or_else(|| panic!("unknown field {name}"));
    let width = width(name, size);
    assert!((index + 1) * width <= size, "{field} is beyond the array");
    (offset + index * width, width)
}
