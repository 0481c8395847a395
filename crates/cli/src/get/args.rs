//! The command line of `medfs get`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// How files are got off a damaged card.
const GET_HELP: &str = "\
What cannot be read is passed by. Every file or directory that was not copied,
or not whole, is named at the end with the reason, and the exit code is 1.
Pages of a file that cannot be read become holes; on standard output, zeros.

A file is written as NAME.partial and called NAME when all of it is there. What is
at its place stays until then. A copy with holes takes over what an earlier copy of
the same file has there: of the same size and time, without a page that differs.
From any other file it takes nothing, and where it lacks content that file has, it
stays NAME.partial and is named at the end.

--salvage looks through the whole volume, also where its root directory, its
tables or a checkpoint are damaged. What no directory names is copied to the
directory, and under the name, that its inode says it had last; where that
directory is not known, to by-inode, under its inode number and name. Files that
were removed are not brought back. Nothing is written to the volume; a temporary
file keeps what differs from it.

--map FILE keeps the map up to date while files are copied, and uses what is
in it: blocks that are known to be bad are not read. A map that ddrescue made
of the same image or device does too; blocks that it has not read count as bad.";

#[derive(Args, Debug)]
#[command(after_long_help = GET_HELP)]
pub(crate) struct GetArgs {
    /// Copy directories with all they contain
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Copy everything that can be read from a damaged volume, with what no directory names any more
    #[arg(long, conflicts_with = "recursive")]
    pub(crate) salvage: bool,
    /// Keep a map of bad blocks in a file, in the format of ddrescue: a later run leaves them alone
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) map: Option<PathBuf>,
    /// Try the blocks again that the map calls bad
    #[arg(long, requires = "map")]
    pub(crate) retry: bool,
    /// Print what was copied, and what was not, as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Image file or block device
    #[arg(value_name = "IMAGE|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) image: PathBuf,
    /// Paths inside the volume, then where to copy them: a directory, a new name, or '-' for standard output.
    /// With --salvage: a directory alone
    #[arg(value_name = "PATH", num_args = 1.., required = true)]
    pub(crate) paths: Vec<PathBuf>,
}
