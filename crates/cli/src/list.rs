//! `medfs ls`: lists files of a volume that is not mounted. What cannot be read is listed by its name alone,
//! and told at the end.

use crate::args::LsArgs;
use crate::damaged::{Hidden, Newer};
use crate::get::map;
use crate::{damaged, exit, json, output, size, target, words};
use anyhow::Result;
use medfs::{Attr, FileKind, Files, Ino, PastDamage, Volume};
use medfs_device::quote::{self, hint};
use medfs_rescue::{Failure, Lost, Outcome, missing_inodes, why_no_target};
use medfs_transfer::{Held, paths};
use serde::Serialize;
use std::collections::HashSet;
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

/// A file in `--json` whose inode cannot be read.
#[derive(Serialize)]
struct Unread {
    format: u32,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    ino: u32,
    kind: Option<&'static str>,
}

/// `medfs ls`
pub(crate) fn run(args: &LsArgs) -> Result<u8> {
    target::image_first("ls", &args.image, std::slice::from_ref(&args.path), exit::USAGE)?;
    map::must_exist(args.map.as_deref(), exit::FAILURE)?;
    let (device, mut keeper) = map::open(&args.image, args.map.as_deref(), false, false)?;
    crate::log::without_damage();
    let listed = target::open_volume_read_only(device, &args.image).and_then(|volume| list(args, &volume));
    // What was learned of the device is kept, whatever else failed.
    let kept = keeper.finish();
    let code = listed?;
    // Nothing of the content was read: whether all of it is there is not known.
    let tells =
        hint(format_args!("medfs get -r {}{} / DIRECTORY", damaged::map_option(), quote::path(&args.image)));
    let more = if code == exit::SUCCESS {
        format!("; {tells} tells which files lack content")
    } else {
        String::new()
    };
    keeper.tell_missing("ls", &args.image, &more);
    kept?;
    Ok(code)
}

fn list(args: &LsArgs, volume: &Volume) -> Result<u8> {
    let mut lister = Lister {
        volume,
        args,
        escape: std::io::stdout().is_terminal(),
        out: BufWriter::new(output::stdout()),
        failed: Outcome::default(),
        listed: HashSet::new(),
    };
    for (ino, reason) in PastDamage::of(volume).unrecovered() {
        let path = ino.map_or_else(|| "/".to_owned(), |ino| format!("inode {ino}")).into_bytes();
        lister.failed.fail(Failure { path, ino, reason, lost: Lost::default() });
    }
    // Where the table cannot be read, that is told of what it leads to.
    let missing = PastDamage::of(volume).inodes_lost_with_journals().unwrap_or(0);
    if missing > 0 {
        let (path, reason) = (b"/".to_vec(), missing_inodes(missing));
        lister.failed.torn += 1;
        lister.failed.fail(Failure { path, ino: None, reason, lost: Lost::default() });
    }
    let start = damaged::find(volume, &args.image, &args.path)?;
    if !start.is_dir() {
        lister.print(&start, &args.path, args.path.as_os_str().as_bytes())?;
    } else if args.json {
        lister.each(&start, &args.path)?;
    } else {
        lister.directories(start, args.path.clone())?;
    }
    lister.out.flush()?;
    let Lister { failed, .. } = lister;
    for failure in &failed.failures {
        errln!("medfs ls: {}", failure_line(failure));
    }
    if failed.more_failures > 0 {
        errln!("medfs ls: and {} more", words::count(failed.more_failures, "file or directory"));
    }
    if failed.failed() == 0 {
        Newer::of(volume).tell("ls", &args.image);
        return Ok(exit::SUCCESS);
    }
    if let Some(hidden) = Hidden::of(failed.torn > 0, failed.unread > 0) {
        errln!("medfs ls: {}", damaged::salvage_finds(&args.image, hidden));
    }
    Newer::of(volume).tell("ls", &args.image);
    errln!("medfs ls: 'medfs help damaged' says what to do about a damaged volume");
    Ok(exit::FAILURE)
}

/// A path that failed, and why.
pub(crate) fn failure_line(failure: &Failure) -> String {
    format!("{}: {}", quote::for_terminal(&failure.path), exit::without_numbers(&failure.reason))
}

/// An entry of a directory: its inode, where that can be read.
struct Child<'v> {
    name: Vec<u8>,
    ino: Ino,
    held: Option<Held<'v>>,
}

struct Lister<'v, W> {
    volume: &'v Volume,
    args: &'v LsArgs,
    /// Names go to a terminal: they are quoted, and control characters are shown, not sent.
    escape: bool,
    out: W,
    failed: Outcome,
    /// Directories that were listed: one that has a second name, or is in itself, is not listed again.
    listed: HashSet<Ino>,
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
            for child in self.children(&dir, &path) {
                let at = paths::join(&path, &child.name);
                let Some(held) = child.held else {
                    self.print_unread(child.ino, &at, &child.name)?;
                    continue;
                };
                self.print(&held, &at, &child.name)?;
                if self.args.recursive && held.is_dir() {
                    below.push((held, at));
                }
            }
            pending.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// One object for each file below.
    fn each(&mut self, start: &Held<'v>, path: &Path) -> Result<()> {
        let mut pending: Vec<(Child<'v>, PathBuf)> = Vec::new();
        for child in self.children(start, path).into_iter().rev() {
            let at = paths::join(path, &child.name);
            pending.push((child, at));
        }
        while let Some((child, path)) = pending.pop() {
            let Some(held) = child.held else {
                self.print_unread(child.ino, &path, &child.name)?;
                continue;
            };
            self.print(&held, &path, path.as_os_str().as_bytes())?;
            if self.args.recursive && held.is_dir() {
                for child in self.children(&held, &path).into_iter().rev() {
                    let at = paths::join(&path, &child.name);
                    pending.push((child, at));
                }
            }
        }
        Ok(())
    }

    /// The entries of a directory, as far as they can be read, sorted by name.
    fn children(&mut self, dir: &Held<'v>, path: &Path) -> Vec<Child<'v>> {
        let mut children = Vec::new();
        if !self.listed.insert(dir.ino()) {
            let reason = format!("directory {} has a second name or contains itself", dir.ino());
            self.fail(path, dir.ino(), reason);
            return children;
        }
        let (entries, gap) = paths::list(self.volume, dir.ino());
        if let Some(reason) = gap {
            self.failed.torn += 1;
            let reason = format!("the directory is damaged, and names may be missing: {reason}");
            self.fail(path, dir.ino(), reason);
        }
        for entry in entries {
            let held = Held::of(self.volume, entry.ino);
            if let Err(error) = &held {
                self.failed.torn += u64::from(entry.kind == Some(FileKind::Directory));
                self.failed.unread += u64::from(entry.kind == Some(FileKind::Regular));
                let reason = match error {
                    medfs::Error::Corrupt(_) => {
                        format!("it is damaged and cannot be read ({error})")
                    }
                    _ => format!("it cannot be read: {error}"),
                };
                self.fail(&paths::join(path, &entry.name), entry.ino, reason);
            }
            children.push(Child { name: entry.name, ino: entry.ino, held: held.ok() });
        }
        children
    }

    fn fail(&mut self, path: &Path, ino: Ino, reason: String) {
        let path = path.as_os_str().as_bytes().to_vec();
        self.failed.fail(Failure { path, ino: Some(ino), reason, lost: Lost::default() });
    }

    /// What is known of a file whose inode cannot be read.
    fn print_unread(&mut self, ino: Ino, path: &Path, name: &[u8]) -> Result<()> {
        if self.args.json {
            let (path, path_hex) = json::name(path.as_os_str().as_bytes());
            let unread = Unread { format: json::FORMAT, path, path_hex, ino, kind: None };
            serde_json::to_writer(&mut self.out, &unread)?;
            writeln!(self.out)?;
            return Ok(());
        }
        if self.args.long {
            write!(self.out, "?????????? {:>3} {:>6} {:>6} {:>12} {:>19} ", '?', '?', '?', '?', '?')?;
        }
        let name = self.shown_bytes(name);
        self.out.write_all(&name)?;
        writeln!(self.out)?;
        Ok(())
    }

    fn print(&mut self, held: &Held<'_>, path: &Path, name: &[u8]) -> Result<()> {
        let attr = &held.attr;
        let link = match attr.kind {
            FileKind::Symlink if self.args.long || self.args.json => match self.volume.readlink(attr.ino) {
                Ok(link) => Some(link),
                Err(error) => {
                    self.fail(path, attr.ino, why_no_target(&error));
                    None
                }
            },
            _ => None,
        };
        if self.args.json {
            serde_json::to_writer(&mut self.out, &listed(attr, path, link.as_deref()))?;
            writeln!(self.out)?;
            return Ok(());
        }
        if self.args.long {
            let (size, time) =
                (size_or_device(attr, self.args.human_readable), time(attr.mtime.secs, "%Y-%m-%d %H:%M:%S"));
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

fn size_or_device(attr: &Attr, is_short: bool) -> String {
    match attr.kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            format!("{}, {}", rustix::fs::major(attr.rdev), rustix::fs::minor(attr.rdev))
        }
        _ if is_short => size::short(attr.size),
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
