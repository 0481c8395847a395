//! A directory as a target: any mount point, of any file system.
//!
//! Locks: one mutex over the table of open files, held to find a file, not during its I/O.

use super::{Handle, Open, Target};
use medfs_device::file::read_full;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Operations below one directory. Time does not pass here: `pass` returns at once.
#[derive(Debug)]
pub struct DirTarget {
    root: PathBuf,
    open: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<u64, Arc<File>>,
    next: u64,
}

impl DirTarget {
    /// Operations below `root`, which must be a directory.
    pub fn new(root: &Path) -> io::Result<DirTarget> {
        if !fs::metadata(root)?.is_dir() {
            let message = format!("{} is not a directory", root.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, message));
        }
        Ok(DirTarget { root: root.to_owned(), open: Mutex::default() })
    }

    fn file(&self, handle: Handle) -> io::Result<Arc<File>> {
        self.open.lock().files.get(&handle.0).cloned().ok_or_else(super::volume::closed)
    }
}

impl Target for DirTarget {
    fn open(&self, path: &str, how: Open) -> io::Result<Handle> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(how != Open::Existing).truncate(how == Open::Truncate);
        let file = options.open(self.root.join(path))?;
        let mut table = self.open.lock();
        table.next += 1;
        let handle = table.next;
        table.files.insert(handle, Arc::new(file));
        Ok(Handle(handle))
    }
    fn close(&self, file: Handle) -> io::Result<()> {
        self.open.lock().files.remove(&file.0).map(drop).ok_or_else(super::volume::closed)
    }
    fn read(&self, file: Handle, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        read_full(&*self.file(file)?, buf, offset)
    }
    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file(file)?.write_all_at(data, offset)
    }
    fn truncate(&self, file: Handle, len: u64) -> io::Result<()> {
        self.file(file)?.set_len(len)
    }
    fn size(&self, file: Handle) -> io::Result<u64> {
        Ok(self.file(file)?.metadata()?.len())
    }
    fn fsync(&self, file: Handle, datasync: bool) -> io::Result<()> {
        let file = self.file(file)?;
        if datasync { file.sync_data() } else { file.sync_all() }
    }
    fn fsync_dir(&self, path: &str) -> io::Result<()> {
        File::open(self.root.join(path))?.sync_all()
    }
    fn mkdir(&self, path: &str) -> io::Result<()> {
        match fs::create_dir(self.root.join(path)) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.root.join(from), self.root.join(to))
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.root.join(path))
    }
    fn exists(&self, path: &str) -> io::Result<bool> {
        self.root.join(path).try_exists()
    }
    fn sync(&self) -> io::Result<()> {
        // The file system of the directory alone, where it listens; elsewhere each fsync was made by the workload.
        let dir = File::open(&self.root)?;
        dir.sync_all()
    }
    fn pass(&self, _time: Duration) -> io::Result<()> {
        Ok(())
    }
}
