//! How fast the model is, and what it takes: simulated page writes a second with content off and on, memory
//! for each logical page, and opening a device of 128 GiB after a clean close.
//! `cargo bench -p medfs-flash --bench speed`, and behind `--` methods and words of patterns, `content` or
//! `opening`, for some of the rows.

use medfs_flash::synth::{Mix, Synth, bytes};
use medfs_flash::{Described, Device, DeviceOptions, FTLS, PageCodec, Profile};
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

/// Where single-page writes go, once the device is full.
#[derive(Clone, Copy)]
enum Pattern {
    /// To the first part of it, evenly.
    Part(u32),
    /// All over it, with so much over-provisioning, in per cent.
    Uniform(f64),
    /// Four of five to a fifth of it, with so much over-provisioning.
    Skewed(f64),
    /// One behind the other.
    Sequential,
}

impl Pattern {
    fn name(self) -> String {
        match self {
            Pattern::Part(part) => format!("random in 1/{part} of it"),
            Pattern::Uniform(spare) => format!("random, {spare:.0}% spare"),
            Pattern::Skewed(spare) => format!("80/20, {spare:.0}% spare"),
            Pattern::Sequential => "sequential".into(),
        }
    }

    fn spare(self) -> Option<f64> {
        match self {
            Pattern::Uniform(spare) | Pattern::Skewed(spare) => Some(spare),
            _ => None,
        }
    }

    fn page(self, at: u32, random: u32, pages: u32) -> u32 {
        let even = |of: u32| ((u64::from(random >> 4) * u64::from(of)) >> 28) as u32;
        match self {
            Pattern::Part(part) => even(pages / part),
            Pattern::Uniform(_) => even(pages),
            Pattern::Skewed(_) if random & 15 < 13 => even(pages / 5),
            Pattern::Skewed(_) => pages / 5 + even(pages - pages / 5),
            Pattern::Sequential => at % pages,
        }
    }
}

/// Single-page writes to a full device without content.
fn content_off(ftl: &str, pattern: Pattern) {
    let mut options = options(4, ftl);
    if let Some(spare) = pattern.spare() {
        options.profile.space.over_provision_percent = spare;
    }
    let mut device = Device::<Described>::in_memory(&options).expect("a device");
    let pages = device.logical_pages();
    let synth = Synth::new(Mix::SNAPSHOT, 1);
    for lpn in 0..pages {
        device.ftl_mut().codec_mut().describe_drawn(lpn, &synth.page(lpn, 0));
    }
    let run: Vec<&[u8]> = vec![&[]; 64];
    (0..pages).step_by(64).for_each(|lpn| {
        device.ftl_mut().write(lpn, &run, Hint::Warm).expect("room");
    });
    let mut state = 1u64;
    let mut write = |device: &mut Device<Described>, count: u32| {
        for at in 0..count {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let lpn = pattern.page(at, (state >> 32) as u32, pages);
            device.ftl_mut().write(lpn, &run[..1], Hint::Warm).expect("room");
        }
    };
    // The first pass is cheap: there is room. What is measured is the steady state.
    write(&mut device, pages);
    device.reset_stats();
    let (writes, begun) = (1_000_000u32, processor());
    write(&mut device, writes);
    let seconds = processor() - begun;
    let stats = device.stats();
    let amplification = stats.write_amplification(4096);
    let programs = stats.nand.programs as f64 / seconds / 1e6;
    let ram = device.ftl().ram_bytes() as f64 / f64::from(pages);
    println!(
        "{ftl:7} {:22} {:6.2} {:6.2} {amplification:6.2} {ram:6.2}",
        pattern.name(),
        f64::from(writes) / seconds / 1e6,
        programs
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
    let chosen: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let (ftls, words): (Vec<_>, Vec<_>) = chosen.iter().partition(|word| FTLS.contains(&&word[..]));
    println!(
        "content off, a full device of 4 GiB: millions of pages a second that the host writes, and that are programmed; amplification; \
         bytes of memory for each logical page"
    );
    let patterns = [
        Pattern::Sequential,
        Pattern::Part(64),
        Pattern::Part(4),
        Pattern::Uniform(7.0),
        Pattern::Uniform(15.0),
        Pattern::Uniform(28.0),
        Pattern::Skewed(7.0),
    ];
    for ftl in FTLS.into_iter().filter(|ftl| ftls.is_empty() || ftls.iter().any(|name| name == ftl)) {
        let wanted = |p: &Pattern| words.is_empty() || words.iter().any(|word| p.name().contains(&word[..]));
        patterns.into_iter().filter(wanted).for_each(|pattern| content_off(ftl, pattern));
    }
    let asked = |word: &str| chosen.is_empty() || chosen.iter().any(|other| other == word);
    if asked("content") {
        content_on("ldc", false);
        content_on("ldc", true);
        content_on("pm", true);
    }
    if asked("opening") {
        opening();
    }
}
