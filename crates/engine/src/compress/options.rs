//! Mount options about compression: `compress=`, `compress_log_size=`, `compress_extension=`, `nocompress_extension=`,
//! `compress_chksum`, `compress_mode=`. Names and meanings are the kernel's; `compress=` is its `compress_algorithm=`, and takes `fpc`.

use crate::error::{Error, Result};
use medfs_format::compress::{Algorithm, Compression, LOG_CLUSTER_SIZES};
use medfs_format::superblock::EXTENSION_LEN;

/// Most extensions in a list.
const MOST_EXTENSIONS: usize = 16;
/// Highest level of zstd.
const ZSTD_LEVEL_MAX: u8 = 22;

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
    /// Pages of files that are written often and read seldom are compressed alone, by this algorithm (`fpc`), on volumes of
    /// medfs's own kind; clusters are compressed as without it.
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

    /// Applies `name=value`; `false` where it is none of these.
    pub(crate) fn apply(&mut self, option: &str, name: &str, value: &str) -> Result<bool> {
        let lists = (&mut self.extensions, &mut self.no_extensions);
        match name {
            "compress" | "compress_algorithm" => match fpc(option, value)? {
                Some(algorithm) => self.fpc = Some(algorithm),
                None => {
                    (self.algorithm, self.level) = algorithm(option, value)?;
                    self.fpc = None;
                }
            },
            "compress_log_size" => self.log_cluster_size = log_size(option, value)?,
            "compress_mode" => {
                self.mode = match value {
                    "fs" => CompressMode::Fs,
                    "user" => CompressMode::User,
                    _ => return Err(wrong(option, "compress_mode=fs|user")),
                }
            }
            "compress_extension" => add_extension(option, value, lists.0, lists.1)?,
            "nocompress_extension" if value == "*" => {
                return Err(wrong(option, "an extension other than '*', which would be all files"));
            }
            "nocompress_extension" => add_extension(option, value, lists.1, lists.0)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn wrong(option: &str, accepted: &str) -> Error {
    Error::Invalid(format!("wrong mount option '{option}'; accepted is {accepted}"))
}

/// The algorithm of `fpc` or `fpc:NAME`; `None` of other values.
fn fpc(option: &str, value: &str) -> Result<Option<Algorithm>> {
    let name = match value.split_once(':') {
        None if value == "fpc" => return Ok(Some(Algorithm::Lzo)),
        Some(("fpc", name)) => name,
        _ => return Ok(None),
    };
    match Algorithm::ALL.into_iter().find(|a| a.name() == name) {
        Some(Algorithm::LzoRle) | None => Err(wrong(option, "compress=fpc, fpc:lzo, fpc:lz4 or fpc:zstd")),
        found => Ok(found),
    }
}

fn algorithm(option: &str, value: &str) -> Result<(Option<Algorithm>, u8)> {
    if value == "off" {
        return Ok((None, 0));
    }
    let (name, level) = value.split_once(':').map_or((value, None), |(name, level)| (name, Some(level)));
    let found = Algorithm::ALL.into_iter().find(|a| a.name() == name);
    let level = level.map(|text| text.parse().unwrap_or(0));
    match (found, level) {
        (Some(algorithm), None) => Ok((Some(algorithm), 0)),
        (Some(Algorithm::Zstd), Some(level @ 1..=ZSTD_LEVEL_MAX)) => Ok((Some(Algorithm::Zstd), level)),
        _ => Err(wrong(
            option,
            "compress=off|lzo|lzo-rle|lz4|zstd|zstd:LEVEL|fpc|fpc:NAME with a level from 1 to 22",
        )),
    }
}

fn log_size(option: &str, value: &str) -> Result<u8> {
    value
        .parse()
        .ok()
        .filter(|size| LOG_CLUSTER_SIZES.contains(size))
        .ok_or_else(|| wrong(option, "compress_log_size=N with N from 2 to 8, for clusters of 2^N pages"))
}

fn add_extension(option: &str, value: &str, list: &mut Vec<String>, other: &[String]) -> Result<()> {
    let is = |e: &String| e.eq_ignore_ascii_case(value);
    if other.iter().any(is) {
        return Err(wrong(option, "each extension in one of the two lists only"));
    }
    if list.iter().any(is) {
        return Ok(());
    }
    if value.is_empty() || value.len() >= EXTENSION_LEN || list.len() >= MOST_EXTENSIONS {
        return Err(wrong(option, "an extension of 1 to 7 letters, in a list of at most 16"));
    }
    list.push(value.to_owned());
    Ok(())
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
            assert!(error.contains("accepted is delta=off together with compress=fpc"), "{error}");
            assert_eq!(all, MountOptions::default(), "{options}");
        }
    }

    #[test]
    fn wrong_ones_are_refused() {
        for options in [
            "compress=gzip",
            "compress=lz4:9",
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
            assert!(error.contains("accepted is"), "{error}");
            assert_eq!(all, MountOptions::default(), "{options}");
        }
    }
}
