//! `medfs trace record`: a mount over a directory while a command runs.
//!
//! The directory is opened before the mount covers it; the recorder works through that descriptor. The command is started
//! below the mount also where the current directory is within it. Signals of the terminal are the command's.

use super::args::{Cache, RecordArgs};
use super::{new_file, raise_descriptor_limit};
use crate::watchdog::Watchdog;
use anyhow::{Context, Result, bail};
use medfs::Files;
use medfs_fuse::{MountConfig, Session};
use medfs_trace::{Directory, End, Recorder, Recording};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
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
        bail!("{} is no directory", args.dir.display());
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
    let recorder = super::recorder(files, out, &what)
        .with_context(|| format!("cannot record what is in {}", args.dir.display()))?;
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

/// Waits for the command; a signal to this process alone is handed on.
fn wait(mut child: Child, mut signals: Signals) -> Result<ExitStatus> {
    let stop = signals.handle();
    let pid = rustix::process::Pid::from_raw(child.id() as i32);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for signal in signals.forever() {
                // The terminal sends the others to the command itself.
                if signal == SIGTERM
                    && let Some(pid) = pid
                {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                }
            }
        });
        let status = child.wait().context("cannot wait for the command");
        stop.close();
        status
    })
}

fn unmount(session: Session, dir: &Path) -> Result<()> {
    let start = Instant::now();
    while let Err(error) = session.unmount() {
        if start.elapsed() > BUSY_MAX {
            errln!(
                "medfs trace record: {} is still in use; waiting for those who use it ({error})",
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
    let files = end.tree.unwrap_or(0);
    let size = std::fs::metadata(&args.out).map_or(0, |meta| meta.len());
    errln!(
        "medfs trace record: {} operations, {files} files at the end, {} in {}",
        end.operations,
        crate::size::show(size),
        args.out.display()
    );
}

/// As a shell would tell it.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}
