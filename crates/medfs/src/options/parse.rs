//! The tables of mount options, and what reads and writes their text form.

use super::apps::OPTIONS as OF_APPS;
use super::compress::OPTIONS as OF_COMPRESSION;
use super::durability::OPTIONS as OF_DURABILITY;
use super::list::OPTIONS;
use super::nvram::OPTIONS as OF_NVRAM;
use super::placing::OPTIONS as OF_PLACING;
use super::survivor::OPTIONS as OF_SURVIVOR;
use super::table::{Described, MountOption, unknown};
use super::{DeltaMode, MountOptions, durability, ignored, nvram};
use crate::error::{Error, Result};

/// Every option that changes something in a volume, in the order of the manual.
pub fn described() -> impl Iterator<Item = Described> {
    tables().flatten().map(MountOption::described)
}

/// The options of the kernel's f2fs that are taken and change nothing, as they are written.
pub fn without_effect() -> impl Iterator<Item = String> {
    ignored::of_the_kernel()
}

/// Words of `mount(8)` and fstab that are taken.
pub fn words_of_mount() -> &'static [&'static str] {
    &ignored::OF_MOUNT
}

/// Every name that is taken.
pub fn names() -> impl Iterator<Item = String> {
    let others = ignored::OF_MOUNT.into_iter().chain(ignored::names()).map(str::to_owned);
    described().flat_map(|option| option.names()).chain(others)
}

fn tables() -> impl Iterator<Item = &'static [MountOption<MountOptions>]> {
    [OPTIONS, OF_DURABILITY, OF_APPS, OF_SURVIVOR, OF_NVRAM, OF_PLACING, OF_COMPRESSION].into_iter()
}

impl MountOptions {
    /// Applies a comma-separated list of options, in order; an error leaves `self` as it was.
    pub fn parse(&mut self, options: &str) -> Result<()> {
        let mut new = self.clone();
        for option in options.split(',').map(str::trim).filter(|o| !o.is_empty()) {
            if !new.apply(option)? {
                return Err(Error::Invalid(unknown(option, names())));
            }
        }
        let named = |name| options.split(',').any(|o| o.trim() == name);
        if named("norecovery") && !new.read_only {
            return Err(Error::Invalid("norecovery needs ro: expected ro,norecovery".into()));
        }
        new.check()?;
        *self = new;
        Ok(())
    }

    /// `Invalid` where options exclude each other.
    pub(crate) fn check(&self) -> Result<()> {
        durability::check(self)?;
        nvram::check(self)?;
        let name = match self.delta_mode() {
            DeltaMode::Off => return Ok(()),
            DeltaMode::Inline => "delta=inline",
            DeltaMode::Compact => "delta=compact",
            DeltaMode::Full => "delta=full",
        };
        match self.compress.fpc {
            None => Ok(()),
            Some(_) => Err(Error::Invalid(format!(
                "compress=fpc, which compresses changed pages instead, excludes {name}: expected delta=off"
            ))),
        }
    }

    /// Applies one option; `false` where it is not known, so that a front end may look at it.
    pub fn apply(&mut self, option: &str) -> Result<bool> {
        if let Some(why) = ignored::why_refused(option) {
            return Err(Error::Invalid(why));
        }
        for table in tables() {
            if MountOption::apply(table, self, option).map_err(Error::Invalid)? {
                return Ok(true);
            }
        }
        Ok(ignored::is_of_mount(option) || ignored::is_of_the_kernel(option).map_err(Error::Invalid)?)
    }

    /// The options in force, as they would be given to have them.
    pub fn in_force(&self) -> Vec<String> {
        tables().flat_map(|table| MountOption::in_force(table, self)).collect()
    }

    /// Whether an option is accepted because the kernel's f2fs has it, and changes nothing here.
    pub fn ignores(option: &str) -> bool {
        !ignored::is_of_mount(option) && ignored::is_of_the_kernel(option).unwrap_or(false)
    }
}
