//! What a mount option is: one row makes the parser, the error, the help, the manual and what is in force.
//!
//! Purpose: [`MountOption`] is generic over what it sets, so that the engine, the mount and its front end
//! each keep a table of their own in the same form, and are told of together.

use std::fmt;

/// How an option is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `name`.
    Word,
    /// `name` or `noname`, or `name=on`, `name=off`.
    Switch,
    /// `name=VALUE`: the values, separated by `|`, or a word in capitals for them.
    Value(&'static str),
}

/// A mount option that sets something in a `T`.
pub struct MountOption<T: 'static> {
    /// Its name.
    pub name: &'static str,
    /// How it is written.
    pub form: Form,
    /// What the form's word in capitals stands for; empty where the form says it all.
    pub accepts: &'static str,
    /// What holds where it is not given; empty where that is another option.
    pub default: &'static str,
    /// What it does, in a sentence.
    pub help: &'static str,
    /// Sets a value (`on` and `off` of a switch, nothing of a word); `false` where it is none of this option's.
    pub set: fn(&mut T, &str) -> bool,
    /// The values that are in force: none, one, or those of a list.
    pub show: fn(&T) -> Vec<String>,
}

/// The text of a [`MountOption`], whatever it sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: &'static str,
    /// How it is written.
    pub form: Form,
    /// What its word in capitals stands for.
    pub accepts: &'static str,
    /// What holds where it is not given.
    pub default: &'static str,
    /// What it does.
    pub help: &'static str,
}

impl fmt::Display for Described {
    /// As it is written: `ro`, `[no]discard`, `cache=SIZE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Word => f.write_str(self.name),
            Form::Switch => write!(f, "[no]{}", self.name),
            Form::Value(values) => write!(f, "{}={values}", self.name),
        }
    }
}

impl Described {
    /// What it is called, and what takes it back.
    pub fn names(&self) -> impl Iterator<Item = String> + use<> {
        let negation = (self.form == Form::Switch).then(|| format!("no{}", self.name));
        [self.name.to_owned()].into_iter().chain(negation)
    }
}

impl<T> MountOption<T> {
    /// Its text.
    pub const fn described(&self) -> Described {
        let MountOption { name, form, accepts, default, help, .. } = *self;
        Described { name, form, accepts, default, help }
    }

    /// Sets what `option` says by the row of `table` that it names; `Ok(false)` where none does. The error is
    /// a sentence that names the option and what would be accepted.
    pub fn apply(table: &[MountOption<T>], target: &mut T, option: &str) -> Result<bool, String> {
        let (name, value) = split(option);
        if let Some(row) = table.iter().find(|row| row.name == name) {
            return row.give(target, value).map(|()| true);
        }
        let Some(positive) = name.strip_prefix("no") else { return Ok(false) };
        match (table.iter().find(|row| row.name == positive && row.form == Form::Switch), value) {
            (None, _) => Ok(false),
            (Some(row), None) => row.give(target, Some("off")).map(|()| true),
            (Some(_), Some(_)) => Err(format!("{name} takes no value")),
        }
    }

    fn give(&self, target: &mut T, value: Option<&str>) -> Result<(), String> {
        let expected = match self.form {
            Form::Word => "",
            Form::Switch => "on|off",
            Form::Value(values) => values,
        };
        let value = match (self.form, value) {
            (Form::Word, None) => "",
            (Form::Word, Some(_)) => return Err(format!("{} takes no value", self.name)),
            (Form::Switch, None) => "on",
            (Form::Value(_), None) => {
                return Err(format!("{0} needs a value: expected {0}={expected}", self.name));
            }
            (_, Some(value)) => value,
        };
        let known = self.form != Form::Switch || matches!(value, "on" | "off");
        if known && (self.set)(target, value) {
            return Ok(());
        }
        Err(wrong_value(self.name, value, expected, self.accepts))
    }

    /// The options in force, as they would be given to have them.
    pub fn in_force(table: &[MountOption<T>], target: &T) -> Vec<String> {
        let written = |row: &MountOption<T>, value: String| match (row.form, value.as_str()) {
            (Form::Word, _) | (Form::Switch, "on") => row.name.to_owned(),
            (Form::Switch, _) => format!("no{}", row.name),
            (Form::Value(_), value) => format!("{}={value}", row.name),
        };
        table.iter().flat_map(|row| (row.show)(target).into_iter().map(|value| written(row, value))).collect()
    }
}

/// Name and value of an option as it was given.
pub(super) fn split(option: &str) -> (&str, Option<&str>) {
    option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)))
}

/// The sentence about a value that an option does not take.
pub(super) fn wrong_value(name: &str, value: &str, expected: &str, accepts: &str) -> String {
    let comma = if accepts.is_empty() { "" } else { ", " };
    format!("invalid value '{value}' for {name}: expected {expected}{comma}{accepts}")
}

/// Of `names` the nearest to what was typed: with one slip for each three letters at most.
pub fn nearest(typed: &str, names: impl IntoIterator<Item = String>) -> Option<String> {
    let most = (typed.chars().count() / 3).max(1);
    let slips = |known: String| (strsim::damerau_levenshtein(typed, &known), known);
    let near = names.into_iter().map(slips).filter(|(slips, _)| *slips <= most);
    near.min_by_key(|(slips, _)| *slips).map(|(_, nearest)| nearest)
}

/// The sentence about an option that is not among `names`: the nearest of them where one is near.
pub fn unknown(option: &str, names: impl IntoIterator<Item = String>) -> String {
    let (name, _) = split(option);
    match nearest(name, names) {
        Some(nearest) => format!("unknown option '{name}', did you mean '{nearest}'?"),
        None => format!("unknown option '{name}': 'medfs mount --help' and medfs(5) list all"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slip_in_three_letters_is_near() {
        let names = ["ro", "delta", "noatime", "compress_mode"].map(str::to_owned);
        for (given, nearest) in [
            ("rp", Some("ro")),
            ("delat=1", Some("delta")),
            ("compres-mod", Some("compress_mode")),
            ("xyz", None),
            ("", None),
        ] {
            let text = unknown(given, names.clone());
            match nearest {
                Some(nearest) => assert!(text.ends_with(&format!("did you mean '{nearest}'?")), "{text}"),
                None => assert!(!text.contains("did you mean"), "{text}"),
            }
        }
    }
}
