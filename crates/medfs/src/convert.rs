//! From plain F2FS to a volume that may hold deltas, and back.
//!
//! The superblock's magic is what tells the two apart, so a switch is two writes, of one copy after the
//! other, each durable before the next. Copies that disagree mean a volume without deltas: an import has made
//! none yet, an export has folded all. Whoever opens such a volume to write makes both plain again. So a
//! crash at any moment leaves the old or the new kind, with everything in it. Before a switch the last
//! checkpoint is in both packs: of a pack that is damaged later, nothing leads back to a volume of the other
//! kind.
//!
//! A volume that lacks features that deltas need gets them with the magic. `flexible_inline_xattr` demands
//! extra attributes of every inode, which then have none, and no F2FS driver would take a volume on the way.
//! So the import of such a volume has these steps:
//!
//! 1. *Survey*, on a read-only mount: what every inode needs, and whether there is room. Nothing is written.
//! 2. Where some inodes have extra attributes already, these are *completed*, on plain F2FS, for which
//!    nothing changes by that.
//! 3. The superblocks become those of a volume with deltas, with all features, and say that inodes may have
//!    the *old layout* ([`DELTA_OLD_LAYOUTS`](medfs_format::superblock::DELTA_OLD_LAYOUTS)). An inode without
//!    extra attributes is read as before.
//! 4. Each inode gets extra attributes ([`crate::layout`]), in ordinary operations between ordinary checkpoints.
//! 5. The superblocks no longer allow the old layout.
//!
//! Up to step 3 the volume is the plain F2FS that it was; from there on medfs mounts, writes and checks it at
//! any moment. Files of the old layout take no deltas. An import that was interrupted goes on when it is run
//! again; an export ends it first. That all inodes are laid out at once, not when they are next written,
//! keeps an export certain: it never needs room for inodes.

use crate::commit::checkpoint::CheckpointSink;
use crate::error::{Error, Result};
use crate::file_ops::Folded;
use crate::files::Files;
use crate::layout::{LayoutWork, Layouts};
use crate::mount::{names, unwritable};
use crate::options::{DeltaMode, MountOptions};
use crate::tree::hiding::{DIR, LIST};
use crate::volume::Volume;
use medfs_device::BlockDevice;
use medfs_format::Ino;
use medfs_format::superblock::{DELTA_FEATURES, Feature, RawSuperblock};
use medfs_store::Clock;
use medfs_store::{Io, read_superblock, write_superblocks};
use serde::Serialize;
use std::sync::Arc;

/// What a conversion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Converted {
    /// Whether the volume was of the other kind before.
    pub switched: bool,
    /// What was folded by an export.
    pub folded: Folded,
    /// What was laid out anew.
    pub layouts: LayoutWork,
    /// Inodes that were restored from the log of fsynced files first.
    pub recovered_inodes: u64,
}

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Looking at every inode.
    Survey,
    /// Completing the extra attributes that are there.
    Complete,
    /// Giving extra attributes to inodes.
    LayOut,
    /// Writing deltas as whole pages.
    Fold,
}

/// Is told how many inodes of how many are done.
pub type Progress<'a> = &'a mut dyn FnMut(Phase, u64, u64);

/// What an import does beyond what it must.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportOptions {
    /// Writes databases of several MiB anew, so that they take deltas: by name, as SQLite's users name them.
    pub databases: bool,
}

/// What an import is going to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Whether the volume is plain F2FS now.
    pub switches: bool,
    /// Whether an import of the volume was interrupted.
    pub resumes: bool,
    /// Inodes of the volume.
    pub inodes: u64,
    /// What is to be laid out anew.
    pub layouts: LayoutWork,
    /// Free blocks that this needs.
    pub needed_blocks: u64,
    /// Free blocks of the volume.
    pub free_blocks: u64,
}

/// An import that was found possible. Nothing is written before [`Import::run`].
pub struct Import {
    dev: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    sb: RawSuperblock,
    options: ImportOptions,
    plan: Plan,
}

impl Import {
    /// Looks at a volume, which nobody has mounted, and at all its inodes where it lacks features that deltas
    /// need. An error says why it cannot be imported.
    pub fn plan(
        dev: Arc<dyn BlockDevice>,
        clock: Arc<dyn Clock>,
        options: ImportOptions,
        progress: Progress<'_>,
    ) -> Result<Import> {
        let (sb, ..) = read_superblock(&Io::new(dev.clone()))?;
        check_importable(sb.features())?;
        let read_only = MountOptions { read_only: true, ..MountOptions::default() };
        let volume = Volume::open(dev.clone(), read_only, clock.clone())?;
        if !sb.is_delta_volume() {
            check_names(&volume)?;
        }
        let layouts = match has_work(&sb, options) {
            true => survey(&volume, options, progress)?,
            false => LayoutWork::default(),
        };
        let plan = Plan {
            switches: !sb.is_delta_volume(),
            resumes: sb.has_old_layouts(),
            inodes: volume.stats().valid_inodes.into(),
            layouts,
            needed_blocks: layouts.needed_blocks(),
            free_blocks: volume.space().free,
        };
        Ok(Import { dev, clock, sb, options, plan })
    }

    /// What is going to be done.
    pub fn of(&self) -> &Plan {
        &self.plan
    }

    /// Does it, after recovering the volume. It can be interrupted at any moment, and is then to be run again.
    pub fn run(self, progress: Progress<'_>) -> Result<Converted> {
        let Import { dev, clock, sb, options, .. } = &self;
        let volume = open(dev, clock.clone())?;
        if !sb.is_delta_volume() && !has_all(sb) && sb.features().contains(Feature::EXTRA_ATTR) {
            Layouts(&volume.commit)
                .complete_extra(&mut |done, total| progress(Phase::Complete, done, total))?;
        }
        let mut done = Converted {
            switched: !sb.is_delta_volume(),
            folded: Folded::default(),
            layouts: LayoutWork::default(),
            recovered_inodes: volume.stats().recovered_inodes,
        };
        match done.switched {
            true => close_in_both_packs(&volume)?,
            false => volume.close()?,
        }
        if done.switched {
            switch(dev, &volume, RawSuperblock::become_delta_volume)?;
        }
        drop(volume);
        if has_work(sb, *options) {
            let volume = open(dev, clock.clone())?;
            done.layouts = lay_out(&volume, *options, progress)?;
            close_in_both_packs(&volume)?;
            if volume.superblock().has_old_layouts() {
                switch(dev, &volume, RawSuperblock::leave_old_layouts)?;
            }
        }
        Ok(done)
    }
}

/// Makes a plain F2FS volume, which nobody has mounted, one that may hold deltas, after recovering it:
/// [`Import`] without a look at the plan.
pub fn import(dev: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Converted> {
    Import::plan(dev, clock, ImportOptions::default(), &mut |_, _, _| ())?.run(&mut |_, _, _| ())
}

/// Databases of a volume with deltas that take none: they had direct nodes before the import. An import with
/// [`ImportOptions::databases`] gives them room.
pub fn databases_without_zone(volume: &Volume) -> Result<Vec<Ino>> {
    Layouts(&volume.commit).databases_without_zone()
}

/// Makes a volume with deltas, which nobody has mounted, a plain F2FS one: recovers it, writes every page
/// that is a delta as a whole, and takes the zones away. An import that was interrupted is ended first.
pub fn export(dev: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>, progress: Progress<'_>) -> Result<Converted> {
    let (sb, ..) = read_superblock(&Io::new(dev.clone()))?;
    if sb.has_old_layouts() {
        Import::plan(dev.clone(), clock.clone(), ImportOptions::default(), progress)?.run(progress)?;
    }
    let volume = open(&dev, clock)?;
    let mut folded = Folded::default();
    if sb.is_delta_volume() {
        folded = volume.fold_deltas(&mut |done, total| progress(Phase::Fold, done, total))?;
    }
    match sb.is_delta_volume() {
        true => close_in_both_packs(&volume)?,
        false => volume.close()?,
    }
    if sb.is_delta_volume() {
        switch(&dev, &volume, RawSuperblock::become_plain)?;
    }
    Ok(Converted {
        switched: sb.is_delta_volume(),
        folded,
        layouts: LayoutWork::default(),
        recovered_inodes: volume.stats().recovered_inodes,
    })
}

fn open(dev: &Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Volume> {
    let options = MountOptions { delta: Some(DeltaMode::Off), ..MountOptions::default() };
    let volume = Volume::open(dev.clone(), options, clock)?;
    if volume.is_read_only() { Err(Error::ReadOnly) } else { Ok(volume) }
}

/// [`Volume::close`] with the final checkpoint in both packs, for a volume that was filled or converted as a
/// whole. The checkpoint before it is of a volume that was half done: nothing leads back to it afterwards,
/// also where a pack is damaged. It costs one pack more, some six blocks.
pub fn close_in_both_packs(volume: &Volume) -> Result<()> {
    if volume.is_read_only() {
        return volume.close();
    }
    CheckpointSink.for_unmount_in_both_packs(&volume.commit)
}

/// Changes both superblocks of a volume that was closed.
fn switch(dev: &Arc<dyn BlockDevice>, volume: &Volume, change: fn(&mut RawSuperblock)) -> Result<()> {
    let mut sb = volume.superblock().clone();
    change(&mut sb);
    Ok(write_superblocks(&Io::new(dev.clone()), &sb, &[0, 1])?)
}

fn has_all(sb: &RawSuperblock) -> bool {
    sb.features().contains(DELTA_FEATURES)
}

/// Whether inodes may have to be laid out.
fn has_work(sb: &RawSuperblock, options: ImportOptions) -> bool {
    !has_all(sb) || sb.has_old_layouts() || options.databases
}

fn survey(volume: &Volume, options: ImportOptions, progress: Progress<'_>) -> Result<LayoutWork> {
    let work = Layouts(&volume.commit)
        .survey(options.databases, &mut |done, total| progress(Phase::Survey, done, total))?;
    let (needed, free) = (work.needed_blocks(), volume.space().free);
    if needed > free {
        return Err(Error::Invalid(format!(
            "the import needs up to {needed} free blocks of 4 KiB, and the volume has {free}: remove some files first"
        )));
    }
    Ok(work)
}

fn lay_out(volume: &Volume, options: ImportOptions, progress: Progress<'_>) -> Result<LayoutWork> {
    let laid = Layouts(&volume.commit)
        .lay_out(options.databases, &mut |done, total| progress(Phase::LayOut, done, total));
    laid.map_err(|error| match error {
        Error::NoSpace => Error::Invalid(
            "the volume is too full to convert an inode: mount it, remove some files, and run the import again".into(),
        ),
        error => error,
    })
}

fn check_importable(features: Feature) -> Result<()> {
    let unwritable = unwritable(features);
    if unwritable.is_empty() {
        return Ok(());
    }
    let text =
        format!("the volume uses {}, which medfs can only read: it cannot be imported", names(unwritable));
    Err(Error::Incompatible(text))
}

/// Refuses a volume whose root directory has a name that medfs needs.
fn check_names(volume: &Volume) -> Result<()> {
    let taken = |name: &&[u8]| match volume.lookup(volume.root(), name) {
        Ok(found) => {
            volume.release(found.ino, 1);
            true
        }
        Err(_) => false,
    };
    let names: [&[u8]; 2] = [LIST, DIR];
    let Some(name) = names.into_iter().find(taken) else { return Ok(()) };
    let name = String::from_utf8_lossy(name);
    Err(Error::Invalid(format!(
        "the root directory has an entry '{name}', a name that volumes with deltas reserve: rename it first"
    )))
}
