//! `medfs get`: copies files out of a volume, with modes, times, attributes, holes and hard links.
//!
//! What cannot be read is passed by and told at the end ([`result`]); the walk is medfs-rescue's.

pub(crate) mod args;
pub(crate) mod map;
mod result;

use crate::damaged::Newer;
use crate::exit::Coded;
use crate::list::failure_line;
use crate::progress::Scan;
use crate::{damaged, exit, nvram, output, progress, survivor, target, undo, words};
use anyhow::{Context, Result, bail};
use args::GetArgs;
use indicatif::ProgressBar;
use map::{Keeper, Spared};
use medfs::{FileKind, Files, PastDamage, Piece, SystemClock, Volume};
use medfs_device::quote::{self, hint};
use medfs_device::{BlockDevice, read_block};
use medfs_format::BLOCK_SIZE;
use medfs_rescue::salvage::{self, SalvageError};
use medfs_rescue::{Failure, Lost, Outcome, Place, Walk, doubt};
use medfs_transfer::{Held, HostDir};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Paths of the volume, and what each leads to.
type Found<'s, 'v> = Vec<(&'s PathBuf, Held<'v>)>;

/// What was copied, and the error that ended the copying before all was.
type Ended = (Outcome, io::Result<()>, More);

/// What a salvage may bring beside files that were not come to.
struct More {
    newer: Newer,
    /// Content of files that are incomplete.
    fills: bool,
}

impl More {
    const NOTHING: More = More { newer: Newer::Nothing, fills: false };

    fn of(volume: &Volume, outcome: &Outcome) -> More {
        let fills = outcome.failures.iter().any(|failure| may_be_filled(volume, failure));
        More { newer: Newer::of(volume), fills }
    }
}

/// Whether holes of a file hide content that may be there: damage that is told by its field is that of a structure, a
/// page that the device does not read is lost, and blocks that a file counts may lie where no node names them.
fn may_be_filled(volume: &Volume, failure: &Failure) -> bool {
    let hides = |ino| PastDamage::of(volume).hides_pages(ino).unwrap_or(false);
    let is_hole = failure.lost.bytes > 0;
    is_hole && (failure.reason.contains(": field ") || failure.ino.is_some_and(hides))
        || failure.reason.contains(medfs_rescue::SHORT)
}

/// `medfs get`
pub(crate) fn run(args: &GetArgs) -> Result<u8> {
    let Some((destination, sources)) = args.paths.split_last() else {
        let copies = damaged::salvage(&args.image);
        let text = format!("the directory of this machine to copy to is missing: {copies}");
        return Err(Coded::new(exit::USAGE, text).into());
    };
    if args.salvage && is_no_place_for_all(destination) {
        let text = format!(
            "--salvage copies everything into a directory of this machine, and not to {}: name another one",
            destination.display()
        );
        return Err(Coded::new(exit::USAGE, text).into());
    }
    if args.salvage && !sources.is_empty() {
        let whole = format!("{} {}", damaged::salvage_copied_to(&args.image), quote::path(destination));
        let text = format!(
            "--salvage copies everything, and takes no paths of the volume: {}",
            hint(format_args!("{whole}"))
        );
        return Err(Coded::new(exit::USAGE, text).into());
    }
    let command = if args.recursive { "get -r" } else { "get" };
    target::image_first(command, &args.image, &args.paths, exit::USAGE)?;
    if !args.salvage && sources.is_empty() {
        return Err(Coded::new(exit::USAGE, without_destination(args, destination)).into());
    }
    if args.json && destination.as_os_str() == "-" {
        let text = "--json and '-' both write to standard output";
        return Err(Coded::new(exit::USAGE, text).into());
    }
    check_destination(destination)?;
    let (device, mut keeper) = map::open(&args.image, args.map.as_deref(), args.retry, args.salvage)?;
    let outcome = match args.salvage {
        true => everything(args, device, destination, &mut keeper),
        false => named(args, device, destination, sources, &mut keeper),
    };
    // What was learned of the device is kept, whatever else failed.
    let kept = keeper.finish();
    let (outcome, ended, more) = outcome?;
    let code = result::tell(args, &outcome, ended, &keeper, more)?;
    kept?;
    Ok(code)
}

/// That it is not said where on this machine a path of the volume goes.
fn without_destination(args: &GetArgs, path: &Path) -> String {
    let (image, word) = (quote::path(&args.image), quote::path(path));
    match args.recursive || path.as_os_str().as_bytes().ends_with(b"/") {
        true => format!(
            "a directory of this machine to copy to is missing: {}",
            hint(format_args!("medfs get -r {image} {word} DIRECTORY"))
        ),
        false => format!(
            "the place on this machine to copy to is missing: {} copies into the current directory",
            hint(format_args!("medfs get {image} {word} ."))
        ),
    }
}

/// Copies what the user has named.
fn named(
    args: &GetArgs,
    device: Spared,
    destination: &Path,
    sources: &[PathBuf],
    keeper: &mut Keeper,
) -> Result<Ended> {
    crate::log::without_damage();
    let volume = target::open_volume_read_only(device, &args.image)?;
    if destination.as_os_str() == "-" {
        let outcome = to_stdout(&volume, &args.image, sources, keeper)?;
        let more = More::of(&volume, &outcome);
        return Ok((outcome, Ok(()), more));
    }
    let into_folder = destination.is_dir();
    if sources.len() > 1 && !into_folder {
        bail!("{} is not a directory: several files are copied into one", destination.display());
    }
    let (found, missing) = look_up(&volume, &args.image, sources)?;
    let is_directory = destination.as_os_str().as_bytes().ends_with(b"/");
    if is_directory && !into_folder && found.iter().any(|(_, held)| !held.is_dir()) {
        bail!("{} is not a directory: make it first, or name a file", destination.display());
    }
    if let Some((source, _)) = found.iter().find(|(_, held)| held.is_dir() && !args.recursive) {
        bail!("{} is a directory: -r copies a directory with its content", source.display());
    }
    if into_folder {
        check_names(sources)?;
    }
    let makes = found.iter().any(|(_, held)| held.is_dir()) && !into_folder;
    if makes {
        std::fs::create_dir(destination)
            .with_context(|| format!("cannot create {}", destination.display()))?;
    }
    tell_if_ended();
    let root = if into_folder || makes { destination } else { parent(destination) };
    let bar = bar(&volume, &found);
    let host = host(root, &args.image, &bar, keeper)?;
    let mut walk = Walk::new(&volume, host);
    let mut ended = Ok(());
    for (source, held) in &found {
        let name = match (into_folder, makes) {
            (true, _) => source.file_name(),
            (false, true) => None,
            (false, false) => destination.file_name(),
        };
        let at = Place::top(name.map(OsStrExt::as_bytes), source.as_os_str().as_bytes());
        ended = ended.and_then(|()| walk.tree(held.ino(), at.clone(), held.entry()));
        match held.ino() == volume.root() {
            true if ended.is_ok() => walk.count_unmet(&at),
            true => walk.count_untried(),
            false => {}
        }
    }
    if found.iter().all(|(_, held)| held.ino() != volume.root()) {
        walk.tell_lost_with_journals();
    }
    bar.finish_and_clear();
    let mut outcome = walk.finish().0;
    missing.into_iter().for_each(|failure| outcome.fail(failure));
    let more = More::of(&volume, &outcome);
    Ok((outcome, ended, more))
}

/// What paths of the volume lead to, and those that lead to nothing; an error where all do.
fn look_up<'v, 's>(
    volume: &'v Volume,
    image: &Path,
    sources: &'s [PathBuf],
) -> Result<(Found<'s, 'v>, Vec<Failure>)> {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for source in sources {
        match damaged::find(volume, image, source) {
            Ok(held) => found.push((source, held)),
            Err(error) if sources.len() == 1 => return Err(error),
            Err(error) => missing.push(not_found(source, &error)),
        }
    }
    if found.is_empty() {
        let named: Vec<String> = missing.iter().map(failure_line).collect();
        bail!("nothing was copied: {}", named.join("; "));
    }
    Ok((found, missing))
}

/// A path of the volume that leads to nothing.
fn not_found(source: &Path, error: &anyhow::Error) -> Failure {
    let (text, name) = (exit::sentence(error), source.display());
    let reason = [format!("{name} in the volume: "), format!("{name}: ")];
    let reason = reason.iter().find_map(|before| text.strip_prefix(before)).unwrap_or(&text).to_owned();
    Failure { path: source.as_os_str().as_bytes().to_vec(), ino: None, reason, lost: Lost::default() }
}

/// A directory to copy to, which tells of what it gets.
fn host<'a>(root: &Path, image: &Path, bar: &'a ProgressBar, keeper: &'a mut Keeper) -> Result<HostDir<'a>> {
    let told = |bytes| {
        bar.inc(bytes);
        keeper.keep();
    };
    let dir = HostDir::new(root, told).with_context(|| cannot_copy_to(root))?;
    Ok(dir.sparing(image))
}

/// Whether something can be made where files are to go, before a dying device is read for nothing.
fn check_destination(destination: &Path) -> Result<()> {
    if destination.as_os_str() == "-" {
        return Ok(());
    }
    let root = if destination.is_dir() { destination } else { parent(destination) };
    tempfile::tempfile_in(root).with_context(|| cannot_copy_to(root))?;
    Ok(())
}

/// Whether a salvage is not to go there: standard output, or the root directory, which may be meant as the volume's.
fn is_no_place_for_all(destination: &Path) -> bool {
    destination.as_os_str() == "-" || destination.canonicalize().is_ok_and(|path| path == Path::new("/"))
}

/// A directory in which nothing can be made, by a name that says which it is.
fn cannot_copy_to(dir: &Path) -> String {
    match dir == Path::new(".") {
        true => "cannot copy to the current directory".to_owned(),
        false => format!("cannot copy to {}", dir.display()),
    }
}

/// What is there when the user ends the copying.
fn tell_if_ended() {
    undo::if_ended(
        "get",
        "what was copied is there, and a file that was being copied may be there in part, as NAME.partial: run it again to copy the rest",
    );
}

/// Refuses to copy two files to one name.
fn check_names(sources: &[PathBuf]) -> Result<()> {
    let mut names = HashMap::new();
    for source in sources {
        if let Some(name) = source.file_name()
            && let Some(other) = names.insert(name, source)
        {
            let (source, other) = (source.display(), other.display());
            bail!("{other} and {source} would both be called {}: copy them one at a time", name.display());
        }
    }
    Ok(())
}

/// Copies all that can be read, whether it has a name or not.
fn everything(args: &GetArgs, device: Spared, destination: &Path, keeper: &mut Keeper) -> Result<Ended> {
    undo::if_ended("get", "nothing was copied yet");
    target::explain_nothing_to_salvage(&*device, &args.image)?;
    let image = args.image.display();
    let in_nvram = nvram::in_use(&*device).map(|place| {
        let ways = damaged::ways_to_fsyncs(&place, &args.image);
        format!("fsyncs since the last checkpoint may lie in the NVRAM {place}, and a salvage does not bring them: {ways}")
    });
    let changes = tempfile::tempfile().with_context(|| {
        let dir = std::env::temp_dir();
        format!("cannot create a temporary file in {}, which the variable TMPDIR names", dir.display())
    })?;
    let bar = Scan::new("scanning the volume");
    let salvaged = salvage::open(device.clone(), changes, Arc::new(SystemClock), &mut |done| {
        bar.at(done, device.bytes_read());
        keeper.keep();
    });
    bar.end();
    let salvaged = salvaged.map_err(|error| nothing_of(&*device, &args.image, error))?;
    let is_fault = |finding: &&medfs_fsck::Finding| finding.severity >= medfs_fsck::Severity::Error;
    let faults = salvaged.found.findings.iter().filter(is_fault).count() as u64 + salvaged.found.suppressed;
    if faults > 0 {
        let check = hint(format_args!("medfs fsck {}{}", damaged::map_option(), quote::path(&args.image)));
        // A check does not look into what another file system was made over.
        let is_cut_short = salvage::whole_length(device.clone()).missing() > 0;
        let lists = match target::explain_nothing_to_check(&*device, &args.image) {
            // Of an image that was cut short it finds that first.
            Ok(()) if is_cut_short => String::new(),
            Ok(()) => format!(": {check} lists them"),
            Err(_) => String::new(),
        };
        errln!("medfs get: {image} has {}{lists}", words::count(faults, "fault"));
    }
    match std::fs::create_dir(destination) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists && destination.is_dir() => {}
        made => made.with_context(|| format!("cannot create {}", destination.display()))?,
    }
    tell_if_ended();
    let volume = salvaged.volume;
    let bar = progress::bytes("copying", bytes_in_use(&volume));
    let host = host(destination, &args.image, &bar, keeper)?;
    let mut walk = Walk::new(&volume, host).with_cuts(salvaged.cuts).for_unnamed(&salvaged.found.lost);
    walk = walk.with_gone(salvaged.gone).with_doubt(salvaged.doubt).with_log_gaps(salvaged.log_gaps);
    walk = walk.without_checkpoint(salvaged.reckoned).without_journals(salvaged.journals_lost);
    walk = walk.with_doubt(in_nvram).with_doubt(survivor::lacks(&*device, &args.image, salvaged.found.seed));
    walk = walk.with_altered(salvaged.altered).with_targets_lost(&salvaged.found.targets_lost);
    walk = walk.with_doubt(target::made_over(&*device).map(|what| {
        format!(
            "{what} was made over this volume and overwrote parts of it: any file may hold bytes of that, also one that is said to be whole"
        )
    }));
    let top = Place::top(None, b"/");
    let ended = walk.tree(volume.root(), top.clone(), None).and_then(|()| walk.unnamed(&top));
    if ended.is_err() {
        walk.count_untried();
    }
    bar.finish_and_clear();
    let outcome = walk.finish().0;
    if ended.is_ok() && outcome.is_empty() {
        errln!(
            "medfs get: {image} holds no files. If it was formatted by mistake, nothing is left of what the new format discarded"
        );
    }
    Ok((outcome, ended, More::NOTHING))
}

/// Why nothing can be salvaged, and what the device holds in place of a volume, where that is known.
fn nothing_of(device: &dyn BlockDevice, image: &Path, error: SalvageError) -> anyhow::Error {
    if let SalvageError::Io(full) = &error
        && matches!(full.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    {
        let dir = std::env::temp_dir();
        let again = hint(format_args!("TMPDIR=DIRECTORY {}", damaged::salvage_command(image)));
        return anyhow::anyhow!(
            "nothing was copied yet: {} has no room for the temporary file with the differences; {again} puts it elsewhere",
            dir.display()
        );
    }
    let nothing = format!("nothing can be salvaged from {}", image.display());
    let is_hopeless = matches!(error, SalvageError::Hopeless(_));
    let why = anyhow::Error::from(error).context(nothing);
    let is_volume =
        || (0..2).any(|at| read_block(device, at).is_ok_and(|block| target::is_superblock(&block)));
    match target::begins_elsewhere(device, image) {
        _ if !is_hopeless => why,
        Some(what) => anyhow::anyhow!("{what}"),
        None if is_volume() => why,
        None => match target::instead(device, image) {
            Some(what) => anyhow::anyhow!("{what}"),
            None => anyhow::anyhow!("{}; {}", exit::sentence(&why), target::IS_IT_THE_RIGHT_ONE),
        },
    }
}

/// The directory that a new name is in.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A bar with an end, where the end is known.
fn bar(volume: &Volume, found: &[(&PathBuf, Held<'_>)]) -> ProgressBar {
    let root = found.iter().any(|(_, held)| held.ino() == volume.root());
    match found.iter().any(|(_, held)| held.is_dir()) {
        _ if root => progress::bytes("copying", bytes_in_use(volume)),
        true => progress::unknown("copying"),
        false => progress::bytes("copying", found.iter().map(|(_, held)| held.attr.size).sum()),
    }
}

/// About as much as the content of all files is.
fn bytes_in_use(volume: &Volume) -> u64 {
    let stats = volume.stats();
    stats.valid_blocks.saturating_sub(stats.valid_nodes.into()) * BLOCK_SIZE as u64
}

/// Copies regular files to standard output; zeros stand for what cannot be read, so that all else is at its
/// place.
fn to_stdout(volume: &Volume, image: &Path, sources: &[PathBuf], keeper: &mut Keeper) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let (found, missing) = look_up(volume, image, sources)?;
    missing.into_iter().for_each(|failure| outcome.fail(failure));
    for (source, held) in found {
        if held.attr.kind != FileKind::Regular {
            bail!(
                "{} is not a regular file: only regular files are written to standard output",
                source.display()
            );
        }
        let path = source.as_os_str().as_bytes();
        let doubt = held.entry().and_then(|(dir, name)| {
            let of_kind = || doubt::of_kind(&held.attr, doubt::kind_in(volume, dir, name));
            doubt::of(volume, &held.attr, dir, name, true).or_else(of_kind)
        });
        let is_doubted = doubt.is_some();
        if let Some(reason) = doubt {
            let (path, ino, lost) = (path.to_vec(), Some(held.ino()), Lost::default());
            outcome.fail(Failure { path, ino, reason, lost });
        }
        let mut out = Stream { out: output::stdout(), at: 0 };
        let (mut written, mut lost, mut reason) = (Ok(()), Lost::default(), None);
        PastDamage::of(volume).read(held.ino(), &mut |piece| {
            keeper.keep();
            match piece {
                Piece::Data(offset, bytes) => written = out.write(offset, bytes),
                Piece::Lost(range, error) => {
                    reason.get_or_insert(error.to_string());
                    lost.add(range);
                }
            }
            written.is_ok()
        })?;
        written?;
        if lost.bytes == 0 {
            reason = doubt::of_content(volume, held.ino());
        }
        out.write(held.attr.size, &[])?;
        out.out.flush()?;
        outcome.files += 1;
        outcome.bytes += held.attr.size - lost.bytes;
        outcome.flawed += u64::from(is_doubted || reason.is_some());
        if let Some(reason) = reason {
            let reason = match lost.bytes {
                0 => reason,
                _ => format!("{lost} cannot be read and were replaced by zeros: {reason}"),
            };
            outcome.fail(Failure { path: path.to_vec(), ino: Some(held.ino()), reason, lost });
        }
    }
    Ok(outcome)
}

/// Standard output as a file without holes.
struct Stream {
    out: output::Output,
    at: u64,
}

impl Stream {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        while self.at < offset {
            let len = (offset - self.at).min(ZEROS.len() as u64);
            self.out.write_all(&ZEROS[..len as usize])?;
            self.at += len;
        }
        self.out.write_all(bytes)?;
        self.at += bytes.len() as u64;
        Ok(())
    }
}
