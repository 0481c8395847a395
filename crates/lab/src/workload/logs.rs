//! A log that grows line by line, is synced now and then as journals are, and is rotated.

use super::stage::{Stage, Values};
use crate::backend::Open;
use crate::content::Writer;
use crate::error::{Error, Result};
use std::time::Duration;

/// Lines at scale 1.
const LINES: u64 = 100_000;
/// A sync after so many lines.
const SYNC_EVERY: u64 = 25;
/// Size at which the log is rotated, and how many old ones are kept.
const ROTATE: u64 = 1 << 20;
const KEEP: u64 = 3;

/// Appends lines.
pub fn run(stage: &Stage) -> Result<Values> {
    let mut random = stage.random("log");
    let writer = Writer::new(stage.seed);
    let target = &stage.target;
    let io = || Error::io("appending to the log");
    target.mkdir("log").map_err(io())?;
    stage.setup_done()?;
    let mut file = target.open("log/app.log", Open::Create).map_err(io())?;
    let (mut size, lines) = (0, stage.scaled(LINES, 500));
    for n in 0..lines {
        let level = ["DEBUG", "INFO", "INFO", "WARN"][random.below(4) as usize];
        let text = writer.say(&mut random, 4, 14);
        let line = format!(
            "2024-07-03 {:02}:{:02}:{:02}.{:03} {level} [{}] {text}\n",
            n / 36_000 % 24,
            n / 600 % 60,
            n / 10 % 60,
            n * 97 % 1000,
            n % 8
        );
        target.write(file, size, line.as_bytes()).map_err(io())?;
        size += line.len() as u64;
        if n % SYNC_EVERY == SYNC_EVERY - 1 {
            target.fsync(file, true).map_err(io())?;
        }
        if size >= ROTATE {
            target.fsync(file, false).map_err(io())?;
            target.close(file).map_err(io())?;
            for old in (1..KEEP).rev() {
                if target.exists(&format!("log/app.log.{old}")).map_err(io())? {
                    target
                        .rename(&format!("log/app.log.{old}"), &format!("log/app.log.{}", old + 1))
                        .map_err(io())?;
                }
            }
            target.rename("log/app.log", "log/app.log.1").map_err(io())?;
            (file, size) = (target.open("log/app.log", Open::Create).map_err(io())?, 0);
        }
        target.pass(Duration::from_millis(40)).map_err(io())?;
    }
    target.fsync(file, false).map_err(io())?;
    target.close(file).map_err(io())?;
    Ok(Values::from([("lines".to_owned(), lines as f64)]))
}
