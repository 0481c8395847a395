//! `medfs mkfs` and `mkfs.medfs`: makes a volume and fills it.

use crate::args::MkfsArgs;
use crate::content::Content;
use crate::exit::Coded;
use crate::undo::Undo;
use crate::words::count;
use crate::{exit, json, output, progress, size, survivor, target, undo, words};
use anyhow::{Context, Result, anyhow, bail};
use clap::{CommandFactory, FromArgMatches};
use medfs::options::nearest;
use medfs::{Files, ManualClock, MountOptions, SetAttr, SystemClock, Timestamp, Volume};
use medfs_device::quote::{self, hint};
use medfs_device::{Access, BlockDevice, FileDevice};
use medfs_flash::FlashTarget;
use medfs_mkfs::{Layout, MkfsOptions, Summary, format_volume, parse_features};
use medfs_transfer::{Filled, Filler, copy_in, tarball};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The largest volume of F2FS.
const LARGEST: u64 = 16 << 40;
/// A smaller size lacks its unit.
const LEAST_WITHOUT_UNIT: u64 = 64 << 10;

/// Called as `mkfs.medfs`: the same arguments.
pub(crate) fn helper(args: &[OsString]) -> u8 {
    #[derive(clap::Parser)]
    #[command(name = "mkfs.medfs", about = "Make a volume", version)]
    struct Helper {
        #[command(flatten)]
        args: MkfsArgs,
    }
    let parsed = Helper::command().try_get_matches_from(args).and_then(|m| Helper::from_arg_matches(&m));
    match parsed {
        Ok(helper) => exit::run("mkfs", exit::FAILURE, || run(&helper.args)),
        Err(e) => exit::usage(&e, "mkfs"),
    }
}

/// `medfs mkfs`
pub(crate) fn run(args: &MkfsArgs) -> Result<u8> {
    let mut options = options(args).map_err(|e| Coded::new(exit::USAGE, exit::sentence(&e)))?;
    let content = args.from.as_deref().map(Source::open).transpose()?;
    let claimed = prepare(args, &options)?;
    options.zeroed = claimed.new;
    let file = FlashTarget::parse(&args.image)?.map_or_else(|| args.image.clone(), |flash| flash.path);
    // A file that was made and not finished is of no use.
    undo::if_ended(
        "mkfs",
        match options.zeroed {
            true => format!("{} was removed", args.image.display()),
            false => format!("the volume on {} is not complete: run it again", args.image.display()),
        },
    );
    let unfinished = options.zeroed.then(|| Undo::new(move || drop(std::fs::remove_file(file))));
    // Of the volume that is overwritten.
    let log = survivor::waiting(&*claimed.device);
    let (summary, filled) = make(args, options, claimed, content).map_err(|e| match &unfinished {
        Some(_) => anyhow!("{}; {} was removed", exit::sentence(&e), args.image.display()),
        None => e,
    })?;
    if let Some(unfinished) = unfinished {
        unfinished.disarm();
    }
    if let Some(log) = log {
        survivor::remove(&log)?;
    }
    report(args, &summary, filled.as_ref())?;
    output::done("the volume is made");
    Ok(exit::SUCCESS)
}

fn options(args: &MkfsArgs) -> Result<MkfsOptions> {
    let uuid = args.uuid.unwrap_or_else(uuid::Uuid::new_v4);
    let mut options = MkfsOptions::new(*uuid.as_bytes(), timestamp(args)?.unwrap_or_else(now));
    options.label.clone_from(&args.label);
    if let Some(list) = &args.features {
        options.features = parse_features(list).map_err(with_nearest)?;
    }
    options.deltas = !args.plain;
    options.segs_per_sec = args.segs_per_sec;
    options.secs_per_zone = args.secs_per_zone;
    options.overprovision = args.overprovision;
    options.root_owner = args
        .root_owner
        .unwrap_or_else(|| (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()));
    options.discard = !args.nodiscard;
    options.validate()?;
    Ok(options)
}

/// The error about a feature, with the nearest to one that is unknown where one is near.
fn with_nearest(error: medfs_mkfs::Error) -> anyhow::Error {
    let medfs_mkfs::Error::UnknownFeature { name, known } = &error else { return error.into() };
    match nearest(name.trim_start_matches('^'), known.split(", ").map(str::to_owned)) {
        Some(nearest) => anyhow!("unknown feature '{name}': did you mean '{nearest}'?"),
        None => error.into(),
    }
}

/// The time asked for, by option or environment.
fn timestamp(args: &MkfsArgs) -> Result<Option<i64>> {
    match (args.timestamp, std::env::var("SOURCE_DATE_EPOCH")) {
        (Some(time), _) => Ok(Some(time)),
        (None, Ok(text)) => {
            let time = text
                .parse()
                .with_context(|| format!("SOURCE_DATE_EPOCH is '{text}', not a number of seconds"))?;
            Ok(Some(time))
        }
        (None, Err(_)) => Ok(None),
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// What the volume is made on, claimed.
struct Claimed {
    device: target::Target,
    /// The same, where it is an image file or a block device.
    file: Option<Arc<FileDevice>>,
    /// It was made just now.
    new: bool,
}

/// Opens the device; makes the image file, or sets its size.
fn prepare(args: &MkfsArgs, options: &MkfsOptions) -> Result<Claimed> {
    let path = args.image.display();
    refuse_to_make_a_device(&args.image)?;
    if let Some(flash) = FlashTarget::parse(&args.image)? {
        let new = prepare_flash(&flash, args)?;
        let device = crate::target::open_flash(&flash)?;
        refuse_to_overwrite(&*device, args)?;
        return Ok(Claimed { device, file: None, new });
    }
    let exists = match std::fs::metadata(&args.image) {
        Ok(meta) if meta.is_file() => true,
        Ok(meta) if meta.is_dir() => {
            bail!("{path} is a directory: name an image file in it, or a block device")
        }
        Ok(meta) if !meta.file_type().is_block_device() => {
            bail!("{path} is neither an image file nor a block device")
        }
        Ok(_) if args.size.is_some() => {
            bail!("--size applies to image files: a volume on a device takes all of {path}")
        }
        Ok(_) => true,
        Err(e) if e.kind() == ErrorKind::NotFound => false,
        Err(e) => return Err(e).with_context(|| format!("cannot access {path}")),
    };
    if let Some(size) = args.size.filter(|size| (1..LEAST_WITHOUT_UNIT).contains(size)) {
        bail!("a size without a unit is in bytes: --size {size}M is {size} MiB");
    }
    if let Some(size) = args.size.filter(|size| *size > LARGEST) {
        bail!("cannot create a volume on {path}: {} is too large: the maximum is 16 TiB", size::show(size));
    }
    if let Some(size) = args.size {
        // Before anything is made or changed.
        let blocks = size / medfs_format::BLOCK_SIZE as u64;
        Layout::compute(blocks, options).with_context(|| format!("cannot create a volume on {path}"))?;
    }
    match args.size {
        None if !exists => bail!("{path} does not exist: to create it, give its size, such as --size 1G"),
        Some(size) if !exists => make_file(&args.image, size)?,
        _ => {}
    }
    if let Some(size) = args.size.filter(|_| !args.quiet) {
        size::warn_of_small_disk("mkfs", &args.image, size, size);
    }
    let mut file = target::open_claimed(&args.image, Access::ReadWrite)?;
    if exists {
        refuse_to_overwrite(&file, args)?;
        if !args.force && !file.is_block_device() {
            refuse_content(&args.image)?;
        }
        if let Some(size) = args.size {
            file.set_len(size)
                .with_context(|| format!("cannot set the size of {path} to {}", size::show(size)))?;
        }
    }
    let file = Arc::new(file);
    Ok(Claimed { device: file.clone(), file: Some(file), new: !exists })
}

/// A path below `/dev` where nothing is: a device that is not there, most likely, and not a file that is
/// wanted.
fn refuse_to_make_a_device(image: &Path) -> Result<()> {
    let flash = FlashTarget::parse(image)?;
    let path = flash.as_ref().map_or(image, |flash| &flash.path);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let among_devices =
        parent.canonicalize().is_ok_and(|real| real.starts_with("/dev") && !real.starts_with("/dev/shm"));
    if among_devices && !path.exists() {
        bail!("{}: no such device (mkfs creates no image files in /dev)", path.display());
    }
    Ok(())
}

fn make_file(path: &Path, size: u64) -> Result<()> {
    let file = File::create_new(path).with_context(|| format!("cannot create {}", path.display()))?;
    file.set_len(size).with_context(|| {
        let _ = std::fs::remove_file(path);
        format!("cannot create {} with a size of {}", path.display(), size::show(size))
    })
}

/// Makes the file of a flash device where there is none; its size is fixed then.
fn prepare_flash(flash: &FlashTarget, args: &MkfsArgs) -> Result<bool> {
    match (flash.exists(), args.size) {
        (true, None) => Ok(false),
        (true, Some(_)) => {
            bail!("{} exists, and the size of a flash device is fixed: omit --size", flash.path.display())
        }
        (false, size) => Ok(flash.create(size).map(|()| true)?),
    }
}

fn refuse_to_overwrite(dev: &dyn BlockDevice, args: &MkfsArgs) -> Result<()> {
    if args.force {
        return Ok(());
    }
    let image = args.image.display();
    let found = medfs_mkfs::probe::find(dev).with_context(|| format!("cannot read {image}"))?;
    match found {
        Some(what) => bail!("{image} holds {what}: use --force to overwrite it"),
        None if medfs_fsck::shows_volume(dev)? => bail!(
            "{image} holds an F2FS volume whose superblocks are lost: {} rebuilds them, and --force overwrites all",
            hint(format_args!("medfs fsck --repair --undo FILE {}", quote::path(&args.image)))
        ),
        None if medfs_fsck::shows_nodes(dev)? => {
            bail!("{}, and --force overwrites all", target::beginning_lost(&args.image))
        }
        None => Ok(()),
    }
}

/// An image file is made over zeros alone: anything else may be a file that was named by mistake.
fn refuse_content(path: &Path) -> Result<()> {
    let content = Content::of(path).with_context(|| format!("cannot read {}", path.display()))?;
    match content {
        Content::Zeros => Ok(()),
        what => bail!("{} holds {what}: use --force to overwrite it", path.display()),
    }
}

fn make(
    args: &MkfsArgs,
    mut options: MkfsOptions,
    claimed: Claimed,
    content: Option<Source<'_>>,
) -> Result<(Summary, Option<Filled>)> {
    let path = &args.image;
    let Claimed { device: dev, file, new: is_new } = claimed;
    if file.as_ref().is_some_and(|file| file.is_block_device()) {
        options.start_sector = start_sector(path);
    }
    let mut summary = format_volume(&*dev, &options)
        .with_context(|| format!("cannot create a volume on {}", path.display()))?;
    summary.discarded &= file.is_none_or(|file| file.discards());
    let Some(content) = content else { return Ok((summary, None)) };
    if !is_new {
        let state =
            format!("{} is a new volume without all of the files: run it again with --force", path.display());
        undo::if_ended("mkfs", &state);
    }
    let volume = match timestamp(args)? {
        Some(secs) => {
            let clock = Arc::new(ManualClock::new(Timestamp { secs, nanos: 0 }));
            target::open_volume_at(dev, path, MountOptions::default(), clock)?
        }
        None => target::open_volume_at(dev, path, MountOptions::default(), Arc::new(SystemClock))?,
    };
    let filled = fill_from(&volume, content, args);
    let without_all = || format!("{} is a new volume without all of the files", path.display());
    let filled = if is_new {
        filled?
    } else {
        filled.map_err(|e| anyhow!("{}; {}", exit::sentence(&e), without_all()))?
    };
    let closed = medfs::convert::close_in_both_packs(&volume);
    closed.with_context(|| format!("cannot finish writing {}", path.display()))?;
    Ok((summary, Some(filled)))
}

/// What a volume is filled with.
enum Source<'a> {
    Directory(&'a Path),
    Archive(&'a Path, tarball::Opened),
}

impl<'a> Source<'a> {
    /// Looks at it before anything is made or overwritten.
    fn open(source: &'a Path) -> Result<Source<'a>> {
        if source.is_dir() {
            return Ok(Source::Directory(source));
        }
        let opened = tarball::open(source).with_context(|| Source::cannot(source))?;
        Ok(Source::Archive(source, opened))
    }

    fn cannot(source: &Path) -> String {
        format!("cannot fill the volume from {}", source.display())
    }
}

fn fill_from(volume: &Volume, content: Source<'_>, args: &MkfsArgs) -> Result<Filled> {
    let filled = match content {
        Source::Directory(source) => {
            let bar = progress::bytes("filling", copy_in::content_bytes(source));
            let count = |bytes| bar.inc(bytes);
            let filled = Filler::new(volume, &count).fill(source, timestamp(args)?.is_some());
            bar.finish_and_clear();
            filled.with_context(|| Source::cannot(source))
        }
        Source::Archive(source, opened) => {
            let bar = match opened.size() {
                Some(len) => progress::bytes("filling", len),
                None => progress::unknown("filling"),
            };
            let filled = tarball::read(volume, opened, &|bytes| bar.inc(bytes));
            bar.finish_and_clear();
            filled.with_context(|| Source::cannot(source))
        }
    }?;
    if let Some((uid, gid)) = args.root_owner {
        // It was asked for, whatever the source says of its own directory.
        let owner = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        volume.setattr(volume.root(), &owner)?;
    }
    Ok(filled)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Made<'a> {
    image: String,
    label: &'a str,
    #[serde(flatten)]
    summary: &'a Summary,
    /// What it was filled with.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

/// Says what was made, and what it was filled with, once all of it is there.
fn report(args: &MkfsArgs, summary: &Summary, filled: Option<&Filled>) -> Result<()> {
    for warning in filled.iter().flat_map(|filled| &filled.warnings) {
        errln!("medfs mkfs: warning: {warning}");
    }
    if args.json {
        let (entries, bytes) = (filled.map(|f| f.entries), filled.map(|f| f.bytes));
        let image = args.image.display().to_string();
        return json::print(&Made { image, label: &args.label, summary, entries, bytes });
    }
    if args.quiet {
        return Ok(());
    }
    print_summary(args, summary);
    if let Some(filled) = filled {
        let entries = count(filled.entries, "file or directory");
        outln!("filled with {entries}, {} of content", size::show(filled.bytes));
    }
    Ok(())
}

/// First sector of a partition on its disk; 0 where it is a whole disk.
fn start_sector(path: &Path) -> u64 {
    let Ok(stat) = rustix::fs::stat(path) else { return 0 };
    let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    let start = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/start"));
    start.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

fn print_summary(args: &MkfsArgs, s: &Summary) {
    let features = if s.features.is_empty() { "none".to_string() } else { s.features.join(", ") };
    let line = |label: &str, value: &str| outln!("{}", words::field(10, label, value));
    let kind = if s.deltas { "medfs volume, with deltas," } else { "F2FS volume" };
    outln!("{}: {kind} of {}", args.image.display(), size::show(s.block_count * 4096));
    line("uuid", &uuid::Uuid::from_bytes(s.uuid).to_string());
    if !args.label.is_empty() {
        line("label", &args.label);
    }
    line("features", &features);
    let space = format!(
        "{} for files, {:.2} % over-provisioned ({} of {} segments, {} for cleaning)",
        size::show(s.user_blocks * 4096),
        s.overprovision_percent,
        s.overprovision_segments,
        s.main_segments,
        s.reserved_segments
    );
    line("space", &space);
    let (segments, sections) = (s.segs_per_section.into(), s.secs_per_zone.into());
    line("sections", &format!("{} each, {} a zone", count(segments, "segment"), count(sections, "section")));
    line("discarded", if s.discarded { "yes" } else { "no" });
}
