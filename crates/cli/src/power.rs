//! `medfs power`: tells the daemon of a mounted volume that power may fail, or is back.

use crate::abandoned;
use crate::all_mounts::OneOrAll;
use crate::exit;
use anyhow::Result;
use clap::{Args, ValueEnum};
use medfs_fuse::control;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel shows batteries and what feeds them.
const SUPPLIES: &str = "/sys/class/power_supply";
/// Percent that are left of a battery.
const NEARLY_EMPTY: u32 = 5;

/// What is known of the power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Power {
    /// It may fail: commit everything now, and make each fsync durable before it returns
    Low,
    /// It is back: fsyncs wait as the mount options say
    Ok,
    /// What the batteries of this machine say: low where it runs on one that is nearly empty, ok otherwise, and nothing
    /// where it has none
    Auto,
}

#[derive(Args, Debug)]
#[command(override_usage = "medfs power <STATE> <DIR|--all>")]
pub(crate) struct PowerArgs {
    /// State of the power
    #[arg(value_enum, value_name = "STATE")]
    power: Power,
    #[command(flatten)]
    which: OneOrAll,
}

pub(crate) fn run(args: &PowerArgs) -> Result<u8> {
    fn say(dir: &Path, low: bool) -> Result<()> {
        abandoned::refuse(dir)?;
        abandoned::refuse_foreign(dir)?;
        Ok(control::power(dir, low)?)
    }
    let low = match args.power {
        Power::Low => Some(true),
        Power::Ok => Some(false),
        Power::Auto => is_nearly_empty(Path::new(SUPPLIES)),
    };
    // Without a battery another program may watch the power, and have told of it.
    let Some(low) = low else { return Ok(exit::SUCCESS) };
    args.which.tell(match low {
        true => (|dir| say(dir, true), &["power", "low"]),
        false => (|dir| say(dir, false), &["power", "ok"]),
    })
}

/// Whether the machine runs on a battery that is nearly empty, as the kernel's class of power supplies says
/// (`sysfs-class-power`); `None` where it has none. Those of other devices, such as mice, do not count.
fn is_nearly_empty(supplies: &Path) -> Option<bool> {
    let all = fs::read_dir(supplies).into_iter().flatten().flatten().map(|entry| entry.path());
    let says = |supply: &Path, what: &str| {
        fs::read_to_string(supply.join(what)).unwrap_or_default().trim().to_owned()
    };
    let own: Vec<(PathBuf, String)> = all
        .filter(|supply| says(supply, "scope") != "Device")
        .map(|supply| (supply.clone(), says(&supply, "type")))
        .collect();
    let batteries = || own.iter().filter(|(_, kind)| ["Battery", "UPS"].contains(&&**kind));
    batteries().next()?;
    let is_empty = |supply: &Path| {
        let left = says(supply, "capacity").parse().unwrap_or(100);
        let is_critical = left <= NEARLY_EMPTY || says(supply, "capacity_level") == "Critical";
        says(supply, "status") == "Discharging" && is_critical
    };
    let is_fed =
        own.iter().any(|(supply, kind)| ["Mains", "USB"].contains(&&**kind) && says(supply, "online") == "1");
    Some(!is_fed && batteries().any(|(supply, _)| is_empty(supply)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batteries_of_the_machine_tell() {
        let dir = tempfile::tempdir().unwrap();
        let set = |supply: &str, what: &str, value: &str| {
            fs::create_dir_all(dir.path().join(supply)).unwrap();
            fs::write(dir.path().join(supply).join(what), format!("{value}\n")).unwrap();
        };
        assert_eq!((is_nearly_empty(&dir.path().join("none")), is_nearly_empty(dir.path())), (None, None));
        for (what, value) in [("type", "Battery"), ("status", "Discharging"), ("capacity", "6")] {
            set("BAT0", what, value);
        }
        assert_eq!(is_nearly_empty(dir.path()), Some(false));
        set("BAT0", "capacity", "5");
        assert_eq!(is_nearly_empty(dir.path()), Some(true));
        set("AC", "type", "Mains");
        set("AC", "online", "1");
        assert_eq!(is_nearly_empty(dir.path()), Some(false), "it is fed");
        set("AC", "online", "0");
        set("BAT0", "capacity_level", "Critical");
        set("BAT0", "capacity", "40");
        assert_eq!(is_nearly_empty(dir.path()), Some(true), "by its own word");
        set("BAT0", "scope", "Device");
        assert_eq!(is_nearly_empty(dir.path()), None, "a mouse's");
    }
}
