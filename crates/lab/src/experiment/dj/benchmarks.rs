//! Fig. 10 and 11, and the model of ext4 behind them against what a kernel's ext4 wrote: Postmark and TPC-C in ordered
//! and in journal mode, with the paper's memory and without.

use super::bed::{Bed, FromSetup, NVRAM, megabytes, row};
use super::ext4::{Cost, Ext4, Mode, Settings};
use super::jbd2::{Memory, Model};
use crate::cell::Row;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use crate::model::Times;
use crate::scheme::Scheme;
use crate::workload::postmark::{self, Shape};
use crate::workload::{Recording, Stage, record};
use medfs_format::BLOCK_SIZE;
use std::time::Duration;

/// ext4's modes by the name that rows have.
const MODES: [(&str, Mode); 2] = [("ordered", Mode::Ordered), ("journal", Mode::Journal)];
/// Threshold of the paper's memory, in percent.
const THRESHOLD: u64 = 75;

/// The model of ext4, as the numbers of the file have it.
pub(in crate::experiment) struct Models {
    meanwhile: f64,
    metadata_delta: u64,
    /// Whether programs sync by fdatasync.
    fdatasync: bool,
}

impl Models {
    pub(in crate::experiment) fn new(lab: &Lab<'_>) -> Result<Models> {
        let one = |name: &str| Ok::<f64, Error>(lab.spec.numbers(name)?[0]);
        let (meanwhile, metadata_delta) = (one("meanwhile")?, one("metadata_delta")? as u64);
        Ok(Models { meanwhile, metadata_delta, fdatasync: true })
    }

    /// The same for programs that sync by fdatasync, or by fsync.
    pub(in crate::experiment) fn syncing(self, fdatasync: bool) -> Models {
        Models { fdatasync, ..self }
    }

    /// What a workload writes after its set-up, beside a memory of so many bytes or without one.
    /// With `waits`, blocks of which the memory has deltas wait for a checkpoint.
    pub(in crate::experiment) fn play(
        &self,
        recording: &Recording,
        mode: Mode,
        (memory, waits): (Option<u64>, bool),
    ) -> Result<Cost> {
        let memory = memory.map(|bytes| Memory { bytes, threshold: THRESHOLD });
        let model = Model { memory, waits, meanwhile: self.meanwhile, part: 1.0 };
        let Models { fdatasync, metadata_delta, .. } = *self;
        let ext4 = Ext4::new(Settings { mode, model, fdatasync, metadata_delta });
        let played = recording.tape.play(&ext4, &mut FromSetup(&mut || ext4.start_measuring()));
        played.map_err(Error::io("playing a workload on the model of ext4"))?;
        Ok(ext4.cost())
    }
}

/// The model's writes beside those of a kernel's ext4.
pub(in crate::experiment) fn against_kernel(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let models = Models::new(lab)?;
    lab.begin(lab.spec.workloads.len());
    let mut rows = Vec::new();
    for name in &lab.spec.workloads {
        let recording = lab.record(name)?;
        let each = recording.values["transactions"];
        for (label, mode) in MODES {
            let cost = models.play(&recording, mode, (None, true))?;
            let written = megabytes(cost.blocks());
            rows.push(row(lab, (&format!("{name}, written"), label, "MB"), written, &[]));
            let flushes = cost.flushes as f64 / each;
            rows.push(row(lab, (&format!("{name}, flushes"), label, "a transaction"), flushes, &[]));
            let requests = cost.requests() as f64 / each;
            rows.push(row(lab, (&format!("{name}, requests"), label, "a transaction"), requests, &[]));
        }
    }
    Ok(rows)
}

/// A workload that is compared with a memory and without.
struct Contest<'l, 's> {
    lab: &'l Lab<'s>,
    models: Models,
    times: Times,
    /// Microseconds that a transaction takes besides, in both modes.
    compute: f64,
}

impl<'l, 's> Contest<'l, 's> {
    fn new(lab: &'l Lab<'s>) -> Result<Contest<'l, 's>> {
        Ok(Contest {
            lab,
            models: Models::new(lab)?,
            times: lab.times()?,
            compute: lab.spec.numbers("compute")?[0],
        })
    }

    /// By how much work is done faster with a memory: with what it computes, and by the device alone.
    fn faster(
        &self,
        (what, scheme): (&str, &str),
        (without, with): (f64, f64),
        transactions: f64,
        cells: &[String],
    ) -> [Row; 2] {
        let percent = |besides: f64| 100.0 * ((without + besides) / (with + besides) - 1.0);
        let all = percent(self.compute * transactions);
        let [in_all, alone] = [format!("faster, {what}"), format!("device, {what}")];
        [
            row(self.lab, (&in_all, scheme, "% faster"), all, cells),
            row(self.lab, (&alone, scheme, "% faster"), percent(0.0), cells),
        ]
    }

    /// The paper's design and the volumes, each against the same without a memory.
    fn rows(&self, label: &str, recording: &Recording, transactions: f64) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for ((name, mode), scheme) in MODES.into_iter().zip(self.lab.schemes()?) {
            let what = format!("{label}, {name}");
            let without = self.models.play(recording, mode, (None, true))?;
            for (scheme, waits) in [("DJ", true), ("DJ, written back", false)] {
                let with = self.models.play(recording, mode, (Some(NVRAM), waits))?;
                let times = (without.time(&self.times), with.time(&self.times));
                rows.extend(self.faster((&what, scheme), times, transactions, &[]));
                let blocks = with.blocks() as f64 / without.blocks().max(1) as f64;
                let blocks_of = format!("blocks, {what}");
                rows.push(row(self.lab, (&blocks_of, scheme, "of those without"), blocks, &[]));
                let page = with.journal.delta_bytes as f64 / with.journal.deltas.max(1) as f64;
                let part = 100.0 * page / BLOCK_SIZE as f64;
                rows.push(row(self.lab, (&format!("deltas, {what}"), scheme, "% of a block"), part, &[]));
            }
            rows.extend(self.volume_rows((label, &what), &scheme, recording, transactions)?);
        }
        Ok(rows)
    }

    fn volume_rows(
        &self,
        (workload, what): (&str, &str),
        scheme: &Scheme,
        recording: &Recording,
        transactions: f64,
    ) -> Result<Vec<Row>> {
        let play = |variant: &str, memory: Option<u64>| {
            let mib = self.lab.spec.device_gib << 10;
            let mut bed = Bed::new(self.lab, (workload, scheme, variant), (mib, memory))?;
            let played = bed.play(recording)?;
            Ok::<_, Error>((played, bed.finish()?))
        };
        let ((without, of_without), (with, of_with)) = (play("without", None)?, play("", Some(NVRAM))?);
        let cells = [of_without, of_with];
        let times = (without.time, with.time);
        let mut rows = Vec::from(self.faster((what, &scheme.name), times, transactions, &cells));
        let blocks = with.blocks as f64 / without.blocks.max(1) as f64;
        let blocks_of = format!("blocks, {what}");
        rows.push(row(self.lab, (&blocks_of, &scheme.name, "of those without"), blocks, &cells));
        Ok(rows)
    }
}

/// Fig. 10: Postmark, by its transactions, as it is and with syncs.
pub(in crate::experiment) fn postmark(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let contest = Contest::new(lab)?;
    let counts = [false, true].map(|synced| {
        let name = if synced { "thousand_synced" } else { "thousand_transactions" };
        Ok::<_, Error>((synced, lab.spec.numbers(name)?))
    });
    let (files, sizes) = (lab.spec.numbers("files")?[0] as u64, lab.spec.numbers("bytes")?);
    let mut rows = Vec::new();
    for counts in counts {
        let (synced, counts) = counts?;
        lab.begin(counts.len() * (1 + MODES.len() * 2));
        for &thousand in counts {
            let label = format!("{thousand} K{}", if synced { ", synced" } else { "" });
            lab.settings.progress.step(&format!("recording {label}"));
            let transactions = (1000.0 * thousand * lab.scale) as u64;
            let shape = Shape {
                files,
                transactions,
                sizes: (sizes[0] as u64, sizes[1] as u64),
                synced,
                each: Duration::from_micros(contest.compute as u64),
            };
            let run = |stage: &Stage| postmark::run_with(stage, shape);
            let recording = record(lab.settings.seed, lab.scale, &run)?;
            rows.extend(contest.rows(&label, &recording, transactions as f64)?);
        }
    }
    Ok(rows)
}

/// Fig. 11: the throughput of TPC-C.
pub(in crate::experiment) fn throughput(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let contest = Contest::new(lab)?;
    lab.begin(lab.spec.workloads.len() * (1 + MODES.len() * 2));
    let mut rows = Vec::new();
    for name in &lab.spec.workloads {
        let recording = lab.record(name)?;
        let kinds = ["new_orders", "payments", "order_status", "deliveries", "stock_levels"];
        let transactions: f64 = kinds.iter().filter_map(|kind| recording.values.get(*kind)).sum();
        rows.extend(contest.rows(name, &recording, transactions)?);
    }
    Ok(rows)
}
