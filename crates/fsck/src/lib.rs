//! Checks and repairs F2FS volumes, and shows their structures.
//!
//! - [`check`] reads a whole volume and reports typed [`Finding`]s with stable [`Code`]s.
//! - [`repair`] mends them; a second check is then clean.
//! - [`dump`] shows superblock, checkpoint, NAT, SIT, inodes and paths as text and as serialisable values.
//!
//! Invariants: a check writes nothing; a repair leaves a readable volume at every moment and makes its checkpoint
//! last; bytes from the device never panic, hang or allocate without bound (memory is a bit for each block and node
//! id, a byte for each segment, and small change).
#![forbid(unsafe_code)]

mod acls;
mod address;
mod ahead;
mod anew;
mod attributes;
mod bared;
mod body;
mod cache;
mod check;
mod cluster;
mod cluster_size;
mod compact;
mod damage_found;
mod damaged;
mod deltas;
mod dir;
mod division;
mod entries;
mod entry_walk;
mod erased;
mod evidence;
mod file;
mod finding;
mod foreign;
mod gone;
mod head;
mod holes;
mod image;
mod in_force;
mod inode;
mod inode_layout;
mod judgement;
mod led;
mod lengths;
mod load;
mod log;
mod log_addresses;
mod log_gap;
mod log_node;
mod lost;
mod lost_clusters;
mod lost_file;
mod lost_log;
mod lost_names;
mod lost_sit;
mod maker;
mod medium;
mod mend;
mod missing;
mod named;
mod names;
mod no_header;
mod no_pack;
mod no_super;
mod nodes;
mod old_inode;
mod options;
mod own_list;
mod pack;
mod placed;
mod quota;
mod reach;
mod rebuild;
mod remains;
mod renew;
mod root;
mod settle_slices;
mod sizes;
mod slices;
mod slots;
mod space;
mod strays;
mod superblock;
mod supply;
mod tables;
mod target;
mod tools;
mod traits;
pub mod undo;
mod unnamed;
mod untold;
mod usual;
mod walk;
mod zone;

pub use bared::{Bared, repair_without_names};
pub use check::{Counted, Repair, RepairError, Report, check, repair, repair_found};
pub use damaged::{Damage, DamagedFile, DamagedFiles, LostFile};
pub use finding::{Altered, Code, Cut, Finding, Losses, Reverted, Severity};
pub use log::FsyncLog;
pub use log_gap::LogGaps;
pub use no_header::shows_nodes;
pub use no_super::{begins_at, shows_volume};
pub use options::Options;
pub use tools::dump;
#[cfg(feature = "test-support")]
pub use tools::inject;

/// What a device writes as a whole, in bytes.
pub(crate) const SECTOR: usize = 512;
