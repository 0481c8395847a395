//! ARS's Fig. 6: transactions of SQLite on a volume that is 70% full.

use super::aged::{Ageing, age};
use super::bed::Bed;
use super::fragments::{above, row};
use crate::backend::Target;
use crate::cell::Row;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use crate::scheme::Scheme;
use crate::sqlite::{Database, JournalMode, SqliteFs, chance};

/// The databases of two threads, whose transactions take turns.
const FILES: [&str; 2] = ["a.db", "b.db"];
/// Single-row transactions, each a statement with the row's number.
const KINDS: [(&str, &str); 3] = [
    ("insert", "insert into items values (?1, ?1 * 7, hex(randomblob(100)))"),
    ("update", "update items set count = count + 1, body = hex(randomblob(100)) where id = ?1"),
    ("delete", "delete from items where id = ?1"),
];

/// Transactions in a second of each kind, and the cell's file.
fn rates(lab: &Lab<'_>, scheme: &Scheme, used: f64) -> Result<([f64; 3], String)> {
    let number = |name: &str| Ok::<f64, Error>(lab.spec.numbers(name)?[0]);
    let records = ((number("records")? * lab.scale) as u64).max(20);
    let mib = ((number("device_mib")? * lab.scale) as u64).max(256);
    let mut bed = Bed::new(lab, ("sqlite", scheme, &format!("{used}% full")), mib)?;
    let _chance = chance(lab.settings.seed);
    for path in FILES {
        let file = bed.create(path, true)?;
        bed.keep_section(path)?;
        bed.target().close(file).map_err(Error::io("closing a file"))?;
    }
    let fs = SqliteFs::new(bed.target().clone())?;
    let open = |path| {
        let db = fs.open(path, JournalMode::Truncate)?;
        db.execute_batch("create table items (id integer primary key, count integer, body text)")?;
        Ok(db)
    };
    let databases: Vec<Database> = FILES.into_iter().map(open).collect::<Result<_>>()?;
    age(&bed, &Ageing { first: (number("first_kib")? as u64) << 10, fill: used, leave: used })?;
    let mut rates = [0.0; 3];
    for ((kind, sql), rate) in KINDS.iter().zip(&mut rates) {
        let time = bed.timed(|| {
            for id in 0..records {
                // A third of the rows apart: neighbours lie in one page.
                let id = (id * 331) % records;
                databases.iter().try_for_each(|db| db.prepare_cached(sql)?.execute([id as i64]).map(drop))?;
            }
            Ok(())
        })?;
        *rate = (records * FILES.len() as u64) as f64 / (time / 1e6);
        bed.note(&format!("transactions in a second, {kind}"), *rate);
    }
    databases.iter().try_for_each(Database::check)?;
    drop((databases, fs));
    for path in FILES {
        let extents = bed.extents(path)? as f64;
        bed.note(&format!("extents of {path}"), extents);
    }
    Ok((rates, bed.finish()?))
}

/// Transactions in a second against F2FS and against IPU, and the largest gains.
pub(in crate::experiment) fn transactions(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let (schemes, fill) = (lab.schemes()?, lab.spec.numbers("used")?.to_vec());
    lab.begin(schemes.len() * fill.len());
    let mut rows = Vec::new();
    for used in fill {
        let mut before: Vec<[f64; 3]> = Vec::new();
        for scheme in &schemes {
            let (rates, cell) = rates(lab, scheme, used)?;
            let cell = [cell];
            for (against, base) in [("F2FS", before.first()), ("IPU", before.get(1))] {
                let Some(base) = base else { continue };
                let gains: [f64; 3] = std::array::from_fn(|n| rates[n] / base[n]);
                for (n, (kind, _)) in KINDS.iter().enumerate() {
                    let label = format!("{used}% full, {kind} against {against}");
                    rows.push(row(
                        lab,
                        (&label, &scheme.name, "% more in a second"),
                        above(rates[n], base[n]),
                        &cell,
                    ));
                }
                let label = format!("{used}% full, most against {against}");
                let most = gains.into_iter().fold(0.0, f64::max);
                rows.push(row(lab, (&label, &scheme.name, "x"), most, &cell));
            }
            before.push(rates);
        }
    }
    Ok(rows)
}
