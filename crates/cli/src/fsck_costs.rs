//! What a repair cannot keep as it was: told before anything is written, and weighed at boot.

use crate::words;
use medfs_device::quote;
use medfs_format::Ino;
use medfs_fsck::{Code, Damage, DamagedFile, DamagedFiles, Losses, Report};

/// What costs something that cannot be counted: a new superblock has another UUID, by which a machine may mount it, and
/// no label; a new root directory has another owner; an older checkpoint lacks files, one that is reckoned and a log
/// that is cut off lack what was fsynced.
const LOSE_ALL_THE_SAME: [Code; 6] = [
    Code::SuperblockLost,
    Code::NoRoot,
    Code::CheckpointLost,
    Code::CheckpointOlder,
    Code::LogUnkept,
    Code::LogNode,
];

/// Whether a repair loses files, or parts of them.
pub(crate) fn loses(found: &Report) -> bool {
    let Losses {
        nameless,
        renamed: _,
        blocks,
        cut,
        attributes,
        rebuilt,
        remade,
        doubted,
        reverted,
        names,
        quotas,
        lost,
        gone,
    } = found.losses;
    nameless
        + blocks
        + cut
        + attributes
        + rebuilt
        + remade
        + doubted
        + reverted
        + names
        + quotas
        + lost
        + gone
        > 0
        || LOSE_ALL_THE_SAME.iter().any(|code| found.has(*code))
}

/// What a repair will cost, in one sentence; nothing where it costs nothing.
fn costs(losses: &Losses) -> Option<String> {
    let files = |count| words::count(count, "file");
    let mut parts = Vec::new();
    if losses.nameless > 0 {
        parts.push(format!("move {} without a name to lost+found", files(losses.nameless)));
    }
    if losses.renamed > 0 {
        parts.push(format!(
            "put {} back into the directory that their inode names, or into lost+found where that is lost too",
            words::count(losses.renamed, "file or directory")
        ));
    }
    if losses.blocks > 0 {
        parts.push(format!("cut {} off {}", words::count(losses.blocks, "block"), files(losses.cut)));
    }
    if losses.attributes > 0 {
        parts.push(format!("remove extended attributes of {}", files(losses.attributes)));
    }
    if losses.rebuilt > 0 {
        let without = "without mode, owner, times and attributes, and with a size up to the last page";
        parts.push(format!("rebuild {} whose inode is lost, {without}", files(losses.rebuilt)));
    }
    if losses.remade > 0 {
        let directories = words::count(losses.remade, "directory");
        parts.push(format!("create {directories} again, without mode, owner, times and attributes"));
    }
    if losses.doubted > 0 {
        let inodes = words::count(losses.doubted, "inode");
        let why = "the checksum or a field is wrong, or a sector is lost";
        parts.push(format!("keep {inodes} as read, of which {why}"));
    }
    if losses.reverted > 0 {
        parts.push(format!(
            "lose the latest changes to {}, where these were kept as deltas",
            files(losses.reverted)
        ));
    }
    if losses.names > 0 {
        parts.push(format!("leave out {} of files that have others", words::count(losses.names, "name")));
    }
    if losses.quotas > 0 {
        let files = words::count(losses.quotas, "quota file");
        parts.push(format!("drop limits of {files} that cannot be read"));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Says what a repair will cost.
pub(crate) fn print_costs(found: &Report) {
    if let Some(costs) = costs(&found.losses) {
        outln!("a repair will {costs}");
    }
    if found.losses.lost > 0 {
        outln!("a repair cannot keep {}:", words::count(found.losses.lost, "file or directory"));
        print_lost(found, "  ");
    }
    if found.losses.gone > 0 {
        outln!("{}", lost_without_names(found.losses.gone));
    }
    if !found.damaged.list.is_empty() {
        outln!("damaged, and kept:");
        print_damaged(found, "  ");
    }
}

/// That so many files are lost of which nothing is left to name.
fn lost_without_names(gone: u64) -> String {
    let files = words::count(gone, "file or directory");
    format!("{files} that the checkpoint counts cannot be found, and nothing tells their names")
}

/// Files and directories that are not as they were, a line each.
pub(crate) fn print_damaged(found: &Report, before: &str) {
    let DamagedFiles { list, more } = &found.damaged;
    for DamagedFile { path, ino, damage } in list.iter().take(LISTED) {
        let what: Vec<String> = damage.iter().map(|damage| what_is_wrong(*damage, *ino)).collect();
        let (shown, what) = (quote::for_terminal(path), what.join("; "));
        match path.starts_with(b"/") {
            true => outln!("{before}{shown} (inode {ino}): {what}"),
            false => outln!("{before}{shown}: {what}"),
        }
    }
    let more = more + list.len().saturating_sub(LISTED) as u64;
    if more > 0 {
        outln!("{before}and {} more", words::count(more, "file or directory"));
    }
}

fn what_is_wrong(damage: Damage, ino: Ino) -> String {
    let what = match damage {
        Damage::Rebuilt => {
            "rebuilt from its other blocks, as the inode is lost: the end may be missing or zeros"
        }
        Damage::Emptied => "empty, as its content is lost",
        Damage::Remade => "created again, as the directory is lost",
        Damage::Doubted => "kept as read, as a part of its inode is lost or wrong",
        Damage::Cut => "parts of it are lost",
        Damage::Attributes => "extended attributes are lost",
        Damage::Reverted => "the latest changes may be lost",
        Damage::Short => "parts of it may be lost, as it counted more blocks",
        Damage::Unkept => "what was fsynced last may be lost, as the device changed it",
        Damage::Unreadable => "parts of it cannot be read",
        Damage::Nameless => return format!("goes to lost+found/{ino}, as nothing leads to it"),
    };
    what.to_owned()
}

/// Names whose inode is lost, a line each.
pub(crate) fn print_lost(found: &Report, before: &str) {
    for lost in found.lost.iter().take(LISTED) {
        let path = quote::for_terminal(&lost.path);
        match lost.has_place() {
            true => outln!("{before}{path} (inode {})", lost.ino),
            false => outln!("{before}{path}: what led there is lost too"),
        }
    }
    let more = found.losses.lost.saturating_sub(LISTED as u64);
    if more > 0 {
        outln!("{before}and {} more", words::count(more, "file or directory"));
    }
}

/// The same of those without a name, after a repair.
pub(crate) fn print_gone(found: &Report) {
    if found.losses.gone > 0 {
        outln!("lost: {}", lost_without_names(found.losses.gone));
    }
}

/// Lost files that are named, and damaged ones.
const LISTED: usize = 1000;
