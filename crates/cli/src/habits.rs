//! Words of other tools, and what they are called here: a person who types one is told, instead of that it is unknown.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Commands of others, and the sentence about each.
const COMMANDS: &[(&[&str], &str)] = &[
    (&["repair", "fix"], "'medfs fsck --repair' repairs a volume"),
    (&["check", "verify", "scrub"], "'medfs fsck' checks a volume"),
    (
        &["salvage", "recover", "rescue"],
        "'medfs get --salvage' copies files out of a volume too damaged to open",
    ),
    (&["restore", "undo"], "'medfs fsck --restore' takes a repair back"),
    (&["format", "create", "new"], "'medfs mkfs' makes a volume"),
    (&["unmount", "eject"], "'medfs umount' unmounts a volume"),
    (&["remount"], "'medfs mount -o remount,...' changes the options of a mounted volume"),
    (&["list", "dir", "tree"], "'medfs ls' lists files, with -R all of them"),
    (&["cp", "copy"], "'medfs get' copies files out of a volume, 'medfs put' into one"),
    (&["cat"], "'medfs get IMAGE PATH -' prints a file"),
    (&["extract"], "'medfs get -r' copies files out of a volume"),
    (&["info", "show", "status", "df", "du"], "'medfs stat' shows what a volume holds"),
    (&["convert"], "'medfs import' and 'medfs export' turn plain F2FS into a volume with deltas and back"),
    (&["resize", "grow", "shrink"], "medfs cannot change the size of a volume"),
    (&["version"], "'medfs --version' prints it"),
];

/// What is said instead of the parser's error, where the command that was typed is one of another tool.
pub(crate) fn command(error: &clap::Error, typed: &str) -> Option<String> {
    let named = match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(named))) => named,
        _ => return None,
    };
    // Below a command the word is one of its own commands, and the parser lists those.
    if typed != "help" && named != typed {
        return None;
    }
    let (_, sentence) = COMMANDS.iter().find(|(words, _)| words.contains(&named.as_str()))?;
    Some(format!("medfs: unknown command '{named}': {sentence}"))
}

/// Mount options of file systems without owners, and the sentence about them.
pub(crate) fn mount_option(option: &str) -> Option<String> {
    let name = option.split('=').next().unwrap_or(option);
    ["uid", "gid", "umask", "dmask", "fmask"].contains(&name).then(|| {
        format!("F2FS keeps the owner and mode of each file itself, so there is no option '{name}': use chown and chmod")
    })
}
