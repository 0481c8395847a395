//! The smaller TPC-C that was measured on kernel file systems (`tools/kernel-peer/workloads/sqlite-tpcc.py`): its
//! tables, its mix and the content of its rows, so that a model of a file system can be set against what one wrote.

use crate::error::{Error, Result};
use crate::random::Random;
use crate::sqlite::{Database, JournalMode, SqliteFs};
use crate::workload::stage::{Stage, Values};
use rusqlite::params;
use std::time::Duration;

const DISTRICTS: u64 = 10;
const CUSTOMERS: u64 = 30;
const ITEMS: u64 = 1000;
const TRANSACTIONS: u64 = 500;
/// What a transaction took in the guest.
const EACH: Duration = Duration::from_millis(14);
/// Letters of its texts.
const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz      ";

const SCHEMA: &str = "
create table warehouse (w_id integer primary key, w_name text, w_ytd real);
create table district (d_id integer primary key, d_name text, d_tax real, d_ytd real, d_next_o_id integer);
create table customer (c_id integer, c_d_id integer, c_last text, c_street text, c_balance real, c_ytd real, c_cnt integer,
  c_data text, primary key (c_d_id, c_id));
create index customer_last on customer (c_d_id, c_last);
create table history (h_id integer primary key, h_c_id integer, h_d_id integer, h_date integer, h_amount real, h_data text);
create table orders (o_id integer, o_d_id integer, o_c_id integer, o_entry integer, o_carrier integer, o_cnt integer,
  primary key (o_d_id, o_id));
create index orders_c on orders (o_d_id, o_c_id, o_id);
create table new_order (no_o_id integer, no_d_id integer, primary key (no_d_id, no_o_id));
create table order_line (ol_o_id integer, ol_d_id integer, ol_n integer, ol_i_id integer, ol_qty integer, ol_amount real,
  ol_dist text, primary key (ol_d_id, ol_o_id, ol_n));
create table item (i_id integer primary key, i_name text, i_price real, i_data text);
create table stock (s_i_id integer primary key, s_qty integer, s_dist text, s_ytd integer, s_cnt integer, s_data text);";

struct Shop {
    db: Database,
    random: Random,
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

fn run(stage: &Stage, mode: JournalMode) -> Result<Values> {
    stage.target.mkdir("sqlite-tpcc").map_err(Error::io("making a directory"))?;
    let fs = SqliteFs::new(stage.target.clone())?;
    let open = || fs.open("sqlite-tpcc/tpcc.db", mode);
    let mut shop = Shop { db: open()?, random: stage.random("peer"), now: 0 };
    shop.load()?;
    // It is closed before what is measured, and within it.
    let random = shop.random;
    drop(shop.db);
    stage.setup_done()?;
    let mut shop = Shop { db: open()?, random, now: 0 };
    let total = stage.scaled(TRANSACTIONS, 20);
    for _ in 0..total {
        shop.transaction()?;
        stage.target.pass(EACH).map_err(Error::io("letting time pass"))?;
    }
    shop.db.check()?;
    drop(shop.db);
    Ok(Values::from([("transactions".to_owned(), total as f64)]))
}

impl Shop {
    fn text(&mut self, least: u64, most: u64) -> String {
        let len = self.random.between(least, most);
        (0..len).map(|_| char::from(*self.random.pick(LETTERS))).collect()
    }

    fn number(&mut self, most: u64) -> i64 {
        self.random.between(1, most) as i64
    }

    fn load(&mut self) -> Result<()> {
        self.db.execute_batch(SCHEMA)?;
        self.db.execute_batch("begin")?;
        let name = self.text(6, 10);
        self.db.execute("insert into warehouse values (1,?,0)", [name])?;
        for item in 1..=ITEMS as i64 {
            let (name, data) = (self.text(14, 24), self.text(26, 50));
            let row = params![item, name, self.random.unit() * 99.0 + 1.0, data];
            self.db.prepare_cached("insert into item values (?,?,?,?)")?.execute(row)?;
            let (quantity, dist, data) =
                (self.random.between(10, 100) as i64, self.text(240, 240), self.text(26, 50));
            let row = params![item, quantity, dist, data];
            self.db.prepare_cached("insert into stock values (?,?,?,0,0,?)")?.execute(row)?;
        }
        for district in 1..=DISTRICTS as i64 {
            let (name, tax) = (self.text(6, 10), self.random.unit() / 5.0);
            let sql = "insert into district values (?,?,?,0,1)";
            self.db.prepare_cached(sql)?.execute(params![district, name, tax])?;
            for customer in 1..=CUSTOMERS as i64 {
                let (last, street, data) = (self.text(8, 16), self.text(20, 40), self.text(300, 500));
                let row = params![customer, district, last, street, data];
                let sql = "insert into customer values (?,?,?,?,-10,10,1,?)";
                self.db.prepare_cached(sql)?.execute(row)?;
            }
        }
        Ok(self.db.execute_batch("commit")?)
    }

    fn transaction(&mut self) -> Result<()> {
        let kind = self.random.below(100);
        let (district, customer) = (self.number(DISTRICTS), self.number(CUSTOMERS));
        self.now += 1;
        self.db.execute_batch(if kind < 92 { "begin immediate" } else { "begin" })?;
        match kind {
            0..45 => self.new_order(district, customer)?,
            45..88 => self.payment(district, customer)?,
            88..92 => (1..=DISTRICTS as i64).try_for_each(|district| self.deliver(district))?,
            92..96 => self.order_status(district, customer)?,
            _ => self.stock_level(district)?,
        }
        Ok(self.db.execute_batch("commit")?)
    }

    fn new_order(&mut self, district: i64, customer: i64) -> Result<()> {
        let lines = self.random.between(5, 15) as i64;
        let sql =
            "update district set d_next_o_id = d_next_o_id + 1 where d_id = ? returning d_next_o_id - 1";
        let order: i64 = self.db.prepare_cached(sql)?.query_row([district], |row| row.get(0))?;
        let row = params![order, district, customer, self.now, lines];
        self.db.prepare_cached("insert into orders values (?,?,?,?,null,?)")?.execute(row)?;
        self.db.prepare_cached("insert into new_order values (?,?)")?.execute([order, district])?;
        for line in 1..=lines {
            let (item, quantity) = (self.number(ITEMS), self.number(10));
            let sql = "select i_price from item where i_id = ?";
            let price: f64 = self.db.prepare_cached(sql)?.query_row([item], |row| row.get(0))?;
            let sql = "select s_qty, s_dist from stock where s_i_id = ?";
            let (stock, dist): (i64, String) =
                self.db.prepare_cached(sql)?.query_row([item], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let left = if stock > quantity + 10 { stock - quantity } else { stock - quantity + 91 };
            let sql = "update stock set s_qty = ?, s_ytd = s_ytd + ?, s_cnt = s_cnt + 1 where s_i_id = ?";
            self.db.prepare_cached(sql)?.execute([left, quantity, item])?;
            let at = 24 * (district as usize - 1);
            let row =
                params![order, district, line, item, quantity, quantity as f64 * price, &dist[at..at + 24]];
            self.db.prepare_cached("insert into order_line values (?,?,?,?,?,?,?)")?.execute(row)?;
        }
        Ok(())
    }

    fn payment(&mut self, district: i64, customer: i64) -> Result<()> {
        let (amount, text) = (self.random.unit() * 4999.0 + 1.0, self.text(12, 24));
        let sql = "update warehouse set w_ytd = w_ytd + ? where w_id = 1";
        self.db.prepare_cached(sql)?.execute([amount])?;
        let sql = "update district set d_ytd = d_ytd + ? where d_id = ?";
        self.db.prepare_cached(sql)?.execute(params![amount, district])?;
        let sql = "update customer set c_balance = c_balance - ?1, c_ytd = c_ytd + ?1, c_cnt = c_cnt + 1
                   where c_d_id = ?2 and c_id = ?3";
        self.db.prepare_cached(sql)?.execute(params![amount, district, customer])?;
        let sql = "insert into history (h_c_id, h_d_id, h_date, h_amount, h_data) values (?,?,?,?,?)";
        let row = params![customer, district, self.now, amount, text];
        self.db.prepare_cached(sql)?.execute(row)?;
        Ok(())
    }

    fn deliver(&mut self, district: i64) -> Result<()> {
        let sql = "select min(no_o_id) from new_order where no_d_id = ?";
        let oldest: Option<i64> = self.db.prepare_cached(sql)?.query_row([district], |row| row.get(0))?;
        let Some(order) = oldest else { return Ok(()) };
        let sql = "delete from new_order where no_d_id = ? and no_o_id = ?";
        self.db.prepare_cached(sql)?.execute([district, order])?;
        let carrier = self.number(10);
        let sql = "update orders set o_carrier = ? where o_d_id = ? and o_id = ?";
        self.db.prepare_cached(sql)?.execute([carrier, district, order])?;
        let sql = "update customer set c_balance = c_balance + (select sum(ol_amount) from order_line
                   where ol_d_id = ?1 and ol_o_id = ?2)
                   where c_d_id = ?1 and c_id = (select o_c_id from orders where o_d_id = ?1 and o_id = ?2)";
        self.db.prepare_cached(sql)?.execute([district, order])?;
        Ok(())
    }

    fn order_status(&mut self, district: i64, customer: i64) -> Result<()> {
        let sql = "select count(ol_dist) from order_line where ol_d_id = ?1 and ol_o_id =
                   (select max(o_id) from orders where o_d_id = ?1 and o_c_id = ?2)";
        let _: i64 = self.db.prepare_cached(sql)?.query_row([district, customer], |row| row.get(0))?;
        Ok(())
    }

    fn stock_level(&mut self, district: i64) -> Result<()> {
        let sql = "select count(distinct s_i_id) from order_line, stock where ol_d_id = ?1 and ol_o_id >=
                   (select d_next_o_id - 20 from district where d_id = ?1) and s_i_id = ol_i_id and s_qty < 15";
        let _: i64 = self.db.prepare_cached(sql)?.query_row([district], |row| row.get(0))?;
        Ok(())
    }
}
