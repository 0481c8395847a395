//! TPC-C's tables and what is in them before (clause 4.3).

use super::{C_LAST, CUSTOMERS, DISTRICTS, ITEMS, Shop, last_name};
use crate::content::{Content, Writer};
use crate::error::Result;
use rusqlite::params;

const SCHEMA: &str = "
create table warehouse (w_id integer primary key, w_name text, w_street text, w_city text, w_tax real, w_ytd real);
create table district (d_id integer primary key, d_name text, d_street text, d_tax real, d_ytd real, d_next_o_id integer);
create table customer (c_d_id integer, c_id integer, c_first text, c_last text, c_street text, c_phone text, c_since integer,
  c_credit text, c_discount real, c_balance real, c_ytd_payment real, c_payment_cnt integer, c_delivery_cnt integer,
  c_data text, primary key (c_d_id, c_id)) without rowid;
create index customer_name on customer (c_d_id, c_last, c_first);
create table history (h_c_id integer, h_c_d_id integer, h_d_id integer, h_date integer, h_amount real, h_data text);
create table new_order (no_d_id integer, no_o_id integer, primary key (no_d_id, no_o_id)) without rowid;
create table orders (o_d_id integer, o_id integer, o_c_id integer, o_entry_d integer, o_carrier_id integer, o_ol_cnt integer,
  o_all_local integer, primary key (o_d_id, o_id)) without rowid;
create index orders_customer on orders (o_d_id, o_c_id, o_id);
create table order_line (ol_d_id integer, ol_o_id integer, ol_number integer, ol_i_id integer, ol_delivery_d integer,
  ol_quantity integer, ol_amount real, ol_dist_info text, primary key (ol_d_id, ol_o_id, ol_number)) without rowid;
create table item (i_id integer primary key, i_im_id integer, i_name text, i_price real, i_data text);
create table stock (s_i_id integer primary key, s_quantity integer, s_dist text, s_ytd integer, s_order_cnt integer,
  s_remote_cnt integer, s_data text);";

/// Makes and fills the tables.
pub(super) fn load(shop: &mut Shop) -> Result<()> {
    let mut writer = Writer::new(C_LAST);
    shop.db.execute_batch(SCHEMA)?;
    shop.db.execute_batch("begin")?;
    items(shop, &mut writer)?;
    shop.db.execute(
        "insert into warehouse values (1,'W1','1 Main Street','Springfield',0.05,?)",
        [300_000.0 / 10.0],
    )?;
    for district in 1..=DISTRICTS {
        let row = params![
            district,
            format!("D{district}"),
            writer.say(&mut shop.random, 2, 3),
            3000.0,
            CUSTOMERS + 1
        ];
        shop.db.execute("insert into district values (?,?,?,0.07,?,?)", row)?;
        customers(shop, &mut writer, district)?;
        orders(shop, district)?;
    }
    shop.db.execute_batch("commit")?;
    Ok(())
}

fn text(shop: &mut Shop, writer: &mut Writer, len: usize) -> String {
    let bytes = writer.make(&mut shop.random, Content::Text, len);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn items(shop: &mut Shop, writer: &mut Writer) -> Result<()> {
    for id in 1..=ITEMS {
        let (name, data) = (writer.say(&mut shop.random, 2, 3), text(shop, writer, 38));
        let price = shop.random.between(100, 10_000) as f64 / 100.0;
        let sql = "insert into item values (?,?,?,?,?)";
        shop.db.prepare_cached(sql)?.execute(params![id, id % 100, name, price, data])?;
        let (dist, data) = (text(shop, writer, 240), text(shop, writer, 38));
        let quantity = shop.random.between(10, 100) as i64;
        let sql = "insert into stock values (?,?,?,0,0,0,?)";
        shop.db.prepare_cached(sql)?.execute(params![id, quantity, dist, data])?;
    }
    Ok(())
}

fn customers(shop: &mut Shop, writer: &mut Writer, district: i64) -> Result<()> {
    for id in 1..=CUSTOMERS {
        let (first, street) = (writer.say(&mut shop.random, 1, 2), writer.say(&mut shop.random, 2, 3));
        let data = text(shop, writer, 300);
        let credit = if shop.random.happens(0.1) { "BC" } else { "GC" };
        let sql = "insert into customer values (?,?,?,?,?,?,?,?,?,-10.0,10.0,1,0,?)";
        let discount = shop.random.below(5000) as f64 / 10_000.0;
        let name = last_name(id as u64 - 1);
        let row =
            params![district, id, first, name, street, "0123456789012345", shop.now, credit, discount, data];
        shop.db.prepare_cached(sql)?.execute(row)?;
        let row = params![id, district, district, shop.now];
        shop.db.prepare_cached("insert into history values (?,?,?,?,10.0,'first payment')")?.execute(row)?;
    }
    Ok(())
}

/// One order for each customer; the last three tenths are not delivered.
fn orders(shop: &mut Shop, district: i64) -> Result<()> {
    let mut customers: Vec<i64> = (1..=CUSTOMERS).collect();
    shop.random.shuffle(&mut customers);
    for (order, customer) in (1..).zip(customers) {
        let (lines, delivered) = (shop.random.between(5, 15) as i64, order <= CUSTOMERS * 7 / 10);
        let carrier = delivered.then(|| shop.random.between(1, 10) as i64);
        let row = params![district, order, customer, shop.now, carrier, lines];
        shop.db.prepare_cached("insert into orders values (?,?,?,?,?,?,1)")?.execute(row)?;
        for line in 1..=lines {
            let amount = if delivered { 0.0 } else { shop.random.between(1, 999_999) as f64 / 100.0 };
            let item = shop.random.between(1, ITEMS as u64) as i64;
            let row = params![district, order, line, item, delivered.then_some(shop.now), amount];
            let sql = "insert into order_line values (?,?,?,?,?,5,?,'distribution information')";
            shop.db.prepare_cached(sql)?.execute(row)?;
        }
        if !delivered {
            shop.db
                .prepare_cached("insert into new_order values (?,?)")?
                .execute(params![district, order])?;
        }
    }
    Ok(())
}
