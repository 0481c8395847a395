//! TPC-C on SQLite: its nine tables, its five transactions in their mix, and its consistency conditions.
//!
//! One warehouse with ten districts. The population is a tenth of the standard's (300 customers in a
//! district, 10,000 items), as phones and cards are smaller than servers; what a transaction does is the
//! standard's (revision 5.11, clauses 2.4 to 2.8), without terminals and think times.

mod check;
mod load;
pub mod peer;
mod transactions;

use super::stage::{Stage, Values};
use crate::error::{Error, Result};
use crate::random::Random;
use crate::sqlite::{Database, JournalMode, SqliteFs};
use std::time::Duration;

/// Districts of the warehouse, customers of a district, items.
const DISTRICTS: i64 = 10;
const CUSTOMERS: i64 = 300;
const ITEMS: i64 = 10_000;
/// Transactions at scale 1.
const TRANSACTIONS: u64 = 2000;
/// Constants of the non-uniform numbers (clause 2.1.6.1).
const C_LAST: u64 = 157;
const C_ITEM: u64 = 5987;
const C_CUSTOMER: u64 = 123;

/// The database and what draws its transactions.
pub struct Shop {
    db: Database,
    random: Random,
    /// The time of day, in seconds, as rows keep it.
    now: i64,
}

/// With a write-ahead log.
pub fn wal(stage: &Stage) -> Result<Values> {
    run(stage, JournalMode::Wal)
}

/// With a rollback journal that is truncated.
pub fn truncate(stage: &Stage) -> Result<Values> {
    run(stage, JournalMode::Truncate)
}

/// Runs the mix of clause 5.2.3 (45% new orders, 43% payments, 4% of each other) and checks the database.
pub fn run(stage: &Stage, mode: JournalMode) -> Result<Values> {
    let db = SqliteFs::new(stage.target.clone())?.open("tpcc.db", mode)?;
    let mut shop = Shop::made(db, stage.random("tpcc"))?;
    shop.check()?;
    stage.setup_done()?;
    let total = stage.scaled(TRANSACTIONS, 100);
    let mut counts = [0u64; 5];
    let mut rolled_back = 0;
    for _ in 0..total {
        let (kind, committed) = shop.transaction()?;
        counts[kind] += 1;
        rolled_back += u64::from(!committed);
        stage.target.pass(Duration::from_millis(200)).map_err(Error::io("letting time pass"))?;
    }
    shop.check()?;
    shop.db.check()?;
    let names = ["new_orders", "payments", "order_status", "deliveries", "stock_levels"];
    let mut values: Values = names.iter().zip(counts).map(|(n, c)| ((*n).to_owned(), c as f64)).collect();
    values.insert("rolled_back".into(), rolled_back as f64);
    Ok(values)
}

impl Shop {
    /// Makes and fills the tables in an empty database.
    pub fn made(db: Database, random: Random) -> Result<Shop> {
        let mut shop = Shop::open(db, random);
        load::load(&mut shop)?;
        Ok(shop)
    }

    /// Goes on with a database that has the tables.
    pub fn open(db: Database, random: Random) -> Shop {
        Shop { db, random, now: 1_720_000_000 }
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// The next transaction of the mix: its kind, in the order of clause 2, and whether it was committed.
    pub fn transaction(&mut self) -> Result<(usize, bool)> {
        let kind = match self.random.below(100) {
            0..45 => 0,
            45..88 => 1,
            88..92 => 2,
            92..96 => 3,
            _ => 4,
        };
        let mut committed = true;
        match kind {
            0 => committed = self.new_order()?,
            1 => self.payment()?,
            2 => self.order_status()?,
            3 => self.delivery()?,
            _ => self.stock_level()?,
        }
        self.now += 1;
        Ok((kind, committed))
    }

    fn a_district(&mut self) -> i64 {
        self.random.between(1, DISTRICTS as u64) as i64
    }

    fn a_customer(&mut self) -> i64 {
        self.random.nurand(1023, C_CUSTOMER, 1, CUSTOMERS as u64) as i64
    }

    fn an_item(&mut self) -> i64 {
        self.random.nurand(8191, C_ITEM, 1, ITEMS as u64) as i64
    }

    /// A customer by number, or, in 60% of the cases, the middle one of those of a last name (clause 2.5.1.2).
    fn find_customer(&mut self, district: i64) -> Result<i64> {
        if self.random.happens(0.4) {
            return Ok(self.a_customer());
        }
        let name = last_name(self.random.nurand(255, C_LAST, 0, (CUSTOMERS as u64).min(1000) - 1));
        let sql = "select c_id from customer where c_d_id = ? and c_last = ? order by c_first";
        let mut query = self.db.prepare_cached(sql)?;
        let found: Vec<i64> =
            query.query_map((district, &name), |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        drop(query);
        match found.get(found.len() / 2) {
            Some(id) => Ok(*id),
            None => Ok(self.a_customer()),
        }
    }
}

/// The last name of a number below 1000 (clause 4.3.2.3).
fn last_name(number: u64) -> String {
    const PARTS: [&str; 10] =
        ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
    [number / 100 % 10, number / 10 % 10, number % 10].iter().map(|n| PARTS[*n as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::record;

    #[test]
    fn names_are_the_standards() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
    }

    #[test]
    fn the_database_is_consistent_and_a_wrong_one_is_noticed() {
        let played = record(1, 0.1, &wal).expect("TPC-C runs and its conditions hold");
        assert!(played.values["new_orders"] > 50.0 && played.values["deliveries"] > 0.0);
        let spoiled = |stage: &Stage| {
            let db = SqliteFs::new(stage.target.clone())?.open("tpcc.db", JournalMode::Memory)?;
            let mut shop = Shop { db, random: stage.random("tpcc"), now: 0 };
            load::load(&mut shop)?;
            shop.db.execute("update district set d_ytd = d_ytd + 1 where d_id = 3", [])?;
            shop.check()?;
            Ok(Values::new())
        };
        let error = record(1, 0.1, &spoiled).err().expect("condition 1 fails").to_string();
        assert!(error.contains("condition 1"), "{error}");
    }
}
