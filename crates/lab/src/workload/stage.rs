//! The stage of a workload: what it works on, what measures it, and where its set-up ends.

use crate::backend::Target;
use crate::backend::memory::MemoryTarget;
use crate::error::{Error, Result};
use crate::meter::Meter;
use crate::random::Random;
use crate::tape::Recorder;
use crate::totals::Totals;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Figures that a workload knows of itself, by name.
pub type Values = BTreeMap<String, f64>;

/// The environment of a workload.
pub struct Stage {
    /// The target it works on.
    pub target: Arc<dyn Target>,
    /// The meter below the target.
    pub meter: Arc<Meter>,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// Part of the full size; 1 is the whole.
    pub scale: f64,
    recorder: Option<Arc<Recorder>>,
    at_setup: Mutex<Totals>,
}

impl Stage {
    /// On a target, measured.
    pub fn on(target: Arc<dyn Target>, seed: u64, scale: f64) -> Stage {
        let meter = Arc::new(Meter::new(target));
        Stage { target: meter.clone(), meter, seed, scale, recorder: None, at_setup: Mutex::default() }
    }

    /// In memory, recorded.
    pub(super) fn recorded(seed: u64, scale: f64) -> (Stage, Arc<Recorder>) {
        let meter = Arc::new(Meter::new(Arc::new(MemoryTarget::default())));
        let recorder = Arc::new(Recorder::new(meter.clone()));
        let target = recorder.clone() as Arc<dyn Target>;
        let kept = Some(recorder.clone());
        (Stage { target, meter, seed, scale, recorder: kept, at_setup: Mutex::default() }, recorder)
    }

    /// A source of chance for a part of the workload.
    pub fn random(&self, part: &str) -> Random {
        Random::new(self.seed, part)
    }

    /// `full` times the scale, but at least `least`.
    pub fn scaled(&self, full: u64, least: u64) -> u64 {
        ((full as f64 * self.scale).round() as u64).max(least)
    }

    /// Ends the set-up: everything is synced, and measuring begins.
    pub fn setup_done(&self) -> Result<()> {
        self.target.sync().map_err(Error::io("syncing the set-up"))?;
        if let Some(recorder) = &self.recorder {
            recorder.setup_done();
        }
        self.meter.setup_done();
        *self.at_setup.lock() = self.meter.totals();
        Ok(())
    }

    /// The totals since the set-up, with what is not synced yet.
    pub fn measured(&self) -> Totals {
        self.meter.settle();
        self.meter.totals() - *self.at_setup.lock()
    }
}
