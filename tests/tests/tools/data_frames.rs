//! The blocks of docs/python.md, run as they stand by polars, pandas, DuckDB and Python alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kmemtrace_tests::programs::{data, program, text};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

use super::fleet::environment;

kmemtrace_tests::tests![
    polars_reads_the_exports => || block_prints("polars", &["polars"], &["function", "live_allocated"]),
    pandas_reads_the_exports => || block_prints("pandas", &["pandas", "pyarrow"], &["symbol", "count"]),
    duckdb_reads_the_exports => || block_prints("DuckDB", &["duckdb"], &["comm", "bytes"]),
    python_reads_the_documents => || block_prints("Documents", &[], &["complete", "rows"]),
];

/// Parts of the page behind a heading, up to the next one.
fn part(page: &str, heading: &str) -> String {
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no part {heading}"));
    rest.split("\n## ").next().unwrap_or_default().to_owned()
}

/// Makes the files of the first block of the page.
fn exports(page: &str) -> Directory {
    let place = Directory::on_disk();
    std::os::unix::fs::symlink(data("amd64-6.18"), place.file("kmemtrace.data")).unwrap();
    let lines = page.split("```").nth(1).unwrap();
    let commands = lines.lines().filter_map(|line| line.strip_prefix("kmemtrace-report "));
    for words in commands {
        let mut report = Command::new(program("kmemtrace-report"));
        let output = report.args(words.split(' ')).arg("--no-index").current_dir(place.path()).output().unwrap();
        assert!(output.status.success(), "{words}: {}", text(&output.stderr));
    }
    place
}

fn block_prints(heading: &str, packages: &[&str], words: &[&str]) -> Result<(), Skip> {
    let mut python = PathBuf::from("python3");
    for package in packages {
        python = environment(package)?.join("python3");
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/python.md");
    let page = fs::read_to_string(page).unwrap();
    let part = part(&page, heading);
    let block = part.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let place = exports(&page);
    let output = Command::new(python).args(["-c", block]).current_dir(place.path()).output();
    let output = output.map_err(|error| Skip(format!("python3 cannot be run: {error}")))?;
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{heading}: {}", text(&output.stderr));
    assert!(words.iter().all(|word| printed.contains(word)), "{heading}: {printed}");
    Ok(())
}
