//! What may be chosen when a volume is made.

use crate::error::{Error, Result};
use medfs_format::superblock::{DELTA_FEATURES, Feature};

/// Choices for a new volume. Nothing is taken from clock or chance: the caller passes `uuid` and `timestamp`.
#[derive(Debug, Clone, PartialEq)]
pub struct MkfsOptions {
    /// Volume label.
    pub label: String,
    /// Feature bits; see [`default_features`].
    pub features: Feature,
    /// Make a volume that may hold deltas, with medfs's own magic, instead of a plain F2FS one.
    pub deltas: bool,
    /// Segments of 2 MiB in a section, the unit of cleaning.
    pub segs_per_sec: u32,
    /// Sections in a zone; the six logs start in different zones.
    pub secs_per_zone: u32,
    /// Over-provisioning in per cent; `None` chooses what leaves users most space.
    pub overprovision: Option<f64>,
    /// UUID of the volume; with `inode_checksum` it also seeds the checksums.
    pub uuid: [u8; 16],
    /// Times of the first inodes, seconds since 1970.
    pub timestamp: i64,
    /// Version of the first checkpoint; `None` derives it from `uuid` and `timestamp`.
    pub checkpoint_version: Option<u64>,
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// Discard the whole device first, where it can.
    pub discard: bool,
    /// The caller knows that the whole device reads as zeros, as a new sparse file does: nothing is cleared.
    pub zeroed: bool,
    /// First sector (512 bytes) of the partition on its disk, to align zones to the disk.
    pub start_sector: u64,
    /// What the superblock names as its maker.
    pub version: String,
}

impl MkfsOptions {
    /// Defaults, for a plain volume with this UUID and time.
    pub fn new(uuid: [u8; 16], timestamp: i64) -> MkfsOptions {
        MkfsOptions {
            label: String::new(),
            features: default_features(),
            deltas: false,
            segs_per_sec: 1,
            secs_per_zone: 1,
            overprovision: None,
            uuid,
            timestamp,
            checkpoint_version: None,
            root_owner: (0, 0),
            discard: true,
            zeroed: false,
            start_sector: 0,
            version: concat!("medfs ", env!("CARGO_PKG_VERSION")).to_string(),
        }
    }

    /// Version of the first checkpoint: odd, as `mkfs.f2fs` chooses it, and different from volume to volume.
    pub fn first_checkpoint(&self) -> u64 {
        self.checkpoint_version.unwrap_or_else(|| {
            let crc =
                medfs_format::crc::chain(medfs_format::crc::f2fs(&self.uuid), &self.timestamp.to_le_bytes());
            u64::from(crc & 0x7FFF_FFFF) | 1
        })
    }

    /// Checks the choices that do not depend on the device.
    pub fn validate(&self) -> Result<()> {
        let f = self.features;
        let needs_extra = [
            (Feature::PROJECT_QUOTA, "project_quota"),
            (Feature::INODE_CHECKSUM, "inode_checksum"),
            (Feature::FLEXIBLE_INLINE_XATTR, "flexible_inline_xattr"),
            (Feature::INODE_CRTIME, "inode_crtime"),
            (Feature::COMPRESSION, "compression"),
        ];
        for (feature, name) in needs_extra {
            if f.contains(feature) && !f.contains(Feature::EXTRA_ATTR) {
                return Err(Error::FeatureNeeds { feature: name, needs: "extra_attr" });
            }
        }
        let missing = DELTA_FEATURES - f;
        if self.deltas && !missing.is_empty() {
            return Err(Error::DeltasNeed { missing: feature_names(missing).join(",") });
        }
        let range = |what, min: &str, max: &str, value: String| Error::Range {
            what,
            min: min.into(),
            max: max.into(),
            value,
        };
        if !(1..=4096).contains(&self.segs_per_sec) {
            return Err(range("segments per section", "1", "4096", self.segs_per_sec.to_string()));
        }
        if !(1..=4096).contains(&self.secs_per_zone) {
            return Err(range("sections per zone", "1", "4096", self.secs_per_zone.to_string()));
        }
        if let Some(percent) = self.overprovision
            && !(0.01..=95.0).contains(&percent)
        {
            return Err(range("over-provisioning in per cent", "0.01", "95", percent.to_string()));
        }
        Ok(())
    }
}

/// What a volume gets where nothing is asked: checksums over superblock and inodes, per-inode xattr space and
/// creation times. (`mkfs.f2fs` sets none of them by default, Android sets these.)
pub fn default_features() -> Feature {
    Feature::EXTRA_ATTR
        | Feature::FLEXIBLE_INLINE_XATTR
        | Feature::INODE_CHECKSUM
        | Feature::SB_CHECKSUM
        | Feature::INODE_CRTIME
        | Feature::LOST_FOUND
}

const NAMES: [(&str, Feature); 9] = [
    ("extra_attr", Feature::EXTRA_ATTR),
    ("project_quota", Feature::PROJECT_QUOTA),
    ("inode_checksum", Feature::INODE_CHECKSUM),
    ("flexible_inline_xattr", Feature::FLEXIBLE_INLINE_XATTR),
    ("quota", Feature::QUOTA),
    ("inode_crtime", Feature::INODE_CRTIME),
    ("lost_found", Feature::LOST_FOUND),
    ("sb_checksum", Feature::SB_CHECKSUM),
    ("compression", Feature::COMPRESSION),
];

/// Feature bits from a list such as `extra_attr,quota`. `none` is no feature, `default` the defaults,
/// and a name after `^` takes the feature away.
pub fn parse_features(list: &str) -> Result<Feature> {
    let mut features = Feature::empty();
    for name in list.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        if name == "none" {
            continue;
        }
        if name == "default" {
            features |= default_features();
            continue;
        }
        let (bare, off) = name.strip_prefix('^').map_or((name, false), |n| (n, true));
        let Some((_, bit)) = NAMES.iter().find(|(n, _)| *n == bare) else {
            let known: Vec<&str> = NAMES.iter().map(|(n, _)| *n).chain(["default", "none"]).collect();
            return Err(Error::UnknownFeature { name: name.into(), known: known.join(", ") });
        };
        features.set(*bit, !off);
    }
    // As mkfs.f2fs does: project ids are of use with the project quota file.
    features.set(Feature::QUOTA, features.intersects(Feature::QUOTA | Feature::PROJECT_QUOTA));
    Ok(features)
}

/// Names of the features that are set.
pub fn feature_names(features: Feature) -> Vec<String> {
    NAMES.iter().filter(|(_, bit)| features.contains(*bit)).map(|(name, _)| name.to_string()).collect()
}
