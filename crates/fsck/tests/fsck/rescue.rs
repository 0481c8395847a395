//! A repair loses nothing that can be read: names, files, and what one flipped bit changed.

use crate::common::{Bed, META, number};
use medfs::{Files, ManualClock, MountOptions, NewFile, Timestamp, Volume, XattrMode};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::acl::{Acl, AclEntry, Who};
use medfs_format::flip::Bit;
use medfs_format::node::{Advise, FileKind, RawInode};
use medfs_format::{BLOCK_SIZE, Block, Ino};
use medfs_fsck::dump::Dump;
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Options, Repair, check, repair};
use medfs_testkit::images::{DELTAS, FEATURE_SETS, formatted};
use std::sync::Arc;

const PLAIN: &str = FEATURE_SETS[0];
const CHECKSUMS: &str = FEATURE_SETS[1];

fn open(dev: &Arc<MemDevice>) -> Volume {
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_800_000_000, nanos: 0 }));
    Volume::open(dev.clone(), MountOptions::default(), clock).expect("it opens")
}

fn make(v: &Volume, parent: u32, name: &[u8], kind: FileKind) -> u32 {
    let new = NewFile { kind, perm: 0o755, umask: 0, uid: 5, gid: 6, rdev: 0 };
    let ino = v.create(parent, name, &new).expect("create").ino;
    v.release(ino, 1);
    ino
}

fn content(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| ((i.wrapping_mul(seed | 1) >> 7) ^ (i / 4096)) as u8).collect()
}

/// A volume that `fill` has filled.
fn volume<T>(mebibytes: u64, features: &str, fill: impl FnOnce(&Volume) -> T) -> (MemDevice, T) {
    let dev = Arc::new(formatted(mebibytes, features).snapshot());
    let v = open(&dev);
    let result = fill(&v);
    v.close().expect("close");
    drop(v);
    (dev.snapshot(), result)
}

fn mended(dev: &MemDevice) -> Repair {
    let repaired = repair(dev, &Options::default(), &mut |_| {}).expect("the device does not fail");
    assert_eq!(repaired.after.findings, [], "left");
    repaired
}

fn ino_of(dev: &MemDevice, path: &str) -> Option<u32> {
    Dump::open(dev).unwrap().path(path).ok().map(|r| number(r.get("ino")))
}

fn address_of(dev: &MemDevice, nid: u32) -> u64 {
    number(Dump::open(dev).unwrap().nat(nid).unwrap().get("block_addr")).into()
}

fn change(dev: &MemDevice, addr: u64, change: impl FnOnce(&mut Block)) {
    let mut block = read_block(dev, addr).unwrap();
    change(&mut block);
    dev.write(addr, &[&block], META).unwrap();
}

fn read(dev: &MemDevice, path: &[&str]) -> Result<Vec<u8>, String> {
    let v = open(&Arc::new(dev.snapshot()));
    let mut ino = v.root();
    for name in path {
        ino = v.lookup(ino, name.as_bytes()).map_err(|e| format!("{name}: {e}"))?.ino;
    }
    let mut bytes = vec![0; v.getattr(ino).map_err(|e| e.to_string())?.size as usize];
    let read = v.read(ino, 0, &mut bytes).map_err(|e| e.to_string())?;
    bytes.truncate(read);
    Ok(bytes)
}

fn name(i: u32) -> String {
    format!("file number {i}")
}

fn fill(v: &Volume, dir: u32, files: u32) {
    for i in 0..files {
        make(v, dir, name(i).as_bytes(), FileKind::Regular);
    }
}

/// Takes a directory's inode away, which its NAT entry alone would not do: its block says whose it is.
fn lose(dev: &MemDevice, dir: Ino) {
    for field in ["footer.nid", "footer.ino"] {
        inject::set(dev, &Target::Inode(dir), field, 0).unwrap();
    }
    inject::set(dev, &Target::Nat(dir), "block_addr", 0).unwrap();
}

/// Once this cost every name, and many files.
#[test]
fn a_directory_whose_hash_level_is_wrong_keeps_its_names() {
    const FILES: u32 = 3000;
    let (whole, dir) = volume(100, CHECKSUMS, |v| {
        let dir = make(v, v.root(), b"dir", FileKind::Directory);
        fill(v, dir, FILES);
        dir
    });
    for bit in [0, 2, 6, 7] {
        let dev = whole.snapshot();
        // The checksum is made right again, so that it does not tell.
        inject::change(&dev, &Target::Inode(dir), "i_dir_level", |level| level ^ 1 << bit).unwrap();
        let repaired = mended(&dev);
        assert!(repaired.before.has(Code::DirLevel), "{:?}", repaired.before.findings);
        assert_eq!(repaired.before.findings.len(), 1, "one fault, one finding");
        assert_eq!((repaired.after.files(), repaired.after.directories()), (FILES.into(), 2));
        let v = open(&Arc::new(dev));
        assert!((0..FILES).all(|i| v.lookup(dir, name(i).as_bytes()).is_ok()), "every name is there");
    }
}

#[test]
fn files_go_back_to_their_directory_under_their_name() {
    const FILES: u32 = 500;
    let (dev, dir) = volume(64, CHECKSUMS, |v| {
        let dir = make(v, v.root(), b"dir", FileKind::Directory);
        for i in 0..FILES {
            let ino = make(v, dir, name(i).as_bytes(), FileKind::Regular);
            v.write(ino, 0, &content(i, 100)).expect("write");
        }
        dir
    });
    // A block of entries is lost.
    let inode = read_block(&dev, address_of(&dev, dir)).unwrap();
    let inode: &RawInode = inode.view();
    let addr = inode.i_addr[inode.slots(true).extra + 2].get();
    change(&dev, addr.into(), |block| block.0.fill(0));
    let repaired = mended(&dev);
    assert!(repaired.before.has(Code::NatUnreachable));
    let v = open(&Arc::new(dev.snapshot()));
    for i in 0..FILES {
        let ino = v.lookup(dir, name(i).as_bytes()).unwrap_or_else(|e| panic!("{i}: {e}")).ino;
        let mut bytes = [0; 100];
        assert_eq!(v.read(ino, 0, &mut bytes).unwrap(), 100);
        assert_eq!(bytes[..], content(i, 100)[..]);
    }
    assert_eq!(ino_of(&dev, "lost+found"), None, "nothing had to go there");
}

fn mode_and_owner(dev: &MemDevice, ino: Ino) -> (u16, u32) {
    let block = read_block(dev, address_of(dev, ino)).unwrap();
    let inode: &RawInode = block.view();
    (inode.i_mode.get(), inode.i_uid.get())
}

#[test]
fn a_directory_whose_inode_is_lost_keeps_its_place_and_its_files_their_names() {
    for features in [PLAIN, CHECKSUMS] {
        let (whole, [upper, lower]) = volume(64, features, |v| {
            let upper = make(v, v.root(), b"upper", FileKind::Directory);
            let lower = make(v, upper, b"lower", FileKind::Directory);
            for (i, dir) in [upper, lower].into_iter().enumerate() {
                let file = make(v, dir, b"file", FileKind::Regular);
                v.write(file, 0, &content(i as u32, 9000)).expect("write");
            }
            [upper, lower]
        });
        let dev = whole.snapshot();
        lose(&dev, upper);
        let repaired = mended(&dev);
        assert!(repaired.before.has(Code::DirLost), "{:?}", repaired.before.findings);
        assert_eq!((repaired.before.losses.nameless, repaired.before.losses.renamed), (0, 2));
        assert_eq!(read(&dev, &["upper", "file"]).unwrap(), content(0, 9000));
        assert_eq!(read(&dev, &["upper", "lower", "file"]).unwrap(), content(1, 9000));
        assert_eq!((ino_of(&dev, "upper"), ino_of(&dev, "lost+found")), (Some(upper), None));
        assert_eq!(mode_and_owner(&dev, upper).0, 0o040700, "whom it let in is not known");
        Bed::new().judge(&dev).unwrap();
        // The entry of the lower one is lost with the upper one.
        let dev = whole.snapshot();
        lose(&dev, upper);
        lose(&dev, lower);
        mended(&dev);
        assert_eq!(read(&dev, &["upper", "file"]).unwrap(), content(0, 9000));
        assert_eq!(read(&dev, &["lost+found", &lower.to_string(), "file"]).unwrap(), content(1, 9000));
        Bed::new().judge(&dev).unwrap();
    }
}

/// Once the whole fsync log was given up.
#[test]
fn files_fsynced_in_a_directory_that_is_lost_are_there() {
    for features in [PLAIN, CHECKSUMS, DELTAS] {
        let dev = Arc::new(formatted(64, features).snapshot());
        let v = open(&dev);
        let dir = make(&v, v.root(), b"dir", FileKind::Directory);
        let old = make(&v, dir, b"old", FileKind::Regular);
        let gone = make(&v, dir, b"gone", FileKind::Regular);
        v.sync().expect("sync");
        let new = make(&v, dir, b"new", FileKind::Regular);
        for (i, ino) in [old, new].into_iter().enumerate() {
            v.write(ino, 0, &content(i as u32, 9000)).expect("write");
            v.fsync(ino, false).expect("fsync");
        }
        if features == DELTAS {
            // Elsewhere this takes a checkpoint.
            v.rename(dir, b"gone", v.root(), b"moved", medfs::RenameFlags::default()).expect("rename");
            v.fsync(gone, false).expect("fsync");
        }
        let dev = dev.snapshot(); // the power goes
        drop(v);
        lose(&dev, dir);
        let before = mended(&dev).before;
        assert!(before.has(Code::DirLost) && before.log_to_replay.inodes >= 2, "{features}: {before:?}");
        assert_eq!(read(&dev, &["dir", "old"]).unwrap(), content(0, 9000), "{features}");
        assert_eq!(read(&dev, &["dir", "new"]).unwrap(), content(1, 9000), "{features}");
    }
}

/// The log has a newer version of the inode, and the checkpoint the nodes that the fsync did not write.
#[test]
fn a_lost_inode_of_a_file_that_was_fsynced_costs_nothing() {
    for features in [PLAIN, CHECKSUMS, DELTAS] {
        let dev = Arc::new(formatted(64, features).snapshot());
        let v = open(&dev);
        let ino = make(&v, v.root(), b"file", FileKind::Regular);
        let mut whole = content(3, 2000 * BLOCK_SIZE);
        v.write(ino, 0, &whole).expect("write");
        v.sync().expect("sync");
        let end = content(5, 9000);
        v.write(ino, whole.len() as u64, &end).expect("write");
        whole.extend(end);
        v.write(ino, 5000, &[7; 5000]).expect("write");
        whole[5000..10000].fill(7);
        v.fsync(ino, false).expect("fsync");
        let dev = dev.snapshot(); // the power goes
        drop(v);
        let addr = address_of(&dev, ino);
        change(&dev, addr, |block| block.0.fill(0));
        let before = mended(&dev).before;
        assert!(before.has(Code::LogInode), "{features}: {:?}", before.findings);
        assert!(read(&dev, &["file"]).unwrap() == whole, "{features}");
    }
}

/// Without checksums nothing tells that a node of the log has a flipped bit.
#[test]
fn a_file_fsynced_in_what_is_no_directory_goes_to_lost_and_found() {
    for home in [1 << 30, 5] {
        let dev = Arc::new(formatted(64, PLAIN).snapshot());
        let v = open(&dev);
        make(&v, v.root(), b"four", FileKind::Directory);
        assert_eq!(make(&v, v.root(), b"five", FileKind::Regular), 5);
        v.sync().expect("sync");
        let [first, second] = [b"one", b"two"].map(|name| {
            let ino = make(&v, v.root(), name, FileKind::Regular);
            v.write(ino, 0, name).expect("write");
            v.fsync(ino, false).expect("fsync");
            ino
        });
        let dev = dev.snapshot(); // the power goes
        drop(v);
        let mut of_first = (0..dev.block_count()).filter(|&addr| {
            let block = read_block(&dev, addr).unwrap();
            let footer = medfs_format::node::footer(&block);
            (footer.nid.get(), footer.ino.get()) == (first, first) && footer.is_fsync()
        });
        let addr = of_first.next().expect("it was fsynced");
        change(&dev, addr, |block| block.view_mut::<RawInode>().i_pino = home.into());
        assert!(mended(&dev).before.has(Code::LogNode));
        assert_eq!(read(&dev, &["lost+found", &first.to_string()]).unwrap(), b"one");
        assert_eq!(read(&dev, &["two"]).unwrap(), b"two", "inode {second} is as it was");
    }
}

#[test]
fn a_name_that_is_taken_is_not_taken_away() {
    let (dev, (lost, taken)) = volume(64, CHECKSUMS, |v| {
        let lost = make(v, v.root(), b"one", FileKind::Regular);
        v.write(lost, 0, b"lost").expect("write");
        let found = make(v, v.root(), b"lost+found", FileKind::Directory);
        let taken = make(v, found, lost.to_string().as_bytes(), FileKind::Regular);
        v.write(taken, 0, b"taken").expect("write");
        (lost, taken)
    });
    // The entry now names another file, which knows of two names, so that "one" is taken.
    inject::set(&dev, &Target::Dentry(3, b"one"), "ino", taken.into()).unwrap();
    inject::set(&dev, &Target::Inode(taken), "i_links", 2).unwrap();
    mended(&dev);
    assert_eq!(read(&dev, &["one"]).unwrap(), b"taken");
    assert_eq!(read(&dev, &["lost+found", &lost.to_string()]).unwrap(), b"taken");
    assert_eq!(read(&dev, &["lost+found", &format!("{lost}.1")]).unwrap(), b"lost");
}

#[test]
fn lost_and_found_takes_more_than_its_inode_has_room_for() {
    const FILES: u32 = 15_000;
    let (dev, dir) = volume(200, CHECKSUMS, |v| {
        make(v, v.root(), b"lost+found", FileKind::Directory);
        let dir = make(v, v.root(), b"dir", FileKind::Directory);
        fill(v, dir, FILES);
        dir
    });
    // Files that do not say where they were.
    let mut dump = Dump::open(&dev).unwrap();
    let mut ino = |i| number(dump.path(&format!("dir/{}", name(i))).expect("it is there").get("ino"));
    let files: Vec<_> = (0..FILES).map(&mut ino).collect();
    let lost = u64::from(Advise::LOST_PINO.bits());
    inject::change_inodes(&dev, files, "i_advise", |advise| advise | lost).unwrap();
    // An inode with little room of its own stands for one that is full.
    let found = ino_of(&dev, "lost+found").unwrap();
    inject::set(&dev, &Target::Inode(found), "i_inline_xattr_size", 803).unwrap();
    lose(&dev, dir);
    let before = mended(&dev).before;
    assert_eq!(before.losses.nameless, u64::from(FILES), "{:?}", before.losses);
    let v = open(&Arc::new(dev.snapshot()));
    let mut count = 0;
    v.readdir(found, 0, &mut |entry| {
        count += u32::from(entry.kind == Some(FileKind::Regular));
        true
    })
    .unwrap();
    assert_eq!(count, FILES);
    drop(v);
    Bed::new().judge(&dev).unwrap();
}

/// The first pass has no block to give; it frees nothing, and the next one has.
#[test]
fn what_finds_no_room_for_a_name_is_kept() {
    const FILES: u32 = 400;
    let (dev, dir) = volume(64, CHECKSUMS, |v| {
        let dir = make(v, v.root(), b"dir", FileKind::Directory);
        fill(v, dir, FILES);
        dir
    });
    lose(&dev, dir);
    let counts = [
        ("valid_inode_count", 1),
        ("valid_node_count", 1),
        ("valid_block_count", 2),
        ("user_block_count", 5),
    ];
    for (field, value) in counts {
        inject::set(&dev, &Target::Checkpoint, field, value).unwrap();
    }
    let repaired = mended(&dev);
    assert_eq!((repaired.after.files(), repaired.unfinished), (FILES.into(), None));
}

/// A file with every kind of node, and a directory; with the inode numbers.
fn flippable(features: &str) -> (MemDevice, [u32; 3]) {
    let (dev, inos) = volume(64, features, |v| {
        let dir = make(v, v.root(), b"dir", FileKind::Directory);
        let large = make(v, dir, b"large", FileKind::Regular);
        v.write(large, 0, &content(9, BLOCK_SIZE * 1200)).expect("write");
        let small = make(v, dir, b"small", FileKind::Regular);
        v.write(small, 0, b"inline").expect("write");
        [dir, large, small]
    });
    assert_eq!(check(&dev, &Options::default(), &mut |_| {}).unwrap().findings, []);
    (dev, inos)
}

/// Once one bit cost the file.
#[test]
fn one_flipped_bit_of_an_inode_with_a_checksum_costs_nothing() {
    let (whole, inos) = flippable(CHECKSUMS);
    // Mode, inline flags, size, blocks, depth, parent, name, an address, a node's number, the footer.
    let places = [1, 3, 17, 24, 83, 100, 91, 200, 347, 363, 368, 700, 4052, 4072, 4076, 4080, 4090];
    for (ino, path) in inos.into_iter().zip([&["dir"][..], &["dir", "large"], &["dir", "small"]]) {
        let addr = address_of(&whole, ino);
        let was = read_block(&whole, addr).unwrap();
        for byte in places {
            let bit = Bit { byte, bit: (byte % 8) as u8 };
            let dev = whole.snapshot();
            change(&dev, addr, |block| bit.flip(block));
            let report = check(&dev, &Options::default(), &mut |_| {}).unwrap();
            assert!(report.has(Code::InodeChecksum), "inode {ino}, {bit}: {:?}", report.findings);
            assert_eq!(report.findings.len(), 1, "inode {ino}, {bit}: {:?}", report.findings);
            mended(&dev);
            let is = read_block(&dev, address_of(&dev, ino)).unwrap();
            assert!(is.0 == was.0, "inode {ino}, {bit}: the inode is as it was");
            if path.len() > 1 {
                assert!(read(&dev, path).unwrap() == read(&whole, path).unwrap(), "inode {ino}, {bit}");
            }
        }
    }
}

#[test]
fn without_checksums_name_and_owners_tell_what_a_flipped_bit_changed() {
    let (whole, [_, large, small]) = flippable(PLAIN);
    let bits = [(large, 1, 0x40), (large, 1, 0x80), (large, 3, 0x02), (small, 1, 0x40), (small, 3, 0x02)];
    for (ino, byte, mask) in bits {
        let dev = whole.snapshot();
        change(&dev, address_of(&dev, ino), |block| block.0[byte] ^= mask);
        let report = check(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(!report.is_clean(), "inode {ino}, byte {byte}");
        mended(&dev);
        for file in ["large", "small"] {
            let (is, was) = (read(&dev, &["dir", file]), read(&whole, &["dir", file]));
            assert!(is.as_ref() == was.as_ref(), "inode {ino}, byte {byte} ^ {mask:#x}: {file}");
        }
    }
}

/// Where nothing tells which of two kinds a file is, it does not stay under a name that says another one.
#[test]
fn an_inode_that_contradicts_its_name_goes_to_lost_and_found_whole() {
    let (dev, ino) = volume(64, CHECKSUMS, |v| {
        let ino = make(v, v.root(), b"pipe", FileKind::Fifo);
        make(v, v.root(), b"other", FileKind::Regular);
        ino
    });
    change(&dev, address_of(&dev, ino), |block| {
        let inode: &mut RawInode = block.view_mut();
        inode.i_mode = (inode.i_mode.get() & 0o7777 | FileKind::Socket.mode_bits()).into();
        inode.i_uid = 77.into();
    });
    let repaired = mended(&dev);
    assert!(repaired.before.has(Code::InodeDoubt), "{:?}", repaired.before.findings);
    assert_eq!(ino_of(&dev, "pipe"), None);
    assert_eq!(ino_of(&dev, &format!("lost+found/{ino}")), Some(ino));
}

#[test]
fn a_size_that_contradicts_the_blocks_of_a_doubtful_inode_cuts_nothing() {
    let (whole, [_, large, _]) = flippable(CHECKSUMS);
    let dev = whole.snapshot();
    change(&dev, address_of(&dev, large), |block| {
        let inode: &mut RawInode = block.view_mut();
        inode.i_size = 12_345.into();
        inode.i_uid = 77.into();
    });
    let report = check(&dev, &Options::default(), &mut |_| {}).unwrap();
    assert!(report.has(Code::InodeChecksum) && report.has(Code::InodeField), "{:?}", report.findings);
    mended(&dev);
    assert!(read(&dev, &["dir", "large"]).unwrap() == content(9, BLOCK_SIZE * 1200));
}

/// The older checkpoint would bring back what has been overwritten since.
#[test]
fn one_flipped_bit_of_the_checkpoint_or_both_superblocks_costs_nothing() {
    let (whole, _) = volume(64, CHECKSUMS, |v| {
        make(v, v.root(), b"older", FileKind::Regular);
        v.checkpoint().expect("checkpoint");
        let new = make(v, v.root(), b"newer", FileKind::Regular);
        v.write(new, 0, &content(3, 9000)).expect("write");
    });
    let version = |dev: &MemDevice| Dump::open(dev).unwrap().checkpoint().unwrap();
    let cp = version(&whole);
    let sb = Dump::open(&whole).unwrap().superblock();
    let first = u64::from(number(sb.get("cp_blkaddr")) + 512 * (number(cp.get("pack")) - 1));
    let last = first + u64::from(number(cp.get("cp_pack_total_block_count"))) - 1;
    for (blocks, bit) in [
        (&[first][..], Bit { byte: 20, bit: 3 }),
        (&[first], Bit { byte: 4093, bit: 7 }),
        (&[last], Bit { byte: 0, bit: 1 }),
        (&[0, 1], Bit { byte: 1024 + 100, bit: 5 }),
    ] {
        let dev = whole.snapshot();
        blocks.iter().for_each(|&addr| change(&dev, addr, |block| bit.flip(block)));
        let report = check(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(!report.is_clean(), "{blocks:?} {bit}: {:?}", report.findings);
        mended(&dev);
        assert!(read(&dev, &["newer"]).unwrap() == content(3, 9000), "{blocks:?} {bit}");
    }
}

/// The file is looked for, and room for its name, in a directory whose inode says that its areas lie outside of it.
#[test]
fn a_directory_whose_areas_leave_its_inode_takes_no_names_and_harms_no_file() {
    for features in [CHECKSUMS, "extra_attr,flexible_inline_xattr"] {
        let (dev, (dir, file)) = volume(64, features, |v| {
            let dir = make(v, v.root(), b"dir", FileKind::Directory);
            let file = make(v, dir, b"file", FileKind::Regular);
            v.write(file, 0, &content(7, 9000)).expect("write");
            (dir, file)
        });
        for (extra, xattr) in [(6500_u16, 50_u16), (24, 60_000), (65_532, 65_535)] {
            let dev = dev.snapshot();
            change(&dev, address_of(&dev, dir), |b| {
                let inode: &mut RawInode = b.view_mut();
                inode.i_mode = 0o040_755.into();
                let fields = inode.extra_mut().expect("it has extra attributes");
                (fields.i_extra_isize, fields.i_inline_xattr_size) = (extra.into(), xattr.into());
            });
            mended(&dev);
            let number = file.to_string();
            let places: [&[&str]; 3] = [&["dir", "file"], &["lost+found", "file"], &["lost+found", &number]];
            let found = places.iter().find_map(|path| read(&dev, path).ok());
            assert_eq!(found, Some(content(7, 9000)), "{features}, {extra}, {xattr}");
        }
    }
}

#[test]
fn circles_of_directories_and_names_of_dots_end() {
    let (dev, [a, b, c]) = volume(64, CHECKSUMS, |v| {
        let a = make(v, v.root(), b"aa", FileKind::Directory);
        let b = make(v, a, b"bb", FileKind::Directory);
        let c = make(v, b, b"cc", FileKind::Directory);
        make(v, c, b"file", FileKind::Regular);
        make(v, c, b"xx", FileKind::Directory);
        [a, b, c]
    });
    let set = |ino, field, value| inject::set(&dev, &Target::Inode(ino), field, value).unwrap();
    // The circle hangs on nothing; each names the next one as its parent.
    set(a, "i_pino", c.into());
    set(b, "i_pino", a.into());
    inject::set(&dev, &Target::Dentry(c, b"xx"), "ino", a.into()).unwrap();
    inject::set(&dev, &Target::Dentry(3, b"aa"), "used", 0).unwrap();
    let repaired = mended(&dev);
    assert_eq!((repaired.after.directories(), repaired.after.files()), (6, 1), "root, lost+found and four");
}

#[test]
fn a_second_entry_of_dots_is_taken_away_and_its_directory_kept() {
    let (dev, [dir, inner]) = volume(64, CHECKSUMS, |v| {
        let dir = make(v, v.root(), b"dir", FileKind::Directory);
        let inner = make(v, dir, b"xx", FileKind::Directory);
        make(v, inner, b"file", FileKind::Regular);
        [dir, inner]
    });
    inject::rename(&dev, dir, b"xx", b"..").unwrap();
    let repaired = mended(&dev);
    assert!(repaired.before.has(Code::Dots), "{:?}", repaired.before.findings);
    assert_eq!(ino_of(&dev, "dir/xx"), Some(inner));
    assert_eq!(repaired.after.files(), 1);
}

#[test]
fn a_compact_page_with_one_flipped_bit_keeps_its_records() {
    let volume = medfs_testkit::delta_volume::delta_volume("delta=compact");
    let (dev, mut found) = (volume.dev, 0);
    for addr in 0..dev.block_count() {
        let mut block = read_block(&dev, addr).unwrap();
        let was = block.clone();
        let ino = u32::from_le_bytes(block.0[4..8].try_into().unwrap());
        if medfs_format::delta::compact_records(&block, ino).is_err() {
            continue;
        }
        block.0[100] ^= 8;
        let flipped = dev.snapshot();
        flipped.write(addr, &[&block], META).unwrap();
        let report = check(&flipped, &Options::default(), &mut |_| {}).unwrap();
        if report.findings.is_empty() {
            continue; // an old one, which nothing names
        }
        assert!(report.has(Code::CompactPage), "{:?}", report.findings);
        let repaired = repair(&flipped, &Options::default(), &mut |_| {}).unwrap();
        assert_eq!(repaired.after.findings, []);
        assert!(read_block(&flipped, addr).unwrap().0 == was.0, "the page is as it was");
        found += 1;
    }
    assert!(found > 0);
}

#[test]
fn what_a_volume_was_written_in_its_life_stays_known() {
    let written = |dev: &MemDevice| open(&Arc::new(dev.snapshot())).stats().kbytes_written;
    let (closed, _) = volume(64, PLAIN, |v| {
        let ino = make(v, v.root(), b"file", FileKind::Regular);
        v.write(ino, 0, &content(1, 100_000)).expect("write");
    });
    let before = written(&closed);
    assert!(before > 100, "{before}");
    let dev = closed.snapshot();
    inject::change(&dev, &Target::Checkpoint, "valid_block_count", |count| count + 1).unwrap();
    mended(&dev);
    assert_eq!(written(&dev), before);
    // With a log behind the checkpoint of an unmount.
    let dev = Arc::new(closed);
    let v = open(&dev);
    let ino = make(&v, v.root(), b"fsynced", FileKind::Regular);
    v.fsync(ino, false).expect("fsync");
    let dev = dev.snapshot();
    drop(v);
    dev.write(1, &[&Block::ZERO], META).unwrap();
    assert_eq!(mended(&dev).before.log_to_replay.inodes, 1);
    assert!(written(&dev) >= before, "{} after {before}", written(&dev));
    assert_eq!(read(&dev, &["fsynced"]).unwrap(), b"");
}

/// A volume whose newest entries are in the journals of its last checkpoint, closed or not.
fn with_journals(features: &str, closed: bool) -> MemDevice {
    let dev = Arc::new(formatted(64, features).snapshot());
    let v = open(&dev);
    let dir = make(&v, v.root(), b"dir", FileKind::Directory);
    fill(&v, dir, 200);
    for i in 0..20 {
        let ino = make(&v, dir, format!("data {i}").as_bytes(), FileKind::Regular);
        v.write(ino, 0, &content(i, 9000 * (i as usize + 1))).expect("write");
        if i % 4 == 0 {
            v.sync().expect("sync");
        }
    }
    for i in (0..200).step_by(3) {
        v.unlink(dir, name(i).as_bytes()).expect("unlink");
    }
    v.sync().expect("sync");
    let ino = make(&v, v.root(), b"last", FileKind::Regular);
    v.write(ino, 0, &content(99, 50_000)).expect("write");
    v.sync().expect("sync");
    if closed {
        v.close().expect("close");
    }
    dev.snapshot()
}

#[test]
fn a_volume_without_a_checkpoint_gets_one_made_of_what_is_left() {
    for (features, closed) in [(PLAIN, true), (PLAIN, false), (CHECKSUMS, true), (DELTAS, true)] {
        let whole = with_journals(features, closed);
        let files = check(&whole, &Options::default(), &mut |_| {}).unwrap().files();
        let packs = {
            let superblock = Dump::open(&whole).unwrap().superblock();
            u64::from(number(superblock.get("cp_blkaddr")))
        };
        for (what, blocks) in [("first blocks", 1), ("whole packs", 512)] {
            let dev = whole.snapshot();
            for addr in (packs..packs + blocks).chain(packs + 512..packs + 512 + blocks) {
                dev.write(addr, &[&Block::ZERO], META).unwrap();
            }
            let repaired = mended(&dev);
            assert!(repaired.before.has(Code::CheckpointLost), "{what}: {:?}", repaired.before.findings);
            assert_eq!(
                repaired.after.files(),
                files,
                "{features}, {closed}, {what}: {:#?}",
                repaired.before.findings
            );
            for i in 0..20 {
                let found = read(&dev, &["dir", &format!("data {i}")]).expect(what);
                assert!(found == content(i, 9000 * (i as usize + 1)), "{features}, {closed}, {what}: {i}");
            }
            assert!(read(&dev, &["last"]).expect(what) == content(99, 50_000), "{features}, {what}");
            if features != DELTAS {
                Bed::new().judge(&dev).unwrap();
            }
        }
    }
}

/// Files of which two have numbers that differ in one bit; with the names and numbers of these.
fn neighbours(
    features: &str,
    prepare: impl Fn(&Volume, [(&str, Ino); 2]),
) -> (MemDevice, [(String, Ino); 2]) {
    volume(64, features, |v| {
        let inos: Vec<Ino> =
            (0..8).map(|i| make(v, v.root(), name(i).as_bytes(), FileKind::Regular)).collect();
        let at = (0..8).find(|&i| inos.contains(&(inos[i] ^ 1))).expect("numbers follow one another");
        let other = inos.iter().position(|&ino| ino == inos[at] ^ 1).expect("it is there");
        let [one, two] = [at, other].map(|i| (name(i as u32), inos[i]));
        for (ino, seed) in [(one.1, 1), (two.1, 2)] {
            v.write(ino, 0, &content(seed, 9000)).expect("write");
        }
        prepare(v, [(&one.0, one.1), (&two.0, two.1)]);
        [one, two]
    })
}

fn links_of(dev: &MemDevice, ino: Ino) -> u32 {
    read_block(dev, address_of(dev, ino)).unwrap().view::<RawInode>().i_links.get()
}

/// Once the file whose number it became got a second name, and the other one a number in lost+found.
#[test]
fn an_entry_with_another_files_number_leads_to_its_own_again() {
    for features in [PLAIN, CHECKSUMS] {
        // The file was renamed, as the kernel does it: it does not say where it is.
        let (dev, [(one, ino), (two, other)]) = neighbours(features, |_, _| {});
        let lost = |advise| advise | u64::from(Advise::LOST_PINO.bits());
        inject::change(&dev, &Target::Inode(other), "i_advise", lost).unwrap();
        inject::set(&dev, &Target::Dentry(3, two.as_bytes()), "ino", ino.into()).unwrap();
        let before = mended(&dev).before;
        assert!(before.has(Code::DentryForeign), "{features}: {:?}", before.findings);
        assert_eq!((before.losses.nameless, before.losses.renamed), (0, 1));
        assert_eq!((ino_of(&dev, &one), ino_of(&dev, &two)), (Some(ino), Some(other)), "{features}");
        assert_eq!((links_of(&dev, ino), links_of(&dev, other)), (1, 1));
        // It has two names, and one of them is lost.
        let (dev, [(one, ino), (two, other)]) = neighbours(features, |v, [_, (_, other)]| {
            v.link(other, v.root(), b"other").expect("link");
        });
        inject::set(&dev, &Target::Dentry(3, b"other"), "ino", ino.into()).unwrap();
        assert!(mended(&dev).before.has(Code::DentryForeign), "{features}");
        assert_eq!(ino_of(&dev, &one), Some(ino), "{features}");
        assert_eq!([ino_of(&dev, &two), ino_of(&dev, "other")], [Some(other); 2], "{features}");
        assert_eq!((links_of(&dev, ino), links_of(&dev, other)), (1, 2));
        Bed::new().judge(&dev).unwrap();
    }
}

#[test]
fn an_entry_with_another_files_number_goes_where_its_own_cannot_be_told() {
    for features in [PLAIN, CHECKSUMS] {
        let (dev, [(one, ino), (two, other)]) = neighbours(features, |_, _| {});
        lose(&dev, other);
        inject::set(&dev, &Target::Dentry(3, two.as_bytes()), "ino", ino.into()).unwrap();
        let before = mended(&dev).before;
        assert!(before.has(Code::DentryForeign), "{features}: {:?}", before.findings);
        assert_eq!((ino_of(&dev, &one), ino_of(&dev, &two)), (Some(ino), None), "{features}");
        assert_eq!((links_of(&dev, ino), read(&dev, &[&one]).unwrap()), (1, content(1, 9000)));
        Bed::new().judge(&dev).unwrap();
    }
}

/// Once the kernel answered every access but the owner's with an error, and a check was silent.
#[test]
fn an_acl_with_a_flipped_bit_is_what_it_was_and_one_that_is_none_goes() {
    let acl = |v: &Volume, ino: Ino| v.getxattr(ino, b"system.posix_acl_access").map_err(|e| e.errno());
    let entry = |who, perm| AclEntry { who, perm };
    let entries = vec![
        entry(Who::Owner, 6),
        entry(Who::User(70_000), 6),
        entry(Who::OwningGroup, 4),
        entry(Who::Group(50), 4),
        entry(Who::Mask, 6),
        entry(Who::Other, 4),
    ];
    let wanted = Acl::new(entries).unwrap();
    for features in [PLAIN, CHECKSUMS] {
        let (whole, ino) = volume(64, features, |v| {
            let ino = make(v, v.root(), b"file", FileKind::Regular);
            v.setxattr(ino, b"user.large", &[7; 900], XattrMode::Set).expect("setxattr");
            v.setxattr(ino, b"system.posix_acl_access", &wanted.to_xattr(), XattrMode::Set)
                .expect("setxattr");
            ino
        });
        let stored = wanted.to_disk();
        let node = (0..whole.block_count()).rev().find_map(|addr| {
            let block = read_block(&whole, addr).unwrap();
            let at = block.0.windows(stored.len()).position(|bytes| bytes == stored);
            let f = medfs_format::node::footer(&block);
            at.filter(|_| f.ino.get() == ino && f.nid.get() != ino).map(|at| (addr, at))
        });
        let (addr, at) = node.expect("it is in a node of attributes");
        let dev = whole.snapshot();
        change(&dev, addr, |block| block.0[at + 8] ^= 1); // the first tag of a user
        let before = mended(&dev).before;
        assert!(before.has(Code::Acl) && before.losses.attributes == 0, "{features}: {before:?}");
        let v = open(&Arc::new(dev));
        assert_eq!(
            (acl(&v, ino), v.getattr(ino).unwrap().perm),
            (Ok(wanted.to_xattr()), 0o664),
            "{features}"
        );
        let dev = whole.snapshot();
        change(&dev, addr, |block| block.0[at..at + stored.len()].fill(0xa5));
        let before = mended(&dev).before;
        assert!(before.has(Code::Acl) && before.losses.attributes == 1, "{features}: {before:?}");
        Bed::new().judge(&dev).unwrap();
        let v = open(&Arc::new(dev));
        assert_eq!((acl(&v, ino), v.getattr(ino).unwrap().perm), (Err(61), 0o604), "{features}");
        assert_eq!(v.getxattr(ino, b"user.large").unwrap(), [7; 900], "{features}");
    }
}
