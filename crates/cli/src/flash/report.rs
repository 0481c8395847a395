//! What a device did, for people and for machines.

use crate::{lifetime, size, words};
use comfy_table::{CellAlignment, Table, presets};
use medfs_flash::{Header, Stats, Summary};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The report of a device.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    profile: String,
    ftl: String,
    codec: String,
    content: bool,
    pub(crate) size_bytes: u64,
    blocks: u32,
    bad_blocks: usize,
    host_written_bytes: u64,
    host_read_bytes: u64,
    flash_written_bytes: u64,
    write_amplification: f64,
    wear: Wear,
    /// Years at the rate of the device's own time; `None` where nothing wore it.
    life_used_percent: f64,
    /// Bytes the host can still write at the present amplification.
    remaining_host_bytes: Option<u64>,
    latency_us: LatencyReport,
    counters: medfs_flash::Stats,
}

#[derive(Debug, Serialize)]
struct Wear {
    erases: u64,
    mean: f64,
    least: u32,
    most: u32,
    pe_cycles: u32,
}

#[derive(Debug, Serialize)]
struct LatencyReport {
    write: Summary,
    read: Summary,
    flush: Summary,
}

impl Report {
    pub(crate) fn of(header: &Header, stats: &Stats, wear: &[(u32, bool)]) -> Report {
        let good: Vec<u32> = wear.iter().filter(|(_, bad)| !bad).map(|(erases, _)| *erases).collect();
        let total: u64 = good.iter().map(|e| u64::from(*e)).sum();
        let mean = total as f64 / good.len().max(1) as f64;
        let g = header.profile.geometry(header.blocks);
        let pe = header.profile.endurance.pe_cycles;
        let amplification = stats.write_amplification(g.page_bytes);
        let capacity = u64::from(g.block_bytes()) as f64 * good.len() as f64;
        let left = (f64::from(pe) - mean).max(0.0) * capacity;
        Report {
            profile: header.profile.name.clone(),
            ftl: header.ftl.clone(),
            codec: header.codec.clone(),
            content: header.content,
            size_bytes: u64::from(header.logical_pages) * 4096,
            blocks: header.blocks,
            bad_blocks: wear.len() - good.len(),
            host_written_bytes: stats.ftl.host_writes * 4096,
            host_read_bytes: stats.ftl.host_reads * 4096,
            flash_written_bytes: stats.ftl.programs.total() * u64::from(g.page_bytes),
            write_amplification: amplification,
            wear: Wear {
                erases: total,
                mean,
                least: good.iter().copied().min().unwrap_or(0),
                most: good.iter().copied().max().unwrap_or(0),
                pe_cycles: pe,
            },
            life_used_percent: mean / f64::from(pe) * 100.0,
            remaining_host_bytes: (amplification > 0.0).then(|| (left / amplification) as u64),
            latency_us: LatencyReport {
                write: stats.latency.write.summary(),
                read: stats.latency.read.summary(),
                flush: stats.latency.flush.summary(),
            },
            counters: stats.clone(),
        }
    }

    /// Two or three lines for the map.
    pub(crate) fn lines(&self) -> Vec<String> {
        vec![
            format!(
                "host wrote {}, flash {}: amplification {:.2}; {} erases since it was made",
                size::show(self.host_written_bytes),
                size::show(self.flash_written_bytes),
                self.write_amplification,
                self.wear.erases
            ),
            format!(
                "wear: mean {:.1}, from {} to {}, of {} cycles: {:.2} % of its life; {} of {} blocks bad",
                self.wear.mean,
                self.wear.least,
                self.wear.most,
                self.wear.pe_cycles,
                self.life_used_percent,
                self.bad_blocks,
                self.blocks
            ),
        ]
    }

    pub(crate) fn text(&self, device: &Path) -> String {
        let mut out = String::new();
        let f = &self.counters.ftl;
        let what = if self.content { "" } else { ", without content" };
        let _ = writeln!(
            out,
            "{}: {} device of {}, {} with {}{what}\n",
            device.display(),
            self.profile,
            size::show(self.size_bytes),
            self.ftl,
            self.codec
        );
        let mut line = |name: &str, value: String| {
            let _ = writeln!(out, "{}", words::field(22, name, &value));
        };
        line(
            "host wrote",
            format!("{} ({} read)", size::show(self.host_written_bytes), size::show(self.host_read_bytes)),
        );
        line(
            "flash wrote",
            format!(
                "{}: {} pages for the host, {} collected, {} map",
                size::show(self.flash_written_bytes),
                f.programs.host,
                f.programs.collected,
                f.programs.map
            ),
        );
        line("write amplification", format!("{:.3}", self.write_amplification));
        line(
            "compressed",
            format!(
                "{} pages for the host ({} without a gain), {} by collection; {} span two flash pages",
                f.compressed_host, f.compressed_vain, f.compressed_collected, f.across
            ),
        );
        line(
            "collected",
            format!(
                "{} blocks while idle, {} while a write waited; {} pages moved",
                f.collections_idle, f.collections_waited, f.moved
            ),
        );
        let seconds = |ns: u64| size::time((ns as f64 / 1e8).round() / 10.0);
        line("collection time", format!("{} moving, {} erasing", seconds(f.move_ns), seconds(f.erase_ns)));
        line("erases", format!("{} of data, {} of the map", f.erases, f.erases_map));
        let w = &self.wear;
        line(
            "wear",
            format!(
                "mean {:.2}, from {} to {}, of {} cycles; {} bad blocks",
                w.mean, w.least, w.most, w.pe_cycles, self.bad_blocks
            ),
        );
        line("life used", format!("{:.3} %", self.life_used_percent));
        if let Some(bytes) = self.remaining_host_bytes {
            line("life left", format!("{} of such writes", size::show(bytes)));
            let days = self.counters.time_ns as f64 / 86_400e9;
            let is_long = self.counters.time_ns / 1_000_000 >= lifetime::SHORTEST;
            let years = bytes as f64 / (self.host_written_bytes as f64 / days) / 365.0;
            match is_long && self.host_written_bytes > 0 {
                true => line("at the present rate", lifetime::show(years)),
                false => line("at the present rate", "-  estimated after a minute of use".into()),
            }
        }
        let _ = write!(out, "\n{}", latencies(&self.latency_us));
        out
    }
}

fn latencies(l: &LatencyReport) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["  latency, us", "requests", "mean", "half", "99 %", "99.9 %", "worst"]);
    for (name, s) in [("  write", &l.write), ("  read", &l.read), ("  flush", &l.flush)] {
        let mut row = vec![name.to_owned(), s.count.to_string()];
        row.extend([s.mean_us, s.p50_us, s.p99_us, s.p999_us, s.worst_us].map(|us| format!("{us:.0}")));
        table.add_row(row);
    }
    for column in 1..7 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
