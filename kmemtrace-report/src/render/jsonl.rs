//! JSON Lines: what every document opens with, then a row a line.

use std::io::{self, Write};

use serde_json::json;

use super::json::line;
use crate::reports::Document;

/// Writes a view; `summary`, which has no rows in its document, is one line.
pub(crate) fn jsonl(view: &str, document: &Document<'_>, out: &mut dyn Write) -> io::Result<()> {
    let members = &document.members;
    if view == "summary" {
        return line(members, out);
    }
    let head =
        json!({ "schema": members["schema"], "completeness": members["completeness"], "trace": members["trace"] });
    line(&head, out)?;
    document.rows.iter().try_for_each(|row| line(&row, out))
}
