//! Postmark: the small files of a mail server. A pool of files is made; each transaction reads or appends to
//! one of them, and makes a new one or removes one; at the end all are removed.

use super::stage::{Stage, Values};
use crate::backend::{Open, read_file, write_file};
use crate::content::{Content, Writer};
use crate::error::{Error, Result};
use crate::random::Random;
use std::time::Duration;

/// Files of the pool and transactions at scale 1.
const FILES: u64 = 5000;
const TRANSACTIONS: u64 = 20_000;
/// Sizes in bytes: Postmark's 500 to 9.77 kB.
const SIZES: (u64, u64) = (500, 10_000);
const FOLDERS: u64 = 10;

struct Pool<'s> {
    stage: &'s Stage,
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
        let len = self.random.between(SIZES.0, SIZES.1) as usize;
        self.writer.make(&mut self.random, Content::Text, len)
    }

    fn create(&mut self) -> Result<()> {
        let content = self.text();
        write_file(&*self.stage.target, &path(self.made), &content, true).map_err(io())?;
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
        target.fsync(file, false).map_err(io())?;
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
    let random = stage.random("postmark");
    let mut pool = Pool { stage, random, writer: Writer::new(stage.seed), files: Vec::new(), made: 0 };
    stage.target.mkdir("mail").map_err(io())?;
    for n in 0..FOLDERS {
        stage.target.mkdir(&format!("mail/{n}")).map_err(io())?;
    }
    for _ in 0..stage.scaled(FILES, 50) {
        pool.create()?;
    }
    stage.setup_done()?;
    let transactions = stage.scaled(TRANSACTIONS, 200);
    for _ in 0..transactions {
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
        stage.target.pass(Duration::from_millis(20)).map_err(io())?;
    }
    while !pool.files.is_empty() {
        pool.remove()?;
    }
    Ok(Values::from([("transactions".to_owned(), transactions as f64)]))
}
