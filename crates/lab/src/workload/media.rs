//! Traffic that does not compress: photos taken, and a download in pieces.

use super::stage::{Stage, Values};
use crate::backend::{Open, write_file};
use crate::content::{Content, Writer};
use crate::error::{Error, Result};
use crate::random::Random;
use crate::sqlite::{JournalMode, SqliteFs};
use rusqlite::params;
use std::time::Duration;

/// Photos at scale 1.
const PHOTOS: u64 = 60;
/// Bytes of a download at scale 1, and of a piece.
const DOWNLOAD: u64 = 256 << 20;
const PIECE: u64 = 1 << 20;

/// Photos of 2 to 4 MB, each written beside a preview and entered in the gallery's database.
pub fn photos(stage: &Stage) -> Result<Values> {
    let mut random = stage.random("photos");
    let mut writer = Writer::new(stage.seed);
    let target = &stage.target;
    let io = || Error::io("taking photos");
    for folder in ["dcim", "previews", "databases"] {
        target.mkdir(folder).map_err(io())?;
    }
    let db = SqliteFs::new(target.clone())?.open("databases/external.db", JournalMode::Persist)?;
    db.execute_batch(
        "create table files (_id integer primary key, path text, size integer, taken integer, width integer)",
    )?;
    db.execute_batch("create index by_time on files (taken)")?;
    stage.setup_done()?;
    let photos = stage.scaled(PHOTOS, 3);
    for n in 0..photos {
        let len = random.between(2 << 20, 4 << 20) as usize;
        let photo = writer.make(&mut random, Content::Picture, len);
        let temporary = format!("dcim/.pending-{n}.jpg");
        write_file(&**target, &temporary, &photo, true).map_err(io())?;
        target.rename(&temporary, &format!("dcim/IMG_{n:05}.jpg")).map_err(io())?;
        let preview = writer.make(&mut random, Content::Picture, 24 << 10);
        write_file(&**target, &format!("previews/{n}.jpg"), &preview, false).map_err(io())?;
        let row = params![format!("dcim/IMG_{n:05}.jpg"), len as i64, 1_720_000_000 + n as i64 * 7, 4000];
        db.prepare_cached("insert into files (path, size, taken, width) values (?,?,?,?)")?.execute(row)?;
        target.pass(Duration::from_secs(7)).map_err(io())?;
    }
    db.check()?;
    Ok(Values::from([("photos".to_owned(), photos as f64)]))
}

/// A download whose pieces come out of order into a file of full length, with a small state file rewritten as
/// it goes on.
pub fn download(stage: &Stage) -> Result<Values> {
    let mut random = stage.random("download");
    let target = &stage.target;
    let io = || Error::io("downloading");
    target.mkdir("download").map_err(io())?;
    stage.setup_done()?;
    let pieces = stage.scaled(DOWNLOAD / PIECE, 4);
    let file = target.open("download/film.part", Open::Create).map_err(io())?;
    target.truncate(file, pieces * PIECE).map_err(io())?;
    let mut order: Vec<u64> = (0..pieces).collect();
    // Pieces come from several peers: in order by and large, shuffled among neighbours.
    order.chunks_mut(16).for_each(|c| random.shuffle(c));
    let mut have = vec![b'0'; pieces as usize];
    for (n, piece) in order.into_iter().enumerate() {
        let bytes = noise(&mut random, PIECE as usize);
        target.write(file, piece * PIECE, &bytes).map_err(io())?;
        have[piece as usize] = b'1';
        if n % 4 == 3 {
            target.fsync(file, true).map_err(io())?;
            write_file(&**target, "download/film.state", &have, true).map_err(io())?;
        }
        target.pass(Duration::from_millis(250)).map_err(io())?;
    }
    target.fsync(file, false).map_err(io())?;
    target.close(file).map_err(io())?;
    target.rename("download/film.part", "download/film.mkv").map_err(io())?;
    target.unlink("download/film.state").map_err(io())?;
    target.fsync_dir("download").map_err(io())?;
    Ok(Values::from([("bytes".to_owned(), (pieces * PIECE) as f64)]))
}

fn noise(random: &mut Random, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}
