//! The format against volumes that the real `mkfs.f2fs` and `sload.f2fs` make.

use medfs_format::checkpoint::{self, BitmapPlaces, CpFlags, RawCheckpoint};
use medfs_format::dentry::{Area, AreaLayout};
use medfs_format::hash::dentry_hash;
use medfs_format::nat::{self, RawNatBlock, RawNatEntry};
use medfs_format::node::{FileKind, Inline, Layouts, RawInode, footer, validate_footer};
use medfs_format::sit::{self, RawSitBlock, RawSitEntry, test_bit};
use medfs_format::summary::{
    ENTRIES_PER_BLOCK, JOURNAL_SIZE, RawJournal, RawSummary, RawSummaryBlock, SUM_TYPE_DATA, SUM_TYPE_NODE,
};
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{Block, FormatError, Geometry, Ino, Nid, SegNo, crc};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use zerocopy::{FromBytes, IntoBytes};

/// Every feature set that mounts read-write, with the bits it stands for, and section and zone sizes.
const VOLUMES: &[(&[&str], u32)] = &[
    (&[], 0),
    (&["-O", "extra_attr"], 0x8),
    (&["-O", "extra_attr,project_quota"], 0x98),
    (&["-O", "extra_attr,inode_checksum"], 0x28),
    (&["-O", "extra_attr,flexible_inline_xattr"], 0x48),
    (&["-O", "extra_attr,inode_crtime"], 0x108),
    (&["-O", "quota"], 0x80),
    (&["-O", "lost_found"], 0x200),
    (&["-O", "sb_checksum"], 0x800),
    (
        &[
            "-O",
            "extra_attr,project_quota,inode_checksum,flexible_inline_xattr,quota,inode_crtime,lost_found,sb_checksum",
        ],
        0xbf8,
    ),
    (&["-i"], 0),
    (&["-i", "-O", "extra_attr,inode_checksum,sb_checksum"], 0x828),
    (&["-s", "2"], 0),
    (&["-s", "4", "-z", "2"], 0),
    (&["-s", "2", "-i", "-O", "lost_found"], 0x200),
];

fn tool(name: &str, args: &[&str]) {
    let path = "/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/sbin";
    match Command::new(name).args(args).env("PATH", path).output() {
        Ok(out) => assert!(
            out.status.success() || name == "sload.f2fs",
            "{name} {args:?}: {}",
            String::from_utf8_lossy(&out.stdout)
        ),
        Err(e) => panic!("{name} could not be run ({e}): these tests need the package f2fs-tools"),
    }
}

/// A volume with the tables that are in force.
struct Volume {
    file: File,
    sb: RawSuperblock,
    g: Geometry,
    cp: RawCheckpoint,
    /// First block of the pack and its payload.
    head: Vec<u8>,
    nat_journal: RawJournal,
    sit_journal: RawJournal,
}

impl Volume {
    fn make(dir: &TempDir, options: &[&str], content: Option<&Path>) -> Volume {
        let path = dir.path().join("volume.img");
        let mib = if options.contains(&"-s") { 512 } else { 100 };
        File::create(&path).unwrap().set_len(mib << 20).unwrap();
        let name = path.to_str().unwrap();
        tool("mkfs.f2fs", &[&["-f", "-q", "-l", "Größe 1"], options, &[name]].concat());
        if let Some(content) = content {
            tool("sload.f2fs", &["-f", content.to_str().unwrap(), name]);
        }
        Volume::open(&path)
    }

    fn open(path: &Path) -> Volume {
        let file = File::open(path).unwrap();
        let sb = RawSuperblock::in_block(&read(&file, 0)).clone();
        let g = sb.validate().unwrap();
        assert_eq!(RawSuperblock::in_block(&read(&file, 1)).as_bytes(), sb.as_bytes(), "the copies agree");
        let newest = |a: &u32, b: &u32| {
            let version = |&at: &u32| RawCheckpoint::in_block(&read(&file, at)).checkpoint_ver.get();
            version(a).cmp(&version(b))
        };
        let start = [g.cp_pack(0), g.cp_pack(1)].into_iter().max_by(newest).unwrap();
        let first = read(&file, start);
        checkpoint::verify_checksum(&first, start).unwrap();
        let cp = RawCheckpoint::in_block(&first).clone();
        cp.validate(start, &g).unwrap();
        let last = start + cp.cp_pack_total_block_count.get() - 1;
        checkpoint::verify_checksum(&read(&file, last), last).unwrap();
        assert_eq!(RawCheckpoint::in_block(&read(&file, last)).as_bytes(), cp.as_bytes());
        let mut head = first.0.to_vec();
        (0..g.cp_payload).for_each(|i| head.extend_from_slice(&read(&file, start + 1 + i).0));
        let mut v =
            Volume { file, sb, g, cp, head, nat_journal: RawJournal::EMPTY, sit_journal: RawJournal::EMPTY };
        let sum = start + v.cp.cp_pack_start_sum.get();
        if v.cp.flags().contains(CpFlags::COMPACT_SUM) {
            let block = v.block(sum);
            v.nat_journal = RawJournal::read_from_bytes(&block.0[..JOURNAL_SIZE]).unwrap();
            v.sit_journal = RawJournal::read_from_bytes(&block.0[JOURNAL_SIZE..2 * JOURNAL_SIZE]).unwrap();
        } else {
            v.nat_journal = v.block(sum).view::<RawSummaryBlock>().journal;
            v.sit_journal = v.block(sum + 2).view::<RawSummaryBlock>().journal;
        }
        v
    }

    fn block(&self, addr: u32) -> Block {
        read(&self.file, addr)
    }

    fn nat(&self, nid: Nid) -> RawNatEntry {
        if let Some(e) = self.nat_journal.nat_entries().unwrap().iter().find(|e| e.nid.get() == nid) {
            return e.entry;
        }
        let index = nid / nat::ENTRIES_PER_BLOCK as u32;
        let second = test_bit(&self.head[BitmapPlaces::of(&self.cp, &self.g).nat..], index as usize);
        let block = self.block(self.g.nat_block(index, second));
        block.view::<RawNatBlock>().entries[nid as usize % nat::ENTRIES_PER_BLOCK]
    }

    fn sit(&self, segno: SegNo) -> RawSitEntry {
        if let Some(e) = self.sit_journal.sit_entries().unwrap().iter().find(|e| e.segno.get() == segno) {
            return e.entry;
        }
        let index = segno / sit::ENTRIES_PER_BLOCK as u32;
        let second = test_bit(&self.head[BitmapPlaces::of(&self.cp, &self.g).sit..], index as usize);
        let block = self.block(self.g.sit_block(index, second));
        block.view::<RawSitBlock>().entries[segno as usize % sit::ENTRIES_PER_BLOCK]
    }

    fn flexible(&self) -> bool {
        self.sb.features().contains(Feature::FLEXIBLE_INLINE_XATTR)
    }

    fn seed(&self) -> Option<u32> {
        self.sb.features().contains(Feature::INODE_CHECKSUM).then(|| crc::chain(!0, &self.sb.uuid))
    }

    fn inode(&self, ino: Ino) -> RawInode {
        let entry = self.nat(ino);
        assert_eq!(entry.ino.get(), ino);
        let block = self.block(entry.block_addr.get());
        validate_footer(&block, ino, ino).unwrap();
        let inode: &RawInode = block.view();
        inode.validate(ino, &self.g, self.sb.layouts(), self.seed()).unwrap();
        inode.clone()
    }

    /// Name, inode, kind and hash of every entry of a directory whose pages its inode addresses.
    fn entries(&self, dir: Ino) -> Vec<(Vec<u8>, Ino, Option<FileKind>, u32)> {
        let inode = self.inode(dir);
        let slots = inode.slots(self.flexible());
        let mut all = Vec::new();
        let mut add = |layout, bytes: &[u8]| {
            for e in Area::new(layout, bytes).entries(0, dir.into()) {
                let e = e.unwrap();
                all.push((e.name.to_vec(), e.ino, e.kind, e.hash));
            }
        };
        if inode.inline().contains(Inline::DENTRY) {
            let bytes = &inode.as_bytes()[slots.inline_content_range()];
            add(AreaLayout::inline(bytes.len()), bytes);
        } else {
            for addr in &inode.i_addr[slots.extra..slots.extra + slots.addrs()] {
                if self.g.in_main(addr.get()) {
                    add(AreaLayout::BLOCK, &self.block(addr.get()).0);
                }
            }
        }
        all
    }
}

fn read(file: &File, addr: u32) -> Block {
    let mut block = Block::ZERO;
    file.read_exact_at(&mut block.0, u64::from(addr) * 4096).unwrap();
    block
}

#[test]
fn empty_volumes_are_read_as_they_were_made() {
    let dir = tempfile::tempdir().unwrap();
    for (options, features) in VOLUMES {
        let v = Volume::make(&dir, options, None);
        assert_eq!(v.sb.features().bits(), *features, "{options:?}");
        assert_eq!(v.sb.label(), "Größe 1");
        let number = |option: &str| {
            options.iter().position(|o| *o == option).map_or(1, |at| options[at + 1].parse::<u32>().unwrap())
        };
        assert_eq!((v.g.segs_per_sec, v.g.secs_per_zone), (number("-s"), number("-z")));
        assert_eq!(v.cp.flags().contains(CpFlags::LARGE_NAT_BITMAP), options.contains(&"-i"), "{options:?}");
        let files = 1
            + v.sb.features().contains(Feature::LOST_FOUND) as u32
            + v.sb.qf_ino.iter().filter(|q| q.get() != 0).count() as u32;
        assert_eq!(
            (v.cp.valid_inode_count.get(), v.cp.valid_node_count.get()),
            (files, files),
            "{options:?}"
        );

        let root = v.inode(v.g.root_ino);
        assert_eq!(FileKind::from_mode(root.i_mode.get()), Some(FileKind::Directory));
        assert_eq!(root.extra().is_some(), v.sb.features().contains(Feature::EXTRA_ATTR));
        let entries = v.entries(v.g.root_ino);
        assert_eq!((&entries[0].0[..], &entries[1].0[..]), (&b"."[..], &b".."[..]));
        assert!(entries.iter().take(2).all(|e| (e.1, e.2, e.3) == (3, Some(FileKind::Directory), 0)));

        // SIT and summaries agree with the addresses of the root's inode and entries.
        let main: Vec<RawSitEntry> = (0..v.g.segment_count_main).map(|s| v.sit(s)).collect();
        main.iter().enumerate().for_each(|(s, e)| e.validate(s as u32).unwrap());
        let valid: u64 = main.iter().map(|e| u64::from(e.valid_blocks())).sum();
        assert_eq!(valid, v.cp.valid_block_count.get(), "{options:?}");
        let node_addr = v.nat(v.g.root_ino).block_addr.get();
        let data_addr = root.i_addr[root.slots(v.flexible()).extra].get();
        for (addr, logs) in [(node_addr, 3..6), (data_addr, 0..3)] {
            let entry = main[v.g.segno(addr) as usize];
            assert!(test_bit(&entry.valid_map, v.g.offset_in_seg(addr) as usize));
            assert!(logs.contains(&entry.seg_type()));
        }
        for log in 0..6 {
            let (segno, _) = v.cp.curseg(log);
            assert_eq!(usize::from(main[segno as usize].seg_type()), log, "{options:?}");
        }
    }
}

#[test]
fn summaries_name_the_owners_of_a_filled_volume() {
    let dir = tempfile::tempdir().unwrap();
    let content = dir.path().join("content");
    fs::create_dir(&content).unwrap();
    fs::write(content.join("large"), vec![7u8; 4096 * 1200]).unwrap();
    let v = Volume::make(&dir, &["-O", "extra_attr,inode_checksum"], Some(&content));
    let (_, ino, ..) = v.entries(3).into_iter().find(|e| e.0 == b"large").unwrap();
    let inode = v.inode(ino);
    let slots = inode.slots(false);
    let in_curseg = |segno| (0..6).any(|log| v.cp.curseg(log).0 == segno);
    let mut seen = 0;
    for (i, addr) in inode.i_addr[slots.extra..slots.extra + slots.addrs()].iter().enumerate() {
        let segno = v.g.segno(addr.get());
        if !in_curseg(segno) {
            let block = v.block(v.g.ssa_block(segno));
            let sum: &RawSummaryBlock = block.view();
            assert_eq!(sum.footer.entry_type, SUM_TYPE_DATA);
            let RawSummary { nid, ofs_in_node, .. } = sum.entries[v.g.offset_in_seg(addr.get()) as usize];
            assert_eq!((nid.get(), usize::from(ofs_in_node.get())), (ino, i));
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen} of {ENTRIES_PER_BLOCK} entries in a full segment");
    // The pages beyond the inode's are in its first direct node.
    let direct = inode.i_nid[0].get();
    let entry = v.nat(direct);
    assert_eq!(entry.ino.get(), ino);
    let node = v.block(entry.block_addr.get());
    validate_footer(&node, direct, ino).unwrap();
    assert_eq!(footer(&node).node_offset(), 1);
    let segno = v.g.segno(entry.block_addr.get());
    if !in_curseg(segno) {
        let block = v.block(v.g.ssa_block(segno));
        assert_eq!(block.view::<RawSummaryBlock>().footer.entry_type, SUM_TYPE_NODE);
    }
}

#[test]
fn hashes_and_checksums_are_those_that_f2fs_tools_write() {
    let dir = tempfile::tempdir().unwrap();
    let content = dir.path().join("content");
    fs::create_dir(&content).unwrap();
    for len in 1..=255usize {
        let name: String = (0..len).map(|i| char::from(b'!' + ((i * 7 + len * 13) % 90) as u8)).collect();
        fs::write(content.join(name.replace(['/', '.'], "_")), vec![b'x'; len]).unwrap();
    }
    for name in ["Größe", "日本語のファイル名", "ÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿÿ", "naïve.txt"]
    {
        fs::write(content.join(name), "x").unwrap();
    }
    for options in [
        &["-O", "extra_attr,inode_checksum"][..],
        &["-O", "extra_attr,inode_checksum,project_quota,inode_crtime"],
    ] {
        let v = Volume::make(&dir, options, Some(&content));
        let entries = v.entries(3);
        assert!(entries.len() > 255, "{}", entries.len());
        for (name, ino, _, hash) in entries {
            assert_eq!(hash, dentry_hash(&name), "{:?}", String::from_utf8_lossy(&name));
            v.inode(ino);
        }
        let mut inode = v.inode(3);
        inode.i_uid = 1.into();
        match inode.validate(3, &v.g, Layouts::Fixed, v.seed()) {
            Err(FormatError::Corrupt { field: "i_inode_checksum", id: 3, .. }) => {}
            other => panic!("{other:?}"),
        }
        inode.seal(v.seed().unwrap());
        inode.validate(3, &v.g, Layouts::Fixed, v.seed()).unwrap();
    }
}

#[test]
fn a_wrong_superblock_field_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let v = Volume::make(&dir, &["-O", "sb_checksum"], None);
    let wrong = |change: fn(&mut RawSuperblock), expected: &str| {
        let mut sb = v.sb.clone();
        change(&mut sb);
        sb.seal();
        match sb.validate() {
            Err(FormatError::Corrupt { field, .. }) => assert_eq!(field, expected),
            Err(FormatError::Incompatible(text)) => assert!(text.contains(expected), "{text}"),
            Ok(_) => panic!("{expected} was accepted"),
        }
    };
    wrong(|sb| sb.magic = 1.into(), "magic");
    wrong(|sb| sb.log_blocksize = 14.into(), "block size");
    wrong(|sb| sb.log_sectorsize = u32::MAX.into(), "log_sectorsize");
    wrong(|sb| sb.log_blocks_per_seg = 10.into(), "log_blocks_per_seg");
    wrong(|sb| sb.segment_count = u32::MAX.into(), "segment_count");
    wrong(|sb| sb.segs_per_sec = 0.into(), "segs_per_sec");
    wrong(|sb| sb.secs_per_zone = u32::MAX.into(), "secs_per_zone");
    wrong(|sb| sb.section_count = u32::MAX.into(), "section_count");
    wrong(|sb| sb.segment_count_main = 0.into(), "section_count");
    wrong(|sb| sb.block_count = 512.into(), "block_count");
    wrong(|sb| sb.segment_count_ckpt = 1.into(), "segment_count_ckpt");
    wrong(|sb| sb.cp_blkaddr = 3.into(), "cp_blkaddr");
    wrong(|sb| sb.nat_blkaddr = u32::MAX.into(), "nat_blkaddr");
    wrong(|sb| sb.main_blkaddr = 0.into(), "main_blkaddr");
    wrong(|sb| sb.cp_payload = u32::MAX.into(), "cp_payload");
    wrong(|sb| sb.extension_count = 99.into(), "extension_count");
    wrong(|sb| sb.root_ino = 9.into(), "root_ino");
    let mut sb = v.sb.clone();
    sb.uuid[0] ^= 1;
    assert!(matches!(sb.validate(), Err(FormatError::Corrupt { field: "crc", .. })));
}

#[test]
fn an_inode_without_room_for_a_checksum_is_whole_while_an_import_has_not_ended() {
    let dir = tempfile::tempdir().unwrap();
    for features in ["extra_attr,inode_checksum", "extra_attr", "lost_found"] {
        let v = Volume::make(&dir, &["-O", features], None);
        let (mut inode, seed) = (v.inode(3), crc::chain(!0, &v.sb.uuid));
        let has = features.contains("inode_checksum");
        assert_eq!(inode.is_sealed(Layouts::Flexible, seed), has, "{features}");
        assert!(inode.is_sealed(Layouts::Mixed, seed), "{features}");
        inode.i_uid = 7.into();
        assert_eq!(inode.is_sealed(Layouts::Mixed, seed), !has, "{features}");
    }
}

#[test]
fn a_wrong_inode_field_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let v = Volume::make(&dir, &["-O", "extra_attr,flexible_inline_xattr"], None);
    let wrong = |change: fn(&mut RawInode), expected: &str| {
        let mut inode = v.inode(3);
        change(&mut inode);
        match inode.validate(3, &v.g, Layouts::Flexible, None) {
            Err(FormatError::Corrupt { field, .. }) => assert_eq!(field, expected),
            other => panic!("{expected}: {other:?}"),
        }
    };
    wrong(|i| i.i_inline &= !Inline::EXTRA_ATTR.bits(), "i_inline");
    wrong(|i| i.extra_mut().unwrap().i_extra_isize = 40.into(), "i_extra_isize");
    wrong(|i| i.extra_mut().unwrap().i_extra_isize = 7.into(), "i_extra_isize");
    wrong(|i| i.extra_mut().unwrap().i_inline_xattr_size = 904.into(), "i_inline_xattr_size");
    wrong(
        |i| {
            i.i_inline |= Inline::XATTR.bits();
            i.extra_mut().unwrap().i_inline_xattr_size = 5.into();
        },
        "i_inline_xattr_size",
    );
    wrong(|i| i.i_mode = 0.into(), "i_mode");
    wrong(|i| i.i_inline |= Inline::DATA.bits(), "i_inline");
    wrong(|i| i.i_namelen = 256.into(), "i_namelen");
    wrong(|i| i.i_current_depth = 64.into(), "i_current_depth");
    wrong(|i| i.i_xattr_nid = 3.into(), "i_xattr_nid");
    wrong(|i| i.i_nid[4] = u32::MAX.into(), "i_nid");
    wrong(|i| i.i_blocks = 0.into(), "i_blocks");
    let mut largest = v.inode(3);
    let extra = largest.extra_mut().unwrap();
    (extra.i_extra_isize, extra.i_inline_xattr_size) = (36.into(), 903.into());
    largest.validate(3, &v.g, Layouts::Flexible, None).unwrap();
    assert_eq!(largest.slots(true).addrs(), 11);
}
