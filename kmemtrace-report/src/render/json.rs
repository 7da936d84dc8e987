//! JSON: the whole document.

use std::cell::RefCell;
use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::{Document, Rows};

/// Writes a document.
pub(crate) fn json(document: Document<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Document { members, rows } = document;
    match rows {
        None => serde_json::to_writer_pretty(&mut *out, &members)?,
        Some(rows) => serde_json::to_writer_pretty(&mut *out, &Streamed { members, rows: RefCell::new(rows) })?,
    }
    writeln!(out)
}

/// A document whose rows are made while they are written.
struct Streamed<'a> {
    members: Value,
    rows: RefCell<Rows<'a>>,
}

impl Serialize for Streamed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.members.as_object().into_iter().flatten() {
            match name.as_str() {
                "rows" => map.serialize_entry(name, &Each(&self.rows))?,
                _ => map.serialize_entry(name, value)?,
            }
        }
        map.end()
    }
}

struct Each<'a, 'r>(&'r RefCell<Rows<'a>>);

impl Serialize for Each<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&mut *self.0.borrow_mut())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn streamed_rows_are_printed_as_all_others() {
        for rows in [vec![], vec![json!({ "a": 1, "b": null }), json!({ "a": [2] })]] {
            let printed = |document| {
                let mut out = Vec::new();
                super::json(document, &mut out).unwrap();
                String::from_utf8(out).unwrap()
            };
            let whole = json!({ "head": { "x": 1 }, "rows": rows, "others_count": 3 });
            let members = json!({ "head": { "x": 1 }, "rows": null, "others_count": 3 });
            let streamed = Document { members, rows: Some(Box::new(rows.into_iter())) };
            assert_eq!(printed(streamed), printed(Document { members: whole, rows: None }));
        }
    }
}
