//! JSON Lines: what every document opens with, then a row a line.

use std::io::{self, Write};

use serde_json::{Value, json};

/// Writes a view; `summary`, which has no rows, is one line.
pub(crate) fn jsonl(view: &str, document: &Value, out: &mut dyn Write) -> io::Result<()> {
    if view == "summary" {
        return writeln!(out, "{document}");
    }
    let head = json!({
        "schema": document["schema"], "completeness": document["completeness"], "trace": document["trace"],
    });
    writeln!(out, "{head}")?;
    super::rows(view, document).iter().try_for_each(|row| writeln!(out, "{row}"))
}
