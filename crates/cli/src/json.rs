//! What all `--json` outputs share (docs/JSON.md): the version of their form, and names that are not UTF-8.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value};

/// The form of the outputs. It grows when a field changes its meaning or goes; new fields leave it as it is.
pub(crate) const FORMAT: u32 = 1;

/// An object with the form's version before its own fields, or a list of such.
pub(crate) fn versioned(value: &impl Serialize) -> Result<Value> {
    Ok(with_version(serde_json::to_value(value)?))
}

fn with_version(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut all = Map::new();
            all.insert("format".into(), FORMAT.into());
            all.extend(fields);
            Value::Object(all)
        }
        Value::Array(list) => list.into_iter().map(with_version).collect(),
        other => other,
    }
}

/// Prints an object with the form's version.
pub(crate) fn print(value: &impl Serialize) -> Result<()> {
    outln!("{}", serde_json::to_string_pretty(&versioned(value)?)?);
    Ok(())
}

/// A name as text, and as hexadecimal bytes where it is not UTF-8; the text then has U+FFFD in place of what is
/// not.
pub(crate) fn name(bytes: &[u8]) -> (String, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), None),
        Err(_) => {
            let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            (String::from_utf8_lossy(bytes).into_owned(), Some(hex))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_lost() {
        assert_eq!(name("Größe".as_bytes()), ("Größe".into(), None));
        assert_eq!(name(b"a\xFFb"), ("a\u{FFFD}b".into(), Some("61ff62".into())));
    }

    #[test]
    fn the_version_comes_first() {
        let text = versioned(&serde_json::json!({"b": 1, "a": 2})).unwrap().to_string();
        assert_eq!(text, r#"{"format":1,"b":1,"a":2}"#);
        let list = versioned(&serde_json::json!([{"b": 1}, {"format": 7}])).unwrap().to_string();
        assert_eq!(list, r#"[{"format":1,"b":1},{"format":7}]"#, "what has a version of its own keeps it");
    }
}
