//! The device's own time: the controller, the channels and the planes, each busy until some moment (LDC, Fig. 1).
//!
//! The controller works on one request at a time. It hands a page to the flash module and goes on as soon as
//! another of its buffers is free; a read runs ahead of expanding what was read before, as far as there are
//! buffers. All times are nanoseconds since the device was made.

use crate::profile::{Profile, nanos};
use std::collections::VecDeque;

/// The clock.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    read: u64,
    program: u64,
    transfer: u64,
    erase: u64,
    pub(crate) compress: u64,
    pub(crate) expand: u64,
    pub(crate) predict: u64,
    slots: usize,
    /// The controller.
    now: u64,
    /// From when on a read may begin.
    reads_from: u64,
    /// When the last page read is in its buffer.
    ready: u64,
    planes: Vec<u64>,
    channels: Vec<u64>,
    /// The channel of each plane.
    wires: Vec<usize>,
    /// Ends of programs whose buffers are not free yet.
    programs: VecDeque<u64>,
    /// When the buffers of the last pages read are free again.
    buffers: VecDeque<u64>,
}

impl Clock {
    pub(crate) fn new(profile: &Profile) -> Clock {
        let (t, c, g) = (&profile.timing, &profile.controller, &profile.geometry);
        Clock {
            read: nanos(t.read_us),
            program: nanos(t.program_us),
            transfer: nanos(t.transfer_us),
            erase: nanos(t.erase_us),
            compress: nanos(c.compress_us),
            expand: nanos(c.expand_us),
            predict: nanos(c.predict_us),
            slots: c.buffer_slots as usize,
            now: 0,
            reads_from: 0,
            ready: 0,
            planes: vec![0; (g.dies * g.planes) as usize],
            channels: vec![0; g.channels as usize],
            wires: (0..g.dies * g.planes).map(|plane| (plane % g.channels) as usize).collect(),
            programs: VecDeque::new(),
            buffers: VecDeque::new(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// A request begins: not before it arrives, and not before the last one has ended.
    pub(crate) fn begin(&mut self, arrival: u64) {
        self.now = self.now.max(arrival);
        self.reads_from = self.now;
        self.buffers.clear();
    }

    pub(crate) fn settle(&mut self) {
        let programmed = self.programs.drain(..).max().unwrap_or(0);
        self.now = self.now.max(self.ready).max(programmed);
        self.reads_from = self.now;
    }

    /// The controller works.
    pub(crate) fn spend(&mut self, time: u64, expands: bool) {
        self.now = self.now.max(self.ready) + time;
        if let Some(last) = self.buffers.back_mut().filter(|_| expands) {
            *last = self.now;
        }
    }

    pub(crate) fn program(&mut self, plane: usize) {
        self.now = self.now.max(self.ready);
        let (plane, channel) = self.parts(plane);
        let begun = self.now.max(self.planes[plane]).max(self.channels[channel]);
        self.channels[channel] = begun + self.transfer;
        self.planes[plane] = begun + self.transfer + self.program;
        self.programs.push_back(self.planes[plane]);
        while self.programs.len() >= self.slots {
            let freed = self.programs.pop_front().unwrap_or(0);
            self.now = self.now.max(freed);
        }
        self.reads_from = self.now;
    }

    /// Reads a page, or its out-of-band bytes alone, which take no time on the channel.
    pub(crate) fn read(&mut self, plane: usize, whole: bool) {
        let (plane, channel) = self.parts(plane);
        let buffer = if self.buffers.len() >= self.slots { self.buffers.pop_front() } else { None };
        let buffer = buffer.unwrap_or(0);
        let sensed = self.reads_from.max(buffer).max(self.planes[plane]) + self.read;
        let end = if whole { sensed.max(self.channels[channel]) + self.transfer } else { sensed };
        self.planes[plane] = end;
        if whole {
            self.channels[channel] = end;
        }
        self.ready = self.ready.max(end);
        if whole {
            self.buffers.push_back(end);
        }
        if !whole {
            self.now = self.now.max(end);
        }
    }

    pub(crate) fn erase(&mut self, plane: usize) {
        let (plane, _) = self.parts(plane);
        self.now = self.now.max(self.ready).max(self.planes[plane]) + self.erase;
        self.planes[plane] = self.now;
        self.reads_from = self.now;
    }

    fn parts(&self, plane: usize) -> (usize, usize) {
        (plane, self.wires[plane])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;

    fn clock() -> Clock {
        Clock::new(&Profile::find("emmc").unwrap())
    }

    #[test]
    fn writing_pages_as_they_are_takes_tw_each() {
        let mut clock = clock();
        clock.begin(7 * US);
        (0..5).for_each(|_| clock.program(0));
        clock.settle();
        assert_eq!(clock.now(), (7 + 5 * 300) * US);
    }

    /// Fig. 1(b): a page is compressed while the last one is programmed.
    #[test]
    fn compression_hides_behind_programming() {
        let mut clock = clock();
        clock.begin(0);
        let compress = clock.compress;
        // Three pages fill the first slot, the fourth is compressed beside its programming.
        (0..3).for_each(|_| clock.spend(compress, false));
        clock.program(0);
        clock.spend(compress, false);
        assert_eq!(clock.now(), 4 * 136 * US);
        clock.settle();
        assert_eq!(clock.now(), (3 * 136 + 300) * US);
        // Equation 1 of four pages at a ratio of a quarter, without what is still in the buffer.
    }

    #[test]
    fn the_second_program_waits_for_a_slot() {
        let mut clock = clock();
        clock.program(0);
        assert_eq!(clock.now(), 0);
        clock.program(0);
        assert_eq!(clock.now(), 300 * US, "both slots are in use");
    }

    /// Fig. 1(c): Tr = tr x n + td.
    #[test]
    fn expanding_hides_behind_reading() {
        let mut clock = clock();
        clock.begin(0);
        let expand = clock.expand;
        for _ in 0..4 {
            clock.read(0, true);
            clock.spend(expand, true);
        }
        clock.settle();
        assert_eq!(clock.now(), (4 * 125 + 33) * US);
    }

    #[test]
    fn planes_work_at_the_same_time() {
        let mut clock = Clock::new(&Profile::find("ufs31").unwrap());
        clock.begin(0);
        (0..8).for_each(|plane| clock.program(plane));
        clock.settle();
        assert_eq!(clock.now(), (4 * 14 + 550) * US, "eight planes on two channels");
    }
}
