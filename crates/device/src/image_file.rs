//! An image file and its name: while it is open another program may remove it, put another file in its place or cut
//! it short.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An image file as it was when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFile {
    path: PathBuf,
    identity: (u64, u64),
    len: u64,
}

/// What became of an image file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// Nothing has its name any more.
    Removed,
    /// Another file has its name.
    Replaced,
    /// So many bytes at its end are missing.
    Shorter(u64),
}

impl Gone {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Gone::Removed => "removed",
            Gone::Replaced => "replaced",
            Gone::Shorter(_) => "shorter",
        }
    }
}

impl ImageFile {
    /// The image file of this name; `None` where the name is of something else.
    pub fn at(path: &Path) -> Option<ImageFile> {
        let meta = path.metadata().ok().filter(Metadata::is_file)?;
        Some(ImageFile { path: path.to_owned(), identity: (meta.dev(), meta.ino()), len: meta.len() })
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What another program has made of it, where that can be told.
    pub fn gone(&self) -> Option<Gone> {
        match self.path.metadata() {
            Ok(now) if (now.dev(), now.ino()) != self.identity => Some(Gone::Replaced),
            Ok(now) if now.len() < self.len => Some(Gone::Shorter(self.len - now.len())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(Gone::Removed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_an_image_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["a.img", "b.img"].map(|name| dir.path().join(name));
        std::fs::write(&path, [1; 100]).unwrap();
        let image = ImageFile::at(&path).unwrap();
        assert_eq!((image.gone(), ImageFile::at(dir.path())), (None, None));
        std::fs::File::options().write(true).open(&path).unwrap().set_len(60).unwrap();
        assert_eq!(image.gone(), Some(Gone::Shorter(40)));
        std::fs::write(&other, [1; 100]).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(image.gone(), Some(Gone::Replaced));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(image.gone(), Some(Gone::Removed));
    }
}
