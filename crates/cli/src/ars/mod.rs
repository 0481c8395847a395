//! `medfs ars`: the decision tree that chooses the files with sections of their own, learned, shown and kept
//! on a volume.

pub(crate) mod args;

use crate::words::count;
use crate::{exit, json, progress, stat, target};
use anyhow::{Context, Result, bail};
use args::{ArsArgs, ArsCommand, ExplainArgs, LoadArgs, MomentArg, RetrainArgs, ShowArgs, TrainArgs};
use comfy_table::{CellAlignment, Table, presets};
use medfs::ars::{ATTRIBUTE, Class, Feature, Tree, TreeNode, Values};
use medfs::{Files, XattrMode};
use medfs_ars::{Limits, Moment, Sample, Score, Seen, cross_validated, samples_of, train};
use rustix::fs::XattrFlags;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// The tree that volumes without one judge by.
const BUILT_IN: &str = "built-in";
/// Divisions into files that are learned from and files that are judged (ARS, section IV-A), and their seed.
const DIVISIONS: u32 = 10;
const SEED: u64 = 1;
/// Most bytes of a file that may be a tree.
const TREE_BYTES_MAX: u64 = 1 << 16;

pub(crate) fn run(args: &ArsArgs) -> Result<u8> {
    match &args.command {
        ArsCommand::Train(args) => learn(args),
        ArsCommand::Explain(args) => explain(args),
        ArsCommand::Load(args) => load(args),
        ArsCommand::Show(args) => show(args),
        ArsCommand::Retrain(args) => retrain(args),
    }
}

/// Reads a tree.
fn tree(path: &Path) -> Result<Tree> {
    if path.as_os_str() == BUILT_IN {
        return Ok(medfs::ars::built_in());
    }
    let cannot = || format!("cannot read {}", path.display());
    let metadata = std::fs::metadata(path).with_context(cannot)?;
    if !metadata.is_file() {
        // What is read of a FIFO, or of a device, may have no end.
        bail!("{}: not a decision tree, as it is no regular file", path.display());
    }
    let bytes = metadata.len();
    if bytes > TREE_BYTES_MAX {
        bail!("{}: not a decision tree: {bytes} bytes", path.display());
    }
    let bytes = std::fs::read(path).with_context(cannot)?;
    Tree::parse(&bytes).with_context(|| format!("{}: not a decision tree", path.display()))
}

/// The files that traces write.
fn files_of(traces: &[PathBuf], size: u64) -> Result<Vec<Seen>> {
    let mut files = Vec::new();
    for trace in traces {
        let total = std::fs::metadata(trace).map_or(0, |meta| meta.len());
        let bar = progress::bytes(&trace.display().to_string(), total);
        let mut reader = medfs_replay::open(trace)?;
        let seen = samples_of(&mut reader, size, &|bytes| bar.set_position(bytes));
        bar.finish_and_clear();
        files.extend(seen.with_context(|| trace.display().to_string())?);
    }
    if files.is_empty() {
        let names: Vec<String> = traces.iter().map(|trace| trace.display().to_string()).collect();
        return Err(medfs_ars::Error::NoWrites(names.join(", ")).into());
    }
    Ok(files)
}

fn learn(args: &TrainArgs) -> Result<u8> {
    if !args.force && args.out.exists() {
        bail!("{} exists: use --force to overwrite it", args.out.display());
    }
    let files = files_of(&args.traces, args.size)?;
    let moment = match args.moments {
        MomentArg::Judged => Moment::Judged,
        MomentArg::End => Moment::End,
    };
    let samples: Vec<Sample> =
        files.iter().enumerate().flat_map(|(n, seen)| seen.samples(n, moment)).collect();
    let limits = Limits { depth: args.depth, least: args.least as usize };
    let tree = train(&samples, limits);
    let score = cross_validated(&samples, limits, DIVISIONS, SEED);
    std::fs::write(&args.out, tree.to_bytes())
        .with_context(|| format!("cannot write {}", args.out.display()))?;
    let fragmented = files.iter().filter(|seen| seen.class() == Class::Reserve).count();
    if args.json {
        json::print(&json!({
            "files": files.len(), "samples": samples.len(), "files_to_reserve": fragmented,
            "score": score_json(&score), "nodes": nodes_json(&tree),
        }))?;
        return Ok(exit::SUCCESS);
    }
    let (of, samples) = (count(files.len() as u64, "file"), count(samples.len() as u64, "sample"));
    outln!("{}: {samples} of {of}, {fragmented} of them should have been reserved\n", args.out.display());
    let moments = match moment {
        Moment::Judged => "the moments at which a volume judges a file (--moments=end: the end of each file)",
        Moment::End => "the end of each file (--moments=judged: the moments at which a volume judges it)",
    };
    outln!("Score of trees for files held back, at {moments}:");
    show_score(&score)?;
    show_tree(&tree);
    Ok(exit::SUCCESS)
}

fn explain(args: &ExplainArgs) -> Result<u8> {
    let tree = match tree(&args.tree) {
        Err(_) if args.traces.is_empty() && medfs_fuse::control::is_file_of_medfs(&args.tree) => {
            stat::file::show(&args.tree, args.json)?;
            return Ok(exit::SUCCESS);
        }
        tree => tree?,
    };
    let files = if args.traces.is_empty() { Vec::new() } else { files_of(&args.traces, args.size)? };
    if args.json {
        let files: Vec<Value> = files.iter().map(|seen| file_json(&tree, seen)).collect();
        json::print(&json!({ "nodes": nodes_json(&tree), "files": files }))?;
        return Ok(exit::SUCCESS);
    }
    show_tree(&tree);
    if files.is_empty() {
        return Ok(exit::SUCCESS);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "file",
        "writes",
        "pages",
        "extents",
        "said",
        "sure",
        "belongs in",
    ]);
    table.column_iter_mut().skip(1).take(3).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    for seen in &files {
        let (said, sure) = tree.judge(&seen.end);
        table.add_row([
            medfs_device::quote::for_terminal(&seen.name),
            seen.end[Feature::Writes as usize].to_string(),
            seen.end[Feature::Size as usize].to_string(),
            seen.extents.to_string(),
            said.name().into(),
            format!("{sure}%"),
            seen.class().name().into(),
        ]);
    }
    outln!("\n{table}");
    let samples: Vec<Sample> =
        files.iter().enumerate().flat_map(|(n, seen)| seen.samples(n, Moment::End)).collect();
    outln!(
        "\nScore of this tree for these files, at the end of each; 'medfs ars train' scores files held back:"
    );
    show_score(&Score::of(&tree, &samples))?;
    Ok(exit::SUCCESS)
}

fn load(args: &LoadArgs) -> Result<u8> {
    let tree = tree(&args.tree)?;
    let bytes = tree.to_bytes();
    let shown = args.target.display();
    match mount_point(&args.target)? {
        None => target::with_volume(&args.target, |volume| {
            Ok(volume.setxattr(volume.root(), ATTRIBUTE, &bytes, XattrMode::Set)?)
        })?,
        Some(dir) => rustix::fs::setxattr(&dir, ATTRIBUTE, &bytes, XattrFlags::empty())
            .map_err(std::io::Error::from)
            .with_context(|| format!("cannot keep the tree on {shown}"))?,
    }
    let nodes = count(tree.nodes().len() as u64, "node");
    outln!("{shown}: has a decision tree of {nodes} now, which placement=reserve,reserve_files=tree uses");
    Ok(exit::SUCCESS)
}

/// The directory on which a volume is mounted, where one is named; an image or device otherwise.
fn mount_point(target: &Path) -> Result<Option<PathBuf>> {
    if !std::fs::metadata(target).is_ok_and(|meta| meta.is_dir()) {
        return Ok(None);
    }
    let dir = target.canonicalize().with_context(|| format!("cannot access {}", target.display()))?;
    let is_root = medfs_fuse::control::is_medfs(&dir)?
        && medfs_fuse::control::find_mount(&dir)?.is_some_and(|mount| mount.on == dir);
    if !is_root {
        bail!("{} is not the mount point of a medfs volume", target.display());
    }
    Ok(Some(dir))
}

/// The tree that a volume keeps, if any. What is there and is no tree is an error.
fn kept_on(target: &Path) -> Result<Option<Tree>> {
    let found = match mount_point(target)? {
        None => {
            let volume = target::open_volume_read_only(target::open_to_read(target)?, target)?;
            match volume.getxattr(volume.root(), ATTRIBUTE) {
                Err(medfs::Error::Posix(medfs::Posix::NoAttribute)) => None,
                found => Some(found?),
            }
        }
        Some(dir) => {
            let mut bytes = vec![0; TREE_BYTES_MAX as usize];
            match rustix::fs::getxattr(&dir, ATTRIBUTE, &mut bytes[..]) {
                Err(rustix::io::Errno::NODATA) => None,
                len => Some(bytes[..len.map_err(std::io::Error::from)?].to_vec()),
            }
        }
    };
    let parse = |bytes: Vec<u8>| Tree::parse(&bytes).context("its decision tree cannot be used");
    found.map(parse).transpose()
}

fn show(args: &ShowArgs) -> Result<u8> {
    let shown = args.target.display();
    let kept = kept_on(&args.target).with_context(|| shown.to_string())?;
    let (is_own, tree) = (kept.is_some(), kept.unwrap_or_else(medfs::ars::built_in));
    if args.json {
        json::print(&json!({ "is_own": is_own, "nodes": nodes_json(&tree) }))?;
        return Ok(exit::SUCCESS);
    }
    let whose =
        if is_own { "a decision tree of its own" } else { "none of its own: the built-in decision tree" };
    outln!("{shown}: {whose}\n");
    show_tree(&tree);
    Ok(exit::SUCCESS)
}

fn retrain(args: &RetrainArgs) -> Result<u8> {
    let Some(text) = medfs_fuse::control::retrain_json(&args.dir)? else {
        bail!(
            "{}: no decision tree is used: mount with placement=reserve,reserve_files=tree",
            args.dir.display()
        );
    };
    let trained: Value = serde_json::from_str(&text).context("the daemon's answer is not JSON")?;
    if args.json {
        json::print(&trained)?;
    } else {
        outln!("{}", decision(&trained));
    }
    Ok(exit::SUCCESS)
}

/// What came of a training, in a sentence.
fn decision(trained: &Value) -> String {
    let files = trained["files"].as_u64().unwrap_or(0);
    let accuracy = |of: &str| trained["accuracies"][of].as_f64().unwrap_or(0.0) * 100.0;
    let (new, in_force) = (accuracy("new"), accuracy("in_force"));
    let compared = format!(
        "the new tree is right about {new:.1}% of what was held back, the one in use about {in_force:.1}%"
    );
    if trained["accuracies"].is_null() {
        let least = trained["least_files"].as_u64().unwrap_or(0);
        format!(
            "what became of {} is known since the mount, and {least} are needed: the tree stays",
            count(files, "file")
        )
    } else if trained["adopted"] == true {
        format!("Of {}, {compared}: the new one is used from now on", count(files, "file"))
    } else {
        format!("Of {}, {compared}: that one stays", count(files, "file"))
    }
}

fn score_json(score: &Score) -> Value {
    json!({
        "precision": score.precision, "recall": score.recall, "accuracy": score.accuracy,
        "accuracy_of_reserving_nothing": score.always_log,
    })
}

fn show_score(score: &Score) -> Result<()> {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(["", "precision", "recall", "accuracy"]);
    table.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
    let cell = |share: f64| format!("{share:.3}");
    table.add_row(["tree".into(), cell(score.precision), cell(score.recall), cell(score.accuracy)]);
    table.add_row(["reserve nothing".into(), cell(0.0), cell(0.0), cell(score.always_log)]);
    outln!("{table}\n");
    Ok(())
}

/// A node in words.
fn node_text(node: &TreeNode) -> String {
    match node {
        TreeNode::Split { feature, threshold, .. } => format!("{} <= {threshold}?", feature.name()),
        TreeNode::Leaf { class, confidence } => format!("{}, {confidence}% sure", class.name()),
    }
}

fn show_tree(tree: &Tree) {
    let mut below = vec![(0u8, 0usize, "")];
    while let Some((at, depth, answer)) = below.pop() {
        let node = tree.nodes()[usize::from(at)];
        outln!("{:indent$}{answer}{}", "", node_text(&node), indent = 2 * depth);
        if let TreeNode::Split { left, right, .. } = node {
            below.extend([(right, depth + 1, "no:  "), (left, depth + 1, "yes: ")]);
        }
    }
}

pub(crate) fn node_json(node: &TreeNode) -> Value {
    match *node {
        TreeNode::Split { feature, threshold, left, right } => {
            json!({ "feature": feature.name(), "threshold": threshold, "left": left, "right": right })
        }
        TreeNode::Leaf { class, confidence } => json!({ "class": class.name(), "confidence": confidence }),
    }
}

fn nodes_json(tree: &Tree) -> Vec<Value> {
    tree.nodes().iter().map(node_json).collect()
}

pub(crate) fn features_json(features: &Values) -> Value {
    let rows = Feature::ALL.iter().map(|f| (f.name().to_owned(), features[*f as usize].into()));
    Value::Object(rows.collect::<Map<_, _>>())
}

fn file_json(tree: &Tree, seen: &Seen) -> Value {
    let (name, hex) = json::name(&seen.name);
    let (said, sure) = tree.judge(&seen.end);
    let mut file = json!({
        "name": name, "features": features_json(&seen.end), "extents": seen.extents,
        "path": tree.path(&seen.end).collect::<Vec<_>>(), "said": said.name(), "confidence": sure,
        "belongs_in": seen.class().name(),
    });
    if let Some(hex) = hex {
        file["name_hex"] = hex.into();
    }
    file
}
