//! JSON: one document, or a value a line, without any character that a terminal would act on.

use std::io::{self, Write};

use kmemtrace_abi::text::escape::escape_json;
use serde::ser::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

/// Writes a document; rows and matrix are computed while they are written.
pub(crate) fn json(document: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let formatter = Harmless(PrettyFormatter::new());
    document.serialize(&mut serde_json::Serializer::with_formatter(&mut *out, formatter))?;
    writeln!(out)
}

/// Writes a value as one line.
pub(crate) fn line(value: &impl Serialize, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut *out, Harmless(CompactFormatter)))?;
    writeln!(out)
}

/// Formatter that writes characters a terminal would act on, or a reader would not see, as `\uXXXX`, and everything
/// else as `F` does.
pub(crate) struct Harmless<F>(pub(crate) F);

/// Forwards calls to the inner formatter.
macro_rules! pass_on {
    ($($method:ident($($argument:ident: $type:ty),*);)*) => {
        $(fn $method<W: ?Sized + Write>(&mut self, out: &mut W $(, $argument: $type)*) -> io::Result<()> {
            self.0.$method(out $(, $argument)*)
        })*
    };
}

impl<F: Formatter> Formatter for Harmless<F> {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        out.write_all(escape_json(fragment).as_bytes())
    }

    pass_on! {
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use kmemtrace::documents::ranked::Others;
    use kmemtrace::documents::row::Rows;

    #[derive(serde::Serialize)]
    struct Whole<'a> {
        head: Value,
        #[serde(flatten)]
        listing: Streamed<'a>,
    }

    #[derive(serde::Serialize)]
    struct Streamed<'a> {
        rows: Rows<'a, Value>,
        #[serde(flatten)]
        others: Option<Others<Value>>,
    }

    #[test]
    fn streamed_rows_are_printed_as_all_others() {
        for cells in [vec![], vec![1, 2]] {
            let head = json!({ "x": 1, "e": [], "o": {} });
            let rows = Rows::of(cells.clone(), |&n: &u64| json!({ "a": n, "b": null }));
            let others = Some(Others::one(3, json!(["a\t"])));
            let whole = json!({
                "head": head,
                "rows": cells.iter().map(|n| json!({ "a": n, "b": null })).collect::<Vec<_>>(),
                "others": ["a\t"],
                "others_count": 3,
            });
            let mut out = Vec::new();
            json(&Whole { head, listing: Streamed { rows, others } }, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string_pretty(&whole).unwrap() + "\n");
        }
    }

    #[test]
    fn strings_are_harmless_and_stay_what_they_are() {
        let value = json!({ "a\u{9b}": "\u{202e}x\u{7f}\u{0}\"\\\n\u{e0041}" });
        let mut out = Vec::new();
        line(&value, &mut out).unwrap();
        assert_eq!(out, b"{\"a\\u009b\":\"\\u202ex\\u007f\\u0000\\\"\\\\\\n\\udb40\\udc41\"}\n");
        assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), value);
    }
}
