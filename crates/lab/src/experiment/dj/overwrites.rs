//! Fig. 7 to 9 and Table I: a file whose blocks are overwritten, by how much of them changes and how full the memory
//! becomes before a checkpoint.

use super::bed::{Bed, NVRAM, row};
use super::jbd2::{Journal, Memory, Model, Update, Written};
use super::traces::{Bytes, Differences, delta, difference};
use crate::backend::{Open, Target};
use crate::cell::Row;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use crate::random::Random;
use crate::scheme::Scheme;
use medfs_codec::{Codecs, PAGE_SIZE, Page};

/// A memory may not be smaller.
const LEAST_NVRAM: u64 = 64 << 10;
/// Blocks between two looks of the timer at what is due.
const TIMER: usize = 64;

/// Blocks that are overwritten, one after the other, and what is added to each.
struct Trace {
    blocks: u64,
    updates: Vec<(u64, Page)>,
    /// The same for a journal.
    of_journal: Vec<Update>,
}

impl Trace {
    /// So many updates of blocks of a file: in order where each is overwritten once, otherwise anywhere.
    fn new(lab: &Lab<'_>, (blocks, updates): (u64, u64), of: Differences, bytes: Bytes) -> Trace {
        let mut random = Random::new(lab.settings.seed, "overwrites");
        let mut codecs = Codecs::default();
        let mut trace = Trace { blocks, updates: Vec::new(), of_journal: Vec::new() };
        for n in 0..updates {
            let block = if updates <= blocks { n } else { random.below(blocks) };
            let page = difference(of.draw(&mut random), bytes, &mut random);
            trace.of_journal.push(Update { block, delta: delta(&mut codecs, &page) });
            trace.updates.push((block, page));
        }
        trace
    }
}

/// The paper's two sides, and the numbers of the file that they need.
struct Paper<'l, 's> {
    lab: &'l Lab<'s>,
    together: usize,
    /// In how many runs the bytes of a block change.
    runs: usize,
    meanwhile: f64,
    /// What an update, a block of the journal and a block home take.
    costs: [f64; 3],
}

impl<'l, 's> Paper<'l, 's> {
    fn new(lab: &'l Lab<'s>) -> Result<Paper<'l, 's>> {
        let one = |name: &str| Ok::<f64, Error>(lab.spec.numbers(name)?[0]);
        let costs = [one("capture")?, one("journal")?, one("home")?];
        let [together, runs] = [one("together")?, one("runs")?].map(|number| number as usize);
        Ok(Paper { lab, together, runs, meanwhile: one("meanwhile")?, costs })
    }

    fn memory(&self) -> u64 {
        ((NVRAM as f64 * self.lab.scale) as u64).max(LEAST_NVRAM)
    }

    /// What a journal writes until the last update; with a memory that is emptied at this threshold.
    fn run(&self, trace: &Trace, threshold: Option<u64>) -> Written {
        let memory = threshold.map(|threshold| Memory { bytes: self.memory(), threshold });
        let mut journal =
            Journal::new(Model { memory, waits: true, meanwhile: self.meanwhile, part: self.lab.scale });
        for some in trace.of_journal.chunks(self.together) {
            journal.commit(some);
        }
        journal.written
    }

    fn time(&self, updates: usize, written: &Written) -> f64 {
        let [capture, journal, home] = self.costs;
        capture * updates as f64 + journal * written.journal as f64 + home * written.home as f64
    }
}

/// A file on a volume with a memory, overwritten as the trace says; what was written meanwhile, in blocks, is noted.
fn overwrite<'l>(
    lab: &'l Lab<'l>,
    (workload, scheme, variant): (&str, &Scheme, &str),
    trace: &Trace,
    (memory, together): (u64, usize),
) -> Result<(Bed<'l>, u64)> {
    let mib = 64.max(trace.blocks * 4 / 256);
    let bed = Bed::new(lab, (workload, scheme, variant), (mib, Some(memory)))?;
    let file = bed.target.open("file", Open::Create).map_err(Error::io("making a file"))?;
    let mut random = Random::new(lab.settings.seed, "content");
    let mut content = vec![[0; PAGE_SIZE]; trace.blocks as usize];
    for (n, page) in content.iter_mut().enumerate() {
        random.fill(page);
        bed.target.write(file, (n * PAGE_SIZE) as u64, page).map_err(Error::io("writing"))?;
    }
    bed.target.sync().map_err(Error::io("syncing"))?;
    let before = bed.blocks();
    for (n, some) in trace.updates.chunks(together).enumerate() {
        for (block, added) in some {
            let page = &mut content[*block as usize];
            page.iter_mut().zip(added).for_each(|(byte, added)| *byte ^= added);
            bed.target.write(file, block * PAGE_SIZE as u64, page).map_err(Error::io("writing"))?;
        }
        bed.target.fsync(file, true).map_err(Error::io("syncing"))?;
        if n % TIMER.div_ceil(together) == 0 {
            bed.background()?;
        }
    }
    let written = bed.blocks() - before;
    Ok((bed, written))
}

/// Fig. 7 and 8, Table I: three distributions of differences, and thresholds of the memory.
pub(in crate::experiment) fn thresholds(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let (paper, schemes) = (Paper::new(lab)?, lab.schemes()?);
    let (updates, thresholds) =
        (lab.spec.numbers("updates")?[0] * lab.scale, lab.spec.numbers("thresholds")?);
    let blocks = lab.spec.numbers("blocks")?[0] * lab.scale;
    let middle = lab.spec.numbers("bathtub_middle")?[0];
    let shapes =
        [("W1", Differences::Zipf), ("W2", Differences::Bathtub { middle }), ("W3", Differences::Uniform)];
    lab.begin(shapes.len() * thresholds.len() * schemes.len());
    let mut rows = Vec::new();
    for (name, shape) in shapes {
        let trace =
            Trace::new(lab, (blocks as u64, updates as u64), shape, Bytes::Inverted { runs: paper.runs });
        let count = trace.updates.len() as f64;
        let without = paper.run(&trace, None);
        for &threshold in thresholds {
            let with = paper.run(&trace, Some(threshold as u64));
            let label = |what: &str| format!("{what}, {name}, {threshold}%");
            let part = 100.0 * with.journal as f64 / count;
            rows.push(row(lab, (&label("journal"), "DJ", "% of updates"), part, &[]));
            rows.push(row(lab, (&label("checkpoints"), "DJ", "checkpoints"), with.checkpoints as f64, &[]));
            let time = paper.time(trace.updates.len(), &with) / paper.time(trace.updates.len(), &without);
            rows.push(row(lab, (&label("time"), "DJ", "of ext4's"), time, &[]));
            for scheme in &schemes {
                let scheme = scheme.with(&format!("nvram_threshold={}", threshold.min(95.0)));
                let variant = format!("{threshold}%");
                let (mut bed, written) =
                    overwrite(lab, (name, &scheme, &variant), &trace, (paper.memory(), paper.together))?;
                let (placed, emptied) = (bed.nvram().placed as f64, bed.nvram().emptied as f64);
                bed.note("blocks written", written as f64);
                bed.note("pages that fsyncs wrote", placed);
                let cell = [bed.finish()?];
                let name = scheme.name.as_str();
                rows.push(row(lab, (&label("journal"), name, "% of updates"), 100.0 * placed / count, &cell));
                rows.push(row(lab, (&label("checkpoints"), name, "checkpoints"), emptied, &cell));
                let blocks = written as f64 / (without.journal + without.home) as f64;
                rows.push(row(lab, (&label("blocks"), name, "of ext4's"), blocks, &cell));
            }
        }
    }
    Ok(rows)
}

/// Fig. 9: 512 and 1024 MB that are overwritten, by how much of each block changes.
pub(in crate::experiment) fn synthetic(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let (paper, schemes) = (Paper::new(lab)?, lab.schemes()?);
    let (sizes, parts) = (lab.spec.numbers("overwritten_mib")?, lab.spec.numbers("percent")?);
    let threshold = lab.spec.numbers("threshold")?[0] as u64;
    let kinds = [("", Bytes::Inverted { runs: paper.runs }), (", random bytes", Bytes::Random)];
    lab.begin(sizes.len() * parts.len() * kinds.len() * schemes.len());
    let mut rows = Vec::new();
    for &mib in sizes {
        for &percent in parts {
            for (kind, bytes) in kinds {
                let blocks = (mib * 256.0 * lab.scale) as u64;
                let trace = Trace::new(lab, (blocks, blocks), Differences::Same(percent / 100.0), bytes);
                let (without, with) = (paper.run(&trace, None), paper.run(&trace, Some(threshold)));
                let label = format!("{mib} MB, {percent}%{kind}");
                let updates = trace.updates.len();
                let faster = paper.time(updates, &without) / paper.time(updates, &with);
                rows.push(row(lab, (&label, "DJ", "x ext4's speed"), faster, &[]));
                for scheme in &schemes {
                    let of = (paper.memory(), paper.together);
                    let (mut bed, written) = overwrite(lab, ("overwritten", scheme, &label), &trace, of)?;
                    bed.note("blocks written", written as f64);
                    let of_ext4 = written as f64 / (without.journal + without.home).max(1) as f64;
                    let cell = [bed.finish()?];
                    rows.push(row(lab, (&label, &scheme.name, "of ext4's blocks"), of_ext4, &cell));
                }
            }
        }
    }
    Ok(rows)
}
