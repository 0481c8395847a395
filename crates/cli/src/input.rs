//! `medfs input`: tells the daemon of a mounted volume that its user did something, once or as input devices report it.
//!
//! Of what a device reports only the time counts at which it came. The bytes are read and dropped unseen: no key, no
//! place on a screen and no clock of a device is looked at, and nothing is kept. What comes within a moment is told
//! once, so that a drag is one operation, and a device that floods costs no more than one that is touched.

use crate::all_mounts::OneOrAll;
use crate::{abandoned, exit};
use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};
use medfs_device::quote;
use medfs_fuse::control;
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

/// Time between two that are told. The daemon takes what lies no further apart than 50 ms for one operation.
const MOMENT: Duration = Duration::from_millis(25);
/// Bytes that are read at once: what a device reports in a moment is less.
const PIECE: usize = 4096;

#[derive(Args, Debug)]
#[command(override_usage = "medfs input <DIR|--all>\n       medfs input --from DEVICE... <DIR>")]
pub(crate) struct InputArgs {
    #[command(flatten)]
    which: OneOrAll,
    /// Input device (/dev/input/event0) to follow until it is gone, or FIFO: each time at which it reports something is
    /// told, and nothing else of what it reports
    #[arg(long, value_name = "DEVICE", value_hint = ValueHint::FilePath, conflicts_with = "all")]
    from: Vec<PathBuf>,
}

pub(crate) fn run(args: &InputArgs) -> Result<u8> {
    if args.from.is_empty() {
        return args.which.tell((say, &["input"]));
    }
    let mut left = args.from.len();
    let reports = follow(&args.from)?;
    for report in &reports {
        let mut came = false;
        for (device, report) in std::iter::once(report).chain(reports.try_iter()) {
            came |= report.is_ok();
            if let Err(error) = report {
                left -= 1;
                errln!("medfs input: {} is followed no longer: {error}", quote::path(&args.from[device]));
            }
        }
        let code = if came { args.which.tell((say, &["input"]))? } else { exit::SUCCESS };
        if code != exit::SUCCESS {
            return Ok(code);
        }
        if left == 0 {
            break;
        }
    }
    bail!(
        "no input device is left: ten minutes after the last input, pauses between operations count instead"
    )
}

fn say(dir: &Path) -> Result<()> {
    abandoned::refuse(dir)?;
    abandoned::refuse_foreign(dir)?;
    if !control::note_user(dir)? {
        bail!("{} is mounted without durability_policy=tpl: its commits wait for no pause", dir.display());
    }
    Ok(())
}

/// That a device reported something, by its number, or why it will no more.
type Report = (usize, io::Result<()>);

/// Follows devices, each on a thread of its own, which ends with the device or with this process.
fn follow(paths: &[PathBuf]) -> Result<Receiver<Report>> {
    let devices = paths.iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
    let (sender, reports) = mpsc::sync_channel(devices.len());
    for (number, mut device) in devices.into_iter().enumerate() {
        let sender = sender.clone();
        thread::spawn(move || {
            loop {
                let report = came(&mut device);
                let is_gone = report.is_err();
                if sender.send((number, report)).is_err() || is_gone {
                    return;
                }
                // What comes within a moment is told once.
                thread::sleep(MOMENT);
            }
        });
    }
    Ok(reports)
}

fn open(path: &Path) -> Result<File> {
    let shown = || format!("cannot open {}", quote::path(path));
    let kind = fs::metadata(path).with_context(shown)?.file_type();
    if !kind.is_char_device() && !kind.is_fifo() {
        bail!("{} is not an input device: expected one such as /dev/input/event0", quote::path(path));
    }
    File::options().read(true).custom_flags(OFlags::NOCTTY.bits() as i32).open(path).with_context(shown)
}

/// Waits until a device reports something, which is dropped unseen.
fn came(device: &mut File) -> io::Result<()> {
    let mut unseen = [0; PIECE];
    loop {
        return match device.read(&mut unseen) {
            // Its other end is closed.
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
    }
}
