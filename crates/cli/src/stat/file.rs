//! `medfs stat --file` and `medfs ars explain FILE`: the pieces of one file of a mounted volume, when it becomes
//! durable, how it is written, and where its pages belong.

use crate::words::count;
use crate::{json, size};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

pub(crate) fn show(path: &Path, as_json: bool) -> Result<()> {
    std::fs::metadata(path).with_context(|| format!("cannot access {}", path.display()))?;
    let text = medfs_fuse::control::file_stats_json(path)?;
    let stats: Value = serde_json::from_str(&text).context("the daemon's answer is not JSON")?;
    if as_json {
        return json::print(&stats);
    }
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    outln!("{}: inode {}, {}", path.display(), stats["ino"], size::show(number(&stats["size_bytes"])));
    let (pages, extents) = (number(&stats["pages"]), number(&stats["extents"]));
    outln!("  blocks      {} in {}", count(pages, "page"), count(extents, "extent"));
    let says = if stats["durability_is_own"] == true { "its own attribute" } else { "the mount" };
    outln!("  fsyncs      {}, as {says} says", word(&stats["durability"]));
    let judged = &stats["judged"];
    if judged.is_null() {
        outln!("  written     not since the mount, or so long ago that nothing is remembered of it");
        return Ok(());
    }
    let features = judged["features"].as_object().cloned().unwrap_or_default();
    for (n, (name, value)) in features.iter().enumerate() {
        outln!("  {:<11} {name} {value}", if n == 0 { "habits" } else { "" });
    }
    for (n, step) in judged["path"].as_array().into_iter().flatten().enumerate() {
        let (value, threshold) = (number(&step["value"]), number(&step["threshold"]));
        let than = if value <= threshold { "at most" } else { "more than" };
        let label = if n == 0 { "tree" } else { "" };
        outln!("  {label:<11} {} {value}: {than} {threshold}", word(&step["feature"]));
    }
    show_costs(judged);
    let (said, class) = (word(&judged["said"]), word(&judged["class"]));
    if let Some(kin) = judged["kin"].as_str() {
        outln!("  kin         {kin}: most earlier files of its directory and name pattern");
    }
    let decides = word(&judged["placed_by"]);
    let asked = if matches!(&*decides, "tree" | "cost") { "" } else { ", but is not asked" };
    outln!("  tree says   {said}, {}% sure{asked}", judged["confidence"]);
    let why = match decides.as_str() {
        "pin" => ", as the file is pinned",
        "cost" => ", as a reserve does not pay",
        "kin" => ", as its kin does: the tree is asked from its 16th write on",
        "options" => ", as the mount options say for all files",
        _ if said != class => ", until two judgements in a row say otherwise",
        _ => "",
    };
    let mut costs = judged["costs"].as_array().into_iter().flatten();
    let may_be_deltas = costs.any(|cost| cost["class"] == "delta");
    let whole = if may_be_deltas && judged["deltas"] == false { ", as a whole" } else { "" };
    outln!("  pages go    to {class}{why}{whole}");
    let windows = judged["reserved_windows"].as_array().map_or(0, Vec::len) as u64;
    match (class.as_str(), windows) {
        ("reserve", 0) => {
            outln!("  reserved    no section now: the volume may be too full, or no page was written")
        }
        _ => outln!("  reserved    {}", count(windows, "section")),
    }
    Ok(())
}

/// What an fsync of the file costs in each way in which its pages can be kept.
fn show_costs(judged: &Value) {
    for (n, cost) in judged["costs"].as_array().into_iter().flatten().enumerate() {
        let number = |name: &str| cost[name].as_f64().unwrap_or(0.0);
        let label = if n == 0 { "an fsync" } else { "" };
        let (blocks, micros, pieces) = (number("blocks"), number("micros"), number("pieces"));
        let class = cost["class"].as_str().unwrap_or("?");
        outln!("  {label:<11} {class:<14} {blocks:.1} blocks, {micros:.0} us, {pieces:.1} new pieces");
    }
    if let Some(goal) = judged["goal"].as_str() {
        outln!("  {:<11} goal={goal} decides", "");
    }
}
