//! A volume made by mkfs.f2fs and mounted for a test; fsck.f2fs judges it afterwards.
#![allow(dead_code, unreachable_pub)] // each test binary uses its part

use medfs::{MountOptions, SystemClock, Volume};
use medfs_device::{FileDevice, FileOptions};
use medfs_fuse::{MountConfig, Session, Transport};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs a command and returns what it printed; panics with its words where it fails.
pub fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {args:?}: {}\n{out}\n{err}", output.status);
    out.into_owned()
}

/// Whether mounting can be tested. Without /dev/fuse that is a failure, unless `MEDFS_NO_FUSE=1` says it is known.
pub fn fuse_available() -> bool {
    if Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root() {
        return true;
    }
    assert_eq!(
        std::env::var("MEDFS_NO_FUSE").as_deref(),
        Ok("1"),
        "mounting needs root and /dev/fuse; set MEDFS_NO_FUSE=1 to do without these tests"
    );
    eprintln!("no FUSE here: nothing was tested");
    false
}

/// The transports this kernel offers.
pub fn transports() -> Vec<Transport> {
    let enabled = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    if enabled.is_ok_and(|enabled| enabled.trim() == "Y") {
        vec![Transport::Dev, Transport::Uring]
    } else {
        eprintln!("FUSE over io_uring is not enabled here: only /dev/fuse is tested");
        vec![Transport::Dev]
    }
}

/// An image in a temporary directory.
pub struct Image {
    pub dir: tempfile::TempDir,
}

impl Image {
    /// A volume of 256 MiB with all supported features.
    pub fn new() -> Image {
        Image::sized(256)
    }

    /// The same with so many MiB.
    pub fn sized(mib: u64) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let image = Image { dir };
        File::create(image.path()).unwrap().set_len(mib << 20).unwrap();
        let features = "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,project_quota,sb_checksum,compression";
        run("mkfs.f2fs", &["-f", "-q", "-O", features, image.path().to_str().unwrap()]);
        std::fs::create_dir(image.mountpoint()).unwrap();
        image
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    pub fn mountpoint(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    pub fn open(&self) -> Arc<Volume> {
        open(&self.path())
    }

    pub fn config(&self, transport: Transport) -> MountConfig {
        let mut config = MountConfig::new(self.mountpoint(), self.path().to_str().unwrap());
        config.transport = transport;
        config.allow_other = true;
        config
    }

    /// fsck.f2fs finds nothing wrong.
    pub fn check(&self) {
        let output = Command::new("fsck.f2fs").args(["--dry-run", "-d1"]).arg(self.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && !text.contains("[FAIL]") && !text.contains("[FIX]"), "{text}");
    }
}

pub fn open(path: &Path) -> Arc<Volume> {
    open_with(path, MountOptions::default())
}

fn open_with(path: &Path, options: MountOptions) -> Arc<Volume> {
    let device = FileDevice::open(path, FileOptions { exclusive: false, ..FileOptions::default() }).unwrap();
    Arc::new(Volume::open(Arc::new(device), options, Arc::new(SystemClock)).unwrap())
}

/// A mounted image.
pub struct Mount {
    // Dropped first where a test fails: the mount goes before the directory it is on.
    session: Option<Session>,
    pub volume: Arc<Volume>,
    pub image: Image,
}

impl Mount {
    pub fn new(transport: Transport) -> Mount {
        Mount::with(Image::new(), transport, |_| {})
    }

    pub fn with(image: Image, transport: Transport, change: impl FnOnce(&mut MountConfig)) -> Mount {
        let mut config = image.config(transport);
        change(&mut config);
        Mount::serve(image.open(), image, config)
    }

    /// A mount of a volume opened with options of its own.
    pub fn open_with(image: Image, transport: Transport, options: MountOptions) -> Mount {
        let config = image.config(transport);
        Mount::serve(open_with(&image.path(), options), image, config)
    }

    fn serve(volume: Arc<Volume>, image: Image, config: MountConfig) -> Mount {
        let session = Some(medfs_fuse::mount(volume.clone(), config).unwrap());
        Mount { image, volume, session }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.image.mountpoint().join(name)
    }

    pub fn session(&self) -> &Session {
        self.session.as_ref().unwrap()
    }

    /// Unmounts, closes the volume and has fsck.f2fs look at it.
    pub fn finish(mut self) -> Image {
        let session = self.session.take().unwrap();
        // A child that another test has just forked holds our files until it executes its program.
        let deadline = Instant::now() + Duration::from_secs(5);
        while let Err(error) = session.unmount() {
            assert!(matches!(error, medfs_fuse::Error::Busy(_)) && Instant::now() < deadline, "{error}");
            std::thread::sleep(Duration::from_millis(10));
        }
        session.wait().unwrap();
        self.volume.close().unwrap();
        let Mount { image, .. } = self;
        image.check();
        image
    }

    /// Unmounts, closes, mounts again.
    pub fn again(self, transport: Transport) -> Mount {
        Mount::with(self.finish(), transport, |_| {})
    }
}
