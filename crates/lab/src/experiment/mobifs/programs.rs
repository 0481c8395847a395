//! What is run on devices: the paper's own benchmark, Mobibench, RL Benchmark, and the made-up applications.

use super::apps::{APPS, LENGTH, Trace, What};
use crate::backend::Open;
use crate::content::{Content, Writer};
use crate::error::{Error, Result};
use crate::sqlite::{JournalMode, SqliteFs};
use crate::workload::{Stage, Values};
use rusqlite::params;
use std::collections::HashMap;
use std::time::Duration;

const PAGE: usize = 4096;
/// Bytes of a write of the paper's benchmark.
const PIECE: usize = 128 << 10;

fn at_work(what: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::io(what)(source)
}

/// Section 7.1: 8 MB written in order to the same part of a file, sixteen times, and an fsync for so many of them.
pub(super) fn sixteen_times(stage: &Stage, fsync_each: u64) -> Result<Values> {
    let failed = at_work("writing 8 MB over and over");
    let file = stage.target.open("region", Open::Create).map_err(&failed)?;
    let mut random = stage.random("region");
    let mut piece = vec![0; PIECE];
    stage.setup_done()?;
    for round in 1..=16u64 {
        for at in 0..(8 << 20) / PIECE as u64 {
            random.fill(&mut piece);
            stage.target.write(file, at * PIECE as u64, &piece).map_err(&failed)?;
        }
        if round % fsync_each == 0 {
            stage.target.fsync(file, false).map_err(&failed)?;
        }
    }
    Ok(Values::new())
}

/// Mobibench's file of 1 MiB: records of 4 KiB, overwritten in order or anywhere, each with its fsync.
pub(super) fn records(stage: &Stage, anywhere: bool) -> Result<Values> {
    const RECORDS: u64 = 256;
    let failed = at_work("writing records");
    let file = stage.target.open("records", Open::Create).map_err(&failed)?;
    let mut random = stage.random("records");
    let mut record = [0; PAGE];
    random.fill(&mut record);
    for at in 0..RECORDS {
        stage.target.write(file, at * PAGE as u64, &record).map_err(&failed)?;
    }
    stage.setup_done()?;
    for n in 0..stage.scaled(4 * RECORDS, 16) {
        let at = if anywhere { random.below(RECORDS) } else { n % RECORDS };
        random.fill(&mut record);
        stage.target.write(file, at * PAGE as u64, &record).map_err(&failed)?;
        stage.target.fsync(file, false).map_err(&failed)?;
    }
    Ok(Values::new())
}

/// A made-up application with its first user: its pages in one file, its fsyncs, and the time between.
pub(super) fn application(stage: &Stage, name: &str) -> Result<Values> {
    let failed = at_work("running an application");
    let app = APPS.iter().find(|app| app.name == name);
    let app = app.ok_or_else(|| Error::Unknown(format!("no made-up application is named '{name}'")))?;
    let file = stage.target.open(name, Open::Create).map_err(&failed)?;
    let (mut random, mut writer) = (stage.random(name), Writer::new(stage.seed));
    let (mut places, mut now) = (HashMap::new(), Duration::ZERO);
    stage.setup_done()?;
    let end = LENGTH.mul_f64(stage.scale);
    for (at, what) in Trace::new(stage.seed, app, 0).events {
        if at > end {
            break;
        }
        stage.target.pass(at - now).map_err(&failed)?;
        now = at;
        match what {
            What::Write(page) => {
                let next = places.len() as u64;
                let place = *places.entry(page).or_insert(next);
                let content = writer.make(&mut random, Content::Text, PAGE);
                stage.target.write(file, place * PAGE as u64, &content).map_err(&failed)?;
            }
            What::Fsync => stage.target.fsync(file, true).map_err(&failed)?,
        }
    }
    Ok(Values::new())
}

/// RL Benchmark for SQLite: its thirteen workloads, one after the other.
pub(super) fn thirteen(stage: &Stage) -> Result<Values> {
    let db = SqliteFs::new(stage.target.clone())?.open("rl.db", JournalMode::Persist)?;
    let mut random = stage.random("rl");
    stage.setup_done()?;
    let (few, many) = (stage.scaled(1000, 20) as i64, stage.scaled(25_000, 500) as i64);
    let mut word = || format!("number {} of some length", random.below(100_000));
    let table = |name: &str| format!("create table {name} (a integer, b integer, c varchar(100));");
    db.execute_batch(&table("t1"))?;
    for n in 0..few {
        db.prepare_cached("insert into t1 values (?,?,?)")?.execute(params![n, n * 7 % few, word()])?;
    }
    for (name, index) in [("t2", ""), ("t3", "create index i3 on t3(c);")] {
        db.execute_batch(&format!("begin; {}{index}", table(name)))?;
        for n in 0..many {
            let insert = format!("insert into {name} values (?,?,?)");
            db.prepare_cached(&insert)?.execute(params![n, n * 7 % many, word()])?;
        }
        db.execute_batch("commit")?;
    }
    let count = |sql: &str, times: i64, step: i64| -> Result<()> {
        for n in 0..times {
            let from = n * step;
            let _: i64 =
                db.prepare_cached(sql)?.query_row(params![from, from + step * 10], |row| row.get(0))?;
        }
        Ok(())
    };
    count("select count(*) from t2 where b >= ? and b < ?", few / 10, 100)?;
    count("select count(*) from t2 where c like '%' || ? || '%' or a = ?", few / 10, 1)?;
    db.execute_batch("create index i2a on t2(a); create index i2b on t2(b);")?;
    count("select count(*) from t2 where b >= ? and b < ?", few * 5, 10)?;
    db.execute_batch("begin")?;
    for n in 0..few {
        db.prepare_cached("update t1 set b = b * 2 where a >= ? and a < ?")?
            .execute([n * 10, n * 10 + 10])?;
    }
    db.execute_batch("commit; begin")?;
    for n in 0..many {
        db.prepare_cached("update t2 set b = ? where a = ?")?.execute([n * 3 % many, n])?;
    }
    db.execute_batch("commit")?;
    db.execute_batch(
        "begin; insert into t1 select b, a, c from t2; insert into t2 select b, a, c from t1; commit",
    )?;
    db.execute_batch("delete from t2 where c like '%50%'")?;
    db.execute_batch(&format!("delete from t2 where a > 10 and a < {}", many * 4 / 5))?;
    db.execute_batch("drop table t3")?;
    db.check()?;
    Ok(Values::new())
}
