//! Bits that turn over in a device's file: an error for the request that reads them, never wrong data, at
//! once and after collection has moved the page, and nothing for any other request.

use medfs_flash::synth::bytes;
use medfs_flash::{Device, DeviceOptions, PageCodec, Profile, policy};
use medfs_ftl::{Ftl, FtlError, Hint, Nand, PAGE};
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Pages that are written once, in the beginning.
const COLD: u32 = 40;

/// A small device in a file, and what each of its logical pages holds: the seed of its bytes and how well
/// they compress.
struct World {
    _dir: tempfile::TempDir,
    path: PathBuf,
    device: Option<Device<PageCodec>>,
    held: Vec<Option<(u64, f64)>>,
    state: u64,
}

impl World {
    fn new(profile: &str, ftl: &str) -> World {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("card");
        let profile = Profile::find(profile).unwrap();
        let options =
            DeviceOptions { capacity: Some(16 << 20), ftl: ftl.into(), ..DeviceOptions::new(profile) };
        let device = Device::<PageCodec>::create(&path, &options).unwrap();
        let held = vec![None; device.logical_pages() as usize];
        World { _dir: dir, path, device: Some(device), held, state: 1 }
    }

    fn device(&mut self) -> &mut Device<PageCodec> {
        self.device.as_mut().unwrap()
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.state >> 32
    }

    fn write(&mut self, lpn: u32, ratio: f64) {
        let seed = self.random();
        self.held[lpn as usize] = Some((seed, ratio));
        self.device().write(0, lpn, &[&bytes(ratio, seed)], Hint::Warm).unwrap();
    }

    /// A page that is not cold.
    fn any(&mut self) -> u32 {
        COLD + (self.random() % u64::from(self.device().logical_pages() - COLD)) as u32
    }

    /// Writes any page that is not cold.
    fn write_any(&mut self, ratio: f64) {
        let lpn = self.any();
        self.write(lpn, ratio);
    }

    fn flash_page(&mut self, lpn: u32) -> Option<u32> {
        self.device().ftl_mut().place(lpn).unwrap().map(|(page, ..)| page)
    }

    fn reopen(&mut self) {
        self.device.take().unwrap().close().unwrap();
        self.device = Some(Device::open(&self.path, None).unwrap());
    }

    /// Turns over a bit of a byte of each of these flash pages.
    fn flip(&mut self, pages: impl IntoIterator<Item = u32>, byte: u64) {
        let g = self.device().ftl().nand().geometry();
        self.device.take().unwrap().close().unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&self.path).unwrap();
        // Flash pages are what the file ends with.
        let first = file.metadata().unwrap().len() - g.pages() * u64::from(g.page_bytes);
        for page in pages {
            let (mut one, at) = ([0], first + u64::from(page) * u64::from(g.page_bytes) + byte);
            file.read_exact_at(&mut one, at).unwrap();
            file.write_all_at(&[one[0] ^ 4], at).unwrap();
        }
        self.device = Some(Device::open(&self.path, None).unwrap());
    }

    /// The flash page with the newest commit, once the device is closed.
    fn newest_commit(&mut self) -> u32 {
        let g = self.device().ftl().nand().geometry();
        self.reopen();
        self.device.take().unwrap().close().unwrap();
        let file = std::fs::read(&self.path).unwrap();
        let first = file.len() - (g.pages() * u64::from(g.page_bytes)) as usize;
        let commits = (0..).zip(file[first..].chunks_exact(g.page_bytes as usize));
        let commits = commits.filter(|(_, page)| page.starts_with(b"MEDFTL\0"));
        let newest = commits.max_by_key(|(_, page)| u64::from_le_bytes(page[32..40].try_into().unwrap()));
        self.device = Some(Device::open(&self.path, None).unwrap());
        newest.expect("there is one").0
    }

    /// The logical pages that cannot be read. All others are right; what is said of these names the flash
    /// page, or the one behind it.
    fn unreadable(&mut self) -> Vec<u32> {
        let mut all = Vec::new();
        for (lpn, held) in (0..).zip(self.held.clone()) {
            let mut page = [1; PAGE];
            let read = self.device().read(0, lpn, &mut [&mut page]);
            match read {
                Ok(_) => {
                    let right = held.map_or([0; PAGE], |(seed, ratio)| bytes(ratio, seed));
                    assert!(page == right, "page {lpn} is wrong");
                }
                Err(e) => {
                    let (at, e) = (self.flash_page(lpn).unwrap(), e.to_string());
                    let named = [at, at + 1].iter().any(|at| e.contains(&format!("(flash page {at})")));
                    assert!(e.contains("card: ") && e.contains("checksum") && named, "{e}");
                    all.push(lpn);
                }
            }
        }
        all
    }
}

#[test]
fn a_flipped_bit_is_told() {
    for (profile, ftl, ratio) in
        [("emmc", "pm", 1.0), ("emmc", "ldc", 0.3), ("ufs31", "ldc", 0.7), ("sdcard", "zftl", 0.5)]
    {
        let mut world = World::new(profile, ftl);
        (0..COLD).for_each(|lpn| world.write(lpn, ratio));
        world.reopen();
        let was = world.flash_page(7).unwrap();
        world.flip([was], 99);
        let lost = world.unreadable();
        assert!(lost.contains(&7) && lost.len() <= 12, "{profile} {ftl}: {lost:?}");
        let mut writes = 0;
        while world.flash_page(7) == Some(was) {
            // The log of its block goes on, and the device is full.
            let other = if world.random().is_multiple_of(8) { ratio } else { 1.0 };
            world.write_any(other);
            writes += 1;
            assert!(writes < 300_000, "{profile} {ftl}: never collected");
        }
        assert_eq!(world.unreadable(), lost, "{profile} {ftl}");
        assert!(world.device().ftl_mut().check().unwrap().damaged > 0);
        world.reopen();
        assert_eq!(world.unreadable(), lost, "{profile} {ftl}, after a clean end");
        world.device().flush(0).unwrap();
        drop(world.device.take().unwrap().abandon());
        world.device = Some(Device::open(&world.path, None).unwrap());
        assert_eq!(world.unreadable(), lost, "{profile} {ftl}, after power loss");
        // What is written again is right again.
        lost.iter().for_each(|lpn| world.write(*lpn, ratio));
        assert_eq!(world.unreadable(), [0; 0]);
        assert_eq!(world.device().ftl_mut().check().unwrap().damaged, 0);
    }
}

/// Pages that begin in one flash page and end in the next are in the hands of both.
#[test]
fn many_flipped_bits_in_what_was_collected() {
    for (ftl, byte) in [("ldc", 0), ("ldc", 4000), ("sc", 0)] {
        let mut world = World::new("emmc", ftl);
        let pages = world.device().logical_pages();
        (0..pages).for_each(|lpn| world.write(lpn, 0.7));
        (0..pages).for_each(|_| world.write_any(0.7));
        world.reopen();
        let checked = world.device().ftl_mut().check().unwrap();
        assert!(ftl != "ldc" || checked.across > 100, "{checked:?}");
        let mut flipped = BTreeSet::new();
        for _ in 0..100 {
            let lpn = (world.random() % u64::from(pages)) as u32;
            flipped.insert(world.flash_page(lpn).unwrap());
        }
        world.flip(flipped.iter().copied(), byte);
        let lost = world.unreadable();
        for lpn in 0..pages {
            let at = world.flash_page(lpn).unwrap();
            if flipped.contains(&at) {
                assert!(lost.contains(&lpn), "{lpn}");
            } else if lost.contains(&lpn) {
                assert!(flipped.contains(&(at + 1)), "{lpn} in flash page {at}");
            }
        }
        assert!(lost.len() >= flipped.len() && lost.len() < 400, "{}", lost.len());
        let moved = world.device().ftl().counters().moved;
        (0..pages).for_each(|_| world.write_any(0.7));
        assert!(world.device().ftl().counters().moved > moved + 100);
        assert!(world.unreadable().iter().all(|lpn| lost.contains(lpn)));
        world.device().ftl_mut().check().unwrap();
    }
}

/// What waits in a write buffer that survives power loss is written with a checksum that fits: damaged bytes
/// must not be among it.
#[test]
fn damage_that_is_being_moved_stays_damage_after_power_loss() {
    let profile = Profile::find("emmc").unwrap();
    assert!(profile.controller.capacitor);
    let begin = || {
        let mut world = World::new("emmc", "pm");
        (0..COLD).for_each(|lpn| world.write(lpn, 1.0));
        world.reopen();
        let was = world.flash_page(7).unwrap();
        world.flip([was], 99);
        (world, was)
    };
    let operations = |world: &mut World| {
        let counters = world.device().ftl().counters();
        counters.programs.total() + counters.erases
    };
    let (mut world, was) = begin();
    let (mut writes, mut before) = (0, 0);
    while world.flash_page(7) == Some(was) {
        before = operations(&mut world);
        world.write_any(1.0);
        writes += 1;
    }
    let last = operations(&mut world) - before;
    assert!(last > 2, "the last write cleans: {last} operations");
    for cut in 0..last {
        let (mut world, _) = begin();
        (1..writes).for_each(|_| world.write_any(1.0));
        world.device().ftl_mut().nand_mut().cut_after(cut);
        let lpn = world.any();
        world.device().write(0, lpn, &[&bytes(1.0, 1)], Hint::Warm).unwrap_err();
        let device = world.device.take().unwrap();
        let (image, config) = (device.ftl().retained(), *device.ftl().config());
        let (mut nand, codec) = device.abandon();
        nand.power_on();
        let method = policy("pm", &profile).unwrap();
        let mut ftl = Ftl::open(nand, codec, method, config, Some(&image)).map_err(|(_, e)| e).unwrap();
        let read = ftl.read(7, &mut [&mut [0; PAGE]]);
        assert!(matches!(read, Err(FtlError::Corrupt(..))), "cut at {cut} of {last}: {read:?}");
    }
}

/// The commit that counts has an older one behind it.
#[test]
fn a_commit_that_cannot_be_read_costs_no_page() {
    for ftl in ["pm", "zftl", "sc", "ldc"] {
        let mut world = World::new("emmc", ftl);
        let pages = world.device().logical_pages();
        (0..pages).for_each(|lpn| world.write(lpn, 0.6));
        for round in 0..2 {
            (0..pages / 2).for_each(|_| world.write_any(0.6));
            let newest = world.newest_commit();
            world.flip([newest], 40);
            assert_eq!(world.unreadable(), [0; 0], "{ftl}, round {round}");
            world.device().ftl_mut().check().unwrap_or_else(|e| panic!("{ftl}, round {round}: {e}"));
        }
    }
}
