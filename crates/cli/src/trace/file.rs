//! The file of a trace, and what recording into it needs of the system.

use anyhow::{Context, Result, bail};
use medfs::{Files, SystemClock};
use medfs_trace::{Recorder, Recording};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

/// A file to be written, which must not be there unless `force`. It holds what files hold, so it is its
/// owner's alone: one that is overwritten goes, as others may have it open.
pub(crate) fn new_file(path: &Path, force: bool) -> Result<File> {
    let what_is_there = std::fs::metadata(path).map(|meta| meta.is_file());
    let failed = || format!("cannot create {}", path.display());
    match what_is_there {
        Ok(_) if !force => bail!("{} exists: use --force to overwrite it", path.display()),
        Ok(true) => std::fs::remove_file(path).with_context(failed)?,
        // A pipe or the like.
        Ok(false) => return File::options().write(true).open(path).with_context(failed),
        Err(_) => {}
    }
    File::options().write(true).create_new(true).mode(0o600).open(path).with_context(failed)
}

/// The trace of a mount, which takes no other file's place.
pub(crate) fn new_trace(path: &Path) -> Result<File> {
    if path.exists() {
        bail!("{} exists: remove it, or name another file", path.display());
    }
    new_file(path, false)
}

/// Each file of a directory that is held costs a descriptor or two.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "the number of open files stays limited");
    }
}

/// Begins to record a file system.
pub(crate) fn recorder(files: Arc<dyn Files>, out: File, what: &Recording) -> Result<Recorder> {
    let id = uuid::Uuid::new_v4().into_bytes();
    let mut key = [0; 32];
    key[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    key[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
    Ok(Recorder::start(files, out, Arc::new(SystemClock), what, id, key)?)
}
