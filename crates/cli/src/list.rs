//! `medfs ls`: lists files of a volume that is not mounted.

use crate::args::LsArgs;
use crate::tree::{self, Held};
use crate::{exit, json, output, quote, target};
use anyhow::{Context, Result};
use medfs::{Attr, FileKind, Volume};
use serde::Serialize;
use std::io::{BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One file in `--json`.
#[derive(Serialize)]
struct Listed {
    format: u32,
    path: String,
    /// Its bytes, where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    ino: u32,
    kind: &'static str,
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    blocks: u64,
    /// Seconds since 1970, and nanoseconds of them.
    mtime: i64,
    mtime_nanos: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_hex: Option<String>,
}

/// `medfs ls`
pub(crate) fn run(args: &LsArgs) -> Result<u8> {
    let volume = target::open_volume_to_read(&args.image)?;
    let mut lister = Lister {
        volume: &volume,
        args,
        escape: std::io::stdout().is_terminal(),
        out: BufWriter::new(output::stdout()),
    };
    let start = tree::find(&volume, &args.path)?;
    if !start.is_dir() {
        lister.print(&start, &args.path, args.path.as_os_str().as_bytes())?;
    } else if args.json {
        lister.each(&start, &args.path)?;
    } else {
        lister.directories(start, args.path.clone())?;
    }
    lister.out.flush()?;
    Ok(exit::SUCCESS)
}

struct Lister<'v, W> {
    volume: &'v Volume,
    args: &'v LsArgs,
    /// Names go to a terminal: they are quoted, and control characters are shown, not sent.
    escape: bool,
    out: W,
}

impl<'v, W: Write> Lister<'v, W> {
    /// Directory by directory, as `ls -R` does.
    fn directories(&mut self, start: Held<'v>, path: PathBuf) -> Result<()> {
        let mut pending = vec![(start, path)];
        let mut first = true;
        while let Some((dir, path)) = pending.pop() {
            if self.args.recursive {
                let name = self.shown(path.as_os_str().as_bytes());
                if !first {
                    writeln!(self.out)?;
                }
                writeln!(self.out, "{name}:")?;
            }
            first = false;
            let mut below = Vec::new();
            for (child, name) in self.children(&dir, &path)? {
                self.print(&child, &tree::join(&path, &name), &name)?;
                if self.args.recursive && child.is_dir() {
                    below.push((child, tree::join(&path, &name)));
                }
            }
            pending.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// One object for each file below.
    fn each(&mut self, start: &Held<'v>, path: &Path) -> Result<()> {
        let mut pending: Vec<(Held<'v>, PathBuf)> = Vec::new();
        for (child, name) in self.children(start, path)?.into_iter().rev() {
            pending.push((child, tree::join(path, &name)));
        }
        while let Some((held, path)) = pending.pop() {
            self.print(&held, &path, path.as_os_str().as_bytes())?;
            if self.args.recursive && held.is_dir() {
                for (child, name) in self.children(&held, &path)?.into_iter().rev() {
                    pending.push((child, tree::join(&path, &name)));
                }
            }
        }
        Ok(())
    }

    fn children(&self, dir: &Held<'v>, path: &Path) -> Result<Vec<(Held<'v>, Vec<u8>)>> {
        let entries = tree::list(self.volume, dir.ino()).with_context(|| path.display().to_string())?;
        let mut children = Vec::new();
        for entry in entries {
            let attr = self.volume.lookup(dir.ino(), &entry.name);
            let attr = attr.with_context(|| tree::join(path, &entry.name).display().to_string())?;
            children.push((Held::new(self.volume, attr), entry.name));
        }
        Ok(children)
    }

    fn print(&mut self, held: &Held<'_>, path: &Path, name: &[u8]) -> Result<()> {
        let attr = &held.attr;
        let link = match attr.kind {
            FileKind::Symlink if self.args.long || self.args.json => Some(self.volume.readlink(attr.ino)?),
            _ => None,
        };
        if self.args.json {
            serde_json::to_writer(&mut self.out, &listed(attr, path, link.as_deref()))?;
            writeln!(self.out)?;
            return Ok(());
        }
        if self.args.long {
            let (size, time) = (size_or_device(attr), time(attr.mtime.secs, "%Y-%m-%d %H:%M:%S"));
            write!(
                self.out,
                "{} {:>3} {:>6} {:>6} {size:>12} {time} ",
                mode(attr),
                attr.nlink,
                attr.uid,
                attr.gid
            )?;
        }
        let name = self.shown_bytes(name);
        self.out.write_all(&name)?;
        if let Some(link) = link {
            self.out.write_all(b" -> ")?;
            let link = self.shown_bytes(&link);
            self.out.write_all(&link)?;
        }
        writeln!(self.out)?;
        Ok(())
    }

    fn shown_bytes(&self, name: &[u8]) -> Vec<u8> {
        if self.escape { quote::for_terminal(name).into() } else { name.to_vec() }
    }

    fn shown(&self, name: &[u8]) -> String {
        String::from_utf8_lossy(&self.shown_bytes(name)).into_owned()
    }
}

fn listed(attr: &Attr, path: &Path, link: Option<&[u8]>) -> Listed {
    let (path, path_hex) = json::name(path.as_os_str().as_bytes());
    let (target, target_hex) = link.map(json::name).unzip();
    Listed {
        format: json::FORMAT,
        path,
        path_hex,
        ino: attr.ino,
        kind: kind_name(attr.kind),
        mode: format!("{:04o}", attr.perm),
        links: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        blocks: attr.blocks,
        mtime: attr.mtime.secs,
        mtime_nanos: attr.mtime.nanos,
        target,
        target_hex: target_hex.flatten(),
    }
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "dir",
        FileKind::CharDevice => "char",
        FileKind::BlockDevice => "block",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::Symlink => "symlink",
    }
}

fn size_or_device(attr: &Attr) -> String {
    match attr.kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            format!("{}, {}", rustix::fs::major(attr.rdev), rustix::fs::minor(attr.rdev))
        }
        _ => attr.size.to_string(),
    }
}

/// UTC, or the bare seconds where they are beyond any calendar.
pub(crate) fn time(secs: i64, format: &str) -> String {
    jiff::Timestamp::from_second(secs).map_or_else(|_| secs.to_string(), |t| t.strftime(format).to_string())
}

/// `drwxr-xr-x`
fn mode(attr: &Attr) -> String {
    let kind = match attr.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::Symlink => 'l',
    };
    let perm = attr.perm;
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = perm >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (perm & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}
