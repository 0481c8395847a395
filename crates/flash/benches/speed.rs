//! How fast the model is, and what it takes: simulated page writes a second with content off and on, memory for each logical page, and opening
//! a device of 128 GiB after a clean close. `cargo bench -p medfs-flash --bench speed`

use medfs_flash::synth::{Mix, Synth, bytes};
use medfs_flash::{Described, Device, DeviceOptions, PageCodec, Profile};
use medfs_ftl::Hint;
use std::time::Instant;

/// Seconds of processor time of this thread: others may use the machine too.
fn processor() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

const GIB: u64 = 1 << 30;

fn options(gib: u64, ftl: &str) -> DeviceOptions {
    let profile = Profile::find("emmc").expect("built in");
    DeviceOptions { capacity: Some(gib * GIB), ftl: ftl.into(), ..DeviceOptions::new(profile) }
}

/// Single-page writes all over a part of the device, after it was filled.
fn content_off(ftl: &str, part: u32) {
    let mut device = Device::<Described>::in_memory(&options(4, ftl)).expect("a device");
    let pages = device.logical_pages();
    let synth = Synth::new(Mix::SNAPSHOT, 1);
    for lpn in 0..pages {
        device.ftl_mut().codec_mut().describe_drawn(lpn, &synth.page(lpn, 0));
    }
    let run: Vec<&[u8]> = vec![&[]; 64];
    (0..pages).step_by(64).for_each(|lpn| {
        device.ftl_mut().write(lpn, &run, Hint::Warm).expect("room");
    });
    let (writes, mut state) = (4_000_000u32, 1u64);
    let begun = processor();
    for _ in 0..writes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let lpn = (state >> 40) as u32 % (pages / part);
        device.ftl_mut().write(lpn, &run[..1], Hint::Warm).expect("room");
    }
    let seconds = processor() - begun;
    let wa = device.stats().write_amplification(4096);
    let programs = device.stats().nand.programs as f64 / seconds / 1e6;
    let ram = device.ftl().ram_bytes() as f64 / f64::from(pages);
    println!(
        "{ftl}, content off, writes to 1/{part} of it: {:.2} million page writes a second (amplification {wa:.2}, {programs:.2} million \
         programs); {ram:.2} bytes for each logical page",
        f64::from(writes) / seconds / 1e6
    );
}

fn content_on(ftl: &str, in_file: bool) {
    let dir = tempfile::tempdir().expect("a folder");
    let options = options(1, ftl);
    let mut device = if in_file {
        Device::<PageCodec>::create(&dir.path().join("card"), &options).expect("a device")
    } else {
        Device::<PageCodec>::in_memory(&options).expect("a device")
    };
    let pages: Vec<_> = (0..512).map(|i| bytes(f64::from(i % 100) / 100.0, u64::from(i as u32))).collect();
    let (writes, mut state) = (600_000u32, 1u64);
    let begun = processor();
    for i in 0..writes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let lpn = (state >> 40) as u32 % (device.logical_pages() / 2);
        device.ftl_mut().write(lpn, &[&pages[i as usize % 512]], Hint::Warm).expect("room");
    }
    let place = if in_file { "in a file" } else { "in memory" };
    println!(
        "{ftl}, content and LZO, {place}: {:.0} thousand page writes a second",
        f64::from(writes) / (processor() - begun) / 1e3
    );
}

fn opening() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("card");
    let mut device = Device::<Described>::create(&path, &options(128, "ldc")).expect("a device");
    let run: Vec<&[u8]> = vec![&[]; 64];
    for lpn in (0..device.logical_pages()).step_by(64) {
        device.ftl_mut().write(lpn, &run, Hint::Warm).expect("room");
    }
    device.close().expect("a clean end");
    let begun = Instant::now();
    let device = Device::<Described>::open(&path, None).expect("the device");
    println!("128 GiB, full, opened after a clean close in {:.3} s", begun.elapsed().as_secs_f64());
    device.close().expect("a clean end");
}

fn main() {
    for part in [64, 4] {
        ["pm", "zftl", "ldc"].into_iter().for_each(|ftl| content_off(ftl, part));
    }
    content_on("ldc", false);
    content_on("ldc", true);
    content_on("pm", true);
    opening();
}
