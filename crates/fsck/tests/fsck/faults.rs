//! Every planted fault is found under its code, mended, and then neither this crate nor fsck.f2fs finds anything.

use crate::common::{Bed, META, load};
use crate::medium::node_addr;
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::Block;
use medfs_format::node::{RawDirectNode, RawInode};
use medfs_fsck::dump::{Dump, Value};
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Options, check, repair};

/// A volume and the questions faults ask of it.
struct Volume {
    dev: MemDevice,
}

impl Volume {
    fn number(value: Option<&Value>) -> u32 {
        match value {
            Some(Value::Number(n)) => *n as u32,
            other => panic!("not a number: {other:?}"),
        }
    }
    fn ino(&self, path: &str) -> u32 {
        Self::number(Dump::open(&self.dev).unwrap().path(path).unwrap().get("ino"))
    }
    fn node_addr(&self, nid: u32) -> u32 {
        Self::number(Dump::open(&self.dev).unwrap().nat(nid).unwrap().get("block_addr"))
    }
    fn superblock(&self, field: &str) -> u32 {
        Self::number(Dump::open(&self.dev).unwrap().superblock().get(field))
    }
    fn segno(&self, addr: u32) -> u32 {
        (addr - self.superblock("main_blkaddr")) / 512
    }
    /// Segment that a log writes to.
    fn current(&self, log: usize) -> u32 {
        let checkpoint = Dump::open(&self.dev).unwrap().checkpoint().unwrap();
        let Some(Value::List(logs)) = checkpoint.get("logs") else { panic!("no logs") };
        let Value::Record(log) = &logs[log] else { panic!("no log") };
        Self::number(log.get("segno"))
    }
    fn inode(&self, ino: u32) -> RawInode {
        read_block(&self.dev, self.node_addr(ino).into()).unwrap().view::<RawInode>().clone()
    }
    /// First slot of a file's addresses in `i_addr`.
    fn first(&self, ino: u32) -> usize {
        self.inode(ino).extra().map_or(0, |e| usize::from(e.i_extra_isize.get()) / 4)
    }
    fn addr(&self, ino: u32, page: usize) -> u32 {
        self.inode(ino).i_addr[self.first(ino) + page].get()
    }
    fn set(&self, target: Target<'_>, field: &str, value: u64) {
        inject::set(&self.dev, &target, field, value).unwrap();
    }
    fn change(&self, target: Target<'_>, field: &str, new: impl FnOnce(u64) -> u64) {
        inject::change(&self.dev, &target, field, new).unwrap();
    }
    fn set_addr(&self, ino: u32, page: usize, addr: u32) {
        let field = format!("i_addr[{}]", self.first(ino) + page);
        self.set(Target::Inode(ino), &field, addr.into());
    }
    /// Sets an address in a file of which nothing else knows what it was.
    fn set_unknown_addr(&self, addr: u32) {
        let (ino, right) = self.settled();
        self.set(Target::Summary(right), "nid", 0);
        self.set_addr(ino, 600, addr);
    }
    /// A file whose first data block is in no current segment, and that page's address.
    fn settled(&self) -> (u32, u32) {
        let (ino, page) = (self.ino("indirect"), 600);
        (ino, self.addr(ino, page))
    }
    fn nth_nid(&self, ino: u32, i: usize) -> u32 {
        self.inode(ino).i_nid[i].get()
    }
}

type Fault = (&'static str, Code, fn(&Volume));

const MANY: &[u8] = b"file number 00123 with a longish name";
const OTHER: &[u8] = b"file number 00124 with a longish name";

const FAULTS: &[Fault] = &[
    ("superblock copy 1 magic", Code::SuperblockCopy, |v| v.set(Target::Superblock(0), "magic", 1)),
    ("superblock copy 2 crc", Code::SuperblockCopy, |v| v.set(Target::Superblock(1), "crc", 1)),
    ("superblock copy 2 geometry", Code::SuperblockCopy, |v| v.set(Target::Superblock(1), "main_blkaddr", 9)),
    ("superblock copies differ", Code::SuperblocksDiffer, |v| {
        v.change(Target::Superblock(1), "uuid[3]", |n| n ^ 7)
    }),
    ("other pack", Code::CheckpointPack, |v| {
        v.change(Target::OtherCheckpoint, "valid_node_count", |n| n ^ 1)
    }),
    ("valid_block_count", Code::ValidBlockCount, |v| {
        v.change(Target::Checkpoint, "valid_block_count", |n| n + 3)
    }),
    ("valid_node_count", Code::ValidNodeCount, |v| {
        v.change(Target::Checkpoint, "valid_node_count", |n| n - 1)
    }),
    ("valid_inode_count", Code::ValidInodeCount, |v| {
        v.change(Target::Checkpoint, "valid_inode_count", |n| n - 1)
    }),
    ("free_segment_count", Code::FreeSegmentCount, |v| {
        v.change(Target::Checkpoint, "free_segment_count", |n| n - 1)
    }),
    ("next_free_nid", Code::NextFreeNid, |v| v.set(Target::Checkpoint, "next_free_nid", u32::MAX.into())),
    ("a bit of the checkpoint", Code::CheckpointBit, |v| {
        let mut dump = Dump::open(&v.dev).unwrap();
        let Some(&Value::Number(pack)) = dump.checkpoint().unwrap().get("pack") else { panic!("no pack") };
        let addr = u64::from(v.superblock("cp_blkaddr")) + 512 * (pack - 1);
        let mut block = read_block(&v.dev, addr).unwrap();
        block.0[170] ^= 4;
        v.dev.write(addr, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold)).unwrap();
    }),
    ("fsck flag", Code::CheckpointFlagged, |v| v.change(Target::Checkpoint, "ckpt_flags", |n| n | 0x10)),
    ("next block of a node log", Code::CursegNext, |v| {
        v.change(Target::Checkpoint, "cur_node_blkoff[1]", |n| n - 1)
    }),
    ("next block of a data log", Code::CursegNext, |v| {
        v.change(Target::Checkpoint, "cur_data_blkoff[1]", |n| n - 1)
    }),
    ("hole in a log", Code::CursegTail, |v| {
        // A file's inode amidst others becomes free, and the next block that the warm node log is to write.
        let (ino, addr) = (v.ino("small"), v.node_addr(v.ino("small")));
        v.set(Target::Dentry(3, b"small"), "used", 0);
        v.set(Target::Nat(ino), "block_addr", 0);
        v.set(Target::Checkpoint, "cur_node_segno[1]", v.segno(addr).into());
        v.set(Target::Checkpoint, "alloc_type[4]", 0);
        v.set(Target::Checkpoint, "cur_node_blkoff[1]", ((addr - v.superblock("main_blkaddr")) % 512).into());
    }),
    ("NAT address, and the node is gone", Code::NatAddress, |v| {
        let ino = v.ino("small");
        v.set(Target::Inode(ino), "footer.nid", 0);
        v.set(Target::Nat(ino), "block_addr", 77);
    }),
    ("NAT address of a node, and it is gone", Code::NatAddress, |v| {
        let nid = v.nth_nid(v.ino("direct"), 0);
        v.set(Target::Node(nid), "footer.nid", 0);
        v.set(Target::Nat(nid), "block_addr", 77);
    }),
    ("NAT address", Code::NatLost, |v| v.set(Target::Nat(v.ino("small")), "block_addr", 77)),
    ("NAT address of a node", Code::NatLost, |v| {
        v.set(Target::Nat(v.nth_nid(v.ino("direct"), 0)), "block_addr", 77);
    }),
    ("NAT ino", Code::NatIno, |v| v.set(Target::Nat(v.ino("small")), "ino", 4)),
    ("NAT ino of a node", Code::NatIno, |v| v.set(Target::Nat(v.nth_nid(v.ino("direct"), 0)), "ino", 4)),
    ("NAT entry of nothing", Code::NatUnreachable, |v| {
        v.set(Target::Nat(40_000), "ino", 40_000);
        v.set(Target::Nat(40_000), "block_addr", v.node_addr(v.ino("small")).into());
    }),
    ("NAT address, while the node is there", Code::NatLost, |v| {
        v.set(Target::Nat(v.ino("small")), "block_addr", v.node_addr(v.ino("page")).into());
    }),
    ("cleaning's failures of a file that is not pinned", Code::InodeField, |v| {
        v.set(Target::Inode(v.ino("small")), "i_current_depth", 7 << 16);
    }),
    ("NAT entry of number 0", Code::NatReserved, |v| v.set(Target::Nat(0), "block_addr", 4711)),
    ("NAT entry of the meta inode", Code::NatReserved, |v| v.set(Target::Nat(2), "ino", 9)),
    ("SIT count", Code::SitEntry, |v| v.change(Target::Sit(v.segno(v.settled().1)), "vblocks", |n| n - 1)),
    ("SIT map missing", Code::SitMissing, |v| v.set(Target::Sit(v.segno(v.settled().1)), "valid_map[20]", 0)),
    ("SIT map leaked", Code::SitLeaked, |v| {
        let free = (0..v.superblock("segment_count_main")).rev().find(|&s| {
            let mut dump = Dump::open(&v.dev).unwrap();
            let sit = dump.sit(s).unwrap();
            sit.get("valid_blocks") == Some(&Value::Number(0))
                && sit.get("current_log") == Some(&Value::Text("-".into()))
        });
        v.set(Target::Sit(free.unwrap()), "valid_map[3]", 0xff);
        v.change(Target::Sit(free.unwrap()), "vblocks", |n| n + 8);
    }),
    ("SIT type", Code::SitType, |v| {
        v.change(Target::Sit(v.segno(v.settled().1)), "vblocks", |n| n & 0x3ff | 4 << 10)
    }),
    ("SIT type of a current segment", Code::SitType, |v| {
        let segno = v.current(4);
        v.change(Target::Sit(segno), "vblocks", |n| n & 0x3ff | 5 << 10);
    }),
    ("SSA owner", Code::SsaOwner, |v| v.set(Target::Summary(v.settled().1), "nid", 4)),
    ("SSA place", Code::SsaOwner, |v| v.change(Target::Summary(v.settled().1), "ofs_in_node", |n| n + 900)),
    ("SSA version", Code::SsaOwner, |v| v.change(Target::Summary(v.settled().1), "version", |n| n + 1)),
    ("NAT version", Code::SsaOwner, |v| v.change(Target::Nat(v.ino("page")), "version", |n| n + 1)),
    ("SSA type", Code::SsaType, |v| v.set(Target::SummaryFooter(v.segno(v.settled().1)), "entry_type", 1)),
    ("inode mode", Code::Inode, |v| v.set(Target::Inode(v.ino("small")), "i_mode", 0)),
    ("inode checksum", Code::InodeChecksum, |v| v.set(Target::Inode(v.ino("small")), "i_inode_checksum", 1)),
    ("directory checksum", Code::InodeChecksum, |v| {
        v.set(Target::Inode(v.ino("deep")), "i_inode_checksum", 1)
    }),
    ("socket of a checksum and a name that say other things", Code::InodeDoubt, |v| {
        let ino = v.ino("small");
        v.set(Target::Dentry(3, b"small"), "file_type", 7);
        v.set(Target::Inode(ino), "i_inode_checksum", 1);
    }),
    ("directory's hash level", Code::DirLevel, |v| {
        v.change(Target::Inode(v.ino("many")), "i_dir_level", |n| n ^ 1);
    }),
    ("i_blocks", Code::InodeBlocks, |v| v.change(Target::Inode(v.ino("direct")), "i_blocks", |n| n + 1)),
    ("i_blocks zero", Code::InodeBlocks, |v| v.set(Target::Inode(v.ino("direct")), "i_blocks", 0)),
    ("i_links", Code::InodeLinks, |v| v.set(Target::Inode(v.ino("direct")), "i_links", 5)),
    ("i_links zero", Code::InodeLinks, |v| v.set(Target::Inode(v.ino("direct")), "i_links", 0)),
    ("directory's i_links", Code::InodeLinks, |v| v.set(Target::Inode(v.ino("deep")), "i_links", 9)),
    ("reserved slot", Code::InlineReserved, |v| v.set_addr(v.ino("small"), 0, 99)),
    ("inline data flag", Code::InlineExist, |v| {
        v.change(Target::Inode(v.ino("small")), "i_inline", |n| n & !8)
    }),
    ("nodes beside inline data", Code::InlineNodes, |v| v.set(Target::Inode(v.ino("small")), "i_nid[2]", 6)),
    ("extent", Code::InodeExtent, |v| {
        v.change(Target::Inode(v.ino("direct")), "i_ext[1]", |n| n + 1);
        v.set(Target::Inode(v.ino("direct")), "i_ext[2]", 3);
    }),
    ("extent of inline data", Code::InodeExtent, |v| v.set(Target::Inode(v.ino("small")), "i_ext[2]", 3)),
    ("directory depth", Code::DirDepth, |v| v.set(Target::Inode(v.ino("many")), "i_current_depth", 0)),
    ("directory depth out of range", Code::InodeField, |v| {
        v.set(Target::Inode(v.ino("many")), "i_current_depth", 99)
    }),
    ("directory size", Code::DirSize, |v| v.set(Target::Inode(v.ino("many")), "i_size", 0)),
    ("directory parent", Code::DirParent, |v| v.set(Target::Inode(v.ino("deep/er")), "i_pino", 3)),
    ("name length", Code::InodeField, |v| v.set(Target::Inode(v.ino("small")), "i_namelen", 300)),
    ("inline size", Code::InodeField, |v| v.set(Target::Inode(v.ino("small")), "i_size", 4096)),
    ("inline dentries on a file", Code::InodeField, |v| {
        v.change(Target::Inode(v.ino("direct")), "i_inline", |n| n | 4)
    }),
    ("inline data on a directory", Code::InodeField, |v| {
        v.change(Target::Inode(v.ino("deep")), "i_inline", |n| n | 2)
    }),
    ("extra size", Code::InodeField, |v| v.set(Target::Inode(v.ino("deep")), "i_extra_isize", 39)),
    ("symbolic link of length 0", Code::SymlinkSize, |v| v.set(Target::Inode(v.ino("link")), "i_size", 0)),
    ("xattr node id", Code::NodeId, |v| v.set(Target::Inode(v.ino("small")), "i_xattr_nid", u32::MAX.into())),
    ("xattr node missing", Code::NodeId, |v| v.set(Target::Inode(v.ino("small")), "i_xattr_nid", 40_000)),
    ("inline xattrs", Code::Xattr, |v| {
        let ino = v.ino("small");
        v.change(Target::Inode(ino), "i_inline", |n| n | 1);
        v.set(Target::Inode(ino), "i_addr[873]", 0xF2F5_2011);
        v.set(Target::Inode(ino), "i_addr[879]", 0xffff_0101);
    }),
    ("node id of an inode", Code::NodeId, |v| {
        v.set(Target::Inode(v.ino("direct")), "i_nid[0]", u32::MAX.into())
    }),
    ("node that is none", Code::NodeRebuilt, |v| {
        let nid = v.nth_nid(v.ino("indirect"), 0);
        v.set(Target::Node(nid), "footer.nid", 0);
        v.set(Target::Node(nid), "footer.ino", 0);
    }),
    ("another file's node", Code::NodeFooter, |v| {
        v.set(Target::Inode(v.ino("direct")), "i_nid[1]", v.nth_nid(v.ino("indirect"), 0).into());
    }),
    ("node footer's nid", Code::NodeFooter, |v| {
        v.set(Target::Node(v.nth_nid(v.ino("direct"), 0)), "footer.nid", 9)
    }),
    ("node footer's ino", Code::NodeFooter, |v| {
        v.set(Target::Node(v.nth_nid(v.ino("direct"), 0)), "footer.ino", 9)
    }),
    ("node offset", Code::NodeFooter, |v| {
        v.set(Target::Node(v.nth_nid(v.ino("direct"), 0)), "footer.flag", 5 << 3)
    }),
    ("inode footer", Code::NodeFooter, |v| v.set(Target::Inode(v.ino("direct")), "footer.nid", 9)),
    ("node named twice", Code::NodeTwice, |v| {
        let ino = v.ino("direct");
        v.set(Target::Inode(ino), "i_nid[1]", v.nth_nid(ino, 0).into());
    }),
    ("child of an indirect node", Code::NodeId, |v| {
        v.set(Target::Node(v.nth_nid(v.ino("indirect"), 2)), "nid[5]", 2)
    }),
    ("address", Code::Address, |v| v.set_unknown_addr(5)),
    ("address in a direct node", Code::Address, |v| {
        let nid = v.nth_nid(v.ino("indirect"), 0);
        let node = read_block(&v.dev, v.node_addr(nid).into()).unwrap();
        v.set(Target::Summary(node.view::<RawDirectNode>().addr[7].get()), "nid", 0);
        v.set(Target::Node(nid), "addr[7]", 0xffff_0000);
    }),
    ("block of another file", Code::BlockTwice, |v| v.set_unknown_addr(v.addr(v.ino("direct"), 9))),
    ("node as data", Code::BlockKind, |v| v.set_unknown_addr(v.node_addr(v.ino("deep")) | 511)),
    ("quota file", Code::QuotaFile, |v| {
        v.set(Target::Superblock(0), "qf_ino[1]", 40_000);
        v.set(Target::Superblock(1), "qf_ino[1]", 40_000);
    }),
    ("usage in a quota file", Code::QuotaContent, |v| {
        // What id 0 uses, in the first leaf of the file of users, which is the first inode behind the root.
        let addr = v.addr(4, 1).into();
        let mut block = read_block(&v.dev, addr).unwrap();
        block.0[1024 + 16 + 48] ^= 16;
        v.dev.write(addr, &[&block], crate::common::META).unwrap();
    }),
    ("a directory's block of zeros", Code::DentryBlank, |v| {
        let addr = v.addr(v.ino("many"), 3).into();
        v.dev.write(addr, &[&medfs_format::Block::ZERO], crate::common::META).unwrap();
    }),
    ("a directory's first block of zeros", Code::DentryBlank, |v| {
        let addr = v.addr(v.ino("many"), 0).into();
        v.dev.write(addr, &[&medfs_format::Block::ZERO], crate::common::META).unwrap();
    }),
    ("dentry hash", Code::DentryHash, |v| v.set(Target::Dentry(v.ino("many"), MANY), "hash_code", 1)),
    ("dentry type unknown", Code::DentryType, |v| {
        v.set(Target::Dentry(v.ino("many"), MANY), "file_type", 77)
    }),
    ("dentry type wrong", Code::DentryType, |v| v.set(Target::Dentry(v.ino("many"), MANY), "file_type", 2)),
    ("dentry without inode", Code::DentryInode, |v| {
        v.set(Target::Dentry(v.ino("many"), MANY), "ino", 40_000)
    }),
    ("dentry beyond the inodes", Code::DentryInode, |v| {
        v.set(Target::Dentry(v.ino("many"), MANY), "ino", u32::MAX.into());
    }),
    ("dentry of a node", Code::DentryInode, |v| {
        v.set(Target::Dentry(v.ino("many"), MANY), "ino", v.nth_nid(v.ino("direct"), 0).into());
    }),
    ("dentry length zero", Code::DentryLength, |v| v.set(Target::Dentry(v.ino("many"), MANY), "name_len", 0)),
    ("dentry length", Code::DentryLength, |v| v.set(Target::Dentry(v.ino("many"), MANY), "name_len", 300)),
    ("dentry gone", Code::NatUnreachable, |v| v.set(Target::Dentry(3, b"direct"), "used", 0)),
    ("directory's dentry gone", Code::NatUnreachable, |v| v.set(Target::Dentry(3, b"deep"), "used", 0)),
    ("big directory's dentry gone", Code::NatUnreachable, |v| v.set(Target::Dentry(3, b"many"), "used", 0)),
    ("dentry of another inode", Code::DentryForeign, |v| {
        let dir = v.ino("many");
        let other = v.ino(&format!("many/{}", String::from_utf8_lossy(OTHER)));
        v.set(Target::Dentry(dir, MANY), "ino", other.into());
    }),
    ("directory with two names", Code::DirectoryTwice, |v| {
        let (still, deep) = (v.ino("deep/er/still"), v.ino("deep"));
        v.set(Target::Dentry(still, b"x"), "file_type", 2);
        v.set(Target::Dentry(still, b"x"), "ino", deep.into());
    }),
    ("name in the wrong bucket", Code::DentryPlace, |v| {
        for i in 0..700u32 {
            let name = format!("file number {i:05} with a longish name");
            let new = name.replace("file", "Life");
            inject::rename(&v.dev, v.ino("many"), name.as_bytes(), new.as_bytes()).unwrap();
        }
    }),
    ("two entries of one name", Code::DentryTwice, |v| inject::rename(&v.dev, 3, b"link", b"page").unwrap()),
    ("root directory's numbers", Code::NoRoot, |v| {
        v.set(Target::Inode(3), "footer.nid", 9);
        v.set(Target::Inode(3), "footer.ino", 9);
    }),
    ("directory's block", Code::DirLost, |v| {
        let deep = v.ino("deep");
        let at = node_addr(&v.dev, deep);
        v.dev.write(at, &[&Block::ZERO], META).expect("memory");
    }),
    ("directory's numbers", Code::NodeFooter, |v| {
        let deep = v.ino("deep");
        v.set(Target::Inode(deep), "footer.nid", 9);
        v.set(Target::Inode(deep), "footer.ino", 9);
    }),
    ("root directory's mode", Code::Inode, |v| v.set(Target::Inode(3), "i_mode", 0o100_755)),
    ("slash in a name", Code::DentryName, |v| {
        v.set(Target::Inode(v.ino("page")), "i_pino", v.ino("deep").into()); // or else it knows its name
        v.set(Target::Dentry(3, b"page"), "name[1]", b'/'.into());
    }),
    ("dot", Code::Dots, |v| v.set(Target::Dentry(v.ino("deep"), b"."), "ino", 3)),
    ("dot-dot", Code::Dots, |v| v.set(Target::Dentry(v.ino("deep/er"), b".."), "ino", 3)),
    ("dot missing", Code::DotsMissing, |v| v.set(Target::Dentry(v.ino("deep"), b"."), "used", 0)),
    ("dot-dot missing in blocks", Code::DotsMissing, |v| {
        v.set(Target::Dentry(v.ino("many"), b".."), "used", 0)
    }),
    ("NAT journal", Code::Journal, |v| v.set(Target::Journal(0), "count", 39)),
    ("both superblock copies", Code::SuperblockLost, |v| {
        v.set(Target::Superblock(0), "magic", 1);
        v.set(Target::Superblock(1), "magic", 1);
    }),
    ("both checkpoint packs", Code::CheckpointLost, |v| {
        let packs = u64::from(v.superblock("cp_blkaddr"));
        for addr in [packs, packs + 512] {
            v.dev.write(addr, &[&medfs_format::Block::ZERO], crate::common::META).unwrap();
        }
    }),
    ("SIT journal", Code::Journal, |v| v.set(Target::Journal(2), "count", 7)),
    ("orphan block", Code::OrphanBlock, |v| {
        inject::set_orphans(&v.dev, &[v.ino("small")]).unwrap();
        v.set(Target::OrphanBlock, "entry_count", 1021);
    }),
    ("orphan that has a name", Code::OrphanInode, |v| {
        inject::set_orphans(&v.dev, &[v.ino("small")]).unwrap()
    }),
    ("orphan that is nothing", Code::OrphanInode, |v| inject::set_orphans(&v.dev, &[40_000]).unwrap()),
];

/// Plants each fault, and mends it; fsck.f2fs judges every so many of them.
fn every_fault(options: &[&str], judged: usize) {
    let bed = Bed::new();
    let whole = load(&bed.filled("faults.img", options));
    let only = std::env::var("MEDFS_FAULT").ok();
    let mut wrong = Vec::new();
    for (number, (name, code, plant)) in FAULTS.iter().enumerate() {
        if only.as_deref().is_some_and(|o| o != *name) {
            continue;
        }
        let checksums = options.iter().any(|o| o.contains("inode_checksum"));
        let needs_extra = name.contains("checksum") || name.contains("extra");
        let needs_quota = name.contains("usage") && !options.iter().any(|o| o.contains("quota"));
        if needs_quota || !checksums && (needs_extra || *name == "superblock copy 2 crc") {
            continue;
        }
        let v = Volume { dev: whole.snapshot() };
        plant(&v);
        let found = check(&v.dev, &Options::default(), &mut |_| {}).unwrap();
        if !found.has(*code) {
            wrong.push(format!("{name}: not found as {code}: {:?}", found.findings));
            continue;
        }
        let mended = repair(&v.dev, &Options::default(), &mut |_| {}).unwrap();
        if !mended.after.findings.is_empty() {
            wrong.push(format!("{name}: left after the repair: {:?}", mended.after.findings));
            continue;
        }
        if number.is_multiple_of(judged)
            && let Err(e) = bed.judge(&v.dev)
        {
            wrong.push(format!("{name}: {e}"));
        }
    }
    wrong.iter_mut().for_each(|w| w.truncate(1500));
    assert!(wrong.is_empty(), "{} faults:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn faults_on_a_volume_with_features() {
    every_fault(&["-O", "extra_attr,inode_checksum,lost_found,sb_checksum,quota"], 2);
}

#[test]
fn faults_on_a_plain_volume() {
    every_fault(&[], 3);
}

/// Codes of volumes that cannot be mended are tested in `special.rs`, those of deltas in `deltas.rs`, of ACLs
/// in `rescue.rs`, of addresses in `address.rs` and `torn.rs`, of lost checkpoints in `junk.rs`.
#[test]
fn every_code_has_a_fault() {
    let fatal = |code: &&Code| code.severity() == medfs_fsck::Severity::Fatal;
    let elsewhere = |code: &&Code| {
        let made_elsewhere = crate::common::is_of_deltas(**code) || crate::common::is_of_clusters(**code);
        made_elsewhere
            || crate::common::is_of_medium(**code)
            || [Code::Acl, Code::AddressBit, Code::AddressMissing].contains(code)
            || [Code::CheckpointHeader, Code::CheckpointOlder, Code::CheckpointTorn].contains(code)
    };
    for code in Code::ALL.iter().filter(|c| !fatal(c) && !elsewhere(c)) {
        assert!(FAULTS.iter().any(|(_, c, _)| c == code), "no fault is planted for {code} ({code:?})");
    }
}
