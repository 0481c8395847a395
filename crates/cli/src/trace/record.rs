//! `medfs trace record`: a mount over a directory while a command runs.
//!
//! The directory is opened before the mount covers it; the recorder works through that descriptor. The
//! command is started below the mount also where the current directory is within it. Signals of the terminal
//! are the command's; those to this process alone are handed on to it, and a second one ends a command that
//! does not obey. The trace is finished in any case.

use super::args::{Cache, RecordArgs};
use super::file::{new_file, raise_descriptor_limit};
use crate::watchdog::Watchdog;
use crate::words::count;
use anyhow::{Context, Result, bail};
use medfs::Files;
use medfs_fuse::{MountConfig, Session};
use medfs_trace::{Directory, End, Recorder, Recording};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long processes that the command left behind may keep the directory in use.
const BUSY_MAX: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &RecordArgs) -> Result<u8> {
    let dir = args.dir.canonicalize().with_context(|| format!("cannot find {}", args.dir.display()))?;
    if !dir.is_dir() {
        bail!("{} is not a directory", args.dir.display());
    }
    let out = new_file(&args.out, args.force)?;
    if args.out.canonicalize().is_ok_and(|out| out.starts_with(&dir)) {
        let _ = std::fs::remove_file(&args.out);
        bail!("the trace must not lie in {}, which is recorded", args.dir.display());
    }
    let files = Directory::open(&dir).with_context(|| format!("cannot open {}", args.dir.display()))?;
    let recorder = start(Arc::new(files), out, "mount", args, &dir)?;
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT]).context("cannot wait for signals")?;
    let session = medfs_fuse::mount(recorder.clone(), config(&dir, args))?;
    let watchdog = Watchdog::start(&dir);
    let status = command(args, signals);
    unmount(session, &dir)?;
    drop(watchdog);
    let end = recorder.finish().with_context(|| format!("cannot finish {}", args.out.display()))?;
    match status {
        Ok(status) => {
            report(args, &end);
            Ok(exit_code(status))
        }
        Err(error) => {
            // A trace of nothing.
            let _ = std::fs::remove_file(&args.out);
            Err(error)
        }
    }
}

/// Begins to record a file system.
fn start(
    files: Arc<dyn Files>,
    out: std::fs::File,
    source: &str,
    args: &RecordArgs,
    dir: &Path,
) -> Result<Arc<Recorder>> {
    let words: Vec<_> = args.command.iter().map(|word| word.to_string_lossy()).collect();
    let about = format!("{} in {}", words.join(" "), dir.display());
    let what =
        Recording { source: source.into(), about, private: args.private, cache: args.cache.name().into() };
    let recorder = super::file::recorder(files, out, &what)
        .with_context(|| format!("cannot record the content of {}", args.dir.display()))?;
    Ok(Arc::new(recorder))
}

fn config(dir: &Path, args: &RecordArgs) -> MountConfig {
    let mut config = MountConfig::new(dir, dir.to_string_lossy());
    config.direct = args.cache == Cache::None;
    config.writeback = args.cache == Cache::Writeback;
    config.alert = !args.no_alert;
    config.allow_other = rustix::process::geteuid().is_root();
    config
}

/// Runs the command to its end.
fn command(args: &RecordArgs, signals: Signals) -> Result<ExitStatus> {
    let [program, arguments @ ..] = &args.command[..] else { bail!("no command is given") };
    let mut command = Command::new(program);
    command.args(arguments);
    if let Ok(here) = std::env::current_dir() {
        // By its path: what this process has is the directory below the mount.
        command.current_dir(here);
    }
    let started = command.spawn().with_context(|| format!("cannot run {}", program.to_string_lossy()));
    // Only now: the command is to have the limit it would have otherwise.
    raise_descriptor_limit();
    wait(started?, signals)
}

/// Waits for the command, which gets the signals that come meanwhile.
fn wait(mut child: Child, mut signals: Signals) -> Result<ExitStatus> {
    let stop = signals.handle();
    let pid = rustix::process::Pid::from_raw(child.id() as i32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for (before, signal) in signals.forever().enumerate() {
                let Some((pid, sent)) = pid.zip(handed_on(signal, before)) else { continue };
                let _ = rustix::process::kill_process(pid, sent);
            }
        });
        let status = child.wait().context("cannot wait for the command");
        stop.close();
        status
    })
}

/// What the command gets for a signal to this process, after so many others; `None` where the terminal has
/// sent it to both.
fn handed_on(signal: i32, before: usize) -> Option<Signal> {
    match (signal, before) {
        (SIGTERM, 0 | 1) => Some(Signal::TERM),
        (_, 0) if is_in_foreground() => None,
        (SIGINT, 0) => Some(Signal::INT),
        (SIGQUIT, 0) => Some(Signal::QUIT),
        (_, 0) => Some(Signal::HUP),
        // It was asked before, and goes on.
        (_, 1) => Some(Signal::TERM),
        (_, _) => Some(Signal::KILL),
    }
}

/// Whether the signals of a terminal reach this process, and with it the command.
fn is_in_foreground() -> bool {
    let Ok(terminal) = File::open("/dev/tty") else { return false };
    rustix::termios::tcgetpgrp(terminal).is_ok_and(|group| group == rustix::process::getpgrp())
}

fn unmount(session: Session, dir: &Path) -> Result<()> {
    let start = Instant::now();
    while let Err(error) = session.unmount() {
        if start.elapsed() > BUSY_MAX {
            errln!(
                "medfs trace record: {} is still in use: it stays mounted for the processes that use it ({error})",
                dir.display()
            );
            session.unmounter().unmount_lazy()?;
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(session.wait()?)
}

fn report(args: &RecordArgs, end: &End) {
    let files = count(end.tree.unwrap_or(0), "file");
    let size = std::fs::metadata(&args.out).map_or(0, |meta| meta.len());
    errln!(
        "medfs trace record: {}, {files} at the end, {} in {}",
        count(end.operations, "operation"),
        crate::size::show(size),
        args.out.display()
    );
}

/// As a shell would tell it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
