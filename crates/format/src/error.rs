//! What can be wrong with bytes read from a volume: always which structure, where, and which field.

use thiserror::Error;

/// The on-disk structure in which something was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Structure {
    Superblock,
    Checkpoint,
    OrphanBlock,
    NatEntry,
    SitEntry,
    Summary,
    Journal,
    Inode,
    DirectNode,
    IndirectNode,
    NodeFooter,
    Dentry,
    Xattr,
    InlineData,
    Symlink,
    Data,
    DeltaZone,
    CompactPage,
    SharedNode,
    RemovedNames,
    Cluster,
    UndoFile,
    NvramJournal,
    NvramRecord,
    DecisionTree,
}

impl std::fmt::Display for Structure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Structure::Superblock => "superblock",
            Structure::Checkpoint => "checkpoint",
            Structure::OrphanBlock => "orphan block",
            Structure::NatEntry => "NAT entry",
            Structure::SitEntry => "SIT entry",
            Structure::Summary => "segment summary",
            Structure::Journal => "summary journal",
            Structure::Inode => "inode",
            Structure::DirectNode => "direct node",
            Structure::IndirectNode => "indirect node",
            Structure::NodeFooter => "node footer",
            Structure::Dentry => "directory entry",
            Structure::Xattr => "extended attribute",
            Structure::InlineData => "inline data",
            Structure::Symlink => "symbolic link",
            Structure::Data => "data block",
            Structure::DeltaZone => "delta zone of inode",
            Structure::CompactPage => "compact page of inode",
            Structure::SharedNode => "shared record node",
            Structure::RemovedNames => "node of removed names",
            Structure::Cluster => "compressed cluster of inode",
            Structure::UndoFile => "undo file, record",
            Structure::NvramJournal => "NVRAM journal",
            Structure::NvramRecord => "NVRAM record",
            Structure::DecisionTree => "decision tree",
        };
        f.write_str(name)
    }
}

/// A structure that cannot be trusted or is not supported.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
pub enum FormatError {
    /// A field holds a value that no correct volume has.
    #[error("{structure} {id}: field {field} is wrong ({value})")]
    Corrupt {
        /// Which structure.
        structure: Structure,
        /// Its number: block address, nid, segment number, as fits the structure.
        id: u64,
        /// The field, in the kernel's spelling where it has one.
        field: &'static str,
        /// What was found and, where it helps, what was expected.
        value: String,
    },
    /// The volume is sound but uses something that is not supported.
    #[error("{0}")]
    Incompatible(String),
}

impl FormatError {
    /// A [`FormatError::Corrupt`].
    pub fn corrupt(
        structure: Structure,
        id: impl Into<u64>,
        field: &'static str,
        value: impl ToString,
    ) -> Self {
        FormatError::Corrupt { structure, id: id.into(), field, value: value.to_string() }
    }

    /// What is wrong, for who has named the structure already.
    pub fn in_it(&self) -> String {
        match self {
            FormatError::Corrupt { field, value, .. } => format!("field {field} is wrong ({value})"),
            FormatError::Incompatible(what) => what.clone(),
        }
    }
}

/// Result of parsing.
pub type Result<T, E = FormatError> = std::result::Result<T, E>;
