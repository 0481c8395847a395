//! TPC-C's five transactions.

use super::{DISTRICTS, ITEMS, Shop};
use crate::error::Result;
use rusqlite::{OptionalExtension, params};

/// One new order in a hundred names an item that does not exist, and is rolled back (clause 2.4.1.4).
const UNKNOWN_ITEM: f64 = 0.01;

impl Shop {
    /// Clause 2.4. Returns whether it was committed.
    pub(super) fn new_order(&mut self) -> Result<bool> {
        let (district, customer) = (self.a_district(), self.a_customer());
        let count = self.random.between(5, 15) as i64;
        let unknown = self.random.happens(UNKNOWN_ITEM);
        let lines: Vec<(i64, i64)> =
            (0..count).map(|_| (self.an_item(), self.random.between(1, 10) as i64)).collect();
        self.db.execute_batch("begin immediate")?;
        let tax: f64 = self.db.prepare_cached("select w_tax from warehouse")?.query_row([], |r| r.get(0))?;
        let sql = "update district set d_next_o_id = d_next_o_id + 1 where d_id = ? returning d_next_o_id - 1, d_tax";
        let (order, district_tax): (i64, f64) =
            self.db.prepare_cached(sql)?.query_row([district], |r| Ok((r.get(0)?, r.get(1)?)))?;
        let sql = "select c_discount from customer where c_d_id = ? and c_id = ?";
        let discount: f64 = self.db.prepare_cached(sql)?.query_row([district, customer], |r| r.get(0))?;
        let row = params![district, order, customer, self.now, count];
        self.db.prepare_cached("insert into orders values (?,?,?,?,null,?,1)")?.execute(row)?;
        self.db.prepare_cached("insert into new_order values (?,?)")?.execute([district, order])?;
        for (n, (item, quantity)) in (1..).zip(&lines) {
            let item = if unknown && n == count { ITEMS + 1 } else { *item };
            if !self.order_line(district, order, n, item, *quantity)? {
                self.db.execute_batch("rollback")?;
                return Ok(false);
            }
        }
        debug_assert!((0.0..2.0).contains(&((1.0 + tax + district_tax) * (1.0 - discount))));
        self.db.execute_batch("commit")?;
        Ok(true)
    }

    fn order_line(&self, district: i64, order: i64, number: i64, item: i64, quantity: i64) -> Result<bool> {
        let sql = "select i_price from item where i_id = ?";
        let Some(price) =
            self.db.prepare_cached(sql)?.query_row([item], |r| r.get::<_, f64>(0)).optional()?
        else {
            return Ok(false);
        };
        let sql = "update stock set s_quantity = case when s_quantity >= ?1 + 10 then s_quantity - ?1 else s_quantity - ?1 + 91 end, \
                   s_ytd = s_ytd + ?1, s_order_cnt = s_order_cnt + 1 where s_i_id = ?2 returning substr(s_dist, ?3, 24)";
        let at = (district - 1) * 24 + 1;
        let info: String = self.db.prepare_cached(sql)?.query_row([quantity, item, at], |r| r.get(0))?;
        let row = params![district, order, number, item, quantity, price * quantity as f64, info];
        self.db.prepare_cached("insert into order_line values (?,?,?,?,null,?,?,?)")?.execute(row)?;
        Ok(true)
    }

    /// Clause 2.5.
    pub(super) fn payment(&mut self) -> Result<()> {
        let (district, amount) = (self.a_district(), self.random.between(100, 500_000) as f64 / 100.0);
        let customer = self.find_customer(district)?;
        self.db.execute_batch("begin immediate")?;
        self.db.prepare_cached("update warehouse set w_ytd = w_ytd + ?")?.execute([amount])?;
        let sql = "update district set d_ytd = d_ytd + ? where d_id = ?";
        self.db.prepare_cached(sql)?.execute(params![amount, district])?;
        let sql = "update customer set c_balance = c_balance - ?1, c_ytd_payment = c_ytd_payment + ?1, \
                   c_payment_cnt = c_payment_cnt + 1, c_data = case when c_credit = 'BC' then \
                   substr(c_id || ' ' || c_d_id || ' ' || ?1 || '|' || c_data, 1, 500) else c_data end \
                   where c_d_id = ?2 and c_id = ?3";
        self.db.prepare_cached(sql)?.execute(params![amount, district, customer])?;
        let row = params![customer, district, district, self.now, amount];
        self.db.prepare_cached("insert into history values (?,?,?,?,?,'W1    D')")?.execute(row)?;
        self.db.execute_batch("commit")?;
        Ok(())
    }

    /// Clause 2.6: reads only.
    pub(super) fn order_status(&mut self) -> Result<()> {
        let district = self.a_district();
        let customer = self.find_customer(district)?;
        self.db.execute_batch("begin")?;
        let sql = "select max(o_id) from orders where o_d_id = ? and o_c_id = ?";
        let order: Option<i64> =
            self.db.prepare_cached(sql)?.query_row([district, customer], |r| r.get(0))?;
        if let Some(order) = order {
            let sql = "select count(ol_amount) from order_line where ol_d_id = ? and ol_o_id = ?";
            self.db.prepare_cached(sql)?.query_row([district, order], |r| r.get::<_, i64>(0))?;
        }
        self.db.execute_batch("commit")?;
        Ok(())
    }

    /// Clause 2.7: the oldest order of each district that is not delivered.
    pub(super) fn delivery(&mut self) -> Result<()> {
        let carrier = self.random.between(1, 10) as i64;
        self.db.execute_batch("begin immediate")?;
        for district in 1..=DISTRICTS {
            let sql = "select min(no_o_id) from new_order where no_d_id = ?";
            let Some(order): Option<i64> =
                self.db.prepare_cached(sql)?.query_row([district], |r| r.get(0))?
            else {
                continue;
            };
            let sql = "delete from new_order where no_d_id = ? and no_o_id = ?";
            self.db.prepare_cached(sql)?.execute([district, order])?;
            let sql = "update orders set o_carrier_id = ? where o_d_id = ? and o_id = ? returning o_c_id";
            let customer: i64 =
                self.db.prepare_cached(sql)?.query_row([carrier, district, order], |r| r.get(0))?;
            let sql = "update order_line set ol_delivery_d = ? where ol_d_id = ? and ol_o_id = ?";
            self.db.prepare_cached(sql)?.execute([self.now, district, order])?;
            let sql = "update customer set c_delivery_cnt = c_delivery_cnt + 1, c_balance = c_balance + (select \
                       sum(ol_amount) from order_line where ol_d_id = ?1 and ol_o_id = ?2) where c_d_id = ?1 and c_id = ?3";
            self.db.prepare_cached(sql)?.execute([district, order, customer])?;
        }
        self.db.execute_batch("commit")?;
        Ok(())
    }

    /// Clause 2.8: reads only.
    pub(super) fn stock_level(&mut self) -> Result<()> {
        let (district, threshold) = (self.a_district(), self.random.between(10, 20) as i64);
        let sql = "select count(distinct s_i_id) from order_line join stock on s_i_id = ol_i_id where ol_d_id = ?1 and \
                   ol_o_id >= (select d_next_o_id - 20 from district where d_id = ?1) and s_quantity < ?2";
        self.db.prepare_cached(sql)?.query_row([district, threshold], |r| r.get::<_, i64>(0))?;
        Ok(())
    }
}
