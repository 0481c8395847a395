//! Compressed files: what they cost, that they read as what was written, which files are compressed, and what
//! the ioctls do.

use crate::common::*;
use medfs::{Algorithm, FallocateMode, FileFlags, Files, Ino, ManualClock, SetAttr, Volume};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::Block;
use medfs_format::superblock::{Feature, RawSuperblock};
use std::io;
use std::sync::{Arc, Mutex};

const NOT_PERMITTED: i32 = 1;
const BUSY_OR_TOO_LARGE: i32 = 27;
const INVALID: i32 = 22;
const NO_DATA: i32 = 61;
const NOT_SUPPORTED: i32 = 95;
const CORRUPT: i32 = 117;

fn volume() -> Arc<MemDevice> {
    Arc::new(blank(64, all_features() | Feature::COMPRESSION))
}

/// A volume that may hold deltas and compressed files.
fn volume_with_deltas() -> Arc<MemDevice> {
    Arc::new(blank_delta_and_compression(64))
}

/// Content of `len` bytes that can be compressed, and differs from page to page.
fn text(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i / 24) * (seed + 3) + i / PAGE) as u8).collect()
}

fn flags(v: &Volume, ino: Ino) -> FileFlags {
    v.getattr(ino).expect("attributes").flags
}

fn reopened(v: Volume, device: &Arc<MemDevice>, options: &str) -> Volume {
    v.close().expect("close");
    drop(v);
    judge(device);
    open_device(device, options)
}

fn errno<T>(result: medfs::Result<T>) -> i32 {
    result.err().map_or(0, |e| e.errno())
}

/// A compressed file with this content, on the device.
fn compressed(v: &Volume, name: &str, content: &[u8]) -> Ino {
    let f = file(v, v.root(), name);
    v.set_flags(f, FileFlags::COMPR).expect("chattr +c");
    write(v, f, 0, content);
    v.sync().expect("sync");
    f
}

#[test]
fn clusters_cost_what_they_hold_and_read_as_they_were_written() {
    for (options, log) in [
        ("compress=lzo", 2),
        ("compress=lz4,compress_chksum", 2),
        ("compress=zstd:5,compress_log_size=8", 8),
        ("compress=lzo-rle,compress_log_size=5", 5),
    ] {
        let device = volume();
        let v = open_device(&device, options);
        let expected = text((3 << log) * PAGE + 5000, 1);
        let f = compressed(&v, "f", b"");
        let before = v.stats();
        write(&v, f, 0, &expected);
        v.sync().expect("sync");
        let stats = v.stats();
        // Three clusters, and two pages behind them.
        assert_eq!(stats.compress.clusters, 3, "{options}");
        let plain = (3 << log) as u64 + 2;
        assert_eq!(stats.written.data - before.written.data, plain - stats.compress.saved, "{options}");
        assert!(stats.compress.saved >= 3 * (1 << log) / 2, "{options}: {:?}", stats.compress);
        assert_eq!(v.saved_blocks(f).expect("saved"), stats.compress.saved);
        // The inode has room for three of the largest clusters and no more.
        let nodes = u64::from(log == 8);
        assert_eq!(
            v.getattr(f).expect("attributes").blocks,
            (plain + nodes) * 8,
            "what is saved stays reserved"
        );
        let v = reopened(v, &device, options);
        assert!(content(&v, f) == expected, "{options}");
        let mut some = vec![0; 3000];
        v.read(f, 7 * PAGE as u64 - 9, &mut some).expect("read");
        assert!(some == expected[7 * PAGE - 9..][..3000], "{options}");
        v.close().expect("close");
    }
}

#[test]
fn what_does_not_shrink_is_written_as_it_is() {
    let device = volume();
    let v = open_device(&device, "");
    let expected: Vec<u8> = (0..8).flat_map(noise).collect();
    let f = compressed(&v, "f", &expected);
    assert_eq!((v.saved_blocks(f).expect("saved"), v.stats().compress.kept_plain), (0, 2));
    // One page of each cluster changes: only these are written.
    let before = v.stats().written.data;
    write(&v, f, 0, b"x");
    write(&v, f, 5 * PAGE as u64, b"y");
    v.fsync(f, false).expect("fsync");
    assert_eq!(v.stats().written.data - before, 2);
    let v = reopened(v, &device, "");
    assert_eq!(content(&v, f)[1..5 * PAGE], expected[1..5 * PAGE]);
}

#[test]
fn changes_of_a_cluster_keep_the_rest_of_it() {
    let device = volume();
    let options = "compress=lz4";
    let v = open_device(&device, options);
    let mut expected = text(12 * PAGE, 2);
    let f = compressed(&v, "f", &expected);
    let saved = v.saved_blocks(f).expect("saved");
    assert!(saved >= 6);
    patch(&v, f, &mut expected, 5 * PAGE + 7, b"patched");
    v.fsync(f, false).expect("fsync");
    assert_eq!(v.saved_blocks(f).expect("saved"), saved, "the cluster is compressed again");
    let v = reopened(v, &device, options);
    assert!(content(&v, f) == expected);
    // Cut inside a cluster, which is then not compressed any more, and grown again: zeros.
    v.setattr(f, &SetAttr { size: Some(6 * PAGE as u64 + 10), ..SetAttr::default() }).expect("truncate");
    v.setattr(f, &SetAttr { size: Some(12 * PAGE as u64), ..SetAttr::default() }).expect("grow");
    expected[6 * PAGE + 10..].fill(0);
    let v = reopened(v, &device, options);
    assert!(content(&v, f) == expected);
    assert!(v.saved_blocks(f).expect("saved") < saved);
    let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    v.fallocate(f, punch, PAGE as u64, 2 * PAGE as u64).expect("punch");
    expected[PAGE..3 * PAGE].fill(0);
    v.fallocate(f, FallocateMode::COLLAPSE_RANGE, 4 * PAGE as u64, PAGE as u64).expect("collapse");
    expected.drain(4 * PAGE..5 * PAGE);
    let v = reopened(v, &device, options);
    assert!(content(&v, f) == expected);
}

/// What a crash may leave of an opened cluster: never the half of one.
#[test]
fn a_changed_cluster_is_there_before_or_after() {
    let device = volume();
    let v = open_device(&device, "compress=lz4");
    let f = compressed(&v, "f", &[page(1), page(1), page(1), page(1)].concat());
    v.close().expect("close");
    crash(
        &device,
        "compress=lz4",
        |v, mark| {
            write(v, f, PAGE as u64, &page(2));
            v.checkpoint().expect("checkpoint");
            mark(1);
            write(v, f, 3 * PAGE as u64, &page(3));
            v.fsync(f, false).expect("fsync");
            mark(2);
        },
        |v, mark| {
            let found: Vec<u8> = content(v, f).chunks(PAGE).map(version).collect();
            let allowed: &[[u8; 4]] = match mark {
                0 => &[[1, 1, 1, 1], [1, 2, 1, 1], [1, 2, 1, 3]],
                1 => &[[1, 2, 1, 1], [1, 2, 1, 3]],
                _ => &[[1, 2, 1, 3]],
            };
            assert!(allowed.iter().any(|a| a[..] == found), "{found:?} after mark {mark}");
        },
    );
}

#[test]
fn flags_and_extensions_decide_which_files_are_compressed() {
    let device = volume();
    let v = open_device(&device, "compress_extension=txt,nocompress_extension=zip");
    let marks = |parent, name: &str| {
        let both = FileFlags::COMPR | FileFlags::NOCOMP;
        flags(&v, file(&v, parent, name)) & both
    };
    let (yes, never) = (dir(&v, v.root(), "yes"), dir(&v, v.root(), "never"));
    v.set_flags(yes, FileFlags::COMPR).expect("chattr +c");
    v.set_flags(never, FileFlags::NOCOMP).expect("chattr +m");
    assert_eq!(marks(v.root(), "a.bin"), FileFlags::empty());
    assert_eq!(marks(v.root(), "a.TXT"), FileFlags::COMPR);
    assert_eq!(marks(yes, "a.bin"), FileFlags::COMPR);
    assert_eq!(marks(yes, "a.zip"), FileFlags::empty(), "listed as not to be");
    assert_eq!(marks(yes, "a.db"), FileFlags::empty(), "the superblock lists it as hot");
    assert_eq!(marks(never, "a.bin"), FileFlags::NOCOMP);
    assert_eq!(marks(never, "a.txt"), FileFlags::COMPR, "the list counts more than the directory");
    assert_eq!(flags(&v, dir(&v, yes, "below")) & FileFlags::COMPR, FileFlags::COMPR);
    assert_eq!(errno(v.set_flags(yes, FileFlags::COMPR | FileFlags::NOCOMP)), INVALID);
    // A file changes sides while it is empty.
    let f = file(&v, v.root(), "f");
    v.set_flags(f, FileFlags::COMPR).expect("chattr +c");
    v.set_flags(f, FileFlags::empty()).expect("chattr -c");
    write(&v, f, 0, b"inline");
    assert_eq!(errno(v.set_flags(f, FileFlags::COMPR)), INVALID);
    v.setattr(f, &SetAttr { size: Some(0), ..SetAttr::default() }).expect("truncate");
    v.set_flags(f, FileFlags::COMPR).expect("chattr +c");
    write(&v, f, 0, &text(5 * PAGE, 1));
    assert_eq!(errno(v.set_flags(f, FileFlags::empty())), INVALID);
    v.fsync(f, false).expect("fsync");
    let v = reopened(v, &device, "");
    assert!(content(&v, f) == text(5 * PAGE, 1));
    assert_eq!(v.compress_option(f).expect("options"), (Algorithm::Lz4 as u8, 2));

    let plain = open(blank(64, all_features()));
    let f = file(&plain, plain.root(), "f.txt");
    assert_eq!(flags(&plain, f), FileFlags::empty());
    assert_eq!(errno(plain.set_flags(f, FileFlags::COMPR)), NOT_SUPPORTED);
    assert_eq!(errno(plain.saved_blocks(f)), NOT_SUPPORTED);
}

/// The compression of an inode lies among its extra attributes, behind which its addresses begin.
#[test]
fn an_inode_without_room_for_it_takes_no_compression() {
    let device = volume();
    let v = open_device(&device, "");
    v.set_flags(v.root(), FileFlags::COMPR).expect("mkfs leaves room for it");
    for n in 0..600 {
        file(&v, v.root(), &format!("a file with a name that takes some room {n}"));
    }
    let v = reopened(v, &device, "");
    assert_eq!(flags(&v, v.root()) & FileFlags::COMPR, FileFlags::COMPR);

    let device = Arc::new(blank(64, all_features()));
    for addr in [0, 1] {
        let mut block = read_block(&*device, addr).expect("reads");
        let sb = RawSuperblock::in_block_mut(&mut block);
        sb.feature = (sb.feature.get() | Feature::COMPRESSION.bits()).into();
        sb.seal();
        device.write(addr, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold)).expect("written");
    }
    let v = open_device(&device, "");
    assert_eq!(errno(v.set_flags(v.root(), FileFlags::COMPR)), NOT_SUPPORTED);
    v.close().expect("close");
    drop(v);
    judge(&device);
}

#[test]
fn saved_blocks_are_given_back_and_taken_again() {
    let device = volume();
    let v = open_device(&device, "compress=zstd");
    let expected = text(41 * PAGE, 3);
    let f = compressed(&v, "f", &expected);
    let (saved, before) = (v.saved_blocks(f).expect("saved"), v.space());
    assert!(saved >= 20);
    assert_eq!(v.release_saved_blocks(f).expect("release"), saved);
    assert_eq!(v.space().free - before.free, saved);
    assert_eq!(v.saved_blocks(f).expect("saved"), 0);
    assert_eq!(v.getattr(f).expect("attributes").blocks, (41 - saved) * 8);
    assert_eq!(errno(v.release_saved_blocks(f)), INVALID);
    assert_eq!(errno(v.write(f, 0, b"x")), NOT_PERMITTED);
    assert_eq!(errno(v.fallocate(f, FallocateMode::empty(), 0, 10)), NOT_PERMITTED);
    let cut = |v: &Volume, size| v.setattr(f, &SetAttr { size: Some(size), ..SetAttr::default() });
    assert_eq!(errno(cut(&v, 10)), INVALID);
    v.fsync(f, false).expect("fsync");
    let v = reopened(v, &device, "compress=zstd");
    assert!(content(&v, f) == expected);
    assert_eq!(errno(v.write(f, 0, b"x")), NOT_PERMITTED);
    cut(&v, 36 * PAGE as u64).expect("cut between clusters");
    let v = reopened(v, &device, "compress=zstd");
    let again = v.reserve_saved_blocks(f).expect("reserve");
    assert_eq!(v.saved_blocks(f).expect("saved"), again);
    assert_eq!(errno(v.reserve_saved_blocks(f)), INVALID);
    write(&v, f, 5, b"x");
    let v = reopened(v, &device, "compress=zstd");
    let mut expected = expected;
    expected.truncate(36 * PAGE);
    expected[5] = b'x';
    assert!(content(&v, f) == expected);
    // An empty file can be written again, and what it holds is recovered.
    v.release_saved_blocks(f).expect("release");
    cut(&v, 0).expect("truncate");
    write(&v, f, 0, &expected);
    v.fsync(f, false).expect("fsync");
    let crashed = Arc::new(device.snapshot());
    drop(v);
    let v = open_device(&crashed, "");
    assert!(content(&v, f) == expected);
    v.unlink(v.root(), b"f").expect("unlink");
    reopened(v, &crashed, "").close().expect("close");
}

#[test]
fn algorithm_and_cluster_size_of_a_file_are_chosen_while_it_is_empty() {
    let device = volume();
    let v = open_device(&device, "compress=zstd:9");
    let f = file(&v, v.root(), "f");
    assert_eq!(errno(v.compress_option(f)), NO_DATA);
    assert_eq!(errno(v.set_compress_option(f, 0, 3)), INVALID);
    v.set_flags(f, FileFlags::COMPR).expect("chattr +c");
    assert_eq!(v.compress_option(f).expect("options"), (2, 2));
    for (algorithm, log) in [(4, 3), (0, 1), (0, 9)] {
        assert_eq!(errno(v.set_compress_option(f, algorithm, log)), INVALID);
    }
    v.set_compress_option(f, Algorithm::Lzo as u8, 3).expect("chosen");
    let expected = text(900 * PAGE, 5);
    write(&v, f, 0, &expected);
    v.sync().expect("sync");
    assert_eq!(errno(v.set_compress_option(f, 2, 2)), BUSY_OR_TOO_LARGE);
    let v = reopened(v, &device, "");
    assert_eq!(v.compress_option(f).expect("options"), (0, 3));
    assert!(content(&v, f) == expected);
}

#[test]
fn a_user_compresses_and_expands_files() {
    let device = volume();
    let v = open_device(&device, "compress_mode=user");
    let expected = text(43 * PAGE, 7);
    let f = compressed(&v, "f", &expected);
    assert_eq!(v.saved_blocks(f).expect("saved"), 0);
    v.rewrite_compressed(f, true).expect("compress");
    let saved = v.saved_blocks(f).expect("saved");
    assert!(saved >= 20);
    write(&v, f, 0, b"x");
    v.fsync(f, false).expect("fsync");
    assert!(v.saved_blocks(f).expect("saved") < saved, "what is written since is not");
    v.rewrite_compressed(f, false).expect("expand");
    assert_eq!(v.saved_blocks(f).expect("saved"), 0);
    let v = reopened(v, &device, "");
    assert_eq!(errno(v.rewrite_compressed(f, true)), NOT_SUPPORTED);
    assert!(content(&v, f)[1..] == expected[1..]);
}

/// The blocks of the device that hold compressed clusters of this header.
fn find_cluster(device: &MemDevice, holds: impl Fn(&[u8]) -> bool) -> u64 {
    let found = device.written().into_iter().filter(|&at| holds(&read_block(device, at).expect("memory").0));
    let all: Vec<u64> = found.collect();
    assert_eq!(all.len(), 1, "{all:?}");
    all[0]
}

#[test]
fn damage_of_a_cluster_is_an_error_of_its_pages() {
    let kinds: [fn() -> Arc<MemDevice>; 2] = [volume, volume_with_deltas];
    let faults = [(1usize, "clen"), (5, "chksum"), (40, "chksum")];
    for (make, (place, names)) in kinds.into_iter().flat_map(|kind| faults.map(|fault| (kind, fault))) {
        let device = make();
        let v = open_device(&device, "compress=lz4,compress_chksum");
        let expected = [text(4 * PAGE, 1), vec![9; 4 * PAGE]].concat();
        let f = compressed(&v, "f", &expected);
        v.close().expect("close");
        drop(v);
        // The cluster of one value is the shortest.
        let at = find_cluster(&device, |b| {
            let clen = u32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            (60..120).contains(&clen) && b[8..24] == [0; 16] && b[24..].contains(&9)
        });
        let mut block = read_block(&*device, at).expect("memory");
        block.0[place] ^= 0x40;
        device.write(at, &[&block], WriteTag::new(Cause::Data, Temperature::Cold)).expect("memory");
        let v = open_device(&device, "");
        let mut all = vec![0; 8 * PAGE];
        assert_eq!(v.read(f, 0, &mut all).expect("one flipped bit is turned back"), all.len());
        assert!(all == expected, "{names}");
        drop(v);
        block.0[place] ^= 0x24;
        device.write(at, &[&block], WriteTag::new(Cause::Data, Temperature::Cold)).expect("memory");
        let v = open_device(&device, "");
        let mut first = vec![0; 4 * PAGE];
        assert_eq!(v.read(f, 0, &mut first).expect("the other cluster"), first.len());
        assert!(first == expected[..4 * PAGE]);
        let error = v.read(f, 6 * PAGE as u64, &mut first).expect_err("damaged");
        assert_eq!(error.errno(), CORRUPT);
        let text = error.to_string();
        assert!(text.contains(names) && text.contains("page 4") && text.contains("cluster"), "{text}");
        assert_eq!(errno(v.write(f, 5 * PAGE as u64, b"x")), CORRUPT, "nothing is lost by a write");
        assert_eq!(errno(v.write(f, 5 * PAGE as u64, &noise(3))), CORRUPT, "nor by one of a whole page");
        v.write(f, PAGE as u64, b"x").expect("the other cluster");
    }
}

type Hook = Box<dyn FnOnce() + Send>;

/// A device that does something once while file content is being written.
struct Meddler {
    dev: Arc<MemDevice>,
    hook: Mutex<Option<Hook>>,
}

impl BlockDevice for Meddler {
    fn block_count(&self) -> u64 {
        self.dev.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.dev.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        let hook = if tag.cause == Cause::Data { self.hook.lock().expect("whole").take() } else { None };
        hook.into_iter().for_each(|hook| hook());
        self.dev.write(addr, blocks, tag)
    }
    fn flush(&self) -> io::Result<()> {
        self.dev.flush()
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.dev.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        self.dev.read_only()
    }
}

#[test]
fn a_cluster_that_changes_while_it_is_written_loses_nothing() {
    let device = volume();
    let meddler = Arc::new(Meddler { dev: device.clone(), hook: Mutex::default() });
    let clock = Arc::new(ManualClock::new(START));
    let v = Arc::new(open_with(meddler.clone(), "compress=lz4", clock));
    let f = compressed(&v, "f", b"");
    let mut expected = text(8 * PAGE, 4);
    write(&v, f, 0, &expected);
    let other = v.clone();
    let meddle = move || {
        let writer = std::thread::spawn(move || write(&other, f, PAGE as u64 + 3, b"meanwhile"));
        writer.join().expect("written");
    };
    *meddler.hook.lock().expect("whole") = Some(Box::new(meddle));
    v.fsync(f, false).expect("fsync");
    assert!(meddler.hook.lock().expect("whole").is_none(), "nobody meddled");
    expected[PAGE + 3..PAGE + 12].copy_from_slice(b"meanwhile");
    assert!(content(&v, f) == expected);
    v.close().expect("close");
    drop(v);
    judge(&device);
    assert!(content(&open_device(&device, ""), f) == expected);
}

#[test]
fn a_large_compressed_file_without_a_zone_is_rolled_forward() {
    let device = volume_with_deltas();
    let v = open_device(&device, "compress_extension=*");
    let mut expected = text(1100 * PAGE, 1);
    // A log: only a database and other files keep room for deltas beside so many addresses.
    let f = file(&v, v.root(), "f.db-wal");
    write(&v, f, 0, &expected);
    v.sync().expect("sync");
    for n in 0..6 {
        patch(&v, f, &mut expected, (n * 190 + 1) * PAGE + n, b"small");
    }
    v.fsync(f, false).expect("fsync");
    let stats = v.stats();
    assert_eq!((stats.deltas.made, stats.fsyncs_with_checkpoint), (0, 0));
    let crashed = Arc::new(device.snapshot());
    drop(v);
    let v = open_device(&crashed, "");
    assert_eq!(v.stats().recovered_inodes, 1);
    assert!(content(&v, f) == expected);
    let saved = v.saved_blocks(f).expect("saved");
    assert!(saved >= 500);
    // Cut so that it loses its direct node: what that saved is not counted any more.
    expected.truncate(300 * PAGE + 5);
    let size = Some(expected.len() as u64);
    v.setattr(f, &SetAttr { size, ..SetAttr::default() }).expect("truncate");
    v.fsync(f, false).expect("fsync");
    assert_eq!(v.stats().fsyncs_with_checkpoint, 0);
    let crashed = Arc::new(crashed.snapshot());
    drop(v);
    let v = open_device(&crashed, "");
    assert_eq!(v.stats().recovered_inodes, 1);
    assert!(content(&v, f) == expected);
    v.close().expect("close");
    judge(&crashed);
}

#[test]
fn one_volume_holds_compressed_files_and_files_with_deltas() {
    let options = "compress=lz4,compress_extension=txt,compact_files=all";
    let device = volume_with_deltas();
    let v = open_device(&device, options);
    // More pages than an inode addresses.
    let mut clusters = text(1500 * PAGE, 1);
    let compressed = file(&v, v.root(), "f.db.txt");
    write(&v, compressed, 0, &clusters);
    let (plain, mut pages) = noisy_file(&v, "f.db", 1500);
    let mut device = device;
    let mut v = v;
    let mut made = Vec::new();
    for round in 0..3 {
        for n in 0..40 {
            patch(&v, compressed, &mut clusters, (n * 37 + round) * PAGE + n, b"small");
            patch(&v, plain, &mut pages, (n * 37 + round) * PAGE + n, &noise(n as u64)[..200]);
        }
        let more = text(3 * PAGE, round);
        write(&v, compressed, clusters.len() as u64, &more);
        clusters.extend(&more);
        write(&v, plain, pages.len() as u64, &more);
        pages.extend(&more);
        v.fsync(compressed, false).expect("fsync");
        v.fsync(plain, false).expect("fsync");
        let stats = v.stats();
        made.push((stats.deltas.made > 0, stats.deltas.compact_pages > 0));
        // What is new is compressed, and what changes of it later are deltas.
        assert_eq!(stats.compress.clusters > 0, round == 0);
        let crashed = Arc::new(device.snapshot());
        drop(v);
        v = open_device(&crashed, options);
        assert_eq!(v.stats().recovered_inodes, 2, "round {round}");
        assert!(content(&v, compressed) == clusters, "round {round}");
        assert!(content(&v, plain) == pages, "round {round}");
        assert!(v.saved_blocks(compressed).expect("saved") > 700, "round {round}");
        device = crashed;
    }
    assert_eq!(made, [(true, true); 3]);
    v.close().expect("close");
    drop(v);
    let v = open_device(&device, "");
    assert!(content(&v, compressed) == clusters && content(&v, plain) == pages);
}

#[test]
fn a_file_that_had_compact_pages_can_be_compressed_when_it_is_empty() {
    let device = volume_with_deltas();
    let v = open_device(&device, "compact_files=all,compress=lz4");
    let (f, mut expected) = noisy_file(&v, "f", 100);
    for n in 0..80 {
        patch(&v, f, &mut expected, n * PAGE + n, &noise(1000 + n as u64)[..200]);
    }
    v.fsync(f, false).expect("fsync");
    assert!(v.stats().deltas.compact_pages > 0, "{:?}", v.stats().deltas);
    let resize = |size| v.setattr(f, &SetAttr { size: Some(size), ..SetAttr::default() }).expect("resize");
    assert_eq!(errno(v.set_flags(f, FileFlags::COMPR)), INVALID, "it has content");
    resize(0);
    v.set_flags(f, FileFlags::COMPR).expect("chattr +c");
    let expected = text(1500 * PAGE, 3);
    write(&v, f, 0, &expected);
    v.fsync(f, false).expect("fsync");
    assert!(v.saved_blocks(f).expect("saved") > 700);
    let crashed = Arc::new(device.snapshot());
    assert!(content(&open_device(&crashed, ""), f) == expected);
    let v = reopened(v, &device, "");
    assert!(content(&v, f) == expected);
}

/// A write-ahead log of SQLite whose frames hold these pages of the database.
fn log_of(pages: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut log = vec![0; 32];
    log[..4].copy_from_slice(&0x377f_0682u32.to_be_bytes());
    log[8..12].copy_from_slice(&(PAGE as u32).to_be_bytes());
    for (number, page) in pages {
        let mut header = [0; 24];
        header[..4].copy_from_slice(&number.to_be_bytes());
        log.extend(header);
        log.extend(page);
    }
    log
}

#[test]
fn a_compressed_database_lends_no_blocks() {
    for (root, own, lends) in [
        (FileFlags::empty(), FileFlags::empty(), true),
        // The hidden file with the list of borrowers is not compressed, whatever its directory is.
        (FileFlags::COMPR, FileFlags::empty(), true),
        (FileFlags::COMPR, FileFlags::COMPR, false),
    ] {
        let device = volume_with_deltas();
        let v = open_device(&device, "compact_files=all");
        v.set_flags(v.root(), root).expect("chattr of the root");
        // Pages that no compression makes smaller: their blocks would be of use.
        let db = file(&v, v.root(), "f.db");
        v.set_flags(db, own).expect("chattr of the database");
        let mut pages: Vec<u8> = (0..16).flat_map(noise).collect();
        write(&v, db, 0, &pages);
        let wal = file(&v, v.root(), "f.db-wal");
        v.set_flags(wal, FileFlags::empty()).expect("chattr of the log");
        v.sync().expect("sync");
        let mut log = Vec::new();
        for round in 0..2 {
            let frames: Vec<(u32, Vec<u8>)> = (0..12)
                .map(|n| {
                    let mut page = noise(n);
                    page[100..103].fill(round);
                    (n as u32 + 1, page)
                })
                .collect();
            log = log_of(&frames);
            write(&v, wal, 0, &log);
            v.fsync(wal, false).expect("fsync");
        }
        assert_eq!(v.stats().deltas.repeated > 0, lends, "{root:?} {own:?}: {:?}", v.stats().deltas);
        for n in 0..16 {
            patch(&v, db, &mut pages, n * PAGE, &noise(100 + n as u64));
        }
        v.fsync(db, false).expect("fsync");
        let crashed = Arc::new(device.snapshot());
        let v = open_device(&crashed, "");
        assert!(content(&v, wal) == log, "{root:?} {own:?}");
        assert!(content(&v, db) == pages, "{root:?} {own:?}");
    }
}
