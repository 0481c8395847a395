//! A mounted volume: negotiation with the kernel, the threads that serve it, and its end.

use crate::abi::{
    Init, InitIn, InitOut, KERNEL_MINOR_VERSION, KERNEL_VERSION, OLDEST_MINOR_VERSION, OutHeader, op,
};
use crate::agreed::Agreed;
use crate::config::{MountConfig, Transport};
use crate::connection;
use crate::dirty::PageCache;
use crate::dispatch::{Close, FileSystem};
use crate::error::{Error, Result};
use crate::mount::{self, BlockMount};
use crate::notify::Notifier;
use crate::pm_qos::{WakeLatencyHold, WakingFast};
use crate::remounts::Remounts;
use crate::request::Request;
use crate::room::{Room, RoomKeeper};
use crate::transport::{HEAD_SIZE, Handler, PAYLOAD_SIZE, Threads, dev, uring};
use crate::writers::Writers;
use medfs::{Files, Volume};
use parking_lot::{Condvar, Mutex};
use rustix::mount::MountFlags;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// What is taken of what the kernel offers; io_uring and writeback come on top where wanted.
const WANTED: Init = Init::ASYNC_READ
    .union(Init::EXPORT_SUPPORT)
    .union(Init::BIG_WRITES)
    .union(Init::DONT_MASK)
    .union(Init::DO_READDIRPLUS)
    .union(Init::READDIRPLUS_AUTO)
    .union(Init::ASYNC_DIO)
    .union(Init::PARALLEL_DIROPS)
    .union(Init::POSIX_ACL)
    .union(Init::ABORT_ERROR)
    .union(Init::MAX_PAGES)
    .union(Init::CACHE_SYMLINKS)
    .union(Init::NO_OPENDIR_SUPPORT)
    .union(Init::HANDLE_KILLPRIV_V2)
    .union(Init::SETXATTR_EXT)
    .union(Init::DIRECT_IO_ALLOW_MMAP)
    .union(Init::INIT_EXT);

/// Requests of the page cache (readahead, writeback) under way at once.
const BACKGROUND_MAX: u16 = 64;
/// How often background work gets its turn.
const TICK: Duration = Duration::from_secs(1);

/// How a session came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// The transport in use: `Dev` or `Uring` (what was asked for, where the mount ended before it could be used).
    pub transport: Transport,
    /// Mounted as `fuseblk`: `sync` and `syncfs` reach the volume.
    pub block: bool,
    /// Minor version of the protocol (its major version is 7).
    pub protocol_minor: u32,
}

/// Mounts a volume, or what stands for one. When this returns the mount is ready for use, or has been
/// unmounted already.
pub fn mount(files: Arc<dyn Files>, config: MountConfig) -> Result<Session> {
    let remounts = Remounts::new(&config.mountpoint, config.read_only())?;
    let device = mount::attach(&config)?;
    serve(&config, remounts, device, false, |notifier, terms| handler(files, notifier, terms, None))
}

/// Mounts a volume on a block device that the kernel has claimed already. `close` is called when the last
/// user of the mount is gone, before umount(2) returns: it finishes the volume and lets go of the device. It
/// is not called where the connection breaks.
pub fn mount_block(
    files: Arc<dyn Files>,
    config: MountConfig,
    claimed: BlockMount,
    close: impl FnOnce() + Send + 'static,
) -> Result<Session> {
    let remounts = Remounts::new(&config.mountpoint, config.read_only())?;
    let device = claimed.attach(&config)?;
    serve(&config, remounts, device, true, |notifier, terms| {
        handler(files, notifier, terms, Some(Box::new(close)))
    })
}

fn handler(
    files: Arc<dyn Files>,
    notifier: Notifier,
    terms: Terms,
    close: Option<Close>,
) -> (Arc<dyn Handler>, Tick) {
    let room = terms.page_cache.and_then(|cache| match RoomKeeper::start(Room::new(files.clone(), cache)) {
        Ok(keeper) => Some(keeper),
        Err(error) => {
            tracing::error!(%error, "cannot start a thread: writers learn of a full volume only at fsync or close");
            None
        }
    });
    let Terms { agreed, writers, remounts, .. } = terms;
    let file_system = FileSystem::new(files, notifier, &agreed, room, writers, remounts, close);
    let file_system = Arc::new(file_system);
    let ticker = file_system.clone();
    (file_system, Box::new(move || ticker.tick()))
}

/// On what terms requests are served.
pub(crate) struct Terms {
    pub(crate) agreed: Agreed,
    /// The kernel's page cache, where it takes writes without asking.
    page_cache: Option<PageCache>,
    writers: Arc<Writers>,
    remounts: Remounts,
}

/// What is to be done about every second; returns when it is wanted again.
type Tick = Box<dyn Fn() -> Duration + Send>;

/// Serves a connection by whatever `make` makes.
fn serve(
    config: &MountConfig,
    remounts: Remounts,
    device: File,
    block: bool,
    make: impl FnOnce(Notifier, Terms) -> (Arc<dyn Handler>, Tick),
) -> Result<Session> {
    let device = Arc::new(device);
    let workers = Threads::default();
    match Session::start(config, remounts, &device, block, &workers, make) {
        Ok(session) => Ok(session),
        // Whoever saw the mount before it could be used has unmounted it: that is its end, not a failure.
        Err(error) if connection::has_ended(&device) => {
            tracing::info!(%error, "unmounted while it was being mounted");
            Ok(Session::ended(config, block, workers))
        }
        Err(error) => {
            // The mount is of no use without a daemon.
            if let Err(error) = mount::detach(&config.mountpoint, true) {
                tracing::error!(%error, "cannot undo the mount");
            }
            Err(error)
        }
    }
}

/// A mounted volume and the threads that serve it.
pub struct Session {
    unmounter: Unmounter,
    info: SessionInfo,
    workers: Threads,
    /// `None` where the mount ended before it could be used.
    ticker: Option<Ticker>,
    ended: bool,
}

impl Session {
    fn start(
        config: &MountConfig,
        remounts: Remounts,
        device: &Arc<File>,
        block: bool,
        workers: &Threads,
        make: impl FnOnce(Notifier, Terms) -> (Arc<dyn Handler>, Tick),
    ) -> Result<Session> {
        let negotiated = negotiate(device, config)?;
        let accepted = negotiated.accepted;
        let options = in_force(config, &negotiated);
        let (timeout, direct, image) = (config.timeout, config.direct, config.image.clone());
        let agreed = Agreed { accepted, timeout, direct, options, image };
        let cached = accepted.contains(Init::WRITEBACK_CACHE) && !config.direct && !config.read_only();
        let page_cache = if cached {
            let always = config.flags.contains(MountFlags::SYNCHRONOUS);
            Some(PageCache::of(&config.mountpoint, block, always).map_err(Error::io("finding the mount"))?)
        } else {
            None
        };
        let writers = Writers::of(&config.mountpoint).map_err(Error::io("finding the mount"))?;
        let writers = Arc::new(writers);
        let terms = Terms { agreed, page_cache, writers: writers.clone(), remounts };
        let (handler, tick) = make(Notifier::new(device.clone()), terms);
        let handler = if config.alert { waking_fast(handler) } else { handler };
        let starting = Error::io("starting worker threads");
        let info = match negotiated.rings {
            None => {
                dev::start(device, &handler, threads(config), workers).map_err(starting)?;
                SessionInfo { transport: Transport::Dev, block, protocol_minor: negotiated.minor }
            }
            Some(rings) => {
                // FORGET, and everything until the rings are complete, comes through the device.
                dev::start(device, &handler, 2, workers).map_err(starting)?;
                rings.start(device, &handler, workers).map_err(|error| Error::Uring(error.to_string()))?;
                SessionInfo { transport: Transport::Uring, block, protocol_minor: negotiated.minor }
            }
        };
        let ticker = Ticker::start(tick).map_err(Error::io("starting the background thread"))?;
        tracing::info!(mountpoint = %config.mountpoint.display(), transport = %info.transport, block, "mounted");
        let unmounter = Unmounter { mountpoint: config.mountpoint.clone(), writers: Some(writers) };
        Ok(Session { unmounter, info, workers: workers.clone(), ticker: Some(ticker), ended: false })
    }

    /// A session whose mount is gone already.
    fn ended(config: &MountConfig, block: bool, workers: Threads) -> Session {
        let info = SessionInfo { transport: config.transport, block, protocol_minor: 0 };
        let unmounter = Unmounter { mountpoint: config.mountpoint.clone(), writers: None };
        Session { unmounter, info, workers, ticker: None, ended: false }
    }

    /// How the session came about.
    pub fn info(&self) -> &SessionInfo {
        &self.info
    }

    /// What ends the session from another thread.
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Unmounts; fails where the mount is in use. [`Session::wait`] then returns.
    pub fn unmount(&self) -> Result<()> {
        self.unmounter.unmount()
    }

    /// Waits until the volume is unmounted and every thread has ended. The caller closes the volume then.
    pub fn wait(mut self) -> Result<()> {
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        self.workers.join();
        if let Some(ticker) = self.ticker.take() {
            ticker.stop();
        }
        self.ended = true;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.ended {
            if self.ticker.is_none() || self.unmounter.unmount().is_ok() {
                self.end();
            } else if let Err(error) = self.unmounter.unmount_lazy() {
                tracing::error!(%error, "cannot unmount");
            }
            // A lazy end is not waited for: whoever uses the mount may be waiting for us.
        }
    }
}

/// Ends a session from any thread.
#[derive(Debug, Clone)]
pub struct Unmounter {
    mountpoint: PathBuf,
    /// `None` where the mount has ended.
    writers: Option<Arc<Writers>>,
}

impl Unmounter {
    /// Unmounts; [`Error::Busy`] where the mount is in use.
    pub fn unmount(&self) -> Result<()> {
        mount::detach(&self.mountpoint, false)
    }

    /// Takes the mount out of sight at once. The kernel begins to write back what its page cache holds; the session
    /// ends when the last file in use is closed.
    pub fn unmount_lazy(&self) -> Result<()> {
        let _ = self.begin_to_write_back();
        mount::detach(&self.mountpoint, true)
    }

    fn begin_to_write_back(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.mountpoint)?)?)
    }

    /// Has the kernel write to the volume what its page cache holds, and waits for that. Not from a thread that serves
    /// requests.
    pub fn write_back(&self, volume: &Volume) -> io::Result<()> {
        // An error may be of earlier writes.
        let begun = self.begin_to_write_back();
        let Some(writers) = &self.writers else { return begun };
        writers.each(|ino| writers.write_back(volume, ino)).and(begun)
    }

    /// Where the volume is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }
}

/// The thread that gives background work its turn.
struct Ticker {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Threads,
}

impl Ticker {
    fn start(tick: Tick) -> io::Result<Ticker> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let thread = Threads::default();
        let stopped = stop.clone();
        thread.spawn("medfs-background".into(), move || {
            let (stopped, changed) = &*stopped;
            let mut stopped = stopped.lock();
            let mut wait = TICK;
            while !*stopped {
                changed.wait_for(&mut stopped, wait);
                if !*stopped {
                    wait = parking_lot::MutexGuard::unlocked(&mut stopped, &tick).min(TICK);
                }
            }
        })?;
        Ok(Ticker { stop, thread })
    }

    fn stop(&self) {
        *self.stop.0.lock() = true;
        self.stop.1.notify_all();
        self.thread.join();
    }
}

/// Has processors wait awake for a handler's requests, where the kernel lets us.
fn waking_fast(inner: Arc<dyn Handler>) -> Arc<dyn Handler> {
    match WakeLatencyHold::new() {
        Ok(alert) => Arc::new(WakingFast { inner, alert, began: Instant::now() }),
        Err(error) => {
            tracing::info!(%error, "idle processors go to sleep between requests");
            inner
        }
    }
}

fn default_threads() -> usize {
    std::thread::available_parallelism().map_or(4, |cpus| (cpus.get() * 2).clamp(4, 16))
}

/// What was agreed on with the kernel.
struct Negotiated {
    minor: u32,
    accepted: Init,
    rings: Option<uring::Plan>,
}

/// The options that hold once the kernel has agreed.
fn in_force(config: &MountConfig, negotiated: &Negotiated) -> Vec<String> {
    let (transport, threads) = match negotiated.rings {
        None => (Transport::Dev, threads(config)),
        Some(_) => (Transport::Uring, config.threads),
    };
    let writeback = negotiated.accepted.contains(Init::WRITEBACK_CACHE);
    MountConfig { transport, threads, writeback, ..config.clone() }.in_force()
}

/// Threads that read `/dev/fuse`.
fn threads(config: &MountConfig) -> usize {
    if config.threads == 0 { default_threads() } else { config.threads }
}

/// Answers INIT, the first request of a connection.
fn negotiate(mut device: &File, config: &MountConfig) -> Result<Negotiated> {
    let mut buffer = vec![0; HEAD_SIZE + PAYLOAD_SIZE];
    let len = loop {
        match device.read(&mut buffer) {
            Ok(len) => break len,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(Error::io("reading the kernel's first request")(error)),
        }
    };
    let malformed = || Error::io("reading the kernel's first request")(io::ErrorKind::InvalidData.into());
    let request = Request::contiguous(&buffer[..len]).ok_or_else(malformed)?;
    if request.header.opcode != op::INIT {
        return Err(malformed());
    }
    let offer: InitIn = request.arg().map_err(|_| malformed())?;
    let protocol_error = Error::Protocol { major: offer.major, minor: offer.minor };
    if offer.major != KERNEL_VERSION || offer.minor < OLDEST_MINOR_VERSION {
        reply_init(device, request.header.unique, -libc::EPROTO, &[])?;
        return Err(protocol_error);
    }
    let mut offered = Init::from_bits_retain(u64::from(offer.flags));
    if offered.contains(Init::INIT_EXT) {
        offered |= Init::from_bits_retain(u64::from(offer.flags2) << 32);
    }
    let rings = plan_rings(offered, config)?;
    let mut accepted = offered & WANTED;
    if config.writeback {
        accepted |= offered & Init::WRITEBACK_CACHE;
    }
    if rings.is_some() {
        accepted |= Init::OVER_IO_URING;
    }
    let minor = offer.minor.min(KERNEL_MINOR_VERSION);
    let answer = InitOut {
        major: KERNEL_VERSION,
        minor,
        max_readahead: offer.max_readahead,
        flags: accepted.bits() as u32,
        flags2: (accepted.bits() >> 32) as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: PAYLOAD_SIZE as u32,
        time_gran: 1,
        max_pages: (PAYLOAD_SIZE / rustix::param::page_size()) as u16,
        ..InitOut::default()
    };
    reply_init(device, request.header.unique, 0, answer.as_bytes())?;
    Ok(Negotiated { minor, accepted, rings })
}

fn reply_init(mut device: &File, unique: u64, error: i32, body: &[u8]) -> Result<()> {
    let header = OutHeader { len: (size_of::<OutHeader>() + body.len()) as u32, error, unique };
    let reply = [header.as_bytes(), body].concat();
    device.write(&reply).map(drop).map_err(Error::io("answering the kernel's first request"))
}

/// Decides on the transport, before the kernel is told.
fn plan_rings(offered: Init, config: &MountConfig) -> Result<Option<uring::Plan>> {
    let reason = match config.transport {
        Transport::Dev => return Ok(None),
        _ if !offered.contains(Init::OVER_IO_URING) => {
            "the kernel does not offer it (Linux 6.14 with `echo 1 > /sys/module/fuse/parameters/enable_uring`)".into()
        }
        _ => match uring::Plan::new(config.threads) {
            Ok(plan) => return Ok(Some(plan)),
            Err(error) => format!("cannot create an io_uring: {error}"),
        },
    };
    if config.transport == Transport::Uring {
        return Err(Error::Uring(reason));
    }
    tracing::info!(reason, "FUSE over io_uring is not available, using /dev/fuse");
    Ok(None)
}
