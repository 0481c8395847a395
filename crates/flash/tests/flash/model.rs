//! The translation layer against the reference model: every method, every profile, power cuts at every
//! operation of the NAND.

use crate::common::{PAGES, Setup, World, random};
use medfs_flash::{FTLS, Profile};

fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn profiles() -> Vec<String> {
    Profile::built_in().into_iter().map(|p| p.name).collect()
}

#[test]
fn random_requests_with_power_cuts() {
    let seed = env("MEDFS_SEED", 1);
    let mut cuts = 0;
    for (i, ftl) in (0..).zip(FTLS) {
        for (j, profile) in (0..).zip(profiles()) {
            for capacitor in [false, true] {
                cuts += random(Setup::new(&profile, ftl, capacitor, seed + 10 * i + j), 600);
            }
        }
    }
    assert!(cuts > 150, "{cuts} power cuts");
}

#[test]
fn blocks_that_fail() {
    for (seed, ftl) in (1..).zip(FTLS) {
        for capacitor in [false, true] {
            let faults = 3000;
            random(Setup { faults, ..Setup::new("emmc", ftl, capacitor, seed) }, 1200);
        }
    }
}

/// The same requests again and again, with the power cut at the first program or erase, the second, and so on.
#[test]
fn a_cut_at_every_operation() {
    for (ftl, capacitor) in [("pm", false), ("ldc", false), ("ldc", true), ("zftl", false)] {
        let mut at = 0;
        loop {
            let mut world = World::new(Setup::new("emmc", ftl, capacitor, 77));
            (0..5).for_each(|i| world.write(i * 80, 8));
            world.flush();
            world.cut_after(at);
            (0..120).for_each(|_| world.step());
            if world.cuts == 0 {
                break;
            }
            world.ftl().nand_mut().power_on();
            world.compare_all();
            at += 1;
        }
        assert!(at > 100, "{ftl}: {at} operations");
    }
}

#[test]
fn the_map_recovered_is_the_map_lost() {
    for ftl in FTLS {
        let mut world = World::new(Setup::new("emmc", ftl, false, 5));
        (0..1500).for_each(|_| world.step());
        world.flush();
        let all =
            |world: &mut World| -> Vec<_> { (0..PAGES).map(|p| world.ftl().place(p).unwrap()).collect() };
        // What collection has not programmed yet is still where it was.
        world.ftl().checkpoint(false).unwrap();
        (0..100).for_each(|i| world.write(i * 3, 1));
        world.flush();
        let before = all(&mut world);
        world.power_loss();
        let after = all(&mut world);
        let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        // Packed by collection and in its buffer when power was lost: at most a buffer's pages.
        assert!(moved <= 14, "{ftl}: {moved} entries differ");
    }
}

#[test]
#[should_panic(expected = "page")]
fn a_layer_that_skips_a_mapping_update_is_caught() {
    random(Setup { skips: Some(97), ..Setup::new("emmc", "ldc", false, 3) }, 4000);
}

/// `MEDFS_SEED=7 MEDFS_OPS=1000000`: shared among all methods and profiles.
#[test]
#[ignore = "minutes"]
fn a_million_requests() {
    let (seed, operations) = (env("MEDFS_SEED", 1), env("MEDFS_OPS", 1_000_000));
    let setups: Vec<Setup> = FTLS
        .iter()
        .flat_map(|ftl| profiles().into_iter().map(move |profile| (ftl, profile)))
        .flat_map(|(ftl, profile)| [false, true].map(|c| Setup::new(&profile, ftl, c, seed)))
        .collect();
    let each = operations / setups.len() as u64;
    let mut cuts = 0;
    for setup in setups {
        println!("{setup:?}: {each} requests");
        cuts += random(setup, each);
    }
    println!("{cuts} power cuts");
}
