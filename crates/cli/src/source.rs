//! The device of a mount: claimed before it is read, and let go of when the volume is complete on it.
//!
//! Of a block device that root mounts, the kernel takes the claim over before the first read, and keeps it as
//! long as the mount is there. Whether the volume could be finished is told to the program that unmounts it:
//! see [`Outcome`].

use crate::args::MountArgs;
use crate::outcome::Outcome;
use crate::size;
use crate::target::{self, Target};
use crate::trace::tap::Tap;
use anyhow::{Context, Result, bail};
use medfs::{MountOptions, Volume};
use medfs_device::image_file::Gone;
use medfs_device::{Access, Closable, FileDevice, ImageFile};
use medfs_flash::FlashTarget;
use medfs_fuse::{BlockMount, Error, MountConfig};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often the kernel may say that a device is in use which nobody is seen to have.
const ATTEMPTS_MAX: usize = 3;
/// How long a program may have the device in between.
const PATIENCE: Duration = Duration::from_secs(1);

/// A device to be mounted.
pub(crate) struct Source {
    /// What the volume is opened on.
    pub(crate) device: Target,
    /// The kernel's claim, of a block device that root mounts.
    pub(crate) claimed: Option<BlockMount>,
    /// To let go of it while the volume still has it.
    closable: Option<Arc<Closable<FileDevice>>>,
    /// Why it is mounted read-only though that was not asked for: told once it is mounted.
    pub(crate) read_only_because: Option<String>,
    image: Option<ImageFile>,
}

impl Source {
    /// Opens and claims what is to be mounted. What cannot be written changes the options.
    pub(crate) fn open(
        args: &MountArgs,
        config: &mut MountConfig,
        options: &mut MountOptions,
    ) -> Result<Source> {
        if let Some(flash) = FlashTarget::parse(&args.image)? {
            return Ok(Source {
                device: crate::target::open_flash(&flash)?,
                claimed: None,
                closable: None,
                read_only_because: None,
                image: None,
            });
        }
        let access = if options.read_only { Access::ReadOnly } else { Access::Fallback };
        let mut file = target::open_claimed(&args.image, access)?;
        let mut read_only_because = None;
        if medfs_device::BlockDevice::read_only(&file) && !options.read_only {
            let image = args.image.display();
            read_only_because = Some(match rustix::fs::access(&args.image, rustix::fs::Access::WRITE_OK) {
                Err(Errno::ACCESS | Errno::PERM) => format!("no write permission for {image}"),
                _ => format!("{image} is write-protected"),
            });
            options.read_only = true;
            config.set_option("ro")?;
        }
        let by_kernel = file.is_block_device() && geteuid().is_root();
        let claimed = if by_kernel { hand_over(&mut file, config)? } else { None };
        let image = ImageFile::at(file.path());
        config.image.clone_from(&image);
        let device = Arc::new(Closable::new(file));
        Ok(Source { device: device.clone(), claimed, closable: Some(device), read_only_because, image })
    }
}

/// Has the kernel take the claim on a block device over. `None`: it cannot, and the device stays ours.
fn hand_over(file: &mut FileDevice, config: &MountConfig) -> Result<Option<BlockMount>> {
    let path = file.path().to_owned();
    for _ in 0..ATTEMPTS_MAX {
        file.claim_mut().yield_device();
        let claimed = BlockMount::claim(config, &path);
        if let Ok(claimed) = claimed {
            return Ok(Some(claimed));
        }
        // Names who came in between.
        file.claim_mut().retake_device(&path, PATIENCE)?;
        match claimed {
            Err(Error::InUse(_)) => {}
            Err(error) => {
                tracing::info!(%error, "not mounted as fuseblk: sync(2) will not reach the volume");
                return Ok(None);
            }
            Ok(_) => {}
        }
    }
    tracing::info!(
        "the kernel keeps the device from being mounted while it is open: sync(2) will not reach the volume"
    );
    Ok(None)
}

/// What remains to be done at the end of a mount: once, by the last request of a `fuseblk` mount or when all
/// requests have ended.
#[derive(Clone)]
pub(crate) struct Closing(Arc<Parts>);

struct Parts {
    volume: Arc<Volume>,
    tap: Arc<Tap>,
    device: Option<Arc<Closable<FileDevice>>>,
    image: Option<ImageFile>,
    outcome: Option<Outcome>,
    /// How it went, once it is done, until it is asked for.
    done: Mutex<Option<Result<()>>>,
}

impl Parts {
    /// Fails where another program has removed or replaced the image, or cut it short, while it was mounted.
    fn check_image(&self) -> Result<()> {
        let Some(image) = &self.image else { return Ok(()) };
        let path = image.path().display();
        match image.gone() {
            None => Ok(()),
            Some(Gone::Removed) => bail!("{path} was removed while it was mounted"),
            Some(Gone::Replaced) => bail!("another file took the place of {path} while it was mounted"),
            Some(Gone::Shorter(bytes)) => {
                let missing = size::show(bytes);
                bail!("{path} became shorter while it was mounted: the last {missing} are missing")
            }
        }
    }
}

impl Closing {
    pub(crate) fn new(source: &Source, volume: Arc<Volume>, tap: Arc<Tap>) -> Closing {
        let outcome = match Outcome::new() {
            Ok(outcome) => Some(outcome),
            Err(error) => {
                tracing::info!(%error, "'medfs umount' cannot learn the result of the last checkpoint");
                None
            }
        };
        let (device, image) = (source.closable.clone(), source.image.clone());
        Closing(Arc::new(Parts { volume, tap, device, image, outcome, done: Mutex::new(None) }))
    }

    /// Finishes trace and volume and closes the device, where that is not done yet.
    pub(crate) fn close(&self) {
        let mut done = self.0.done.lock().unwrap_or_else(PoisonError::into_inner);
        if done.is_some() {
            return;
        }
        let recorded = self.0.tap.finish();
        let closed = self.0.volume.close().context("cannot finish writing the volume").and(recorded);
        let closed = closed.and_then(|()| self.0.check_image());
        if let Some(device) = &self.0.device {
            device.close();
        }
        if let Some(outcome) = &self.0.outcome
            && let Err(error) = outcome.tell(&closed)
        {
            tracing::warn!(%error, "cannot report the result of the last checkpoint");
        }
        *done = Some(closed);
    }

    /// How it went.
    pub(crate) fn result(&self) -> Result<()> {
        self.close();
        let mut done = self.0.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.replace(Ok(())).unwrap_or(Ok(()))
    }
}
