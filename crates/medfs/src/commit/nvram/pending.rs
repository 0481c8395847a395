//! Whether fsyncs may lie in an NVRAM when a volume is opened, and whether the memory that is given is the
//! one that has them.
//!
//! The superblock says which generation may; the checkpoint of an unmount made under a later version than it
//! notes says that none does.

use super::ring::{failed, nvram_journal};
use crate::commit::recovery::Records;
use crate::error::{Error, Result};
use crate::options::{MountOptions, NvramOption};
use medfs_device::{Nvram, quote};
use medfs_format::checkpoint::{CpFlags, RawCheckpoint};
use medfs_format::nvram::{Found, MAX_SIZE};
use medfs_format::superblock::{OFFSET_IN_BLOCK, RawNvramInfo, RawSuperblock};
use std::path::Path;
use uuid::Uuid;
use zerocopy::FromBytes;

/// The memory that a mount is given.
#[derive(Clone, Copy)]
pub(crate) struct BesideVolume<'m> {
    pub(crate) memory: &'m dyn Nvram,
    /// What is damaged of its records is given up.
    pub(crate) is_repaired: bool,
}

/// What a mount does about fsyncs in an NVRAM.
#[derive(Debug)]
pub(crate) enum Pending {
    /// There are none.
    Nothing,
    /// Those that the memory has.
    Records(Records),
    /// They are left behind, with all that was fsynced since the last checkpoint: without them the rest of it
    /// says nothing. Why, where the user did not ask for it.
    Leave(Option<String>),
}

/// Looks at what superblock, checkpoint and memory say. `Incompatible` where fsyncs would be lost, or those
/// of another volume.
pub(crate) fn pending(
    sb: &RawSuperblock,
    header: &RawCheckpoint,
    opts: &MountOptions,
    memory: Option<BesideVolume<'_>>,
) -> Result<Pending> {
    let unmounted = |info: &RawNvramInfo| {
        header.flags().contains(CpFlags::UMOUNT) && header.checkpoint_ver.get() > info.checkpoint.get()
    };
    match (sb.nvram_in_use().filter(|info| !unmounted(info)), memory) {
        (None, None) => Ok(Pending::Nothing),
        (None, Some(_)) if !sb.is_delta_volume() => Err(Error::Invalid(NEEDS_DELTAS.into())),
        (None, Some(BesideVolume { memory, .. })) => {
            check_usable(sb, memory, &nvram_journal(memory)?).map(|()| Pending::Nothing)
        }
        (Some(_), None) if opts.nvram == Some(NvramOption::Discard) => {
            tracing::warn!("nvram=discard: the fsyncs since the last checkpoint are discarded");
            Ok(Pending::Leave(None))
        }
        (Some(info), None) if opts.read_only => {
            let place = info.place();
            Ok(shown_without(&format!(
                "fsyncs may lie in the NVRAM {place}, and no nvram= names one that can be read"
            )))
        }
        (Some(_), None) => Ok(sb.check_no_nvram().map(|()| Pending::Nothing)?),
        (Some(info), Some(beside)) => match records(sb, header, info, beside) {
            Err(Error::Incompatible(why)) if opts.read_only => Ok(shown_without(&why)),
            Err(error) if opts.read_only => Ok(shown_without(&error.to_string())),
            found => found,
        },
    }
}

/// What a read-only mount does that cannot have the records.
fn shown_without(why: &str) -> Pending {
    Pending::Leave(Some(format!("{why}; the volume is shown as of its last checkpoint")))
}

/// Why the memory beside a volume of plain F2FS is no use.
const NEEDS_DELTAS: &str = "nvram= needs a volume with deltas, and this one is plain F2FS: mount it without nvram=, or convert it with 'medfs import'";

/// The command that makes a memory ready.
fn init(memory: &dyn Nvram) -> String {
    quote::hint(format_args!("medfs nvram init --force {}", quote::path(Path::new(&memory.name()))))
}

fn name(uuid: [u8; 16]) -> String {
    Uuid::from_bytes(uuid).to_string()
}

fn refuse<T>(memory: &dyn Nvram, what: String) -> Result<T> {
    Err(Error::Incompatible(format!("the NVRAM {} {what}", memory.name())))
}

/// Fails where a memory is another volume's, or is not to be understood: its content may be someone's fsyncs.
fn check_usable(sb: &RawSuperblock, memory: &dyn Nvram, found: &Found) -> Result<()> {
    match *found {
        Found::Blank => check_blank(memory),
        Found::Meta(meta) if meta.uuid == sb.uuid => Ok(()),
        Found::Meta(meta) => refuse(
            memory,
            format!(
                "belongs to the volume {}: give the NVRAM of this volume, or discard all fsyncs in that one with {}",
                name(meta.uuid),
                init(memory)
            ),
        ),
        Found::Damaged => refuse(
            memory,
            format!(
                "begins like a journal, but both copies of its metadata are damaged: {} discards what it holds",
                init(memory)
            ),
        ),
        Found::Version(version) => refuse_version(memory, version),
    }
}

fn refuse_version<T>(memory: &dyn Nvram, version: u32) -> Result<T> {
    refuse(memory, format!("has a journal of version {version}, which only a newer medfs understands"))
}

/// Fails where a memory that has no journal has anything else: it may be someone's.
fn check_blank(memory: &dyn Nvram) -> Result<()> {
    match nvram_content(memory)? {
        NvramContent::Zeros => Ok(()),
        NvramContent::Volume => refuse(memory, "is an F2FS volume: name a memory of its own".into()),
        NvramContent::Other => {
            refuse(memory, format!("holds data other than a journal: {} overwrites it", init(memory)))
        }
    }
}

/// What a memory holds that has no journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvramContent {
    /// Zeros, as far as a journal would use it: it is ready for one.
    Zeros,
    /// The superblock of an F2FS volume.
    Volume,
    /// Anything else.
    Other,
}

/// What a memory holds that has no journal. `Io` where it cannot be read.
pub fn nvram_content(memory: &dyn Nvram) -> Result<NvramContent> {
    let size = memory.size().min(MAX_SIZE);
    let mut some = vec![0; 1 << 16];
    for at in (0..size).step_by(some.len()) {
        let some = &mut some[..(size - at).min(1 << 16) as usize];
        memory.read(at, some).map_err(|e| failed(memory, "be read", &e))?;
        if some.iter().any(|&byte| byte != 0) {
            let sb = some.get(OFFSET_IN_BLOCK..).and_then(|rest| RawSuperblock::ref_from_prefix(rest).ok());
            let is_volume = at == 0 && sb.is_some_and(|(sb, _)| sb.has_magic());
            return Ok(if is_volume { NvramContent::Volume } else { NvramContent::Other });
        }
    }
    Ok(NvramContent::Zeros)
}

/// The records of a generation that may have some.
fn records(
    sb: &RawSuperblock,
    header: &RawCheckpoint,
    info: RawNvramInfo,
    beside: BesideVolume<'_>,
) -> Result<Pending> {
    let BesideVolume { memory, is_repaired } = beside;
    let wanted = info.generation.get();
    let otherwise = "give the one that the volume was mounted with, or nvram=discard";
    let meta = match nvram_journal(memory)? {
        Found::Blank => {
            return refuse(
                memory,
                format!("is blank, and the volume needs the journal {wanted:016x}: {otherwise}"),
            );
        }
        Found::Damaged => {
            return refuse(memory, format!("has two damaged copies of its metadata: {otherwise}"));
        }
        Found::Version(version) => return refuse_version(memory, version),
        Found::Meta(meta) => meta,
    };
    if meta.uuid != sb.uuid {
        return refuse(memory, format!("belongs to the volume {}: {otherwise}", name(meta.uuid)));
    }
    if meta.size > memory.size().min(MAX_SIZE) {
        let (has, had) = (memory.size(), meta.size);
        return refuse(memory, format!("has {has} bytes, and had {had}: {otherwise}"));
    }
    let mut bytes = vec![0; meta.size as usize];
    memory.read(0, &mut bytes).map_err(|e| failed(memory, "be read", &e))?;
    let read = if is_repaired { Records::of_damaged_journal } else { Records::of_journal };
    let mut records = read(bytes, &meta).map_err(|e| {
        let way = "'medfs fsck --repair --nvram' keeps the records before that, and nvram=discard none";
        Error::Incompatible(format!("the NVRAM {} is damaged ({e}): {way}", memory.name()))
    })?;
    // Power was lost between the two writes of a mount that had brought back what there was.
    let is_brought_back = meta.previous == wanted && records.is_empty();
    if meta.generation != wanted && !is_brought_back {
        let holds = meta.generation;
        return refuse(
            memory,
            format!("holds the journal {holds:016x}, and not the volume's {wanted:016x}: {otherwise}"),
        );
    }
    if let Err(why) = records.leave_later(&meta, header.checkpoint_ver.get()) {
        let way = "'medfs fsck --repair --nvram' mends that where it can, and nvram=discard gives them up";
        return refuse(memory, format!("{why}: {way}"));
    }
    Ok(if meta.generation == wanted || is_repaired { Pending::Records(records) } else { Pending::Nothing })
}
