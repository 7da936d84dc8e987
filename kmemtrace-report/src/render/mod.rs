//! From values to text: nothing outside this module knows how a figure or a name looks.

pub(crate) mod csv;
pub(crate) mod json;
pub(crate) mod jsonl;
pub(crate) mod table;
pub(crate) mod units;

use std::iter;

use serde_json::{Value, json};

/// Rows that are made one by one.
pub(crate) type Rows<'a> = Box<dyn Iterator<Item = Value> + 'a>;

/// What a view comes to.
pub(crate) struct Document<'a> {
    /// All members; `rows` is `null` where they come one by one.
    pub(crate) members: Value,
    /// The rows, where there may be more of them than there is memory for.
    pub(crate) rows: Option<Rows<'a>>,
}

impl<'a> Document<'a> {
    /// The rows of the view, one by one.
    fn into_rows(self, view: &str) -> Rows<'a> {
        let Document { mut members, rows } = self;
        match (rows, view) {
            (Some(rows), _) => rows,
            (None, "summary") => Box::new(summary_rows(&members).into_iter()),
            (None, _) => match members["rows"].take() {
                Value::Array(rows) => Box::new(rows.into_iter()),
                _ => Box::new(iter::empty()),
            },
        }
    }

    /// All members, rows included.
    pub(crate) fn into_value(self) -> Value {
        let Document { mut members, rows } = self;
        if let Some(rows) = rows {
            members["rows"] = rows.collect();
        }
        members
    }
}

/// The rows of `summary`, which has none in its document: one a kind and the total.
fn summary_rows(document: &Value) -> Vec<Value> {
    let kinds = document["kinds"].as_object().into_iter().flatten();
    let all = kinds.map(|(name, figures)| (name.as_str(), figures)).chain([("total", &document["total"])]);
    all.map(|(name, figures)| {
        let mut row = serde_json::Map::new();
        row.insert("kind".to_owned(), json!(name));
        row.extend(figures.as_object().cloned().unwrap_or_default());
        row.remove("free_events");
        row.remove("peak_at");
        Value::Object(row)
    })
    .collect()
}
