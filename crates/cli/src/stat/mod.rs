//! `medfs stat`: what a volume holds; of a mounted one also what it has written, by cause.

mod derived;
pub(crate) mod file;
mod report;

use crate::args::StatArgs;
use crate::{abandoned, convert, damaged, exit, json, lifetime_writes, size, survivor, target, words};
use anyhow::{Context, Result, bail};
use derived::Derived;
use medfs_device::Holder;
use medfs_device::mounts::MountEntry;
use medfs_device::quote::{self, hint};
use medfs_format::dentry;
use medfs_fsck::dump::{Dump, Value};
use medfs_fuse::control;
use serde::Serialize;
use std::path::Path;

/// An image's description for `--json`.
#[derive(Serialize)]
struct ImageStat {
    /// `delta`: may hold deltas; `plain`: F2FS alone.
    kind: &'static str,
    label: String,
    uuid: String,
    features: Vec<String>,
    size_bytes: u64,
    user_bytes: u64,
    used_bytes: u64,
    inodes: u64,
    /// Of these, those that hold medfs's own records, and no file of a user.
    own_inodes: u64,
    nodes: u64,
    main_segments: u64,
    free_segments: u64,
    overprovision_segments: u64,
    reserved_segments: u64,
    segs_per_section: u64,
    checkpoint_version: u64,
    checkpoint_flags: String,
    /// KiB written to the volume in its life; none where the last checkpoint was not written at unmount.
    kbytes_written: Option<u64>,
    /// The last checkpoint was written at unmount, and nothing was fsynced since.
    last_checkpoint_at_unmount: bool,
    /// Where the volume is mounted now: these are then the numbers of its last checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    mounted_on: Option<String>,
    /// An import of the volume was interrupted, and is to be run again.
    import_interrupted: bool,
    /// The NVRAM in which fsyncs since the last checkpoint may lie; the numbers are then those of that checkpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    nvram: Option<String>,
    /// Files that were fsynced since the last checkpoint: who mounts the volume brings them back.
    fsynced_since: u64,
}

/// `medfs stat`
pub(crate) fn run(args: &StatArgs) -> Result<u8> {
    abandoned::refuse(&args.target)?;
    abandoned::refuse_foreign(&args.target)?;
    if args.file {
        file::show(&args.target, args.json)?;
        return Ok(exit::SUCCESS);
    }
    if medfs_flash::FlashTarget::parse(&args.target)?.is_some() {
        image(args)?;
        return Ok(exit::SUCCESS);
    }
    let meta = std::fs::metadata(&args.target)
        .with_context(|| format!("cannot access {}", args.target.display()))?;
    if meta.is_dir() { mounted(args) } else { image(args).map_err(|error| of_mounted(args, error)) }?;
    Ok(exit::SUCCESS)
}

/// A file that is no image, on a volume that is mounted: it is the file that is asked about.
fn of_mounted(args: &StatArgs, error: anyhow::Error) -> anyhow::Error {
    let dir = args.target.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !medfs_fuse::control::is_medfs(dir).unwrap_or(false) {
        return error;
    }
    let file = &args.target;
    let shows = hint(format_args!("medfs stat --file {}", quote::path(file)));
    anyhow::anyhow!("{} is a file of a mounted volume: {shows} shows it", file.display())
}

fn mounted(args: &StatArgs) -> Result<()> {
    if !medfs_fuse::control::is_medfs(&args.target)? {
        bail!(
            "{} is not on a mounted medfs volume; for an image that is not mounted, name the image",
            args.target.display()
        );
    }
    let json = medfs_fuse::control::stats_json(&args.target)?;
    let mut stats: serde_json::Value =
        serde_json::from_str(&json).context("the daemon's answer is not JSON")?;
    // A remount is between mount(8) and the kernel; the daemon goes on as it was opened.
    let mounted = rustix::fs::statvfs(&args.target).context("cannot query the mount")?;
    if mounted.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        stats["read_only"] = true.into();
        for option in stats["options"].as_array_mut().into_iter().flatten().filter(|option| *option == "rw") {
            *option = "ro".into();
        }
    }
    let derived = Derived::of(&stats, &args.card);
    if args.json {
        stats["derived"] = serde_json::to_value(&derived)?;
        outln!("{}", json::versioned(&stats)?);
        return Ok(());
    }
    let seconds = stats["open_millis"].as_u64().unwrap_or(0) as f64 / 1000.0;
    let bytes = size::show(stats["volume_bytes"].as_u64().unwrap_or(0));
    outln!("{}: volume of {bytes}, mounted for {}", args.target.display(), size::time(seconds));
    if stats["low_power"] == true {
        let ok = hint(format_args!("medfs power ok {}", quote::path(&args.target)));
        outln!("  power may fail: fsyncs are durable before they return, until {ok}");
    }
    if let Some(met) = stats["damage_met"].as_u64().filter(|met| *met > 0) {
        let met = words::count(met, "operation");
        outln!("  {met} failed on damage: 'medfs help damaged' says what to do, and the log which files");
    }
    outln!("{}", report::Report::of(&stats, &derived).trim_end());
    Ok(())
}

fn image(args: &StatArgs) -> Result<()> {
    let s = describe(&args.target)?;
    if args.json {
        json::print(&s)?;
        return Ok(());
    }
    let kind = if s.kind == "delta" { "medfs volume, with deltas," } else { "F2FS volume" };
    outln!("{}: {kind} of {}", args.target.display(), size::show(s.size_bytes));
    let features = if s.features.is_empty() { "none".into() } else { s.features.join(", ") };
    let segments = format!(
        "{} free of {}, {} over-provisioned, {} reserved for cleaning, {} a section",
        s.free_segments, s.main_segments, s.overprovision_segments, s.reserved_segments, s.segs_per_section
    );
    for (label, value) in [
        ("label", if s.label.is_empty() { "-".into() } else { s.label.clone() }),
        ("uuid", s.uuid.clone()),
        ("features", features),
        ("used", format!("{} of {}", size::show(s.used_bytes), size::show(s.user_bytes))),
        ("inodes", inodes(&s)),
        ("segments", segments),
        ("written", written(s.kbytes_written, s.mounted_on.is_some())),
        ("checkpoint", format!("version {}, {}", s.checkpoint_version, s.checkpoint_flags)),
        ("state", state(&s)),
    ] {
        outln!("{}", words::field(11, label, &value));
    }
    if s.import_interrupted {
        outln!("{}", convert::interrupted(&args.target));
    }
    if let Some(nvram) = &s.nvram {
        let ways = damaged::ways_to_fsyncs(nvram, &args.target);
        outln!("fsyncs since the last checkpoint may lie in the NVRAM {nvram}: {ways}");
    }
    match &s.mounted_on {
        Some(dir) if control::is_abandoned(Path::new(dir)) => outln!(
            "These numbers are as of the last checkpoint. The daemon of the mount has ended: {} unmounts it.",
            hint(format_args!("medfs umount {}", quote::path(Path::new(dir))))
        ),
        Some(dir) => outln!(
            "These numbers are as of the last checkpoint. {} shows the current ones.",
            hint(format_args!("medfs stat {}", quote::path(Path::new(dir))))
        ),
        None => {}
    }
    Ok(())
}

/// How many inodes there are: files, directories, and what medfs keeps for itself.
fn inodes(s: &ImageStat) -> String {
    let all = format!("{} ({} node blocks)", s.inodes, s.nodes);
    match s.own_inodes {
        0 => all,
        1 => format!("{all}; 1 of them holds medfs's own records"),
        own => format!("{all}; {own} of them hold medfs's own records"),
    }
}

/// How the volume was left, or that it is in use.
fn state(s: &ImageStat) -> String {
    if let Some(dir) = &s.mounted_on {
        return format!("mounted on {dir}");
    }
    match (s.last_checkpoint_at_unmount, s.fsynced_since) {
        (true, _) => "last checkpoint written at unmount".into(),
        (false, 0) => "in use, or not cleanly unmounted".into(),
        (false, files) => {
            let files = words::count(files, "file");
            format!("in use, or not cleanly unmounted: {files} fsynced since the last checkpoint")
        }
    }
}

/// Where medfs has mounted a device, as far as this user may see.
fn mounted_on(path: &Path) -> Option<String> {
    let mount = Holder::of(path).mount.filter(MountEntry::is_medfs)?;
    Some(mount.on.display().to_string())
}

/// What was written in the volume's life, in words.
fn written(kbytes: Option<u64>, is_mounted: bool) -> String {
    match kbytes {
        Some(kbytes) => {
            format!("{} since mkfs or the last power loss", size::show(kbytes.saturating_mul(1024)))
        }
        None if is_mounted => "not known while it is mounted".into(),
        None => "not known: the volume was not cleanly unmounted".into(),
    }
}

fn describe(path: &Path) -> Result<ImageStat> {
    let dev = target::open_to_look(path)?;
    target::explain_no_volume(&*dev, path)?;
    target::refuse_cut_short(dev.clone(), path)?;
    let mut dump = Dump::open(&*dev).with_context(|| format!("cannot read {}", path.display()))?;
    let sb = dump.superblock();
    let cp = dump.checkpoint()?;
    let number = |name: &str| match sb.get(name).or_else(|| cp.get(name)) {
        Some(Value::Number(n)) => *n,
        _ => 0,
    };
    let text =
        |name: &str| sb.get(name).or_else(|| cp.get(name)).map(ToString::to_string).unwrap_or_default();
    const BLOCK: u64 = medfs_format::BLOCK_SIZE as u64;
    let flags = text("ckpt_flags");
    let at_unmount = flags.split_whitespace().any(|flag| flag == "umount");
    let is_delta = dump.is_delta_volume();
    let own_inodes = [dentry::HIDDEN_LIST, dentry::HIDDEN_DIR]
        .into_iter()
        .filter(|name| is_delta && dump.path(&String::from_utf8_lossy(name)).is_ok())
        .count() as u64;
    let mounted_on = mounted_on(path);
    let nvram = dump.nvram_in_use().filter(|_| mounted_on.is_none());
    if mounted_on.is_none() {
        survivor::warn(&*dev, path);
    }
    Ok(ImageStat {
        kind: if is_delta { "delta" } else { "plain" },
        label: text("volume_name"),
        uuid: text("uuid"),
        features: text("feature").split_whitespace().map(str::to_owned).collect(),
        size_bytes: number("block_count") * BLOCK,
        user_bytes: number("user_block_count") * BLOCK,
        used_bytes: number("valid_block_count") * BLOCK,
        inodes: number("valid_inode_count"),
        own_inodes,
        nodes: number("valid_node_count"),
        main_segments: number("segment_count_main"),
        free_segments: number("free_segment_count"),
        overprovision_segments: number("overprov_segment_count"),
        reserved_segments: number("rsvd_segment_count"),
        segs_per_section: number("segs_per_sec"),
        checkpoint_version: number("checkpoint_ver"),
        kbytes_written: lifetime_writes::kbytes(&*dev, &sb, &cp)?,
        last_checkpoint_at_unmount: at_unmount && number("log_to_replay_nodes") == 0 && nvram.is_none(),
        import_interrupted: dump.has_old_layouts(),
        nvram,
        mounted_on,
        fsynced_since: number("log_to_replay_inodes"),
        checkpoint_flags: flags,
    })
}
