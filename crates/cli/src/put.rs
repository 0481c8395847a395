//! `medfs put`: copies files of the host into a volume that is not mounted.

use crate::args::PutArgs;
use crate::exit::Coded;
use crate::fsck_turns::checked;
use crate::{exit, progress, size, target, undo, words};
use anyhow::{Context, Result, bail};
use medfs::{Ino, Volume};
use medfs_device::quote::{self, hint};
use medfs_device::read_block;
use medfs_fsck::dump::{Dump, Value};
use medfs_transfer::{Filled, Filler, copy_in, paths};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The volume comes first, and last where in it the files go.
pub(crate) const USAGE: &str = "medfs put [OPTIONS] <IMAGE|DEVICE> <FILE>... <DESTINATION>";

/// What `medfs put` does with a damaged volume.
pub(crate) const HELP: &str = "\
A source that ends with /. is a directory whose contents are copied, hidden
files too, as 'cp -r SRC/. DIR' does: the directory in the volume keeps its
owner, mode and times. Without it the directory itself is copied, under its own
name:

  medfs put -r card.img photos/. /    makes /1.jpg, /2.jpg
  medfs put -r card.img photos /      makes /photos/1.jpg, /photos/2.jpg

A volume with up to 10,000 inodes is checked first. If it is damaged, put prints
a warning and still copies, where the volume can be opened for writing: a later
repair may remove files put there. Copy the files off such a volume and repair
it before using it ('medfs help damaged').";

/// `medfs put`
pub(crate) fn run(args: &PutArgs) -> Result<u8> {
    image_first(args)?;
    let Some((destination, sources)) = args.paths.split_last().filter(|(_, sources)| !sources.is_empty())
    else {
        return Err(Coded::new(exit::USAGE, without_destination(args)).into());
    };
    for source in sources {
        let meta = source.symlink_metadata().with_context(|| format!("cannot read {}", source.display()))?;
        if meta.is_dir() && !args.recursive {
            bail!("{} is a directory: -r copies a directory with its content", source.display());
        }
    }
    for source in sources {
        refuse_itself(&args.image, source)?;
    }
    warn_of_damage(&args.image)?;
    // What fails here is returned, and told once.
    crate::log::without_errors();
    let total = sources.iter().filter(|s| !s.is_symlink()).map(|s| copy_in::content_bytes(s)).sum();
    if let Ok(meta) = args.image.metadata()
        && meta.is_file()
    {
        size::warn_of_small_disk("put", &args.image, meta.len(), total);
    }
    let (mut before, mut copied) = (None, 0);
    let (put, closed) = target::with_volume_to_end(&args.image, |volume| {
        before = kept(&args.image);
        put(volume, sources, destination, total, &mut copied)
    })?;
    if let Err(error) = closed {
        // What made the volume read-only is what the copying met.
        let is_after = matches!(error.downcast_ref(), Some(medfs::Error::ReadOnly));
        let why = put.err().filter(|_| is_after).unwrap_or(error);
        return Err(not_kept(&why, before, kept(&args.image), copied));
    }
    let filled = put?;
    for warning in &filled.warnings {
        errln!("medfs put: warning: {warning}");
    }
    Ok(exit::SUCCESS)
}

/// The checkpoint that an image has, and how many inodes it has by that.
fn kept(image: &Path) -> Option<(u64, u64)> {
    let dev = target::open_to_look(image).ok()?;
    let checkpoint = Dump::open(&*dev).ok()?.checkpoint().ok()?;
    let number = |name| match checkpoint.get(name) {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    };
    Some((number("checkpoint_ver")?, number("valid_inode_count")?))
}

/// That the volume lacks what was done since its last checkpoint, as no other one could be written; `copied`: files
/// and directories that were copied before that was known.
fn not_kept(
    error: &anyhow::Error,
    before: Option<(u64, u64)>,
    after: Option<(u64, u64)>,
    copied: u64,
) -> anyhow::Error {
    let why = exit::sentence(error);
    let (Some((old, had)), Some((new, has))) = (before, after) else {
        return anyhow::anyhow!("{why}; what was copied may be missing in the volume");
    };
    let copied = words::count(copied, "file or directory");
    match has.saturating_sub(had) {
        _ if old == new => anyhow::anyhow!("{why}; nothing was copied: make room there and run it again"),
        kept => anyhow::anyhow!(
            "{why}; of {copied} that were copied the volume has those up to its last checkpoint, {} of them new: make room there and run it again",
            words::grouped(kept)
        ),
    }
}

/// Refuses cp's order, in which the volume comes last: says which command is meant.
fn image_first(args: &PutArgs) -> Result<()> {
    let is_volume = |path: &Path| {
        let device = target::open_to_look(path).ok()?;
        (0..2).find(|at| read_block(&*device, *at).is_ok_and(|block| target::is_superblock(&block)))
    };
    let is_dir = args.image.is_dir();
    if !is_dir && (!args.image.is_file() || is_volume(&args.image).is_some()) {
        return Ok(());
    }
    let recursive = if args.recursive { "-r " } else { "" };
    let volume = args.paths.iter().position(|path| !path.is_dir() && is_volume(path).is_some());
    if let Some(at) = volume {
        let sources: Vec<&PathBuf> = [&args.image].into_iter().chain(&args.paths[..at]).collect();
        let words = sources.into_iter().map(|source| quote::path(source)).collect::<Vec<_>>().join(" ");
        let to = args.paths.get(at + 1).map_or_else(|| "/".into(), |to| quote::path(to));
        let command =
            hint(format_args!("medfs put {recursive}{} {words} {to}", quote::path(&args.paths[at])));
        return Err(Coded::new(exit::USAGE, format!("the image or device comes first: {command}")).into());
    }
    if is_dir {
        let shown = args.image.display();
        let text = format!("{shown} is a directory: the image or device comes first, then what is copied");
        return Err(Coded::new(exit::USAGE, text).into());
    }
    Ok(())
}

/// Refuses to copy the image into itself: it would change and grow while it is read.
fn refuse_itself(image: &Path, source: &Path) -> Result<()> {
    let Ok(meta) = image.metadata() else { return Ok(()) };
    if !meta.is_file() {
        return Ok(());
    }
    let Some(found) = copy_in::find_file(source, (meta.dev(), meta.ino())) else { return Ok(()) };
    match found == source {
        true => bail!("{} cannot be copied into itself", source.display()),
        false => bail!(
            "{} contains the image, {}: move it out, as it cannot be copied into itself",
            source.display(),
            found.display()
        ),
    }
}

/// That it is not said where in the volume the files go.
fn without_destination(args: &PutArgs) -> String {
    let source = args.paths.first().map_or_else(|| "FILE".into(), |source| quote::path(source));
    let recursive = if args.recursive { "-r " } else { "" };
    let command = hint(format_args!("medfs put {recursive}{} {source} /", quote::path(&args.image)));
    format!("the place in the volume to copy to is missing: {command} copies into its root directory")
}

/// Most inodes of a volume that is checked before it is written: that takes less than a second.
const CHECKED: u32 = 10_000;

/// Says of a small volume that it is damaged: what is put there may be lost in a repair.
fn warn_of_damage(image: &Path) -> Result<()> {
    let dev = target::open_to_read(image)?;
    target::explain_no_volume(&*dev, image)?;
    let volume = target::open_volume_without_log(dev.clone(), image)?;
    if volume.stats().valid_inodes > CHECKED {
        return Ok(());
    }
    drop(volume);
    let report = checked(image, &*dev)?;
    if !report.is_clean() {
        let faults = words::count(report.findings.len() as u64 + report.suppressed, "fault");
        let lists = hint(format_args!("medfs fsck {}", quote::path(image)));
        errln!(
            "medfs put: warning: {} has {faults}: {lists} lists them; copy its files before you use it",
            image.display()
        );
    }
    Ok(())
}

/// `copied` is told how many files and directories were.
fn put(
    volume: &Volume,
    sources: &[PathBuf],
    destination: &Path,
    total: u64,
    copied: &mut u64,
) -> Result<Filled> {
    undo::if_ended("put", "every file in the volume is either complete or unchanged: run it again");
    let bar = progress::bytes("copying", total);
    let count = |bytes| bar.inc(bytes);
    let mut filler = Filler::into_old(volume, &count);
    let directory = existing_directory(volume, destination)?;
    // As cp takes it, such a name is that of a directory: an existing one, or one that is made.
    let is_directory = destination.as_os_str().as_bytes().ends_with(b"/");
    let makes_directory = || {
        let is_new = matches!(paths::find(volume, destination), Err(e) if e.is_not_found());
        is_new && sources.iter().all(|source| source.is_dir())
    };
    if is_directory && directory.is_none() && !makes_directory() {
        bail!("{} in the volume is not a directory", destination.display());
    }
    if sources.len() > 1 && directory.is_none() {
        bail!(
            "{} in the volume is not a directory: several files are copied into one",
            destination.display()
        );
    }
    for source in sources {
        if let Some(ino) = directory.filter(|_| is_content(source)) {
            let put = filler.put_content(source, ino);
            *copied = filler.filled().entries;
            put.map_err(|error| without_room(error, filler.filled().entries))?;
            continue;
        }
        let (parent, name) = match directory {
            Some(ino) => (ino, own_name(source)?),
            None => (parent_of(volume, destination)?, own_name(destination)?),
        };
        let put = filler.put(source, parent, name.as_bytes());
        *copied = filler.filled().entries;
        put.map_err(|error| without_room(error, filler.filled().entries))?;
    }
    let filled = filler.end()?;
    bar.finish_and_clear();
    Ok(filled)
}

/// An error of want of room says what was copied; every other one stays as it is.
fn without_room(error: medfs_transfer::Error, copied: u64) -> anyhow::Error {
    if !error.is_no_space() {
        return error.into();
    }
    let done = match copied {
        0 => "nothing was copied".to_owned(),
        1 => "it was not copied; 1 file or directory before it was copied".to_owned(),
        _ => {
            format!("it was not copied; {} before it were copied", words::count(copied, "file or directory"))
        }
    };
    anyhow::anyhow!("{}; {done}", exit::sentence(&error.into()))
}

fn existing_directory(volume: &Volume, path: &Path) -> Result<Option<Ino>> {
    match paths::find(volume, path) {
        Ok(held) if held.is_dir() => Ok(Some(held.ino())),
        Ok(_) => Ok(None),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn parent_of(volume: &Volume, path: &Path) -> Result<Ino> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let held = paths::find(volume, parent)?;
    if !held.is_dir() {
        bail!("{} in the volume is not a directory", parent.display());
    }
    Ok(held.ino())
}

/// Whether a path ends with `.` or `..`: it has no name of its own, and means what the directory contains.
fn is_content(path: &Path) -> bool {
    let mut names = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/');
    let last = names.find(|name| !name.is_empty());
    last.is_some_and(|name| [&b"."[..], b".."].contains(&name))
}

/// The last component; of `dir/..` that of the directory it is.
fn own_name(path: &Path) -> Result<std::ffi::OsString> {
    if let Some(name) = path.file_name() {
        return Ok(name.to_owned());
    }
    let real = path.canonicalize().with_context(|| format!("cannot read {}", path.display()))?;
    real.file_name()
        .map(ToOwned::to_owned)
        .with_context(|| format!("{} has no file name to copy it to", path.display()))
}
