//! Mounts whose daemon a test can kill, and what generators share.
#![allow(dead_code, unreachable_pub)] // each test binary uses its part

use crate::common::*;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

/// Xorshift.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        rng.next();
        rng
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound.max(1)
    }
}

/// `MEDFS_SEED`, or another one each time.
pub fn seed() -> u64 {
    let given = std::env::var("MEDFS_SEED").ok().map(|seed| seed.parse().expect("MEDFS_SEED is a number"));
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos().into();
    let seed = given.unwrap_or_else(now);
    eprintln!("MEDFS_SEED={seed}");
    seed
}

/// `MEDFS_MINUTES`, or one.
pub fn minutes() -> Duration {
    let minutes =
        std::env::var("MEDFS_MINUTES").map_or(1.0, |m| m.parse().expect("MEDFS_MINUTES is a number"));
    Duration::from_secs_f64(60.0 * minutes)
}

/// A mounted image and its daemon.
pub struct Mounted {
    pub dir: PathBuf,
    daemon: Mutex<Child>,
}

impl Mounted {
    pub fn new(s: &Scratch, options: &str) -> Mounted {
        let dir = s.path("mnt");
        std::fs::create_dir_all(&dir).unwrap();
        let dir = dir.canonicalize().unwrap();
        let program = std::env::var_os("MEDFS").map_or_else(binary, PathBuf::from);
        let mut command = Command::new(program);
        command.args(["mount", "--foreground"]);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        command.arg(s.image()).arg(&dir).stdout(Stdio::null());
        let daemon = Mutex::new(command.spawn().unwrap());
        let start = Instant::now();
        while !std::fs::read_to_string("/proc/self/mounts").unwrap().contains(&*dir.to_string_lossy()) {
            assert!(start.elapsed() < Duration::from_secs(30), "not mounted");
            std::thread::sleep(Duration::from_millis(5));
        }
        Mounted { dir, daemon }
    }

    /// Ends the daemon in the middle of whatever it does.
    pub fn kill(&self) {
        let mut daemon = self.daemon.lock().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Sends the daemon a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.daemon.lock().unwrap().id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until the daemon ended well.
    pub fn ended(self) {
        assert!(self.daemon.lock().unwrap().wait().unwrap().success());
    }

    pub fn unmount(self) {
        medfs().arg("umount").arg(&self.dir).assert().success();
        assert!(self.daemon.lock().unwrap().wait().unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let quiet = |command: &mut Command| command.stderr(Stdio::null()).status();
        let _ = quiet(Command::new("umount").arg("-l").arg(&self.dir));
        let mut daemon = self.daemon.lock().unwrap();
        if daemon.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
