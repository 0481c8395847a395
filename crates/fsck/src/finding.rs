//! What a check can find: numbered, typed, one sentence each.
//!
//! Invariant: a code never changes its meaning; new faults get new numbers. The hundreds are the area:
//! 01 superblock, 02 checkpoint, 03 SIT, 04 NAT, 05 SSA, 06 inode, 07 nodes and addresses, 08 directories, 09
//! deltas, 10 compressed clusters, 11 the medium.

use medfs_format::Ino;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The volume is consistent. A repair tidies it; what [stays](Code::stays) is a note, as of content that cannot be
    /// read.
    Warning,
    /// The volume is inconsistent; a repair mends it.
    Error,
    /// The check ends here. A repair is possible only where it is given an [NVRAM](Code::NvramPending) that it lacked.
    Fatal,
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal, $severity:ident;)*) => {
        /// The stable code of a finding.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[doc = $doc])* $name = $number,)* }

        impl Code {
            /// Every code, in order.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];
            /// Whether a repair leaves it as it is, where there is nothing else to mend.
            pub fn stays(self) -> bool {
                matches!(self, Code::UnreadableData | Code::ClusterDamaged | Code::CheckpointTorn)
            }
            /// What it means, for whoever reads it in a report.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$name => concat!($($doc),*).trim_ascii(),)* }
            }
            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $(Code::$name => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    /// A copy of the superblock is damaged.
    SuperblockCopy = 101, Error;
    /// Both copies of the superblock are sound but say different things.
    SuperblocksDiffer = 102, Error;
    /// No copy of the superblock can be used.
    NoSuperblock = 103, Fatal;
    /// The device ends before the volume does.
    Truncated = 104, Fatal;
    /// One copy of the superblock is of a volume with deltas, the other of plain F2FS: the switch was interrupted.
    SuperblockKinds = 105, Error;
    /// Neither copy of the superblock can be used: one is rebuilt from the layout of the volume.
    SuperblockLost = 106, Error;
    /// fsyncs may lie in an NVRAM: without them the volume is not to be judged, or changed.
    NvramPending = 107, Fatal;
    /// One of the two checkpoint packs is damaged.
    CheckpointPack = 201, Error;
    /// No checkpoint pack can be used, and none can be made.
    NoCheckpoint = 202, Fatal;
    /// `valid_block_count` is not the number of blocks in use.
    ValidBlockCount = 203, Error;
    /// `valid_node_count` is not the number of nodes.
    ValidNodeCount = 204, Error;
    /// `valid_inode_count` is not the number of inodes.
    ValidInodeCount = 205, Error;
    /// `free_segment_count` is not the number of free segments.
    FreeSegmentCount = 206, Error;
    /// The next block of a log is in use.
    CursegNext = 207, Error;
    /// A log that appends has blocks in use behind its next block.
    CursegTail = 208, Error;
    /// The checkpoint says that an error was seen or that a check is wanted.
    CheckpointFlagged = 209, Warning;
    /// A journal in the checkpoint pack is damaged.
    Journal = 210, Error;
    /// An orphan block is damaged.
    OrphanBlock = 211, Error;
    /// An orphan is no inode, or one that has a name.
    OrphanInode = 212, Error;
    /// `next_free_nid` is no node id.
    NextFreeNid = 213, Error;
    /// One bit of a checkpoint block is flipped.
    CheckpointBit = 214, Error;
    /// Neither checkpoint pack is whole: one is made of what is left.
    CheckpointLost = 215, Error;
    /// One of the two headers of the pack in force is lost.
    CheckpointHeader = 216, Error;
    /// The newest checkpoint is lost: a repair takes the volume as its newest nodes say.
    CheckpointOlder = 217, Error;
    /// One of the two checkpoint packs is as power loss leaves it: the next checkpoint writes it.
    CheckpointTorn = 218, Warning;
    /// A SIT entry contradicts itself.
    SitEntry = 301, Error;
    /// Blocks in use are marked free.
    SitMissing = 302, Error;
    /// Blocks that nothing refers to are marked in use.
    SitLeaked = 303, Error;
    /// A segment's type is not that of its blocks.
    SitType = 304, Error;
    /// A NAT entry names no block of the main area.
    NatAddress = 401, Error;
    /// A NAT entry names the wrong inode.
    NatIno = 402, Error;
    /// A node that nothing refers to.
    NatUnreachable = 403, Error;
    /// The NAT entry of a reserved number, 0 to 2, is another one.
    NatReserved = 404, Error;
    /// NAT entries that do not lead to their nodes, which are there.
    NatLost = 405, Error;
    /// A summary entry names the wrong owner of a block.
    SsaOwner = 501, Error;
    /// A summary block is of the wrong type.
    SsaType = 502, Error;
    /// An inode that cannot be trusted.
    Inode = 601, Error;
    /// An inode's checksum is wrong.
    InodeChecksum = 602, Error;
    /// `i_blocks` is not the number of the inode's blocks.
    InodeBlocks = 603, Error;
    /// `i_links` is not the number of the inode's names.
    InodeLinks = 604, Error;
    /// The reserved first address of an inode with inline content is not zero.
    InlineReserved = 605, Error;
    /// Inline data is present but the inode denies it.
    InlineExist = 606, Error;
    /// The cached extent does not agree with the addresses.
    InodeExtent = 607, Error;
    /// A directory's depth does not reach its deepest entry.
    DirDepth = 608, Error;
    /// Extended attributes are damaged.
    Xattr = 609, Error;
    /// A symbolic link of length 0.
    SymlinkSize = 610, Error;
    /// A directory's inode names the wrong parent.
    DirParent = 611, Error;
    /// A directory's size does not reach its last block.
    DirSize = 612, Error;
    /// An inode with inline content also names nodes.
    InlineNodes = 613, Error;
    /// A field of an inode is out of range and can be mended.
    InodeField = 614, Error;
    /// A quota file cannot be used.
    QuotaFile = 615, Error;
    /// `i_compr_blocks` is not the number of blocks that compression saves.
    SavedBlocks = 616, Error;
    /// An inode whose checksum is wrong, and which is not what its name says.
    InodeDoubt = 617, Error;
    /// A directory's names fit another hash level than its inode's.
    DirLevel = 618, Error;
    /// An ACL that cannot be read.
    Acl = 619, Error;
    /// A quota file that cannot be read, or says another usage than there is.
    QuotaContent = 620, Error;
    /// A file whose inode is lost, and of which nodes or blocks are left: it is made anew from them.
    FileRebuilt = 621, Error;
    /// A node id that is out of range or has no NAT entry.
    NodeId = 701, Error;
    /// A node block that is not the node it is taken for.
    NodeFooter = 702, Error;
    /// A node that is named twice.
    NodeTwice = 703, Error;
    /// An address outside the main area.
    Address = 704, Error;
    /// A block that belongs to another owner already.
    BlockTwice = 705, Error;
    /// A block in a segment of the other kind (data in a node segment, or a node in a data segment).
    BlockKind = 706, Error;
    /// A node of the fsync log that cannot be replayed.
    LogNode = 707, Error;
    /// A node that cannot be read, of which others know what it held: it is made anew.
    NodeRebuilt = 708, Error;
    /// The block at the end of the fsync log cannot be read: an fsync may have written it.
    LogEnd = 709, Warning;
    /// An inode that is lost, of which the fsync log has a newer version.
    LogInode = 710, Error;
    /// An address in a node of the fsync log with a flipped bit, which makes it that of another file's block, or leads
    /// the log elsewhere.
    LogAddress = 711, Error;
    /// The device lost or changed nodes of the fsync log after it had ended a flush of them.
    LogUnkept = 712, Error;
    /// An address that is no block of its file's, and with one bit flipped is one whose summary names the page.
    AddressBit = 713, Error;
    /// Addresses or nodes that a file lacks: blocks in use that nothing names, and that say where they belong.
    AddressMissing = 714, Error;
    /// A directory entry of impossible length.
    DentryLength = 801, Error;
    /// A directory entry's hash is not that of its name.
    DentryHash = 802, Error;
    /// A directory entry outside its hash bucket.
    DentryPlace = 803, Error;
    /// Two entries of one name in a directory.
    DentryTwice = 804, Error;
    /// A directory entry that names no usable inode.
    DentryInode = 805, Error;
    /// A directory entry's file type is not that of its inode.
    DentryType = 806, Error;
    /// `.` or `..` is wrong.
    Dots = 807, Error;
    /// `.` or `..` is missing.
    DotsMissing = 808, Error;
    /// A directory with two names (or inside itself).
    DirectoryTwice = 809, Error;
    /// The root directory cannot be read.
    NoRoot = 810, Error;
    /// A name with a byte that no name may hold.
    DentryName = 811, Error;
    /// A directory whose inode is lost, and to which files belong: it is made anew, empty, and they go back to it.
    DirLost = 812, Error;
    /// An entry that leads to a file with one link, which has its name elsewhere: it led to another file.
    DentryForeign = 813, Error;
    /// A block of a directory is zeros.
    DentryBlank = 814, Error;
    /// A delta zone's structure is damaged.
    DeltaZone = 901, Error;
    /// A delta zone that is not the first attribute of a file's inode, and wholly in it.
    DeltaPlace = 902, Error;
    /// Two deltas of one page.
    DeltaTwice = 903, Error;
    /// A delta of a codec that does not exist.
    DeltaCodec = 904, Error;
    /// A delta of a page that no file can have.
    DeltaIndex = 905, Error;
    /// A delta of a page that has neither a block nor a place for one, and so no base.
    DeltaBase = 906, Error;
    /// A delta that does not decode, or rebuilds another page than the one its checksum is of.
    DeltaContent = 907, Error;
    /// A compact page that is damaged, or not the file's.
    CompactPage = 908, Error;
    /// Two compact pages of a file with one sequence number.
    CompactTwice = 909, Error;
    /// Compact pages of a file whose zone denies that it has any, or that has no zone.
    CompactFlag = 910, Error;
    /// A file that is larger, or has blocks further on, than its compact pages let it.
    CompactRoom = 911, Error;
    /// A base made of a block that no file has.
    SliceSource = 912, Error;
    /// A base made of blocks of a file that is itself made of blocks of others.
    SliceDepth = 913, Error;
    /// A shared record node with an entry that stands for no inode block, or a node of removed names with one
    /// of no file: the volume cannot be rolled forward.
    SharedNode = 914, Error;
    /// Files with slices that medfs's own list of them does not name: it would free or overwrite what they need.
    SliceList = 915, Error;
    /// Compact pages of a file that are others than its zone says, or fewer.
    CompactOther = 916, Error;
    /// Addresses that no compressed cluster has, or a cluster's mark at another place.
    ClusterPlace = 1001, Error;
    /// A compressed cluster that cannot be expanded, or whose checksum is wrong, with a block that is another file's.
    ClusterContent = 1002, Error;
    /// A compressed cluster that cannot be expanded, or whose checksum is wrong, and whose blocks are its own: they
    /// stay where they are, as one that cannot be read does.
    ClusterDamaged = 1004, Warning;
    /// A compressed cluster with a flipped bit, which its checksum tells.
    ClusterBit = 1005, Error;
    /// A block of metadata that cannot be read.
    Unreadable = 1101, Error;
    /// A block of a file's content that cannot be read: it stays where it is, as only its owner can tell what to do.
    UnreadableData = 1102, Warning;
    /// A block that a repair could not write.
    Unwritable = 1103, Error;
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "F{:04}", *self as u16)
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What kind of fault.
    pub code: Code,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence that says what is wrong and where.
    pub message: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

/// What a repair cannot keep as it was: of a check, what a repair would do; it is told before anything is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Files and directories that get a number in lost+found for a name.
    pub nameless: u64,
    /// Those without a name that go back to their directory under their name.
    pub renamed: u64,
    /// Blocks, and nodes with all they name, that are cut off.
    pub blocks: u64,
    /// Files and directories that lose some of these.
    pub cut: u64,
    /// Files and directories that lose extended attributes.
    pub attributes: u64,
    /// Files whose inode is lost, made anew without mode, owner, times and attributes.
    pub rebuilt: u64,
    /// Directories that are lost, made anew without mode, owner, times and attributes.
    pub remade: u64,
    /// Files and directories kept as they read, though no single bit explains the checksum or a field of their inode.
    pub doubted: u64,
    /// Files with pages whose last updates are lost.
    pub reverted: u64,
    /// Names of files that keep another one.
    pub names: u64,
    /// Quota files of which limits cannot be read, or all.
    pub quotas: u64,
    /// Names whose inode is lost, and with it the file.
    pub lost: u64,
    /// Files and directories that the checkpoint counts beside all these: nothing tells their names.
    pub gone: u64,
}

/// What a repair cut off a file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Whose it was.
    pub ino: Ino,
    /// The pages, or `None`: extended attributes.
    pub pages: Option<Range<u64>>,
}

/// Pages of a file whose last updates a repair drops: `None` where a record that is lost may have been of any.
pub type Reverted = Option<BTreeSet<u32>>;

/// What was cut off, as much of it as there may be findings.
#[derive(Debug)]
pub(crate) struct Cuts {
    pub(crate) list: Vec<Cut>,
    /// Whose they are.
    pub(crate) files: HashSet<Ino>,
    limit: usize,
}

impl Cuts {
    pub(crate) fn new(findings: &Findings) -> Cuts {
        Cuts { list: Vec::new(), files: HashSet::default(), limit: findings.limit }
    }

    /// A node or block, with the pages that it leads to.
    pub(crate) fn add(&mut self, ino: Ino, page: u64, pages: u64) {
        self.push(Cut { ino, pages: Some(page..page + pages) });
    }

    /// Takes back the single pages of a file, which were none of it.
    pub(crate) fn forget_pages(&mut self, ino: Ino) {
        let is_page = |cut: &Cut| cut.pages.as_ref().is_some_and(|pages| pages.end == pages.start + 1);
        self.list.retain(|cut| cut.ino != ino || !is_page(cut));
    }

    pub(crate) fn add_attributes(&mut self, ino: Ino) {
        self.push(Cut { ino, pages: None });
    }

    /// Beyond the limit, one of each file.
    fn push(&mut self, cut: Cut) {
        self.files.insert(cut.ino);
        let is_of_last = |last: &Cut| last.ino == cut.ino && last.pages.is_none() == cut.pages.is_none();
        if self.list.len() < self.limit || !self.list.last().is_some_and(is_of_last) {
            self.list.push(cut);
        }
    }
}

/// Collects findings up to a limit and counts the rest.
#[derive(Debug, Default, Clone)]
pub(crate) struct Findings {
    pub(crate) list: Vec<Finding>,
    pub(crate) suppressed: u64,
    /// A node that nothing refers to was found.
    pub(crate) unreachable: bool,
    /// A directory is damaged, so that names of files may be lost.
    pub(crate) lost_names: bool,
    /// The fsync log lacks nodes, and others lie behind these.
    pub(crate) log_lacks: bool,
    /// The volume is as of an older checkpoint than its last one.
    pub(crate) is_older: bool,
    limit: usize,
}

impl Findings {
    pub(crate) fn new(limit: usize) -> Findings {
        Findings { limit, ..Findings::default() }
    }

    pub(crate) fn add(&mut self, code: Code, message: impl Into<String>) {
        let severity = code.severity();
        self.unreachable |= code == Code::NatUnreachable;
        self.lost_names |= code == Code::Unreadable || (800..900).contains(&(code as u16));
        self.is_older |= code == Code::CheckpointOlder;
        self.log_lacks |= matches!(code, Code::LogNode | Code::LogUnkept);
        if self.list.len() < self.limit {
            self.list.push(Finding { code, severity, message: message.into() });
        } else if !code.stays() {
            // What stays is nothing that a repair would have left.
            self.suppressed += 1;
        }
    }
}

/// Files and directories that a repair keeps, though not as they were.
#[derive(Debug, Clone, Default)]
pub struct Altered {
    /// Files whose inode was lost, made anew of their nodes and blocks.
    pub rebuilt: BTreeSet<Ino>,
    /// Those among them of whose content nothing was left.
    pub emptied: BTreeSet<Ino>,
    /// Directories whose inode was lost, created again.
    pub remade: BTreeSet<Ino>,
    /// Files with pages whose last updates are lost.
    pub reverted: BTreeMap<Ino, Reverted>,
    /// Files and directories that count more blocks as their own than were found.
    pub short: BTreeSet<Ino>,
    /// Files and directories whose inode has a wrong checksum or field that no single bit explains, kept as they read.
    pub doubted: BTreeSet<Ino>,
    /// Files with nodes of the fsync log that the device changed after it had stored them.
    pub unkept: BTreeSet<Ino>,
}

impl Altered {
    pub(crate) fn add(&mut self, more: Altered) {
        self.rebuilt.extend(more.rebuilt);
        self.emptied.extend(more.emptied);
        self.remade.extend(more.remade);
        self.reverted.extend(more.reverted);
        self.short.extend(more.short);
        self.doubted.extend(more.doubted);
        self.unkept.extend(more.unkept);
    }
}

/// A number with its noun: `1 entry`, `2 entries`.
pub(crate) fn counted(number: impl Into<u64>, noun: &str) -> String {
    match (number.into(), noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (number, Some(stem)) => format!("{number} {stem}ies"),
        (number, None) => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_agree_with_their_numbers() {
        let some =
            [(0u32, "node"), (1, "entry"), (2, "entry"), (1, "node")].map(|(n, noun)| counted(n, noun));
        assert_eq!(some, ["0 nodes", "1 entry", "2 entries", "1 node"]);
    }

    #[test]
    fn codes_are_distinct_and_printed_with_four_digits() {
        for pair in Code::ALL.windows(2) {
            assert!(pair[0] < pair[1]);
        }
        assert_eq!(Code::SuperblockCopy.to_string(), "F0101");
    }

    #[test]
    fn findings_beyond_the_limit_are_counted() {
        let mut f = Findings::new(1);
        f.add(Code::Xattr, "a");
        f.add(Code::NoRoot, "b");
        assert_eq!((f.list.len(), f.suppressed), (1, 1));
        f.add(Code::ClusterDamaged, "a repair leaves it as it is");
        assert_eq!((f.list.len(), f.suppressed), (1, 1));
    }
}
