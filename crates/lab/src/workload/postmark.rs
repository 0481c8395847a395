//! Postmark: the small files of a mail server. A pool of files is made; each transaction reads or appends to
//! one of them, and makes a new one or removes one; at the end all are removed.

use super::stage::{Stage, Values};
use crate::backend::{Open, read_file, write_file};
use crate::content::{Content, Writer};
use crate::error::{Error, Result};
use crate::random::Random;
use std::time::Duration;

/// How large it is.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Files of the pool.
    pub files: u64,
    /// Transactions.
    pub transactions: u64,
    /// The smallest and the largest size of a file and of what is appended, in bytes.
    pub sizes: (u64, u64),
    /// Whether new files and what is appended are synced.
    pub synced: bool,
    /// What a transaction takes besides.
    pub each: Duration,
}

/// At scale 1; the sizes are Postmark's 500 to 9.77 kB.
const SHAPE: Shape = Shape {
    files: 5000,
    transactions: 20_000,
    sizes: (500, 10_000),
    synced: true,
    each: Duration::from_millis(20),
};
const FOLDERS: u64 = 10;

struct Pool<'s> {
    stage: &'s Stage,
    shape: Shape,
    random: Random,
    writer: Writer,
    /// Numbers and sizes of the files that exist.
    files: Vec<(u64, u64)>,
    made: u64,
}

fn path(number: u64) -> String {
    format!("mail/{}/{number}", number % FOLDERS)
}

fn io() -> impl FnOnce(std::io::Error) -> Error {
    Error::io("postmark")
}

impl Pool<'_> {
    fn text(&mut self) -> Vec<u8> {
        let len = self.random.between(self.shape.sizes.0, self.shape.sizes.1) as usize;
        self.writer.make(&mut self.random, Content::Text, len)
    }

    fn create(&mut self) -> Result<()> {
        let content = self.text();
        write_file(&*self.stage.target, &path(self.made), &content, self.shape.synced).map_err(io())?;
        self.files.push((self.made, content.len() as u64));
        self.made += 1;
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.files.len() as u64) as usize;
        let (number, _) = self.files.swap_remove(at);
        self.stage.target.unlink(&path(number)).map_err(io())
    }

    fn read(&mut self) -> Result<()> {
        let Some(&(number, size)) = self.any() else { return Ok(()) };
        let found = read_file(&*self.stage.target, &path(number)).map_err(io())?.len() as u64;
        if found == size {
            return Ok(());
        }
        Err(Error::Check(format!("postmark: {} has {found} bytes, not {size}", path(number))))
    }

    fn append(&mut self) -> Result<()> {
        let more = self.text();
        let Some(&(number, size)) = self.any() else { return Ok(()) };
        let target = &self.stage.target;
        let file = target.open(&path(number), Open::Existing).map_err(io())?;
        target.write(file, size, &more).map_err(io())?;
        if self.shape.synced {
            target.fsync(file, false).map_err(io())?;
        }
        target.close(file).map_err(io())?;
        if let Some(entry) = self.files.iter_mut().find(|(n, _)| *n == number) {
            entry.1 += more.len() as u64;
        }
        Ok(())
    }

    fn any(&mut self) -> Option<&(u64, u64)> {
        let at = self.random.below(self.files.len() as u64) as usize;
        self.files.get(at)
    }
}

/// Runs it.
pub fn run(stage: &Stage) -> Result<Values> {
    let files = stage.scaled(SHAPE.files, 50);
    run_with(stage, Shape { files, transactions: stage.scaled(SHAPE.transactions, 200), ..SHAPE })
}

/// Runs it in another size.
pub fn run_with(stage: &Stage, shape: Shape) -> Result<Values> {
    let (random, writer) = (stage.random("postmark"), Writer::new(stage.seed));
    let mut pool = Pool { stage, shape, random, writer, files: Vec::new(), made: 0 };
    stage.target.mkdir("mail").map_err(io())?;
    for n in 0..FOLDERS {
        stage.target.mkdir(&format!("mail/{n}")).map_err(io())?;
    }
    for _ in 0..shape.files {
        pool.create()?;
    }
    stage.setup_done()?;
    for _ in 0..shape.transactions {
        if pool.random.happens(0.5) {
            pool.read()?
        } else {
            pool.append()?
        }
        if pool.random.happens(0.5) {
            pool.create()?
        } else {
            pool.remove()?
        }
        stage.target.pass(shape.each).map_err(io())?;
    }
    while !pool.files.is_empty() {
        pool.remove()?;
    }
    Ok(Values::from([("transactions".to_owned(), shape.transactions as f64)]))
}
