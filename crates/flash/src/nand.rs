//! The NAND: what may be done with it, what it costs, how it wears, and how it loses power.
//!
//! Illegal use is refused: programming out of order or twice, programming a block whose erase was cut short,
//! reading pages that are not written, touching bad blocks. A program or erase that power loss interrupts
//! leaves a page that cannot be read, a block in which some pages can be read and others cannot, one that
//! looks erased and is not, or nothing at all.

use crate::clock::Clock;
use crate::nand_file::{BlockState, Medium, Memory};
use crate::profile::Profile;
use medfs_ftl::{Geometry, Nand, NandError, Work};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use std::io;

/// First out-of-band byte, and all others, of a page that cannot be read.
const TORN: u8 = 0xee;

/// Counters of the NAND since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NandCounts {
    /// Pages programmed.
    pub programs: u64,
    /// Pages read; out-of-band bytes alone are not counted.
    pub reads: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Illegal operations that were refused.
    pub refused: u64,
}

/// Failures of operations that should succeed, in a million: for tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Faults {
    /// Programs.
    pub program_ppm: u32,
    /// Erases.
    pub erase_ppm: u32,
}

/// A NAND device.
pub struct NandModel {
    g: Geometry,
    medium: Box<dyn Medium>,
    states: Vec<BlockState>,
    clock: Clock,
    pe_cycles: u32,
    seed: u64,
    faults: Faults,
    rng: Xoshiro256PlusPlus,
    /// Programs and erases until power is lost.
    cut: Option<u64>,
    dead: bool,
    retained: Vec<u8>,
    counts: NandCounts,
    /// The medium's last error.
    error: Option<io::Error>,
}

impl NandModel {
    /// A new device in memory.
    pub fn in_memory(profile: &Profile, blocks: u32, seed: u64) -> NandModel {
        let g = profile.geometry(blocks);
        let states = factory_states(profile, blocks, seed);
        NandModel::on(Box::new(Memory::new(g.pages_per_block, blocks)), profile, states, seed)
    }

    pub(crate) fn on(
        medium: Box<dyn Medium>,
        profile: &Profile,
        states: Vec<BlockState>,
        seed: u64,
    ) -> NandModel {
        NandModel {
            g: profile.geometry(states.len() as u32),
            medium,
            states,
            clock: Clock::new(profile),
            pe_cycles: profile.endurance.pe_cycles,
            seed,
            faults: Faults::default(),
            rng: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x6e61_6e64),
            cut: None,
            dead: false,
            retained: Vec::new(),
            counts: NandCounts::default(),
            error: None,
        }
    }

    /// Operations fail at this rate from now on.
    pub fn set_faults(&mut self, faults: Faults) {
        self.faults = faults;
    }

    /// Power is lost in the middle of the program or erase after so many others.
    pub fn cut_after(&mut self, operations: u64) {
        self.cut = Some(operations);
    }

    /// Whether power was lost.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Power comes back.
    pub fn power_on(&mut self) {
        (self.dead, self.cut) = (false, None);
    }

    /// The counters.
    pub fn counts(&self) -> NandCounts {
        self.counts
    }

    /// Times each block was erased, and whether it is bad.
    pub fn wear(&self) -> impl Iterator<Item = (u32, bool)> {
        self.states.iter().map(|s| (s.erases, s.bad))
    }

    /// The image that [`Nand::retain`] kept.
    pub fn retained(&self) -> &[u8] {
        &self.retained
    }

    pub(crate) fn set_retained(&mut self, image: Vec<u8>) {
        self.retained = image;
    }

    /// A request arrives: the clock goes on to this moment at least. In nanoseconds of the device's time.
    pub fn begin(&mut self, arrival: u64) {
        self.clock.begin(arrival);
    }

    /// Puts everything into the device's file.
    ///
    /// # Errors
    /// The file's.
    pub fn sync(&mut self) -> io::Result<()> {
        self.medium.sync()
    }

    /// Whether [`NandModel::sync`] is for the end of the machine too, not of this process alone.
    pub fn set_durable(&mut self, durable: bool) {
        self.medium.set_durable(durable);
    }

    /// The file's last error, behind a [`NandError::Host`].
    pub fn take_error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    fn host<T>(&mut self, result: io::Result<T>) -> Result<T, NandError> {
        result.map_err(|e| {
            self.error = Some(e);
            NandError::Host
        })
    }

    fn refuse<T>(&mut self, what: &'static str, at: u32) -> Result<T, NandError> {
        self.counts.refused += 1;
        Err(NandError::Illegal(what, at))
    }

    /// Power at the beginning of an operation; `true`: it fails in the middle of it.
    fn power(&mut self) -> Result<bool, NandError> {
        if self.dead {
            return Err(NandError::PowerLost);
        }
        match self.cut.as_mut() {
            Some(0) => {
                self.dead = true;
                Ok(true)
            }
            Some(left) => {
                *left -= 1;
                Ok(false)
            }
            None => Ok(false),
        }
    }

    fn chance(&mut self, ppm: u32) -> bool {
        ppm > 0 && self.rng.random_range(0..1_000_000) < ppm
    }

    /// Cycles that a block stands.
    fn limit(&self, block: u32) -> u32 {
        let part = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ u64::from(block)).random_range(0..=250);
        (u64::from(self.pe_cycles) * (1000 + part) / 1000).min(u64::from(u32::MAX)) as u32
    }

    fn plane(&self, page: u32) -> usize {
        (self.g.block_of(page) % self.g.units) as usize
    }

    /// A block that may be touched, or the refusal.
    fn good(&mut self, block: u32) -> Result<BlockState, NandError> {
        match self.states.get(block as usize) {
            None => self.refuse("a block beyond the last", block),
            Some(state) if state.bad => self.refuse("a bad block was touched", block),
            Some(state) => Ok(*state),
        }
    }

    /// A page that may be read, or the refusal.
    fn written(&mut self, page: u32) -> Result<(), NandError> {
        let block = self.g.block_of(page);
        let state = self.good(block)?;
        if page % self.g.pages_per_block >= u32::from(state.written) {
            return self.refuse("a page that is not written was read", page);
        }
        Ok(())
    }

    fn tear_program(&mut self, page: u32, mut state: BlockState) -> Result<(), NandError> {
        if self.rng.random_bool(0.3) {
            // It had not begun.
            return Err(NandError::PowerLost);
        }
        state.written += 1;
        self.states[self.g.block_of(page) as usize] = state;
        let spare = vec![TORN; self.g.spare_bytes as usize];
        let written = self.medium.write(page, &[], &spare, state);
        self.host(written)?;
        Err(NandError::PowerLost)
    }

    fn tear_erase(&mut self, block: u32, mut state: BlockState) -> Result<(), NandError> {
        let how = self.rng.random_range(0..3);
        if how == 0 {
            return Err(NandError::PowerLost);
        }
        state.unstable = true;
        if how == 1 {
            // It reads as erased.
            state.written = 0;
        }
        self.states[block as usize] = state;
        let changed = self.medium.set_state(block, state);
        self.host(changed)?;
        let spare = vec![TORN; self.g.spare_bytes as usize];
        for page in 0..u32::from(state.written) {
            if self.rng.random_bool(0.5) {
                let spoilt = self.medium.spoil(self.g.first_page(block) + page, &spare);
                self.host(spoilt)?;
            }
        }
        Err(NandError::PowerLost)
    }
}

/// The blocks of a new device: some are bad.
pub(crate) fn factory_states(profile: &Profile, blocks: u32, seed: u64) -> Vec<BlockState> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x0066_6163_746f_7279);
    let ppm = profile.endurance.factory_bad_ppm;
    let bad = (0..blocks).map(|_| ppm > 0 && rng.random_range(0..1_000_000) < ppm);
    bad.map(|bad| BlockState { bad, ..BlockState::default() }).collect()
}

impl Nand for NandModel {
    fn geometry(&self) -> Geometry {
        self.g
    }

    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<(), NandError> {
        if self.dead {
            return Err(NandError::PowerLost);
        }
        let block = self.g.block_of(page);
        let mut state = self.good(block)?;
        let (next, sizes) = (u32::from(state.written), (data.len(), spare.len()));
        if state.unstable {
            return self.refuse("a block whose erase was cut short was programmed", block);
        }
        if page % self.g.pages_per_block != next {
            return self.refuse("a page was programmed out of order or twice", page);
        }
        if (sizes.0 != 0 && sizes.0 != self.g.page_bytes as usize) || sizes.1 != self.g.spare_bytes as usize {
            return self.refuse("a part of a page was programmed", page);
        }
        if self.power()? {
            return self.tear_program(page, state);
        }
        self.clock.program(self.plane(page));
        self.counts.programs += 1;
        if self.chance(self.faults.program_ppm) {
            return Err(NandError::Failed(block));
        }
        state.written += 1;
        self.states[block as usize] = state;
        let written = self.medium.write(page, data, spare, state);
        self.host(written)
    }

    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<(), NandError> {
        if self.dead {
            return Err(NandError::PowerLost);
        }
        self.written(page)?;
        self.clock.read(self.plane(page), true);
        self.counts.reads += 1;
        let read = self.medium.read_spare(page, spare);
        self.host(read)?;
        if spare.iter().all(|b| *b == TORN) {
            return Err(NandError::Uncorrectable(page));
        }
        if data.is_empty() {
            return Ok(());
        }
        let read = self.medium.read_data(page, data);
        self.host(read)
    }

    fn read_spare(&mut self, page: u32, spare: &mut [u8]) -> Result<(), NandError> {
        if self.dead {
            return Err(NandError::PowerLost);
        }
        self.written(page)?;
        self.clock.read(self.plane(page), false);
        let read = self.medium.read_spare(page, spare);
        self.host(read)?;
        if spare.iter().all(|b| *b == TORN) { Err(NandError::Uncorrectable(page)) } else { Ok(()) }
    }

    fn erase(&mut self, block: u32) -> Result<(), NandError> {
        if self.dead {
            return Err(NandError::PowerLost);
        }
        let state = self.good(block)?;
        if self.power()? {
            return self.tear_erase(block, state);
        }
        self.clock.erase((block % self.g.units) as usize);
        self.counts.erases += 1;
        if state.erases >= self.limit(block) || self.chance(self.faults.erase_ppm) {
            return Err(NandError::Failed(block));
        }
        let state = BlockState { erases: state.erases + 1, ..BlockState::default() };
        self.states[block as usize] = state;
        let changed = self.medium.set_state(block, state);
        self.host(changed)
    }

    fn barrier(&mut self) -> Result<(), NandError> {
        if self.dead {
            return Err(NandError::PowerLost);
        }
        let written = self.medium.barrier();
        self.host(written)
    }

    fn is_blank(&mut self, page: u32) -> Result<bool, NandError> {
        if self.dead {
            return Err(NandError::PowerLost);
        }
        let state = self.good(self.g.block_of(page))?;
        Ok(page % self.g.pages_per_block >= u32::from(state.written))
    }

    fn is_bad(&self, block: u32) -> bool {
        self.states.get(block as usize).is_none_or(|s| s.bad)
    }

    fn mark_bad(&mut self, block: u32) {
        if self.dead {
            return;
        }
        if let Some(state) = self.states.get_mut(block as usize) {
            state.bad = true;
            let state = *state;
            if let Err(e) = self.medium.set_state(block, state) {
                self.error = Some(e);
            }
        }
    }

    fn spend(&mut self, work: Work) {
        let time = match work {
            Work::Compress => self.clock.compress,
            Work::Expand => self.clock.expand,
            Work::Predict => self.clock.predict,
        };
        self.clock.spend(time, work == Work::Expand);
    }

    fn settle(&mut self) {
        self.clock.settle();
    }

    fn now(&self) -> u64 {
        self.clock.now()
    }

    fn retain(&mut self, image: &[u8]) {
        if self.dead {
            return;
        }
        self.retained.clear();
        self.retained.extend_from_slice(image);
        if let Err(e) = self.medium.retain(image) {
            self.error = Some(e);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> NandModel {
        NandModel::in_memory(&Profile::find("emmc").unwrap(), 8, 1)
    }

    const SPARE: [u8; 128] = [3; 128];

    #[test]
    fn illegal_use_is_refused() {
        let mut nand = model();
        let page = [7; 4096];
        let illegal = |r: Result<(), NandError>| matches!(r, Err(NandError::Illegal(..)));
        assert!(illegal(nand.program(1, &page, &SPARE)), "out of order");
        nand.program(0, &page, &SPARE).unwrap();
        assert!(illegal(nand.program(0, &page, &SPARE)), "twice");
        assert!(illegal(nand.program(1, &page[..9], &SPARE)), "a part");
        let (mut data, mut spare) = ([0; 4096], [0; 128]);
        assert!(illegal(nand.read(1, &mut data, &mut spare)), "not written");
        assert!(illegal(nand.read(9999, &mut data, &mut spare)), "beyond");
        nand.read(0, &mut data, &mut spare).unwrap();
        assert_eq!((data, spare), (page, SPARE));
        nand.mark_bad(1);
        assert!(illegal(nand.erase(1)) && illegal(nand.program(64, &page, &SPARE)), "bad");
        nand.erase(0).unwrap();
        assert!(illegal(nand.read(0, &mut data, &mut spare)), "erased");
        assert_eq!(nand.counts().refused, 8);
    }

    #[test]
    fn a_program_without_power_leaves_nothing_or_a_torn_page() {
        let mut torn = 0;
        for seed in 0..40 {
            let mut nand = NandModel::in_memory(&Profile::find("emmc").unwrap(), 8, seed);
            nand.cut_after(1);
            nand.program(0, &[1; 4096], &SPARE).unwrap();
            assert_eq!(nand.program(1, &[1; 4096], &SPARE), Err(NandError::PowerLost));
            let mut spare = [0; 128];
            assert_eq!(nand.read_spare(0, &mut spare), Err(NandError::PowerLost));
            nand.power_on();
            assert_eq!(nand.read_spare(0, &mut spare), Ok(()));
            if !nand.is_blank(1).unwrap() {
                torn += 1;
                assert_eq!(nand.read_spare(1, &mut spare), Err(NandError::Uncorrectable(1)));
            }
        }
        assert!((20..40).contains(&torn), "{torn} of 40 torn");
    }

    #[test]
    fn an_erase_without_power_must_be_repeated() {
        let mut unstable = 0;
        for seed in 0..40 {
            let mut nand = NandModel::in_memory(&Profile::find("emmc").unwrap(), 8, seed);
            nand.program(0, &[1; 4096], &SPARE).unwrap();
            nand.cut_after(0);
            assert_eq!(nand.erase(0), Err(NandError::PowerLost));
            nand.power_on();
            let next = u32::from(!nand.is_blank(0).unwrap());
            if nand.program(next, &[1; 4096], &SPARE).is_err() {
                unstable += 1;
            }
            nand.erase(0).unwrap();
            nand.program(0, &[1; 4096], &SPARE).unwrap();
        }
        assert!((15..40).contains(&unstable), "{unstable} of 40 unstable");
    }

    #[test]
    fn blocks_wear_out_each_at_its_own_limit() {
        let profile = Profile::find("sdcard").unwrap();
        let mut nand = NandModel::in_memory(&profile, 20, 5);
        let good: Vec<u32> = (0..20).filter(|block| !nand.is_bad(*block)).collect();
        let lives: Vec<u32> = good
            .into_iter()
            .map(|block| (0u32..).take_while(|_| nand.erase(block).is_ok()).count() as u32)
            .collect();
        assert!(lives.iter().all(|l| (1000..=1250).contains(l)), "{lives:?}");
        assert!(lives.iter().max() > lives.iter().min());
    }
}
