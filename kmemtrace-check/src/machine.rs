//! Machine-readable results: one JSON document, or rows of CSV or TSV, one a file.

use std::borrow::Cow;
use std::collections::BTreeSet;

use kmemtrace_abi::fault::{Fault, Verdict};
use kmemtrace_abi::stream::report::Source;
use kmemtrace_abi::text::escape::{escape, escape_csv, escape_json};
use serde::Serialize;

use crate::explain::verdict_name;
use crate::reading::{CheckedFile, CheckedTrace};

/// Document `kmemtrace.check/1`. Members may be added; existing ones keep their names and meanings.
#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    files: Vec<File<'a, Vec<Finding<'a>>>>,
    ok: usize,
    lossy: usize,
    truncated: usize,
    corrupt: usize,
    /// Findings about a directory rather than one of its files.
    findings: Vec<Finding<'a>>,
}

/// A file; `F` is its findings: a list in JSON, their codes in a row.
#[derive(Serialize)]
struct File<'a, F> {
    path: Cow<'a, str>,
    cpu: Option<u32>,
    verdict: &'static str,
    format_version: Option<String>,
    source: Option<&'static str>,
    events: u64,
    blocks: Option<u64>,
    first: Option<u64>,
    last: Option<u64>,
    lost_events: Option<u64>,
    gaps: u64,
    unread_events: u64,
    findings: F,
    /// Rows have no such column.
    #[serde(skip_serializing_if = "Option::is_none")]
    findings_left_out: Option<u64>,
}

#[derive(Serialize)]
struct Finding<'a> {
    code: String,
    severity: &'static str,
    offset: u64,
    block: Option<u64>,
    message: &'a str,
}

fn all_files(traces: &[CheckedTrace]) -> impl Iterator<Item = &CheckedFile> {
    traces.iter().flat_map(|trace| &trace.files)
}

/// Number of files with this verdict.
pub(crate) fn count(traces: &[CheckedTrace], verdict: Verdict) -> usize {
    all_files(traces).filter(|file| file.facts.verdict == verdict).count()
}

impl<'a, F> File<'a, F> {
    fn new(file: &'a CheckedFile, path: Cow<'a, str>, findings: F) -> File<'a, F> {
        let facts = &file.facts;
        let of_ours = !file.is_foreign;
        File {
            path,
            cpu: facts.cpu.filter(|_| of_ours),
            verdict: verdict_name(facts.verdict),
            format_version: facts.version.map(|(major, minor)| format!("{major}.{minor}")),
            source: facts.source.map(source_name),
            events: facts.events,
            blocks: of_ours.then_some(facts.blocks),
            first: facts.first,
            last: facts.last,
            lost_events: facts.lost,
            gaps: facts.gaps,
            unread_events: facts.unread,
            findings,
            findings_left_out: None,
        }
    }
}

impl<'a> Finding<'a> {
    fn new(fault: &'a Fault) -> Finding<'a> {
        Finding {
            code: fault.code.to_string(),
            severity: fault.code.severity().name(),
            offset: fault.offset,
            block: fault.block,
            message: &fault.message,
        }
    }
}

fn source_name(source: Source) -> &'static str {
    match source {
        Source::Tracefs => "tracefs",
        Source::Relay => "relay",
    }
}

/// Writes all results as one JSON document.
pub(crate) fn json(traces: &[CheckedTrace], out: &mut Vec<u8>) {
    fn file(file: &CheckedFile) -> File<'_, Vec<Finding<'_>>> {
        let facts = &file.facts;
        let findings = facts.faults.iter().map(Finding::new).collect();
        File {
            findings_left_out: Some(facts.faults_left_out),
            ..File::new(file, facts.path.to_string_lossy(), findings)
        }
    }
    let document = Document {
        schema: "kmemtrace.check/1",
        files: all_files(traces).map(file).collect(),
        ok: count(traces, Verdict::Complete),
        lossy: count(traces, Verdict::Lossy),
        truncated: count(traces, Verdict::Truncated),
        corrupt: count(traces, Verdict::Corrupt),
        findings: traces.iter().flat_map(|t| &t.findings).map(Finding::new).collect(),
    };
    // Serialization of strings and numbers cannot fail.
    let text = serde_json::to_string_pretty(&document).unwrap_or_default();
    out.extend_from_slice(escape_json(&text).as_bytes());
    out.push(b'\n');
}

/// Writes comma-separated rows with a header.
pub(crate) fn csv(traces: &[CheckedTrace], out: &mut Vec<u8>) {
    rows(traces, escape_csv, csv::WriterBuilder::new().from_writer(out));
}

/// Writes tab-separated rows after a line with the format's version and a header. No cell has a tab: they are escaped.
pub(crate) fn tsv(traces: &[CheckedTrace], out: &mut Vec<u8>) {
    out.extend_from_slice(b"# kmemtrace 1 check\n");
    let tabs = csv::WriterBuilder::new().delimiter(b'\t').quote_style(csv::QuoteStyle::Never).from_writer(out);
    rows(traces, escape, tabs);
}

/// Writes a row for each file, with the codes of its findings; `name` escapes its path.
fn rows(traces: &[CheckedTrace], name: fn(&[u8]) -> Cow<'_, str>, mut out: csv::Writer<&mut Vec<u8>>) {
    for file in all_files(traces) {
        let facts = &file.facts;
        let codes: BTreeSet<String> = facts.faults.iter().map(|fault| fault.code.to_string()).collect();
        let codes = codes.into_iter().collect::<Vec<_>>().join(" ");
        // Writing rows of one length to memory cannot fail.
        let _ = out.serialize(File::new(file, name(facts.path.as_os_str().as_encoded_bytes()), codes));
    }
}

#[cfg(test)]
mod tests {
    use kmemtrace_abi::open::OpenOptions;

    use super::*;
    use crate::sample::Sample;
    use crate::{checks, reading};
    use kmemtrace_tests::generate::{Options, Shape};

    fn printed(print: fn(&[CheckedTrace], &mut Vec<u8>)) -> String {
        let sample = Sample::new(&Options { missing: vec![1], ..Options::plain(Shape::plain(), 2, 3000) }, 1);
        sample.change("cpu0.out", |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        });
        std::fs::remove_file(sample.file("meta.out")).unwrap();
        let mut trace = reading::read(sample.path().to_owned(), OpenOptions::default(), 2).unwrap();
        checks::run(&mut trace);
        let mut out = Vec::new();
        print(&[trace], &mut out);
        String::from_utf8(out).unwrap().replace(&format!("{}/", sample.path().display()), "")
    }

    #[test]
    fn the_document_is_as_promised() {
        let document: serde_json::Value = serde_json::from_str(&printed(json)).unwrap();
        assert_eq!(document["schema"], "kmemtrace.check/1");
        let counts = ["ok", "lossy", "truncated", "corrupt"].map(|verdict| document[verdict].as_u64());
        assert_eq!(counts, [Some(0), Some(0), Some(1), Some(1)]);
        let files = document["files"].as_array().unwrap();
        let of = |member: &str| files.iter().map(|f| f[member].clone()).collect::<Vec<_>>();
        assert_eq!(of("path"), ["cpu0.out", "cpu1.out"]);
        assert_eq!(of("cpu"), [0, 1]);
        assert_eq!(of("verdict"), ["corrupt", "truncated"]);
        assert_eq!(of("lost_events"), [0.into(), serde_json::Value::Null]);
        for member in ["format_version", "source", "events", "blocks", "first", "last", "gaps"] {
            assert!(files.iter().all(|f| f.get(member).is_some()), "{member}");
        }
        let finding = &files[0]["findings"][0];
        assert_eq!((&finding["code"], &finding["severity"]), (&"K301".into(), &"error".into()));
        assert!(finding["offset"].is_u64() && finding.get("block").is_some() && finding["message"].is_string());
        assert_eq!(files[1]["findings"][0]["code"], "K205");
        assert_eq!(document["findings"][0]["code"], "K501");
    }

    #[test]
    fn rows_have_as_many_cells_as_the_heading() {
        for (text, separator) in [(printed(csv), ','), (printed(tsv), '\t')] {
            let rows: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
            assert_eq!(rows.len(), 3, "{text}");
            assert!(rows.iter().all(|r| r.split(separator).count() == 13), "{text}");
            assert!(rows[0].starts_with("path") && rows[2].ends_with("K205"), "{text}");
        }
    }
}
