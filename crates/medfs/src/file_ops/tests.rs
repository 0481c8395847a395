//! What operations on files promise: room before the first lock, other files out of the way, and damage that
//! keeps nothing else from being written.

#![cfg(test)]

use crate::alone::{START, file_ops};
use crate::content::file::WriteTimes;
use crate::content::placement::Purpose;
use crate::error::{Error, Result};
use crate::file_ops::FileOps;
use crate::file_ops::above::{MakeDurable, Reclaim};
use crate::map::alone::{checkpoint, device, new_inode};
use crate::map::inode::{Inode, Scope};
use crate::map::refs::{Attempt, MOST_MADE_WHOLE};
use crate::types::{FallocateMode, Seek};
use medfs_device::MemDevice;
use medfs_format::compress::{Algorithm, Compression};
use medfs_format::node::FileKind;
use medfs_format::superblock::Feature;
use medfs_format::{Block, Ino};
use medfs_store::Dirty;
use medfs_sync::Mutex;
use std::ops::Range;
use std::sync::{Arc, Weak};

const PAGE: u64 = 4096;

/// Stands in for the layers above: notes what it is asked for.
#[derive(Default)]
struct Layers {
    files: Weak<FileOps>,
    asked: Mutex<Vec<String>>,
    /// Blocks that the next checkpoints give back.
    gives_back: Mutex<u64>,
}

impl Layers {
    fn note(&self, what: impl Into<String>) -> Arc<FileOps> {
        self.asked.lock().push(what.into());
        self.files.upgrade().expect("it is open")
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock())
    }
}

struct Durable(Arc<Layers>);

impl MakeDurable for Durable {
    fn checkpoint(&self) -> Result<()> {
        let files = self.0.note("checkpoint");
        files.space.release(*self.0.gives_back.lock());
        Ok(())
    }

    fn checkpointing(&self) {}

    fn checkpointed(&self) {
        self.0.note("checkpointed");
    }

    fn settle(&self) -> Result<()> {
        self.0.note("settle");
        Ok(())
    }

    fn whole(&self, inode: &Arc<Inode>, pages: &[u64]) -> Result<()> {
        self.0.note(format!("whole {} {pages:?}", inode.ino));
        Ok(())
    }

    fn unshare(&self, ino: Ino, pages: Range<u64>) -> Result<()> {
        let files = self.0.note(format!("unshare {ino} {pages:?}"));
        files.free_own_in_parts(&files.inode(ino)?, &pages)?;
        for referrer in files.refs.others(ino, pages) {
            files.refs.drop_pages(referrer.ino, 0..u64::MAX);
            let gone = files.refs.take_released(referrer.ino);
            files.refs.settle(&gone);
        }
        Ok(())
    }
}

impl Reclaim for Layers {
    fn make_room(&self, _: &FileOps) -> Result<()> {
        self.note("room");
        Ok(())
    }

    fn make_room_for(&self, files: &FileOps, blocks: u64) -> Result<()> {
        self.note(format!("room for {blocks}"));
        if files.has_room_for(blocks) { Ok(()) } else { Err(Error::NoSpace) }
    }
}

fn volume(deltas: bool) -> Arc<MemDevice> {
    device(64, deltas, Feature::COMPRESSION)
}

fn opened(text: &str, scope: Scope) -> (Arc<FileOps>, Arc<Layers>) {
    let mut files = file_ops(volume(false), text);
    files.above.scope = scope;
    let files = Arc::new(files);
    let layers = Arc::new(Layers { files: Arc::downgrade(&files), ..Layers::default() });
    files.above.begin(Box::new(Durable(layers.clone())), layers.clone());
    (files, layers)
}

fn new_file(files: &FileOps) -> Arc<Inode> {
    new_inode(files, FileKind::Regular, b"f", None)
}

fn write(files: &FileOps, ino: Ino, offset: u64, data: &[u8]) {
    assert_eq!(files.write(ino, offset, data, WriteTimes::Now).unwrap(), data.len());
}

fn all(files: &FileOps, inode: &Inode) -> Vec<u8> {
    let mut buf = vec![0xee; inode.size() as usize + 1];
    let read = files.read(inode.ino, 0, &mut buf).unwrap();
    buf.truncate(read);
    buf
}

/// Bytes that differ from page to page, and compress well.
fn text(len: usize) -> Vec<u8> {
    (0..len).map(|i| b'a' + (i / 4096 % 26) as u8).collect()
}

fn dirty(inode: &Inode) -> Vec<u64> {
    inode.lock.read().pages.dirty(..).collect()
}

#[test]
fn until_a_volume_is_open_nothing_makes_a_checkpoint() {
    let files = file_ops(volume(false), "");
    let inode = new_file(&files);
    assert!(matches!(files.checkpoint_now(), Err(Error::NoSpace)));
    assert!(matches!(files.unshare(inode.ino, 0..1).map(drop), Err(Error::NoSpace)));
    assert!(matches!(files.above.whole(&inode, &[0]), Err(Error::NoSpace)));
    files.above.checkpointed();
    assert!(files.make_room().is_ok() && files.make_room_for(10).is_ok());
    assert!(matches!(files.make_room_for(1 << 20), Err(Error::NoSpace)));
    write(&files, inode.ino, 0, b"rolled forward");
    assert_eq!(all(&files, &inode), b"rolled forward");
}

#[test]
fn what_is_above_is_asked_once_the_volume_is_open() {
    let (files, layers) = opened("", Scope::File);
    let inode = new_file(&files);
    files.above.whole(&inode, &[3]).unwrap();
    files.checkpoint_now().unwrap();
    files.above.checkpointed();
    files.make_room_for(9).unwrap();
    let whole = format!("whole {} [3]", inode.ino);
    assert_eq!(layers.take(), [&whole[..], "checkpoint", "checkpointed", "room for 9"]);
    assert!(files.has_room_for(100) && !files.has_room_for(1 << 20));
}

#[test]
fn room_is_made_before_every_change() {
    let (files, layers) = opened("", Scope::File);
    let inode = new_file(&files);
    let room = ["settle", "room"];
    write(&files, inode.ino, 0, b"new");
    assert_eq!(layers.take(), room);
    files.fallocate(inode.ino, FallocateMode::empty(), 0, 5 * PAGE).unwrap();
    assert_eq!(layers.take(), room);
    drop(files.begin().unwrap());
    assert_eq!(layers.take(), room);
    files.change_settled(&inode, |_| Ok(())).unwrap();
    assert_eq!(layers.take(), room);
    files.write_back(&inode).unwrap();
    assert_eq!(layers.take()[..2], room);
    // Nothing is asked for a change that cannot be.
    files.io.stop_writing("a test says so");
    assert_eq!(files.write(inode.ino, 0, b"x", WriteTimes::Now).unwrap_err().errno(), 30);
    assert_eq!(files.fallocate(inode.ino, FallocateMode::empty(), 0, 1).unwrap_err().errno(), 30);
    assert_eq!(layers.take(), Vec::<String>::new());
    assert_eq!(&all(&files, &inode)[..3], b"new", "it can be read");
}

#[test]
fn a_write_sets_the_times_unless_a_cache_above_keeps_them() {
    let (files, _) = opened("", Scope::File);
    let inode = new_file(&files);
    files.write(inode.ino, 9000, b"end", WriteTimes::Kept).unwrap();
    assert_eq!(files.attributes(&inode).mtime.secs, 0);
    write(&files, inode.ino, 4090, b"over a border");
    assert_eq!(files.attributes(&inode).mtime, START);
    let mut model = vec![0; 9003];
    model[4090..4103].copy_from_slice(b"over a border");
    model[9000..].copy_from_slice(b"end");
    assert_eq!(all(&files, &inode), model);
    assert_eq!(files.seek(inode.ino, 0, Seek::Hole).unwrap(), 9003);
}

#[test]
fn ranges_are_copied_in_and_between_files() {
    let (files, _) = opened("", Scope::File);
    let (from, to) = (new_file(&files), new_file(&files));
    let data: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
    write(&files, from.ino, 0, &data);
    assert_eq!(files.copy_range(from.ino, 100, to.ino, 50, u64::MAX).unwrap(), 2_999_900);
    let copy = all(&files, &to);
    assert!(copy[..50] == [0; 50] && copy[50..] == data[100..], "over more than one chunk");
    assert_eq!(files.copy_range(from.ino, 3_000_000, to.ino, 0, 10).unwrap(), 0, "from behind the end");
    let overlap = files.copy_range(from.ino, 0, from.ino, 999, 1000);
    assert_eq!(overlap.unwrap_err().errno(), 22);
    assert_eq!(files.copy_range(from.ino, 0, from.ino, 1000, 1000).unwrap(), 1000, "they touch");
    assert_eq!(all(&files, &from)[1000..2000], data[..1000]);
}

#[test]
fn ranges_are_punched_and_moved() {
    let (files, layers) = opened("", Scope::File);
    let inode = new_file(&files);
    let mut model = text(8 * 4096);
    write(&files, inode.ino, 0, &model);
    let change = |mode, offset, len| files.fallocate(inode.ino, mode, offset, len);
    change(FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 100, 5000).unwrap();
    model[100..5100].fill(0);
    change(FallocateMode::COLLAPSE_RANGE, PAGE, 2 * PAGE).unwrap();
    model.drain(4096..3 * 4096);
    change(FallocateMode::INSERT_RANGE, 3 * PAGE, PAGE).unwrap();
    model.splice(3 * 4096..3 * 4096, [0; 4096]);
    change(FallocateMode::KEEP_SIZE, 0, 50 * PAGE).unwrap();
    assert!(all(&files, &inode) == model);
    assert!(!layers.take().contains(&"checkpoint".into()), "there was room");
}

#[test]
fn a_checkpoint_is_made_once_where_pages_that_move_find_no_room() {
    let (files, layers) = opened("", Scope::File);
    let inode = new_file(&files);
    let model = text(8 * 4096);
    write(&files, inode.ino, 0, &model);
    files.write_back(&inode).unwrap();
    files.space.reserve(files.space.counts().free()).unwrap();
    layers.take();
    let collapse = || files.fallocate(inode.ino, FallocateMode::COLLAPSE_RANGE, 0, PAGE);
    let checkpoints = || layers.take().iter().filter(|asked| *asked == "checkpoint").count();
    assert!(matches!(collapse(), Err(Error::NoSpace)));
    assert_eq!(checkpoints(), 1);
    assert!(all(&files, &inode) == model, "the file is as it was");
    *layers.gives_back.lock() = 100;
    collapse().unwrap();
    assert_eq!(checkpoints(), 1);
    assert!(all(&files, &inode) == model[4096..]);
}

#[test]
fn an_atomic_write_that_is_given_up_leaves_the_file() {
    let (files, _) = opened("", Scope::File);
    let inode = new_file(&files);
    let model = text(3 * 4096);
    write(&files, inode.ino, 0, &model);
    assert_eq!(files.atomic_abort(inode.ino).unwrap_err().errno(), 22, "none is open");
    files.atomic_start(inode.ino).unwrap();
    assert_eq!(dirty(&inode), [0; 0], "what was written before is the file's");
    files.atomic_start(inode.ino).unwrap();
    let before = files.space.counts().free();
    write(&files, inode.ino, 4000, &[9; 200]);
    assert_eq!((before - files.space.counts().free(), &all(&files, &inode)[4000..4200]), (2, &[9; 200][..]));
    files.atomic_abort(inode.ino).unwrap();
    assert!(all(&files, &inode) == model && files.space.counts().free() == before);
    files.atomic_start(inode.ino).unwrap();
    write(&files, inode.ino, 0, b"draft");
    files.io.stop_writing("a test says so");
    files.atomic_abort(inode.ino).unwrap();
    assert!(all(&files, &inode) == model, "it ends where nothing is written any more");
}

#[test]
fn other_files_are_made_whole_before_an_operation_goes_on() {
    let (files, layers) = opened("", Scope::File);
    let (ino, referrer) = (new_file(&files).ino, new_file(&files).ino);
    for (page, blocked) in [(3, false), (4, true)] {
        files.refs.add(referrer, 0, vec![(ino, page)]);
        layers.take();
        let mut attempts = 0;
        let done = files.with_unshared(|| {
            attempts += 1;
            assert!(attempts < 9, "it never ends");
            let frozen = !files.refs.add(referrer, 1, vec![(ino, page)]);
            match (files.refs.others_need(ino, page.into()..9), blocked) {
                (true, false) => Ok(Attempt::Shared(ino, 3..4)),
                (true, true) => Ok(Attempt::Blocked(ino, vec![4])),
                (false, _) if attempts == 2 => Ok(Attempt::Again),
                (false, _) => Ok(Attempt::Done(frozen)),
            }
        });
        assert_eq!((done.unwrap(), attempts), (true, 3), "no page became a source meanwhile");
        assert_eq!(layers.take(), [format!("unshare {ino} {page}..{}", page + 1)]);
        assert!(files.refs.add(referrer, 1, vec![(ino, 8)]), "afterwards one may");
        files.refs.committed();
    }
    let failed = files.with_unshared(|| Err::<Attempt<()>, _>(Error::NoSpace));
    assert!(matches!(failed, Err(Error::NoSpace)));
}

#[test]
fn a_damaged_page_keeps_no_other_from_being_written() {
    let (files, _) = opened("", Scope::File);
    let (damaged, sound) = (new_file(&files), new_file(&files));
    for inode in [&damaged, &sound] {
        write(&files, inode.ino, 0, &text(6 * 4096));
        write(&files, inode.ino, 1500 * PAGE, &text(4096));
    }
    // The node that leads to the last page is one of another file.
    let of_other = sound.raw(|r| r.i_nid[0]);
    files.edit(&damaged, Dirty::Full, |r| r.i_nid[0] = of_other);
    let error = files.write_back_all().unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    assert_eq!((dirty(&damaged), dirty(&sound)), (vec![1500], vec![]));
    assert!(files.write_back(&sound).is_ok() && files.write_back(&damaged).is_err());
}

#[test]
fn dirty_pages_stay_below_half_of_the_cache() {
    let (files, layers) = opened("cache=2M", Scope::File);
    let (first, second) = (new_file(&files), new_file(&files));
    let limit = files.pages.capacity() / 2;
    write(&files, first.ino, 0, &vec![1; (limit - 1) * 4096]);
    assert_eq!(files.pages.dirty(), limit - 1);
    write(&files, second.ino, 0, &[2; 4096]);
    assert_eq!(files.pages.dirty(), limit);
    write(&files, second.ino, 4096, &[2; 4096]);
    assert_eq!((dirty(&second).len(), files.pages.dirty()), (0, limit - 1), "its own pages first");
    write(&files, first.ino, 0, &vec![1; (limit + 1) * 4096]);
    assert_eq!(files.pages.dirty(), 0);
    assert!(!layers.take().contains(&"checkpoint".into()));

    let (files, layers) = opened("cache=2M", Scope::Volume);
    write(&files, new_file(&files).ino, 0, &vec![1; (limit + 1) * 4096]);
    assert_eq!(layers.take().last().unwrap(), "checkpoint", "of the whole volume, or nothing");
    assert!(files.pages.dirty() > limit);
}

#[test]
fn a_checkpoint_takes_along_what_it_would_lose_and_no_more() {
    for scope in [Scope::File, Scope::Volume] {
        let (files, _) = opened("", scope);
        let (file, moved) = (new_file(&files), new_file(&files));
        let dir = new_inode(&files, FileKind::Directory, b"d", None);
        for inode in [&file, &moved] {
            write(&files, inode.ino, 0, &text(4096));
        }
        moved.lock.write().with_checkpoint = true;
        files
            .change_alone(&dir, |state| {
                let fill = |b: &mut Block| b.0[0] = 1;
                files.change_page(&dir, state, 0, None, true, fill).map(|_| files.set_size(&dir, PAGE))
            })
            .unwrap();
        let alone = files.ops.alone();
        files.write_back_for_checkpoint().unwrap();
        drop(alone);
        assert_eq!((dirty(&dir).len(), dirty(&moved).len()), (0, 0));
        assert_eq!(dirty(&file).len(), usize::from(scope == Scope::File));
    }
}

#[test]
fn room_that_did_not_help_is_not_asked_for_again() {
    let (files, layers) = opened("", Scope::File);
    let inode = new_file(&files);
    write(&files, inode.ino, 0, &text(40 * 4096));
    let mut left = None;
    layers.take();
    files.make_room_again(&inode, &mut left).unwrap();
    assert_eq!((layers.take(), left), (vec!["room for 2".to_owned()], Some(40)));
    assert!(matches!(files.make_room_again(&inode, &mut left), Err(Error::NoSpace)));
    assert_eq!(layers.take(), Vec::<String>::new());
    let mut left = Some(41);
    files.make_room_again(&inode, &mut left).unwrap();
}

/// Writes small changes into pages of a file that has blocks, and makes all of it durable.
fn with_deltas(device: &Arc<MemDevice>) -> (Ino, Vec<u8>) {
    let files = file_ops(device.clone(), "delta=inline");
    let inode = new_inode(&files, FileKind::Regular, b"a.db", None);
    let mut model = text(6 * 4096);
    write(&files, inode.ino, 0, &model);
    files.write_back(&inode).unwrap();
    for at in [100, 5000, 9000] {
        write(&files, inode.ino, at, b"changed");
        model[at as usize..at as usize + 7].copy_from_slice(b"changed");
    }
    files.write_back_for(&inode, Purpose::Fsync { datasync: false }).unwrap();
    assert_eq!(files.deltas().delta_pages(&inode, 0..9).unwrap(), [0, 1, 2]);
    checkpoint(&files);
    (inode.ino, model)
}

#[test]
fn folding_leaves_whole_pages_and_no_deltas() {
    let device = volume(true);
    let (ino, model) = with_deltas(&device);
    let makes = file_ops(device.clone(), "delta=inline");
    assert_eq!(makes.fold_deltas(&mut |_, _| {}).unwrap_err().errno(), 22);
    drop(makes);
    let files = file_ops(device, "delta=off");
    let mut seen = Vec::new();
    let folded = files.fold_deltas(&mut |done, of| seen.push((done, of))).unwrap();
    let inodes = u64::from(files.space.counts().valid_inodes);
    assert_eq!((folded.inodes, folded.files, folded.pages), (inodes, 1, 3));
    assert_eq!(seen, (1..=inodes).map(|done| (done, inodes)).collect::<Vec<_>>());
    let inode = files.inode(ino).unwrap();
    assert!(!files.deltas().has_deltas(&inode) && dirty(&inode).is_empty());
    assert!(all(&files, &inode) == model);
    assert_eq!(files.fold_deltas(&mut |_, _| {}).unwrap().pages, 0, "there is nothing left");
}

#[test]
fn a_block_that_many_pages_of_the_file_are_made_from_goes_after_them() {
    let (files, layers) = opened("", Scope::File);
    let inode = new_file(&files);
    write(&files, inode.ino, 0, &text(9 * 4096));
    let users = |many: usize| {
        (10..10 + many as u32)
            .for_each(|user| assert!(files.refs.add(inode.ino, user, vec![(inode.ino, 2)])));
        layers.take();
    };
    let unshared = |pages: Range<u64>| format!("unshare {} {pages:?}", inode.ino);
    let punch =
        || files.fallocate(inode.ino, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 2 * PAGE, PAGE);
    users(MOST_MADE_WHOLE);
    punch().unwrap();
    assert!(!layers.take().contains(&unshared(2..3)), "in one hold of the lock");
    users(3 * MOST_MADE_WHOLE);
    punch().unwrap();
    assert!(layers.take().contains(&unshared(2..3)));
}

#[test]
fn pages_are_made_whole_in_memory_on_demand() {
    let device = volume(true);
    let (ino, model) = with_deltas(&device);
    let files = file_ops(device, "delta=inline");
    let inode = files.inode(ino).unwrap();
    files.make_pages_whole(&inode, &[0, 2]).unwrap();
    assert_eq!((dirty(&inode), files.deltas().delta_pages(&inode, 0..9).unwrap()), (vec![0, 2], vec![1]));
    assert!(all(&files, &inode) == model);
}

fn saved(inode: &Inode) -> u64 {
    inode.raw(|r| r.extra().unwrap().i_compr_blocks.get())
}

#[test]
fn compressed_files_are_rewritten_and_their_savings_released() {
    let (files, _) = opened("compress_mode=user", Scope::File);
    let compression =
        Compression { algorithm: Algorithm::Lz4, log_cluster_size: 2, checksum: false, level: 0 };
    let inode = new_inode(&files, FileKind::Regular, b"c", Some(compression));
    let (ino, model) = (inode.ino, text(300 * 4096));
    files.set_compress_option(ino, Algorithm::Zstd as u8, 3).unwrap();
    assert_eq!(files.compression(&inode).unwrap().cluster_pages(), 8);
    write(&files, ino, 0, &model);
    files.write_back_compressed(ino).unwrap();
    assert_eq!((saved(&inode), dirty(&inode).len()), (0, 0), "the user decides");
    files.rewrite_clusters(ino, true).unwrap();
    assert!(saved(&inode) > 200 && dirty(&inode).is_empty() && all(&files, &inode) == model);
    assert!(files.set_compress_option(ino, 0, 2).is_err(), "it has blocks");
    let before = files.space.counts().free();
    let released = files.release_saved(ino).unwrap();
    assert!(released > 200 && files.space.counts().free() == before + released);
    assert_eq!(files.rewrite_clusters(ino, false).unwrap_err().errno(), 22);
    assert_eq!(files.write(ino, 0, b"x", WriteTimes::Now).unwrap_err().errno(), 1);
    assert_eq!(files.reserve_saved(ino).unwrap(), released);
    assert_eq!(files.space.counts().free(), before);
    files.rewrite_clusters(ino, false).unwrap();
    assert!(saved(&inode) == 0 && all(&files, &inode) == model);
}

#[test]
fn clusters_are_rewritten_only_where_the_user_decides() {
    let (files, _) = opened("", Scope::File);
    let inode = new_file(&files);
    assert_eq!(files.rewrite_clusters(inode.ino, true).unwrap_err().errno(), 95);
    assert!(files.release_saved(inode.ino).is_err(), "it is not compressed");
}
