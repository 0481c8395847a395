//! `medfs lab list`: what there is to run.

use super::{table, trimmed};
use crate::args::LabListArgs;
use crate::{exit, json};
use anyhow::Result;
use medfs_lab::experiment::{self, Spec};
use medfs_lab::workload::{self, real::PROGRAMS};
use serde_json::json as object;

pub(super) fn run(args: &LabListArgs) -> Result<u8> {
    let specs = experiment::all().map(|e| e.spec()).collect::<medfs_lab::Result<Vec<_>>>()?;
    if args.json {
        json::print(&document(&specs))?;
        return Ok(exit::SUCCESS);
    }
    let mut experiments = table(&["experiment", "what", "where"]);
    for s in &specs {
        experiments.add_row([&*s.name, &s.title, &short(&s.paper)]);
    }
    outln!("{}\n", trimmed(&experiments));
    let mut works = table(&["workload", "what"]);
    for w in workload::ALL {
        works.add_row([w.name, w.about]);
    }
    for p in PROGRAMS {
        let missing = if p.command().is_ok() { "" } else { " (not installed here)" };
        works.add_row([p.name, &format!("{}{missing}", p.about)]);
    }
    outln!("{}\n", trimmed(&works));
    outln!("'medfs lab run NAME' runs an experiment, 'medfs lab work NAME DIR' a workload.");
    Ok(exit::SUCCESS)
}

/// Everything that is known of each.
fn document(specs: &[Spec]) -> serde_json::Value {
    let of_experiment = |s: &Spec| {
        object!({"name": s.name, "title": s.title, "paper": s.paper, "about": s.about, "scale": s.scale,
            "workloads": s.workloads, "schemes": s.schemes})
    };
    let experiments: Vec<_> = specs.iter().map(of_experiment).collect();
    let workloads: Vec<_> =
        workload::ALL.iter().map(|w| object!({"name": w.name, "about": w.about})).collect();
    let programs: Vec<_> = PROGRAMS
        .iter()
        .map(|p| object!({"name": p.name, "about": p.about, "available": p.command().is_ok()}))
        .collect();
    object!({"experiments": experiments, "workloads": workloads, "programs": programs})
}

/// Where in a paper, in few words: `MedFS, Fig. 7`, `LDC, Fig. 8`; sections only where there is no figure or
/// table.
fn short(paper: &str) -> String {
    let ldc = format!("{} ", medfs_flash::experiments::PAPER.trim_end_matches("(LDC)").trim_end());
    let place = paper.replace(&ldc, "").replace("(LDC)", "LDC").replace(", FAST'25", "");
    place.split(" and section").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn a_place_in_a_paper_is_short() {
        assert_eq!(short("MedFS, FAST'25, Fig. 7 and section 6.2.1"), "MedFS, Fig. 7");
        let ldc = format!("{}, Fig. 5, Table 2 and section 5.1", medfs_flash::experiments::PAPER);
        assert_eq!(short(&ldc), "LDC, Fig. 5, Table 2");
        assert_eq!(short("MedFS, FAST'25, section 6.2.1 and Eq. 1"), "MedFS, section 6.2.1 and Eq. 1");
        assert_eq!(short("No paper's figure"), "No paper's figure");
    }
}
