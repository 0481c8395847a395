//! When pages are overwritten where they lie: the kernel's in-place update policies, alone and together.
//!
//! Kernel counterpart: `ipu_policy`, `min_ipu_util` and `min_fsync_blocks` in sysfs,
//! `check_inplace_update_policy` in `segment.h`.

use bitflags::bitflags;
use std::fmt;
use std::str::FromStr;

/// The kernel's `min_fsync_blocks`.
pub const MIN_FSYNC_BLOCKS: u32 = 8;
/// The kernel's `min_ipu_util`, in percent.
pub const MIN_IPU_UTIL: u32 = 70;

bitflags! {
    /// When a page of a file is overwritten where it lies: where one of these policies says so. None: never.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct InPlace: u8 {
        /// Whenever it is legal.
        const FORCE = 0x01;
        /// While free sections are so few that logs fill holes.
        const SSR = 0x02;
        /// While more of the volume is in use than `min_ipu_util` says.
        const UTIL = 0x04;
        /// Where both is so.
        const SSR_UTIL = 0x08;
        /// In an fdatasync, and in an fsync of no more dirty pages than `min_fsync_blocks` says.
        const FSYNC = 0x10;
        /// In writes that no caller waits for.
        const ASYNC = 0x20;
        /// Of the kernel's page cache: changes nothing here.
        const NOCACHE = 0x40;
        /// A file that is being moved is written elsewhere: so it is here in any case.
        const HONOR_OPU_WRITE = 0x80;
    }
}

impl InPlace {
    /// The policies that the kernel's `ipu_policy` names by the sum of their bits.
    pub fn of_kernel(bits: u8) -> InPlace {
        InPlace::from_bits_retain(bits)
    }

    /// Whether a policy depends on how full the volume is.
    pub fn needs_fill(self) -> bool {
        self.intersects(InPlace::SSR | InPlace::UTIL | InPlace::SSR_UTIL)
    }

    /// Whether one of the policies has a page overwritten that is written in this way.
    pub fn applies(self, write: Occasion) -> bool {
        let Occasion { fsync, waited_for, fills_holes, is_full } = write;
        self.contains(InPlace::FORCE)
            || (self.contains(InPlace::SSR) && fills_holes)
            || (self.contains(InPlace::UTIL) && is_full)
            || (self.contains(InPlace::SSR_UTIL) && fills_holes && is_full)
            || (self.contains(InPlace::FSYNC) && fsync)
            || (self.contains(InPlace::ASYNC) && !waited_for)
    }
}

/// What the policies look at.
#[derive(Debug, Clone, Copy, Default)]
pub struct Occasion {
    /// An fdatasync, or an fsync of few dirty pages.
    pub fsync: bool,
    /// A caller waits for the write.
    pub waited_for: bool,
    /// Free sections are so few that logs fill holes.
    pub fills_holes: bool,
    /// More of the volume is in use than `min_ipu_util` says.
    pub is_full: bool,
}

const NAMES: [(&str, InPlace); 8] = [
    ("force", InPlace::FORCE),
    ("ssr", InPlace::SSR),
    ("util", InPlace::UTIL),
    ("ssr_util", InPlace::SSR_UTIL),
    ("fsync", InPlace::FSYNC),
    ("async", InPlace::ASYNC),
    ("nocache", InPlace::NOCACHE),
    ("honor_opu_write", InPlace::HONOR_OPU_WRITE),
];

impl FromStr for InPlace {
    type Err = ();

    /// `off`, or the names of policies with `+` between them, each once.
    fn from_str(text: &str) -> Result<InPlace, ()> {
        if text == "off" {
            return Ok(InPlace::empty());
        }
        text.split('+').try_fold(InPlace::empty(), |all, name| {
            let found = NAMES.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy);
            found.filter(|policy| !all.contains(*policy)).map(|policy| all | policy).ok_or(())
        })
    }
}

impl fmt::Display for InPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("off");
        }
        let names = NAMES.iter().filter(|(_, policy)| self.contains(*policy));
        f.write_str(&names.map(|(name, _)| *name).collect::<Vec<_>>().join("+"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sum_of_bits_is_written_and_read_back() {
        for bits in 0..=u8::MAX {
            let policies = InPlace::of_kernel(bits);
            assert_eq!(policies.to_string().parse(), Ok(policies), "{bits:#x}");
        }
        for wrong in ["", "+", "force+", "ssr+ssr", "off+force", "FORCE", "7"] {
            assert_eq!(wrong.parse::<InPlace>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn each_policy_alone_has_its_occasion() {
        let occasion =
            |fsync, waited_for, fills_holes, is_full| Occasion { fsync, waited_for, fills_holes, is_full };
        let all: Vec<Occasion> =
            (0..16).map(|n| occasion(n & 1 != 0, n & 2 != 0, n & 4 != 0, n & 8 != 0)).collect();
        let expected: [fn(&Occasion) -> bool; 8] = [
            |_| true,
            |o| o.fills_holes,
            |o| o.is_full,
            |o| o.fills_holes && o.is_full,
            |o| o.fsync,
            |o| !o.waited_for,
            |_| false,
            |_| false,
        ];
        for o in &all {
            for (bit, expected) in expected.iter().enumerate() {
                assert_eq!(InPlace::of_kernel(1 << bit).applies(*o), expected(o), "bit {bit}: {o:?}");
            }
            // A sum applies where one of its policies does.
            for bits in 0..=u8::MAX {
                let one = (0..8).any(|bit| bits & (1 << bit) != 0 && expected[bit](o));
                assert_eq!(InPlace::of_kernel(bits).applies(*o), one, "{bits:#x}: {o:?}");
            }
        }
    }
}
