//! Completion scripts and manual pages, made from the command line's own definition.

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::{exit, options, output};
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::io::Write;

/// `medfs completions`
pub(crate) fn completions(args: &CompletionsArgs) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "medfs", &mut script);
    output::stdout().write_all(&script)?;
    Ok(exit::SUCCESS)
}

/// `medfs man`
pub(crate) fn man(args: &ManArgs) -> Result<u8> {
    let dir = &args.dir;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    clap_mangen::generate_to(Cli::command(), dir)
        .with_context(|| format!("cannot write to {}", dir.display()))?;
    let page = dir.join("medfs.5");
    std::fs::write(&page, options::manual()).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(exit::SUCCESS)
}
