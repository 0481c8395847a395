//! The columns of a replay: every combination of the values of all axes, then the peers.
//!
//! A value that is not known is told in one sentence and left out; the others stay.

use medfs::MountOptions;
use std::fmt;

/// Where a column runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum System {
    /// A volume of ours with these options, on this device.
    Medfs {
        /// Axis and value.
        options: Vec<(String, String)>,
        /// As `device=` names it.
        device: String,
    },
    /// Another file system, as `--peers` names it.
    Peer(String),
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            System::Peer(name) => f.write_str(name),
            System::Medfs { options, device } => {
                for (axis, value) in options {
                    write!(f, "{axis}={value} ")?;
                }
                write!(f, "device={device}")
            }
        }
    }
}

impl System {
    /// A name for its file.
    pub(crate) fn file_name(&self) -> String {
        let text = self.to_string().replace(' ', "_");
        let safe = |c: char| if c.is_ascii_alphanumeric() || "=._-".contains(c) { c } else { '-' };
        format!("{}.json", text.chars().map(safe).collect::<String>())
    }
}

/// Columns, and what was wrong with the others.
#[derive(Debug, Default)]
pub(crate) struct Matrix {
    pub(crate) columns: Vec<System>,
    pub(crate) wrong: Vec<String>,
}

/// What is wrong with a value of an axis.
enum Wrong {
    /// There is no such axis.
    Axis(String),
    Value(String),
}

impl Wrong {
    fn text(self) -> String {
        let (Wrong::Axis(text) | Wrong::Value(text)) = self;
        text
    }
}

/// The option that an axis with a value stands for; what is wrong with it otherwise.
fn option(axis: &str, value: &str) -> Result<String, Wrong> {
    let plain = format!("{axis}={value}");
    let flag = match value {
        "on" => Some(axis.to_owned()),
        "off" => Some(axis.strip_prefix("no").map_or_else(|| format!("no{axis}"), str::to_owned)),
        _ => None,
    };
    let known = |option: &str| MountOptions::default().apply(option);
    if let Some(flag) = flag.filter(|flag| known(flag).unwrap_or(false)) {
        return Ok(flag);
    }
    match known(&plain) {
        Ok(true) => Ok(plain),
        Ok(false) => Err(Wrong::Axis(format!(
            "{plain}: no such axis: expected device, or an option of 'medfs mount' such as delta, compress or fsync_mode"
        ))),
        Err(error) => Err(Wrong::Value(error.to_string())),
    }
}

/// The mount options of a column.
pub(crate) fn mount_options(options: &[(String, String)]) -> Result<MountOptions, String> {
    let mut parsed = MountOptions::default();
    for (axis, value) in options {
        parsed.parse(&option(axis, value).map_err(Wrong::text)?).map_err(|e| e.to_string())?;
    }
    Ok(parsed)
}

impl Matrix {
    /// Reads `--matrix` and `--peers`. Without either there is one column, the defaults in memory.
    pub(crate) fn parse(
        axes: &[String],
        peers: &[String],
        known_peer: impl Fn(&str) -> Result<(), String>,
    ) -> Matrix {
        let mut matrix = Matrix::default();
        let mut devices = Vec::new();
        let mut combinations: Vec<Vec<(String, String)>> = vec![Vec::new()];
        let asked = !axes.is_empty() || peers.is_empty();
        for text in axes.iter().flat_map(|axes| axes.split_whitespace()) {
            let Some((axis, values)) =
                text.split_once('=').filter(|(axis, values)| !axis.is_empty() && !values.is_empty())
            else {
                matrix
                    .wrong
                    .push(format!("'{text}' is not an axis: expected NAME=VALUE,... such as delta=off,full"));
                continue;
            };
            let mut good: Vec<String> = Vec::new();
            let mut known = true;
            for value in values.split(',') {
                let checked = match axis {
                    "device" => super::device::check(value).map_err(Wrong::Value),
                    _ => option(axis, value).map(drop),
                };
                match checked {
                    Ok(()) if good.iter().any(|v| v == value) => {}
                    Ok(()) => good.push(value.to_owned()),
                    Err(wrong) => {
                        known &= matches!(wrong, Wrong::Value(_));
                        matrix.wrong.push(wrong.text());
                    }
                }
            }
            if !known {
                // As if it had not been named: the columns of the others run.
                continue;
            }
            if axis == "device" {
                devices.extend(good);
                // Named, but none is left: there is nothing to run on.
                if devices.is_empty() {
                    combinations.clear();
                }
                continue;
            }
            combinations = combinations
                .iter()
                .flat_map(|done| {
                    good.iter().map(|value| [&done[..], &[(axis.to_owned(), value.clone())]].concat())
                })
                .collect();
        }
        if devices.is_empty() {
            devices.push("memory".to_owned());
        }
        combinations.retain(|options| match mount_options(options) {
            Ok(_) => true,
            Err(wrong) => {
                let names: Vec<_> = options.iter().map(|(axis, value)| format!("{axis}={value}")).collect();
                matrix.wrong.push(format!("{} cannot be together: {wrong}", names.join(" ")));
                false
            }
        });
        if asked {
            for device in &devices {
                for options in &combinations {
                    matrix.columns.push(System::Medfs { options: options.clone(), device: device.clone() });
                }
            }
        }
        for peer in peers {
            match known_peer(peer) {
                Ok(()) => matrix.columns.push(System::Peer(peer.clone())),
                Err(wrong) => matrix.wrong.push(wrong),
            }
        }
        matrix
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(axes: &[&str], peers: &[&str]) -> Matrix {
        let own = |list: &[&str]| list.iter().map(|&s| s.to_owned()).collect::<Vec<_>>();
        Matrix::parse(&own(axes), &own(peers), super::super::peer::check)
    }

    fn names(matrix: &Matrix) -> Vec<String> {
        matrix.columns.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_combination_is_a_column() {
        let matrix = parse(&["delta=off,full compress=off,lz4", "device=memory,file"], &["ext4"]);
        assert!(matrix.wrong.is_empty(), "{:?}", matrix.wrong);
        let names = names(&matrix);
        assert_eq!(names.len(), 9);
        assert_eq!(names[0], "delta=off compress=off device=memory");
        assert_eq!(names[7], "delta=full compress=lz4 device=file");
        assert_eq!(names[8], "ext4");
        assert_eq!(matrix.columns[0].file_name(), "delta=off_compress=off_device=memory.json");
        assert_eq!(self::names(&parse(&[], &[])), ["device=memory"]);
        assert_eq!(self::names(&parse(&[], &["xfs"])), ["xfs"]);
    }

    #[test]
    fn what_is_not_known_is_named_and_the_others_run() {
        let matrix = parse(&["delta=off,sometimes", "device=memory,tape"], &["ext4", "zfs"]);
        assert_eq!(names(&matrix), ["delta=off device=memory", "ext4"]);
        assert_eq!(matrix.wrong.len(), 3);
        assert!(
            matrix.wrong[0].contains("sometimes") && matrix.wrong[0].contains("inline"),
            "{}",
            matrix.wrong[0]
        );
        assert!(
            matrix.wrong[1].contains("tape") && matrix.wrong[1].contains("memory"),
            "{}",
            matrix.wrong[1]
        );
        assert!(matrix.wrong[2].contains("zfs") && matrix.wrong[2].contains("btrfs"), "{}", matrix.wrong[2]);
        let matrix = parse(&["colour=red", "delta", "device=tape"], &[]);
        assert!(matrix.columns.is_empty() && matrix.wrong.len() == 3, "{matrix:?}");
        let matrix = parse(&["delta=off colour=red"], &[]);
        assert_eq!(names(&matrix), ["delta=off device=memory"]);
        assert!(matrix.wrong.len() == 1 && matrix.wrong[0].starts_with("colour=red: no such axis"));
    }

    #[test]
    fn combinations_that_exclude_each_other_are_told_once() {
        let matrix = parse(&["delta=off,inline compress=off,fpc device=memory,file"], &[]);
        assert_eq!(matrix.columns.len(), 6, "{:?}", names(&matrix));
        assert_eq!(matrix.wrong.len(), 1, "{:?}", matrix.wrong);
        assert!(matrix.wrong[0].starts_with("delta=inline compress=fpc "), "{}", matrix.wrong[0]);
    }

    #[test]
    fn words_are_axes_of_on_and_off() {
        let matrix = parse(&["inline_data=on,off noatime=on"], &[]);
        assert!(matrix.wrong.is_empty(), "{:?}", matrix.wrong);
        let options = |i: usize| match &matrix.columns[i] {
            System::Medfs { options, .. } => mount_options(options).unwrap(),
            System::Peer(_) => unreachable!(),
        };
        assert!(options(0).inline_data && !options(1).inline_data);
        assert_eq!(options(0).atime, medfs::Atime::Noatime);
    }
}
