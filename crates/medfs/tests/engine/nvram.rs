//! `nvram=`: what goes to the memory, what comes back from it, and which memory is refused.

use crate::common::*;
use medfs::{
    FallocateMode, Files, ManualClock, MountOptions, NvramStats, PastDamage, RenameFlags, SetAttr, Timestamp,
    Volume, open_with_nvram, repair_with_nvram,
};
use medfs_device::{BlockDevice, Cause, MemDevice, MemNvram, Nvram, Temperature, WriteTag, read_block};
use medfs_format::nvram::{Found, META_STRIDE, Meta, RawMeta};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const SIZE: u64 = 256 << 10;

fn options(more: &str) -> MountOptions {
    let mut all = MountOptions::default();
    all.parse(more).unwrap();
    all
}

pub(crate) fn opened(device: &Arc<MemDevice>, memory: &Arc<MemNvram>, more: &str) -> medfs::Result<Volume> {
    let clock = Arc::new(ManualClock::new(START));
    open_with_nvram(device.clone(), memory.clone(), options(more), clock)
}

/// A volume with two files that are in its last checkpoint.
fn with_files(more: &str) -> (Volume, Arc<MemDevice>, Arc<MemNvram>, [u32; 2]) {
    let (device, memory) = (Arc::new(blank_delta(64)), Arc::new(MemNvram::new(SIZE)));
    let v = opened(&device, &memory, more).unwrap();
    let files = two_files(&v);
    (v, device, memory, files)
}

pub(crate) fn stats(v: &Volume) -> NvramStats {
    v.stats().nvram.unwrap()
}

/// A checksum of each block that was ever written.
fn bytes(device: &MemDevice) -> Vec<(u64, u32)> {
    let checksum = |addr| (addr, medfs_format::crc::f2fs(&read_block(device, addr).unwrap().0));
    device.written().into_iter().map(checksum).collect()
}

fn meta_of(memory: &MemNvram) -> Meta {
    let bytes = memory.bytes();
    let copy = |at: usize| RawMeta::read_from_prefix(&bytes[at..]).unwrap().0;
    match Meta::in_force([&copy(0), &copy(META_STRIDE as usize)]) {
        Found::Meta(meta) => meta,
        other => panic!("{other:?}"),
    }
}

/// The memory's bytes with this metadata in both copies.
fn with_meta(memory: &MemNvram, meta: &Meta) -> Vec<u8> {
    let mut bytes = memory.bytes();
    for update in [meta.update, meta.update + 1] {
        let copy = Meta { update, ..*meta };
        let at = copy.place() as usize;
        bytes[at..at + size_of::<RawMeta>()].copy_from_slice(copy.raw().as_bytes());
    }
    bytes
}

fn byte(v: &Volume, ino: u32, offset: u64) -> u8 {
    let mut found = [0];
    assert_eq!(v.read(ino, offset, &mut found).unwrap(), 1);
    found[0]
}

/// After power loss: the device with what was stored, the memory with what was fenced.
pub(crate) fn crashed(device: &MemDevice, memory: &MemNvram) -> (Arc<MemDevice>, Arc<MemNvram>) {
    (Arc::new(device.snapshot()), Arc::new(memory.after_power_loss(|_| false)))
}

#[test]
fn an_fsync_of_little_writes_no_block_and_flushes_nothing() {
    let (v, device, memory, [a, b]) = with_files("");
    let before = (v.stats().written, v.stats().flushes);
    for round in 2..20u8 {
        write(&v, a, 100, &[round; 50]);
        v.fsync(a, false).unwrap();
    }
    write(&v, b, 7, &[9; 3]);
    v.fsync(b, true).unwrap();
    assert_eq!((v.stats().written, v.stats().flushes), before);
    assert_eq!((stats(&v).records, stats(&v).pages, stats(&v).pages_held), (19, 19, 2));
    let (device, memory) = crashed(&device, &memory);
    let again = opened(&device, &memory, "").unwrap();
    assert_eq!((byte(&again, a, 100), byte(&again, a, 99), byte(&again, b, 7)), (19, 1, 9));
    assert_eq!(stats(&again).records, 0);
}

#[test]
fn what_is_large_or_new_goes_to_the_volume_and_both_come_back_in_their_order() {
    let (v, device, memory, [a, _]) = with_files("in_place=force");
    // More than a record takes.
    let large: Vec<u8> = (0..12).flat_map(noise).collect();
    write(&v, a, 0, &[2; 40]);
    v.fsync(a, false).unwrap();
    write(&v, a, 0, &large);
    v.fsync(a, false).unwrap();
    write(&v, a, 3, &[7; 2]);
    v.fsync(a, false).unwrap();
    let new = file(&v, v.root(), "new");
    write(&v, new, 0, &[5; 10]);
    v.fsync(new, false).unwrap();
    write(&v, new, 4, &[6; 2]);
    v.fsync(new, false).unwrap();
    let NvramStats { records, placed, left_for_size, left_for_kind, .. } = stats(&v);
    assert_eq!((records, left_for_size, left_for_kind), (5, 0, 0));
    assert!(placed >= 11, "{placed} pages of the large write got blocks");
    let (device, memory) = crashed(&device, &memory);
    let again = opened(&device, &memory, "").unwrap();
    let (mut expected, large_len) = (large.clone(), large.len());
    expected[3..5].fill(7);
    let mut found = vec![0; large_len];
    again.read(a, 0, &mut found).unwrap();
    assert!(found == expected);
    let new = again.lookup(again.root(), b"new").unwrap().ino;
    assert_eq!((byte(&again, new, 3), byte(&again, new, 4)), (5, 6));
}

#[test]
fn a_page_that_was_cut_off_does_not_return() {
    let (v, device, memory, [a, _]) = with_files("");
    write(&v, a, PAGE as u64, &[3; 100]);
    v.fsync(a, false).unwrap();
    let cut = |size| v.setattr(a, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
    cut(10);
    v.fsync(a, false).unwrap();
    cut(2 * PAGE as u64);
    v.fsync(a, false).unwrap();
    assert!(stats(&v).revoked > 0);
    let (device, memory) = crashed(&device, &memory);
    let again = opened(&device, &memory, "").unwrap();
    assert_eq!((byte(&again, a, PAGE as u64), byte(&again, a, 0)), (0, 1));
}

#[test]
fn a_full_memory_is_emptied_by_a_checkpoint_and_before_that_by_a_timer() {
    let (v, device, memory, [a, _]) = with_files("nvram_threshold=50");
    let mut round = 0u32;
    // Nothing of it is superseded.
    while stats(&v).left_for_room == 0 {
        round += 1;
        write(&v, a, u64::from(round) * PAGE as u64, &noise(round.into())[..900]);
        v.fsync(a, false).unwrap();
    }
    let used = stats(&v);
    assert_eq!((used.used, used.pages_held, used.emptied, used.left_for_room), (0, 0, 1, 1));
    assert!(used.record_bytes > used.bytes * 8 / 10, "{used:?}");
    for _ in 0..3000 {
        round += 1;
        write(&v, a, u64::from(round) * PAGE as u64, &noise(round.into())[..900]);
        v.fsync(a, false).unwrap();
        v.background().unwrap();
    }
    assert_eq!(stats(&v).left_for_room, used.left_for_room, "checkpoints come before it is full");
    let expected = content(&v, a);
    let (device, memory) = crashed(&device, &memory);
    let again = opened(&device, &memory, "").unwrap();
    assert!(content(&again, a) == expected, "the ring went round");
}

#[test]
fn without_its_memory_a_crashed_volume_is_not_written_and_a_closed_one_needs_none() {
    let (v, device, memory, [a, _]) = with_files("");
    write(&v, a, 0, &[2; 40]);
    v.fsync(a, false).unwrap();
    let (crashed_device, crashed_memory) = crashed(&device, &memory);
    v.close().unwrap();
    drop(v);
    let clock = || Arc::new(ManualClock::new(START));
    let plain = Volume::open(device, options(""), clock()).unwrap();
    assert_eq!(byte(&plain, a, 0), 2, "closing wrote it");

    let device = || Arc::new(crashed_device.snapshot());
    let refused = |device: Arc<MemDevice>, memory: &Arc<MemNvram>| {
        let before = device.snapshot();
        let error = opened(&device, memory, "").unwrap_err().to_string();
        assert_eq!(bytes(&device), bytes(&before), "{error}");
        error
    };
    let error = Volume::open(device(), options(""), clock()).unwrap_err().to_string();
    assert!(error.contains("NVRAM memory (journal "), "{error}");
    assert!(refused(device(), &Arc::new(MemNvram::new(SIZE))).contains("is blank"));
    let cut = crashed_memory.bytes()[..SIZE as usize / 2].to_vec();
    assert!(refused(device(), &Arc::new(MemNvram::of(cut))).contains("has 131072 bytes, and had 262144"));
    let of_another = Meta { uuid: [9; 16], ..meta_of(&crashed_memory) };
    let of_another = Arc::new(MemNvram::of(with_meta(&crashed_memory, &of_another)));
    assert!(refused(device(), &of_another).contains("belongs to the volume 09090909-"));
    let other = Meta { generation: 3, ..meta_of(&crashed_memory) };
    let other = Arc::new(MemNvram::of(with_meta(&crashed_memory, &other)));
    assert!(refused(device(), &other).contains("holds the journal 0000000000000003, and not the volume's"));
    let mut both_copies = crashed_memory.bytes();
    (both_copies[40], both_copies[META_STRIDE as usize + 40]) = (0xff, 0xff);
    let both_copies = Arc::new(MemNvram::of(both_copies));
    let damaged = refused(device(), &both_copies);
    assert!(damaged.contains("damaged") && damaged.contains("nvram=discard"), "{damaged}");
    for memory in [&Arc::new(MemNvram::new(SIZE)), &of_another, &other, &both_copies] {
        let shown = opened(&device(), memory, "ro").unwrap();
        assert_eq!(byte(&shown, a, 0), 1, "as of the last checkpoint");
        let told = PastDamage::of(&shown).unrecovered();
        assert!(told[0].1.ends_with("the volume is shown as of its last checkpoint"), "{told:?}");
    }

    let shown = Volume::open(device(), options("ro"), clock()).unwrap();
    assert_eq!(byte(&shown, a, 0), 1, "as of the last checkpoint");
    let shown = opened(&device(), &crashed_memory, "ro").unwrap();
    assert_eq!(byte(&shown, a, 0), 2);
    let given_up = device();
    assert_eq!(byte(&Volume::open(given_up.clone(), options("nvram=discard"), clock()).unwrap(), a, 0), 1);
    Volume::open(given_up, options(""), clock()).unwrap();
}

#[test]
fn a_damaged_record_before_a_good_one_is_an_error_and_the_last_one_may_be_torn() {
    let (v, device, memory, [a, _]) = with_files("");
    for round in 2..6 {
        write(&v, a, 0, &[round; 40]);
        v.fsync(a, false).unwrap();
    }
    let whole = memory.bytes();
    let starts: Vec<usize> =
        (8192..whole.len()).step_by(64).filter(|&at| whole[at..at + 4] == *b"MDJD").collect();
    assert_eq!(starts.len(), 4);
    for (damaged, expected) in [(0, None), (2, None), (3, Some(4))] {
        let mut bytes = whole.clone();
        bytes[starts[damaged] + 30] ^= 1;
        let opened = opened(&Arc::new(device.snapshot()), &Arc::new(MemNvram::of(bytes)), "");
        match (opened, expected) {
            (Ok(v), Some(round)) => assert_eq!(byte(&v, a, 0), round),
            (Err(error), None) => assert!(error.to_string().contains("is damaged (NVRAM record"), "{error}"),
            (opened, _) => panic!("record {damaged}: {:?}", opened.map(|_| ())),
        }
    }
}

#[test]
fn options_that_it_cannot_go_with_are_one_sentence() {
    for (with, said) in
        [("fsync_mode=nobarrier", "makes no block durable"), ("durability=adaptive", "return at once")]
    {
        let error = MountOptions::default().parse(&format!("nvram=/n,{with}")).unwrap_err().to_string();
        assert!(error.starts_with("nvram= excludes") && error.contains(said), "{error}");
        // A memory that a program passes is one too.
        let passed = opened(&Arc::new(blank_delta(64)), &Arc::new(MemNvram::new(SIZE)), with);
        assert_eq!(passed.unwrap_err().to_string(), error);
    }
    let small = Arc::new(MemNvram::new(4096 * 4));
    let error = opened(&Arc::new(blank_delta(64)), &small, "").unwrap_err().to_string();
    assert!(error.contains("at least 65536 are needed"), "{error}");
    let plain = Arc::new(blank(64, all_features()));
    let error = opened(&plain, &Arc::new(MemNvram::new(SIZE)), "").unwrap_err().to_string();
    assert!(error.contains("needs a volume with deltas"), "{error}");
}

/// What a memory holds of a file is known as long as it counts, whether the file's inode stays in memory or not.
#[test]
fn a_file_whose_inode_left_memory_is_not_older_than_it_was() {
    let (v, device, memory, [a, _]) = with_files("cache=1M");
    for n in 0..400 {
        let other = file(&v, v.root(), &format!("other {n}"));
        v.release(other, 1);
    }
    write(&v, a, 40 * PAGE as u64, &[1; PAGE]);
    v.sync().unwrap();
    let forget = || {
        for n in 0..400 {
            let other = v.lookup(v.root(), format!("other {n}").as_bytes()).unwrap();
            v.release(other.ino, 1);
        }
    };
    write(&v, a, 40 * PAGE as u64, &[7; 90]);
    v.fsync(a, false).unwrap();
    v.fallocate(a, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 40 * PAGE as u64, PAGE as u64)
        .unwrap();
    v.fallocate(a, FallocateMode::empty(), 40 * PAGE as u64, PAGE as u64).unwrap();
    v.release(a, 1);
    forget();
    v.fsync(a, false).unwrap();
    assert_eq!(stats(&v).records, 2);
    let (device, memory) = crashed(&device, &memory);
    let again = opened(&device, &memory, "").unwrap();
    assert_eq!(byte(&again, a, 40 * PAGE as u64), 0);
}

/// Neither the memory that the volume had before, nor that of a copy of the volume, is taken for its own.
#[test]
fn another_memory_of_the_same_volume_is_refused() {
    let (device, first) = (Arc::new(blank_delta(64)), Arc::new(MemNvram::new(SIZE)));
    let at = |device: &Arc<MemDevice>, memory: &Arc<MemNvram>, secs| {
        let clock = Arc::new(ManualClock::new(Timestamp { secs, nanos: 5 }));
        open_with_nvram(device.clone(), memory.clone(), options(""), clock)
    };
    let v = at(&device, &first, 100).unwrap();
    let [a, _] = two_files(&v);
    v.close().unwrap();
    drop(v);
    let copy = Arc::new(device.snapshot());
    let fsynced = |device: &Arc<MemDevice>, secs, value| {
        let memory = Arc::new(MemNvram::new(SIZE));
        let v = at(device, &memory, secs).unwrap();
        write(&v, a, 0, &[value; 9]);
        v.fsync(a, false).unwrap();
        memory
    };
    let (second, of_copy) = (fsynced(&device, 200, 2), fsynced(&copy, 300, 3));
    for wrong in [&first, &of_copy] {
        let error = at(&device, wrong, 400).unwrap_err().to_string();
        assert!(error.contains("holds the journal"), "{error}");
    }
    assert_eq!(byte(&at(&device, &second, 500).unwrap(), a, 0), 2);
    assert_eq!(byte(&at(&copy, &of_copy, 600).unwrap(), a, 0), 3);
}

#[test]
fn a_memory_that_holds_anything_else_is_left_alone() {
    for at in [0, 9000, SIZE as usize - 1] {
        let mut bytes = vec![0; SIZE as usize];
        bytes[at] = b'x';
        let memory = Arc::new(MemNvram::of(bytes.clone()));
        let error = opened(&Arc::new(blank_delta(64)), &memory, "").unwrap_err().to_string();
        assert!(error.contains("holds data other than a journal"), "{error}");
        assert!(memory.bytes() == bytes);
    }
    for volume in [blank_delta(64), blank(64, medfs_format::superblock::Feature::empty())] {
        let memory = Arc::new(MemNvram::of(read_block(&volume, 0).unwrap().0.repeat(16)));
        let error = opened(&Arc::new(blank_delta(64)), &memory, "").unwrap_err().to_string();
        assert!(error.contains("is an F2FS volume") && !error.contains("init"), "{error}");
    }
}

/// What users write may look like records, in records and in what is left of them.
#[test]
fn content_that_looks_like_records_is_content() {
    let (v, device, memory, [a, _]) = with_files("nvram_threshold=95");
    let mut content = noise(3)[..980].to_vec();
    for round in 0..2000u32 {
        let at = 400 + round as usize % 64;
        content[at..at + 4].copy_from_slice(b"MDJD");
        content[at + 4..at + 12].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
        write(&v, a, u64::from(round % 3000), &content);
        v.fsync(a, true).unwrap();
        v.background().unwrap();
    }
    assert!(stats(&v).records > 500);
    let expected = byte(&v, a, 1000);
    let (device, memory) = crashed(&device, &memory);
    assert_eq!(byte(&opened(&device, &memory, "").unwrap(), a, 1000), expected);
}

/// A memory that fails from some write on.
struct Failing {
    memory: Arc<MemNvram>,
    writes_left: AtomicU64,
}

impl Nvram for Failing {
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn unit(&self) -> u64 {
        self.memory.unit()
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.memory.read(offset, bytes)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let left = self.writes_left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        left.map_err(|_| io::Error::other("worn out"))?;
        self.memory.write(offset, bytes)
    }
    fn persist(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.persist(offset, len)
    }
    fn name(&self) -> String {
        "a memory that fails".into()
    }
}

/// Also of a file that no record has.
#[test]
fn what_is_fsynced_when_the_memory_fails_is_on_the_volume() {
    for writes in 0..6 {
        let device = Arc::new(blank_delta(64));
        let memory = Arc::new(MemNvram::new(SIZE));
        // Two copies of the metadata as a journal begins.
        let failing = Failing { memory: memory.clone(), writes_left: AtomicU64::new(2 + writes) };
        let clock = Arc::new(ManualClock::new(START));
        let v = open_with_nvram(device.clone(), Arc::new(failing), options(""), clock).unwrap();
        let [a, b] = two_files(&v);
        for round in 1..5u8 {
            for (file, byte) in [(a, round), (b, round + 100)] {
                write(&v, file, 9, &[byte]);
                v.fsync(file, round % 2 == 0).unwrap();
            }
        }
        assert!(stats(&v).left_after_failure > 0);
        // The volume needs no memory any more.
        let again = open(Arc::new(device.snapshot()));
        assert_eq!((byte(&again, a, 9), byte(&again, b, 9)), (4, 104), "{writes}");
    }
}

/// A file that replaces another, a renamed one, and one that is gone: no block is written for what was
/// fsynced of their names.
#[test]
fn names_are_in_records_too() {
    let (v, device, memory, [a, b]) = with_files("");
    let root = v.root();
    let before = (v.stats().written, v.stats().flushes);
    for round in 0..5u8 {
        let new = file(&v, root, "new");
        write(&v, new, 0, &[round; 30]);
        v.fsync(new, false).unwrap();
        v.rename(root, b"new", root, b"document", RenameFlags::empty()).unwrap();
        v.fsync(root, false).unwrap();
        v.release(new, 1);
    }
    v.rename(root, b"a", root, b"renamed", RenameFlags::empty()).unwrap();
    v.fsync(a, false).unwrap();
    v.unlink(root, b"b").unwrap();
    v.release(b, 1);
    v.fsync(root, false).unwrap();
    assert_eq!((v.stats().written, v.stats().flushes), before, "{:?}", v.stats());
    let (device, memory) = crashed(&device, &memory);
    let again = opened(&device, &memory, "").unwrap();
    let found = |name: &[u8]| again.lookup(again.root(), name).ok().map(|attr| attr.ino);
    assert_eq!(byte(&again, found(b"document").unwrap(), 29), 4);
    assert_eq!(found(b"renamed"), Some(a));
    assert_eq!([found(b"a"), found(b"b"), found(b"new")], [None; 3]);
}

/// A device on which a byte of the block with this content is another.
fn with_another(device: &MemDevice, content: &[u8]) -> Arc<MemDevice> {
    let damaged = device.snapshot();
    let is_it = |&addr: &u64| read_block(&damaged, addr).unwrap().0[..] == *content;
    let addr = damaged.written().into_iter().find(is_it).expect("the block is there");
    let mut block = read_block(&damaged, addr).unwrap();
    block.0[PAGE - 1] ^= 1;
    damaged.write(addr, &[&block], WriteTag::new(Cause::Data, Temperature::Warm)).unwrap();
    Arc::new(damaged)
}

fn repaired(device: &Arc<MemDevice>, memory: Vec<u8>) -> (Volume, Vec<String>) {
    let memory = Arc::new(MemNvram::of(memory));
    let before = memory.bytes();
    let v = repair_with_nvram(device.clone(), memory.clone(), Arc::new(ManualClock::new(START))).unwrap();
    assert!(memory.bytes() == before, "a repair leaves the memory as it is");
    let told = PastDamage::of(&v).unrecovered().into_iter().map(|(_, what)| what).collect();
    (v, told)
}

/// A base on a dying card: the error names file and page, and a repair gives up that page alone.
#[test]
fn a_delta_that_makes_another_page_is_given_up_alone() {
    let (v, device, memory, [a, b]) = with_files("");
    for page in 0..3 {
        write(&v, a, page * PAGE as u64, &noise(page + 1));
    }
    v.sync().unwrap();
    for round in [7u8, 8] {
        for (file, page) in [(a, 0), (a, 1), (a, 2), (b, 0)] {
            write(&v, file, page * PAGE as u64 + 50, &[round; 30]);
        }
        [a, b].into_iter().for_each(|file| v.fsync(file, false).unwrap());
    }
    let (device, memory) = crashed(&device, &memory);
    let device = with_another(&device, &noise(2));
    let error = opened(&device, &memory, "").unwrap_err().to_string();
    assert!(error.contains(&format!("for page 1 of inode {a} (a)")), "{error}");
    assert!(error.contains("fsck --repair --nvram"), "{error}");
    let changed =
        |v: &Volume| [(a, 0), (a, 1), (a, 2), (b, 0)].map(|(f, page)| byte(v, f, page * PAGE as u64 + 50));
    let expected = [8, noise(2)[50], 8, 8];
    let shown = opened(&Arc::new(device.snapshot()), &memory, "ro").unwrap();
    assert_eq!(changed(&shown), expected, "a read-only mount shows the others");
    let (v, told) = repaired(&device, memory.bytes());
    assert_eq!(changed(&v), expected);
    assert!(told.len() == 1 && told[0].contains("for page 1 of inode"), "{told:?}");
    v.close().unwrap();
    drop(v);
    assert_eq!(changed(&open(device)), expected, "it needs no memory any more");
}

/// What was fsynced before the record that is damaged is kept: that is what there once was.
#[test]
fn a_repair_gives_up_a_damaged_record_and_those_behind_it() {
    let (v, device, memory, [a, b]) = with_files("");
    for round in 2..6 {
        for file in [a, b] {
            write(&v, file, 0, &[round; 40]);
            v.fsync(file, false).unwrap();
        }
    }
    let (device, memory) = crashed(&device, &memory);
    let mut bytes = memory.bytes();
    let starts: Vec<usize> =
        (8192..bytes.len()).step_by(64).filter(|&at| bytes[at..at + 4] == *b"MDJD").collect();
    bytes[starts[5] + 30] ^= 1;
    let (v, told) = repaired(&device, bytes);
    assert_eq!((byte(&v, a, 0), byte(&v, b, 0)), (4, 3));
    assert!(told.len() == 1 && told[0].contains("record 6 is none, and record 7 lies at"), "{told:?}");
    v.close().unwrap();
    drop(v);
    assert_eq!(byte(&open(device), a, 0), 4);
}

/// An older state of the volume, as where the last checkpoint is lost: its records are neither passed by nor forgotten.
#[test]
fn a_memory_that_a_later_checkpoint_emptied_is_refused() {
    let (v, device, memory, [a, _]) = with_files("");
    write(&v, a, 0, &[2; 40]);
    v.fsync(a, false).unwrap();
    let (older, of_older) = crashed(&device, &memory);
    v.sync().unwrap();
    let (newer, memory) = crashed(&device, &memory);
    let before = older.snapshot();
    let error = opened(&older, &memory, "").unwrap_err().to_string();
    assert!(error.contains("was emptied by a later checkpoint than the volume has"), "{error}");
    assert_eq!(bytes(&older), bytes(&before), "nothing was written");
    let (_, told) = repaired(&Arc::new(older.snapshot()), memory.bytes());
    assert!(told.len() == 1 && told[0].contains("the NVRAM was emptied"), "{told:?}");
    for (device, memory) in [(newer, memory), (older, of_older)] {
        assert_eq!(byte(&opened(&device, &memory, "").unwrap(), a, 0), 2);
    }
}

/// The same where a mount of another copy of the volume brought the records back.
#[test]
fn a_memory_that_was_emptied_with_another_copy_is_refused() {
    let (v, device, memory, [a, _]) = with_files("");
    write(&v, a, 0, &[2; 40]);
    v.fsync(a, false).unwrap();
    let (one, memory) = crashed(&device, &memory);
    let other = Arc::new(one.snapshot());
    opened(&one, &memory, "").unwrap().close().unwrap();
    let error = opened(&other, &memory, "").unwrap_err().to_string();
    assert!(error.contains("was emptied by a later checkpoint than the volume has"), "{error}");
    assert_eq!(byte(&opened(&one, &memory, "").unwrap(), a, 0), 2);
}

#[test]
fn records_that_follow_a_later_checkpoint_than_the_volume_has_are_refused() {
    let (v, device, memory, [a, _]) = with_files("");
    write(&v, a, 0, &[2; 40]);
    v.fsync(a, false).unwrap();
    let (older, _) = crashed(&device, &memory);
    v.sync().unwrap();
    write(&v, a, 0, &[3; 40]);
    v.fsync(a, false).unwrap();
    let (newer, memory) = crashed(&device, &memory);
    let before = older.snapshot();
    let error = opened(&older, &memory, "").unwrap_err().to_string();
    assert!(error.contains("has 1 records that follow a later checkpoint than the volume has"), "{error}");
    assert_eq!(bytes(&older), bytes(&before), "nothing was written");
    let shown = opened(&older, &memory, "ro").unwrap();
    let told = PastDamage::of(&shown).unrecovered();
    assert!(told[0].1.ends_with("the volume is shown as of its last checkpoint"), "{told:?}");
    let (_, told) = repaired(&older, memory.bytes());
    assert!(told.len() == 1 && told[0].contains("follow a later checkpoint"), "{told:?}");
    assert_eq!(byte(&opened(&newer, &memory, "").unwrap(), a, 0), 3);
}
