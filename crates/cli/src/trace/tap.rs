//! `-o trace=TRACE` of a mount: records what is asked of the volume.

use super::file::{new_trace, recorder};
use anyhow::{Context, Result};
use medfs::Files;
use medfs::options::{Form, MountOption};
use medfs_trace::{Recorder, Recording};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Whether a mount is recorded, and where to.
#[derive(Default)]
pub(crate) struct Tap {
    path: Option<PathBuf>,
    private: bool,
    recorder: OnceLock<Arc<Recorder>>,
}

/// The options of recording.
pub(crate) const OPTIONS: &[MountOption<Tap>] = &[
    MountOption {
        name: "trace",
        form: Form::Value("FILE"),
        accepts: "",
        default: "",
        help: "Record every request to the volume to FILE, which must not exist; see medfs-trace(1).",
        set: |tap, value| {
            tap.path = (!value.is_empty()).then(|| value.into());
            tap.path.is_some()
        },
        show: |tap| tap.path.iter().map(|path| path.display().to_string()).collect(),
    },
    MountOption {
        name: "trace_private",
        form: Form::Word,
        accepts: "",
        default: "",
        help: "Record without contents and names.",
        set: |tap, _| {
            tap.private = true;
            true
        },
        show: |tap| tap.private.then(String::new).into_iter().collect(),
    },
];

impl Tap {
    /// Takes one `-o` option; `false` where it is for others.
    pub(crate) fn set_option(&mut self, option: &str) -> Result<bool, String> {
        MountOption::apply(OPTIONS, self, option)
    }

    /// The options in force.
    pub(crate) fn in_force(&self) -> Vec<String> {
        MountOption::in_force(OPTIONS, self)
    }

    /// A list of options in which the trace's path holds in any directory.
    pub(crate) fn absolute(list: &str) -> Result<String> {
        let parts = list.split(',').map(|option| match option.trim().strip_prefix("trace=") {
            Some(path) if !path.is_empty() => {
                let path = std::path::absolute(path).context("cannot find the directory of the trace")?;
                Ok(format!("trace={}", path.display()))
            }
            _ => Ok(option.to_owned()),
        });
        Ok(parts.collect::<Result<Vec<_>>>()?.join(","))
    }

    /// Puts the recorder between mount and volume, where one is wanted.
    pub(crate) fn attach(
        &self,
        files: Arc<dyn Files>,
        image: &Path,
        writeback: bool,
    ) -> Result<Arc<dyn Files>> {
        let Some(path) = &self.path else { return Ok(files) };
        let what = Recording {
            source: "volume".into(),
            about: image.display().to_string(),
            private: self.private,
            cache: if writeback { "writeback" } else { "through" }.into(),
        };
        let made = recorder(files, new_trace(path)?, &what)
            .with_context(|| format!("cannot record to {}", path.display()))?;
        Ok(self.recorder.get_or_init(|| Arc::new(made)).clone())
    }

    /// Ends the trace; the volume must still be open.
    pub(crate) fn finish(&self) -> Result<()> {
        if let (Some(recorder), Some(path)) = (self.recorder.get(), &self.path) {
            recorder.finish().with_context(|| format!("cannot finish {}", path.display()))?;
        }
        Ok(())
    }
}
