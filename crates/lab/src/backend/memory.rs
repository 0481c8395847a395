//! A target that is nothing but bytes in memory: what a workload is recorded on. It keeps nothing of durability.
//!
//! Locks: one mutex over all files, held for each operation.

use super::{Handle, Open, Target};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::time::Duration;

/// Files in memory.
#[derive(Debug, Default)]
pub struct MemoryTarget(Mutex<Files>);

#[derive(Debug, Default)]
struct Files {
    names: HashMap<String, u64>,
    contents: HashMap<u64, Vec<u8>>,
    open: HashMap<u64, u64>,
    next: u64,
}

impl Files {
    fn content(&mut self, file: Handle) -> io::Result<&mut Vec<u8>> {
        let number = self.open.get(&file.0).ok_or_else(super::volume::closed)?;
        self.contents.get_mut(number).ok_or_else(super::volume::closed)
    }

    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn forget(&mut self, number: u64) {
        if !self.names.values().chain(self.open.values()).any(|n| *n == number) {
            self.contents.remove(&number);
        }
    }
}

fn not_found(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{path}: no such file"))
}

impl Target for MemoryTarget {
    fn open(&self, path: &str, how: Open) -> io::Result<Handle> {
        let mut files = self.0.lock();
        let number = match files.names.get(path) {
            Some(number) => *number,
            None if how == Open::Existing => return Err(not_found(path)),
            None => {
                let number = files.next();
                files.names.insert(path.to_owned(), number);
                files.contents.insert(number, Vec::new());
                number
            }
        };
        if how == Open::Truncate {
            files.contents.insert(number, Vec::new());
        }
        let handle = files.next();
        files.open.insert(handle, number);
        Ok(Handle(handle))
    }
    fn close(&self, file: Handle) -> io::Result<()> {
        let mut files = self.0.lock();
        let number = files.open.remove(&file.0).ok_or_else(super::volume::closed)?;
        files.forget(number);
        Ok(())
    }
    fn read(&self, file: Handle, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut files = self.0.lock();
        let content = files.content(file)?;
        let from = content.len().min(offset as usize);
        let len = buf.len().min(content.len() - from);
        buf[..len].copy_from_slice(&content[from..from + len]);
        Ok(len)
    }
    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut files = self.0.lock();
        let content = files.content(file)?;
        let (from, to) = (offset as usize, offset as usize + data.len());
        if content.len() < to {
            content.resize(to, 0);
        }
        content[from..to].copy_from_slice(data);
        Ok(())
    }
    fn truncate(&self, file: Handle, len: u64) -> io::Result<()> {
        self.0.lock().content(file)?.resize(len as usize, 0);
        Ok(())
    }
    fn size(&self, file: Handle) -> io::Result<u64> {
        Ok(self.0.lock().content(file)?.len() as u64)
    }
    fn fsync(&self, file: Handle, _datasync: bool) -> io::Result<()> {
        self.0.lock().content(file).map(drop)
    }
    fn fsync_dir(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }
    fn mkdir(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.0.lock();
        let number = files.names.remove(from).ok_or_else(|| not_found(from))?;
        if let Some(replaced) = files.names.insert(to.to_owned(), number) {
            files.forget(replaced);
        }
        Ok(())
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        let mut files = self.0.lock();
        let number = files.names.remove(path).ok_or_else(|| not_found(path))?;
        files.forget(number);
        Ok(())
    }
    fn exists(&self, path: &str) -> io::Result<bool> {
        Ok(self.0.lock().names.contains_key(path))
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn pass(&self, _time: Duration) -> io::Result<()> {
        Ok(())
    }
}
