//! The devices that a column of a replay can run on: one function opens them all.

use super::process::{Scratch, run};
use anyhow::{Context, Result};
use medfs_device::{Access, BlockDevice, FileDevice, FileOptions, MemDevice};
use medfs_format::BLOCK_SIZE;
use std::path::Path;
use std::sync::Arc;

/// A device, and what must be undone when it is no longer needed.
pub(crate) struct Opened {
    pub(crate) device: Arc<dyn BlockDevice>,
    // Dropped in this order: the loop device before the image it is on.
    _loop: Option<Loop>,
    _scratch: Option<Scratch>,
}

/// What is wrong with a value of `device=`.
pub(crate) fn check(name: &str) -> Result<(), String> {
    match name {
        "memory" | "file" | "loop" => Ok(()),
        _ => Err(format!("device={name}: expected memory, file or loop")),
    }
}

/// Opens an empty device of `size` bytes.
pub(crate) fn open(name: &str, size: u64, scratch: Option<&Path>) -> Result<Opened> {
    if name == "memory" {
        let device = Arc::new(MemDevice::new(size / BLOCK_SIZE as u64));
        return Ok(Opened { device, _loop: None, _scratch: None });
    }
    let folder = Scratch::new(scratch)?;
    let image = folder.image(size)?;
    let attached = if name == "loop" { Some(Loop::attach(&image)?) } else { None };
    let path = attached.as_ref().map_or(&*image, |attached| Path::new(&attached.device));
    let options = FileOptions { access: Access::ReadWrite, ..FileOptions::default() };
    let device = Arc::new(FileDevice::open(path, options)?);
    Ok(Opened { device, _loop: attached, _scratch: Some(folder) })
}

/// An attached loop device; it goes with this.
pub(crate) struct Loop {
    /// `/dev/loop3`.
    pub(crate) device: String,
}

impl Loop {
    pub(crate) fn attach(image: &Path) -> Result<Loop> {
        let image = image.to_str().context("the scratch folder's name is not UTF-8")?;
        let device = run("losetup", &["--find", "--show", image]).context("cannot attach a loop device")?;
        Ok(Loop { device: device.trim().to_owned() })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = run("losetup", &["--detach", &self.device]) {
            tracing::warn!("{error:#}");
        }
    }
}
