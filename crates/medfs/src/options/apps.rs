//! `apps=`: which files belong together where fsyncs are put off.

use super::MountOptions;
use super::table::Form::Value;
use super::table::MountOption;
use std::fmt;

/// Most patterns of `apps=`; the text of the option says the same.
const MOST_PATTERNS: usize = 64;
const _: () = assert!(MOST_PATTERNS == 64);

/// How files belong to apps (`apps=`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Apps {
    /// The whole volume is one.
    #[default]
    Volume,
    /// Those of each owner.
    Uid,
    /// Those of each project id.
    Project,
    /// What lies in each folder that one of these patterns names; in the deepest one where several do.
    Folders(Vec<FolderPattern>),
}

/// Folders by their path from the root of the volume: `/data/data/*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderPattern(Vec<Name>);

/// A name on the path of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    /// `*`.
    Any,
    This(String),
}

impl Apps {
    fn parse(value: &str) -> Option<Apps> {
        match value {
            "volume" => Some(Apps::Volume),
            "uid" => Some(Apps::Uid),
            "project" => Some(Apps::Project),
            "top" => Some(Apps::Folders(vec![FolderPattern(vec![Name::Any])])),
            patterns => {
                let patterns: Vec<FolderPattern> =
                    patterns.split(':').map(FolderPattern::parse).collect::<Option<_>>()?;
                (patterns.len() <= MOST_PATTERNS).then_some(Apps::Folders(patterns))
            }
        }
    }

    /// The patterns, as a set of the positions of those that may name a folder below the root.
    pub(crate) fn all_patterns(&self) -> u64 {
        match self {
            Apps::Folders(patterns) => (0..patterns.len()).fold(0, |all, at| all | 1 << at),
            _ => 0,
        }
    }

    /// Of a set of patterns that fit a path of `depth` names, those that fit it with one name more; whether one of
    /// them ends there.
    pub(crate) fn fitting(&self, set: u64, depth: usize, name: &[u8]) -> (u64, bool) {
        let Apps::Folders(patterns) = self else { return (0, false) };
        let fits = |pattern: &FolderPattern| match pattern.0.get(depth) {
            Some(Name::Any) => true,
            Some(Name::This(this)) => this.as_bytes() == name,
            None => false,
        };
        let fitting = patterns.iter().enumerate().filter(|(at, pattern)| set >> at & 1 == 1 && fits(pattern));
        fitting.fold((0, false), |(set, ends), (at, pattern)| {
            (set | 1 << at, ends || pattern.0.len() == depth + 1)
        })
    }
}

impl FolderPattern {
    /// `None` where it names nothing: not from the root, the root itself, or with a name that no file has.
    fn parse(text: &str) -> Option<FolderPattern> {
        let name = |name: &str| match name {
            "*" => Some(Name::Any),
            "" | "." | ".." => None,
            name if name.contains('*') => None,
            name => Some(Name::This(name.to_owned())),
        };
        text.strip_prefix('/')?.split('/').map(name).collect::<Option<_>>().map(FolderPattern)
    }

    /// The names before the first that may be any.
    pub(crate) fn fixed(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map_while(|name| match name {
            Name::Any => None,
            Name::This(name) => Some(name.as_str()),
        })
    }
}

impl fmt::Display for FolderPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|name| match name {
            Name::Any => f.write_str("/*"),
            Name::This(name) => write!(f, "/{name}"),
        })
    }
}

impl fmt::Display for Apps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Apps::Volume => f.write_str("volume"),
            Apps::Uid => f.write_str("uid"),
            Apps::Project => f.write_str("project"),
            Apps::Folders(patterns) => patterns.iter().enumerate().try_for_each(|(n, pattern)| {
                let between = if n == 0 { "" } else { ":" };
                write!(f, "{between}{pattern}")
            }),
        }
    }
}

pub(super) const OPTIONS: &[MountOption<MountOptions>] = &[MountOption {
    name: "apps",
    form: Value("volume|top|uid|project|FOLDERS"),
    accepts: "folders by their paths from the root of the volume, up to 64 with ':' between them, where a name may be '*', as in /data/data/*",
    default: "volume",
    help: "With durability=adaptive, which files are an app: the bounds of what may be lost, and the policy, count for each. volume: all files are one. top: those in each folder of the root. uid: those of each owner. project: those of each project id. FOLDERS: those in each folder that is named.",
    set: |o, value| Apps::parse(value).map(|apps| o.apps = apps).is_some(),
    show: |o| vec![o.apps.to_string()],
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_name_by_name() {
        let apps = Apps::parse("/data/data/*:/home:/data/*").unwrap();
        assert_eq!(apps.to_string(), "/data/data/*:/home:/data/*");
        let below = |path: &[&str]| {
            let mut at = (apps.all_patterns(), false);
            for (depth, name) in path.iter().enumerate() {
                at = apps.fitting(at.0, depth, name.as_bytes());
            }
            at
        };
        assert_eq!(below(&["data"]), (0b101, false));
        assert_eq!(below(&["home"]), (0b010, true));
        assert_eq!(below(&["data", "data"]), (0b101, true));
        assert_eq!(below(&["data", "data", "x"]), (0b001, true));
        assert_eq!(below(&["data", "data", "x", "y"]), (0, false));
        assert_eq!(below(&["tmp"]), (0, false));
        let top = Apps::parse("top").unwrap();
        assert_eq!((top.to_string().as_str(), top.fitting(1, 0, b"any")), ("/*", (1, true)));
    }

    #[test]
    fn a_pattern_that_names_nothing_is_refused_in_one_sentence() {
        let many = vec!["/a"; MOST_PATTERNS + 1].join(":");
        for wrong in ["", "/", "data/*", "/a/", "/a//b", "/a/../b", "/.", "/da*", "/a:", "tops", &many] {
            let error = MountOptions::default().parse(&format!("apps={wrong}")).unwrap_err().to_string();
            let start = format!(
                "invalid value '{wrong}' for apps: expected volume|top|uid|project|FOLDERS, folders by"
            );
            assert!(error.contains(&start), "{error}");
        }
    }
}
