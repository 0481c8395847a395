//! ARS's figures and tables: files in pieces, what pieces cost, and which files get sections of their own.
//!
//! | experiment | where |
//! |---|---|
//! | Fig. 1, 2 and 4: reading and writing files that lie in pieces | [`fragments`] |
//! | Fig. 5: free space in pieces, and cleaning | [`aged`] |
//! | Fig. 6: transactions of SQLite | [`databases`] |
//! | Fig. 7, Table II: applications; what learning costs | [`traces`] |
//! | Table I: how well trees judge | [`trees`] |

mod aged;
mod bed;
mod databases;
mod fragments;
mod traces;
mod trees;

pub(super) use aged::free_space;
pub(super) use databases::transactions;
pub(super) use fragments::{io, one_file, pieces};
pub(super) use traces::{applications, costs};
pub(super) use trees::table;
