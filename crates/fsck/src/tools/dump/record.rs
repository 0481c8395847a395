//! Named fields in on-disk order, which are serialisable and print as text.

use serde::{Serialize, Serializer};
use std::fmt;

/// A field's value.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(u64),
    /// Text.
    Text(String),
    /// Several values.
    List(Vec<Value>),
    /// Named values.
    Record(Record),
    /// Named values that are shown in one line, as far as it goes.
    Row(Record),
}

impl<T: Into<u64>> From<T> for Value {
    fn from(n: T) -> Value {
        Value::Number(n.into())
    }
}

pub(super) fn text(s: impl fmt::Display) -> Value {
    Value::Text(s.to_string())
}

/// Named fields, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Record(pub Vec<(&'static str, Value)>);

impl Record {
    pub(super) fn add(&mut self, name: &'static str, value: impl Into<Value>) {
        self.0.push((name, value.into()));
    }

    pub(super) fn put(&mut self, name: &'static str, value: Value) {
        self.0.push((name, value));
    }

    /// The field of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl Record {
    fn write(&self, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
        for (name, value) in &self.0 {
            write!(f, "{:indent$}{name:<28} ", "")?;
            match value {
                Value::Record(record) => {
                    writeln!(f)?;
                    record.write(f, indent + 2)?;
                }
                Value::Row(row) => {
                    writeln!(f)?;
                    row.write_row(f, indent + 2)?;
                }
                Value::List(list) if list.iter().any(|v| matches!(v, Value::Row(_))) => {
                    writeln!(f)?;
                    write_rows(f, list, indent + 2)?;
                }
                Value::List(list) if list.iter().any(|v| matches!(v, Value::Record(_))) => {
                    writeln!(f)?;
                    for (i, item) in list.iter().enumerate() {
                        if i > 0 {
                            writeln!(f)?;
                        }
                        if let Value::Record(record) = item {
                            record.write(f, indent + 2)?;
                        }
                    }
                }
                other => writeln!(f, "{other}")?,
            }
        }
        Ok(())
    }

    /// One line where it fits, otherwise more, further in; lists of rows follow below it.
    fn write_row(&self, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
        let is_rows = |value: &Value| matches!(value, Value::List(_));
        write!(f, "{:indent$}", "")?;
        let mut column = indent;
        for (i, (name, value)) in self.0.iter().filter(|(_, value)| !is_rows(value)).enumerate() {
            let cell = format!("{name} {value}");
            if i > 0 && column + 2 + cell.len() > COLUMNS {
                column = indent + 4;
                write!(f, "\n{:column$}", "")?;
            } else if i > 0 {
                column += 2;
                f.write_str("  ")?;
            }
            column += cell.len();
            f.write_str(&cell)?;
        }
        writeln!(f)?;
        for (_, value) in &self.0 {
            if let Value::List(list) = value {
                write_rows(f, list, indent + 4)?;
            }
        }
        Ok(())
    }
}

fn write_rows(f: &mut fmt::Formatter<'_>, list: &[Value], indent: usize) -> fmt::Result {
    list.iter().try_for_each(|value| match value {
        Value::Row(row) => row.write_row(f, indent),
        other => writeln!(f, "{:indent$}{other}", ""),
    })
}

/// Columns that rows keep to, where single values let them.
const COLUMNS: usize = 100;

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(n) => write!(f, "{n}"),
            Value::Text(s) => f.write_str(s),
            Value::List(list) => {
                for (i, item) in list.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { " " } else { "" })?;
                }
                Ok(())
            }
            Value::Record(record) => write!(f, "{record}"),
            Value::Row(row) => row.write_row(f, 0),
        }
    }
}
