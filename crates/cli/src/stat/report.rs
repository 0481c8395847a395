//! The statistics of a mounted volume as a report of 80 columns: numbers of the daemon, rates made of them,
//! and what each of them means.

use super::derived::Derived;
use crate::words::{COLUMNS, count, grouped};
use crate::{lifetime, size};
use medfs_device::quote;
use serde_json::Value;
use std::cmp::Reverse;

/// Widths of a row's name and value, and of all of it.
const NAME: usize = 24;
const VALUE: usize = 14;

/// Apps that are listed.
const MOST_APPS: usize = 20;

/// Text with a section for each part of the engine.
pub(super) struct Report<'a> {
    stats: &'a Value,
    text: String,
}

impl<'a> Report<'a> {
    /// The whole report.
    pub(super) fn of(stats: &'a Value, derived: &Derived) -> String {
        let mut report = Report { stats, text: String::new() };
        report.summary(derived);
        report.writing();
        report.adaptive();
        report.apps();
        report.survivor();
        report.nvram();
        report.deltas(derived);
        report.compression();
        report.caches(derived);
        report.hotness();
        report.volume();
        report.lifetime(derived);
        report.text
    }

    fn number(&self, path: &str) -> u64 {
        at(self.stats, path).as_u64().unwrap_or(0)
    }

    fn section(&mut self, title: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(title);
        self.text.push('\n');
    }

    fn row(&mut self, name: &str, value: &str, note: &str) {
        let line = format!("  {name:<NAME$}{value:>VALUE$}  {note}");
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn count(&mut self, name: &str, path: &str, note: &str) {
        let value = grouped(self.number(path));
        self.row(name, &value, note);
    }

    fn rate(&mut self, name: &str, rate: Option<f64>, note: &str) {
        self.row(name, &percent(rate), note);
    }

    /// A count of a mechanism that may be off, or had nothing to do: no line then.
    fn some(&mut self, name: &str, path: &str, note: &str) {
        if self.number(path) > 0 {
            self.count(name, path, note);
        }
    }

    /// Whether a mount option is in force.
    fn has_option(&self, option: &str) -> bool {
        let all = at(self.stats, "options").as_array();
        all.is_some_and(|all| all.iter().any(|in_force| in_force.as_str() == Some(option)))
    }

    /// The value of a mount option that is in force.
    fn option(&self, name: &str) -> Option<String> {
        let all = at(self.stats, "options").as_array()?;
        let mut values =
            all.iter().filter_map(|option| option.as_str()?.strip_prefix(name)?.strip_prefix('='));
        values.next().map(str::to_owned)
    }

    /// What the owner of a card wants to know.
    fn summary(&mut self, derived: &Derived) {
        if let Some(failure) = at(self.stats, "failure").as_str() {
            self.text.push_str(&format!("  READ-ONLY after an error: {failure}\n"));
        }
        match at(self.stats, "image").as_str() {
            Some("removed") => self
                .text
                .push_str("  IMAGE REMOVED while it is mounted: copy the files before you unmount it\n"),
            Some("replaced") => {
                self.text.push_str("  IMAGE REPLACED by another file: copy the files before you unmount it\n")
            }
            Some(_) => self.text.push_str("  IMAGE CUT SHORT while it is mounted: copy the files\n"),
            None => {}
        }
        let life = size::show(self.number("kbytes_written").saturating_mul(1024));
        let written = size::show(self.number("written_bytes"));
        self.row("written to the card", &written, &format!("since the mount, of {life} counted"));
        if derived.saved_bytes > 0 {
            let less = percent(derived.saved_share);
            self.row(
                "saved by deltas",
                &size::show(derived.saved_bytes),
                &format!("{less} of what it would be"),
            );
        } else if !self.has_option("delta=off") {
            self.row("saved by deltas", &size::show(0), "no small update yet");
        }
        match &derived.lifetime {
            Some(life) => {
                let (without, cycles) = (lifetime::show(life.years_without), life.card.pe_cycles);
                let without = format!("{cycles} cycles; {without} without deltas");
                self.row("lifetime of the card", &lifetime::show(life.years), &without);
            }
            None => self.row("lifetime of the card", "-", "estimated after a minute with writes"),
        }
    }

    fn writing(&mut self) {
        self.section("Written to the device since the mount, in blocks of 4 KiB");
        self.count("written data", "written.data", "content and directories");
        self.count("written node", "written.node", "inodes and lists of addresses");
        self.some("written compact", "written.compact", "pages that hold several deltas");
        self.count("written meta", "written.meta", "checkpoints, NAT, SIT, SSA");
        self.count("written gc", "written.gc", "moved by cleaning");
        self.some("overwritten in place", "in_place_blocks", "of the data");
        self.some("discarded", "discarded", "the card may forget them");
        self.some("read", "read", "");
        self.count("flushes", "flushes", "");
        self.count("fsyncs", "fsyncs", "");
        let of_changed = match at(self.stats, "nvram").is_null() {
            true => "each writes at least a block",
            false => "to the NVRAM, or at least a block each",
        };
        self.count("  of changed files", "fsyncs_dirty", of_changed);
        self.count("  by a checkpoint", "fsyncs_with_checkpoint", "roll-forward could not restore it");
        self.some("  shared node blocks", "shared_nodes", "of files fsynced at the same moment");
        self.some("  inodes in these", "shared_inodes", "which would have taken a block each");
        self.some("  of directories, free", "dir_fsyncs_saved", "roll-forward restores the names");
        self.some("  sealed", "sealed", "one flush for data and node");
        self.some("  flushed twice", "flushed_first", "the data before the node");
        self.count("checkpoints", "checkpoints", "");
        self.count("sections cleaned", "gc_sections", "");
        self.count("  for want of space", "gc_foreground", "while a write waited");
        if self.has_option("placement=reserve") {
            let budget = self.option("defragment_budget").and_then(|bytes| size::parse(&bytes).ok());
            let budget = size::show(budget.unwrap_or_default());
            let note = format!("of reserved files, in idle time: at most {budget} a day");
            self.count("pages brought home", "brought_home", &note);
        }
    }

    /// What a power cut would take now.
    fn nvram(&mut self) {
        if at(self.stats, "nvram").is_null() {
            return;
        }
        let place = at(self.stats, "nvram.place").as_str().unwrap_or_default().to_owned();
        self.section(&format!("fsyncs in the NVRAM {place}"));
        let of = size::show(self.number("nvram.bytes"));
        self.row("in use", &size::show(self.number("nvram.used")), &format!("of {of}"));
        self.count("pages held only there", "nvram.pages_held", "until the next checkpoint");
        self.some("  away from memory", "nvram.pages_away", "as what they differ by from their blocks");
        let (records, bytes) = (self.number("nvram.records"), self.number("nvram.record_bytes"));
        let mean = bytes.checked_div(records).unwrap_or_default();
        self.count("fsyncs it absorbed", "nvram.records", &format!("{mean} bytes each"));
        self.count("  pages in them", "nvram.pages", "");
        self.count(
            "    made of other pages",
            "nvram.from_parts",
            "rebuilt from a database or an older record",
        );
        self.count("  pages given blocks", "nvram.placed", "written and flushed before the record");
        self.count("  with a flush before", "nvram.flushed_first", "blocks that they name were not durable");
        self.some("records of unsynced changes", "nvram.unsynced", "every nvram_commit");
        self.count("fences", "nvram.persists", "");
        let lines = format!("of 64 bytes; the busiest {} times", self.number("nvram.most_written_line"));
        self.count("lines written", "nvram.lines", &lines);
        self.count("fsyncs of other kinds", "nvram.left_for_kind", "to the volume, as all below");
        self.some("  of much", "nvram.left_for_size", "");
        self.some("  with unreadable bases", "nvram.left_unreadable", "");
        self.count("  for want of room", "nvram.left_for_room", "");
        self.count("  after it failed", "nvram.left_after_failure", "");
        let freed = format!("{} of superseded records went", size::show(self.number("nvram.compacted")));
        self.some("compactions", "nvram.compactions", &freed);
        self.count("checkpoints that emptied it", "nvram.emptied", "");
    }

    fn adaptive(&mut self) {
        if at(self.stats, "adaptive").is_null() {
            return;
        }
        self.section("Not durable yet: what a power cut would take (durability=adaptive)");
        let age = at(self.stats, "adaptive.oldest_millis").as_u64();
        let age = age.map_or_else(|| "-".into(), |millis| size::time(millis as f64 / 1000.0));
        self.row("oldest change", &age, "");
        self.count("fsyncs", "adaptive.fsyncs_waiting", "returned, not durable yet");
        let bytes = size::show(self.number("adaptive.bytes_waiting"));
        self.row("pages", &bytes, "");
        self.count("fsyncs deferred so far", "adaptive.fsyncs_deferred", "");
        self.count("commits, by age", "adaptive.commits_by_age", "durability_age");
        self.count("  by bytes", "adaptive.commits_by_bytes", "durability_bytes; a write waited");
        self.some("  by holdup", "adaptive.commits_by_holdup", "holdup; a write or fsync waited");
        self.count("  by fsyncs", "adaptive.commits_by_fsyncs", "durability_fsyncs; an fsync waited");
        self.count("  for room", "adaptive.commits_for_room", "nearly full; an fsync waited");
        self.some("  by the tradeoff", "adaptive.commits_by_tradeoff", "durability_policy=tpl");
        self.some("  by interval", "adaptive.commits_by_interval", "durability_policy=interval");
        self.some("  by staleness", "adaptive.commits_by_staleness", "durability_policy=staleness");
        self.some("  of one app alone", "adaptive.commits_by_chain", "by the chain of fsynced nodes");
        self.some("  of all", "adaptive.commits_by_checkpoint", "by a checkpoint, whoever asked for it");
        self.some("pages changed", "adaptive.staleness_pages", "since the last commit, each change counted");
        self.some("  of them overwritten", "adaptive.overlap_pages", "never to be written");
        self.some("  in thousandths", "adaptive.efficiency_permille", "MobiFS's e");
        self.some(
            "input of the user",
            "adaptive.user_events",
            "told by 'medfs input'; commits wait for pauses of it",
        );
    }

    /// What waits of each app, most of it first.
    fn apps(&mut self) {
        let Some(all) = at(self.stats, "apps").as_array() else { return };
        self.section("Not durable yet, by app (apps=): oldest change, bytes, fsyncs; commits so far");
        let number = |app: &Value, name: &str| app[name].as_u64().unwrap_or(0);
        let mut all: Vec<&Value> = all.iter().collect();
        all.sort_by_key(|app| {
            Reverse(["bytes_waiting", "fsyncs_waiting", "commits"].map(|name| number(app, name)))
        });
        for app in all.iter().take(MOST_APPS) {
            let age = app["oldest_millis"].as_u64();
            let age = age.map_or_else(|| "-".into(), |millis| size::time(millis as f64 / 1000.0));
            let (bytes, fsyncs) =
                (size::show(number(app, "bytes_waiting")), grouped(number(app, "fsyncs_waiting")));
            let name = shortened(app["name"].as_str().unwrap_or("?"), NAME - 1);
            self.row(&name, &age, &format!("{bytes}, {fsyncs} fsyncs"));
            let (commits, caused) = (number(app, "commits"), number(app, "commits_caused"));
            let last = app["last_commit"].as_str().unwrap_or("-");
            let alone = grouped(number(app, "commits_by_chain"));
            let note = format!("{} by itself, {alone} alone; last: {last}", grouped(caused));
            self.row("  commits", &grouped(commits), &note);
        }
        if let Some(more) = all.len().checked_sub(MOST_APPS).filter(|more| *more > 0) {
            self.text.push_str(&format!("  and {}: --json has all\n", count(more as u64, "app")));
        }
    }

    fn survivor(&mut self) {
        if at(self.stats, "survivor").is_null() {
            return;
        }
        self.section("The log of what is not durable, in memory that outlives the daemon");
        let place = at(self.stats, "survivor.place").as_str().unwrap_or("-").to_owned();
        self.row("file", &place, "");
        let (used, limit) = (self.number("survivor.used"), self.number("survivor.limit"));
        self.row("in use", &size::show(used), &format!("of {}", size::show(limit)));
        self.count("operations recorded", "survivor.records", "since the mount");
        self.some("  that waited", "survivor.waited", "for a commit, as the log was full");
        self.some("  not recorded", "survivor.unrecorded", "they waited for a commit after they were done");
        self.some("replayed at the mount", "survivor.replayed", "a daemon had been killed");
        self.some("  not replayed", "survivor.failed", "the log was kept");
    }

    fn deltas(&mut self, derived: &Derived) {
        if self.has_option("delta=off") && self.number("deltas.made") + self.number("fpc.made") == 0 {
            return;
        }
        self.section("Deltas: changes kept in the inode in place of pages");
        self.count("deltas made", "deltas.made", "pages that were not written");
        self.some("  of appended pages", "deltas.appended", "which had no block before");
        self.some("  from other files", "deltas.repeated", "whose blocks are known by name");
        self.some("  from pages alike", "deltas.similar", "of the same file");
        self.some("compact pages made", "deltas.compact_pages", "");
        let ratio = derived.delta_compression_ratio;
        self.rate("deltas compression ratio", ratio, "DCR: bytes of pages they save");
        self.count("pages rebuilt", "deltas.rebuilt", "from base and delta");
        self.some(
            "evicted, file grew",
            "deltas.evicted_by_growth",
            "case 1: the file's addresses needed the space",
        );
        self.some("from blocks cut off", "deltas.taken_back", "files truncated and written anew");
        self.some("evicted by others", "deltas.evicted_by_delta", "case 2: a smaller delta took the space");
        self.some("outgrown", "deltas.outgrown", "case 3: the page changed too much");
        self.some("released", "deltas.released", "another file's block that they need had to go");
        self.count("zones", "zones.files", "of files in memory");
        self.rate("zones filled", derived.zones_filled, "their bytes in use");
        if self.number("fpc.made") + self.number("fpc.held") > 0 {
            self.count("pages compressed alone", "fpc.made", "compress=fpc, up to five to a block");
            self.count("  compressed now", "fpc.held", "of files in memory");
            let saved = size::show(self.number("fpc.saved_bytes"));
            self.row("  bytes saved by these", &saved, "");
        }
        self.some("files restored", "restored.files", "read often: no deltas any more");
        self.some("pages restored", "restored.pages", "");
        self.some("  neighbours moved", "restored.moved", "to make a file contiguous");
    }

    /// Clusters of compressed files.
    fn compression(&mut self) {
        if ["clusters", "kept_plain", "expanded"]
            .iter()
            .all(|name| self.number(&format!("compress.{name}")) == 0)
        {
            return;
        }
        self.section("Compressed files: clusters of pages");
        self.count("clusters written", "compress.clusters", "compressed");
        self.count("  blocks saved", "compress.saved", "");
        self.count("written as they were", "compress.kept_plain", "compression would have saved no block");
        self.count("clusters expanded", "compress.expanded", "to be read or changed");
    }

    fn caches(&mut self, derived: &Derived) {
        self.section("Found in memory (what the kernel's page cache serves is not asked for)");
        self.rate("inodes", derived.inode_hit_rate, "");
        self.rate("pages", derived.page_hit_rate, "clean ones");
        if derived.base_hit_rate.is_some() {
            self.rate("bases of deltas", derived.base_hit_rate, "the deltas are in the inodes");
        }
    }

    fn hotness(&mut self) {
        let rounds = self.number("hotness.reclusterings");
        if rounds == 0 {
            return;
        }
        let window = size::time(self.number("hotness.window_millis") as f64 / 1000.0);
        self.section(&format!(
            "Files by calls that reach the daemon (Hcluster; centroids, times in {window})"
        ));
        for (name, group) in [
            ("cold", "cold"),
            ("read-hot", "read_hot"),
            ("write-hot", "write_hot"),
            ("read-hot and write-hot", "both_hot"),
        ] {
            let path = format!("hotness.{group}");
            let times = |what: &str| at(self.stats, &format!("{path}.{what}")).as_f64().unwrap_or(0.0);
            let note = format!("{:.1} reads, {:.1} writes", times("reads"), times("writes"));
            self.count(name, &format!("{path}.files"), &note);
        }
        let mean = self.number("hotness.recluster_us").checked_div(rounds).unwrap_or(0);
        self.count("times regrouped", "hotness.reclusterings", &format!("when idle; {mean} us each"));
    }

    fn volume(&mut self) {
        self.section("State");
        self.count("valid blocks", "valid_blocks", "reserved ones included");
        self.count("valid inodes", "valid_inodes", "those of medfs's own records included");
        self.count("free segments", "free_segments", "of 2 MiB");
        self.count("dirty pages", "dirty_pages", "waiting to be written");
        self.count("dirty nodes", "dirty_nodes", "");
        self.some("recovered at the mount", "recovered_inodes", "files rolled forward");
        self.some("freed at the mount", "orphans_freed", "files without a name");
        self.some("damage passed by", "damage_passed", "blocks of no use; run 'medfs fsck'");
        self.some("lost by the device", "unkept_nodes", "fsynced nodes gone after it had reported a flush");
        let mode =
            if at(self.stats, "read_only").as_bool() == Some(true) { "read-only" } else { "read-write" };
        self.row("mode", mode, "");
        self.options();
    }

    /// The mount options in force, as many to a line as it takes.
    fn options(&mut self) {
        let Some(all) = at(self.stats, "options").as_array() else { return };
        let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
        let indent = textwrap::Options::new(COLUMNS).initial_indent("    ").subsequent_indent("    ");
        let lines =
            textwrap::fill(&all.join(", "), indent.word_splitter(textwrap::WordSplitter::NoHyphenation));
        self.text.push_str(&format!("  mount options in force\n{lines}\n"));
    }

    fn lifetime(&mut self, derived: &Derived) {
        let Some(life) = &derived.lifetime else { return };
        self.section("The card's lifetime, were it used like this every day");
        self.row(
            "full-card writes a day",
            &format!("{:.4}", life.drive_writes_per_day),
            "DWPD, as if without deltas",
        );
        self.row("left by deltas", &format!("{:.2}", life.ratio), "R: bytes written of that");
        self.row("lifetime", &lifetime::show(life.years), "");
        self.row("  without deltas", &lifetime::show(life.years_without), "");
        let card = &life.card;
        self.text.push_str(&format!(
            "  = PEC x (1 + OP) / (365 x DWPD x WA x R). Assumed of the card:\n    PEC = {} rated cycles (--pe-cycles), OP = {} % spare (--card-spare),\n    \
             WA = {} write amplification inside (--card-wa).\n",
            card.pe_cycles, card.spare_percent, card.write_amplification
        ));
    }
}

/// The value at `a.b.c`; `Null` where there is none.
pub(super) fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, |value, name| &value[name])
}

/// The end of a name that is too long.
fn shortened(name: &str, most: usize) -> String {
    let name = quote::for_terminal(name.as_bytes());
    match name.chars().count().checked_sub(most) {
        None | Some(0) => name,
        Some(over) => format!("..{}", name.chars().skip(over + 2).collect::<String>()),
    }
}

fn percent(rate: Option<f64>) -> String {
    rate.map_or("-".into(), |rate| format!("{:.1} %", rate * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifetime::Card;
    use medfs::stats::{AdaptiveStats, AppStats, CommitReason, NvramStats, Stats, SurvivorStats};
    use serde_json::json;

    fn card() -> Card {
        Card { pe_cycles: 100_000, spare_percent: 12.5, write_amplification: 12.25 }
    }

    /// Numbers that only `--json` has.
    const IN_JSON_ALONE: &[&str] = &[
        "/survivor/record_bytes",
        "/nvram/nodes",
        "/nvram/revoked",
        "/zones/deltas",
        "/fpc/bytes",
        "/fpc/freed",
        "/fpc/too_large",
        "/hotness/files",
        "/hotness/recluster_us_max",
        "/hotness/reads",
        "/hotness/pages_read",
        "/hotness/writes",
        "/hotness/pages_written",
        "/restored/rounds",
        "/valid_nodes",
        "/cached_pages",
        "/cached_nodes",
        "/volume_bytes",
    ];

    /// Sets each number of a value to `to`; the paths of all.
    fn set_numbers(value: &mut Value, to: u64, path: &str, paths: &mut Vec<String>) {
        match value {
            Value::Number(number) => {
                *number = to.into();
                paths.push(path.to_owned());
            }
            Value::Array(list) => {
                for (n, one) in list.iter_mut().enumerate() {
                    set_numbers(one, to, &format!("{path}/{n}"), paths);
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    set_numbers(field, to, &format!("{path}/{name}"), paths);
                }
            }
            _ => {}
        }
    }

    fn an_app(name: &str) -> AppStats {
        AppStats {
            name: name.to_owned(),
            oldest_millis: Some(1),
            bytes_waiting: 0,
            fsyncs_waiting: 0,
            commits: 0,
            commits_caused: 0,
            commits_by_chain: 0,
            last_commit: Some(CommitReason::Age),
        }
    }

    #[test]
    fn every_number_has_a_row() {
        let all = Stats {
            adaptive: Some(AdaptiveStats::default()),
            apps: Some(vec![an_app("/data/data/mail")]),
            survivor: Some(SurvivorStats::default()),
            nvram: Some(NvramStats::default()),
            options: vec!["delta=full".into(), "compress=fpc".into(), "placement=reserve".into()],
            ..Stats::default()
        };
        let mut stats = serde_json::to_value(all).expect("plain data");
        let mut paths = Vec::new();
        set_numbers(&mut stats, 1000, "", &mut paths);
        let shown = |stats: &Value| Report::of(stats, &Derived::of(stats, &card()));
        let usual = shown(&stats);
        let is_hidden = |path: &&String| {
            let mut other = stats.clone();
            *other.pointer_mut(path).expect("it is one of them") = 7_654_321.into();
            shown(&other) == usual
        };
        let hidden: Vec<&String> = paths.iter().filter(is_hidden).collect();
        assert_eq!(hidden, IN_JSON_ALONE, "a counter needs a row in this report, or a place in this list");
    }

    #[test]
    fn the_apps_of_which_most_waits_are_listed() {
        let app =
            |n: u64| AppStats { bytes_waiting: n << 20, ..an_app(&format!("/a/{}/{n}", "x".repeat(90))) };
        let stats = json!({ "apps": (0..30).map(app).collect::<Vec<_>>() });
        let text = Report::of(&stats, &Derived::of(&stats, &card()));
        assert!(text.contains("xx/29  ") && text.contains("29 MiB, 0 fsyncs"), "{text}");
        assert!(!text.contains("xx/9 ") && text.contains("  and 10 apps: --json has all"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
    }

    #[test]
    fn lines_fit_a_terminal() {
        let big = 999_999_999_999u64;
        let group = json!({"files": big, "reads": 123456.7, "writes": 123456.7});
        let stats = json!({
            "written": {"data": big, "node": big, "compact": big, "meta": big, "gc": big},
            "written_bytes": big, "flushes": big, "deltas": {"made": big, "bytes": big},
            "hotness": {"window_millis": 60_000, "cold": group, "read_hot": group, "write_hot": group,
                "both_hot": group, "reclusterings": 7, "recluster_us": big},
            "open_millis": 100_000_000, "volume_bytes": big, "read_only": true,
        });
        for stats in [stats, json!({})] {
            let text = Report::of(&stats, &Derived::of(&stats, &card()));
            for line in text.lines() {
                assert!(line.chars().count() <= COLUMNS, "{} columns: {line}", line.len());
            }
        }
    }
}
