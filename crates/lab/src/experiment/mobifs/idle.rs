//! When the user does nothing: Fig. 8 and 9, by how many intervals are remembered and what counts as short.

use super::apps::{APPS, Trace};
use super::{keep, mean, row};
use crate::cell::Row;
use crate::error::Result;
use crate::experiment::Lab;
use medfs::policy::interval::{IntervalFsm, Last, Prediction};
use std::time::Duration;

/// Predictions for a user: their mean length in seconds, and touches within each.
#[derive(Default)]
struct Judged {
    predictions: u64,
    seconds: f64,
    conflicts: u64,
}

/// One prediction for an interval: at the touch that begins it, or, where a state knows a longer one, when its
/// timer has passed without a touch.
fn judge(touches: &[Duration], model: &mut dyn Prediction) -> Judged {
    let mut judged = Judged::default();
    for (n, &touch) in touches.iter().enumerate() {
        model.user(touch);
        let next = touches.get(n + 1).copied();
        let later = model.wakes().filter(|&at| next.is_none_or(|next| at < next));
        let at = later.unwrap_or(touch);
        let Some(quiet) = model.quiet(at) else { continue };
        judged.predictions += 1;
        judged.seconds += quiet.as_secs_f64();
        let within = touches[n + 1..].iter().take_while(|&&next| next < at + quiet);
        judged.conflicts += within.count() as u64;
    }
    judged
}

/// Of each app: length and conflicts of LMM, LAM and the machine.
fn models(seed: u64, k: usize, tau: Duration) -> Vec<[(f64, f64); 3]> {
    let of = |app| {
        let traces = Trace::all(seed, app);
        let model = |make: &dyn Fn() -> Box<dyn Prediction>| {
            let mut all = Judged::default();
            for trace in &traces {
                let one = judge(&trace.touches, make().as_mut());
                all.predictions += one.predictions;
                all.seconds += one.seconds;
                all.conflicts += one.conflicts;
            }
            let count = all.predictions.max(1) as f64;
            (all.seconds / count, all.conflicts as f64 / count)
        };
        [
            model(&|| Box::new(Last::min(k))),
            model(&|| Box::new(Last::average(k))),
            model(&|| Box::new(IntervalFsm::new(k, tau))),
        ]
    };
    APPS.iter().map(of).collect()
}

const NAMES: [&str; 3] = ["LMM", "LAM", "FSM"];

/// Rows that compare the models: of k and tau, the means over apps, and each app.
type Compare = fn(&Lab<'_>, &str, [f64; 3], &[[(f64, f64); 3]], &[String]) -> Vec<Row>;

/// For each k and tau: the means over apps, and each app's at the first of both.
fn table(lab: &Lab<'_>, unit: &str, of: fn(&(f64, f64)) -> f64, compare: Compare) -> Result<Vec<Row>> {
    let (ks, taus) = (lab.spec.numbers("k")?.to_vec(), lab.spec.numbers("tau")?.to_vec());
    lab.begin(ks.len() * taus.len());
    let mut rows = Vec::new();
    for (n, (&k, &tau)) in ks.iter().flat_map(|k| taus.iter().map(move |tau| (k, tau))).enumerate() {
        let all = models(lab.settings.seed, k as usize, Duration::from_secs_f64(tau));
        let means = [0, 1, 2].map(|model| mean(&all.iter().map(|app| of(&app[model])).collect::<Vec<_>>()));
        let variant = format!("k={k}, tau={tau} s");
        let values: Vec<_> =
            NAMES.iter().zip(means).map(|(name, mean)| (format!("{name} {variant}"), mean)).collect();
        let file = keep(lab, &variant, &values)?;
        if n == 0 {
            for (app, models) in APPS.iter().zip(&all) {
                for (name, model) in NAMES.iter().zip(models) {
                    rows.push(row(lab, (app.name, name, unit), of(model), &file));
                }
            }
        }
        for (name, mean) in NAMES.iter().zip(means) {
            rows.push(row(lab, (&format!("mean, {variant}"), name, unit), mean, &file));
        }
        rows.extend(compare(lab, &variant, means, &all, &file));
    }
    Ok(rows)
}

/// Fig. 8: touches within a predicted interval.
pub(in crate::experiment) fn conflicts(lab: &Lab<'_>) -> Result<Vec<Row>> {
    table(
        lab,
        "conflicts a prediction",
        |model| model.1,
        |lab, variant, [_, lam, fsm], _, file| {
            let below = 100.0 * (1.0 - fsm / lam);
            vec![row(lab, (&format!("below LAM, {variant}"), "FSM", "%"), below, file)]
        },
    )
}

/// Fig. 9: length of predicted intervals.
pub(in crate::experiment) fn lengths(lab: &Lab<'_>) -> Result<Vec<Row>> {
    table(
        lab,
        "s",
        |model| model.0,
        |lab, variant, [lmm, lam, fsm], all, file| {
            let above = all.iter().filter(|app| app[2].0 > app[1].0).count();
            vec![
                row(lab, (&format!("of LAM's, {variant}"), "FSM", "%"), 100.0 * fsm / lam, file),
                row(lab, (&format!("to LMM's, {variant}"), "FSM", "x"), fsm / lmm, file),
                row(lab, (&format!("above LAM, {variant}"), "FSM", "of 10 apps"), above as f64, file),
            ]
        },
    )
}
