//! ARS's Table I: how well a decision tree says which files will fragment.

use crate::cell::Row;
use crate::error::{Error, Result};
use crate::experiment::Lab;
use medfs_ars::{
    APPLICATIONS, Application, Limits, Moment, Sample, Score, Seen, cross_validated, files_of_phone,
};

/// How the samples of a set are made, and what the rows call it.
const MOMENTS: [(Moment, &str); 2] = [(Moment::End, "at the end"), (Moment::Judged, "when judged")];
/// The tree that volumes without one judge by, on what they judge.
const BUILT_IN: &str = "built in, when judged";
/// Saying of every file that it belongs in the logs.
const NOTHING: [&str; 2] = ["reserve nothing, at the end", "reserve nothing, when judged"];

fn samples(files: &[Seen], moment: Moment) -> Vec<Sample> {
    files.iter().enumerate().flat_map(|(n, seen)| seen.samples(n, moment)).collect()
}

/// The mean score of each way, over several sets of files: of learned trees at both moments, and of the built-in one.
fn scores(lab: &Lab<'_>, app: &Application, sets: u64, divisions: u32) -> Result<[Score; 3]> {
    let mut means = [Score::default(); 3];
    for set in 0..sets {
        lab.settings.progress.step(&format!("{} {}", app.name, set + 1));
        let seed = lab.settings.seed.wrapping_add(set);
        let files = files_of_phone(app, seed).map_err(|e| Error::Ars(Box::new(e)))?;
        for (mean, (moment, _)) in means.iter_mut().zip(MOMENTS) {
            let score = cross_validated(&samples(&files, moment), Limits::default(), divisions, seed);
            mean.add(score, 1.0 / sets as f64);
        }
        let built_in = Score::of(&medfs::ars::built_in(), &samples(&files, Moment::Judged));
        means[2].add(built_in, 1.0 / sets as f64);
    }
    Ok(means)
}

/// What a row shows of a score.
fn figures(score: &Score) -> [(&'static str, f64); 3] {
    [("precision", score.precision), ("recall", score.recall), ("accuracy", score.accuracy)]
}

fn rows(lab: &Lab<'_>, app: &Application, scores: [Score; 3]) -> Result<Vec<Row>> {
    let mut cell = lab.blank_cell(app.name, "in memory");
    let mut shown = Vec::new();
    let schemes = MOMENTS.into_iter().map(|(_, scheme)| scheme).chain([BUILT_IN]);
    for (scheme, score) in schemes.zip(&scores) {
        for (name, share) in figures(score) {
            shown.push((format!("{}, {name}", app.name), scheme, 100.0 * share));
        }
    }
    for (scheme, score) in NOTHING.into_iter().zip(&scores) {
        shown.push((format!("{}, accuracy", app.name), scheme, 100.0 * score.always_log));
    }
    cell.values.extend(shown.iter().map(|(label, scheme, value)| (format!("{label}, {scheme}"), *value)));
    let file = lab.keep(&cell)?;
    Ok(shown
        .into_iter()
        .map(|(label, scheme, value)| lab.spec.row(&label, scheme, Some(value), std::slice::from_ref(&file)))
        .collect())
}

/// Rows of precision, recall and accuracy of each application.
pub(in crate::experiment) fn table(lab: &Lab<'_>) -> Result<Vec<Row>> {
    let number = |name: &str| Ok::<f64, Error>(lab.spec.numbers(name)?[0]);
    let sets = ((number("sets")? * lab.scale) as u64).max(1);
    let divisions = number("divisions")? as u32;
    lab.begin(APPLICATIONS.len() * sets as usize);
    let mut all = Vec::new();
    for app in &APPLICATIONS {
        let scores = scores(lab, app, sets, divisions)?;
        all.extend(rows(lab, app, scores)?);
    }
    Ok(all)
}
