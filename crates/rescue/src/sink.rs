//! Where files are brought to.

use crate::outcome::Lost;
use crate::place::Place;
use medfs::Attr;
use std::io;

/// What a file has besides name and content.
#[derive(Debug, Clone)]
pub struct Meta {
    /// Attributes of its inode.
    pub attr: Attr,
    /// Extended attributes that could be read.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What became of a file that was brought.
#[derive(Debug)]
pub struct Settled {
    /// Where it is now: beside its place, where what is there has more.
    pub place: Place,
    /// Whether its gaps have what an earlier copy had there.
    pub filled: bool,
    /// Whether that was something in each page of them: nothing of it is missing.
    pub whole: bool,
}

impl Settled {
    /// At its own place.
    pub fn at(place: &Place) -> Settled {
        Settled { place: place.clone(), filled: false, whole: false }
    }
}

/// Takes what a walk finds. A directory comes before what is in it, and is left after it.
///
/// An error is of the file that it is told of, and the walk goes on, unless it is one of room or of a file
/// system that takes no writes.
pub trait Sink {
    /// Makes a directory; one that is there is taken.
    fn enter(&mut self, at: &Place) -> io::Result<()>;
    /// All that a directory holds has been brought.
    fn leave(&mut self, at: &Place, meta: &Meta) -> io::Result<()>;
    /// A regular file begins.
    fn begin(&mut self, at: &Place) -> io::Result<()>;
    /// Content of the file that has begun.
    fn data(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// The next part of the file that has begun cannot be read.
    fn gap(&mut self) {}
    /// All that could be read of the file was brought, which is all but `lost`.
    fn end(&mut self, at: &Place, meta: &Meta, lost: &Lost) -> io::Result<Settled>;
    /// The file that has begun cannot be brought.
    fn give_up(&mut self, at: &Place);
    /// A symbolic link, with its target, a device, FIFO or socket.
    fn special(&mut self, at: &Place, meta: &Meta, target: &[u8]) -> io::Result<()>;
    /// Another name for a file that was brought, all but `lost`.
    fn link(&mut self, first: &Place, at: &Place, lost: &Lost) -> io::Result<Settled>;
}
