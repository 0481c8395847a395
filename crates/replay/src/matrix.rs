//! The columns of a replay: every combination of the values of all axes, then the peers.
//!
//! A value that is not known is told in one sentence and left out; the others stay.

use medfs::MountOptions;
use std::fmt;

/// The file system of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum System {
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
    pub fn file_name(&self) -> String {
        let text = self.to_string().replace(' ', "_");
        let safe = |c: char| if c.is_ascii_alphanumeric() || "=._-".contains(c) { c } else { '-' };
        format!("{}.json", text.chars().map(safe).collect::<String>())
    }
}

/// Columns, and what was wrong with the others.
#[derive(Debug, Default)]
pub struct Matrix {
    /// The columns, in order.
    pub columns: Vec<System>,
    /// A sentence for each thing that is not known.
    pub wrong: Vec<String>,
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

/// The axes of `--matrix`, as far as they are known.
#[derive(Default)]
struct Axes {
    devices: Vec<String>,
    combinations: Vec<Vec<(String, String)>>,
    wrong: Vec<String>,
}

impl Axes {
    /// Reads axes, and drops combinations of options that exclude each other.
    fn read<'t>(texts: impl Iterator<Item = &'t str>) -> Axes {
        let mut axes = Axes { combinations: vec![Vec::new()], ..Axes::default() };
        for text in texts {
            match text.split_once('=').filter(|(axis, values)| !axis.is_empty() && !values.is_empty()) {
                Some((axis, values)) => axes.add(axis, values),
                None => axes
                    .wrong
                    .push(format!("'{text}' is not an axis: expected NAME=VALUE,... such as delta=off,full")),
            }
        }
        if axes.devices.is_empty() {
            axes.devices.push("memory".to_owned());
        }
        let wrong = &mut axes.wrong;
        axes.combinations.retain(|options| match mount_options(options) {
            Ok(_) => true,
            Err(why) => {
                let names: Vec<_> = options.iter().map(|(axis, value)| format!("{axis}={value}")).collect();
                wrong.push(format!("{} cannot be combined: {why}", names.join(" ")));
                false
            }
        });
        axes
    }

    /// Adds an axis. One that does not exist is left out: the columns of the others run.
    fn add(&mut self, axis: &str, values: &str) {
        let Some(good) = self.known(axis, values) else { return };
        if axis == "device" {
            self.devices.extend(good);
            // Named, but none is left: there is nothing to run on.
            if self.devices.is_empty() {
                self.combinations.clear();
            }
            return;
        }
        let with = |done: &Vec<(String, String)>, value: &String| {
            [&done[..], &[(axis.to_owned(), value.clone())]].concat()
        };
        let all = self.combinations.iter().flat_map(|done| good.iter().map(move |value| with(done, value)));
        self.combinations = all.collect();
    }

    /// The values of an axis that are known, each once; `None` where the axis is not.
    fn known(&mut self, axis: &str, values: &str) -> Option<Vec<String>> {
        let mut good: Vec<String> = Vec::new();
        let mut exists = true;
        for value in values.split(',') {
            let checked = match axis {
                "device" => crate::device::check(value).map_err(Wrong::Value),
                _ => option(axis, value).map(drop),
            };
            match checked {
                Ok(()) if good.iter().any(|v| v == value) => {}
                Ok(()) => good.push(value.to_owned()),
                Err(wrong) => {
                    exists &= matches!(wrong, Wrong::Value(_));
                    self.wrong.push(wrong.text());
                }
            }
        }
        exists.then_some(good)
    }
}

impl Matrix {
    /// Reads `--matrix` and `--peers`. Without either there is one column, the defaults in memory.
    pub fn parse(
        axes: &[String],
        peers: &[String],
        known_peer: impl Fn(&str) -> Result<(), String>,
    ) -> Matrix {
        let Axes { devices, combinations, wrong } =
            Axes::read(axes.iter().flat_map(|axes| axes.split_whitespace()));
        let mut matrix = Matrix { columns: Vec::new(), wrong };
        if !axes.is_empty() || peers.is_empty() {
            for device in &devices {
                let of =
                    |options: &Vec<_>| System::Medfs { options: options.clone(), device: device.clone() };
                matrix.columns.extend(combinations.iter().map(of));
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
        Matrix::parse(&own(axes), &own(peers), crate::peer::check)
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
