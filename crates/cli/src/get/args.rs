//! The command line of `medfs get`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// How files are got off a damaged card.
const GET_HELP: &str = "\
Unreadable data is skipped. Every file or directory that was not copied or is
incomplete is named at the end with the reason.
Unreadable pages of a file become holes; on standard output they become zeros.

A file is written as NAME.partial and renamed to NAME once it is complete. An
existing file NAME stays until then. Where pages are missing, the copy takes them
from an earlier copy of the same file: one of equal size and time in which no
other page differs. It takes nothing from any other file. Where an existing file
has content that the copy lacks, the copy stays NAME.partial and is named at the
end.

--salvage scans the whole volume, even with a damaged root directory, table or
checkpoint. A file without a directory entry is copied to the directory and name
that its inode recorded last. Where that directory is not known, the file goes to
by-inode, under its inode number and name. Deleted files are not restored, except
those that a program still had open when the volume was last in use.
Nothing is written to the volume; a temporary file in the directory that the
environment variable TMPDIR names, otherwise /tmp, holds the differences.

--map FILE skips the blocks that the map calls bad, and updates the map while
files are copied; where there is no such file, a new map begins. A map that ddrescue made of the same image or device works too;
blocks that ddrescue has not read count as bad.

Exit codes: 0 all is copied that the volume shows, 1 something is missing or the
volume does not open, 2 wrong arguments, 130 interrupted with Ctrl-C.";

/// What is copied by its path, and what is copied whatever leads to it.
const USAGE: &str = "\
medfs get [OPTIONS] <IMAGE|DEVICE> <PATH>... <DESTINATION>
       medfs get [OPTIONS] --salvage <IMAGE|DEVICE> <DIRECTORY>";

#[derive(Args, Debug)]
#[command(after_long_help = GET_HELP, override_usage = USAGE)]
pub(crate) struct GetArgs {
    /// Copy directories with their content
    #[arg(short, long, short_alias = 'R')]
    pub(crate) recursive: bool,
    /// Copy all readable files from a damaged volume, including files without a directory entry
    #[arg(long, conflicts_with = "recursive")]
    pub(crate) salvage: bool,
    /// Keep a map of bad blocks in a file, in ddrescue's format: a later run skips these blocks
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) map: Option<PathBuf>,
    /// Retry the blocks that the map calls bad
    #[arg(long, requires = "map")]
    pub(crate) retry: bool,
    /// Print as JSON how much was copied, and which files failed
    #[arg(long)]
    pub(crate) json: bool,
    /// Image file or block device
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: PathBuf,
    /// Paths inside the volume, then where to copy them: a directory, a new name, or '-' for standard output.
    /// With --salvage: a directory alone
    #[arg(value_name = "PATH", num_args = 1.., required_unless_present = "salvage")]
    pub(crate) paths: Vec<PathBuf>,
}
