//! A process that is killed at any moment: what it flushed before is in the device's file, with `sync` and without.

use medfs_flash::synth::bytes;
use medfs_flash::{Device, DeviceOptions, Durability, PageCodec, Profile};
use medfs_ftl::{Hint, PAGE};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const PAGES: u32 = 2000;
/// Pages of a round, which ends with a flush.
const EACH: u32 = 40;
const CHILD: &str = "MEDFS_KILLED_DEVICE";

/// Page `lpn` as round `round` writes it.
fn content(lpn: u32, round: u32) -> [u8; PAGE] {
    let mut page = bytes(f64::from((lpn + round) % 10) / 10.0, u64::from(lpn) << 32 | u64::from(round));
    page[..4].copy_from_slice(&round.to_le_bytes());
    page
}

fn pages(round: u32) -> impl Iterator<Item = u32> {
    (0..EACH).map(move |i| (round * 7919 + i * 613) % PAGES)
}

fn write_round(device: &mut Device<PageCodec>, round: u32) {
    for lpn in pages(round) {
        device.write(0, lpn, &[&content(lpn, round)], Hint::Warm).unwrap();
    }
}

/// The killed process: it says which round is flushed.
#[test]
#[ignore = "the other half of a test"]
fn child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let (path, durability) = match path.strip_prefix("sync:") {
        Some(path) => (path, Durability::Machine),
        None => (&path[..], Durability::Process),
    };
    let mut device =
        Device::<PageCodec>::open_for(Path::new(path), None, durability, std::time::Duration::ZERO).unwrap();
    for round in 1.. {
        write_round(&mut device, round);
        device.flush(0).unwrap();
        println!("flushed {round}");
        std::io::stdout().flush().unwrap();
    }
}

/// Runs the child until it has flushed so many rounds, kills it, and returns the last that it told of.
fn killed_after(path: &Path, sync: bool, rounds: u32, pause_us: u64) -> u32 {
    let name = format!("{}{}", if sync { "sync:" } else { "" }, path.display());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child", "--ignored", "--nocapture"])
        .env(CHILD, name)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let told = |line: String| line.split("flushed ").nth(1).and_then(|n| n.trim().parse::<u32>().ok());
    lines.by_ref().filter_map(told).find(|round| *round >= rounds).expect("the child writes");
    std::thread::sleep(std::time::Duration::from_micros(pause_us));
    child.kill().unwrap();
    let last = lines.filter_map(told).max().unwrap_or(rounds);
    child.wait().unwrap();
    last.max(rounds)
}

#[test]
fn what_was_flushed_survives_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    for (profile, ftl, sync) in [("emmc", "ldc", false), ("emmc", "pm", true), ("sdcard", "ldc", false)] {
        for attempt in 0..4u32 {
            let path = dir.path().join(format!("{profile}-{ftl}-{attempt}"));
            let capacity = Some(u64::from(PAGES) * PAGE as u64);
            let options = DeviceOptions {
                capacity,
                ftl: ftl.into(),
                ..DeviceOptions::new(Profile::find(profile).unwrap())
            };
            Device::<PageCodec>::create(&path, &options).unwrap().close().unwrap();
            let last = killed_after(&path, sync, 10 + 15 * attempt, u64::from(attempt) * 700);
            let mut device = Device::<PageCodec>::open(&path, None).unwrap();
            device.ftl_mut().check().unwrap();
            let mut newest = vec![0; PAGES as usize];
            (1..=last).for_each(|round| pages(round).for_each(|lpn| newest[lpn as usize] = round));
            for (lpn, flushed) in (0..).zip(newest) {
                let mut page = [1; PAGE];
                device.read(0, lpn, &mut [&mut page]).unwrap();
                let round = u32::from_le_bytes([page[0], page[1], page[2], page[3]]);
                assert!(
                    round >= flushed,
                    "{profile} {ftl}: page {lpn} is of round {round}, {flushed} was flushed"
                );
                assert!(page == if round == 0 { [0; PAGE] } else { content(lpn, round) }, "a mixture");
            }
        }
    }
}
