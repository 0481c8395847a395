//! Profiles: what a device is made of and how fast it is, as TOML that users can write too.
//!
//! Invariant: a [`Profile`] that was read makes sense; every field was checked, and an error names the field.

use crate::error::{FlashError, Result};
use medfs_ftl::{Costs, Geometry};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A kind of device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// One line for people.
    #[serde(default)]
    pub description: String,
    /// The shape of the NAND.
    pub geometry: Shape,
    /// Times of NAND operations.
    pub timing: Timing,
    /// The endurance of its blocks.
    pub endurance: Endurance,
    /// The controller.
    pub controller: Controller,
    /// The part of it that the host gets.
    pub space: Space,
}

/// The shape of the NAND.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Bytes of a flash page: 4096, 8192 or 16384.
    pub page_bytes: u32,
    /// Out-of-band bytes of a page that the translation layer has.
    pub spare_bytes: u32,
    /// Pages of a block.
    pub pages_per_block: u32,
    /// Channels.
    pub channels: u32,
    /// Dies, on all channels.
    pub dies: u32,
    /// Planes of a die, which program and erase at the same time.
    pub planes: u32,
}

/// Times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// Reading a page into the die's register.
    pub read_us: f64,
    /// Programming a page from it.
    pub program_us: f64,
    /// Moving a page over the channel.
    pub transfer_us: f64,
    /// Erasing a block.
    pub erase_us: f64,
}

/// Wear.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endurance {
    /// Cycles that a block stands; each has a limit of its own, from 1 to 1.25 times this.
    pub pe_cycles: u32,
    /// Blocks that are bad from the beginning, of a million.
    pub factory_bad_ppm: u32,
}

/// The controller.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Its clock, for people; [`Profile::at_clock`] scales the times with it.
    pub clock_mhz: f64,
    /// Compressing a page of 4 KiB (t_c).
    pub compress_us: f64,
    /// Expanding one (t_d).
    pub expand_us: f64,
    /// Predicting the ratio of one.
    pub predict_us: f64,
    /// Page buffers between the controller and the flash module: at least two.
    pub buffer_slots: u32,
    /// The write buffer survives power loss.
    pub capacitor: bool,
}

/// Capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Space {
    /// Bytes the host sees where nothing else is asked for, such as `16G`.
    pub capacity: String,
    /// Blocks for data beyond these, in per cent of them.
    pub over_provision_percent: f64,
}

/// Profiles that come with the program.
const BUILT_IN: [&str; 4] = [
    include_str!("profiles/emmc.toml"),
    include_str!("profiles/ufs31.toml"),
    include_str!("profiles/sdcard.toml"),
    include_str!("profiles/qlc.toml"),
];

impl Profile {
    /// The profiles that come with the program.
    pub fn built_in() -> Vec<Profile> {
        BUILT_IN.iter().map(|text| Profile::parse(text).expect("checked by a test")).collect()
    }

    /// A profile by its name, or by the path of a TOML file.
    ///
    /// # Errors
    /// No such profile; a file that cannot be read, or with a field that makes no sense.
    pub fn find(name: &str) -> Result<Profile> {
        if let Some(profile) = Profile::built_in().into_iter().find(|p| p.name == name) {
            return Ok(profile);
        }
        if !name.contains(['/', '.']) {
            let names: Vec<String> = Profile::built_in().into_iter().map(|p| p.name).collect();
            let message =
                format!("no profile '{name}': use one of {}, or the path of a TOML file", names.join(", "));
            return Err(FlashError::Usage(message));
        }
        let text = std::fs::read_to_string(Path::new(name))
            .map_err(|e| FlashError::Usage(format!("cannot read the profile {name}: {e}")))?;
        Profile::parse(&text).map_err(|e| FlashError::Usage(format!("{name}: {e}")))
    }

    /// Reads and checks a profile.
    ///
    /// # Errors
    /// The field and what is wrong with it.
    pub fn parse(text: &str) -> std::result::Result<Profile, String> {
        let profile: Profile = toml::from_str(text).map_err(|e| one_line(text, &e))?;
        profile.validate()?;
        Ok(profile)
    }

    fn validate(&self) -> std::result::Result<(), String> {
        let g = &self.geometry;
        let name_fits = !self.name.is_empty() && !self.name.contains(|c: char| c.is_whitespace() || c == '&');
        check("name", name_fits, &self.name, "a word without spaces and &")?;
        let page = [4096, 8192, 16384].contains(&g.page_bytes);
        check("geometry.page_bytes", page, g.page_bytes, "4096, 8192 or 16384")?;
        let least = medfs_ftl::spare_bytes_for(2 * g.page_bytes as usize / 4096) as u32;
        let spare = (least..=4096).contains(&g.spare_bytes);
        check("geometry.spare_bytes", spare, g.spare_bytes, &format!("{least} to 4096 for such pages"))?;
        let per_block = (8..=16384).contains(&g.pages_per_block);
        check("geometry.pages_per_block", per_block, g.pages_per_block, "8 to 16384")?;
        check("geometry.channels", (1..=64).contains(&g.channels), g.channels, "1 to 64")?;
        let dies = (1..=256).contains(&g.dies) && g.dies.is_multiple_of(g.channels.max(1));
        check("geometry.dies", dies, g.dies, "1 to 256, as many on each channel")?;
        check("geometry.planes", (1..=8).contains(&g.planes), g.planes, "1 to 8")?;
        let t = &self.timing;
        let c = &self.controller;
        for (field, value) in [
            ("timing.read_us", t.read_us),
            ("timing.program_us", t.program_us),
            ("timing.transfer_us", t.transfer_us),
            ("timing.erase_us", t.erase_us),
            ("controller.compress_us", c.compress_us),
            ("controller.expand_us", c.expand_us),
            ("controller.predict_us", c.predict_us),
        ] {
            check(field, value > 0.0 && value <= 1e6, value, "more than 0, at most a second")?;
        }
        let clock = c.clock_mhz > 0.0 && c.clock_mhz <= 1e5;
        check("controller.clock_mhz", clock, c.clock_mhz, "more than 0, at most 100000")?;
        check("controller.buffer_slots", (2..=256).contains(&c.buffer_slots), c.buffer_slots, "2 to 256")?;
        let e = &self.endurance;
        check("endurance.pe_cycles", (1..=10_000_000).contains(&e.pe_cycles), e.pe_cycles, "1 to 10000000")?;
        let bad = e.factory_bad_ppm <= 100_000;
        check("endurance.factory_bad_ppm", bad, e.factory_bad_ppm, "0 to 100000")?;
        let s = &self.space;
        check("space.capacity", parse_size(&s.capacity).is_some(), &s.capacity, "a size such as 16G")?;
        let spare = (0.0..=400.0).contains(&s.over_provision_percent);
        check("space.over_provision_percent", spare, s.over_provision_percent, "0 to 400")
    }

    /// Bytes the host sees by default.
    pub fn capacity(&self) -> u64 {
        parse_size(&self.space.capacity).unwrap_or_default()
    }

    /// The costs in the threshold of Eq. 2, in nanoseconds: programming with its transfer, and compressing.
    pub fn costs(&self) -> Costs {
        let pages = f64::from(self.geometry.page_bytes) / 4096.0;
        let write = (self.timing.program_us + self.timing.transfer_us) / pages;
        Costs { write: nanos(write), compress: nanos(self.controller.compress_us) }
    }

    /// The same device with another controller clock: its times change in proportion (LDC, section 6.2.5).
    pub fn at_clock(&self, clock_mhz: f64) -> Profile {
        let factor = self.controller.clock_mhz / clock_mhz;
        let c = self.controller;
        let controller = Controller {
            clock_mhz,
            compress_us: c.compress_us * factor,
            expand_us: c.expand_us * factor,
            predict_us: c.predict_us * factor,
            ..c
        };
        Profile { controller, ..self.clone() }
    }

    /// The geometry with so many blocks.
    pub fn geometry(&self, blocks: u32) -> Geometry {
        let g = &self.geometry;
        Geometry {
            page_bytes: g.page_bytes,
            spare_bytes: g.spare_bytes,
            pages_per_block: g.pages_per_block,
            blocks,
            units: g.dies * g.planes,
        }
    }
}

/// Microseconds as nanoseconds.
pub(crate) fn nanos(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

fn check(
    field: &str,
    fine: bool,
    value: impl std::fmt::Display,
    wanted: &str,
) -> std::result::Result<(), String> {
    if fine { Ok(()) } else { Err(format!("{field} is {value}: it must be {wanted}")) }
}

/// A TOML error in one line: the line, the field where there is one, and the message.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let number = before.matches('\n').count();
    let field = text.lines().nth(number).and_then(|line| Some(line.split_once('=')?.0.trim()));
    let field = field.filter(|name| !error.message().contains(*name)).map(|name| format!("{name}: "));
    let message = error.message().lines().map(str::trim).collect::<Vec<_>>().join("; ");
    format!("line {}: {}{message}", number + 1, field.unwrap_or_default())
}

/// Bytes of `512M`, `16G`, `1T` or a plain number.
fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let unit = |name: char| "KMGT".find(name).map(|at| 1u64 << (10 * (at + 1)));
    let last = text.chars().last()?.to_ascii_uppercase();
    let (digits, factor) = match unit(last) {
        Some(factor) => (&text[..text.len() - 1], factor),
        None => (text, 1),
    };
    digits.trim().parse::<u64>().ok()?.checked_mul(factor).filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_come_along_make_sense() {
        let all: Vec<Profile> = BUILT_IN.iter().map(|text| Profile::parse(text).unwrap()).collect();
        assert_eq!(all.iter().map(|p| &p.name[..]).collect::<Vec<_>>(), ["emmc", "ufs31", "sdcard", "qlc"]);
        assert_eq!(all[0].capacity(), 16 << 30);
        assert_eq!(all[0].costs(), Costs { write: 300_000, compress: 136_000 });
    }

    #[test]
    fn the_table_of_the_paper() {
        let emmc = Profile::find("emmc").unwrap();
        let (g, t) = (emmc.geometry, emmc.timing);
        assert_eq!((g.page_bytes, g.pages_per_block), (4096, 64));
        assert_eq!((t.erase_us, t.read_us, t.program_us, t.transfer_us), (1500.0, 25.0, 200.0, 100.0));
        assert_eq!(emmc.space.over_provision_percent, 1.0);
        assert_eq!(emmc.at_clock(140.0).controller.compress_us.round(), 194.0);
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (from, to, field) in [
            ("page_bytes = 4096", "page_bytes = 5000", "geometry.page_bytes"),
            ("spare_bytes = 128", "spare_bytes = 8", "geometry.spare_bytes"),
            ("pages_per_block = 64", "pages_per_block = 0", "geometry.pages_per_block"),
            ("channels = 1", "channels = 0", "geometry.channels"),
            ("dies = 1", "dies = 0", "geometry.dies"),
            ("read_us = 25.0", "read_us = -1.0", "timing.read_us"),
            ("erase_us = 1500.0", "erase_us = nan", "timing.erase_us"),
            ("buffer_slots = 2", "buffer_slots = 1", "controller.buffer_slots"),
            ("pe_cycles = 3000", "pe_cycles = 0", "endurance.pe_cycles"),
            ("capacity = \"16G\"", "capacity = \"big\"", "space.capacity"),
            ("over_provision_percent = 1.0", "over_provision_percent = -2.0", "over_provision_percent"),
            ("read_us = 25.0", "reed_us = 25.0", "reed_us"),
            ("read_us = 25.0", "", "read_us"),
            ("read_us = 25.0", "read_us = \"fast\"", "line 14: read_us: invalid type"),
            ("read_us = 25.0", "read_us 25.0", "line 14: "),
            ("name = \"emmc\"", "name = \"\"", "name"),
        ] {
            assert!(BUILT_IN[0].contains(from), "{from}");
            let error = Profile::parse(&BUILT_IN[0].replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(field) && !error.contains('\n'), "{field}: {error}");
        }
        assert!(Profile::find("emmd").unwrap_err().to_string().contains("emmc, ufs31"));
        assert!(Profile::find("./none.toml").unwrap_err().to_string().contains("./none.toml"));
    }
}
