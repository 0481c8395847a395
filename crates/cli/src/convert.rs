//! `medfs import` and `medfs export`: from plain F2FS to a volume with deltas, and back.

use crate::args::ConvertArgs;
use crate::words::count;
use crate::{exit, json, progress, target};
use anyhow::{Context, Result};
use medfs::SystemClock;
use medfs::convert::{self, Converted};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// What `--json` prints.
#[derive(Serialize)]
struct Outcome<'a> {
    image: String,
    /// What the volume is now: `delta` or `plain`.
    kind: &'a str,
    #[serde(flatten)]
    done: Converted,
}

/// `medfs import`
pub(crate) fn import(args: &ConvertArgs) -> Result<u8> {
    let path = &args.image;
    let dev = target::open_to_write(path)?;
    target::explain_no_volume(&*dev, path)?;
    let done = convert::import(dev, Arc::new(SystemClock))
        .with_context(|| format!("cannot import {}", path.display()))?;
    let text = if done.switched {
        "may hold deltas now; only medfs reads it ('medfs export' makes it plain F2FS again)".to_owned()
    } else {
        "this volume may already hold deltas".to_owned()
    };
    report(args, "delta", done, &text)
}

/// `medfs export`
pub(crate) fn export(args: &ConvertArgs) -> Result<u8> {
    let path = &args.image;
    let dev = target::open_to_write(path)?;
    target::explain_no_volume(&*dev, path)?;
    let bar = progress::steps("folding deltas", 1);
    let done = convert::export(dev, Arc::new(SystemClock), &mut |done, total| {
        bar.set_length(total.max(done));
        bar.set_position(done);
    })
    .with_context(|| format!("cannot export {}", path.display()))?;
    bar.finish_and_clear();
    let text = if done.switched {
        let folded = done.folded;
        let (pages, files) = (count(folded.pages, "page"), count(folded.files, "file"));
        format!("plain F2FS now; {pages} of {files} were stored as deltas")
    } else {
        "this volume is already plain F2FS".to_owned()
    };
    report(args, "plain", done, &text)
}

fn report(args: &ConvertArgs, kind: &str, done: Converted, text: &str) -> Result<u8> {
    let image = Path::display(&args.image).to_string();
    if args.json {
        json::print(&Outcome { image, kind, done })?;
    } else {
        outln!("{image}: {text}");
    }
    Ok(exit::SUCCESS)
}
