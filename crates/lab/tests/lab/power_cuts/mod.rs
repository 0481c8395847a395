//! SQLite on a volume with `durability=adaptive` that loses power: what is found is what a prefix of the transactions
//! left, and no more of them is missing than the bounds allow.
//!
//! A run is decided by its seed: what is in the databases, the journal mode, the volume, the bounds. Its transactions
//! are recorded below the volume. Then power is cut at moments of the record, what was not flushed is lost or stored in
//! part, and volume and databases are opened.
//!
//! A long run: `MEDFS_SEED=7 MEDFS_CUTS=1000 cargo test --release -p medfs-lab --test lab -- --ignored --nocapture
//! many_power_cuts`. A failure prints the variables that repeat it.

mod faults;
mod ledger;
mod rows;
mod scene;

use faults::Fault;
use ledger::{Bounds, Demand, Ledger, Note};
use medfs_device::MemDevice;
use medfs_device::crash::{CrashState, RecordingDevice};
use medfs_lab::backend::Target;
use medfs_lab::backend::volume::VolumeTarget;
use medfs_lab::error::Result;
use medfs_lab::random::Random;
use medfs_lab::scheme::{Scheme, VolumeKind};
use medfs_lab::sqlite::{Database, JournalMode, SqliteFs, chance};
use medfs_lab::workload::tpcc::Shop;
use rows::{FOLDER, Rows, States};
use scene::{Watched, mounted};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const MODES: [JournalMode; 4] =
    [JournalMode::Delete, JournalMode::Truncate, JournalMode::Persist, JournalMode::Wal];
/// Blocks of a volume: 128 MiB.
const BLOCKS: u64 = 1 << 15;
/// Transactions of a run.
const TRANSACTIONS: usize = 40;

/// What the databases hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    /// One of rows.
    One,
    /// Two of rows, attached to each other.
    Two,
    /// TPC-C's.
    Shop,
}

/// What is made in no time.
const ROWS: [Content; 2] = [Content::One, Content::Two];

/// What a seed decides.
#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    mode: JournalMode,
    content: Content,
    volume: VolumeKind,
    bounds: Bounds,
}

impl Plan {
    /// Seeds in a row meet all modes, contents and volumes.
    fn of(seed: u64, contents: &[Content]) -> Plan {
        let bounds = |fsyncs, millis, more| Bounds { fsyncs, age: Duration::from_millis(millis), more };
        let all = [
            bounds(Some(1), 30_000, ""),
            bounds(Some(6), 30_000, ""),
            bounds(Some(9), 2000, ",apps=top"),
            bounds(None, 300, ""),
            bounds(None, 1000, ",apps=top"),
            bounds(None, 30_000, ",durability_bytes=256K"),
            bounds(Some(20), 5000, ",durability_policy=tpl,durability_points=8,durability_tau=200ms"),
            bounds(None, 10_000, ",durability_policy=interval,durability_interval=500ms"),
        ];
        let (n, volumes) = (seed as usize, [VolumeKind::Deltas, VolumeKind::Plain]);
        Plan {
            seed,
            mode: MODES[n % 4],
            volume: volumes[n / 4 % 2],
            content: contents[n / 8 % contents.len()],
            bounds: *Random::new(seed, "bounds").pick(&all),
        }
    }

    fn attached(&self) -> bool {
        self.content == Content::Two
    }

    fn options(&self) -> String {
        let deltas = if self.volume == VolumeKind::Deltas { ",compact_files=all" } else { "" };
        format!("{}{deltas},in_place=force", self.bounds.options())
    }

    /// Opens what is there.
    fn open(&self, target: Arc<dyn Target>) -> Result<Database> {
        match self.content {
            Content::Shop => {
                let db = SqliteFs::new(target)?.open(&format!("{FOLDER}/tpcc.db"), self.mode)?;
                rows::settle(&db, self.mode, "main")?;
                Ok(db)
            }
            _ => rows::open(target, self.mode, self.attached()),
        }
    }

    fn states(&self, db: &Database) -> Result<States> {
        match self.content {
            Content::Shop => Ok(vec![shop_state(db)?]),
            _ => rows::states(db, self.attached()),
        }
    }

    /// A volume with the databases, which nothing waits for.
    fn prepared(&self) -> Result<MemDevice> {
        static SHOPS: [OnceLock<MemDevice>; 2] = [OnceLock::new(), OnceLock::new()];
        if self.content == Content::Shop {
            let shop = &SHOPS[usize::from(self.volume == VolumeKind::Plain)];
            return Ok(shop.get_or_init(|| self.made().expect("TPC-C is loaded")).snapshot());
        }
        self.made()
    }

    fn made(&self) -> Result<MemDevice> {
        let device = Arc::new(MemDevice::new(BLOCKS));
        let scheme = Scheme {
            name: String::new(),
            about: String::new(),
            volume: self.volume,
            compression: false,
            options: String::new(),
        };
        medfs_mkfs::format_volume(&*device, &scheme.mkfs_options(self.seed)).expect("it is formatted");
        let target = Arc::new(mounted(device.clone(), "rw").expect("it is mounted"));
        target.mkdir(FOLDER).expect("a directory is made");
        let random = Random::new(self.seed, "before");
        match self.content {
            Content::Shop => {
                let path = format!("{FOLDER}/tpcc.db");
                drop(Shop::made(SqliteFs::new(target.clone())?.open(&path, JournalMode::Off)?, random)?);
            }
            _ => drop(Rows::made(self.open(target.clone())?, self.attached(), random)?),
        }
        target.unmount().expect("it is unmounted");
        Ok(device.snapshot())
    }
}

/// Sums over TPC-C's tables that every transaction which writes changes.
fn shop_state(db: &Database) -> Result<u64> {
    let sums =
        "select (select count(*) from history) || ' ' || (select total(h_amount) from history) || ' ' ||
        (select count(*) from orders) || ' ' || (select count(*) from new_order) || ' ' ||
        (select total(d_next_o_id) || ' ' || total(d_ytd) from district) || ' ' ||
        (select total(c_balance) || ' ' || total(c_delivery_cnt) from customer) || ' ' ||
        (select count(*) || ' ' || total(ol_amount) from order_line) || ' ' ||
        (select total(s_ytd) || ' ' || total(s_quantity) from stock)";
    let sums: String = db.query_row(sums, [], |row| row.get(0))?;
    let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    Ok(sums.bytes().fold(0xcbf2_9ce4_8422_2325, hash))
}

/// A finished run.
struct Run {
    plan: Plan,
    /// By which it is judged.
    bounds: Bounds,
    ledger: Arc<Ledger>,
    device: Arc<RecordingDevice>,
    /// After each number of transactions.
    states: Vec<States>,
}

/// Transactions of either kind.
enum Work {
    Rows(Rows),
    Shop(Shop),
}

impl Work {
    fn database(&self) -> &Database {
        match self {
            Work::Rows(rows) => &rows.db,
            Work::Shop(shop) => shop.database(),
        }
    }
}

impl Run {
    /// Does what the plan says, with a fault.
    fn new(plan: Plan, fault: Fault) -> Result<Run> {
        let device = Arc::new(RecordingDevice::new(&plan.prepared()?));
        let ledger = Arc::new(Ledger::new(device.clone()));
        let volume = mounted(fault.over(device.clone()), &plan.options()).expect("the volume is mounted");
        let target = Arc::new(Watched::new(volume, ledger.clone(), fault));
        let mut random = Random::new(plan.seed, "run");
        let db = plan.open(target.clone())?;
        let drawn = Random::new(plan.seed, "transactions");
        let mut work = match plan.content {
            Content::Shop => Work::Shop(Shop::open(db, drawn)),
            _ => Work::Rows(Rows::open(db, plan.attached(), drawn)?),
        };
        let mut states = vec![plan.states(work.database())?];
        for _ in 0..TRANSACTIONS {
            // A transaction of TPC-C decides by itself.
            let commits = plan.content == Content::Shop || random.happens(0.9);
            let (early, late) = if fault == Fault::EarlyCommit { (true, false) } else { (false, true) };
            if commits {
                ledger.note(Note::Began);
                early.then(|| ledger.note(Note::Committed));
            }
            match &mut work {
                Work::Rows(rows) => rows.transaction(commits)?,
                Work::Shop(shop) => drop(shop.transaction()?),
            }
            if commits {
                late.then(|| ledger.note(Note::Committed));
                states.push(plan.states(work.database())?);
            }
            if random.happens(0.06) {
                target.sync().expect("a barrier");
            }
            let millis = *random.pick(&[0, 0, 7, 90, 400, 1700]);
            target.pass(Duration::from_millis(millis)).expect("time passes");
        }
        Ok(Run { plan, bounds: plan.bounds, ledger, device, states })
    }

    /// Power is lost: what is found.
    fn judge(&self, state: &CrashState) -> std::result::Result<Found, String> {
        let demand = self.ledger.demand(state, &self.bounds);
        let text = |e: medfs_lab::error::Error| format!("{e}, of {demand:?}");
        let volume = mounted(Arc::new(state.device()), &self.plan.options());
        let volume: Arc<VolumeTarget> = Arc::new(volume.map_err(|e| format!("no mount: {e}"))?);
        let interrupted = self.plan.content != Content::Shop && rows::is_interrupted(&*volume);
        let db = self.plan.open(volume).map_err(text)?;
        rows::integrity(&db, self.plan.attached()).map_err(text)??;
        let found = self.plan.states(&db).map_err(text)?;
        let of = |(n, state): (usize, &u64)| {
            (demand.least..=demand.begun)
                .rfind(|k| self.states.get(*k).is_some_and(|all| all[n] == *state))
                .ok_or_else(|| {
                    let any = self.states.iter().rposition(|all| all[n] == *state);
                    format!("database {n} is that after transaction {any:?} of {demand:?}")
                })
        };
        let last = found.iter().enumerate().map(of).collect::<std::result::Result<Vec<_>, _>>()?;
        let (first, apart) = (last[0], last[0] - last.iter().copied().min().unwrap_or(0));
        // Logs are committed one after the other, and one journal above all makes other journals count together.
        let allowed = usize::from(self.plan.mode == JournalMode::Wal);
        if apart > allowed || last.iter().any(|k| *k > first) {
            return Err(format!("the databases are those after transactions {last:?} of {demand:?}"));
        }
        if self.plan.content == Content::Shop {
            Shop::open(db, Random::new(0, "")).check().map_err(text)?;
        }
        Ok(Found { last: first - apart, interrupted, demand })
    }
}

/// What a cut left.
struct Found {
    /// The last transaction.
    last: usize,
    /// SQLite rolled one back.
    interrupted: bool,
    demand: Demand,
}

/// What was seen.
#[derive(Debug, Default)]
struct Seen {
    cuts: usize,
    /// Cuts that left a part of a transaction, and the journal that takes it back.
    interrupted: usize,
    /// Cuts that took a committed transaction.
    took: usize,
    /// Cuts that took all that a bound allows.
    tight: usize,
}

/// Cuts power so often in runs from a seed on.
fn cut(first: u64, count: usize, each: usize, contents: &[Content]) -> Seen {
    let mut seen = Seen::default();
    for seed in first.. {
        if seen.cuts >= count {
            break;
        }
        let plan = Plan::of(seed, contents);
        let _repeats = chance(seed);
        let run = Run::new(plan, Fault::None).unwrap_or_else(|e| panic!("MEDFS_SEED={seed}: {e}"));
        for state in run.device.recording().cuts(each.min(count - seen.cuts), seed) {
            match run.judge(&state) {
                Ok(Found { last, interrupted, demand }) => {
                    seen.cuts += 1;
                    seen.interrupted += usize::from(interrupted);
                    seen.took += usize::from(last < demand.committed);
                    seen.tight += usize::from(last == demand.least && last < demand.committed);
                }
                Err(e) => panic!("MEDFS_SEED={seed} MEDFS_CUTS={each}: {e}\n{plan:?}\n{state:?}"),
            }
        }
    }
    println!("{seen:?}");
    seen
}

#[test]
fn transactions_after_power_cuts_are_a_prefix_within_the_bounds() {
    let seen = cut(0, 96, 6, &ROWS);
    assert!(
        seen.took >= 20 && seen.tight >= 5 && seen.interrupted >= 5,
        "too little is lost to judge anything: {seen:?}"
    );
}

/// Whether power cuts show what is wrong with runs of these plans, judged by these bounds.
fn is_noticed(fault: Fault, plan: impl Fn(u64) -> Plan, bounds: impl Fn(Bounds) -> Bounds) -> bool {
    (0..16).any(|seed| {
        let _repeats = chance(seed);
        let mut run = Run::new(plan(seed), fault).expect("it runs");
        run.bounds = bounds(run.bounds);
        run.device.recording().cuts(12, seed).any(|state| {
            let judged = run.judge(&state);
            judged.inspect_err(|e| println!("{fault:?}, seed {seed}: {e}")).is_err()
        })
    })
}

#[test]
fn what_is_promised_and_not_kept_is_noticed() {
    let plan = |seed| Plan::of(seed, &ROWS);
    for fault in [Fault::LateBlock, Fault::NoBarrier, Fault::NoTimer, Fault::EarlyCommit] {
        assert!(is_noticed(fault, plan, |bounds| bounds), "{fault:?} is not noticed");
    }
    let none = |bounds: Bounds| Bounds { fsyncs: None, age: Duration::from_secs(86_400), ..bounds };
    assert!(is_noticed(Fault::NoFlush, plan, none), "another order is not noticed");
    // The fifth fsync commits, which is that of the first of two databases.
    let bounds = Bounds { fsyncs: Some(4), age: Duration::from_secs(30), more: "" };
    let torn = |seed| Plan { mode: JournalMode::Memory, content: Content::Two, bounds, ..plan(seed) };
    assert!(is_noticed(Fault::None, torn, none), "parts of a transaction are not noticed");
    let fewer = |bounds: Bounds| Bounds { fsyncs: bounds.fsyncs.map(|most| most - 1), ..bounds };
    assert!(is_noticed(Fault::None, plan, fewer), "one fsync less than the bound says is not noticed");
    // A commit begins half of a short age early.
    let younger = |bounds: Bounds| Bounds { age: bounds.age / 3, ..bounds };
    assert!(is_noticed(Fault::None, plan, younger), "a third of the age is not noticed");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().expect("a number"))
}

#[test]
#[ignore = "a long run"]
fn many_power_cuts() {
    let first = number("MEDFS_SEED").unwrap_or(std::process::id().into());
    let count = number("MEDFS_CUTS").unwrap_or(1000) as usize;
    println!("MEDFS_SEED={first} MEDFS_CUTS={count}");
    cut(first, count, 16, &[Content::One, Content::Two, Content::Shop]);
}
