//! Mount options about compression: `compress=`, `compress_log_size=`, `compress_extension=`,
//! `nocompress_extension=`, `compress_chksum`, `compress_mode=`. Names and meanings are the kernel's;
//! `compress=` is its `compress_algorithm=`, and takes `fpc`.

use super::{Form, MountOption, MountOptions};
use medfs_format::compress::{Algorithm, Compression, LOG_CLUSTER_SIZES};
use medfs_format::superblock::EXTENSION_LEN;

/// Most extensions in a list.
const MOST_EXTENSIONS: usize = 16;
/// Highest level of zstd.
const ZSTD_LEVEL_MAX: u8 = 22;

/// Highest level of LZ4 that the kernel takes.
const LZ4_LEVEL_MAX: u8 = 12;

/// When files that are to be compressed are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum CompressMode {
    /// As they are written.
    #[default]
    Fs,
    /// When a user asks for it.
    User,
}

/// How files are compressed, and which new ones are. Only on volumes with the feature `compression`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressOptions {
    /// Algorithm of files that become compressed; `None` (`off`): no cluster is compressed, whatever the files say.
    pub algorithm: Option<Algorithm>,
    /// Its level, 0 for its default.
    pub level: u8,
    /// Pages of files that are written often and read seldom are compressed alone, by this algorithm (`fpc`),
    /// on volumes of medfs's own kind; clusters are compressed as without it.
    pub fpc: Option<Algorithm>,
    /// Log2 of the pages of a cluster.
    pub log_cluster_size: u8,
    /// Whether compressed bytes get a checksum.
    pub checksum: bool,
    /// When files are compressed.
    pub mode: CompressMode,
    /// New files with these extensions are compressed; `*` is all.
    pub extensions: Vec<String>,
    /// New files with these are not.
    pub no_extensions: Vec<String>,
}

impl Default for CompressOptions {
    fn default() -> CompressOptions {
        CompressOptions {
            algorithm: Some(Algorithm::Lz4),
            level: 0,
            fpc: None,
            log_cluster_size: *LOG_CLUSTER_SIZES.start(),
            checksum: false,
            mode: CompressMode::Fs,
            extensions: Vec::new(),
            no_extensions: Vec::new(),
        }
    }
}

impl CompressOptions {
    /// What a file that becomes compressed now says of itself.
    pub(crate) fn for_new_files(&self) -> Compression {
        Compression {
            algorithm: self.algorithm.unwrap_or(Algorithm::Lz4),
            log_cluster_size: self.log_cluster_size,
            checksum: self.checksum,
            level: self.level,
        }
    }

    /// Whether clusters are compressed as they are written.
    pub(crate) fn writes_compressed(&self) -> bool {
        self.algorithm.is_some() && self.mode == CompressMode::Fs
    }

    /// The level that files of an algorithm get.
    pub(crate) fn level_of(&self, algorithm: Algorithm) -> u8 {
        if self.algorithm == Some(algorithm) { self.level } else { 0 }
    }
}

const ALGORITHMS: &str = "off|lzo|lzo-rle|lz4|zstd[:LEVEL]|fpc[:lzo|lz4|zstd]";
const EXTENSIONS: &str = "1 to 7 letters, at most 16 times, and none in both lists";

/// The mount options of compression.
pub(crate) const OPTIONS: &[MountOption<MountOptions>] = &[
    MountOption {
        name: "compress",
        form: Form::Value(ALGORITHMS),
        accepts: "LEVEL, for zstd, is 1 to 22",
        default: "lz4",
        help: "Algorithm for compressed files, on volumes with the compression feature. off: no cluster is compressed. fpc: in place of deltas, changed pages of files that are written often and read seldom are compressed one by one. lz4 has one level: the kernel's lz4:3 to lz4:12 mean lz4.",
        set: |o, value| o.compress.set_algorithm(value).is_some(),
        show: |o| vec![o.compress.algorithm_in_force()],
    },
    MountOption {
        name: "compress_algorithm",
        form: Form::Value(ALGORITHMS),
        accepts: "LEVEL, for zstd, is 1 to 22",
        default: "",
        help: "The kernel's name for compress.",
        set: |o, value| o.compress.set_algorithm(value).is_some(),
        show: |_| Vec::new(),
    },
    MountOption {
        name: "compress_log_size",
        form: Form::Value("N"),
        accepts: "a number from 2 to 8",
        default: "2",
        help: "A cluster has 2^N pages.",
        set: |o, value| log_size(value).map(|n| o.compress.log_cluster_size = n).is_some(),
        show: |o| vec![o.compress.log_cluster_size.to_string()],
    },
    MountOption {
        name: "compress_chksum",
        form: Form::Switch,
        accepts: "",
        default: "off",
        help: "Store a checksum with each compressed cluster.",
        set: |o, value| {
            o.compress.checksum = value == "on";
            true
        },
        show: |o| vec![if o.compress.checksum { "on" } else { "off" }.into()],
    },
    MountOption {
        name: "compress_mode",
        form: Form::Value("fs|user"),
        accepts: "",
        default: "fs",
        help: "When files are compressed: on write-back, or when an application asks for it.",
        set: |o, value| mode(value).map(|mode| o.compress.mode = mode).is_some(),
        show: |o| vec![if o.compress.mode == CompressMode::Fs { "fs" } else { "user" }.into()],
    },
    MountOption {
        name: "compress_extension",
        form: Form::Value("EXTENSION"),
        accepts: EXTENSIONS,
        default: "",
        help: "New files with this extension are compressed; '*' stands for all. May be given several times.",
        set: |o, value| add_extension(value, &mut o.compress.extensions, &o.compress.no_extensions),
        show: |o| o.compress.extensions.clone(),
    },
    MountOption {
        name: "nocompress_extension",
        form: Form::Value("EXTENSION"),
        accepts: "1 to 7 letters, not '*', at most 16 times, and none in both lists",
        default: "",
        help: "New files with this extension are not compressed. May be given several times.",
        set: |o, value| {
            value != "*" && add_extension(value, &mut o.compress.no_extensions, &o.compress.extensions)
        },
        show: |o| o.compress.no_extensions.clone(),
    },
];

impl CompressOptions {
    fn set_algorithm(&mut self, value: &str) -> Option<()> {
        match value.split_once(':') {
            None if value == "fpc" => self.fpc = Some(Algorithm::Lzo),
            Some(("fpc", name)) => self.fpc = Some(named(name).filter(|a| *a != Algorithm::LzoRle)?),
            _ => {
                (self.algorithm, self.level) = algorithm(value)?;
                self.fpc = None;
            }
        }
        Some(())
    }

    /// The value of `compress=` that says the same.
    fn algorithm_in_force(&self) -> String {
        match (self.fpc, self.algorithm, self.level) {
            (Some(alone), ..) => format!("fpc:{}", alone.name()),
            (None, None, _) => "off".into(),
            (None, Some(algorithm), 0) => algorithm.name().into(),
            (None, Some(algorithm), level) => format!("{}:{level}", algorithm.name()),
        }
    }
}

fn named(name: &str) -> Option<Algorithm> {
    Algorithm::ALL.into_iter().find(|a| a.name() == name)
}

fn algorithm(value: &str) -> Option<(Option<Algorithm>, u8)> {
    if value == "off" {
        return Some((None, 0));
    }
    let (name, level) = value.split_once(':').map_or((value, None), |(name, level)| (name, Some(level)));
    match (named(name)?, level.map(|text| text.parse().unwrap_or(0))) {
        (algorithm, None) => Some((Some(algorithm), 0)),
        (Algorithm::Zstd, Some(level @ 1..=ZSTD_LEVEL_MAX)) => Some((Some(Algorithm::Zstd), level)),
        // The kernel's are those of LZ4HC, which makes the same format.
        (Algorithm::Lz4, Some(3..=LZ4_LEVEL_MAX)) => Some((Some(Algorithm::Lz4), 0)),
        _ => None,
    }
}

fn log_size(value: &str) -> Option<u8> {
    value.parse().ok().filter(|size| LOG_CLUSTER_SIZES.contains(size))
}

fn mode(value: &str) -> Option<CompressMode> {
    match value {
        "fs" => Some(CompressMode::Fs),
        "user" => Some(CompressMode::User),
        _ => None,
    }
}

/// Whether a list takes an extension, or has it.
fn add_extension(value: &str, list: &mut Vec<String>, other: &[String]) -> bool {
    let is = |e: &String| e.eq_ignore_ascii_case(value);
    let fits = !value.is_empty() && value.len() < EXTENSION_LEN;
    if !fits || other.iter().any(is) {
        return false;
    }
    if list.iter().any(is) {
        return true;
    }
    let has_room = list.len() < MOST_EXTENSIONS;
    if has_room {
        list.push(value.to_owned());
    }
    has_room
}

#[cfg(test)]
mod tests {
    use crate::options::MountOptions;
    use crate::{CompressMode, CompressOptions, DeltaMode};
    use medfs_format::compress::Algorithm;

    #[test]
    fn options_are_the_kernels() {
        let mut all = MountOptions::default();
        all.parse(
            "compress=zstd:7,compress_log_size=4,compress_extension=txt,compress_extension=TXT,compress_extension=so,\
             nocompress_extension=zip,compress_chksum,compress_mode=user",
        )
        .expect("parses");
        let expected = CompressOptions {
            algorithm: Some(Algorithm::Zstd),
            level: 7,
            fpc: None,
            log_cluster_size: 4,
            checksum: true,
            mode: CompressMode::User,
            extensions: vec!["txt".into(), "so".into()],
            no_extensions: vec!["zip".into()],
        };
        assert_eq!(all.compress, expected);
        all.parse("compress=off").expect("parses");
        assert_eq!((all.compress.algorithm, all.compress.level), (None, 0));
        all.parse("compress_algorithm=lzo-rle").expect("parses");
        assert_eq!(all.compress.algorithm, Some(Algorithm::LzoRle));
        assert_eq!(all.delta_mode(), DeltaMode::Full);
        for (value, algorithm) in [
            ("fpc", Algorithm::Lzo),
            ("fpc:lzo", Algorithm::Lzo),
            ("fpc:lz4", Algorithm::Lz4),
            ("fpc:zstd", Algorithm::Zstd),
        ] {
            all.parse(&format!("compress={value}")).expect("parses");
            let now = (all.compress.fpc, all.compress.algorithm, all.delta_mode());
            assert_eq!(now, (Some(algorithm), Some(Algorithm::LzoRle), DeltaMode::Off), "{value}");
        }
        all.parse("delta=off").expect("says the same");
        all.parse("compress=lz4").expect("the last one counts");
        assert_eq!(all.compress.fpc, None);
    }

    #[test]
    fn compressed_pages_and_deltas_exclude_each_other() {
        for options in
            ["compress=fpc,delta=full", "delta=inline,compress=fpc:lz4", "delta=compact,compress=fpc"]
        {
            let mut all = MountOptions::default();
            let error = all.parse(options).expect_err(options).to_string();
            assert!(error.contains("compress=fpc") && error.ends_with("expected delta=off"), "{error}");
            assert_eq!(all, MountOptions::default(), "{options}");
        }
    }

    #[test]
    fn wrong_ones_are_refused() {
        for options in [
            "compress=gzip",
            "compress=lz4:2",
            "compress=zstd:23",
            "compress=zstd:0",
            "compress=zstd:",
            "compress=fpc:",
            "compress=fpc:lzo-rle",
            "compress=fpc:zstd:3",
            "compress_log_size=1",
            "compress_log_size=9",
            "compress_mode=off",
            "compress_extension=12345678",
            "compress_extension=",
            "nocompress_extension=*",
            "compress_extension=a,nocompress_extension=A",
        ] {
            let mut all = MountOptions::default();
            let error = all.parse(options).expect_err(options).to_string();
            assert!(error.contains("expected"), "{error}");
            assert_eq!(all, MountOptions::default(), "{options}");
        }
    }
}
