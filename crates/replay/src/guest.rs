//! Columns on the kernel's f2fs, in the QEMU guest of `tools/kernel-peer`.
//!
//! The program `medfs` itself runs in the guest, on the mount that is measured, and prints the column's
//! result, which the tool hands back. The tool is that of a checkout of medfs (`$MEDFS_KERNEL_PEER`, or below
//! the current directory).

use crate::error::{Context, Error, Result};
use crate::process::{Scratch, run};
use crate::result::CellResult;
use crate::run::Run;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const COMPRESSION: &str = "extra_attr,inode_checksum,sb_checksum,compression";

/// Name, options of mkfs, options of mount.
pub(crate) const IN_GUEST: [(&str, Option<&str>, Option<&str>); 3] = [
    ("f2fs", None, None),
    ("f2fs-lz4", Some(COMPRESSION), Some("compress_algorithm=lz4,compress_log_size=2,compress_extension=*")),
    (
        "f2fs-zstd",
        Some(COMPRESSION),
        Some("compress_algorithm=zstd,compress_log_size=2,compress_extension=*"),
    ),
];

/// What runs in the guest: the mount's directory is its first argument.
const SCRIPT: &str = "#!/bin/sh
mkdir \"$1/replay\" && exec /host/extra/medfs replay /host/extra/trace --peers \"dir:$1/replay\" --json
";

fn tool() -> Result<PathBuf> {
    let candidates = [
        std::env::var_os("MEDFS_KERNEL_PEER").map(PathBuf::from),
        Some("tools/kernel-peer/kernel-peer".into()),
    ];
    let found = candidates.into_iter().flatten().find(|path| path.is_file());
    found.ok_or_else(|| {
        Error::refused(
            "the kernel's f2fs runs in the guest of tools/kernel-peer, which is not here: set MEDFS_KERNEL_PEER to its path",
        )
    })
}

pub(crate) fn column(job: &Run<'_>, name: &str) -> Result<CellResult> {
    let Some((_, features, mount)) = IN_GUEST.iter().find(|(peer, ..)| *peer == name) else {
        return Err(Error::refused(format!("{name} is not a peer")));
    };
    let tool = tool()?;
    for program in ["qemu-system-x86_64", "mkfs.f2fs"] {
        run("which", &[program]).context(|| format!("{program} is not installed, which {name} needs"))?;
    }
    let scratch = Scratch::new(job.scratch, job.cleanup)?;
    let (script, medfs, trace, result) =
        (scratch.path("workload"), scratch.path("medfs"), scratch.path("trace"), scratch.path("result.json"));
    std::fs::write(&script, SCRIPT)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))?;
    std::fs::copy(job.program, &medfs).context(|| "cannot copy the medfs executable for the guest".into())?;
    std::fs::copy(job.trace, &trace).context(|| "cannot copy the trace for the guest".into())?;
    let size = job.size.to_string();
    let mut args: Vec<String> = vec!["--fs".into(), "f2fs".into(), "--size".into(), size];
    args.extend(features.iter().map(|features| format!("--mkfs-opts=-O {features}")));
    args.extend(mount.iter().map(|mount| format!("--mount-opts={mount}")));
    for extra in [&medfs, &trace] {
        args.extend(["--extra".into(), extra.display().to_string()]);
    }
    args.extend([
        "--workload".into(),
        script.display().to_string(),
        "--json".into(),
        result.display().to_string(),
    ]);
    run(&tool.display().to_string(), &args.iter().map(String::as_str).collect::<Vec<_>>())
        .context(|| format!("{name} is not available on this machine"))?;
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(&result)?)?;
    let cells = told.get("metrics").and_then(|metrics| metrics.get("columns")).cloned();
    let cells: Vec<CellResult> = cells
        .and_then(|cells| serde_json::from_value(cells).ok())
        .ok_or_else(|| Error::refused(format!("the guest of {name} returned no result")))?;
    let mut cell = cells
        .into_iter()
        .next()
        .ok_or_else(|| Error::refused(format!("the guest of {name} ran no column")))?;
    cell.system = name.into();
    cell.device = "qemu".into();
    cell.volume_bytes = job.size;
    Ok(cell)
}
