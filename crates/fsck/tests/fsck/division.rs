//! How inodes without checksums divide their slots: each bit of the fields that decide it, flipped, costs nothing, or
//! is told as a loss before a repair.

use crate::common::META;
use crate::medium::{checked, node_addr, opened, repaired};
use crate::torn::costs_nothing;
use medfs::{FileFlags, FileKind, Files, Ino, ManualClock, MountOptions, NewFile, Timestamp, Volume};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::node::{Inline, RawInode};
use medfs_fsck::{Code, Losses};
use medfs_testkit::images::formatted;
use std::sync::Arc;

/// Volumes without inode checksums: plain ones, and such with extra attributes, and with sizes of inline xattrs.
const WITHOUT: [&str; 3] = ["", "extra_attr,inode_crtime", "extra_attr,flexible_inline_xattr"];

/// The files of a volume, by their names, each with its length: with nodes, with blocks, and inline.
const FILES: [(&str, usize); 5] =
    [("big", 5 << 20), ("pages", 9000), ("inline", 3000), ("short", 11), ("other", 6)];

fn new(kind: FileKind) -> NewFile {
    NewFile { kind, perm: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 }
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 4096 * 31 + i % 251 + 1) as u8).collect()
}

fn mounted(dev: Arc<MemDevice>, option: &str) -> Volume {
    let clock = ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 7 });
    let mut options = MountOptions::default();
    options.parse(option).expect("options");
    Volume::open(dev, options, Arc::new(clock)).expect("the volume opens")
}

/// A volume with all of [`FILES`] and an inline directory; the numbers of the files, and the directory's last.
fn volume(features: &str, option: &str) -> (MemDevice, Vec<Ino>) {
    let dev = Arc::new(formatted(128, features).snapshot());
    let v = mounted(dev.clone(), option);
    let mut inos = Vec::new();
    for (name, len) in FILES {
        let ino = v.create(v.root(), name.as_bytes(), &new(FileKind::Regular)).expect("create").ino;
        v.write(ino, 0, &content(len)).expect("write");
        inos.push(ino);
    }
    let dir = v.create(v.root(), b"dir", &new(FileKind::Directory)).expect("mkdir").ino;
    v.create(dir, b"inner", &new(FileKind::Regular)).expect("create");
    inos.push(dir);
    v.close().expect("closed");
    drop(v);
    (dev.snapshot(), inos)
}

/// Takes the checksum away that medfs gives an inode with extra attributes all the same, as other drivers do.
fn unseal(dev: &MemDevice, inos: &[Ino]) {
    for &ino in inos {
        change(dev, ino, |inode| {
            if let Some(extra) = inode.extra_mut() {
                extra.i_inode_checksum = 0.into();
            }
        });
    }
}

fn change(dev: &MemDevice, ino: Ino, change: impl FnOnce(&mut RawInode)) {
    let at = node_addr(dev, ino);
    let mut block = read_block(dev, at).expect("memory");
    change(block.view_mut());
    dev.write(at, &[&block], META).expect("memory");
}

/// Whether all files have their content, and the directory its entry.
fn is_whole(dev: &MemDevice) -> Result<(), String> {
    let v = opened(Arc::new(dev.snapshot()));
    for (name, len) in FILES {
        let found = v.lookup(v.root(), name.as_bytes()).map_err(|e| format!("{name}: {e}"))?;
        let mut bytes = vec![0; len];
        let read = v.read(found.ino, 0, &mut bytes).map_err(|e| format!("{name}: {e}"))?;
        if (found.size, read, &bytes) != (len as u64, len, &content(len)) {
            return Err(format!("{name} differs"));
        }
    }
    let dir = v.lookup(v.root(), b"dir").map_err(|e| format!("dir: {e}"))?.ino;
    v.lookup(dir, b"inner").map(drop).map_err(|e| format!("inner: {e}"))
}

/// What changes an inode.
type Flip = Box<dyn Fn(&mut RawInode)>;

/// Each bit, as what changes it in an inode.
fn bits(has_extra: bool) -> Vec<(String, Flip)> {
    let mut all: Vec<(String, Flip)> = Vec::new();
    for flag in [Inline::XATTR, Inline::EXTRA_ATTR] {
        let flip: Flip = Box::new(move |inode: &mut RawInode| inode.i_inline ^= flag.bits());
        all.push((format!("{flag:?}"), flip));
    }
    // The sizes are the first word.
    let sizes = if has_extra { u32::BITS } else { 0 };
    for bit in 0..sizes {
        let flip: Flip = Box::new(move |inode: &mut RawInode| {
            inode.i_addr[0] = (inode.i_addr[0].get() ^ 1 << bit).into();
        });
        all.push((format!("bit {bit} of the sizes"), flip));
    }
    all
}

#[test]
fn each_bit_that_divides_an_inode_costs_nothing_or_is_told() {
    flip_divisions(3);
}

#[test]
#[ignore = "half a minute"]
fn each_bit_that_divides_each_inode_costs_nothing_or_is_told() {
    flip_divisions(1);
}

/// Flips every so many-th bit of each file, others of the next one.
fn flip_divisions(every: usize) {
    for (features, option) in
        WITHOUT.into_iter().flat_map(|f| ["inline_xattr", "noinline_xattr"].map(|o| (f, o)))
    {
        let (dev, mut inos) = volume(features, option);
        unseal(&dev, &inos);
        if option != "inline_xattr" {
            inos.truncate(3);
        }
        assert_eq!((checked(&dev).findings, is_whole(&dev)), (vec![], Ok(())), "{features:?}, {option}");
        for (at, &ino) in inos.iter().enumerate() {
            let name = FILES.get(at).map_or("dir", |(name, _)| *name);
            for (bit, flip) in bits(!features.is_empty()).into_iter().skip(at % every).step_by(every) {
                let what = format!("{features:?}, {option}, {name}, {bit}");
                let dev = dev.snapshot();
                change(&dev, ino, flip);
                let mended = repaired(&dev);
                assert_eq!(mended.after.findings, [], "{what}: {:?}", mended.before.findings);
                // Others write 4 bytes of extra attributes: where all content is in the inode, nothing tells.
                let is_unseen = (2..5).contains(&at) && bit == "bit 5 of the sizes";
                if mended.before.losses == Losses::default() && !is_unseen {
                    assert_eq!(is_whole(&dev), Ok(()), "{what}: {:?}", mended.before.findings);
                }
            }
        }
    }
}

/// What the summaries, the content and the other inodes say is enough for these, and the checksum alone too.
#[test]
fn a_flipped_division_comes_back() {
    let cases = [
        ("", "inline_xattr", 0, Inline::XATTR.bits(), 0),
        ("", "noinline_xattr", 0, Inline::XATTR.bits(), 0),
        (WITHOUT[1], "inline_xattr", 0, Inline::EXTRA_ATTR.bits(), 0),
        (WITHOUT[1], "inline_xattr", 2, Inline::EXTRA_ATTR.bits(), 0),
        (WITHOUT[1], "inline_xattr", 0, 0, 4),
        (WITHOUT[1], "inline_xattr", 2, 0, 4),
        (WITHOUT[1], "inline_xattr", 5, 0, 4),
        (WITHOUT[1], "inline_xattr", 3, 0, 64),
        (WITHOUT[2], "inline_xattr", 0, 0, 8 << 16),
        (WITHOUT[2], "inline_xattr", 0, 0, 128 << 16),
        (WITHOUT[2], "inline_xattr", 0, 0, 2 << 16),
    ];
    for ((features, option, at, mask, value), sealed) in
        cases.into_iter().flat_map(|case| [true, false].map(|sealed| (case, sealed)))
    {
        let (dev, inos) = volume(features, option);
        if !sealed {
            unseal(&dev, &inos);
        }
        let ino = inos[at];
        let before = read_block(&dev, node_addr(&dev, ino)).expect("memory");
        change(&dev, ino, |inode| {
            inode.i_inline ^= mask;
            inode.i_addr[0] = (inode.i_addr[0].get() ^ value).into();
        });
        let what = format!("{features:?}, {option}, {at}, {mask:#x}, {value:#x}, {sealed}");
        let mended = repaired(&dev);
        assert!(mended.before.has(Code::InodeField), "{what}: {:?}", mended.before.findings);
        costs_nothing(&mended, &what);
        assert_eq!(is_whole(&dev), Ok(()), "{what}: {:?}", mended.before.findings);
        let after = read_block(&dev, node_addr(&dev, ino)).expect("memory");
        let of = |inode: &RawInode| (inode.i_inline, inode.i_addr[0].get());
        assert_eq!(of(after.view()), of(before.view()), "{what}: {:?}", mended.before.findings);
    }
}

#[test]
fn the_size_of_clusters_comes_back() {
    const PAGES: usize = 1000;
    let dev = Arc::new(MemDevice::new(80 << 8));
    let features = medfs_mkfs::parse_features("extra_attr,compression").expect("features");
    let options = medfs_mkfs::MkfsOptions { features, ..medfs_mkfs::MkfsOptions::new([9; 16], 1) };
    medfs_mkfs::format_volume(&*dev, &options).expect("a volume can be made");
    let v = mounted(dev.clone(), "compress=lz4,compress_chksum");
    let ino = v.create(v.root(), b"file", &new(FileKind::Regular)).expect("create").ino;
    v.set_flags(ino, FileFlags::COMPR).expect("chattr +c");
    let expected: Vec<u8> = (0..PAGES * 4096).map(|i| (i / 99 + i / 4096) as u8).collect();
    v.write(ino, 0, &expected).expect("write");
    v.close().expect("closed");
    drop(v);
    for (bit, sealed) in (0..u8::BITS).flat_map(|bit| [true, false].map(|sealed| (bit, sealed))) {
        let dev = dev.snapshot();
        if !sealed {
            unseal(&dev, &[ino]);
        }
        change(&dev, ino, |inode| {
            inode.extra_mut().expect("it has extra attributes").i_log_cluster_size ^= 1 << bit;
        });
        let mended = repaired(&dev);
        costs_nothing(&mended, &format!("bit {bit}, {sealed}"));
        let mut bytes = vec![0; expected.len()];
        opened(Arc::new(dev)).read(ino, 0, &mut bytes).expect("it can be read");
        assert!(bytes == expected, "bit {bit}, {sealed}: {:?}", mended.before.findings);
    }
}

/// Files of another program, which gives its inodes fewer extra attributes, with content that begins with zeros.
#[test]
fn inodes_of_two_programs_are_sound() {
    let (dev, inos) = volume(WITHOUT[1], "inline_xattr");
    unseal(&dev, &inos);
    for &ino in &inos[2..5] {
        change(&dev, ino, |inode| {
            let inline = inode.slots(false).inline_content_range();
            inode.i_addr[0] = 4.into();
            let content = inode.slots(false).inline_content_range();
            assert!(content.start < inline.start);
            let bytes = zerocopy::IntoBytes::as_mut_bytes(inode);
            bytes[content.start..inline.start].fill(0);
            bytes.copy_within(inline.start..inline.start + 3000, content.start + 80);
            bytes[content.start..content.start + 80].fill(0);
            bytes[content.start + 3080..content.end].fill(0);
            inode.i_size = 3080.into();
        });
    }
    assert_eq!(checked(&dev).findings, []);
}

/// A file without the area that all others have, with holes where that would be, ends where its size says.
#[test]
fn holes_are_not_taken_for_attributes() {
    let dev = Arc::new(volume("", "inline_xattr").0);
    let v = mounted(dev.clone(), "noinline_xattr");
    let ino = v.create(v.root(), b"sparse", &new(FileKind::Regular)).expect("create").ino;
    for page in (0..873).chain(923..1000) {
        v.write(ino, page * 4096, &[7; 4096]).expect("write");
    }
    v.close().expect("closed");
    drop(v);
    assert_eq!(checked(&*dev).findings, []);
}
