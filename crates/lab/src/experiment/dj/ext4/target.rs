//! The model of ext4 as a target.

use super::{Ext4, INODE_BITMAP, INODES, METADATA, not_found};
use crate::backend::volume::closed;
use crate::backend::{Handle, Open, Target};
use std::io;
use std::time::Duration;

impl Target for Ext4 {
    fn open(&self, path: &str, how: Open) -> io::Result<Handle> {
        let mut state = self.0.lock();
        let known = state.names.get(path).copied();
        let number = match known {
            Some(number) => number,
            None if how == Open::Existing => return Err(not_found(path)),
            None => state.create(path),
        };
        state.next += 1;
        let handle = Handle(state.next);
        state.open.insert(handle, number);
        if how == Open::Truncate && state.files.get(&number).is_some_and(|file| !file.now.is_empty()) {
            state.truncate(handle, 0)?;
        }
        Ok(handle)
    }
    fn close(&self, file: Handle) -> io::Result<()> {
        self.0.lock().open.remove(&file).map(drop).ok_or_else(closed)
    }
    fn read(&self, file: Handle, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        let (_, file) = state.file(file)?;
        let rest = file.now.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.lock().write(file, offset as usize, data)
    }
    fn truncate(&self, file: Handle, len: u64) -> io::Result<()> {
        self.0.lock().truncate(file, len as usize)
    }
    fn size(&self, file: Handle) -> io::Result<u64> {
        Ok(self.0.lock().file(file)?.1.now.len() as u64)
    }
    fn fsync(&self, file: Handle, datasync: bool) -> io::Result<()> {
        self.0.lock().fsync(file, datasync)
    }
    fn fsync_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        let (number, _) = state.folder(path);
        if !(state.transaction.contains(&(METADATA | (number / INODES))) && state.commit()) {
            state.flush();
        }
        Ok(())
    }
    fn mkdir(&self, path: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        if !state.folders.contains_key(path) {
            let (number, _) = state.folder(path);
            state.name(path);
            state.inode(number);
            state.transaction.insert(INODE_BITMAP);
        }
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        let number = state.names.remove(from).ok_or_else(|| not_found(from))?;
        if let Some(replaced) = state.names.remove(to) {
            state.remove(to, replaced);
        }
        let named_in = state.name(to);
        if let Some(file) = state.files.get_mut(&number) {
            let before = std::mem::replace(&mut file.named_in, named_in);
            (file.grown, file.touched) = (true, true);
            state.unname(from, before);
        }
        state.inode(number);
        state.names.insert(to.to_owned(), number);
        Ok(())
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        let number = state.names.remove(path).ok_or_else(|| not_found(path))?;
        state.remove(path, number);
        Ok(())
    }
    fn exists(&self, path: &str) -> io::Result<bool> {
        Ok(self.0.lock().names.contains_key(path))
    }
    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.write_back();
        state.commit();
        // The kernel then writes what the device's own cache of blocks has.
        state.journal.begin();
        state.volatile = true;
        state.flush();
        Ok(())
    }
    fn pass(&self, time: Duration) -> io::Result<()> {
        self.0.lock().pass(time);
        Ok(())
    }
}
