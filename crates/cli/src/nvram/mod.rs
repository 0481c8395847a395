//! `medfs nvram`: the memory beside a volume that fsyncs go to, shown, made ready and checked.

pub(crate) mod args;

use crate::progress;
use crate::target::Target;
use crate::words::count;
use crate::{exit, json, size, target};
use anyhow::{Context, Result, bail};
use args::{CheckArgs, InfoArgs, InitArgs, NvramArgs, NvramCommand};
use medfs::{
    MountOptions, NvramContent, NvramPlace, PastDamage, SystemClock, Volume, nvram_content, nvram_journal,
    open_with_nvram, repair_with_nvram,
};
use medfs_device::quote::{self, hint};
use medfs_device::{BlockDevice, Nvram, NvramAccess, open_nvram, read_block};
use medfs_format::crc;
use medfs_format::nvram::{Found, Home, MAX_SIZE, Meta, RING_START, Record, Tag, scan, scan_to_damage};
use medfs_format::superblock::RawSuperblock;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// Bytes that are written at a time.
const CHUNK: usize = 1 << 20;

pub(crate) fn run(args: &NvramArgs) -> Result<u8> {
    match &args.command {
        NvramCommand::Info(args) => info(args),
        NvramCommand::Init(args) => init(args),
        NvramCommand::Check(args) => check(args),
    }
}

/// A memory to read. One that power loss empties is what it is.
fn open(place: &NvramPlace) -> Result<Arc<dyn Nvram>> {
    let access = NvramAccess { read_only: true, volatile: true };
    Ok(open_nvram(&place.path, place.offset, place.size, access)?)
}

/// What a memory holds.
#[derive(Debug, Default, Serialize)]
struct Holds {
    /// `zeros`, `journal`, or `something else`.
    holds: &'static str,
    bytes: u64,
    volume: Option<String>,
    journal: Option<String>,
    records: u64,
    record_bytes: u64,
    files: u64,
    pages: u64,
    nodes: u64,
    names: u64,
    /// When the last record was made: seconds since 1970.
    last: Option<i64>,
    /// What is wrong with it.
    damage: Option<String>,
}

impl Holds {
    fn of(memory: &dyn Nvram) -> Result<Holds> {
        let bytes = memory.size();
        let holds = match nvram_journal(memory)? {
            Found::Blank => {
                let holds = match nvram_content(memory)? {
                    NvramContent::Zeros => "zeros",
                    NvramContent::Volume => "an F2FS volume",
                    NvramContent::Other => "something else",
                };
                Holds { holds, ..Holds::default() }
            }
            Found::Damaged => {
                let damage = Some("both copies of the metadata are damaged".into());
                Holds { holds: "journal", damage, ..Holds::default() }
            }
            Found::Version(version) => {
                let damage =
                    Some(format!("its layout is version {version}, which only a newer medfs understands"));
                Holds { holds: "journal", damage, ..Holds::default() }
            }
            Found::Meta(meta) => Holds::of_journal(memory, &meta)?,
        };
        Ok(Holds { bytes, ..holds })
    }

    fn of_journal(memory: &dyn Nvram, meta: &Meta) -> Result<Holds> {
        let mut holds = Holds {
            holds: "journal",
            volume: Some(Uuid::from_bytes(meta.uuid).to_string()),
            journal: Some(format!("{:016x}", meta.generation)),
            ..Holds::default()
        };
        if meta.size > memory.size().min(MAX_SIZE) {
            holds.damage = Some(format!("it had {} bytes when the journal began", meta.size));
            return Ok(holds);
        }
        let mut bytes = vec![0; meta.size as usize];
        memory.read(0, &mut bytes)?;
        match scan(&bytes, meta) {
            Err(damage) => holds.damage = Some(damage.to_string()),
            Ok(scanned) => {
                let mut files = BTreeSet::new();
                for (_, record) in &scanned.records {
                    holds.records += 1;
                    holds.record_bytes += record.size() as u64;
                    holds.last = Some(record.stamp.time.secs);
                    for tag in record.tags() {
                        holds.add(&tag, &mut files);
                    }
                }
                holds.files = files.len() as u64;
            }
        }
        Ok(holds)
    }

    fn add(&mut self, tag: &Tag<'_>, files: &mut BTreeSet<u32>) {
        match tag {
            Tag::Delta { ino, home, .. } => {
                files.insert(*ino);
                match home {
                    Home::Page(_) => self.pages += 1,
                    Home::Node(_) | Home::Named => self.nodes += 1,
                }
            }
            Tag::Removed(_) => self.names += 1,
            Tag::Revoke { ino, .. } => drop(files.insert(*ino)),
        }
    }

    fn print(&self) {
        let Holds { holds, bytes, volume, journal, damage, .. } = self;
        outln!("size          {}", size::show(*bytes));
        match (*holds, volume, journal) {
            ("journal", Some(volume), Some(journal)) => {
                outln!("volume        {volume}\njournal       {journal}");
            }
            ("zeros", ..) => outln!("holds         no journal: it is ready for a volume"),
            ("journal", ..) => outln!("holds         a journal"),
            (other, ..) => outln!("holds         {other}: 'medfs nvram init --force' would destroy that"),
        }
        if let Some(damage) = damage {
            outln!("damaged       {damage}");
        } else if volume.is_some() {
            outln!(
                "records       {}, {}: {}, {}, {} of {}",
                self.records,
                size::show(self.record_bytes),
                count(self.pages, "page"),
                count(self.nodes, "node"),
                count(self.names, "removed name"),
                count(self.files, "file"),
            );
            outln!("              Whether the volume needs them still, 'medfs nvram check' tells.");
        }
    }
}

/// `medfs nvram info`
fn info(args: &InfoArgs) -> Result<u8> {
    let holds = Holds::of(&*open(&args.memory)?)?;
    if args.json {
        json::print(&holds)?
    } else {
        holds.print()
    }
    Ok(if holds.damage.is_some() { exit::FAILURE } else { exit::SUCCESS })
}

/// `medfs nvram init`
fn init(args: &InitArgs) -> Result<u8> {
    let path = &args.memory.path;
    if args.size.is_none() && !path.exists() {
        bail!("{} does not exist: --size SIZE makes a file for a memory", path.display());
    }
    let is_made = args.size.map_or(Ok(false), |size| make(path, size))?;
    let access = NvramAccess { read_only: false, volatile: args.volatile };
    let take_back = || is_made.then(|| std::fs::remove_file(path));
    let memory =
        open_nvram(path, args.memory.offset, args.memory.size, access).inspect_err(|_| drop(take_back()))?;
    let holds = Holds::of(&*memory).inspect_err(|_| drop(take_back()))?;
    if holds.holds == "zeros" {
        outln!("{} is ready for a volume: {}", args.memory, size::show(holds.bytes.min(MAX_SIZE)));
        return Ok(exit::SUCCESS);
    }
    // A journal without a record holds no fsync: its volume was unmounted, or has fsynced nothing.
    let is_empty = holds.volume.is_some() && holds.damage.is_none() && holds.records == 0;
    if !args.force && !is_empty {
        match &holds.volume {
            Some(volume) => bail!(
                "{} may hold fsyncs of the volume {volume}: mount and unmount that with it first, then use --force ('medfs nvram check' tells whether the volume still needs it)",
                args.memory
            ),
            None => bail!("{} holds {}: use --force to destroy that", args.memory, said(&holds)),
        }
    }
    let bytes = memory.size().min(MAX_SIZE);
    let bar = progress::bytes("zeros", bytes);
    for at in (0..bytes).step_by(CHUNK) {
        let zeros = vec![0; (bytes - at).min(CHUNK as u64) as usize];
        memory.write(at, &zeros).with_context(|| format!("cannot write {}", args.memory))?;
        bar.inc(zeros.len() as u64);
    }
    memory.persist(0, bytes)?;
    bar.finish_and_clear();
    outln!("{} is ready for a volume: {}", args.memory, size::show(bytes));
    Ok(exit::SUCCESS)
}

/// Makes a file for a memory; whether it was not there.
fn make(path: &Path, size: u64) -> Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(file) => file.set_len(size).with_context(|| format!("cannot create {}", path.display()))?,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return has_size(path, size).map(|()| false),
        Err(e) => return Err(e).with_context(|| format!("cannot create {}", path.display())),
    }
    Ok(true)
}

/// A file that is there already keeps its size.
fn has_size(path: &Path, wanted: u64) -> Result<()> {
    let there = path.metadata().with_context(|| format!("cannot access {}", path.display()))?;
    if there.is_file() && there.len() != wanted {
        let (there, wanted) = (size::show(there.len()), size::show(wanted));
        bail!("{} exists and has {there}, not {wanted}: leave --size out to use it as it is", path.display());
    }
    Ok(())
}

fn said(holds: &Holds) -> &str {
    match holds.holds {
        "journal" => "a damaged journal",
        "something else" => "data other than a journal",
        other => other,
    }
}

/// Opens a volume with the fsyncs that lie in a memory, for a repair.
pub(crate) fn replay(place: &NvramPlace, dev: &Target, image: &Path) -> Result<Volume> {
    let memory = open(place)?;
    repair_with_nvram(dev.clone(), memory, Arc::new(SystemClock))
        .with_context(|| format!("cannot replay {place} on {}", image.display()))
}

/// Whether a memory holds fsyncs of a volume whose checksums have this seed.
pub(crate) fn holds_fsyncs_of(place: &NvramPlace, seed: Option<u32>) -> bool {
    let Ok(memory) = open(place) else { return false };
    let Ok(Found::Meta(meta)) = nvram_journal(&*memory) else { return false };
    let gives = seed == Some(crc::chain(!0, &meta.uuid));
    gives && Holds::of_journal(&*memory, &meta).is_ok_and(|holds| holds.records > 0)
}

/// What of the records of a memory no replay comes to, as one of them is damaged, in words.
pub(crate) fn behind_damage(place: &NvramPlace) -> Result<Option<String>> {
    let memory = open(place)?;
    let Found::Meta(meta) = nvram_journal(&*memory)? else { return Ok(None) };
    if meta.size > memory.size().min(MAX_SIZE) {
        return Ok(None);
    }
    let mut bytes = vec![0; meta.size as usize];
    memory.read(0, &mut bytes)?;
    let Ok((scanned, Some(_))) = scan_to_damage(&bytes, &meta) else { return Ok(None) };
    let (mut behind, mut files, mut last) = (Holds::default(), BTreeSet::new(), scanned.sequence);
    for at in (RING_START..meta.size).step_by(meta.unit as usize) {
        let Ok(record) = Record::parse(&bytes[at as usize..], at) else { continue };
        if record.stamp.generation == meta.generation && record.stamp.sequence > scanned.sequence {
            last = last.max(record.stamp.sequence);
            record.tags().for_each(|tag| behind.add(&tag, &mut files));
        }
    }
    let (records, files) = (last - scanned.sequence, count(files.len() as u64, "file"));
    Ok((records > 0).then(|| {
        let records = count(records, "record");
        format!("{records} of {files} behind a damaged one, as none counts without those before it")
    }))
}

/// The NVRAM that a superblock of a volume names.
pub(crate) fn in_use(dev: &dyn BlockDevice) -> Option<String> {
    let copies = (0..2).filter_map(|at| read_block(dev, at).ok());
    let mut named = copies.filter(|block| target::is_credible_superblock(block));
    named.find_map(|block| Some(RawSuperblock::in_block(&block).nvram_in_use()?.place()))
}

/// Says that the volume was named in place of the NVRAM.
fn refuse_volume(args: &CheckArgs) -> Result<()> {
    let begins_as_volume = |path: &Path| {
        let device = target::open_to_look(path).ok()?;
        read_block(&*device, 0).ok().map(|block| target::is_superblock(&block))
    };
    let place = &args.memory;
    if place.offset == 0 && begins_as_volume(&place.path) == Some(true) {
        let (volume, memory) = (quote::path(&place.path), quote::path(&args.image));
        let command = hint(format_args!("medfs nvram check {memory} {volume}"));
        bail!("{} is a volume, and the NVRAM is named first: {command}", place.path.display());
    }
    Ok(())
}

/// `medfs nvram check`: what a read-only mount would bring back.
fn check(args: &CheckArgs) -> Result<u8> {
    refuse_volume(args)?;
    let memory = open(&args.memory)?;
    let holds = Holds::of(&*memory)?;
    let device = target::open_to_look(&args.image)?;
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let volume = open_with_nvram(device, memory, options, Arc::new(SystemClock))?;
    let pending = volume.superblock().nvram_in_use().is_some();
    let lost = PastDamage::of(&volume).unrecovered();
    if !pending {
        outln!("the volume was unmounted: it needs no NVRAM");
    } else if let Some((_, first)) = lost.first() {
        let more = if lost.len() > 1 { format!(", and {} more", lost.len() - 1) } else { String::new() };
        bail!("{first}{more}");
    } else {
        outln!(
            "{} holds the journal that the volume needs: {} can be recovered",
            args.memory,
            count(holds.records, "record")
        );
    }
    Ok(exit::SUCCESS)
}
