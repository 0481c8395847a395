//! A reference model of a flash device, and random requests that compare the two: after every power loss each
//! page must be one of the versions written since the last flush, at least as new as that flush.

use medfs_flash::{Faults, NandModel, PageCodec, Profile, policy};
use medfs_ftl::{Config, Ftl, FtlError, Hint, Nand, NandError, PAGE};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub(crate) type Layer = Ftl<NandModel, PageCodec>;

/// What a run is about.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) profile: String,
    pub(crate) ftl: String,
    pub(crate) capacitor: bool,
    pub(crate) seed: u64,
    /// Of a million programs and erases that many fail.
    pub(crate) faults: u32,
    /// One write in so many never reaches the map: a canary.
    pub(crate) skips: Option<u64>,
}

impl Setup {
    pub(crate) fn new(profile: &str, ftl: &str, capacitor: bool, seed: u64) -> Setup {
        Setup { profile: profile.into(), ftl: ftl.into(), capacitor, seed, faults: 0, skips: None }
    }
}

/// Pages that requests go to; the device has a few more.
pub(crate) const PAGES: u32 = 400;

/// The content of a version: some compress to nothing, some not at all. Version 0 is zeros.
pub(crate) fn content(version: u32) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    if version == 0 {
        return page;
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(u64::from(version));
    let random = match version % 6 {
        0 => 16,
        1 => 400,
        2 => 1500,
        3 => 2800,
        4 => 3400,
        _ => PAGE,
    };
    page.fill(version as u8);
    rng.fill(&mut page[..random]);
    page[..4].copy_from_slice(&version.to_le_bytes());
    page
}

fn version_of(page: &[u8; PAGE]) -> u32 {
    u32::from_le_bytes([page[0], page[1], page[2], page[3]])
}

pub(crate) struct World {
    setup: Setup,
    pub(crate) ftl: Option<Layer>,
    config: Config,
    profile: Profile,
    /// What each page may read as: the oldest first, the newest last.
    allowed: Vec<Vec<u32>>,
    next: u32,
    writes: u64,
    pub(crate) rng: Xoshiro256PlusPlus,
    pub(crate) cuts: u64,
}

impl World {
    pub(crate) fn new(setup: Setup) -> World {
        let mut profile = Profile::find(&setup.profile).unwrap();
        profile.geometry.pages_per_block = if profile.geometry.page_bytes == 4096 { 16 } else { 8 };
        profile.geometry.planes = 1;
        profile.endurance.factory_bad_ppm = profile.endurance.factory_bad_ppm.min(10_000);
        profile.controller.capacitor = setup.capacitor;
        let config = Config {
            logical_pages: PAGES + 64,
            checkpoint_every: 150,
            level_spread: 12,
            capacitor: setup.capacitor,
            idle_blocks: 3,
        };
        let policy = policy(&setup.ftl, &profile).unwrap();
        let mut blocks = 60;
        for _ in 0..3 {
            let g = profile.geometry(blocks);
            let failing = if setup.faults > 0 { 60 } else { 0 };
            blocks = config.data_blocks_min(&g, &*policy) + config.map_blocks(&g) + 4 + failing;
        }
        let mut nand = NandModel::in_memory(&profile, blocks, setup.seed);
        nand.set_faults(Faults { program_ppm: setup.faults, erase_ppm: setup.faults / 2 });
        let codec = PageCodec::new("lzo").unwrap();
        let ftl = Ftl::format(nand, codec, policy, config).unwrap();
        let rng = Xoshiro256PlusPlus::seed_from_u64(setup.seed);
        World {
            setup,
            ftl: Some(ftl),
            config,
            profile,
            allowed: vec![vec![0]; PAGES as usize],
            next: 1,
            writes: 0,
            rng,
            cuts: 0,
        }
    }

    pub(crate) fn ftl(&mut self) -> &mut Layer {
        self.ftl.as_mut().unwrap()
    }

    /// One random request. Power loss is not an error: the device is opened again, and compared.
    pub(crate) fn step(&mut self) {
        let run = *[1, 1, 1, 2, 3, 8].get(self.rng.random_range(0..6)).unwrap();
        let hot = self.rng.random_bool(0.5);
        let lpn = self.rng.random_range(0..if hot { PAGES / 8 } else { PAGES - 8 });
        match self.rng.random_range(0..100) {
            0..62 => self.write(lpn, run),
            62..70 => self.trim(lpn, run),
            70..80 => self.flush(),
            80..85 => {
                let until = self.ftl().nand().now() + 20_000_000;
                let idled = self.ftl().idle(until);
                self.survive(idled.map(|_| ()));
            }
            _ => self.compare(lpn),
        }
    }

    pub(crate) fn write(&mut self, lpn: u32, run: u32) {
        let versions: Vec<u32> = (self.next..self.next + run).collect();
        self.next += run;
        let pages: Vec<[u8; PAGE]> = versions.iter().map(|v| content(*v)).collect();
        let slices: Vec<&[u8]> = pages.iter().map(|p| &p[..]).collect();
        self.writes += 1;
        let skipped = self.setup.skips.is_some_and(|every| self.writes.is_multiple_of(every));
        let place = if skipped { PAGES } else { lpn };
        let hint = [Hint::Hot, Hint::Warm, Hint::Cold][self.rng.random_range(0..3)];
        let done = self.ftl().write(place, &slices, hint);
        for (lpn, version) in (lpn..).zip(versions) {
            let allowed = &mut self.allowed[lpn as usize];
            if done.is_ok() && self.setup.capacitor {
                allowed.clear();
            }
            allowed.push(version);
        }
        self.survive(done);
    }

    pub(crate) fn trim(&mut self, lpn: u32, run: u32) {
        let done = self.ftl().trim(lpn, run);
        (lpn..lpn + run).for_each(|lpn| self.allowed[lpn as usize].push(0));
        self.survive(done);
    }

    pub(crate) fn flush(&mut self) {
        let done = self.ftl().flush();
        if done.is_ok() {
            for allowed in &mut self.allowed {
                allowed.drain(..allowed.len() - 1);
            }
        }
        self.survive(done);
    }

    /// Cuts the power after so many programs and erases from now on.
    pub(crate) fn cut_after(&mut self, operations: u64) {
        self.ftl().nand_mut().cut_after(operations);
    }

    fn survive(&mut self, done: Result<(), FtlError>) {
        match done {
            Ok(()) => {}
            Err(FtlError::Nand(NandError::PowerLost)) => self.power_loss(),
            Err(e) => panic!("{e} in {:?}", self.setup),
        }
    }

    /// Power is lost now, or was: the device is opened again and everything compared.
    pub(crate) fn power_loss(&mut self) {
        self.cuts += 1;
        let ftl = self.ftl.take().unwrap();
        let image = if self.setup.capacitor { Some(ftl.retained()) } else { None };
        let (mut nand, mut codec) = ftl.abandon();
        // Recovery may lose power as well.
        loop {
            nand.power_on();
            if self.rng.random_bool(0.1) {
                nand.cut_after(self.rng.random_range(0..12));
            }
            let policy = policy(&self.setup.ftl, &self.profile).unwrap();
            match Ftl::open(nand, codec, policy, self.config, image.as_deref()) {
                Ok(mut ftl) => {
                    ftl.nand_mut().power_on();
                    self.ftl = Some(ftl);
                    break;
                }
                Err((back, FtlError::Nand(NandError::PowerLost))) => {
                    nand = back;
                    codec = PageCodec::new("lzo").unwrap();
                }
                Err((_, e)) => panic!("{e} after power loss in {:?}", self.setup),
            }
        }
        let setup = self.setup.clone();
        self.ftl().check().unwrap_or_else(|e| panic!("{e} in {setup:?}"));
        for lpn in 0..PAGES {
            let version = self.read(lpn);
            let allowed = &mut self.allowed[lpn as usize];
            assert!(
                allowed.contains(&version),
                "page {lpn} is version {version} of {allowed:?} after power loss in {setup:?}"
            );
            *allowed = vec![version];
        }
    }

    fn read(&mut self, lpn: u32) -> u32 {
        let mut page = [1; PAGE];
        self.ftl().read(lpn, &mut [&mut page]).unwrap_or_else(|e| panic!("{e} reading page {lpn}"));
        let version = version_of(&page);
        assert!(page == content(version), "page {lpn} is a mixture");
        version
    }

    /// The newest version is what a page reads as.
    pub(crate) fn compare(&mut self, lpn: u32) {
        let newest = *self.allowed[lpn as usize].last().unwrap();
        let version = self.read(lpn);
        assert_eq!(version, newest, "page {lpn} in {:?}", self.setup);
    }

    pub(crate) fn compare_all(&mut self) {
        (0..PAGES).for_each(|lpn| self.compare(lpn));
        let setup = self.setup.clone();
        self.ftl().check().unwrap_or_else(|e| panic!("{e} in {setup:?}"));
    }

    /// A clean end, and opening again.
    pub(crate) fn reopen(&mut self) {
        let ftl = self.ftl.take().unwrap();
        let (nand, codec) = ftl.close().map_err(|(_, e)| e).unwrap();
        let policy = policy(&self.setup.ftl, &self.profile).unwrap();
        let ftl = Ftl::open(nand, codec, policy, self.config, None).map_err(|(_, e)| e).unwrap();
        self.ftl = Some(ftl);
        self.allowed.iter_mut().for_each(|allowed| {
            allowed.drain(..allowed.len() - 1);
        });
    }
}

/// Random requests with a power cut in the middle of one every now and then.
pub(crate) fn random(setup: Setup, operations: u64) -> u64 {
    let mut world = World::new(setup);
    for at in 0..operations {
        if world.rng.random_bool(0.04) {
            let after = world.rng.random_range(0..60);
            world.cut_after(after);
        }
        world.step();
        if at % 997 == 996 {
            world.ftl().nand_mut().power_on();
            world.reopen();
            world.compare_all();
        }
    }
    world.ftl().nand_mut().power_on();
    world.compare_all();
    world.cuts
}
