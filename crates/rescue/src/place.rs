//! Where a file is, in the volume and among what was brought: a chain of names, shared by all below a directory.

use medfs_format::node::NAME_LEN;
use std::sync::Arc;

/// Levels of directories that are gone down; deeper ones have longer paths than Linux takes.
pub const MOST_LEVELS: u32 = 2048;

/// A name below a place, or the top of what is brought.
#[derive(Debug, Clone)]
pub struct Place(Arc<Link>);

#[derive(Debug)]
struct Link {
    above: Option<Place>,
    name: Vec<u8>,
    level: u32,
    /// Of a top: its path in the volume.
    path: Vec<u8>,
}

impl Place {
    /// The top of what is brought: the sink's own directory or, with a name, a file in it. `path` is where it
    /// is in the volume.
    pub fn top(name: Option<&[u8]>, path: &[u8]) -> Place {
        let name = name.unwrap_or_default().to_vec();
        Place(Arc::new(Link { above: None, name, level: 0, path: path.to_vec() }))
    }

    /// A name in this directory.
    pub fn below(&self, name: &[u8]) -> Place {
        let level = self.0.level + 1;
        Place(Arc::new(Link { above: Some(self.clone()), name: name.to_vec(), level, path: Vec::new() }))
    }

    /// The place beside this one whose name has something behind it. A name that is too long for that lacks its end.
    pub fn renamed(&self, behind: &[u8]) -> Place {
        let (mut name, mut path) = (self.0.name.clone(), self.0.path.clone());
        let cut = (name.len() + behind.len()).saturating_sub(NAME_LEN).min(name.len());
        name.truncate(name.len() - cut);
        path.truncate(path.len().saturating_sub(cut));
        name.extend_from_slice(behind);
        path.extend_from_slice(behind);
        Place(Arc::new(Link { above: self.0.above.clone(), name, level: self.0.level, path }))
    }

    /// The place beside this one that has another name.
    pub fn called(&self, name: &[u8]) -> Place {
        let Link { above, level, path, .. } = &*self.0;
        Place(Arc::new(Link { above: above.clone(), name: name.to_vec(), level: *level, path: path.clone() }))
    }

    /// How many directories it is below the top.
    pub fn level(&self) -> u32 {
        self.0.level
    }

    /// The directory it is in; `None` of a top.
    pub fn above(&self) -> Option<&Place> {
        self.0.above.as_ref()
    }

    /// Whether it is the same one, not one of the same name.
    pub fn is(&self, other: &Place) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Its name in that; empty: it is the sink's directory.
    pub fn name(&self) -> &[u8] {
        &self.0.name
    }

    /// The names that lead to it from the sink's directory, this one last; none: it is that directory.
    pub fn names(&self) -> Vec<&[u8]> {
        let mut names = Vec::new();
        let mut at = Some(self);
        while let Some(place) = at {
            if !place.0.name.is_empty() {
                names.push(&place.0.name[..]);
            }
            at = place.above();
        }
        names.reverse();
        names
    }

    /// Its path in the volume.
    pub fn path(&self) -> Vec<u8> {
        let mut below = Vec::new();
        let mut at = self;
        while let Some(above) = at.above() {
            below.push(&at.0.name[..]);
            at = above;
        }
        let mut path = at.0.path.clone();
        for name in below.into_iter().rev() {
            if path.last() != Some(&b'/') {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        path
    }
}

impl Drop for Link {
    /// A long chain ends link by link, not by recursion.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(place) = above {
            above = Arc::into_inner(place.0).and_then(|mut link| link.above.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths() {
        let top = Place::top(None, b"/");
        let file = top.below(b"dir").below(b"file");
        assert_eq!((file.path(), file.names()), (b"/dir/file".to_vec(), vec![&b"dir"[..], b"file"]));
        assert_eq!((top.path(), top.names().len(), file.level()), (b"/".to_vec(), 0, 2));
        let named = Place::top(Some(b"new"), b"/a/old");
        assert_eq!(named.below(b"x").path(), b"/a/old/x");
        assert_eq!(named.below(b"x").names(), [&b"new"[..], b"x"]);
        assert_eq!(named.below(b"x").renamed(b".12").path(), b"/a/old/x.12");
        let long = top.below(b"dir").below(&[b'n'; 255]).renamed(b".12");
        assert_eq!(long.names()[1], [&[b'n'; 252][..], b".12"].concat());
        assert_eq!(long.path().len(), "/dir/".len() + 255);
    }
}
