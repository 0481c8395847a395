//! `mount -o remount`: makes a mounted volume read-only, or writable again.
//!
//! Purpose: the kernel's flags of the mount are what changes; the daemon goes on as it is and sees the change
//! by itself. `mount(8)` does this alone for a `fuseblk` mount. Of another FUSE mount it has the helper do
//! it, with all options of the mount.
//!
//! Invariants: when a remount with `ro` returns, everything written before is durable. Options that a volume
//! is opened with stay as they are: where others are asked for, nothing is changed, and the error names them.

use crate::args::MountArgs;
use crate::exit::{self, Coded};
use crate::options;
use crate::trace::tap::Tap;
use anyhow::{Result, bail};
use medfs::{DurabilityMode, MountOptions, Survivor};
use medfs_fuse::{MountConfig, control};

/// Options of the kernel's FUSE driver, which `mount(8)` reads from its list of mounts and hands over.
const OF_FUSE: [&str; 8] =
    ["remount", "user_id", "group_id", "rootmode", "fd", "blksize", "max_read", "subtype"];

fn given(args: &MountArgs) -> impl Iterator<Item = &str> {
    args.options.iter().flat_map(|list| list.split(',')).map(str::trim).filter(|option| !option.is_empty())
}

/// Whether a remount is asked for.
pub(crate) fn is_asked(args: &MountArgs) -> bool {
    given(args).any(|option| option == "remount")
}

/// Remounts what is mounted on a directory.
pub(crate) fn run(args: &MountArgs) -> Result<u8> {
    let mut config = MountConfig::new(&args.dir, args.image.to_string_lossy());
    let mut wanted = Vec::new();
    for option in given(args) {
        let name = option.split('=').next().unwrap_or(option);
        if OF_FUSE.contains(&name) {
            continue;
        }
        if !options::is_known(option).map_err(|e| Coded::new(exit::MOUNT_USAGE, &e))? {
            return Err(Coded::new(exit::MOUNT_USAGE, options::unknown(option)).into());
        }
        config.set_option(option)?;
        wanted.push(option);
    }
    let now = InForce::of(args)?;
    let mut refused = Vec::new();
    for option in wanted {
        if now.would_change(option)? {
            refused.push(option);
        }
    }
    if !refused.is_empty() {
        let dir = args.dir.display();
        bail!(
            "a remount cannot change {}: unmount {dir} and mount it with the new value",
            refused.join(", ")
        );
    }
    if !config.read_only() && now.read_only {
        bail!("{} was mounted read-only: unmount it and mount it with 'rw'", args.dir.display());
    }
    medfs_fuse::remount(&args.dir, config.flags)?;
    Ok(exit::SUCCESS)
}

/// What the daemon was started with.
struct InForce {
    volume: MountOptions,
    mount: MountConfig,
    recorded: Vec<String>,
    /// Whether it cannot write the volume, whatever the mount says.
    read_only: bool,
}

impl InForce {
    fn of(args: &MountArgs) -> Result<InForce> {
        let stats: serde_json::Value = serde_json::from_str(&control::stats_json(&args.dir)?)?;
        let mut now = InForce {
            volume: MountOptions::default(),
            mount: MountConfig::new(&args.dir, ""),
            recorded: Vec::new(),
            read_only: stats["read_only"] == true,
        };
        let options = stats["options"].as_array().into_iter().flatten();
        for option in options.filter_map(serde_json::Value::as_str) {
            if is_recorders(option)? {
                now.recorded.push(option.to_owned());
            } else if !now.mount.set_option(option)? {
                now.volume.apply(option)?;
            }
        }
        Ok(now)
    }

    /// Whether an option asks for something else than what is in force, which no remount can bring about.
    fn would_change(&self, option: &str) -> Result<bool> {
        if is_recorders(option)? {
            return Ok(!self.recorded.iter().any(|known| known == option));
        }
        let (mut mount, mut volume) = (self.mount.clone(), self.volume.clone());
        if mount.set_option(option)? {
            mount.flags = self.mount.flags;
            return Ok(mount.in_force() != self.mount.in_force());
        }
        volume.apply(option)?;
        if volume.survivor == Survivor::Auto {
            volume.survivor = self.volume.survivor.clone();
        }
        // The kernel carries these out: `sync` by an fsync behind each write, which `durability=adaptive` puts off.
        volume.read_only = self.volume.read_only;
        if self.volume.durability == DurabilityMode::Posix {
            (volume.sync, volume.dirsync) = (self.volume.sync, self.volume.dirsync);
        }
        Ok(volume != self.volume)
    }
}

/// Whether an option is the recorder's.
fn is_recorders(option: &str) -> Result<bool> {
    Tap::default().set_option(option).map_err(anyhow::Error::msg)
}
