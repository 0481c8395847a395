//! ARS's Fig. 1, 2 and 4: what files in pieces cost, and what is left of that where pages have homes.
//!
//! Programs that write at the same time take turns here: a page at random, synced, of one file after the
//! other. That is what makes pieces of all of them in one log.

use super::aged::{Ageing, age};
use super::bed::{Bed, LARGEST, PAGE};
use crate::backend::{Handle, read_at};
use crate::cell::Row;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use crate::random::Random;
use crate::scheme::Scheme;

/// Name of a file among those that are written at the same time.
pub(super) fn name(n: usize) -> String {
    format!("job{n}")
}

/// The pieces of a file of so many bytes, in an order without order.
fn shuffled(random: &mut Random, bytes: u64, piece: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..bytes / piece).map(|n| n * piece).collect();
    for n in (1..order.len()).rev() {
        order.swap(n, random.below(n as u64 + 1) as usize);
    }
    order
}

/// Writes all of each file, a piece at random of one after the other, each synced.
pub(super) fn write_by_turns(
    bed: &Bed<'_>,
    files: &[Handle],
    bytes: u64,
    piece: u64,
    seed: u64,
) -> Result<()> {
    let mut random = Random::new(seed, "turns");
    let orders: Vec<Vec<u64>> = files.iter().map(|_| shuffled(&mut random, bytes, piece)).collect();
    for turn in 0..(bytes / piece) as usize {
        for (file, order) in files.iter().zip(&orders) {
            bed.write(*file, order[turn], piece, 1 + (turn % 251) as u8)?;
        }
    }
    Ok(())
}

/// Bytes of a file of the experiment, at its scale: whole segments.
fn file_bytes(lab: &Lab<'_>) -> Result<u64> {
    let mib = lab.spec.numbers("file_mib")?[0] * lab.scale;
    Ok(((mib / 2.0).round().max(1.0) as u64) << 21)
}

/// A row whose unit is its own.
pub(super) fn row(
    lab: &Lab<'_>,
    (label, scheme, unit): (&str, &str, &str),
    ours: f64,
    cell: &[String],
) -> Row {
    Row { unit: unit.into(), ..lab.spec.row(label, scheme, Some(ours), cell) }
}

/// Per cent that `ours` is above `base`.
pub(super) fn above(ours: f64, base: f64) -> f64 {
    100.0 * (ours / base - 1.0)
}

/// Fig. 1, and the extents and gains of section V-A: a file that was written in order, and one of several that
/// were written at random at the same time.
pub(in crate::experiment) fn one_file(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    let (bytes, jobs) = (file_bytes(lab)?, lab.spec.numbers("jobs")?[0] as usize);
    lab.begin(schemes.len());
    let (mut rows, mut first) = (Vec::new(), None);
    for scheme in &schemes {
        let mut bed = Bed::new(lab, ("fragments", scheme, ""), lab.spec.device_gib << 10)?;
        let file = bed.create("in-order", true)?;
        (0..bytes).step_by(PAGE as usize).try_for_each(|at| bed.write(file, at, PAGE, 7))?;
        let files = (0..jobs).map(|n| bed.create(&name(n), true)).collect::<Result<Vec<_>>>()?;
        write_by_turns(&bed, &files, bytes, PAGE, lab.settings.seed)?;
        let pieces = [bed.extents("in-order")?, bed.extents(&name(0))?];
        let whole = bed.read_time("in-order")?;
        let apart = bed.read_time(&name(0))?;
        bed.note("extents of the file written in order", pieces[0] as f64);
        bed.note("extents of the file written at random", pieces[1] as f64);
        bed.note("microseconds to read the file written in order", whole);
        bed.note("microseconds to read the file written at random", apart);
        let cell = [bed.finish()?];
        let base = *first.get_or_insert(apart);
        let name = scheme.name.as_str();
        rows.push(row(lab, ("extents", name, "extents"), pieces[1] as f64, &cell));
        rows.push(row(lab, ("bandwidth against in order", name, "%"), above(whole, apart), &cell));
        rows.push(row(lab, ("time against in order", name, "x"), apart / whole, &cell));
        rows.push(row(lab, ("bandwidth against F2FS", name, "%"), above(base, apart), &cell));
        rows.push(row(lab, ("time against F2FS", name, "%"), above(apart, base), &cell));
    }
    Ok(rows)
}

/// Fig. 2: a file that was written at random in pieces of one size.
pub(in crate::experiment) fn pieces(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    let (bytes, sizes) = (file_bytes(lab)?, lab.spec.numbers("piece_kib")?.to_vec());
    lab.begin(schemes.len() * sizes.len());
    let mut rows = Vec::new();
    for scheme in &schemes {
        let mut whole = None;
        // The largest first: that is what the others are compared with.
        for kib in sizes.iter().rev() {
            let piece = ((*kib as u64) << 10).min(bytes);
            let mut bed =
                Bed::new(lab, ("pieces", scheme, &format!("{kib} KiB")), lab.spec.device_gib << 10)?;
            let file = bed.create(&name(0), true)?;
            write_by_turns(&bed, &[file], bytes, piece, lab.settings.seed)?;
            let (pieces, time) = (bed.extents(&name(0))? as f64, bed.read_time(&name(0))?);
            bed.note("extents", pieces);
            bed.note("microseconds to read it", time);
            let cell = [bed.finish()?];
            let whole = *whole.get_or_insert(time);
            let label = format!("{kib}");
            rows.push(row(lab, (&label, &scheme.name, "x of the largest pieces' time"), time / whole, &cell));
            rows.push(row(lab, (&label, &scheme.name, "extents"), pieces, &cell));
        }
    }
    Ok(rows)
}

/// What the device takes for each kind of I/O on a file.
fn io_times(bed: &mut Bed<'_>, bytes: u64, seed: u64) -> Result<[f64; 4]> {
    let path = name(0);
    let read_in_order = bed.read_time(&path)?;
    bed.again()?;
    let file = bed.create(&path, false)?;
    let some =
        |random: &mut Random| shuffled(random, bytes, PAGE).into_iter().take((bytes / PAGE / 4) as usize);
    let mut random = Random::new(seed, "io");
    let at_random: Vec<u64> = some(&mut random).collect();
    let read_at_random = bed.timed(|| {
        at_random.iter().try_for_each(|&at| {
            read_at(&**bed.target(), file, at, PAGE as usize).map(drop).map_err(Error::io("reading"))
        })
    })?;
    let write_in_order = bed
        .timed(|| (0..bytes).step_by(LARGEST as usize).try_for_each(|at| bed.write(file, at, LARGEST, 9)))?;
    let at_random: Vec<u64> = some(&mut random).collect();
    let write_at_random = bed.timed(|| at_random.iter().try_for_each(|&at| bed.write(file, at, PAGE, 11)))?;
    Ok([read_in_order, write_in_order, read_at_random, write_at_random])
}

/// What of Fig. 4 is measured of a scheme on a volume: times of I/O, and extents of a file.
fn measured(lab: &Lab<'_>, scheme: &Scheme, aged: bool) -> Result<([f64; 4], f64, String)> {
    let number = |name: &str| Ok::<f64, Error>(lab.spec.numbers(name)?[0]);
    let (bytes, mib) = (file_bytes(lab)?, (number("device_mib")? * lab.scale) as u64);
    let state = if aged { "High" } else { "Low" };
    let mut bed = Bed::new(lab, ("io", scheme, state), mib.max(256))?;
    let files = (0..number("files")? as usize).map(|n| bed.create(&name(n), true));
    let files = files.collect::<Result<Vec<_>>>()?;
    write_by_turns(&bed, &files, bytes, PAGE, lab.settings.seed)?;
    if aged {
        let ageing =
            Ageing { first: (number("first_kib")? as u64) << 10, fill: 90.0, leave: number("used")? };
        age(&bed, &ageing)?;
        write_by_turns(&bed, &files, bytes, PAGE, lab.settings.seed + 1)?;
        let used = bed.used();
        bed.note("percent in use", used);
    }
    let extents = bed.extents(&name(0))? as f64;
    bed.note("extents", extents);
    let times = io_times(&mut bed, bytes, lab.settings.seed)?;
    for (kind, time) in KINDS.iter().zip(times) {
        bed.note(&format!("microseconds, {kind}"), time);
    }
    Ok((times, extents, bed.finish()?))
}

const KINDS: [&str; 4] = ["sequential read", "sequential write", "random read", "random write"];

/// Fig. 4: reads and writes of a file, on a new volume and on an aged one, against F2FS on the new one.
pub(in crate::experiment) fn io(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let schemes = lab.schemes()?;
    lab.begin(2 * schemes.len());
    let (mut rows, mut low) = (Vec::new(), None);
    for (aged, state) in [(false, "Low"), (true, "High")] {
        let mut same: Option<[f64; 4]> = None;
        for scheme in &schemes {
            let (times, extents, cell) = measured(lab, scheme, aged)?;
            let cell = [cell];
            let low = *low.get_or_insert(times);
            let same = *same.get_or_insert(times);
            for (n, kind) in KINDS.iter().enumerate() {
                let gain = above(low[n], times[n]);
                rows.push(row(
                    lab,
                    (&format!("{state}, {kind}"), &scheme.name, "% above F2FS, Low"),
                    gain,
                    &cell,
                ));
                if aged {
                    let label = format!("{state}, {kind}, against {state}");
                    rows.push(row(
                        lab,
                        (&label, &scheme.name, "% above F2FS, High"),
                        above(same[n], times[n]),
                        &cell,
                    ));
                }
            }
            rows.push(row(lab, (&format!("{state}, extents"), &scheme.name, "extents"), extents, &cell));
        }
    }
    Ok(rows)
}
