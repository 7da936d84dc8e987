//! CSV: a header row, exact integers, and no cell that a spreadsheet would run.

use std::io::{self, Write};

use serde_json::Value;

use super::Document;

/// Writes the rows of a view.
pub(crate) fn csv(view: &str, document: Document<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut rows = document.into_rows(view).peekable();
    let mut writer = csv::Writer::from_writer(out);
    let Some(first) = rows.peek().and_then(Value::as_object) else { return writer.flush() };
    // A row may have a member more (the bytes of a name that is no UTF-8): the first row names the columns.
    let columns: Vec<String> = first.keys().cloned().collect();
    writer.write_record(&columns)?;
    for row in rows {
        writer.write_record(columns.iter().map(|column| cell(&row[column.as_str()])))?;
    }
    writer.flush()
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => format!("'{text}"),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_name_does_not_become_a_formula() {
        let rows = json!({"rows": [
            {"cache": "=cmd|' /C calc'!A0", "wasted": 18446744073709551615u64, "peak": null},
            {"cache": "a,\"b\"", "wasted": 1, "peak": 2},
        ]});
        let mut out = Vec::new();
        csv("caches", Document { members: rows, rows: None }, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "cache,wasted,peak\n'=cmd|' /C calc'!A0,18446744073709551615,\n\"a,\"\"b\"\"\",1,2\n");
    }
}
