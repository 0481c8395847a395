//! `survivor=`: the log in memory that outlives the daemon.

use super::MountOptions;
use super::list::{SIZE, SIZE_MIN, show_bytes, size, size_row};
use super::table::Form::Value;
use super::table::MountOption;
use std::path::PathBuf;

/// Where operations are kept that are acknowledged and not durable (`survivor=`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Survivor {
    /// Where the front end thinks fit. The library alone keeps none.
    #[default]
    Auto,
    /// Nowhere.
    Off,
    /// In a file in this directory, which should be in memory.
    In(PathBuf),
}

pub(super) const OPTIONS: &[MountOption<MountOptions>] = &[
    MountOption {
        name: "survivor",
        form: Value("auto|off|DIR"),
        accepts: "auto, off, or a directory in memory as an absolute path",
        default: "auto",
        help: "With durability=adaptive, where operations are logged that are not durable yet, so that none is lost when the daemon is killed. auto: a directory in memory, of root /run/medfs, of others /run/user/UID/medfs; where there is none, /dev/shm/medfs-UID. Any mount replays what it finds there.",
        set: |o, value| {
            let place = match value {
                "auto" => Survivor::Auto,
                "off" => Survivor::Off,
                dir if dir.starts_with('/') => Survivor::In(dir.into()),
                _ => return false,
            };
            o.survivor = place;
            true
        },
        show: |o| {
            vec![match &o.survivor {
                Survivor::Auto => "auto".into(),
                Survivor::Off => "off".into(),
                Survivor::In(dir) => dir.display().to_string(),
            }]
        },
    },
    size_row!(
        "survivor_size",
        "32M",
        "Most bytes of memory that this log takes. When they are used, the next operation waits for a commit.",
        survivor_bytes
    ),
];
