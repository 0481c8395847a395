//! `medfs mount` and `mount.medfs`: mounts a volume, in the foreground or as a daemon.
//!
//! The daemon is this program started again (no fork of a running process): it becomes the leader of a
//! session of its own, mounts, writes one line to its standard output and lets go of the terminal. The first
//! process waits for that line and ends with success, or ends with the daemon's exit code; the daemon's
//! errors are on the shared standard error.

use crate::abandoned;
use crate::args::MountArgs;
use crate::exit::{self, Coded};
use crate::options;
use crate::remount;
use crate::size;
use crate::source::{Closing, Source};
use crate::target;
use crate::trace::tap::Tap;
use crate::undo;
use crate::watchdog::Watchdog;
use anyhow::{Context, Result, bail};
use medfs::{Apps, DurabilityMode, Files, MountOptions, NvramOption, Volume};
use medfs_device::quote::{self, hint};
use medfs_flash::FlashTarget;
use medfs_format::superblock::Feature;
use medfs_fuse::{MountConfig, Session, Unmounter};
use rustix::mount::MountFlags;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// What the daemon says when the mount can be used.
const READY: &str = "ready";

/// Called by mount(8): `mount.medfs SOURCE DIR [-sfnv] [-N namespace] [-o options] [-t type]`.
pub(crate) fn helper(args: &[OsString]) -> u8 {
    match helper_args(&args[1..]) {
        Ok(Some(parsed)) => exit::run("mount", exit::MOUNT_FAILURE, || run(&parsed)),
        Ok(None) => exit::SUCCESS,
        Err(e) => exit::run("mount", exit::MOUNT_USAGE, || Err(e)),
    }
}

/// How it is called.
const USAGE: &str = "usage: mount.medfs SOURCE DIR [-sfnv] [-o OPTION,...]";

/// `None`: only asked to pretend (`-f`), or for the version or help.
fn helper_args(args: &[OsString]) -> Result<Option<MountArgs>> {
    let (mut places, mut options, mut fake, mut sloppy) = (Vec::new(), Vec::new(), false, false);
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.to_str() {
            Some("-V" | "--version") => {
                outln!("mount.medfs {}", env!("CARGO_PKG_VERSION"));
                return Ok(None);
            }
            Some("-h" | "--help") => {
                outln!("{USAGE}\n'medfs mount --help' and medfs(5) describe the options.");
                return Ok(None);
            }
            Some("-o") => {
                let list = rest.next().and_then(|o| o.to_str()).context("-o needs a list of options")?;
                options.push(list.to_owned());
            }
            Some("-N" | "-t") => {
                rest.next();
            }
            Some(flags) if flags.starts_with('-') && flags.len() > 1 => {
                for flag in flags[1..].chars() {
                    match flag {
                        'f' => fake = true,
                        's' => sloppy = true,
                        'n' | 'v' => {}
                        'r' => options.push("ro".into()),
                        'w' => options.push("rw".into()),
                        _ => bail!("unknown flag -{flag}; {USAGE}"),
                    }
                }
            }
            _ => places.push(PathBuf::from(arg)),
        }
    }
    let places = <[PathBuf; 2]>::try_from(places);
    let [image, dir] =
        places.ok().with_context(|| format!("a source and a directory are needed; {USAGE}"))?;
    if sloppy {
        options = vec![known_options(&options.join(","))];
    }
    let args =
        MountArgs { image, dir, options, read_only: false, foreground: false, log: None, daemon: false };
    if !remount::is_asked(&args) {
        parse_options(&args)?;
    }
    Ok((!fake).then_some(args))
}

/// Of a list of options those that are known.
fn known_options(list: &str) -> String {
    let known = |option: &&str| options::is_known(option).unwrap_or(true);
    list.split(',').filter(known).collect::<Vec<_>>().join(",")
}

/// `medfs mount`
pub(crate) fn run(args: &MountArgs) -> Result<u8> {
    if args.read_only {
        let options = [args.options.clone(), vec!["ro".into()]].concat();
        return run(&MountArgs { options, read_only: false, ..args.clone() });
    }
    if remount::is_asked(args) {
        return remount::run(args);
    }
    let (config, options, tap) = parse_options(args)?;
    abandoned::refuse(&args.dir)?;
    target::image_first("mount", &args.image, std::slice::from_ref(&args.dir), exit::MOUNT_USAGE)?;
    if !args.dir.is_dir() {
        bail!("{} is not a directory", args.dir.display());
    }
    refuse_covering(&args.dir)?;
    if !args.foreground && !args.daemon {
        return detach(args);
    }
    if args.daemon {
        // A child of the first process is never a group leader, so this cannot fail for a reason we could mend.
        let _ = rustix::process::setsid();
    }
    // Before the mount can be seen: a signal that comes while mounting waits.
    let wanted = [SIGTERM, SIGINT, Signal::POWER.as_raw()].into_iter().chain(undo::obeyed(&[SIGHUP]));
    let signals = Signals::new(wanted).context("cannot wait for signals")?;
    let (session, volume, closing) = mount(args, config, options, &Arc::new(tap))?;
    tracing::info!(image = %args.image.display(), dir = %args.dir.display(), "mounted");
    let watchdog = Watchdog::start(&args.dir);
    if let Err(error) = &watchdog {
        tracing::info!(
            "if this daemon is killed, processes that use the mount may hang until 'medfs umount': {error:#}"
        );
    }
    if args.daemon {
        announce(args)?;
    }
    let served = serve(session, &volume, signals, &closing);
    drop(watchdog);
    served
}

/// What a power cut takes with `durability=adaptive`.
fn may_be_lost(options: &MountOptions, logged: bool) -> String {
    let bounds = &options.loss;
    let (age, bytes) = (size::time(bounds.age.as_secs_f64()), size::show(bounds.bytes));
    let most = match bounds.fsyncs {
        None => format!("{age} or {bytes}"),
        Some(fsyncs) => format!("{age}, {bytes} or {fsyncs} fsyncs"),
    };
    let of_each = if options.apps == Apps::Volume { "" } else { ", of each app" };
    let who = if logged { "a power cut" } else { "a power cut or a killed daemon" };
    format!("fsyncs return before they are durable: {who} loses at most the last {most} of changes{of_each}")
}

/// Divides the options between mount and engine.
fn parse_options(args: &MountArgs) -> Result<(MountConfig, MountOptions, Tap)> {
    let usage = |e: &dyn std::fmt::Display| Coded::new(exit::MOUNT_USAGE, e);
    // What cannot be found is reported when it is opened.
    let source = absolute(&args.image).unwrap_or_else(|_| args.image.clone());
    let mut config = MountConfig::new(&args.dir, source.to_string_lossy());
    let (mut for_engine, mut tap) = (Vec::new(), Tap::default());
    for option in
        args.options.iter().flat_map(|list| list.split(',')).map(str::trim).filter(|o| !o.is_empty())
    {
        if !tap.set_option(option).map_err(|e| usage(&e))?
            && !config.set_option(option).map_err(|e| usage(&e))?
        {
            for_engine.push(option);
        }
    }
    let mut of_volume = MountOptions::default();
    for option in &for_engine {
        if !of_volume.clone().apply(option).map_err(|e| usage(&e))? {
            return Err(usage(&options::unknown(option)).into());
        }
    }
    of_volume.parse(&for_engine.join(",")).map_err(|e| usage(&e))?;
    if of_volume.durability == DurabilityMode::Adaptive {
        // The kernel asks for an fsync then, which must not be put off.
        of_volume.sync |= config.flags.contains(MountFlags::SYNCHRONOUS);
        of_volume.dirsync |= config.flags.contains(MountFlags::DIRSYNC);
    }
    config.more_options = tap.in_force();
    Ok((config, of_volume, tap))
}

fn mount(
    args: &MountArgs,
    mut config: MountConfig,
    mut options: MountOptions,
    tap: &Arc<Tap>,
) -> Result<(Session, Arc<Volume>, Closing)> {
    let source = Source::open(args, &mut config, &mut options)?;
    tell_ignored(args, &config, &options);
    let (read_only, asked_for_deltas) = (options.read_only, asks_for_deltas(args));
    let volume = Arc::new(target::open_volume_to_mount(source.device.clone(), &args.image, options)?);
    if volume.superblock().has_old_layouts() {
        errln!(
            "medfs mount: the import of {} was interrupted; the files that it had not reached take no deltas until 'medfs import' ends it",
            args.image.display()
        );
    }
    if volume.options().durability == DurabilityMode::Adaptive && !volume.is_read_only() {
        let logged = volume.stats().survivor.is_some();
        errln!("medfs mount: {}", may_be_lost(volume.options(), logged));
    }
    if asked_for_deltas && !volume.superblock().is_delta_volume() {
        errln!(
            "medfs mount: {} is plain F2FS and takes no deltas: mounted with delta=off ('medfs import' changes that)",
            args.image.display()
        );
    }
    if last(args, "compress").is_some_and(|value| asks_for_pages(&value))
        && !volume.superblock().is_delta_volume()
    {
        errln!(
            "medfs mount: {} is plain F2FS, where compress=fpc compresses no page ('medfs import' changes that)",
            args.image.display()
        );
    }
    if asks_for_compression(args) && !volume.superblock().features().contains(Feature::COMPRESSION) {
        errln!(
            "medfs mount: {} lacks the compression feature, so the option has no effect ('medfs mkfs -O default,compression' makes volumes with it)",
            args.image.display()
        );
    }
    if volume.is_read_only() && !read_only {
        errln!(
            "medfs mount: {} has features that only a newer medfs can write: mounted read-only",
            args.image.display()
        );
        config.set_option("ro")?;
    }
    let closing = Closing::new(&source, volume.clone(), tap.clone());
    let files: Arc<dyn Files> = volume.clone();
    let mounted = tap.attach(files, &args.image, config.writeback).and_then(|files| {
        let at_end = closing.clone();
        Ok(match source.claimed {
            Some(claimed) => medfs_fuse::mount_block(files, config, claimed, move || at_end.close())?,
            None => medfs_fuse::mount(files, config)?,
        })
    });
    match mounted {
        Ok(session) => {
            if let Some(why) = source.read_only_because {
                errln!("medfs mount: {why}: mounted read-only");
            }
            Ok((session, volume, closing))
        }
        Err(e) => {
            // The mount's error is the one to tell; an unclean close loses nothing.
            closing.close();
            Err(needs_no_mount(e))
        }
    }
}

/// Names the options that change nothing: for want of another one, or because only the kernel's f2fs has a
/// use for them.
fn tell_ignored(args: &MountArgs, config: &MountConfig, options: &MountOptions) {
    let all: Vec<&str> = args.options.iter().flat_map(|list| list.split(',')).map(str::trim).collect();
    for sentence in options::without_companion(&all, options) {
        errln!("medfs mount: {sentence}");
    }
    if config.alert && !rustix::process::geteuid().is_root() {
        errln!("medfs mount: alert needs root, so it has no effect");
    }
    let ignored: Vec<_> = all.into_iter().filter(|option| MountOptions::ignores(option)).collect();
    if !ignored.is_empty() {
        errln!("medfs mount: these options of the kernel's f2fs have no effect here: {}", ignored.join(", "));
    }
}

/// Whether deltas are asked for in so many words; by default they are made where the volume takes them.
fn asks_for_deltas(args: &MountArgs) -> bool {
    last(args, "delta").is_some_and(|mode| mode != "off")
}

/// Whether compression is asked for.
fn asks_for_compression(args: &MountArgs) -> bool {
    let mut all = args.options.iter().flat_map(|list| list.split(','));
    let pages = |o: &str| o.strip_prefix("compress=").is_some_and(asks_for_pages);
    all.any(|o| o.trim().starts_with("compress") && o.trim() != "compress=off" && !pages(o.trim()))
}

/// Whether this value of `compress` is about pages alone, and not about clusters.
fn asks_for_pages(value: &str) -> bool {
    value.split(':').next() == Some("fpc")
}

/// The last value that is given to an option.
fn last(args: &MountArgs, name: &str) -> Option<String> {
    let mut all = args.options.iter().flat_map(|list| list.split(','));
    all.rfind(|o| o.trim().split('=').next() == Some(name))
        .and_then(|o| o.trim().split_once('='))
        .map(|(_, value)| value.to_owned())
}

/// Serves until unmounted, by `medfs umount`, umount(8) or a signal, and closes the volume.
fn serve(session: Session, volume: &Volume, mut signals: Signals, closing: &Closing) -> Result<u8> {
    let stop = signals.handle();
    let unmounter = session.unmounter();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for signal in signals.forever() {
                if signal == Signal::POWER.as_raw() {
                    tracing::warn!(
                        "power may fail: fsyncs are durable before they return, until 'medfs power ok'"
                    );
                    make_durable(&unmounter, volume);
                    continue;
                }
                tracing::info!(signal, "unmounting");
                if let Err(e) = unmounter.unmount() {
                    tracing::warn!("{e}; it is detached: it ends with the last process that uses it");
                    make_durable(&unmounter, volume);
                    if let Err(e) = unmounter.unmount_lazy() {
                        tracing::error!("{e}");
                    }
                }
            }
        });
        let ended = session.wait();
        stop.close();
        ended
    })?;
    closing.result()?;
    Ok(exit::SUCCESS)
}

/// Commits everything, what the kernel's page cache holds as well, and has each fsync durable before it returns from
/// now on: this process may end at any time.
fn make_durable(unmounter: &Unmounter, volume: &Volume) {
    if let Err(e) = unmounter.write_back(volume) {
        tracing::error!("cannot write back the page cache: {e}");
    }
    if let Err(e) = volume.set_low_power(true) {
        tracing::error!("cannot write back all changes: {e}");
    }
}

/// Starts the daemon and waits until the mount can be used.
fn detach(args: &MountArgs) -> Result<u8> {
    let mut daemon = spawn_daemon(args)?;
    if is_ready(&mut daemon)? {
        return Ok(exit::SUCCESS);
    }
    // It said why on our standard error.
    let status = daemon.wait()?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::MOUNT_FAILURE))
}

/// What is to be mounted, for a process that works elsewhere.
fn absolute(image: &Path) -> Result<PathBuf> {
    match FlashTarget::parse(image)? {
        Some(flash) => Ok(flash.absolute()?),
        None => found(image),
    }
}

/// A list of options with the path of `nvram=` as a process that works elsewhere finds it; what is wrong with
/// it that process says.
fn with_absolute_nvram(list: &str) -> String {
    let absolute = |option: &str| {
        let mut parsed = MountOptions::default();
        parsed.apply(option).ok()?;
        match parsed.nvram {
            Some(NvramOption::At(mut place)) => {
                place.path = std::path::absolute(&place.path).ok()?;
                Some(format!("nvram={place}"))
            }
            _ => None,
        }
    };
    let options: Vec<String> =
        list.split(',').map(|option| absolute(option.trim()).unwrap_or_else(|| option.to_owned())).collect();
    options.join(",")
}

/// Refuses a directory on which a mount would hide what the machine or another mount needs.
fn refuse_covering(dir: &Path) -> Result<()> {
    let dir = found(dir)?;
    if dir == Path::new("/") {
        bail!("a volume mounted on / would hide the root file system: name a directory below it");
    }
    if medfs_fuse::control::find_mount(&dir)?.is_some() {
        bail!(
            "a volume of medfs is mounted on {} already: unmount it with {}",
            dir.display(),
            hint(format_args!("medfs umount {}", quote::path(&dir)))
        );
    }
    Ok(())
}

/// Says of a mount that failed for want of FUSE, or of a right to it, what needs none.
fn needs_no_mount(error: anyhow::Error) -> anyhow::Error {
    use medfs_fuse::Error::{Device, Fusermount, NoFusermount};
    let lacks_fuse = match error.downcast_ref() {
        Some(Device(_) | NoFusermount) => true,
        Some(Fusermount { message, .. }) => message.contains("/dev/fuse"),
        _ => false,
    };
    match lacks_fuse {
        true => anyhow::anyhow!("{}; 'medfs get' and 'medfs ls' need no mount", exit::sentence(&error)),
        false => error,
    }
}

fn found(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("cannot find {}", path.display()))
}

/// Tells the C library from how many arenas threads allocate. A page that one thread makes another one frees: with an
/// arena for each thread a daemon keeps twice the memory that it uses.
const ARENAS: &str = "MALLOC_ARENA_MAX";

/// Starts a process that mounts the volume and serves it.
pub(crate) fn spawn_daemon(args: &MountArgs) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe().context("cannot find the medfs executable")?);
    command.arg0("medfs").arg("mount").arg("--daemon");
    for list in &args.options {
        // The daemon works in the root directory.
        command.arg("-o").arg(Tap::absolute(&with_absolute_nvram(list))?);
    }
    if let Some(log) = &args.log {
        File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        command.arg("--log").arg(found(log)?);
    }
    command.arg(absolute(&args.image)?).arg(found(&args.dir)?);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
    if std::env::var_os(ARENAS).is_none() {
        command.env(ARENAS, "1");
    }
    command.spawn().context("cannot start the daemon")
}

/// Whether the daemon came to serve; it ends otherwise.
pub(crate) fn is_ready(daemon: &mut Child) -> Result<bool> {
    let stdout = daemon.stdout.take().context("the daemon has no output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    Ok(line.trim_end() == READY)
}

/// Lets go of the terminal, and tells the first process: messages go to the log file or to the system's log
/// before anybody can use the mount.
fn announce(args: &MountArgs) -> Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let log = match &args.log {
        Some(path) => File::options().create(true).append(true).open(path)?,
        None => null.try_clone()?,
    };
    let mut waiting = File::from(rustix::io::dup(std::io::stdout())?);
    match args.log {
        Some(_) => crate::log::to_file(),
        None => crate::log::to_system(),
    }
    rustix::stdio::dup2_stdout(&log)?;
    rustix::stdio::dup2_stderr(&log)?;
    // Nobody may be waiting any more; the mount stands all the same.
    let _ = writeln!(waiting, "{READY}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper(args: &[&str]) -> Result<Option<MountArgs>> {
        let args: Vec<OsString> = args.iter().map(Into::into).collect();
        helper_args(&args)
    }

    #[test]
    fn mount8_calls() {
        let args =
            helper(&["/dev/sda1", "/mnt", "-n", "-o", "rw,nofail,_netdev,noatime,x-systemd.automount"])
                .unwrap()
                .unwrap();
        assert_eq!((args.image, args.dir), ("/dev/sda1".into(), "/mnt".into()));
        assert!(helper(&["/dev/sda1", "/mnt", "-f"]).unwrap().is_none(), "only pretended");
    }

    #[test]
    fn sloppy_leaves_out_what_is_unknown() {
        let args = helper(&["/dev/sda1", "/mnt", "-sv", "-o", "ro,frobnicate,noatime"]).unwrap().unwrap();
        assert_eq!(args.options, ["ro,noatime"]);
        let error = helper(&["/dev/sda1", "/mnt", "-o", "frobnicate"]).unwrap_err().to_string();
        assert!(error.contains("frobnicate"), "{error}");
    }

    #[test]
    fn who_may_not_mount_is_told_what_needs_none() {
        let failed = |message: &str| {
            let (what, path, message) = ("mount on", "/mnt".into(), message.to_owned());
            needs_no_mount(medfs_fuse::Error::Fusermount { what, path, message }.into()).to_string()
        };
        let text = failed("failed to open /dev/fuse: Permission denied");
        assert!(text.ends_with("Permission denied; 'medfs get' and 'medfs ls' need no mount"), "{text}");
        assert!(!failed("mountpoint is not empty").contains("medfs get"));
    }

    #[test]
    fn wrong_calls() {
        for args in [&["/dev/sda1"][..], &["a", "b", "c"], &["a", "b", "-x"], &["a", "b", "-o"]] {
            assert!(helper(args).is_err(), "{args:?}");
        }
    }
}
