//! Contacts imported into an address book, as Android's contacts provider stores them (MedFS, section 6.2.2,
//! IM): rows in four tables with their indices for each contact, a transaction each, and a small picture for
//! every fourth.

use super::stage::{Stage, Values};
use crate::backend::write_file;
use crate::content::{Content, Writer};
use crate::error::{Error, Result};
use crate::sqlite::{JournalMode, SqliteFs};
use rusqlite::params;
use std::time::Duration;

/// Contacts at scale 1 and more; fewer are not imported.
const CONTACTS: u64 = 100;
/// Contacts that are there before.
const BEFORE: u64 = 400;

const SCHEMA: &str = "
create table raw_contacts (_id integer primary key, account text, sourceid text, version integer, deleted integer default 0);
create table contacts (_id integer primary key, name_raw_contact_id integer, display_name text, sort_key text, photo integer);
create table data (_id integer primary key, raw_contact_id integer, mimetype integer, data1 text, data2 text, data4 text);
create table phone_lookup (data_id integer, raw_contact_id integer, normalized_number text);
create index data_raw on data (raw_contact_id);
create index data_value on data (mimetype, data1);
create index phone_index on phone_lookup (normalized_number, raw_contact_id);
create index contacts_sort on contacts (sort_key);";

/// Imports 100 contacts.
pub fn run(stage: &Stage) -> Result<Values> {
    let mut random = stage.random("contacts");
    let writer = Writer::new(stage.seed);
    let mut pictures = Writer::new(stage.seed);
    stage.target.mkdir("databases").map_err(Error::io("contacts"))?;
    stage.target.mkdir("photos").map_err(Error::io("contacts"))?;
    let db = SqliteFs::new(stage.target.clone())?.open("databases/contacts2.db", JournalMode::Truncate)?;
    db.execute_batch(SCHEMA)?;
    let mut add = |id: u64| -> Result<()> {
        let name = writer.say(&mut random, 2, 3);
        let number = format!("+86{:011}", random.below(100_000_000_000));
        db.execute_batch("begin")?;
        let id = id as i64;
        let sql = "insert into raw_contacts (_id, account, sourceid, version) values (?,?,?,1)";
        db.prepare_cached(sql)?.execute(params![id, "sim", format!("{:016x}", random.below(u64::MAX))])?;
        let sql = "insert into contacts values (?,?,?,?,?)";
        db.prepare_cached(sql)?.execute(params![id, id, name, name.to_uppercase(), id % 4])?;
        for (kind, one, two) in
            [(5, number.as_str(), "2"), (7, name.as_str(), ""), (1, "mail@example.org", "1")]
        {
            let sql = "insert into data (raw_contact_id, mimetype, data1, data2, data4) values (?,?,?,?,?)";
            db.prepare_cached(sql)?.execute(params![id, kind, one, two, number])?;
        }
        let data = db.last_insert_rowid();
        db.prepare_cached("insert into phone_lookup values (?,?,?)")?.execute(params![data, id, number])?;
        db.execute_batch("commit")?;
        Ok(())
    };
    for id in 0..BEFORE {
        add(id)?;
    }
    stage.setup_done()?;
    let mut random = stage.random("pictures");
    for id in BEFORE..BEFORE + CONTACTS {
        add(id)?;
        if id % 4 == 0 {
            let len = random.between(6, 16) as usize * 1024;
            let photo = pictures.make(&mut random, Content::Picture, len);
            write_file(&*stage.target, &format!("photos/{id}"), &photo, true)
                .map_err(Error::io("contacts"))?;
        }
        stage.target.pass(Duration::from_millis(80)).map_err(Error::io("contacts"))?;
    }
    db.check()?;
    Ok(Values::from([("contacts".to_owned(), CONTACTS as f64)]))
}
