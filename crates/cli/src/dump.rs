//! `medfs dump`: shows the structures of a volume.

use crate::args::{DumpArgs, DumpWhat};
use crate::{exit, lifetime_writes, output, target};
use anyhow::{Context, Result};
use medfs_fsck::dump::{Dump, DumpError, Record, Value};
use std::io::{BufWriter, Write};

/// `medfs dump`
pub(crate) fn run(args: &DumpArgs) -> Result<u8> {
    let dev = target::open_to_look(&args.image)?;
    target::explain_no_volume(&*dev, &args.image)?;
    let mut dump = Dump::open(&*dev).with_context(|| format!("cannot read {}", args.image.display()))?;
    let mut out = BufWriter::new(output::stdout());
    match args.what.as_ref().unwrap_or(&DumpWhat::Super) {
        DumpWhat::Super => write!(out, "{}", dump.superblock())?,
        DumpWhat::Checkpoint => {
            let (superblock, mut checkpoint) = (dump.superblock(), dump.checkpoint()?);
            if let Some(kbytes) = lifetime_writes::kbytes(&*dev, &superblock, &checkpoint)? {
                let after =
                    checkpoint.0.iter().position(|(name, _)| *name == "ckpt_flags").map_or(0, |at| at + 1);
                checkpoint.0.insert(after, ("kbytes_written", Value::Number(kbytes)));
            }
            write!(out, "{checkpoint}")?;
        }
        DumpWhat::Nat { nid: Some(nid) } => write!(out, "{}", dump.nat(*nid)?)?,
        DumpWhat::Nat { nid: None } => {
            table(&mut out, &["nid", "version", "ino", "block_addr"], "block_addr", |i| dump.nat(i))?
        }
        DumpWhat::Sit { segno: Some(segno) } => write!(out, "{}", dump.sit(*segno)?)?,
        DumpWhat::Sit { segno: None } => {
            let fields = ["segno", "start_blkaddr", "type_name", "valid_blocks", "mtime", "current_log"];
            table(&mut out, &fields, "valid_blocks", |i| dump.sit(i))?;
        }
        DumpWhat::Inode { number } => write!(out, "{}", dump.inode(*number)?)?,
        DumpWhat::Path { path } => write!(out, "{}", at_path(&mut dump, path)?)?,
    }
    out.flush()?;
    Ok(exit::SUCCESS)
}

/// The inode of a path; its error names the path and not only the part that is missing.
fn at_path(dump: &mut Dump<'_>, path: &str) -> Result<Record> {
    dump.path(path).map_err(|error| match error {
        DumpError::NotFound(_) => anyhow::anyhow!("{path}: no such file or directory"),
        other => other.into(),
    })
}

/// One line for each record whose field `used` is not zero, up to the end of the numbers.
fn table(
    out: &mut impl Write,
    fields: &[&str],
    used: &str,
    mut record: impl FnMut(u32) -> Result<Record, DumpError>,
) -> Result<()> {
    let line: Vec<String> = fields.iter().map(|f| format!("{f:>13}")).collect();
    writeln!(out, "{}", line.join(" "))?;
    for number in 0.. {
        let record = match record(number) {
            Ok(record) => record,
            Err(DumpError::NotFound(_)) => break,
            Err(e) => return Err(e.into()),
        };
        if record.get(used) == Some(&Value::Number(0)) {
            continue;
        }
        let line: Vec<String> = fields
            .iter()
            .map(|f| format!("{:>13}", record.get(f).map(ToString::to_string).unwrap_or_default()))
            .collect();
        writeln!(out, "{}", line.join(" "))?;
    }
    Ok(())
}
