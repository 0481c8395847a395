//! Names that no file can have, as damage leaves them in a directory: how many, told once for all of it.

/// Entries of a directory whose names no file can have.
#[derive(Debug, Default)]
pub(crate) struct BadNames {
    with_nul: u64,
    with_slash: u64,
    empty: u64,
}

impl BadNames {
    /// Whether a name is such a one; it is counted then.
    pub(crate) fn note(&mut self, name: &[u8]) -> bool {
        let count = match name {
            b"" => &mut self.empty,
            _ if name.contains(&0) => &mut self.with_nul,
            _ if name.contains(&b'/') => &mut self.with_slash,
            _ => return false,
        };
        *count += 1;
        true
    }

    /// What is told of them, where there are some.
    pub(crate) fn told(&self) -> Option<String> {
        let kinds = [
            (self.with_nul, "with NUL bytes"),
            (self.with_slash, "with a slash"),
            (self.empty, "without a character"),
        ];
        let some: Vec<String> = kinds
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, kind)| format!("{count} name{} {kind}", if count == 1 { "" } else { "s" }))
            .collect();
        let what = "which no file can have, and what they led to was not copied by them";
        (!some.is_empty()).then(|| format!("it has {}, {what}", some.join(" and ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_by_what_is_wrong_with_them() {
        let mut bad = BadNames::default();
        assert!(!bad.note(b"fine") && !bad.note(b"..") && bad.told().is_none());
        for name in [&b"\0\0"[..], b"a\0b", b"../x", b""] {
            assert!(bad.note(name));
        }
        let told = bad.told().unwrap_or_default();
        let expected =
            "it has 2 names with NUL bytes and 1 name with a slash and 1 name without a character, ";
        assert!(told.starts_with(expected), "{told}");
    }
}
