//! The end of the machine, in tests: of what was written to the device's file since it was last synced any
//! part may be stored, sector by sector, in any order. Every page must then read as one of the versions
//! written since the last flush, at least as new as that flush.

use crate::codecs::PageCodec;
use crate::device::policy;
use crate::device_file::Header;
use crate::durable_file::{Disk, Kept, Slots};
use crate::nand::NandModel;
use crate::nand_file::{BlockState, Filed, Medium, STATE_BYTES};
use crate::profile::Profile;
use medfs_ftl::{Config, Ftl, Hint, PAGE};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io;
use std::sync::Arc;

const PAGES: u32 = 160;
const SECTOR: usize = 512;

/// A file, and what of it is stored.
#[derive(Default, Clone)]
struct Sectors {
    now: Vec<u8>,
    stored: Vec<u8>,
    pending: Vec<(usize, Vec<u8>)>,
}

#[derive(Default)]
struct Machine {
    file: Sectors,
    /// Writes and syncs until the machine ends.
    left: Option<u32>,
    /// What it was at that moment.
    ended: Option<Sectors>,
}

#[derive(Clone, Default)]
struct Shadow(Arc<Mutex<Machine>>);

impl Machine {
    fn tick(&mut self) {
        match &mut self.left {
            Some(0) if self.ended.is_none() => self.ended = Some(self.file.clone()),
            Some(left) => *left = left.saturating_sub(1),
            None => {}
        }
    }
}

impl Disk for Shadow {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut machine = self.0.lock();
        machine.tick();
        let at = at as usize;
        machine.file.now[at..at + bytes.len()].copy_from_slice(bytes);
        machine.file.pending.push((at, bytes.to_vec()));
        Ok(())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let at = at as usize;
        bytes.copy_from_slice(&self.0.lock().file.now[at..at + bytes.len()]);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut machine = self.0.lock();
        machine.tick();
        let Sectors { stored, pending, .. } = &mut machine.file;
        for (at, bytes) in pending.drain(..) {
            stored[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

impl Sectors {
    /// What a machine finds that ended now.
    fn found(mut self, rng: &mut Xoshiro256PlusPlus) -> Vec<u8> {
        let likely = [0.1, 0.5, 0.9][rng.random_range(0..3)];
        for (at, bytes) in self.pending {
            let mut from = 0;
            while from < bytes.len() {
                let to = (from + SECTOR - (at + from) % SECTOR).min(bytes.len());
                if rng.random_bool(likely) {
                    self.stored[at + from..at + to].copy_from_slice(&bytes[from..to]);
                }
                from = to;
            }
        }
        self.stored
    }
}

struct World {
    header: Header,
    config: Config,
    durable: bool,
    disk: Shadow,
    ftl: Option<Ftl<NandModel, PageCodec>>,
    /// What each page may read as: the newest last.
    allowed: Vec<Vec<u32>>,
    next: u32,
    rng: Xoshiro256PlusPlus,
}

impl World {
    fn new(ftl: &str, capacitor: bool, durable: bool, seed: u64) -> World {
        let mut profile = Profile::find("emmc").unwrap();
        profile.geometry.pages_per_block = 8;
        profile.controller.capacitor = capacitor;
        let config = Config {
            logical_pages: PAGES,
            checkpoint_every: 120,
            level_spread: 12,
            capacitor,
            idle_blocks: 2,
        };
        let mut blocks = 60;
        for _ in 0..3 {
            let g = profile.geometry(blocks);
            let method = policy(ftl, &profile).unwrap();
            blocks = config.data_blocks_min(&g, &*method) + config.map_blocks(&g) + 3;
        }
        let header = Header {
            seed,
            blocks,
            logical_pages: PAGES,
            ftl: ftl.into(),
            codec: "lzo".into(),
            content: true,
            profile,
        };
        let disk = Shadow::default();
        let bytes = vec![0; header.places().end as usize];
        disk.0.lock().file = Sectors { now: bytes.clone(), stored: bytes, pending: Vec::new() };
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let allowed = vec![vec![0]; PAGES as usize];
        let mut world = World { header, config, durable, disk, ftl: None, allowed, next: 1, rng };
        let method = policy(ftl, &world.header.profile).unwrap();
        let nand = world.nand(vec![BlockState::default(); blocks as usize]);
        world.ftl = Some(Ftl::format(nand, PageCodec::new("lzo").unwrap(), method, config).unwrap());
        world.ftl().nand_mut().sync().unwrap();
        world.disk.sync().unwrap();
        world
    }

    fn nand(&self, states: Vec<BlockState>) -> NandModel {
        let g = self.header.profile.geometry(self.header.blocks);
        let shape = (g.pages_per_block, g.page_bytes, g.spare_bytes);
        let filed = Filed::new(self.disk.clone(), shape, self.header.places());
        let mut nand = NandModel::on(Box::new(filed), &self.header.profile, states, self.header.seed);
        nand.set_durable(self.durable);
        nand
    }

    fn ftl(&mut self) -> &mut Ftl<NandModel, PageCodec> {
        self.ftl.as_mut().unwrap()
    }

    fn step(&mut self) {
        let lpn = self.rng.random_range(0..PAGES - 8);
        match self.rng.random_range(0..100) {
            0..75 => {
                let run = self.rng.random_range(1..8);
                let versions: Vec<u32> = (self.next..self.next + run).collect();
                self.next += run;
                let pages: Vec<[u8; PAGE]> = versions.iter().map(|v| content(*v)).collect();
                let slices: Vec<&[u8]> = pages.iter().map(|p| &p[..]).collect();
                self.ftl().write(lpn, &slices, Hint::Warm).unwrap();
                (lpn..).zip(versions).for_each(|(lpn, v)| self.allowed[lpn as usize].push(v));
            }
            75..82 => {
                self.ftl().trim(lpn, 4).unwrap();
                (lpn..lpn + 4).for_each(|lpn| self.allowed[lpn as usize].push(0));
            }
            82..95 => {
                self.ftl().flush().unwrap();
                self.ftl().nand_mut().sync().unwrap();
                if self.disk.0.lock().ended.is_none() {
                    self.allowed.iter_mut().for_each(|a| drop(a.drain(..a.len() - 1)));
                }
            }
            _ => {
                let until = medfs_ftl::Nand::now(self.ftl().nand()) + 20_000_000;
                self.ftl().idle(until).unwrap();
            }
        }
    }

    /// The machine ends in the middle of one of the next requests, and starts again.
    fn end(&mut self) {
        self.disk.0.lock().left = Some(self.rng.random_range(0..40));
        while self.disk.0.lock().ended.is_none() {
            self.step();
        }
        let ended = self.disk.0.lock().ended.take().unwrap();
        let found = ended.found(&mut self.rng);
        self.ftl = None;
        self.disk = Shadow::default();
        self.disk.0.lock().file = Sectors { now: found.clone(), stored: found, pending: Vec::new() };
        let places = self.header.places();
        let mut states = vec![0; (u64::from(self.header.blocks) * STATE_BYTES) as usize];
        self.disk.read_at(&mut states, places.states).unwrap();
        let states = states.chunks_exact(8).map(BlockState::unpack).collect();
        let image = match Slots::new(places.retained, places.retained_bytes).read(&self.disk).unwrap() {
            Kept::Whole(image) => image,
            Kept::Nothing => Vec::new(),
            Kept::Damaged => panic!("the image of the write buffer is damaged"),
        };
        let method = policy(&self.header.ftl, &self.header.profile).unwrap();
        let codec = PageCodec::new("lzo").unwrap();
        let opened = Ftl::open(self.nand(states), codec, method, self.config, Some(&image));
        self.ftl = Some(opened.unwrap_or_else(|(_, e)| panic!("page by page: {e}")));
        self.ftl().check().unwrap_or_else(|e| panic!("page by page: {e}"));
        for lpn in 0..PAGES {
            let mut page = [1; PAGE];
            self.ftl().read(lpn, &mut [&mut page]).unwrap_or_else(|e| panic!("page {lpn}: {e}"));
            let version = u32::from_le_bytes([page[0], page[1], page[2], page[3]]);
            assert!(page == content(version), "page {lpn} is a mixture");
            let allowed = &mut self.allowed[lpn as usize];
            assert!(allowed.contains(&version), "page {lpn} is version {version} of {allowed:?}");
            *allowed = vec![version];
        }
    }
}

fn content(version: u32) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    if version > 0 {
        page = crate::synth::bytes(f64::from(version % 10) / 10.0, u64::from(version));
        page[..4].copy_from_slice(&version.to_le_bytes());
    }
    page
}

fn run(durable: bool, ends: u32, seed: u64) {
    for (ftl, capacitor) in [("pm", false), ("ldc", false), ("ldc", true), ("zftl", true)] {
        let mut world = World::new(ftl, capacitor, durable, seed);
        for _ in 0..ends {
            (0..world.rng.random_range(0..60)).for_each(|_| world.step());
            world.end();
        }
    }
}

#[test]
fn what_was_flushed_survives_the_end_of_the_machine() {
    run(true, 50, 1);
}

/// `MEDFS_SEED=7 MEDFS_STATES=10000`
#[test]
#[ignore = "minutes"]
fn many_ends_of_the_machine() {
    let number = |name: &str, or: u64| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(or);
    run(true, number("MEDFS_STATES", 10_000) as u32 / 4, number("MEDFS_SEED", 1));
}

#[test]
#[should_panic(expected = "page")]
fn a_file_that_is_not_synced_loses_what_was_flushed() {
    run(false, 25, 1);
}

/// Whether a page was ever found in the file of a machine that ended while the one programmed before it was not.
fn overtaken(barrier: bool) -> bool {
    let world = World::new("pm", false, true, 1);
    let places = world.header.places();
    let shape = (8, 4096, 128);
    let state = BlockState { written: 1, ..BlockState::default() };
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    (0..400).any(|at| {
        let disk = Shadow::default();
        let bytes = vec![0; places.end as usize];
        disk.0.lock().file = Sectors { now: bytes.clone(), stored: bytes, pending: Vec::new() };
        let mut medium = Filed::new(disk.clone(), shape, places);
        medium.set_durable(true);
        disk.0.lock().left = Some(at % 14);
        medium.write(5 * 8, &[5; PAGE], &[5; 128], state).unwrap();
        if barrier {
            medium.barrier().unwrap();
        }
        medium.write(0, &[1; PAGE], &[1; 128], state).unwrap();
        medium.sync().unwrap();
        let mut machine = disk.0.lock();
        let ended = machine.ended.take().unwrap_or_else(|| machine.file.clone());
        let found = ended.found(&mut rng);
        let state = |block: u64| &found[(places.states + block * STATE_BYTES) as usize..][..8];
        BlockState::unpack(state(0)).written > BlockState::unpack(state(5)).written
    })
}

#[test]
fn nothing_overtakes_a_barrier() {
    assert!(!overtaken(true));
    assert!(overtaken(false), "it is the barrier that does it");
}
