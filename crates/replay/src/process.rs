//! Programs of the system that a replay needs, and its scratch directory.

use crate::cleanup::{Cleanup, Guard};
use crate::error::{Context, Error, Result};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs a program to its end and returns what it printed. Its last words are the error's, but for the usage
/// that some tell after them.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output = Command::new(program).args(args).env("PATH", path).stdin(Stdio::null()).output();
    let output = match output {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::NotInstalled(program.to_owned()));
        }
        other => other.context(|| format!("cannot run {program}"))?,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Program { program: program.to_owned(), said: last_words(&said).to_owned() });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a program said at last, before it told its usage.
fn last_words(said: &str) -> &str {
    let lines = said.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    lines.filter(|line| !line.is_empty()).last().unwrap_or("it gave no reason")
}

/// Makes a directory for what files hold, where there is none: its owner's alone.
///
/// # Errors
/// The system's.
pub fn private_folder(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.context(|| format!("cannot create {}", path.display()))
}

/// A directory for an image, which goes with this.
pub(crate) struct Scratch {
    folder: PathBuf,
    _guard: Box<dyn Guard>,
}

impl Scratch {
    /// Makes one within a directory; `None`: the system's for temporary files.
    pub(crate) fn new(within: Option<&Path>, cleanup: &dyn Cleanup) -> Result<Scratch> {
        let system = std::env::temp_dir();
        let within = within.unwrap_or(&system);
        let made = tempfile::Builder::new().prefix("medfs-").tempdir_in(within);
        let folder =
            made.context(|| format!("cannot create a temporary directory in {}", within.display()))?.keep();
        let removed = folder.clone();
        let _guard = cleanup.note(Box::new(move || {
            if let Err(error) = std::fs::remove_dir_all(&removed) {
                tracing::warn!("cannot remove {}: {error}", removed.display());
            }
        }));
        Ok(Scratch { folder, _guard })
    }

    /// A new sparse file.
    pub(crate) fn image(&self, size: u64) -> Result<PathBuf> {
        let path = self.path("image");
        let made = File::create_new(&path).and_then(|file| file.set_len(size));
        made.context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// An empty directory in it.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir(&path).context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_comes_before_the_usage() {
        assert_eq!(last_words("too small.\nUsage: mkfs\n\t[-b]\n"), "too small.");
        assert_eq!(last_words("line 1\nerror: this\n\n"), "error: this");
        assert_eq!(last_words("Usage: mkfs\n"), "it gave no reason");
    }
}
