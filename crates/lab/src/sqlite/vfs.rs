//! SQLite's file operations on a [`Target`]: a VFS, so that every page, frame, journal record and fsync of a
//! real SQLite reaches the target as SQLite makes it.
//!
//! It behaves as SQLite's own VFS for Unix does where that can be seen by a file system: a new journal's
//! directory is synced after the journal, a deleted journal's directory where SQLite asks for it, sectors are
//! overwritten without harm to their neighbours. There are no locks and no shared memory: one connection
//! opens one database ([`super::SqliteFs::open`]), and a log needs `locking_mode=EXCLUSIVE`.
//!
//! # Why there is `unsafe` here
//!
//! SQLite calls through two tables of C functions and passes back the pointers it was given. Each function below states
//! what it relies on; what they share is:
//!
//! * `sqlite3_file*` is memory of `szOsFile` bytes that SQLite allocated for a [`File`] and passes to no
//!   other code; `open` writes all of it before it returns `SQLITE_OK`, and SQLite calls the others only
//!   after that.
//! * `sqlite3_vfs*` is the one registered, whose `pAppData` is a [`Shared`] that lives until it is unregistered.
//! * Names are C strings that live for the call; buffers have the length that comes with them.
#![allow(unsafe_code)]

use crate::backend::{Handle, Open, Target, split};
use rusqlite::ffi;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Longest name of a file.
const NAME_MAX: usize = 512;
/// Sector size that SQLite assumes on Unix.
const SECTOR: c_int = 4096;
/// Milliseconds of the Julian day at which time begins: 2024-07-03.
const START_MILLIS: i64 = 210_866_760_000_000 + 1_720_000_000_000;

/// What the functions share.
struct Shared {
    target: Arc<dyn Target>,
    temporary: AtomicU64,
}

/// A registered VFS; it is unregistered when dropped, when no connection may use it any more.
pub(super) struct Registered {
    vfs: Box<ffi::sqlite3_vfs>,
    name: CString,
    shared: *mut Shared,
}

// SAFETY: the pointers in it are read by SQLite, under its own mutex, and by `drop`; what they lead to is
// `Send + Sync`.
unsafe impl Send for Registered {}
// SAFETY: as above; nothing of it changes after it is registered.
unsafe impl Sync for Registered {}

/// An open file, as SQLite sees it: its first field is what SQLite knows.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    shared: *const Shared,
    handle: Handle,
    /// The path, where something is left to do with it: sync its folder after the first sync, or remove it when closed.
    path: *mut CString,
    sync_folder: bool,
    remove: bool,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

impl Registered {
    /// Registers a VFS over `target` under a name of its own.
    pub(super) fn new(target: Arc<dyn Target>) -> Result<Registered, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = CString::new(format!("medfs-lab-{number}")).expect("no zero byte in it");
        let shared = Box::into_raw(Box::new(Shared { target, temporary: AtomicU64::new(0) }));
        let mut vfs = Box::new(ffi::sqlite3_vfs {
            iVersion: 2,
            szOsFile: size_of::<File>() as c_int,
            mxPathname: NAME_MAX as c_int,
            pNext: ptr::null_mut(),
            zName: name.as_ptr(),
            pAppData: shared.cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: Some(current_millis),
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        });
        // SAFETY: the structure is complete, at an address that stays (boxed), and unregistered before it goes.
        let code = unsafe { ffi::sqlite3_vfs_register(&mut *vfs, 0) };
        let registered = Registered { vfs, name, shared };
        if code == ffi::SQLITE_OK {
            Ok(registered)
        } else {
            Err(format!("SQLite refuses a VFS (code {code})"))
        }
    }

    /// The name to open databases with.
    pub(super) fn name(&self) -> &CStr {
        &self.name
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: it was registered, or never; no connection is left, as connections keep an `Arc` of their
        // file system.
        unsafe {
            ffi::sqlite3_vfs_unregister(&mut *self.vfs);
            drop(Box::from_raw(self.shared));
        }
    }
}

/// Makes SQLite's random numbers begin anew from `seed`: nonces of journals and salts of logs.
pub(super) fn seed_random(seed: u32) {
    let none: *mut ffi::sqlite3 = ptr::null_mut();
    // SAFETY: this code takes an int and a connection or none. A seed of 0 would mean none.
    unsafe { ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_PRNG_SEED, seed.max(1) as c_int, none) };
}

/// SAFETY: `file` is a [`File`] that [`open`] filled (see the module); no other reference to it exists during the call.
unsafe fn file<'f>(file: *mut ffi::sqlite3_file) -> &'f mut File {
    unsafe { &mut *file.cast::<File>() }
}

impl File {
    fn target(&self) -> &dyn Target {
        // SAFETY: `shared` outlives every open file: see [`Registered`].
        unsafe { &*(*self.shared).target }
    }
    fn path(&self) -> &str {
        // SAFETY: `path` was made by `open` from a box and is freed by `close`; it came from valid UTF-8.
        unsafe { (*self.path).to_str().unwrap_or_default() }
    }
}

fn code(result: io::Result<()>, failure: c_int) -> c_int {
    match result {
        Ok(()) => ffi::SQLITE_OK,
        Err(e) if e.kind() == io::ErrorKind::StorageFull => ffi::SQLITE_FULL,
        Err(_) => failure,
    }
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    out: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: see the module; `out` holds nothing yet but has room for a `File`, and without methods it is not closed.
    let shared = unsafe {
        (*out).pMethods = ptr::null();
        (*vfs).pAppData.cast::<Shared>()
    };
    // SAFETY: `shared` lives as long as the VFS is registered.
    let known = unsafe { &*shared };
    let path = if name.is_null() {
        let number = known.temporary.fetch_add(1, Ordering::Relaxed);
        CString::new(format!("sqlite-temporary-{number}")).expect("no zero byte in it")
    } else {
        // SAFETY: a C string, valid for the call.
        unsafe { CStr::from_ptr(name) }.to_owned()
    };
    let Ok(text) = path.to_str() else { return ffi::SQLITE_CANTOPEN };
    let create = flags & ffi::SQLITE_OPEN_CREATE != 0;
    let is_new = create && !known.target.exists(text).unwrap_or(false);
    let journal = ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL | ffi::SQLITE_OPEN_WAL;
    let Ok(handle) = known.target.open(text, if create { Open::Create } else { Open::Existing }) else {
        return ffi::SQLITE_CANTOPEN;
    };
    let opened = File {
        base: ffi::sqlite3_file { pMethods: &METHODS },
        shared,
        handle,
        path: Box::into_raw(Box::new(path)),
        sync_folder: is_new && flags & journal != 0,
        remove: flags & ffi::SQLITE_OPEN_DELETEONCLOSE != 0,
    };
    // SAFETY: `out` has room for a `File`, aligned as SQLite aligns what it allocates (8 bytes), and holds
    // nothing to drop.
    unsafe {
        ptr::write(out.cast::<File>(), opened);
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(f: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: see the module; SQLite does not use the file after this, so its path is freed here, once.
    let (f, path) = unsafe {
        let f = file(f);
        let path = Box::from_raw(f.path);
        f.path = ptr::null_mut();
        (f, path)
    };
    let closed = f.target().close(f.handle);
    let removed = if f.remove { f.target().unlink(path.to_str().unwrap_or_default()) } else { Ok(()) };
    f.base.pMethods = ptr::null();
    code(closed.and(removed), ffi::SQLITE_IOERR_CLOSE)
}

unsafe extern "C" fn read(f: *mut ffi::sqlite3_file, to: *mut c_void, len: c_int, offset: i64) -> c_int {
    // SAFETY: `to` has `len` bytes, which SQLite reads only after this wrote all of them.
    let (f, buf) = unsafe { (file(f), std::slice::from_raw_parts_mut(to.cast::<u8>(), len as usize)) };
    buf.fill(0);
    match f.target().read(f.handle, offset as u64, buf) {
        Ok(read) if read == buf.len() => ffi::SQLITE_OK,
        Ok(_) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(_) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(f: *mut ffi::sqlite3_file, from: *const c_void, len: c_int, offset: i64) -> c_int {
    // SAFETY: `from` has `len` bytes.
    let (f, data) = unsafe { (file(f), std::slice::from_raw_parts(from.cast::<u8>(), len as usize)) };
    code(f.target().write(f.handle, offset as u64, data), ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(f: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: see the module.
    let f = unsafe { file(f) };
    code(f.target().truncate(f.handle, size as u64), ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(f: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: see the module.
    let f = unsafe { file(f) };
    let mut result = f.target().fsync(f.handle, flags & ffi::SQLITE_SYNC_DATAONLY != 0);
    if f.sync_folder && result.is_ok() {
        f.sync_folder = false;
        result = f.target().fsync_dir(split(f.path()).0);
    }
    code(result, ffi::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(f: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: see the module; `size` is a place for the answer.
    let (f, size) = unsafe { (file(f), &mut *size) };
    let found = f.target().size(f.handle).map(|bytes| *size = bytes as i64);
    code(found, ffi::SQLITE_IOERR_FSTAT)
}

unsafe extern "C" fn lock(_f: *mut ffi::sqlite3_file, _level: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_f: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: a place for the answer.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_f: *mut ffi::sqlite3_file, _op: c_int, _arg: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_f: *mut ffi::sqlite3_file) -> c_int {
    SECTOR
}

unsafe extern "C" fn device_characteristics(_f: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

/// SAFETY: `vfs` is the one registered, `name` a C string, both for the length of the call.
unsafe fn named<'v>(vfs: *mut ffi::sqlite3_vfs, name: *const c_char) -> (&'v dyn Target, &'v str) {
    unsafe {
        let shared = &*(*vfs).pAppData.cast::<Shared>();
        (&*shared.target, CStr::from_ptr(name).to_str().unwrap_or_default())
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_folder: c_int) -> c_int {
    // SAFETY: see the module.
    let (target, name) = unsafe { named(vfs, name) };
    match target.unlink(name) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return ffi::SQLITE_IOERR_DELETE_NOENT,
        Err(_) => return ffi::SQLITE_IOERR_DELETE,
        Ok(()) => {}
    }
    let synced = if sync_folder != 0 { target.fsync_dir(split(name).0) } else { Ok(()) };
    code(synced, ffi::SQLITE_IOERR_DIR_FSYNC)
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: see the module; `out` is a place for the answer.
    let ((target, name), out) = unsafe { (named(vfs, name), &mut *out) };
    code(target.exists(name).map(|is| *out = c_int::from(is)), ffi::SQLITE_IOERR_ACCESS)
}

unsafe extern "C" fn full_pathname(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    len: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: a C string, and room for `len` bytes; the string and its zero fit or nothing is written.
    unsafe {
        let bytes = CStr::from_ptr(name).to_bytes_with_nul();
        if bytes.len() > len as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_vfs: *mut ffi::sqlite3_vfs, len: c_int, out: *mut c_char) -> c_int {
    // SAFETY: room for `len` bytes. They are the same each time: chance comes from the seed (see `seed_random`).
    unsafe { ptr::write_bytes(out, 7, len as usize) };
    len
}

unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, micros: c_int) -> c_int {
    micros
}

unsafe extern "C" fn current_time(_vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: a place for the answer.
    unsafe { *out = START_MILLIS as f64 / 86_400_000.0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn current_millis(_vfs: *mut ffi::sqlite3_vfs, out: *mut i64) -> c_int {
    // SAFETY: a place for the answer.
    unsafe { *out = START_MILLIS };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(_vfs: *mut ffi::sqlite3_vfs, _len: c_int, _out: *mut c_char) -> c_int {
    0
}
