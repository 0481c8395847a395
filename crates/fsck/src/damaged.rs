//! Files and directories that are lost, or there and not as they were: which ones, by their paths, and what became of
//! them.
//!
//! Purpose: an owner looks for a damaged photo by its name, where findings name the inode and the block.

use medfs_format::Ino;
use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::collections::BTreeSet;

/// A name whose inode is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostFile {
    /// Where it is in the volume. `inode N`, without a slash before it, where the name is lost too, or that of the
    /// directory above.
    pub path: Vec<u8>,
    /// The number of the inode.
    pub ino: Ino,
}

impl LostFile {
    /// How a file is told to which nothing leads: no path.
    pub(crate) fn nameless(ino: Ino) -> Vec<u8> {
        format!("inode {ino}").into_bytes()
    }

    /// Whether it is known where the file was.
    pub fn has_place(&self) -> bool {
        self.path.starts_with(b"/")
    }
}

impl Serialize for LostFile {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut fields = s.serialize_struct("LostFile", 3)?;
        serialize_path(&mut fields, &self.path)?;
        fields.serialize_field("ino", &self.ino)?;
        fields.end()
    }
}

/// A path, and all its bytes where they are no text.
fn serialize_path<S: SerializeStruct>(fields: &mut S, path: &[u8]) -> Result<(), S::Error> {
    fields.serialize_field("path", &String::from_utf8_lossy(path))?;
    if std::str::from_utf8(path).is_err() {
        let hex: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
        fields.serialize_field("path_hex", &hex)?;
    }
    Ok(())
}

/// What is not as it was of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Damage {
    /// Its inode is lost: a repair makes it anew of its nodes and blocks.
    Rebuilt,
    /// The same, and nothing of its content is left.
    Emptied,
    /// The directory is lost: a repair makes it anew.
    Remade,
    /// A part of its inode is lost or wrong: a repair keeps it as it reads.
    Doubted,
    /// Pages, or entries of the directory, are cut off.
    Cut,
    /// Extended attributes are lost.
    Attributes,
    /// The last updates of some of its pages are lost.
    Reverted,
    /// It counted more blocks than were found.
    Short,
    /// What was fsynced of it the device changed afterwards.
    Unkept,
    /// Nothing leads to it: a repair puts it into lost+found under its number.
    Nameless,
    /// Content of it cannot be read, or expanded; it stays as it is.
    Unreadable,
}

/// A file or directory that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedFile {
    /// Where it is in the volume; `inode N` where nothing leads there.
    pub path: Vec<u8>,
    /// The number of the inode.
    pub ino: Ino,
    /// What of it is not as it was.
    pub damage: BTreeSet<Damage>,
}

impl Serialize for DamagedFile {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut fields = s.serialize_struct("DamagedFile", 4)?;
        serialize_path(&mut fields, &self.path)?;
        fields.serialize_field("ino", &self.ino)?;
        fields.serialize_field("damage", &self.damage)?;
        fields.end()
    }
}

/// Files and directories that a pass left, or would leave, otherwise than they were.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize)]
pub struct DamagedFiles {
    /// The first of them, by their numbers.
    #[serde(rename = "damaged")]
    pub list: Vec<DamagedFile>,
    /// How many there are besides.
    #[serde(rename = "damaged_more", skip_serializing_if = "is_none")]
    pub more: u64,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

impl DamagedFiles {
    /// Adds those of a pass that are not among these or others.
    pub(crate) fn add_unknown(&mut self, pass: &DamagedFiles, others: &DamagedFiles) {
        let told: BTreeSet<Ino> = self.list.iter().chain(&others.list).map(|file| file.ino).collect();
        self.list.extend(pass.list.iter().filter(|file| !told.contains(&file.ino)).cloned());
    }
}
