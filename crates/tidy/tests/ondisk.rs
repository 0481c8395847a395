//! docs/ONDISK.md: its layouts and numbers are those of the code.
//!
//! A layout is a fenced block ```` ```layout Name size ````, one line a field: offset, size, name, and
//! words. A number is a table row: `` `name` ``, value, words. Both directions are checked.

use medfs_format::{
    ars, checkpoint, compress, delta, dentry, geometry, nat, node, nvram, path, quota, removed, seal, shared,
    sit, summary, superblock, undo, xattr,
};
use medfs_ftl::format as ftl;
use medfs_tidy::read;
use std::collections::BTreeMap;
use std::mem::offset_of;

/// Offset, size and name of a field.
type Field = (usize, usize, String);

#[derive(Debug, PartialEq, Eq)]
struct Layout {
    size: usize,
    fields: Vec<Field>,
}

fn field_size<S, F>(_: impl Fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! layouts {
    ($($module:ident :: $name:ident { $($field:ident),* $(,)? })*) => {
        BTreeMap::from([$((stringify!($name).to_owned(), Layout {
            size: size_of::<$module::$name>(),
            fields: vec![$((
                offset_of!($module::$name, $field),
                field_size(|s: &$module::$name| &s.$field),
                stringify!($field).to_owned(),
            )),*],
        })),*])
    };
}

macro_rules! numbers {
    ($($number:path),* $(,)?) => {
        BTreeMap::from([$((stringify!($number).replace(' ', ""), $number as u64)),*])
    };
}

fn layouts_of_code() -> BTreeMap<String, Layout> {
    layouts! {
        superblock::RawSuperblock {
            magic, major_ver, minor_ver, log_sectorsize, log_sectors_per_block, log_blocksize, log_blocks_per_seg,
            segs_per_sec, secs_per_zone, checksum_offset, block_count, section_count, segment_count, segment_count_ckpt,
            segment_count_sit, segment_count_nat, segment_count_ssa, segment_count_main, segment0_blkaddr, cp_blkaddr,
            sit_blkaddr, nat_blkaddr, ssa_blkaddr, main_blkaddr, root_ino, node_ino, meta_ino, uuid, volume_name,
            extension_count, extension_list, cp_payload, version, init_version, feature, encryption_level,
            encrypt_pw_salt, devs, qf_ino, hot_ext_count, s_encoding, s_encoding_flags, s_stop_reason, s_errors,
            delta, nvram, reserved, crc,
        }
        superblock::RawDeltaInfo { version, compat, ro_compat, incompat }
        superblock::RawNvramInfo { generation, checkpoint, path }
        nvram::RawMeta { magic, version, uuid, generation, update, first, sequence, size, unit, previous, checkpoint, reserved, checksum }
        nvram::RawTag { ino, home, offset, length, flags, codec }
        nvram::RawPart { at, from, to, len }
        nvram::RawCommit { magic, length, sequence, generation, checkpoint, chain, seconds, nanos, checksum }
        compress::RawClusterHeader { clen, chksum, reserved }
        delta::RawZoneHeader { version, flags, used, first }
        delta::RawRecord { index, size, codec, slices, checksum }
        delta::RawSlice { ino, page, from, to, len }
        delta::RawNote { page, addr, len }
        delta::Tie { sum, placed }
        delta::RawCompactHeader { magic, ino, sequence, used, mark, checksum }
        shared::RawSharedHeader { magic, used, reserved, checksum }
        shared::RawSharedEntry { ino, base, checksum, size, codec, reserved }
        ars::RawTreeHeader { magic, version, reserved, nodes, checksum }
        ars::RawTreeNode { feature, confidence, left, right, threshold }
        removed::RawRemovedName { ino, dir, len, reserved }
        seal::RawSeal { magic, position, durable, before, digest, runs }
        seal::RawRun { addr, blocks }
        checkpoint::RawCheckpoint {
            checkpoint_ver, user_block_count, valid_block_count, rsvd_segment_count, overprov_segment_count,
            free_segment_count, cur_node_segno, cur_node_blkoff, cur_data_segno, cur_data_blkoff, ckpt_flags,
            cp_pack_total_block_count, cp_pack_start_sum, valid_node_count, valid_inode_count, next_free_nid,
            sit_ver_bitmap_bytesize, nat_ver_bitmap_bytesize, checksum_offset, elapsed_time, alloc_type,
        }
        checkpoint::RawOrphanBlock { ino, reserved, blk_addr, blk_count, entry_count, check_sum }
        nat::RawNatEntry { version, ino, block_addr }
        sit::RawSitEntry { vblocks, valid_map, mtime }
        summary::RawSummary { nid, version, ofs_in_node }
        summary::RawSummaryFooter { entry_type, check_sum }
        summary::RawNatJournalEntry { nid, entry }
        summary::RawSitJournalEntry { segno, entry }
        summary::RawExtraInfo { kbytes_written }
        summary::RawJournal { count, bytes }
        summary::RawSummaryBlock { entries, journal, footer }
        node::RawExtent { fofs, blk, len }
        node::RawExtraAttr {
            i_extra_isize, i_inline_xattr_size, i_projid, i_inode_checksum, i_crtime, i_crtime_nsec, i_compr_blocks,
            i_compress_algorithm, i_log_cluster_size, i_compress_flag,
        }
        node::RawNodeFooter { nid, ino, flag, cp_ver, next_blkaddr }
        node::RawInode {
            i_mode, i_advise, i_inline, i_uid, i_gid, i_links, i_size, i_blocks, i_atime, i_ctime, i_mtime, i_atime_nsec,
            i_ctime_nsec, i_mtime_nsec, i_generation, i_current_depth, i_xattr_nid, i_flags, i_pino, i_namelen, i_name,
            i_dir_level, i_ext, i_addr, i_nid, footer,
        }
        node::RawDirectNode { addr, footer }
        node::RawIndirectNode { nid, footer }
        dentry::RawDirEntry { hash_code, ino, name_len, file_type }
        quota::RawQuotaHeader { magic, version, block_grace, inode_grace, flags, blocks, free_block, free_record }
        quota::RawQuotaLeaf { next_free, previous_free, records, pad }
        quota::RawQuotaRecord {
            id, pad, inode_hard, inode_soft, inodes, block_hard, block_soft, space, block_time, inode_time,
        }
        undo::RawUndoHeader {
            magic, version, ended, sequence, uuid, blocks, salt, records, afters, afters_crc, reserved, crc,
        }
        undo::RawUndoRecord { magic, crc, index, addr, reserved }
        undo::RawUndoAfter { addr, crc, reserved }
        ftl::RawSpareHeader { kind, log, records, flags, tail, zero, seq, erases, crc }
        ftl::RawSpareRecord { lpn, size, ratio }
        ftl::RawMapSpare { index, content }
        ftl::RawBlockRow { erases, occupied, ratios, state, written, plain, live }
        ftl::RawMapCommit {
            magic, version, logical_pages, page_bytes, spare_bytes, pages_per_block, blocks, policy, seq, clean, runs,
        }
        ftl::RawRun { from, count }
        ftl::RawTrims { runs, zero }
        ftl::RawImage { magic, seq, pages }
        xattr::RawXattrHeader { h_magic, h_refcount, h_reserved }
        xattr::RawXattrEntry { e_name_index, e_name_len, e_value_size }
    }
}

fn numbers_of_code() -> BTreeMap<String, u64> {
    numbers![
        medfs_format::BLOCK_SIZE,
        medfs_format::BLOCKS_PER_SEG,
        medfs_format::NULL_ADDR,
        medfs_format::NEW_ADDR,
        medfs_format::COMPRESS_ADDR,
        geometry::MAX_SEGMENTS,
        superblock::MAGIC,
        superblock::DELTA_MAGIC,
        superblock::DELTA_VERSION,
        superblock::DELTA_OLD_LAYOUTS,
        superblock::DELTA_NVRAM,
        nvram::META_MAGIC,
        nvram::NVRAM_VERSION,
        nvram::JD_MAGIC,
        nvram::JC_MAGIC,
        nvram::META_STRIDE,
        nvram::RING_START,
        nvram::MIN_SIZE,
        nvram::MAX_SIZE,
        nvram::MAX_TAGS,
        nvram::MAX_RECORD,
        nvram::TYPE_DELTA,
        nvram::TYPE_REMOVED,
        nvram::TYPE_REVOKE,
        nvram::TAG_NODE,
        nvram::TAG_PARTS,
        nvram::PART_OF_PAGE,
        nvram::MAX_PARTS,
        nvram::TAG_NAMED,
        nvram::TAG_LAST,
        superblock::DELTA_SEALS,
        superblock::DELTA_TIES,
        seal::SEAL_MAGIC,
        seal::MAX_RUNS,
        seal::MAX_COVERED,
        delta::ZONE_VERSION,
        compress::COMPRESS_CHECKSUM,
        compress::Algorithm::Lzo,
        compress::Algorithm::Lz4,
        compress::Algorithm::Zstd,
        compress::Algorithm::LzoRle,
        delta::ZONE_COMPACT,
        delta::ZONE_NOTES,
        delta::ZONE_TIED,
        delta::NO_DELTA,
        delta::MAX_SLICES,
        delta::COMPACT_MAGIC,
        delta::COMPACT_ROOM,
        shared::SHARED_MAGIC,
        removed::REMOVED_MAGIC,
        shared::SHARED_ROOM,
        ars::TREE_MAGIC,
        ars::TREE_VERSION,
        ars::MAX_NODES,
        ars::LEAF,
        delta::ZONE_OFFSET,
        superblock::OFFSET_IN_BLOCK,
        superblock::CRC_OFFSET,
        checkpoint::HEADER_SIZE,
        checkpoint::CHECKSUM_OFFSET,
        checkpoint::ORPHANS_PER_BLOCK,
        nat::ENTRIES_PER_BLOCK,
        sit::ENTRIES_PER_BLOCK,
        sit::VALID_MAP_SIZE,
        summary::LOG_COUNT,
        summary::ENTRIES_PER_BLOCK,
        summary::JOURNAL_SIZE,
        summary::NAT_JOURNAL_ENTRIES,
        summary::SIT_JOURNAL_ENTRIES,
        node::ADDR_OFFSET,
        node::DEF_ADDRS_PER_INODE,
        node::ADDRS_PER_BLOCK,
        node::NIDS_PER_BLOCK,
        node::DEFAULT_INLINE_XATTR_ADDRS,
        node::EXTRA_ISIZE,
        node::NAME_LEN,
        path::XATTR_NODE_OFFSET,
        dentry::DENTRIES_PER_BLOCK,
        dentry::SLOT_LEN,
        dentry::DIR_ENTRY_SIZE,
        dentry::MAX_DEPTH,
        xattr::XATTR_MAGIC,
        xattr::HEADER_SIZE,
        xattr::NODE_BYTES,
        medfs_codec::PAGE_SIZE,
        medfs_codec::CodecTag::Raw,
        medfs_codec::CodecTag::XorSparse,
        medfs_codec::CodecTag::Moves,
        medfs_codec::CodecTag::XorLzo,
        medfs_codec::CodecTag::XorLz4,
        medfs_codec::CodecTag::XorZstd,
        medfs_codec::CodecTag::Lz4Dict,
        medfs_codec::CodecTag::ZstdPrefix,
        medfs_codec::CodecTag::Dense,
        medfs_codec::sparse::LONG,
        medfs_codec::sparse::LONGER,
        medfs_codec::moves::ADD,
        medfs_codec::moves::KEEP,
        medfs_codec::moves::REP0,
        medfs_codec::moves::COPY,
        medfs_codec::moves::LONG,
        medfs_codec::dense::KEEP,
        medfs_codec::dense::REP0,
        medfs_codec::dense::REP1,
        medfs_codec::dense::COPY,
        medfs_codec::dense::LONG,
        medfs_codec::dense::FAR_LONG,
        medfs_codec::dense::PIECE_MIN,
        medfs_codec::dense::FAR_MIN,
        medfs_flash::format::VERSION,
        medfs_flash::format::HEADER_BYTES,
        medfs_flash::format::AREA_BYTES,
        medfs_flash::format::SLOT_HEAD,
        medfs_flash::format::STATE_BYTES,
        medfs_flash::format::ALIGN,
        medfs_ftl::format::VERSION,
        medfs_ftl::format::SPARE_HEADER,
        medfs_ftl::format::SPARE_RECORD,
        medfs_ftl::format::ENTRY_BYTES,
        medfs_ftl::format::BLOCK_BYTES,
        medfs_ftl::format::RECORD_COMPRESSED,
        medfs_ftl::format::BLOCK_CLEAN,
        medfs_ftl::format::DATA,
        medfs_ftl::format::CHUNK,
        medfs_ftl::format::TABLE,
        medfs_ftl::format::COMMIT,
        medfs_ftl::format::TRIM,
        medfs_ftl::format::OPENED,
    ]
}

fn layouts_of_document(text: &str) -> BTreeMap<String, Layout> {
    let blocks = text.split("\n```layout ").skip(1).map(|rest| rest.split("\n```").next().unwrap_or(rest));
    let layout = |block: &str| {
        let (head, lines) = block.split_once('\n').expect("a layout has fields");
        let (name, size) = head.split_once(' ').expect("a layout has a name and a size");
        let field = |line: &str| {
            let mut words = line.split_whitespace();
            let mut number =
                || words.next().and_then(|w| w.parse().ok()).unwrap_or_else(|| panic!("{name}: {line}"));
            let (offset, size) = (number(), number());
            (offset, size, words.next().unwrap_or("").to_owned())
        };
        (
            name.to_owned(),
            Layout { size: size.parse().expect("size"), fields: lines.lines().map(field).collect() },
        )
    };
    blocks.map(layout).collect()
}

fn numbers_of_document(text: &str) -> BTreeMap<String, u64> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let value = |cell: &str| match cell.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => cell.replace(',', "").parse().ok(),
    };
    rows.filter(|(name, _)| name.contains("::"))
        .map(|(name, rest)| {
            let cell = rest.split(" |").next().unwrap_or(rest).trim();
            (name.to_owned(), value(cell).unwrap_or_else(|| panic!("{name}: {cell} is no number")))
        })
        .collect()
}

#[test]
fn layouts_agree_with_the_code() {
    let (code, document) = (layouts_of_code(), layouts_of_document(&read("docs/ONDISK.md")));
    for (name, layout) in &code {
        assert_eq!(
            document.get(name),
            Some(layout),
            "docs/ONDISK.md, {name}: left is the document, right the code"
        );
    }
    assert_eq!(document.len(), code.len(), "docs/ONDISK.md has a layout that the code has not");
}

#[test]
fn layouts_leave_nothing_out() {
    for (name, layout) in layouts_of_code() {
        let end = layout.fields.iter().fold(0, |end, (offset, size, field)| {
            assert_eq!(*offset, end, "{name}: a field before {field} is missing");
            end + size
        });
        assert_eq!(end, layout.size, "{name}: the last field is missing");
    }
}

#[test]
fn numbers_agree_with_the_code() {
    assert_eq!(numbers_of_document(&read("docs/ONDISK.md")), numbers_of_code());
}

#[test]
fn a_wrong_document_is_found() {
    let right = "\n```layout RawNatEntry 9\n0 1 version\n1 4 ino words\n5 4 block_addr\n```\n";
    let code = &layouts_of_code()["RawNatEntry"];
    assert_eq!(layouts_of_document(right).get("RawNatEntry"), Some(code));
    assert_ne!(layouts_of_document(&right.replace("5 4", "6 4")).get("RawNatEntry"), Some(code));
    assert_eq!(
        numbers_of_document("| `nat::ENTRIES_PER_BLOCK` | 4,550 | x |")["nat::ENTRIES_PER_BLOCK"],
        4550
    );
}
