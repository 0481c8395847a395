//! Volumes that are made old in short time, and ARS's Fig. 5: in which pieces their free space lies, and what
//! cleaning moves.
//!
//! Ageing is the paper's (section V-A): files of one size fill the volume, every second goes, and the next
//! are half as large, down to a page.

use super::bed::{Bed, PAGE};
use super::fragments::{above, name, row, write_by_turns};
use crate::backend::{Target, write_file};
use crate::cell::Row;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use medfs::free_runs;

/// Files in a directory.
const IN_A_DIRECTORY: usize = 1000;
/// Upper bounds of a free piece's level in pages, L1 to L6; L7 is above.
const LEVELS: [u64; 6] = [1, 2, 4, 8, 16, 32];

/// How old a volume is made.
pub(super) struct Ageing {
    /// Bytes of the first files.
    pub(super) first: u64,
    /// Percent in use at which a round ends.
    pub(super) fill: f64,
    /// Percent in use in the end.
    pub(super) leave: f64,
}

/// Makes a volume old.
pub(super) fn age(bed: &Bed<'_>, ageing: &Ageing) -> Result<()> {
    let target = bed.target();
    let (mut bytes, mut made, mut left) = (ageing.first, 0usize, Vec::new());
    while bytes >= PAGE {
        let mut new = Vec::new();
        let content = vec![5u8; bytes as usize];
        while bed.used() < ageing.fill {
            if made.is_multiple_of(IN_A_DIRECTORY) {
                target
                    .mkdir(&format!("old{}", made / IN_A_DIRECTORY))
                    .map_err(Error::io("making a directory"))?;
            }
            let path = format!("old{}/{made}", made / IN_A_DIRECTORY);
            write_file(&**target, &path, &content, false).map_err(Error::io("filling the volume"))?;
            new.push(path);
            made += 1;
        }
        let is_last = bytes / 2 < PAGE;
        for (n, path) in new.into_iter().enumerate() {
            if n % 2 == 1 && (!is_last || bed.used() > ageing.leave) {
                target.unlink(&path).map_err(Error::io("removing a file"))?;
            } else {
                left.push(path);
            }
        }
        target.sync().map_err(Error::io("syncing"))?;
        bytes /= 2;
    }
    for path in left.into_iter().step_by(3) {
        if bed.used() <= ageing.leave {
            break;
        }
        target.unlink(&path).map_err(Error::io("removing a file"))?;
    }
    target.sync().map_err(Error::io("syncing"))
}

/// Of the pieces of free space, the shares of the levels L1 to L7, in percent.
fn levels(bed: &Bed<'_>) -> Result<[f64; 7]> {
    let runs = free_runs(bed.target().volume()).map_err(Error::engine("looking for free space"))?;
    let mut levels = [0.0; 7];
    for run in &runs {
        levels[LEVELS.iter().filter(|&&bound| *run > bound).count()] += 100.0 / runs.len() as f64;
    }
    Ok(levels)
}

/// What writing on an aged volume took: sections cleaned, blocks moved, requests that read and that wrote.
fn cleaning(bed: &mut Bed<'_>, write: impl FnOnce(&Bed<'_>) -> Result<()>) -> Result<[f64; 4]> {
    let of = |bed: &Bed<'_>| {
        let (stats, io) = (bed.target().volume().stats(), bed.counts());
        [stats.gc_sections, stats.written.gc, io.reads, io.writes()].map(|n| n as f64)
    };
    let before = of(bed);
    write(bed)?;
    let after = of(bed);
    Ok(std::array::from_fn(|n| after[n] - before[n]))
}

/// Fig. 5.
pub(in crate::experiment) fn free_space(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    lab.begin(schemes.len());
    let number = |name: &str| Ok::<f64, Error>(lab.spec.numbers(name)?[0]);
    let mib = (number("device_mib")? * lab.scale) as u64;
    let bytes = ((number("file_mib")? * lab.scale / 2.0).round().max(1.0) as u64) << 21;
    let (mut rows, mut before): (Vec<Row>, Vec<[f64; 4]>) = (Vec::new(), Vec::new());
    for scheme in &schemes {
        let mut bed = Bed::new(lab, ("aged", scheme, ""), mib.max(256))?;
        let files = (0..number("files")? as usize).map(|n| bed.create(&name(n), true));
        let files = files.collect::<Result<Vec<_>>>()?;
        write_by_turns(&bed, &files, bytes, PAGE, lab.settings.seed)?;
        let ageing =
            Ageing { first: (number("first_kib")? as u64) << 10, fill: 90.0, leave: number("used")? };
        age(&bed, &ageing)?;
        let rounds = number("rounds")? as u64;
        let work = cleaning(&mut bed, |bed| {
            (1..=rounds).try_for_each(|n| write_by_turns(bed, &files, bytes, PAGE, lab.settings.seed + n))
        })?;
        let levels = levels(&bed)?;
        let used = bed.used();
        bed.note("percent in use", used);
        for (n, share) in levels.iter().enumerate() {
            bed.note(&format!("percent of free pieces at L{}", n + 1), *share);
        }
        for (what, count) in WORK.iter().zip(work) {
            bed.note(what, count);
        }
        let cell = [bed.finish()?];
        let name = scheme.name.as_str();
        for (n, share) in levels.iter().enumerate() {
            rows.push(row(lab, (&format!("L{}", n + 1), name, "% of free pieces"), *share, &cell));
        }
        for (against, base) in [("F2FS", before.first()), ("IPU", before.get(1))] {
            let Some(base) = base else { continue };
            for (n, what) in WORK.iter().enumerate() {
                let label = format!("{what} against {against}");
                rows.push(row(lab, (&label, name, "%"), above(work[n], base[n]), &cell));
            }
        }
        before.push(work);
    }
    Ok(rows)
}

const WORK: [&str; 4] = ["sections cleaned", "blocks moved", "requests that read", "requests that write"];
