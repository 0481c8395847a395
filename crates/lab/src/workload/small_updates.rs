//! The pattern of MedFS, section 6.2.5: a new file of 1 MB, small changes (1 to 100 bytes) of a part of its
//! pages, then 1000 random reads, which make it a file that is read often.

use super::stage::{Stage, Values};
use crate::backend::{Open, read_at, write_file};
use crate::content::{Content, Writer};
use crate::distribution::Shape;
use crate::error::{Error, Result};
use std::time::Duration;

const PAGE: usize = 4096;
/// Pages of the file.
const PAGES: usize = 256;
/// Files: so many that the cache of pages holds neither them nor their compact pages. They are read in turn.
const FILES: usize = 32;
/// Reads of each file.
const READS: u64 = 1000;
/// Changes of the pages, one after the other, before the reads.
const ROUNDS: usize = 6;
/// The reads come in so many bursts, with time between them: enough for the writes before to be forgotten.
const BURSTS: u64 = 12;
const BETWEEN: Duration = Duration::from_secs(65);
/// Other files, so that there is something to tell the read ones from: some are written in each burst, some
/// hardly at all.
const OTHERS: usize = 8;

/// The pattern with 40% of the pages.
pub fn run(stage: &Stage) -> Result<Values> {
    updated(stage, 0.4)
}

/// The pattern, with this share of the pages.
pub fn updated(stage: &Stage, share: f64) -> Result<Values> {
    let mut random = stage.random("small updates");
    let mut writer = Writer::new(stage.seed);
    let target = &stage.target;
    let io = || Error::io("small updates");
    for n in 0..FILES {
        let content = writer.pages(&mut random, Content::Json, Shape::Structured, PAGES * PAGE);
        write_file(&**target, &format!("small{n}"), &content, false).map_err(io())?;
    }
    for n in 0..2 * OTHERS {
        write_file(&**target, &format!("other{n}"), &[7; 2 * PAGE], false).map_err(io())?;
    }
    stage.setup_done()?;
    let changed = (PAGES as f64 * share) as usize;
    for n in 0..FILES {
        let file = target.open(&format!("small{n}"), Open::Existing).map_err(io())?;
        for round in 0..ROUNDS {
            for at in 0..changed {
                let page = at * PAGES / changed;
                let len = random.between(1, 100) as usize;
                let mut bytes = vec![0; len];
                random.fill(&mut bytes);
                let offset = page * PAGE + (page * 911 + round * 7) % (PAGE - 100);
                target.write(file, offset as u64, &bytes).map_err(io())?;
                if at % 8 == 7 {
                    target.fsync(file, false).map_err(io())?;
                }
            }
            target.fsync(file, false).map_err(io())?;
        }
        target.close(file).map_err(io())?;
    }
    for burst in 0..BURSTS {
        target.pass(BETWEEN).map_err(io())?;
        for n in 0..OTHERS + burst as usize % 2 {
            let file = target.open(&format!("other{n}"), Open::Existing).map_err(io())?;
            for _ in 0..if n < OTHERS { 60 } else { 1 } {
                target.write(file, random.below(2 * PAGE as u64 - 8), b"changed.").map_err(io())?;
            }
            target.fsync(file, false).map_err(io())?;
            target.close(file).map_err(io())?;
        }
        let mut files = Vec::with_capacity(FILES);
        for n in 0..FILES {
            files.push(target.open(&format!("small{n}"), Open::Existing).map_err(io())?);
        }
        for _ in 0..stage.scaled(READS / BURSTS, 40) {
            for &file in &files {
                let page = random.below(PAGES as u64);
                read_at(&**target, file, page * PAGE as u64, PAGE).map_err(io())?;
            }
        }
        for file in files {
            target.close(file).map_err(io())?;
        }
    }
    Ok(Values::new())
}
