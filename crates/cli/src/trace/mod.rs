//! `medfs trace`: record, import, info, export.

pub(crate) mod args;
pub(crate) mod file;
pub(crate) mod import;
mod info;
mod record;
pub(crate) mod tap;

use anyhow::Result;
use args::{TraceArgs, TraceCommand};

pub(crate) fn run(args: &TraceArgs) -> Result<u8> {
    match &args.command {
        TraceCommand::Record(args) => record::run(args),
        TraceCommand::Import(args) => import::run(args),
        TraceCommand::Info(args) => info::info(args),
        TraceCommand::Export(args) => info::export(args),
    }
}
