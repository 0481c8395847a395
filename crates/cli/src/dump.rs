//! `medfs dump`: shows the structures of a volume.

use crate::args::{DumpArgs, DumpWhat};
use crate::{damaged, exit, json, lifetime_writes, output, target, words};
use anyhow::{Context, Result};
use medfs_device::Holder;
use medfs_device::mounts::MountEntry;
use medfs_fsck::dump::{Dump, DumpError, Record, Value};
use serde_json::Value as Json;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;

/// `medfs dump`
pub(crate) fn run(args: &DumpArgs) -> Result<u8> {
    let dev = target::open_to_look(&args.image)?;
    target::explain_no_volume(&*dev, &args.image)?;
    target::refuse_cut_short(dev.clone(), &args.image)?;
    let mut dump = Dump::open(&*dev).with_context(|| format!("cannot read {}", args.image.display()))?;
    if let Some(mount) = Holder::of(&args.image).mount.filter(MountEntry::is_medfs) {
        let on = mount.on.display();
        errln!("medfs dump: warning: the volume is mounted on {on}, and changes while it is read");
    } else if let Some(nvram) = dump.nvram_in_use() {
        errln!(
            "medfs dump: warning: fsyncs may lie in the NVRAM {nvram}: what is shown is as of the last checkpoint"
        );
    }
    if !dump.has_checkpoint() {
        errln!(
            "medfs dump: warning: neither checkpoint pack is usable: what is shown is rebuilt from the tables and the nodes, as a repair would"
        );
    }
    let mut out = BufWriter::new(output::stdout());
    let record = match args.what.as_ref().unwrap_or(&DumpWhat::Super) {
        DumpWhat::Super => dump.superblock(),
        DumpWhat::Checkpoint => {
            let (superblock, mut checkpoint) = (dump.superblock(), dump.checkpoint()?);
            if let Some(kbytes) = lifetime_writes::kbytes(&*dev, &superblock, &checkpoint)? {
                let after =
                    checkpoint.0.iter().position(|(name, _)| *name == "ckpt_flags").map_or(0, |at| at + 1);
                checkpoint.0.insert(after, ("kbytes_written", Value::Number(kbytes)));
            }
            checkpoint
        }
        DumpWhat::Nat { nid: Some(nid) } => dump.nat(*nid)?,
        DumpWhat::Nat { nid: None } => {
            let fields = ["nid", "version", "ino", "block_addr"];
            return table(&mut out, args.json, &fields, "block_addr", |i| dump.nat(i));
        }
        DumpWhat::Sit { segno: Some(segno) } => dump.sit(*segno)?,
        DumpWhat::Sit { segno: None } => {
            let fields = ["segno", "start_blkaddr", "type_name", "valid_blocks", "mtime", "current_log"];
            return table(&mut out, args.json, &fields, "valid_blocks", |i| dump.sit(i));
        }
        DumpWhat::Inode { number } => dump.inode(*number)?,
        DumpWhat::Path { path } => at_path(&mut dump, path).map_err(|error| of_path(error, args, path))?,
    };
    if args.json {
        json::print(&as_promised(serde_json::to_value(&record)?))?;
    } else {
        write!(out, "{}", shown(&record))?;
    }
    out.flush()?;
    Ok(exit::SUCCESS)
}

/// A record with the kinds and times that all outputs have.
fn as_promised(value: Json) -> Json {
    match value {
        Json::Object(fields) => fields.into_iter().flat_map(|(name, value)| field(name, value)).collect(),
        Json::Array(list) => list.into_iter().map(as_promised).collect(),
        other => other,
    }
}

/// A field of it: a time is two numbers, as on the device.
fn field(name: String, value: Json) -> Vec<(String, Json)> {
    let text = value.as_str();
    let kind = text.filter(|_| name == "kind").and_then(|text| KINDS.iter().find(|(kind, _)| *kind == text));
    if let Some((_, word)) = kind {
        return vec![(name, (*word).into())];
    }
    let time = text.filter(|_| TIMES.contains(&&*name)).and_then(|text| text.split_once('.'));
    let numbers =
        time.and_then(|(secs, nanos)| Some((secs.parse::<i64>().ok()?, nanos.parse::<u32>().ok()?)));
    match numbers {
        Some((secs, nanos)) => vec![(name.clone(), secs.into()), (format!("{name}_nsec"), nanos.into())],
        None => vec![(name, as_promised(value))],
    }
}

/// Times that a record has as text.
const TIMES: [&str; 4] = ["i_atime", "i_ctime", "i_mtime", "i_crtime"];

/// Kinds of files as a record has them, and as all outputs do.
const KINDS: [(&str, &str); 7] = [
    ("Regular", "file"),
    ("Directory", "dir"),
    ("Symlink", "symlink"),
    ("CharDevice", "char"),
    ("BlockDevice", "block"),
    ("Fifo", "fifo"),
    ("Socket", "socket"),
];

/// A record as text; on a terminal the words of a long value lie below each other.
fn shown(record: &Record) -> String {
    let text = record.to_string();
    if !std::io::stdout().is_terminal() {
        return text;
    }
    let line = |line: &str| {
        let value = line.trim_start().find("  ").map(|gap| {
            let gap = gap + line.len() - line.trim_start().len();
            gap + line[gap..].len() - line[gap..].trim_start().len()
        });
        match value.filter(|_| line.chars().count() > 80) {
            Some(at) => words::filled(&line[at..], &line[..at]) + "\n",
            None => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

/// The inode of a path; its error names the path and not only the part that is missing.
fn at_path(dump: &mut Dump<'_>, path: &str) -> Result<Record> {
    dump.path(path).map_err(|error| match error {
        DumpError::NotFound(_) => anyhow::anyhow!("{path}: no such file or directory"),
        other => other.into(),
    })
}

/// The error of a path, as the other commands have it: with the damage that is in the way, and what helps.
fn of_path(error: anyhow::Error, args: &DumpArgs, path: &str) -> anyhow::Error {
    let opened = || {
        let device = target::open_to_look(&args.image)?;
        let volume = target::open_volume_without_log(device, &args.image)?;
        damaged::find(&volume, &args.image, Path::new(path)).map(drop)
    };
    let quietly = tracing::subscriber::NoSubscriber::default();
    match tracing::subscriber::with_default(quietly, opened) {
        Err(of_volume) => of_volume,
        Ok(()) => error.context(path.to_owned()),
    }
}

/// One line for each record whose field `used` is not zero, up to the end of the numbers.
fn table(
    out: &mut impl Write,
    as_json: bool,
    fields: &[&str],
    used: &str,
    mut record: impl FnMut(u32) -> Result<Record, DumpError>,
) -> Result<u8> {
    let wide = |field: &str| field.len().max(12);
    let line: Vec<String> = fields.iter().map(|f| format!("{f:>0$}", wide(f))).collect();
    if !as_json {
        writeln!(out, "{}", line.join(" "))?;
    }
    for number in 0.. {
        let record = match record(number) {
            Ok(record) => record,
            Err(DumpError::NotFound(_)) => break,
            Err(e) => return Err(e.into()),
        };
        if record.get(used) == Some(&Value::Number(0)) {
            continue;
        }
        if as_json {
            writeln!(out, "{}", json::versioned(&record)?)?;
            continue;
        }
        let line: Vec<String> = fields
            .iter()
            .map(|f| format!("{:>1$}", record.get(f).map(ToString::to_string).unwrap_or_default(), wide(f)))
            .collect();
        writeln!(out, "{}", line.join(" "))?;
    }
    out.flush()?;
    Ok(exit::SUCCESS)
}
