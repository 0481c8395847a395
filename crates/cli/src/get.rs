//! `medfs get`: copies files out of a volume, with modes, times, attributes, holes and hard links.
//!
//! Invariant: nothing is written outside the destination. Names from the volume that lead out of it are refused, and
//! symbolic links in the destination are not followed.

use crate::args::GetArgs;
use crate::fill::CHUNK;
use crate::metadata::Metadata;
use crate::tree::{self, Held, is_safe_name};
use crate::{exit, output, progress, target};
use anyhow::{Context, Result, bail};
use indicatif::ProgressBar;
use medfs::{FileKind, Ino, Seek, Volume};
use rustix::fs::{CWD, Mode};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// `medfs get`
pub(crate) fn run(args: &GetArgs) -> Result<u8> {
    let (destination, sources) = args.paths.split_last().context("no path given")?;
    let volume = target::open_volume_to_read(&args.image)?;
    if destination.as_os_str() == "-" {
        for source in sources {
            to_stdout(&volume, source)?;
        }
        return Ok(exit::SUCCESS);
    }
    let into_folder = destination.is_dir();
    if sources.len() > 1 && !into_folder {
        bail!("{} is not a directory: several files are copied into one", destination.display());
    }
    let mut getter = Getter {
        volume: &volume,
        bar: progress::unknown("copying"),
        links: HashMap::new(),
        directories: Vec::new(),
    };
    for source in sources {
        let held = tree::find(&volume, source)?;
        if held.is_dir() && !args.recursive {
            bail!("{} is a directory: use -r to copy it with all it contains", source.display());
        }
        let to = match (into_folder, source.file_name()) {
            (true, Some(name)) => destination.join(name),
            _ => destination.clone(),
        };
        getter.tree(&held, source.clone(), to)?;
    }
    getter.end()?;
    Ok(exit::SUCCESS)
}

fn to_stdout(volume: &Volume, source: &Path) -> Result<()> {
    let held = tree::find(volume, source)?;
    if held.attr.kind != FileKind::Regular {
        bail!(
            "{} is not a regular file: only regular files are written to standard output",
            source.display()
        );
    }
    let mut out = output::stdout();
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let n = volume.read(held.ino(), at, &mut buf)?;
        if n == 0 {
            break;
        }
        out.write_all(&buf[..n])?;
        at += n as u64;
    }
    out.flush()?;
    Ok(())
}

struct Getter<'v> {
    volume: &'v Volume,
    bar: ProgressBar,
    /// Host paths of files with several names.
    links: HashMap<Ino, PathBuf>,
    /// Directories with what they get at the end.
    directories: Vec<(PathBuf, Metadata)>,
}

impl Getter<'_> {
    /// Copies a file, or a directory with all below it.
    fn tree(&mut self, held: &Held<'_>, name: PathBuf, to: PathBuf) -> Result<()> {
        // Directories still to be listed: number, path in the volume, path on the host.
        let mut pending = Vec::new();
        self.one(held, &to).with_context(|| name.display().to_string())?;
        if held.is_dir() {
            pending.push((held.ino(), name, to));
        }
        while let Some((dir, name, to)) = pending.pop() {
            for entry in tree::list(self.volume, dir).with_context(|| name.display().to_string())? {
                let child_name = tree::join(&name, &entry.name);
                if !is_safe_name(&entry.name) {
                    bail!(
                        "{} in the volume has a name that would lead out of the destination",
                        child_name.display()
                    );
                }
                let found = self.volume.lookup(dir, &entry.name);
                let child = Held::new(self.volume, found.with_context(|| child_name.display().to_string())?);
                let child_to = tree::join(&to, &entry.name);
                self.one(&child, &child_to).with_context(|| child_name.display().to_string())?;
                if child.is_dir() {
                    pending.push((child.ino(), child_name, child_to));
                }
            }
        }
        Ok(())
    }

    fn one(&mut self, held: &Held<'_>, to: &Path) -> Result<()> {
        let meta = Metadata::of_volume(self.volume, &held.attr)?;
        if meta.kind == FileKind::Directory {
            match std::fs::create_dir(to) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists && to.symlink_metadata()?.is_dir() => {}
                other => other.with_context(|| format!("cannot make {}", to.display()))?,
            }
            self.directories.push((to.to_owned(), meta));
            return Ok(());
        }
        remove_old(to, meta.kind)?;
        if held.attr.nlink > 1 {
            if let Some(first) = self.links.get(&held.ino()) {
                return std::fs::hard_link(first, to)
                    .with_context(|| format!("cannot make {}", to.display()));
            }
            self.links.insert(held.ino(), to.to_owned());
        }
        self.make(held, &meta, to).with_context(|| format!("cannot make {}", to.display()))?;
        meta.apply_to_host(to)
            .with_context(|| format!("cannot set owner, mode and times of {}", to.display()))
    }

    fn make(&mut self, held: &Held<'_>, meta: &Metadata, to: &Path) -> Result<()> {
        let special = |kind: rustix::fs::FileType| {
            rustix::fs::mknodat(CWD, to, kind, Mode::from_raw_mode(0o600), meta.rdev)
        };
        match meta.kind {
            FileKind::Regular => self.content(held, &File::create_new(to)?)?,
            FileKind::Symlink => {
                let link = self.volume.readlink(held.ino())?;
                std::os::unix::fs::symlink(OsStr::from_bytes(&link), to)?;
            }
            FileKind::CharDevice => special(rustix::fs::FileType::CharacterDevice)?,
            FileKind::BlockDevice => special(rustix::fs::FileType::BlockDevice)?,
            FileKind::Fifo => special(rustix::fs::FileType::Fifo)?,
            FileKind::Socket => special(rustix::fs::FileType::Socket)?,
            FileKind::Directory => {}
        }
        Ok(())
    }

    fn content(&mut self, held: &Held<'_>, file: &File) -> Result<()> {
        let (ino, size) = (held.ino(), held.attr.size);
        let mut buf = vec![0; CHUNK];
        let mut at = 0;
        while at < size {
            let data = match self.volume.seek(ino, at, Seek::Data) {
                Ok(data) => data,
                Err(medfs::Error::Posix(medfs::Posix::NoSuchAddress)) => break,
                Err(e) => return Err(e.into()),
            };
            let hole = self.volume.seek(ino, data, Seek::Hole)?;
            at = data;
            while at < hole {
                let n = self.volume.read(ino, at, &mut buf[..(hole - at).min(CHUNK as u64) as usize])?;
                if n == 0 {
                    break;
                }
                file.write_all_at(&buf[..n], at)?;
                self.bar.inc(n as u64);
                at += n as u64;
            }
            at = at.max(hole);
        }
        file.set_len(size)?;
        Ok(())
    }

    /// Gives directories what they wait for, the innermost first.
    fn end(self) -> Result<()> {
        for (path, meta) in self.directories.into_iter().rev() {
            meta.apply_to_host(&path)
                .with_context(|| format!("cannot set owner, mode and times of {}", path.display()))?;
        }
        self.bar.finish_and_clear();
        Ok(())
    }
}

/// Makes way for a file of the same name. A directory stays and is an error, and so is a device or pipe, which nobody wants replaced
/// by a regular file.
fn remove_old(to: &Path, new: FileKind) -> Result<()> {
    let old = match to.symlink_metadata() {
        Ok(meta) => meta.file_type(),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e).with_context(|| format!("cannot look at {}", to.display())),
    };
    if old.is_dir() {
        bail!("{} is a directory: a file cannot take its place", to.display());
    }
    if new == FileKind::Regular && !old.is_file() && !old.is_symlink() {
        bail!("{} is not a regular file: '-' in its place copies to standard output", to.display());
    }
    std::fs::remove_file(to).with_context(|| format!("cannot replace {}", to.display()))
}
