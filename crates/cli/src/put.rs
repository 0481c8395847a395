//! `medfs put`: copies files of the host into a volume that is not mounted.

use crate::args::PutArgs;
use crate::fsck::checked;
use crate::{exit, progress, target, undo, words};
use anyhow::{Context, Result, bail};
use medfs::{Ino, Volume};
use medfs_device::quote::{self, hint};
use medfs_transfer::{Filled, Filler, copy_in, paths};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What `medfs put` does with a damaged volume.
pub(crate) const HELP: &str = "\
A volume with up to 10,000 inodes is checked first. If it is damaged, put prints
a warning and still copies: a later repair may remove files put there. Copy the
files off such a volume and repair it before using it ('medfs help damaged').";

/// `medfs put`
pub(crate) fn run(args: &PutArgs) -> Result<u8> {
    let (destination, sources) = args.paths.split_last().context("no path given")?;
    for source in sources {
        let meta = source.symlink_metadata().with_context(|| format!("cannot read {}", source.display()))?;
        if meta.is_dir() && !args.recursive {
            bail!("{} is a directory: -r copies a directory with its content", source.display());
        }
    }
    warn_of_damage(&args.image)?;
    // What fails here is returned, and told once.
    crate::log::without_errors();
    let filled = target::with_volume(&args.image, |volume| put(volume, sources, destination))?;
    for warning in &filled.warnings {
        errln!("medfs put: warning: {warning}");
    }
    Ok(exit::SUCCESS)
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
        errln!("medfs put: warning: {} has {faults}: {lists} lists them", image.display());
    }
    Ok(())
}

fn put(volume: &Volume, sources: &[PathBuf], destination: &Path) -> Result<Filled> {
    undo::if_ended("put", "every file in the volume is either complete or unchanged: run it again");
    let total = sources.iter().filter(|s| !s.is_symlink()).map(|s| copy_in::content_bytes(s)).sum();
    let bar = progress::bytes("copying", total);
    let count = |bytes| bar.inc(bytes);
    let mut filler = Filler::into_old(volume, &count);
    let directory = existing_directory(volume, destination)?;
    if sources.len() > 1 && directory.is_none() {
        bail!(
            "{} in the volume is not a directory: several files are copied into one",
            destination.display()
        );
    }
    for source in sources {
        let (parent, name) = match directory {
            Some(ino) => (ino, own_name(source)?),
            None => (parent_of(volume, destination)?, own_name(destination)?),
        };
        let put = filler.put(source, parent, name.as_bytes());
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

/// The last component; of `.` or `dir/..` that of the directory it is.
fn own_name(path: &Path) -> Result<std::ffi::OsString> {
    if let Some(name) = path.file_name() {
        return Ok(name.to_owned());
    }
    let real = path.canonicalize().with_context(|| format!("cannot read {}", path.display()))?;
    real.file_name()
        .map(ToOwned::to_owned)
        .with_context(|| format!("{} has no file name to copy it to", path.display()))
}
