//! `mount -o remount`: makes a mounted volume read-only, or writable again.
//!
//! Purpose: the kernel's flags of the mount are what changes; the daemon goes on as it is and sees the change by itself. `mount(8)`
//! does this alone for a `fuseblk` mount. Of another FUSE mount it has the helper do it, with all options of the mount.
//!
//! Invariants: when a remount with `ro` returns, everything written before is durable. Options that a volume is opened with stay
//! as they are.

use crate::args::MountArgs;
use crate::exit::{self, Coded};
use crate::options;
use anyhow::{Result, bail};
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
    for option in given(args) {
        let name = option.split('=').next().unwrap_or(option);
        if OF_FUSE.contains(&name) {
            continue;
        }
        if !options::is_known(option).map_err(|e| Coded::new(exit::MOUNT_USAGE, &e))? {
            return Err(Coded::new(exit::MOUNT_USAGE, options::unknown(option)).into());
        }
        config.set_option(option)?;
    }
    if !config.read_only() && opened_read_only(args)? {
        bail!("{} was mounted read-only: unmount it and mount it with 'rw'", args.dir.display());
    }
    medfs_fuse::remount(&args.dir, config.flags)?;
    Ok(exit::SUCCESS)
}

/// Whether the daemon cannot write the volume, whatever the mount says.
fn opened_read_only(args: &MountArgs) -> Result<bool> {
    let stats: serde_json::Value = serde_json::from_str(&control::stats_json(&args.dir)?)?;
    Ok(stats["read_only"] == true)
}
