//! `medfs help damaged` and medfs-damaged(7): what the owner of a damaged card does first. Both are
//! docs/DAMAGED.md, which is plain enough to be read on a terminal.

use crate::exit;
use anyhow::Result;
use medfs::{PastDamage, Volume};
use medfs_device::quote::{self, hint};
use medfs_transfer::{Held, paths};
use roff::{Roff, bold, roman};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What of a volume was not come to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hidden {
    /// Directories no longer lead to all files.
    Files,
    /// Inodes of files cannot be read.
    Inodes,
    /// Either, or both.
    Any,
}

impl Hidden {
    /// Of whether directories were torn, and whether inodes of files could not be read.
    pub(crate) fn of(is_torn: bool, is_unread: bool) -> Option<Hidden> {
        match (is_torn, is_unread) {
            (true, true) => Some(Hidden::Any),
            (true, false) => Some(Hidden::Files),
            (false, true) => Some(Hidden::Inodes),
            (false, false) => None,
        }
    }
}

/// What helps where not all files were come to.
pub(crate) fn salvage_finds(image: &Path, hidden: Hidden) -> String {
    let looks = "looks for files that the directories no longer lead to";
    let rebuilds = "rebuilds files whose inode is damaged";
    let salvage = salvage(image);
    match hidden {
        Hidden::Files => format!("{salvage} also {looks}"),
        Hidden::Inodes => format!("{salvage} also {rebuilds}, as far as their content is left"),
        Hidden::Any => format!("{salvage} also {looks}, and {rebuilds}"),
    }
}

/// What a volume may hold that is newer than what it shows.
#[derive(Debug, Clone)]
pub(crate) enum Newer {
    /// Nothing is known of any.
    Nothing,
    /// The last checkpoint is damaged.
    Damaged,
    /// A checkpoint that lacks its end.
    Unfinished(u64),
    /// Fsyncs that lie in an NVRAM, at this place.
    InNvram(String),
}

impl Newer {
    /// Of a volume that was opened to read.
    pub(crate) fn of(volume: &Volume) -> Newer {
        let past = PastDamage::of(volume);
        let in_nvram = volume.superblock().nvram_in_use().map(|info| info.place());
        match (past.unfinished_checkpoint(), in_nvram) {
            (Some(version), _) => Newer::Unfinished(version),
            (None, Some(place)) => Newer::InNvram(place),
            (None, None) if past.unrecovered().iter().any(|(ino, _)| ino.is_none()) => Newer::Damaged,
            (None, None) => Newer::Nothing,
        }
    }

    /// Says what brings it.
    pub(crate) fn tell(self, command: &str, image: &Path) {
        let salvage = salvage(image);
        match self {
            Newer::Nothing => {}
            Newer::Damaged => {
                errln!(
                    "medfs {command}: {salvage} also looks for what is newer than the checkpoint that is shown"
                );
            }
            Newer::InNvram(place) => errln!("medfs {command}: {}", ways_to_fsyncs(&place, image)),
            Newer::Unfinished(version) => {
                errln!(
                    "medfs {command}: {salvage} brings the files of checkpoint {version}, if it is complete otherwise"
                );
            }
        }
    }
}

/// What brings fsyncs back that an NVRAM holds.
pub(crate) fn ways_to_fsyncs(place: &str, image: &Path) -> String {
    let (named, of) = (quote::path(Path::new(place)), quote::path(image));
    let mount = hint(format_args!("medfs mount -o nvram={named} {of} DIRECTORY"));
    format!("{mount} brings them back, or {} where some are damaged", repair_with_nvram(place, image))
}

/// The command that repairs a volume whose fsyncs lie in an NVRAM.
pub(crate) fn repair_with_nvram(place: &str, image: &Path) -> String {
    let (place, image) = (quote::path(Path::new(place)), quote::path(image));
    hint(format_args!("medfs fsck --repair --nvram {place} {image}"))
}

/// What fills the holes that damaged nodes and compact pages leave.
pub(crate) fn salvage_fills(image: &Path) -> String {
    let salvage = salvage(image);
    format!(
        "{salvage} also fills holes that damaged nodes or compact pages leave, as far as their content is left"
    )
}

/// What helps where a volume does not open.
pub(crate) fn salvage_copies(image: &Path) -> String {
    format!("{} copies all readable files", salvage(image))
}

/// The map of bad blocks that the command was given.
static MAP: OnceLock<PathBuf> = OnceLock::new();

/// Notes the map of bad blocks: whoever follows an advice needs it too, as what lies in its place may be zeros.
pub(crate) fn with_map(map: &Path) {
    let _ = MAP.set(map.to_owned());
}

/// The map that was noted.
pub(crate) fn map() -> Option<&'static Path> {
    MAP.get().map(PathBuf::as_path)
}

/// The option with that map, and a space behind it, for a command that is advised.
pub(crate) fn map_option() -> String {
    map().map_or_else(String::new, |map| format!("--map {} ", quote::path(map)))
}

/// The command that salvages a volume, in quotes.
pub(crate) fn salvage(image: &Path) -> String {
    hint(format_args!("{}", salvage_command(image)))
}

/// The same without quotes.
pub(crate) fn salvage_command(image: &Path) -> String {
    format!("{} DIRECTORY", salvage_copied_to(image))
}

/// The same up to the directory.
pub(crate) fn salvage_copied_to(image: &Path) -> String {
    format!("medfs get --salvage {}{}", map_option(), quote::path(image))
}

/// A path of the volume. Where damage is in its way, or the volume is not shown as it was last, the error says that a
/// salvage may find its file.
pub(crate) fn find<'v>(volume: &'v Volume, image: &Path, path: &Path) -> Result<Held<'v>> {
    paths::find(volume, path).map_err(|error| match error.of_volume() {
        Some(damage @ medfs::Error::Corrupt(_)) => {
            anyhow::anyhow!(
                "{}: {}; {}",
                path.display(),
                exit::damage(damage),
                salvage_finds(image, Hidden::Any)
            )
        }
        _ if error.is_not_found() && path.as_os_str().as_encoded_bytes().iter().any(|c| b"*?[".contains(c)) => {
            anyhow::anyhow!(
                "{}; a path is one name, and no patterns are known: -r takes a directory with all it contains",
                exit::sentence(&error.into())
            )
        }
        _ => match PastDamage::of(volume).unrecovered().into_iter().find(|(ino, _)| ino.is_none()) {
            Some((_, why)) if error.is_not_found() => {
                let error = exit::sentence(&error.into());
                anyhow::anyhow!("{error}; {why}; {} also looks for what is newer", salvage(image))
            }
            _ => error.into(),
        },
    })
}

/// How the files of an image that was cut short are copied, where it opens.
pub(crate) fn copies_what_is_left(image: &Path) -> String {
    let get = hint(format_args!("medfs get -r {}{} / DIRECTORY", map_option(), quote::path(image)));
    format!("{get} copies what is left of the files, and {} what it does not reach", salvage(image))
}

/// The page.
const PAGE: &str = include_str!("../../../docs/DAMAGED.md");
/// What stands in a title, in Markdown.
const TITLE: &str = "# ";
const SECTION: &str = "## ";

/// `medfs help damaged`
pub(crate) fn help() -> u8 {
    let text = PAGE.replace(SECTION, "").replacen(TITLE, "", 1);
    exit::run("help", exit::FAILURE, || {
        outln!("{}", text.trim_end());
        Ok(exit::SUCCESS)
    })
}

/// medfs-damaged(7)
pub(crate) fn manual() -> String {
    let mut page = Roff::new();
    let source = concat!("medfs ", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["medfs-damaged", "7", "", source, "medfs"]);
    page.control("SH", ["NAME"]);
    page.text([roman("medfs-damaged - what to do about a damaged card")]);
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in PAGE.split("\n\n").skip(1) {
        let lines: Vec<&str> = paragraph.trim_end().lines().collect();
        match lines.first() {
            Some(title) if title.starts_with(SECTION) => {
                page.control("SH", [title.trim_start_matches(SECTION).to_uppercase().as_str()]);
            }
            Some(code) if code.starts_with("    ") => {
                page.control("PP", []);
                page.control("nf", []);
                page.text([bold(paragraph.trim_end())]);
                page.control("fi", []);
            }
            _ => {
                page.control("PP", []);
                page.text([roman(lines.join(" "))]);
            }
        }
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([roman("medfs(1), medfs-get(1), medfs-fsck(1)")]);
    page.to_roff()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// Every command of the page is one that the parser takes.
    #[test]
    fn its_commands_are_taken() {
        let mut count = 0;
        for line in PAGE.lines().filter_map(|line| line.strip_prefix("    medfs ")) {
            let words = ["medfs"].into_iter().chain(line.split_whitespace());
            if let Err(error) = crate::args::Cli::command().try_get_matches_from(words) {
                panic!("{line}: {error}");
            }
            count += 1;
        }
        assert!(count >= 7, "{count}");
    }

    #[test]
    fn it_fits_a_terminal() {
        assert!(PAGE.lines().all(|line| line.chars().count() <= 80));
        assert!(!manual().contains("## "), "{}", manual());
    }
}
