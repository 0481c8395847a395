//! What is written: Fig. 1, 3, 5, 6, 7 and 13.

use super::apps::{APPS, App, LENGTH, Trace, What};
use super::{geometric, keep, mean, row};
use crate::cell::Row;
use crate::error::Result;
use crate::experiment::Lab;
use medfs::policy::tradeoff::{Fixed, Limits, Tpl, Transactioning, Written};
use std::collections::HashSet;
use std::time::Duration;

/// ext4 writes back so often what no fsync has written (section 2).
const EXT4_INTERVAL: Duration = Duration::from_secs(5);
const PAGE_KB: f64 = 4.096;

/// What became of a trace.
#[derive(Default)]
struct Outcome {
    /// Pages that were flushed, and flushes.
    pages: u64,
    flushes: u64,
    overlap: u64,
    /// Integral of the pages in memory over seconds.
    held: f64,
    /// The e curve: staleness and e, from the beginning.
    curve: Vec<(u64, u64)>,
}

/// Plays a trace: transactions end where the policy says, and where `syncs` at each fsync too.
fn play(trace: &Trace, policy: &mut dyn Transactioning, syncs: bool) -> Outcome {
    let (mut out, mut open, mut written) = (Outcome::default(), HashSet::new(), Written::default());
    let mut before = Duration::ZERO;
    for &(at, what) in &trace.events {
        out.held += open.len() as f64 * (at - before).as_secs_f64();
        before = at;
        let ends = match what {
            What::Write(page) => {
                written.staleness += 1;
                written.overlap += u64::from(!open.insert(page));
                out.curve.push((written.staleness, written.efficiency()));
                policy.wrote(at, written).is_some()
            }
            What::Fsync => syncs && written.staleness > 0,
        };
        if ends {
            flush(&mut out, &mut open, &mut written, policy);
        }
    }
    flush(&mut out, &mut open, &mut written, policy);
    out
}

fn flush(out: &mut Outcome, open: &mut HashSet<u64>, written: &mut Written, policy: &mut dyn Transactioning) {
    if !open.is_empty() {
        out.pages += open.len() as u64;
        out.flushes += 1;
        out.overlap += written.overlap;
    }
    open.clear();
    *written = Written::default();
    policy.ended();
}

fn ext4(trace: &Trace) -> Outcome {
    play(trace, &mut Fixed::interval(EXT4_INTERVAL), true)
}

fn ideal(trace: &Trace) -> Outcome {
    play(trace, &mut Fixed::default(), false)
}

/// Limits that the paper does not give.
fn limits(lab: &Lab<'_>) -> Result<Limits> {
    let one = |name: &str| Ok::<f64, crate::error::Error>(lab.spec.numbers(name)?[0]);
    Ok(Limits { staleness: one("limit_pages")? as u64, time: Duration::from_secs_f64(one("limit_seconds")?) })
}

fn tpl(trace: &Trace, k: f64, limits: Limits) -> Outcome {
    play(trace, &mut Tpl::new(k as usize, limits), false)
}

fn traces(lab: &Lab<'_>) -> Vec<(&'static App, Vec<Trace>)> {
    lab.begin(APPS.len());
    APPS.iter().map(|app| (app, Trace::all(lab.settings.seed, app))).collect()
}

/// Fig. 1: e at parts of the staleness of five minutes without a flush, and where it is highest.
pub(in crate::experiment) fn curves(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (app, traces) in traces(lab) {
        let curve = ideal(&traces[0]).curve;
        let highest = curve.iter().map(|point| point.1).max().unwrap_or(0);
        let file = keep(lab, app.name, &[("highest e in thousandths".into(), highest as f64)])?;
        for percent in [10, 25, 50, 75, 100] {
            let point = curve[(curve.len() * percent / 100).saturating_sub(1)];
            rows.push(row(lab, (&format!("{percent}%"), app.name, "e"), point.1 as f64 / 1e3, &file));
        }
        let last = curve.last().map_or(0, |point| point.0);
        rows.push(row(lab, ("staleness", app.name, "pages"), last as f64, &file));
        let peak = curve.iter().rev().max_by_key(|point| point.1).map_or(0, |point| point.0);
        rows.push(row(lab, ("peak", app.name, "% of it"), 100.0 * peak as f64 / last as f64, &file));
    }
    Ok(rows)
}

/// Fig. 3: pages that are overwritten in transactions that TPL ends, and in as many that end at fixed points.
pub(in crate::experiment) fn fixed_points(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let (ks, limits) = (lab.spec.numbers("k")?.to_vec(), limits(lab)?);
    let mut rows = Vec::new();
    let traces = traces(lab);
    for k in ks {
        let mut better = Vec::new();
        for (app, traces) in &traces {
            let (mut by_tpl, mut by_fixed) = (0, 0);
            for trace in traces {
                let ours = tpl(trace, k, limits);
                let each = ideal(trace).curve.len() as u64 / ours.flushes.max(1);
                by_tpl += ours.overlap;
                by_fixed += play(trace, &mut Fixed::staleness(each.max(1)), false).overlap;
            }
            better.push((app.name, by_tpl as f64 / by_fixed.max(1) as f64));
        }
        let named: Vec<_> = better.iter().map(|(app, n)| (format!("{app} k={k}"), *n)).collect();
        let scheme = format!("k={k}");
        let file = keep(lab, &scheme, &named)?;
        for (app, ratio) in &better {
            rows.push(row(lab, (app, &scheme, "x fixed points' overlap"), *ratio, &file));
        }
        let all: Vec<f64> = better.iter().map(|(_, ratio)| ratio.max(1e-3)).collect();
        rows.push(row(lab, ("geometric mean", &scheme, "x fixed points' overlap"), geometric(&all), &file));
    }
    Ok(rows)
}

/// Fig. 5: by what memory grows without commits, and under ext4, as the paper integrates it.
pub(in crate::experiment) fn growth(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let rate = |out: &Outcome| 2.0 * out.held * PAGE_KB / LENGTH.as_secs_f64().powi(2);
    let (mut rows, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for (app, traces) in traces(lab) {
        let of = |run: fn(&Trace) -> Outcome| mean(&traces.iter().map(|t| rate(&run(t))).collect::<Vec<_>>());
        let (mobifs, ext4) = (of(ideal), of(ext4));
        let file = keep(lab, app.name, &[(app.name.into(), mobifs)])?;
        rows.push(row(lab, (app.name, "MobiFS", "KB/s"), mobifs, &file));
        rows.push(row(lab, (app.name, "ext4", "KB/s"), ext4, &file));
        ours.push(mobifs);
        theirs.push(ext4);
    }
    let worst = ours.iter().copied().fold(0.0, f64::max);
    rows.push(row(lab, ("mean", "MobiFS", "KB/s"), mean(&ours), &[]));
    rows.push(row(lab, ("mean", "ext4", "KB/s"), mean(&theirs), &[]));
    rows.push(row(lab, ("worst", "MobiFS", "KB/s"), worst, &[]));
    rows.push(row(lab, ("100 MB last", "MobiFS", "minutes"), 1e5 / worst / 60.0, &[]));
    Ok(rows)
}

/// Fig. 6: time between commits, by k.
pub(in crate::experiment) fn intervals(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let (ks, limits) = (lab.spec.numbers("k")?.to_vec(), limits(lab)?);
    let traces = traces(lab);
    let seconds = |flushes: u64, users: usize| LENGTH.as_secs_f64() * users as f64 / flushes.max(1) as f64;
    let mut rows = Vec::new();
    for k in ks {
        let (mut of_apps, mut to_ext4, mut to_timer, mut users) = (vec![], vec![], vec![], vec![]);
        let scheme = format!("k={k}");
        for (app, traces) in &traces {
            let flushes: Vec<u64> = traces.iter().map(|trace| tpl(trace, k, limits).flushes).collect();
            let ext4 = traces.iter().map(|trace| ext4(trace).flushes).sum();
            let mobifs = seconds(flushes.iter().sum(), traces.len());
            rows.push(row(lab, (app.name, &scheme, "s"), mobifs, &[]));
            to_ext4.push(mobifs / seconds(ext4, traces.len()));
            to_timer.push(mobifs / EXT4_INTERVAL.as_secs_f64());
            of_apps.push(mobifs);
            if app.name == "FB" {
                users = flushes.iter().map(|&flushes| seconds(flushes, 1)).collect();
            }
        }
        let spread =
            |of: &[f64]| of.iter().copied().fold(0.0, f64::max) / of.iter().copied().fold(f64::MAX, f64::min);
        let file = keep(lab, &scheme, &[(format!("to ext4, k={k}"), geometric(&to_ext4))])?;
        rows.push(row(lab, ("to ext4's flushes", &scheme, "x"), geometric(&to_ext4), &file));
        rows.push(row(lab, ("to ext4's timer alone", &scheme, "x"), geometric(&to_timer), &file));
        rows.push(row(lab, ("between apps", &scheme, "x"), spread(&of_apps), &file));
        rows.push(row(lab, ("between users of FB", &scheme, "x"), spread(&users), &file));
    }
    Ok(rows)
}

/// Fig. 13: what is flushed, by k: of data, as the paper counts.
pub(in crate::experiment) fn flushed(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let (ks, limits) = (lab.spec.numbers("k")?.to_vec(), limits(lab)?);
    let traces = traces(lab);
    let mut rows = Vec::new();
    for k in ks {
        let scheme = format!("k={k}");
        let (mut parts, mut sums) = (Vec::new(), [0; 2]);
        for (app, traces) in &traces {
            let ours: u64 = traces.iter().map(|trace| tpl(trace, k, limits).pages).sum();
            let theirs: u64 = traces.iter().map(|trace| ext4(trace).pages).sum();
            parts.push(ours as f64 / theirs as f64);
            sums = [sums[0] + ours, sums[1] + theirs];
            let less = 100.0 * (1.0 - ours as f64 / theirs as f64);
            rows.push(row(lab, (app.name, &scheme, "% less"), less, &[]));
        }
        let less = 100.0 * (1.0 - geometric(&parts));
        let file = keep(lab, &scheme, &[(format!("less, k={k}"), less)])?;
        rows.push(row(lab, ("geometric mean", &scheme, "% less"), less, &file));
        rows.push(row(lab, ("mean size", &scheme, "x less"), sums[1] as f64 / sums[0] as f64, &file));
    }
    Ok(rows)
}

/// Plays a trace in some way.
type Run = Box<dyn Fn(&Trace) -> Outcome>;

/// Fig. 7: what is overwritten in memory of all that five minutes write, without a flush, by TPL and by ext4.
pub(in crate::experiment) fn followed(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let (ks, limits) = (lab.spec.numbers("k")?.to_vec(), limits(lab)?);
    let traces = traces(lab);
    let part = |traces: &[Trace], run: &dyn Fn(&Trace) -> Outcome| {
        let of_one = |trace: &Trace| {
            let out = run(trace);
            out.overlap as f64 / out.curve.len().max(1) as f64
        };
        mean(&traces.iter().map(of_one).collect::<Vec<_>>())
    };
    let mut schemes: Vec<(String, Run)> = vec![("ext4".into(), Box::new(ext4))];
    for k in ks {
        schemes.push((format!("k={k}"), Box::new(move |trace: &Trace| tpl(trace, k, limits))));
    }
    let (mut rows, ideals) = (Vec::new(), traces.iter().map(|(_, traces)| part(traces, &ideal)));
    let ideals: Vec<f64> = ideals.collect();
    for ((app, _), e) in traces.iter().zip(&ideals) {
        rows.push(row(lab, (app.name, "ideal", "e"), *e, &[]));
    }
    for (scheme, run) in &schemes {
        let of_apps: Vec<f64> = traces.iter().map(|(_, traces)| part(traces, &**run)).collect();
        let named: Vec<(String, f64)> =
            traces.iter().zip(&of_apps).map(|((app, _), e)| (app.name.to_owned(), *e)).collect();
        let file = keep(lab, scheme, &named)?;
        for (app, e) in &named {
            rows.push(row(lab, (app, scheme, "e"), *e, &file));
        }
        let of_ideal: Vec<f64> = of_apps.iter().zip(&ideals).map(|(e, ideal)| e / ideal).collect();
        rows.push(row(lab, ("mean", scheme, "of the ideal"), mean(&of_ideal), &file));
    }
    Ok(rows)
}
