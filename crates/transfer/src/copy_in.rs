//! Puts files of the host into a volume: content with its holes, modes, owners, times, extended attributes, hard
//! links, symbolic links and device files.
//!
//! Invariants: a directory gets its owner, mode, attributes and times after its content, so that neither
//! changes by the filling nor hands anything on to the files inside. In a volume that was there before, a
//! file that cannot be put there is removed, and what had its name is there until all of it is.

use crate::error::{During, Error, Result};
use crate::metadata::Metadata;
use crate::paths::Held;
use medfs::{FileKind, Files, Ino, Posix, RenameFlags, SetAttr, Volume};
use medfs_format::limits::NAME_LEN;
use rustix::fs::{SeekFrom, seek};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;
/// Warnings kept; more of the same help nobody.
const MAX_WARNINGS: usize = 20;

/// What was put into a volume.
#[derive(Debug, Default)]
pub struct Filled {
    /// Files and directories.
    pub entries: u64,
    /// Bytes of content.
    pub bytes: u64,
    /// What could not be kept of files, a sentence each; of many only the first.
    pub warnings: Vec<String>,
}

/// What a file is called that will take the place of another one. The end of its name follows: what its
/// content is like is judged by that.
const COMING: &str = ".medfs-put-";
/// Such names that are tried.
const MOST_NAMES: u32 = 10_000;

/// What becomes of files that were there, and of those that cannot be put there.
#[derive(Clone, Copy)]
enum Care {
    /// A file of the same name goes first, and what was begun stays: of a volume that is not finished nothing is kept.
    None,
    /// A file of the same name stays until the new one is whole, and what did not become whole is removed.
    Old,
}

/// A file, no directory, that is being put into a volume.
struct Coming<'v> {
    file: Held<'v>,
    /// The directory that it is in and what it is called there, until it is whole.
    called: Option<(Ino, Vec<u8>)>,
}

impl Drop for Coming<'_> {
    /// Takes away what did not become whole.
    fn drop(&mut self) {
        let Some((parent, name)) = self.called.take() else { return };
        match self.file.volume().unlink(parent, &name) {
            // The volume is as it was at its last checkpoint: why it takes no writes is told by the copy.
            Ok(()) | Err(medfs::Error::ReadOnly) => {}
            Err(error) => {
                tracing::warn!("cannot remove the partial copy of {}: {error}", crate::error::shown(&name));
            }
        }
    }
}

/// Files being put into a volume.
pub struct Filler<'v> {
    volume: &'v Volume,
    care: Care,
    /// Is told of bytes as they are copied or passed by.
    progress: &'v dyn Fn(u64),
    /// Directories with what they get at the end.
    directories: Vec<(Ino, Metadata)>,
    /// See [`Filler::fill`].
    reproducible: bool,
    filled: Filled,
}

impl<'v> Filler<'v> {
    /// Into a volume that was made just now.
    pub fn new(volume: &'v Volume, progress: &'v dyn Fn(u64)) -> Filler<'v> {
        let (care, filled) = (Care::None, Filled::default());
        Filler { volume, care, progress, directories: Vec::new(), reproducible: false, filled }
    }

    /// Into a volume that was there before.
    pub fn into_old(volume: &'v Volume, progress: &'v dyn Fn(u64)) -> Filler<'v> {
        Filler { care: Care::Old, ..Filler::new(volume, progress) }
    }

    /// What was put there so far.
    pub fn filled(&self) -> &Filled {
        &self.filled
    }

    /// Fills the root directory with a directory's content, and gives it the directory's own owner, mode and
    /// times. With `reproducible` times of last access, which reading changes, are those of the last change:
    /// the same input makes the same image.
    ///
    /// # Errors
    /// A file of the host cannot be read, or the volume refuses it.
    pub fn fill(mut self, source: &Path, reproducible: bool) -> Result<Filled> {
        self.reproducible = reproducible;
        let root = self.volume.root();
        tree_into(&mut self, source, root, Called::Itself)?;
        self.end()
    }

    /// Puts a host file, or a directory with all it contains, into a directory of the volume under `name`.
    ///
    /// # Errors
    /// A file of the host cannot be read, or the volume refuses it. What was put there before stays.
    pub fn put(&mut self, source: &Path, parent: Ino, name: &[u8]) -> Result<()> {
        tree_into(self, source, parent, Called::Name(name))
    }

    /// Puts what a host directory contains into a directory of the volume, which keeps its owner, mode and attributes.
    ///
    /// # Errors
    /// A file of the host cannot be read, or the volume refuses it. What was put there before stays.
    pub fn put_content(&mut self, source: &Path, into: Ino) -> Result<()> {
        tree_into(self, source, into, Called::Content)
    }

    /// A new file or directory; an existing directory is taken, another existing file replaced.
    pub(crate) fn create(
        &mut self,
        parent: Ino,
        name: &[u8],
        meta: &Metadata,
        link: Option<&[u8]>,
    ) -> Result<Held<'v>> {
        if let Some(directory) = self.make_way(parent, name, meta.kind)? {
            self.directories.push((directory.ino(), meta.clone()));
            return Ok(directory);
        }
        let held = self.make(parent, name, meta, link)?;
        self.filled.entries += 1;
        if meta.kind == FileKind::Directory {
            self.directories.push((held.ino(), meta.clone()));
        }
        Ok(held)
    }

    fn make(&self, parent: Ino, name: &[u8], meta: &Metadata, link: Option<&[u8]>) -> Result<Held<'v>> {
        let attr = match meta.kind {
            FileKind::Symlink => {
                let target = link.ok_or_else(|| Error::refused("a symbolic link without a target"))?;
                self.volume.symlink(parent, name, target, meta.uid, meta.gid)?
            }
            _ => self.volume.create(parent, name, &meta.new_file())?,
        };
        Ok(Held::new(self.volume, attr))
    }

    /// A new file that is no directory, to be filled and then [placed](Filler::place).
    fn begin(
        &mut self,
        parent: Ino,
        name: &[u8],
        meta: &Metadata,
        link: Option<&[u8]>,
    ) -> Result<Coming<'v>> {
        if matches!(self.care, Care::None) {
            return Ok(Coming { file: self.create(parent, name, meta, link)?, called: None });
        }
        let is_taken = self.existing(parent, name, meta.kind)?.is_some();
        self.coming(parent, name, is_taken, |called| self.make(parent, called, meta, link))
    }

    /// Makes a file under its name or, where another one has it, under one that nothing has. Who renames a
    /// file makes its inode doubt its name, by which a repair would bring it back.
    fn coming(
        &self,
        parent: Ino,
        name: &[u8],
        is_taken: bool,
        make: impl Fn(&[u8]) -> Result<Held<'v>>,
    ) -> Result<Coming<'v>> {
        if !is_taken {
            return Ok(Coming { file: make(name)?, called: Some((parent, name.to_vec())) });
        }
        for number in 0..MOST_NAMES {
            let mut called = format!("{COMING}{number}.").into_bytes();
            called.extend_from_slice(&name[(called.len() + name.len()).saturating_sub(NAME_LEN)..]);
            match make(&called) {
                Err(Error::Volume(medfs::Error::Posix(Posix::Exists))) => {}
                made => return Ok(Coming { file: made?, called: Some((parent, called)) }),
            }
        }
        Err(Error::refused(format!("too many names begin with {COMING}")))
    }

    /// Gives a file its name, where it has another one, as all of it is there now.
    fn place(&mut self, coming: &mut Coming<'v>, parent: Ino, name: &[u8]) -> Result<()> {
        let Some((_, called)) = &coming.called else { return Ok(()) };
        if called != name {
            self.volume.rename(parent, called, parent, name, RenameFlags::empty())?;
        }
        coming.called = None;
        self.filled.entries += 1;
        Ok(())
    }

    /// Sets what a directory, made or found, gets at the end.
    pub(crate) fn directory(&mut self, ino: Ino, meta: Metadata) {
        self.directories.push((ino, meta));
    }

    /// Another name for a file.
    pub(crate) fn link(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<()> {
        if matches!(self.care, Care::None) {
            self.make_way(parent, name, FileKind::Regular)?;
            drop(Held::new(self.volume, self.volume.link(ino, parent, name)?));
            self.filled.entries += 1;
            return Ok(());
        }
        // Another name of the same file: a rename would leave both.
        let there = self.existing(parent, name, FileKind::Regular)?;
        if there.as_ref().is_some_and(|there| there.ino() == ino) {
            return Ok(());
        }
        let link = |called: &[u8]| Ok(Held::new(self.volume, self.volume.link(ino, parent, called)?));
        let mut coming = self.coming(parent, name, there.is_some(), link)?;
        self.place(&mut coming, parent, name)
    }

    /// Finds an existing directory, or removes an existing file.
    fn make_way(&mut self, parent: Ino, name: &[u8], kind: FileKind) -> Result<Option<Held<'v>>> {
        let existing = self.existing(parent, name, kind)?;
        if existing.is_some() && kind != FileKind::Directory {
            self.volume.unlink(parent, name)?;
            return Ok(None);
        }
        Ok(existing)
    }

    /// What has a name that something of a kind is to have.
    fn existing(&self, parent: Ino, name: &[u8], kind: FileKind) -> Result<Option<Held<'v>>> {
        let existing = match self.volume.lookup(parent, name) {
            Ok(attr) => Held::new(self.volume, attr),
            Err(medfs::Error::Posix(Posix::NotFound)) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        match (existing.is_dir(), kind == FileKind::Directory) {
            (true, false) => Err(Error::refused("a directory of that name exists in the volume")),
            (false, true) => {
                Err(Error::refused("a file of that name, not a directory, exists in the volume"))
            }
            _ => Ok(Some(existing)),
        }
    }

    /// Copies a host file's content, leaving its holes holes.
    pub(crate) fn copy_content(&mut self, ino: Ino, file: &File, len: u64) -> Result<()> {
        let mut buf = vec![0; CHUNK];
        let mut at = 0;
        while at < len {
            let (data, hole) = match (seek(file, SeekFrom::Data(at)), at) {
                (Ok(data), _) => (data, seek(file, SeekFrom::Hole(data))?.min(len)),
                (Err(rustix::io::Errno::NXIO), _) => break,
                // No knowledge of holes: everything is data.
                (Err(_), at) => (at, len),
            };
            (self.progress)(data.min(len) - at);
            at = data;
            while at < hole {
                let n = file.read_at(&mut buf[..(hole - at).min(CHUNK as u64) as usize], at)?;
                if n == 0 {
                    return Err(Error::refused("the file became shorter while it was read"));
                }
                self.write(ino, at, &buf[..n])?;
                at += n as u64;
            }
        }
        self.finish_size(ino, len)
    }

    /// Copies a stream's content.
    pub(crate) fn copy_stream(&mut self, ino: Ino, stream: &mut dyn Read) -> Result<()> {
        let mut buf = vec![0; CHUNK];
        let mut at = 0;
        loop {
            let mut n = 0;
            while n < CHUNK {
                match stream.read(&mut buf[n..])? {
                    0 => break,
                    more => n += more,
                }
            }
            if n == 0 {
                return self.finish_size(ino, at);
            }
            // Archives spell holes out.
            if buf[..n].iter().any(|&b| b != 0) {
                self.write(ino, at, &buf[..n])?;
            }
            at += n as u64;
        }
    }

    /// Sets the size, for a hole at the end.
    fn finish_size(&mut self, ino: Ino, len: u64) -> Result<()> {
        if self.volume.getattr(ino)?.size != len {
            self.volume.setattr(ino, &SetAttr { size: Some(len), ..SetAttr::default() })?;
        }
        Ok(())
    }

    fn write(&mut self, ino: Ino, at: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            done += self.volume.write(ino, at + done as u64, &data[done..])?;
        }
        (self.progress)(data.len() as u64);
        self.filled.bytes += data.len() as u64;
        Ok(())
    }

    /// Gives a file that is no directory its owner, mode, attributes and times.
    pub(crate) fn finish(&mut self, ino: Ino, meta: &Metadata, path: &Path) -> Result<()> {
        let refused = meta.apply(self.volume, ino)?;
        self.warn_refused(&refused, path);
        Ok(())
    }

    fn warn_refused(&mut self, refused: &[String], path: &Path) {
        for name in refused {
            if self.filled.warnings.len() < MAX_WARNINGS {
                self.filled.warnings.push(format!(
                    "{}: F2FS cannot store the attribute {name}: it is left out",
                    path.display()
                ));
            }
        }
    }

    /// Gives directories what they wait for, the innermost first, and ends.
    ///
    /// # Errors
    /// The volume refuses it.
    pub fn end(mut self) -> Result<Filled> {
        for (ino, meta) in std::mem::take(&mut self.directories).into_iter().rev() {
            let refused = meta.apply(self.volume, ino)?;
            self.warn_refused(&refused, Path::new("a directory"));
        }
        Ok(self.filled)
    }
}

/// Bytes of content below a path, as far as it can be read.
pub fn content_bytes(source: &Path) -> u64 {
    let files = WalkDir::new(source).into_iter().flatten().filter(|e| e.file_type().is_file());
    files.filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum()
}

/// Where below a path a file of the host is, by its device and number, whatever it is called there.
pub fn find_file(source: &Path, (dev, ino): (u64, u64)) -> Option<PathBuf> {
    let files = WalkDir::new(source).follow_root_links(false).into_iter().flatten();
    let mut files = files.filter(|entry| entry.file_type().is_file());
    let is_it = |meta: std::fs::Metadata| (meta.dev(), meta.ino()) == (dev, ino);
    files.find(|entry| entry.metadata().is_ok_and(is_it)).map(|entry| entry.into_path())
}

/// What a source becomes in a directory of the volume.
#[derive(Clone, Copy)]
enum Called<'n> {
    /// A file or directory of this name.
    Name(&'n [u8]),
    /// The directory itself.
    Itself,
    /// What the source contains goes there, and the directory stays as it is.
    Content,
}

fn tree_into<'v>(filler: &mut Filler<'v>, source: &Path, parent: Ino, called: Called<'_>) -> Result<()> {
    let (name, becomes_it) = match called {
        Called::Name(name) => (Some(name), false),
        Called::Itself => (None, true),
        Called::Content => (None, false),
    };
    // Directories on the way to the present one; the last is the parent of what comes next.
    let mut parents: Vec<Held<'v>> = Vec::new();
    let mut links: HashMap<(u64, u64), Ino> = HashMap::new();
    // A symbolic link that is to have a name is put there itself, wherever it leads.
    for entry in WalkDir::new(source).sort_by_file_name().follow_root_links(name.is_none()) {
        let entry = entry?;
        let path = entry.path();
        let host = match name {
            None if entry.depth() == 0 => path.metadata()?,
            _ => entry.metadata()?,
        };
        let mut meta = Metadata::of_host(path, &host)?;
        if filler.reproducible {
            meta.atime = meta.mtime;
        }
        parents.truncate(entry.depth());
        if entry.depth() == 0 && name.is_none() {
            if becomes_it {
                filler.directory(parent, meta);
            }
            filler.volume.hold(parent, 1)?;
            parents.push(Held::new(filler.volume, filler.volume.getattr(parent)?));
            continue;
        }
        let into = parents.last().map_or(parent, Held::ino);
        let called = if entry.depth() == 0 { name.unwrap_or_default() } else { entry.file_name().as_bytes() };
        let held = one(filler, path, &host, &meta, into, called, &mut links)
            .during(|| path.display().to_string())?;
        parents.extend(held);
    }
    Ok(())
}

/// Puts one host file; what it became where that is a directory.
fn one<'v>(
    filler: &mut Filler<'v>,
    path: &Path,
    host: &std::fs::Metadata,
    meta: &Metadata,
    parent: Ino,
    name: &[u8],
    links: &mut HashMap<(u64, u64), Ino>,
) -> Result<Option<Held<'v>>> {
    let identity = (host.dev(), host.ino());
    if meta.kind != FileKind::Directory
        && let Some(&ino) = links.get(&identity)
    {
        filler.link(ino, parent, name)?;
        return Ok(None);
    }
    let link = (meta.kind == FileKind::Symlink).then(|| std::fs::read_link(path)).transpose()?;
    let link = link.as_ref().map(|l| l.as_os_str().as_bytes());
    if meta.kind == FileKind::Directory {
        return filler.create(parent, name, meta, link).map(Some);
    }
    let mut coming = filler.begin(parent, name, meta, link)?;
    let ino = coming.file.ino();
    if meta.kind == FileKind::Regular {
        filler.copy_content(ino, &File::open(path)?, host.len())?;
    }
    filler.finish(ino, meta, path)?;
    filler.place(&mut coming, parent, name)?;
    if host.nlink() > 1 {
        links.insert(identity, ino);
    }
    Ok(None)
}
