//! TPC-C's consistency conditions (clause 3.3.2), each as a query for what breaks it.

use super::Shop;
use crate::error::{Error, Result};

/// Number of a condition, and a query that counts where it does not hold.
const CONDITIONS: [(u32, &str); 9] = [
    (1, "select count(*) from warehouse where abs(w_ytd - (select sum(d_ytd) from district)) > 0.01"),
    (
        2,
        "select count(*) from district where d_next_o_id - 1 <> (select max(o_id) from orders where o_d_id = d_id)
         or d_next_o_id - 1 <> (select coalesce(max(no_o_id), d_next_o_id - 1) from new_order where no_d_id = d_id)",
    ),
    (
        3,
        "select count(*) from (select max(no_o_id) - min(no_o_id) + 1 - count(*) as gap from new_order group by no_d_id)
         where gap <> 0",
    ),
    (
        4,
        "select count(*) from district where (select sum(o_ol_cnt) from orders where o_d_id = d_id)
         <> (select count(*) from order_line where ol_d_id = d_id)",
    ),
    (
        5,
        "select count(*) from orders left join new_order on no_d_id = o_d_id and no_o_id = o_id
         where (o_carrier_id is null) <> (no_o_id is not null)",
    ),
    (
        6,
        "select count(*) from orders where o_ol_cnt <> (select count(*) from order_line where ol_d_id = o_d_id
         and ol_o_id = o_id)",
    ),
    (
        7,
        "select count(*) from order_line join orders on o_d_id = ol_d_id and o_id = ol_o_id
         where (ol_delivery_d is null) <> (o_carrier_id is null)",
    ),
    (8, "select count(*) from warehouse where abs(w_ytd - (select sum(h_amount) from history)) > 0.01"),
    (
        9,
        "select count(*) from district where abs(d_ytd - (select sum(h_amount) from history where h_d_id = d_id)) > 0.01",
    ),
];

impl Shop {
    /// Fails with the number of the first condition that does not hold.
    pub fn check(&self) -> Result<()> {
        for (number, sql) in CONDITIONS {
            let wrong: i64 = self.db.query_row(sql, [], |row| row.get(0))?;
            if wrong != 0 {
                return Err(Error::Check(format!(
                    "TPC-C's consistency condition {number} does not hold in {wrong} places"
                )));
            }
        }
        Ok(())
    }
}
