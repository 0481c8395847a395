//! Kinds of file, as modes and directory entries number them.

/// Kinds of file, from the mode's format bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum FileKind {
    Regular,
    Directory,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
    Symlink,
}

/// In words, with the article.
impl std::fmt::Display for FileKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FileKind::Regular => "a regular file",
            FileKind::Directory => "a directory",
            FileKind::CharDevice | FileKind::BlockDevice => "a device",
            FileKind::Fifo => "a pipe",
            FileKind::Socket => "a socket",
            FileKind::Symlink => "a symbolic link",
        })
    }
}

impl FileKind {
    /// From `S_IFMT` bits; `None` where they are no kind.
    pub fn from_mode(mode: u16) -> Option<FileKind> {
        Some(match mode & 0o170000 {
            0o100000 => FileKind::Regular,
            0o040000 => FileKind::Directory,
            0o020000 => FileKind::CharDevice,
            0o060000 => FileKind::BlockDevice,
            0o010000 => FileKind::Fifo,
            0o140000 => FileKind::Socket,
            0o120000 => FileKind::Symlink,
            _ => return None,
        })
    }
    /// The `S_IFMT` bits.
    pub fn mode_bits(self) -> u16 {
        match self {
            FileKind::Regular => 0o100000,
            FileKind::Directory => 0o040000,
            FileKind::CharDevice => 0o020000,
            FileKind::BlockDevice => 0o060000,
            FileKind::Fifo => 0o010000,
            FileKind::Socket => 0o140000,
            FileKind::Symlink => 0o120000,
        }
    }
    /// From a dentry's `file_type`; `None` where it is unknown.
    pub fn from_dentry_type(file_type: u8) -> Option<FileKind> {
        Some(match file_type {
            1 => FileKind::Regular,
            2 => FileKind::Directory,
            3 => FileKind::CharDevice,
            4 => FileKind::BlockDevice,
            5 => FileKind::Fifo,
            6 => FileKind::Socket,
            7 => FileKind::Symlink,
            _ => return None,
        })
    }
    /// The dentry's `file_type`.
    pub fn dentry_type(self) -> u8 {
        match self {
            FileKind::Regular => 1,
            FileKind::Directory => 2,
            FileKind::CharDevice => 3,
            FileKind::BlockDevice => 4,
            FileKind::Fifo => 5,
            FileKind::Socket => 6,
            FileKind::Symlink => 7,
        }
    }
}
