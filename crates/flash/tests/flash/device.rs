//! Devices in files: what outlives a process, what a request takes, what memory and opening take.

use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
use medfs_flash::synth::{Mix, Synth, bytes};
use medfs_flash::{Described, Device, DeviceOptions, FlashDevice, PageCodec, Profile};
use medfs_format::Block;
use medfs_ftl::{Hint, Nand, PAGE};

fn options(profile: &str, ftl: &str, mib: u64) -> DeviceOptions {
    let profile = Profile::find(profile).unwrap();
    DeviceOptions { capacity: Some(mib << 20), ftl: ftl.into(), ..DeviceOptions::new(profile) }
}

fn read(device: &mut Device<PageCodec>, lpn: u32) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    device.read(0, lpn, &mut [&mut page]).unwrap();
    page
}

#[test]
fn a_device_outlives_its_process() {
    for profile in ["emmc", "sdcard"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("card");
        let pages: Vec<_> = (0..50u32).map(|i| bytes(f64::from(i) / 50.0, u64::from(i))).collect();
        let mut device = Device::<PageCodec>::create(&path, &options(profile, "ldc", 64)).unwrap();
        for (lpn, page) in (0..).zip(&pages) {
            device.write(0, lpn * 7, &[page], Hint::Warm).unwrap();
        }
        device.close().unwrap();

        let mut device = Device::<PageCodec>::open(&path, None).unwrap();
        assert_eq!(device.stats().ftl.host_writes, 50);
        (0..).zip(&pages).for_each(|(lpn, page)| assert!(read(&mut device, lpn * 7) == *page));
        // Killed after a flush: what was flushed is there, with a capacitor and without.
        for (lpn, page) in (0..).zip(pages.iter().rev()) {
            device.write(0, lpn * 7, &[page], Hint::Warm).unwrap();
        }
        device.flush(0).unwrap();
        drop(device.abandon());
        let mut device = Device::<PageCodec>::open(&path, Some("pm")).unwrap();
        (0..)
            .zip(pages.iter().rev())
            .for_each(|(lpn, page)| assert!(read(&mut device, lpn * 7) == *page, "{lpn}"));
        device.ftl_mut().check().unwrap();
    }
}

/// LDC, section 3.1: t_w for each page as it is; Eq. 1 without the part that stays in the buffer.
#[test]
fn requests_take_what_the_model_says() {
    const US: u64 = 1000;
    let mut pm = Device::<Described>::in_memory(&options("emmc", "pm", 64)).unwrap();
    let empty: Vec<&[u8]> = vec![&[]; 8];
    let begin = pm.now() + 1_000_000_000;
    let end = pm.write(begin, 0, &empty, Hint::Warm).unwrap();
    // The first page of a block that reads as erased costs no erase.
    assert_eq!(end - begin, 8 * 300 * US);
    let queued = pm.write(begin, 100, &empty[..1], Hint::Warm).unwrap();
    assert_eq!(queued - begin, 9 * 300 * US, "it waited for the first");

    let mut ldc = Device::<Described>::in_memory(&options("emmc", "ldc", 64)).unwrap();
    (0..8).for_each(|lpn| ldc.ftl_mut().codec_mut().describe(lpn, 50, 1024));
    let begin = ldc.now() + 1_000_000_000;
    let end = ldc.write(begin, 0, &empty, Hint::Warm).unwrap();
    let predict = 2450 * 8;
    // Four make a page, which is programmed beside the compression of the others; the eighth fills the second.
    assert_eq!(end - begin, 8 * 136 * US + predict + 300 * US);
    let mut pages = vec![vec![]; 8];
    let mut slices: Vec<&mut [u8]> = pages.iter_mut().map(|p| &mut p[..]).collect();
    let begin = ldc.now() + 1_000_000_000;
    let end = ldc.read(begin, 0, &mut slices).unwrap();
    assert_eq!(end - begin, (125 + 8 * 33) * US, "two pages are read, the second beside expanding the first");
}

#[test]
fn memory_and_opening_are_small() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("card");
    let mut device = Device::<Described>::create(&path, &options("emmc", "ldc", 512)).unwrap();
    let synth = Synth::new(Mix::SNAPSHOT, 1);
    let run: Vec<&[u8]> = vec![&[]; 64];
    for lpn in (0..device.logical_pages()).step_by(64) {
        (lpn..lpn + 64).for_each(|lpn| device.ftl_mut().codec_mut().describe_drawn(lpn, &synth.page(lpn, 0)));
        device.write(0, lpn, &run, Hint::Warm).unwrap();
    }
    let each = device.ftl().ram_bytes() as f64 / f64::from(device.logical_pages());
    assert!((8.0..16.0).contains(&each), "{each} bytes for each logical page");
    device.close().unwrap();
    let device = Device::<Described>::open(&path, None).unwrap();
    // The tables alone: 16 bytes for each block, 4 for each chunk of the map.
    let reads = device.ftl().nand().counts().reads;
    assert!(reads <= 12, "{reads} pages read to open");
    assert!(device.ftl().nand().geometry().blocks > 2048);
}

/// Blocks that are bad from the beginning are beyond what the device needs, however many the seed makes.
#[test]
fn every_seed_makes_a_device() {
    let mut profile = Profile::find("sdcard").unwrap();
    profile.endurance.factory_bad_ppm = 100_000;
    for seed in 0..40 {
        let capacity = Some(200 << 20);
        let options = DeviceOptions { capacity, seed, ..DeviceOptions::new(profile.clone()) };
        let device = Device::<PageCodec>::in_memory(&options).unwrap();
        let bad = device.ftl().nand().wear().filter(|(_, bad)| *bad).count();
        assert!(bad > 0 && device.ftl().free_blocks() > 50, "seed {seed}: {bad} bad blocks");
    }
}

#[test]
fn a_block_device_that_counts() {
    let device = Device::<PageCodec>::in_memory(&options("ufs31", "ldc", 64)).unwrap();
    let device = FlashDevice::new(device);
    let (one, two) = (Block([1; 4096]), Block([2; 4096]));
    let tag = WriteTag::new(Cause::Node, Temperature::Hot);
    device.write(5, &[&one, &two], tag.with_fua()).unwrap();
    let mut back = [Block::ZERO, Block::ZERO, Block([9; 4096])];
    let [a, b, c] = &mut back;
    device.read(5, &mut [a, b, c]).unwrap();
    assert!(back[0].0 == one.0 && back[1].0 == two.0 && back[2].0 == [0; 4096]);
    device.discard(5, 1).unwrap();
    device.read(5, &mut [&mut back[0]]).unwrap();
    assert_eq!(back[0].0, [0; 4096]);
    assert!(device.write(device.block_count(), &[&one], tag).is_err());
    let stats = device.stats();
    assert_eq!((stats.ftl.host_writes, stats.ftl.host_hints, stats.ftl.trimmed), (2, [2, 0, 0], 1));
    assert_eq!(stats.ftl.flushes, 1, "forced unit access");
}
