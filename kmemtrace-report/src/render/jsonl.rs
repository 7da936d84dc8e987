//! JSON Lines: what every document opens with, then a row a line.

use std::io::{self, Write};

use serde_json::json;

use super::Document;

/// Writes a view; `summary`, which has no rows, is one line.
pub(crate) fn jsonl(view: &str, document: Document<'_>, out: &mut dyn Write) -> io::Result<()> {
    if view == "summary" {
        return writeln!(out, "{}", document.members);
    }
    let members = &document.members;
    let head =
        json!({ "schema": members["schema"], "completeness": members["completeness"], "trace": members["trace"] });
    writeln!(out, "{head}")?;
    document.into_rows(view).try_for_each(|row| writeln!(out, "{row}"))
}
