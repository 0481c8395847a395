//! An editor's save, and a home-automation recorder: real schemas and patterns of two programs that wear out cards.

use super::stage::{Stage, Values};
use crate::backend::{read_file, write_file};
use crate::content::{Content, Writer};
use crate::error::{Error, Result};
use crate::sqlite::{JournalMode, SqliteFs};
use rusqlite::params;
use std::time::Duration;

/// Saves at scale 1, and bytes of the document.
const SAVES: u64 = 500;
const DOCUMENT: usize = 60_000;

/// A document is edited a little and saved: written beside the old one, synced, renamed over it, its folder synced.
pub fn editor(stage: &Stage) -> Result<Values> {
    let mut random = stage.random("editor");
    let mut writer = Writer::new(stage.seed);
    let target = &stage.target;
    let io = || Error::io("saving the document");
    target.mkdir("home").map_err(io())?;
    let mut document = writer.make(&mut random, Content::Text, DOCUMENT);
    write_file(&**target, "home/thesis.txt", &document, true).map_err(io())?;
    stage.setup_done()?;
    let saves = stage.scaled(SAVES, 20);
    for _ in 0..saves {
        let at = random.below(document.len() as u64) as usize;
        let words = writer.say(&mut random, 1, 12).into_bytes();
        let removed = random.below(40).min((document.len() - at) as u64) as usize;
        document.splice(at..at + removed, words);
        write_file(&**target, "home/thesis.txt.tmp", &document, true).map_err(io())?;
        target.rename("home/thesis.txt.tmp", "home/thesis.txt").map_err(io())?;
        target.fsync_dir("home").map_err(io())?;
        target.pass(Duration::from_secs(20)).map_err(io())?;
    }
    if read_file(&**target, "home/thesis.txt").map_err(io())? != document {
        return Err(Error::Check("the document is not what was saved last".into()));
    }
    Ok(Values::from([("saves".to_owned(), saves as f64)]))
}

/// Sensors, and states at scale 1.
const SENSORS: u64 = 120;
const STATES: u64 = 20_000;
/// A transaction holds what came in five seconds, as the recorder's commit interval is.
const STATES_PER_COMMIT: u64 = 12;
/// Old states are purged after so many commits.
const PURGE_EVERY: u64 = 400;

const SCHEMA: &str = "
create table state_attributes (attributes_id integer primary key, hash bigint, shared_attrs text);
create table states_meta (metadata_id integer primary key, entity_id varchar(255));
create table states (state_id integer primary key, metadata_id integer, state varchar(255), last_changed_ts float,
  last_updated_ts float, old_state_id integer, attributes_id integer, context_id_bin blob);
create index ix_states_metadata_last on states (metadata_id, last_updated_ts);
create index ix_states_last on states (last_updated_ts);
create index ix_states_old on states (old_state_id);
create index ix_states_attributes on states (attributes_id);
create table statistics_short_term (id integer primary key, metadata_id integer, start_ts float, mean float, min float, max float);
create unique index ix_short_term on statistics_short_term (metadata_id, start_ts);";

/// States of sensors come in and are committed every five seconds to a database with a log; old ones are purged.
pub fn home(stage: &Stage) -> Result<Values> {
    let mut random = stage.random("home");
    let writer = Writer::new(stage.seed);
    let db = SqliteFs::new(stage.target.clone())?.open("home-assistant_v2.db", JournalMode::Wal)?;
    db.execute_batch(SCHEMA)?;
    db.execute_batch("begin")?;
    for id in 0..SENSORS as i64 {
        let name = format!("sensor.{}_{id}", writer.say(&mut random, 1, 2).replace(' ', "_"));
        db.execute("insert into states_meta values (?,?)", params![id, name])?;
        let attributes = format!(
            "{{\"unit_of_measurement\":\"W\",\"friendly_name\":\"{name}\",\"device_class\":\"power\"}}"
        );
        db.execute("insert into state_attributes values (?,?,?)", params![id, id * 7919, attributes])?;
    }
    db.execute_batch("commit; pragma wal_checkpoint(truncate)")?;
    stage.setup_done()?;
    let states = stage.scaled(STATES, 600);
    let mut last: Vec<i64> = vec![0; SENSORS as usize];
    for commit in 0..states / STATES_PER_COMMIT {
        let time = 1_720_000_000.0 + commit as f64 * 5.0;
        db.execute_batch("begin")?;
        for _ in 0..STATES_PER_COMMIT {
            let sensor = random.zipf(SENSORS);
            let mut context = [0; 16];
            random.fill(&mut context);
            let value = format!("{}.{}", random.below(400), random.below(10));
            let old = last[sensor as usize];
            let row = params![sensor as i64, value, time, time, old, sensor as i64, &context[..]];
            let sql = "insert into states (metadata_id, state, last_changed_ts, last_updated_ts, old_state_id, attributes_id, \
                       context_id_bin) values (?,?,?,?,?,?,?)";
            db.prepare_cached(sql)?.execute(row)?;
            last[sensor as usize] = db.last_insert_rowid();
        }
        if commit % 60 == 59 {
            for sensor in 0..SENSORS as i64 {
                let sql = "insert or ignore into statistics_short_term (metadata_id, start_ts, mean, min, max) values (?,?,?,?,?)";
                let mean = random.below(4000) as f64 / 10.0;
                db.prepare_cached(sql)?.execute(params![sensor, time, mean, mean - 3.0, mean + 3.0])?;
            }
        }
        if commit % PURGE_EVERY == PURGE_EVERY - 1 {
            db.execute(
                "delete from states where last_updated_ts < ?",
                params![time - 5.0 * PURGE_EVERY as f64],
            )?;
        }
        db.execute_batch("commit")?;
        stage.target.pass(Duration::from_secs(5)).map_err(Error::io("letting time pass"))?;
    }
    db.check()?;
    Ok(Values::from([("states".to_owned(), states as f64)]))
}
