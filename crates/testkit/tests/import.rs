//! Imports of volumes that the kernel's f2fs left, with power cut at their writes: every state shows the same
//! tree, and is imported to the end.
//!
//! `tools/import-crashes` has the kernel make volumes, runs [`every_volume`] on them, and has the kernel
//! judge what it exported.

mod common;

use common::{golden, load_image};
use medfs::convert::{export, import};
use medfs::{MountOptions, Volume};
use medfs_device::crash::{CrashPlan, CrashState, RecordingDevice};
use medfs_device::{BlockDevice, FileDevice, FileOptions, MemDevice};
use medfs_testkit::fuzz::{sample_seed, variable};
use medfs_testkit::images::{FsckMedfs, save};
use medfs_testkit::model::Model;
use medfs_testkit::observe::{compare, observe};
use medfs_testkit::subject::Check;
use medfs_testkit::volume::test_clock;
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn tree(device: &Arc<MemDevice>) -> Result<Model, String> {
    // What is looked at stays as it is: the time of access too.
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let volume = Volume::open(device.clone(), options, test_clock()).map_err(|e| e.to_string())?;
    let tree = observe(&volume)?;
    volume.close().map_err(|e| e.to_string())?;
    Ok(tree)
}

/// Opens what a power cut left, ends the import, and exports: the tree stays what it was.
fn resumed(state: &CrashState, expected: &Model) -> Result<Arc<MemDevice>, String> {
    let device = Arc::new(state.device());
    compare(expected, &tree(&device)?).map_err(|e| format!("as power was cut: {e}"))?;
    // Once more from the cut, as opening the volume was a mount.
    let device = Arc::new(state.device());
    import(device.clone(), test_clock()).map_err(|e| format!("import: {e}"))?;
    compare(expected, &tree(&device)?).map_err(|e| format!("imported: {e}"))?;
    FsckMedfs.check(device.clone()).map_err(|e| format!("imported: {e}"))?;
    export(device.clone(), test_clock(), &mut |_, _, _| ()).map_err(|e| format!("export: {e}"))?;
    compare(expected, &tree(&device)?).map_err(|e| format!("exported: {e}"))?;
    Ok(device)
}

/// What power cuts at an import of a volume leave, and how many.
struct Cut {
    name: String,
    expected: Model,
    states: Vec<CrashState>,
    chosen: Vec<CrashState>,
}

impl Cut {
    fn of(name: &str, base: MemDevice, most: usize, seed: u64) -> Cut {
        let expected = tree(&Arc::new(base.snapshot())).unwrap_or_else(|e| panic!("{name}: {e}"));
        let recorder = Arc::new(RecordingDevice::new(&base));
        let done = import(recorder.clone(), test_clock()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(done.switched, "{name}: is no plain volume");
        let plan = CrashPlan { exhaustive: 4, samples: 2, torn: None, torn_each: 0, seed };
        let states: Vec<_> = recorder.recording().states(&plan).collect();
        let chosen = states.choose_multiple(&mut ChaCha12Rng::seed_from_u64(seed), most).cloned().collect();
        Cut { name: name.to_owned(), expected, states, chosen }
    }

    /// Judges the chosen states; the first `kept` are handed to `keep`.
    fn judge(&self, kept: usize, mut keep: impl FnMut(&str, &MemDevice)) {
        for (number, state) in self.chosen.iter().enumerate() {
            let device =
                resumed(state, &self.expected).unwrap_or_else(|e| panic!("{}: {state:?}: {e}", self.name));
            if number < kept {
                keep(&format!("{}-{}", self.name, state.ordinal), &device);
            }
        }
    }
}

#[test]
fn a_cut_import_of_what_the_kernel_left_is_resumed() {
    let cut = Cut::of("crash-roll-forward", load_image(&golden().join("crash-roll-forward.img.zst")), 3, 1);
    assert!(cut.states.len() > 50, "{} states", cut.states.len());
    cut.judge(0, |_, _| ());
}

fn folder(name: &str) -> PathBuf {
    std::env::var_os(name).unwrap_or_else(|| panic!("{name} names a folder")).into()
}

fn load(path: &Path) -> MemDevice {
    let file = FileDevice::open(path, FileOptions::default()).expect("an image");
    MemDevice::copy_of(&file as &dyn BlockDevice).expect("it reads")
}

/// The volumes `v1`, `v2`, ... of `MEDFS_VOLUMES`, `MEDFS_STATES` of each, the first `MEDFS_KEPT` of them
/// exported to `MEDFS_OUT`.
#[test]
#[ignore = "takes volumes from tools/import-crashes"]
fn every_volume() {
    let (volumes, out) = (folder("MEDFS_VOLUMES"), folder("MEDFS_OUT"));
    let seed = sample_seed();
    let (most, kept) = (variable("MEDFS_STATES").unwrap_or(200), variable("MEDFS_KEPT").unwrap_or(0));
    let (mut all, mut judged, mut count) = (0, 0, 0);
    for n in 1.. {
        let path = volumes.join(format!("v{n}"));
        if !path.exists() {
            break;
        }
        let cut = Cut::of(&n.to_string(), load(&path), most as usize, seed ^ n);
        cut.judge(kept as usize, |name, device| {
            save(device, &out.join(format!("{name}.img"))).expect("saved")
        });
        (all, judged, count) = (all + cut.states.len(), judged + cut.chosen.len(), count + 1);
    }
    println!(
        "seed {seed}: {count} volumes, {all} states of their imports, {judged} judged, all show their tree"
    );
    assert!(count > 0, "no volumes in {}", volumes.display());
}
