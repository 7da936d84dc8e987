//! From values to text: nothing outside this module knows how a figure or a name looks.

pub(crate) mod csv;
pub(crate) mod escape;
pub(crate) mod jsonl;
pub(crate) mod table;
pub(crate) mod units;

use serde_json::{Value, json};

/// The rows of a view: those of its document, for `summary` one a kind and the total.
fn rows(view: &str, document: &Value) -> Vec<Value> {
    if view != "summary" {
        return document["rows"].as_array().cloned().unwrap_or_default();
    }
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
