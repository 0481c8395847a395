//! Words of other tools, and what they are called here: a person who types one is told, instead of that it is unknown.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options of others, of one command or of all, and the sentence about each.
const OPTIONS: &[(&str, &[&str], &str)] = &[
    ("umount", &["-l", "--lazy"], "'umount -l DIR' detaches a volume that is in use"),
    ("umount", &["-f", "--force"], "'umount -f DIR' ends a mount whose daemon does not answer"),
    ("mount", &["-t", "--types"], "'medfs mount' mounts F2FS alone: omit the type"),
    ("mount", &["-v", "--verbose"], "RUST_LOG=info shows what a mount does"),
    ("mount", &["-f", "--fake", "--force"], "a mount needs no force; --foreground stays in the foreground"),
    ("mkfs", &["-t", "--type"], "'medfs mkfs' makes F2FS alone, with --plain one that the kernel can mount"),
    ("mkfs", &["-n", "--dry-run"], "mkfs has no dry run; it overwrites nothing without --force"),
    ("ls", &["-t", "-S", "-X", "--sort"], "names are sorted; --json has times and sizes to sort by"),
    ("ls", &["-i", "--inode"], "--json shows inode numbers"),
    ("ls", &["-d", "--directory"], "--json shows each entry of the directory that it is in"),
    (
        "get",
        &["-a", "-p", "--archive", "--preserve"],
        "modes, times, owners and attributes are copied in any case",
    ),
    (
        "put",
        &["-a", "-p", "--archive", "--preserve"],
        "modes, times, owners and attributes are copied in any case",
    ),
    ("get", &["-f", "--force"], "an existing file is replaced once the copy is complete"),
    ("put", &["-f", "--force"], "an existing file is replaced"),
    ("get", &["-v", "--verbose"], "--json lists what failed; the rest was copied"),
    ("fsck", &["--force-repair", "--fix"], "--repair repairs a volume"),
];

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
    (
        &["damaged", "damage", "damages", "damagd", "broken"],
        "'medfs help damaged' says what to do about a damaged card",
    ),
];

/// What the parser has found wrong, as one sentence with the way on; `command` is as far as it was understood:
/// empty, `ls`, `trace import`.
pub(crate) fn sentence(error: &clap::Error, command: &str) -> String {
    let name = format!("medfs {command}");
    let name = name.trim_end();
    let help = format!("'{name} --help' describes it");
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(all)) => all.clone(),
        _ => Vec::new(),
    };
    let what = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let named = context(ContextKind::InvalidSubcommand).concat();
            let lower = named.to_lowercase();
            let here =
                COMMANDS.iter().find(|(words, _)| command.is_empty() && words.contains(&lower.as_str()));
            let way = match (here, context(ContextKind::SuggestedSubcommand).last()) {
                (Some((_, sentence)), _) => (*sentence).to_owned(),
                (None, Some(near)) => format!("did you mean '{near}'?"),
                (None, None) => format!("'{name} --help' lists all"),
            };
            format!("unknown command '{named}': {way}")
        }
        ErrorKind::UnknownArgument => {
            let named = context(ContextKind::InvalidArg).concat();
            let option = named.split('=').next().unwrap_or(&named);
            let here = OPTIONS.iter().find(|(of, options, _)| *of == command && options.contains(&option));
            let way = match (here, context(ContextKind::SuggestedArg).last()) {
                (Some((.., sentence)), _) => (*sentence).to_owned(),
                (None, Some(near)) => format!("did you mean '{near}'?"),
                (None, None) => help,
            };
            match named.starts_with('-') {
                true => format!("unknown option '{named}': {way}"),
                false => format!("'{named}' is one argument too many: {way}"),
            }
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = context(ContextKind::InvalidArg);
            let verb = if missing.len() == 1 { "is" } else { "are" };
            let usage = match error.get(ContextKind::Usage) {
                Some(ContextValue::StyledStr(usage)) => usage.to_string(),
                _ => help,
            };
            format!("{} {verb} missing; {}", missing.join(" "), in_one_line(&usage))
        }
        ErrorKind::InvalidValue if context(ContextKind::InvalidValue).concat().is_empty() => {
            format!("{} lacks its value; {help}", context(ContextKind::InvalidArg).concat())
        }
        ErrorKind::ValueValidation => {
            let (option, value) =
                (context(ContextKind::InvalidArg).concat(), context(ContextKind::InvalidValue).concat());
            let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            let reason = of_number(&reason).unwrap_or(reason);
            match reason.contains(&format!("'{value}'")) {
                true => format!("{option}: {reason}"),
                false => format!("{option}: '{value}': {reason}"),
            }
        }
        _ => {
            let text = error.to_string();
            let first = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            format!("{}; {help}", first.split_whitespace().collect::<Vec<_>>().join(" "))
        }
    };
    format!("{name}: {what}")
}

/// How a command is called, which has a line for each of several ways.
fn in_one_line(usage: &str) -> String {
    let ways: Vec<&str> = usage.trim().lines().map(str::trim).collect();
    ways.join(" or ").replacen("Usage", "usage", 1)
}

/// What the parser's words about a number mean.
fn of_number(reason: &str) -> Option<String> {
    if reason.contains("invalid digit found") || reason.contains("cannot parse integer") {
        return Some("expected a number".to_owned());
    }
    let (least, most) = reason.split_once(" is not in ")?.1.split_once("..=")?;
    // The largest that the type has is no limit that a person would meet.
    Some(match most.parse::<u64>().is_ok_and(|most| most < u64::from(u32::MAX)) {
        true => format!("expected a number from {least} to {most}"),
        false => format!("expected a number of at least {least}"),
    })
}

/// Mount options that others have, or a person tries, and the sentence about them.
pub(crate) fn mount_option(option: &str) -> Option<String> {
    let name = option.split('=').next().unwrap_or(option);
    if name == "help" {
        return Some("'medfs mount --help' and medfs(5) describe the options".to_owned());
    }
    ["uid", "gid", "umask", "dmask", "fmask"].contains(&name).then(|| {
        format!("F2FS keeps the owner and mode of each file itself, so there is no option '{name}': use chown and chmod")
    })
}
