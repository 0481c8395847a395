//! Where messages go: to standard error and, once a daemon has let go of its terminal, to the system's log.
//!
//! The system's log is the socket `/dev/log` (syslogd, journald), or the kernel's own log where nobody
//! listens there. A message that can be delivered to neither is lost: what turned a volume read-only
//! `medfs stat DIR` tells in any case.
//!
//! On standard error a message is a sentence like those of the commands, `medfs: ...`. Who sets `RUST_LOG`
//! gets lines of a log, with times and levels; so does the file of `medfs mount --log`.

use rustix::process::getpid;
use std::fmt;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// syslog(3)'s number for daemons.
const FACILITY_DAEMON: u8 = 3;

/// Set when this process has become a daemon without a log file of its own.
static SYSTEM_LOG: OnceLock<SystemLog> = OnceLock::new();

/// Whether messages are lines of a log, rather than sentences for the person at the terminal.
static IS_LOG: AtomicBool = AtomicBool::new(false);

/// Whether they go to a file, without colours.
static IS_FILE: AtomicBool = AtomicBool::new(false);

/// Whether errors are told by the command.
static WITHOUT_ERRORS: AtomicBool = AtomicBool::new(false);

/// Whether what a volume does not show because of damage is told by the command.
static WITHOUT_DAMAGE: AtomicBool = AtomicBool::new(false);

/// Where the engine notes what it does not show.
const OF_DAMAGE: &str = "medfs::map::damage";

/// The sentence that was told last: it is not told twice in a row.
static LAST: Mutex<String> = Mutex::new(String::new());

/// Messages go where errors go; `RUST_LOG` says which. Panics are messages too. `NO_COLOR` (no-color.org)
/// keeps them without colours.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_default_env();
    IS_LOG.store(filter.is_ok(), Ordering::Relaxed);
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("warn"));
    let colours = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    let lines = tracing_subscriber::fmt::format().with_timer(Timer).with_target(false);
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(Output);
    log.with_ansi(colours).event_format(Lines(lines)).init();
}

/// From now on standard error is a file, which is read later: messages are lines with times.
pub(crate) fn to_file() {
    IS_FILE.store(true, Ordering::Relaxed);
    IS_LOG.store(true, Ordering::Relaxed);
}

/// From now on only warnings are told: the command tells of errors itself.
pub(crate) fn without_errors() {
    WITHOUT_ERRORS.store(true, Ordering::Relaxed);
}

/// From now on the command tells itself what a volume does not show because of damage.
pub(crate) fn without_damage() {
    WITHOUT_DAMAGE.store(true, Ordering::Relaxed);
}

/// From now on messages go to the system's log.
pub(crate) fn to_system() {
    IS_LOG.store(true, Ordering::Relaxed);
    let _ = SYSTEM_LOG.set(SystemLog::new());
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}

/// Whether standard error is no longer what a user sees.
pub(crate) fn is_detached() -> bool {
    SYSTEM_LOG.get().is_some()
}

/// Where the system takes messages.
struct SystemLog {
    socket: PathBuf,
    kernel: PathBuf,
}

impl SystemLog {
    fn new() -> SystemLog {
        SystemLog { socket: "/dev/log".into(), kernel: "/dev/kmsg".into() }
    }

    /// Sends a message, in the form both places understand. A logging service may come and go: it is looked
    /// for each time.
    fn send(&self, level: Level, text: &str) -> io::Result<()> {
        let priority = FACILITY_DAEMON << 3 | severity(level);
        let message = format!("<{priority}>medfs[{}]: {}", getpid().as_raw_pid(), text.trim());
        send_to(&self.socket, message.as_bytes())
            .or_else(|_| File::options().write(true).open(&self.kernel)?.write_all(message.as_bytes()))
    }
}

fn send_to(socket: &Path, message: &[u8]) -> io::Result<()> {
    let sender = UnixDatagram::unbound()?;
    // A log that does not take messages must not stop the file system.
    sender.set_nonblocking(true)?;
    sender.send_to(message, socket).map(drop)
}

/// syslog(3)'s number for a level.
fn severity(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// What writes each message.
struct Output;

/// One message on its way.
enum Message {
    Stderr,
    System(&'static SystemLog, Level),
}

impl<'a> MakeWriter<'a> for Output {
    type Writer = Message;

    fn make_writer(&'a self) -> Message {
        Message::Stderr
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Message {
        SYSTEM_LOG.get().map_or(Message::Stderr, |log| Message::System(log, *metadata.level()))
    }
}

impl Write for Message {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Message::Stderr => crate::progress::above(|| io::stderr().write(bytes)),
            // A message comes in one piece.
            Message::System(log, level) => {
                log.send(*level, &String::from_utf8_lossy(bytes)).map(|()| bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How a message is written.
struct Lines(Format<Full, Timer>);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if IS_LOG.load(Ordering::Relaxed) {
            let is_file = IS_FILE.load(Ordering::Relaxed);
            return match is_file {
                true => self.0.format_event(context, Writer::new(&mut writer), event),
                false => self.0.format_event(context, writer, event),
            };
        }
        if WITHOUT_ERRORS.load(Ordering::Relaxed) && *event.metadata().level() == Level::ERROR {
            return Ok(());
        }
        if WITHOUT_DAMAGE.load(Ordering::Relaxed) && event.metadata().target() == OF_DAMAGE {
            return Ok(());
        }
        let mut sentence = Sentence::default();
        event.record(&mut sentence);
        let text = crate::exit::without_numbers(&sentence.text());
        // A command may open a volume several times.
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == text {
            return Ok(());
        }
        let line = format!("medfs: {text}");
        writeln!(
            writer,
            "{}",
            if is_detached() { line } else { crate::output::fitting(line, io::stderr()) }
        )?;
        *last = text;
        Ok(())
    }
}

/// A message as a person reads it: what happened, what with, and why.
#[derive(Default)]
struct Sentence {
    message: String,
    with: Vec<String>,
    error: Option<String>,
}

impl Sentence {
    fn text(&self) -> String {
        let mut text = self.message.clone();
        if !self.with.is_empty() {
            text.push_str(&format!(" ({})", self.with.join(", ")));
        }
        if let Some(error) = &self.error {
            text.push_str(&format!(": {error}"));
        }
        text
    }
}

impl Visit for Sentence {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "error" => self.error = Some(format!("{value:?}")),
            "ino" => self.with.push(format!("inode {value:?}")),
            name => self.with.push(format!("{name} {value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// The system's log has its own times.
struct Timer;

impl FormatTime for Timer {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        if is_detached() { writer.write_str("") } else { SystemTime.format_time(writer) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_to_the_socket_or_else_to_the_kernels_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = SystemLog { socket: dir.path().join("log"), kernel: dir.path().join("kmsg") };
        assert!(log.send(Level::ERROR, "nobody takes it").is_err());
        std::fs::write(&log.kernel, "").unwrap();
        log.send(Level::WARN, "to the kernel\n").unwrap();
        let expected = format!("<28>medfs[{}]: to the kernel", std::process::id());
        assert_eq!(std::fs::read_to_string(&log.kernel).unwrap(), expected);
        let receiver = UnixDatagram::bind(&log.socket).unwrap();
        log.send(Level::ERROR, "to the socket").unwrap();
        let mut bytes = [0; 100];
        let len = receiver.recv(&mut bytes).unwrap();
        let expected = format!("<27>medfs[{}]: to the socket", std::process::id());
        assert_eq!(String::from_utf8_lossy(&bytes[..len]), expected);
    }
}
