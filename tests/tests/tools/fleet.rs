//! The queries of docs/fleet.md, run as they stand by DuckDB and PySpark, against the figures of `sites`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kmemtrace_tests::archive;
use kmemtrace_tests::generate::leaks::workload_with_leaks;
use kmemtrace_tests::generate::{Era, Options, Shape, trace_dir, workload};
use kmemtrace_tests::programs::{document, program, run, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;
use serde_json::Value;

const REPORT: &str = "kmemtrace-report";
/// Tables of an export.
const TABLES: [&str; 3] = ["sites", "objects", "events"];
/// Figures that add up.
const SUMS: [&str; 13] = [
    "allocs",
    "failed_allocs",
    "requested",
    "allocated",
    "wasted",
    "frees",
    "inferred_frees",
    "cross_cpu",
    "cross_cpu_bytes",
    "live_objects",
    "live_requested",
    "live_allocated",
    "live_wasted",
];

kmemtrace_tests::tests![
    ten_lines_lead_from_three_recordings_to_an_answer => ten_lines,
    duckdb_counts_what_sites_counts => || counts_what_sites_counts("duckdb"),
    spark_counts_what_sites_counts => spark,
    boots_merge_by_symbol_and_kernels_by_function => boots_and_kernels,
    stacks_of_objects_are_those_of_folded_stacks => stacks_of_objects,
    leaks_of_hosts_are_those_of_the_view => leaks_of_hosts,
    a_table_is_whole_or_not_there => whole_or_not_there,
];

/// Spark is 300 MB, and starts for a minute.
fn spark() -> Result<(), Skip> {
    runs::before_a_release()?;
    counts_what_sites_counts("spark")
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/fleet.md").canonicalize().unwrap()
}

/// Folder `bin` of a virtual environment with a package of PyPI.
pub(super) fn environment(package: &str) -> Result<PathBuf, Skip> {
    let home = std::env::var_os("HOME").ok_or_else(|| Skip("there is no home directory for a cache".to_owned()))?;
    let venv = Path::new(&home).join(".cache/kmemtrace-vm/venv");
    let bin = venv.join("bin");
    let succeeds = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    if !bin.join("pip").is_file() && !succeeds(Command::new("python3").args(["-m", "venv"]).arg(&venv)) {
        return Err(Skip("python3 makes no virtual environment here".to_owned()));
    }
    let import = format!("import {package}");
    let has_package = || succeeds(Command::new(bin.join("python3")).args(["-c", &import]));
    if !has_package() {
        let _ = Command::new(bin.join("pip")).args(["install", "--quiet", "--timeout", "20", package]).output();
        if !has_package() {
            return Err(Skip(format!("{package} cannot be had from PyPI")));
        }
    }
    Ok(bin)
}

/// Recording of a made-up machine.
fn recording(seed: u64, options: &Options) -> Directory {
    Directory::new(&trace_dir(&workload(seed, options), seed))
}

/// Recordings of three hosts: one is complete, one has lost events, and one lacks the end of a file.
fn hosts() -> Vec<(&'static str, Directory)> {
    let plain = Options { own_threads: true, symbols: true, probes: true, ..Options::plain(Shape::plain(), 3, 500) };
    let lossy = Options { loss: true, clock: Some("local"), ..plain.clone() };
    let cut = Options { cut: vec![*plain.cpus.last().unwrap()], loss: true, ..plain.clone() };
    vec![("web-1", recording(1, &plain)), ("web-2", recording(2, &lossy)), ("web-3", recording(3, &cut))]
}

/// Exports a table of a host below `fleet`.
fn export(fleet: &Path, table: &str, host: &str, trace: &Path) {
    let dir = fleet.join("fleet").join(table).join("day=2026-11-23");
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join(format!("{host}.parquet"));
    let to = format!("parquet-{table}");
    run_to(0, REPORT, &["export", "--to", &to, "--host", host, "-o", file.to_str().unwrap()], &[trace]);
}

/// Rows of queries of the document.
fn query(engine: &str, bin: &Path, fleet: &Path, names: &[&str]) -> HashMap<String, Vec<Value>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tools/fleet/query.py");
    let mut command = Command::new(bin.join("python3"));
    let output = command.arg(script).arg(engine).arg(page()).args(names).current_dir(fleet).output().unwrap();
    assert!(output.status.success(), "{engine}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{engine}: {error}: {}", String::from_utf8_lossy(&output.stdout)))
}

/// Values of these columns, as text: the key of a row.
fn key(row: &Value, columns: &[&str]) -> String {
    columns.iter().map(|column| row[*column].to_string()).collect::<Vec<_>>().join(" ")
}

/// Rows of `sites` of a host, with kernel, host and the bytes of `cross`.
fn sites_of(host: &str, trace: &Path) -> Vec<Value> {
    let cross = document(&["cross"], trace);
    let columns = ["call_site", "kind"];
    let crossed: HashMap<String, &Value> =
        cross["rows"].as_array().unwrap().iter().map(|row| (key(row, &columns), &row["cross_cpu_bytes"])).collect();
    let mut sites = document(&["sites"], trace);
    let kernel = sites["trace"]["kernel"].clone();
    let mut rows = std::mem::take(sites["rows"].as_array_mut().unwrap());
    for row in &mut rows {
        let bytes = crossed.get(&key(row, &columns)).map_or(0.into(), |bytes| (*bytes).clone());
        (row["kernel"], row["host"], row["cross_cpu_bytes"]) = (kernel.clone(), host.into(), bytes);
    }
    rows
}

/// Sums of rows by `columns`.
fn sums<'a>(rows: impl IntoIterator<Item = &'a Value>, columns: &[&str]) -> BTreeMap<String, [u64; SUMS.len()]> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let sum: &mut [u64; SUMS.len()] = sums.entry(key(row, columns)).or_insert([0; SUMS.len()]);
        for (sum, name) in sum.iter_mut().zip(SUMS) {
            *sum += row[name].as_u64().unwrap_or_else(|| panic!("{name} of {row}"));
        }
    }
    sums
}

/// Rows with an upper bound.
fn bounded<'a>(rows: impl IntoIterator<Item = &'a Value>, columns: &[&str]) -> BTreeMap<String, bool> {
    let mut bounded = BTreeMap::new();
    for row in rows {
        let of = &row["live_is_upper_bound"];
        *bounded.entry(key(row, columns)).or_insert(false) |= of == true || of == 1;
    }
    bounded
}

fn counts_what_sites_counts(engine: &str) -> Result<(), Skip> {
    let package = if engine == "spark" { "pyspark" } else { engine };
    if engine == "spark" && !Command::new("java").arg("-version").output().is_ok_and(|output| output.status.success()) {
        return Err(Skip("there is no Java; Debian has openjdk-17-jre-headless".to_owned()));
    }
    let bin = environment(package)?;
    let (hosts, fleet) = (hosts(), Directory::on_disk());
    for (host, trace) in &hosts {
        TABLES.iter().for_each(|table| export(fleet.path(), table, host, trace.path()));
    }
    let expected: Vec<Value> = hosts.iter().flat_map(|(host, trace)| sites_of(host, trace.path())).collect();
    let total = |name: &str| expected.iter().map(|row| row[name].as_u64().unwrap()).sum::<u64>();
    for name in SUMS {
        assert!(total(name) > 0, "the recordings have no {name}");
    }
    let of_slabs = || expected.iter().filter(|row| row["kind"] != "pages");
    let names = ["sites over hosts", "functions over kernels", "hosts with loss", "sites from objects"];
    let others = ["peaks from objects", "lifetimes", "sites from events", "peaks from events"];
    let answers = query(engine, &bin, fleet.path(), &[names, others].concat());
    let columns = ["kernel", "module", "symbol", "kind"];
    for name in ["sites over hosts", "sites from objects"] {
        assert_eq!(sums(&answers[name], &columns), sums(&expected, &columns), "{engine}, {name}");
        let bounds = bounded(&expected, &columns);
        assert!(bounds.values().any(|&bound| bound) && bounds.values().any(|&bound| !bound));
        let found = bounded(&answers[name], &columns);
        if name == "sites over hosts" {
            assert_eq!(found, bounds, "{engine}");
        } else {
            // Objects tell inferred frees, and not the frees in bulk beyond the room of a record.
            let known: Vec<&String> = found.iter().filter(|(_, bound)| **bound).map(|(row, _)| row).collect();
            assert!(!known.is_empty() && known.iter().all(|row| bounds[*row]), "{engine}: {known:?}");
        }
    }
    assert_eq!(sums(&answers["sites from events"], &columns), sums(of_slabs(), &columns), "{engine}, from events");
    let with_loss: Vec<&Value> = answers["hosts with loss"].iter().map(|row| &row["host"]).collect();
    assert_eq!(with_loss, ["web-2", "web-3"], "{engine}");
    assert!(!answers["lifetimes"].is_empty() && !answers["functions over kernels"].is_empty(), "{engine}");
    // Rows of one host that share a key, as those without a symbol do, have no peak together.
    let columns = ["host", "module", "symbol", "kind"];
    let mut peaks: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for row in &expected {
        peaks.entry(key(row, &columns)).or_default().push(&row["peak_live_allocated"]);
    }
    for name in ["peaks from objects", "peaks from events"] {
        let found: HashMap<String, &Value> =
            answers[name].iter().map(|row| (key(row, &columns), &row["peak_live_allocated"])).collect();
        let mut compared = 0;
        for (key, peaks) in peaks.iter().filter(|(key, _)| !key.ends_with("\"pages\"")) {
            if let ([peak], Some(found)) = (&peaks[..], found.get(key)) {
                assert_eq!(*found, *peak, "{engine}, {name}: {key}");
                compared += 1;
            }
        }
        assert!(compared > 10, "{engine}, {name}: {compared} peaks");
    }
    Ok(())
}

/// The shell script of the document, as it stands.
fn ten_lines() -> Result<(), Skip> {
    let bin = environment("duckdb")?;
    let document = fs::read_to_string(page()).unwrap();
    let script = document.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert!(script.lines().count() <= 10, "{script}");
    let (hosts, dir) = (hosts(), Directory::on_disk());
    for (host, trace) in &hosts {
        std::os::unix::fs::symlink(trace.path(), dir.file(host)).unwrap();
    }
    let programs = program(REPORT);
    let path = std::env::join_paths([&bin, programs.parent().unwrap(), Path::new("/usr/bin"), Path::new("/bin")]);
    let mut command = Command::new("sh");
    let output = command.args(["-euc", script]).env("PATH", path.unwrap()).current_dir(dir.path()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains("+0x") && stdout.contains("wasted") && stdout.contains("kmalloc"), "{stdout}");
    Ok(())
}

/// Two boots of one kernel have their call-sites at other addresses: one row each. Two kernels have one row for each function.
fn boots_and_kernels() -> Result<(), Skip> {
    let bin = environment("duckdb")?;
    let options = Options { symbols: true, ..Options::plain(Shape::plain(), 2, 600) };
    let moved = Options { slide: 0x1200_0000, ..options.clone() };
    let fleet = Directory::on_disk();
    let mut rows = Vec::new();
    let older = Options { shape: Shape { era: Era::V6_1, ..Shape::plain() }, slide: 0x600_0000, ..options.clone() };
    for (host, options) in [("first", &options), ("second", &moved), ("third", &older)] {
        let trace = recording(7, options);
        export(fleet.path(), "sites", host, trace.path());
        for table in ["objects", "events"] {
            export(fleet.path(), table, host, trace.path());
        }
        rows.push(sites_of(host, trace.path()));
    }
    let of_symbols = |rows: &[Value]| rows.iter().filter(|row| !row["symbol"].is_null()).count();
    assert_ne!(rows[0][1]["call_site"], rows[1][1]["call_site"], "the kernel has moved");
    let answers = query("duckdb", &bin, fleet.path(), &["sites over hosts", "functions over kernels"]);
    let of_kernel = |row: &&Value| !row["symbol"].is_null() && row["kernel"] == rows[0][0]["kernel"];
    let merged: Vec<&Value> = answers["sites over hosts"].iter().filter(of_kernel).collect();
    assert_eq!(merged.len(), of_symbols(&rows[0]));
    assert!(merged.len() > 5 && merged.iter().all(|row| row["hosts"] == 2), "{merged:?}");
    let function = |row: &Value| {
        let symbol = row["symbol"].as_str()?;
        let name = symbol.rsplit_once("+0x").map_or(symbol, |(name, _)| name);
        Some((row["module"].to_string(), name.to_owned(), row["kind"].to_string()))
    };
    let functions: BTreeSet<_> = rows.iter().flatten().filter_map(function).collect();
    let answered: Vec<&Value> =
        answers["functions over kernels"].iter().filter(|row| !row["function"].is_null()).collect();
    assert_eq!(answered.len(), functions.len(), "a row for each function");
    assert!(answered.iter().any(|row| row["kernels"] == 2 && row["hosts"] == 3), "{answered:?}");
    Ok(())
}

/// Rows of `leaks` add up over hosts.
fn leaks_of_hosts() -> Result<(), Skip> {
    let bin = environment("duckdb")?;
    let fleet = Directory::new(&[]);
    let traces: Vec<Directory> =
        (0..40).map(|seed| Directory::new(&trace_dir(&workload_with_leaks(seed), seed))).collect();
    // The views of the document need a file of each table.
    TABLES.iter().for_each(|table| export(fleet.path(), table, "web-0", traces[0].path()));
    let (mut hosts, mut bytes) = (0, 0);
    for (seed, trace) in traces.iter().enumerate() {
        export(fleet.path(), "leaks", &format!("web-{seed}"), trace.path());
        let document = document(&["leaks"], trace.path());
        let rows = document["rows"].as_array().unwrap();
        let leaks = rows.iter().filter(|row| row["verdict"] == "leak");
        let of_host: Vec<u64> = leaks.map(|row| row["live_allocated"].as_u64().unwrap()).collect();
        hosts += usize::from(!of_host.is_empty());
        bytes += of_host.iter().sum::<u64>();
    }
    assert!(hosts > 1, "{hosts}");
    let answers = query("duckdb", &bin, fleet.path(), &["leaks over hosts"]);
    let sum = answers["leaks over hosts"].iter().map(|row| row["live_allocated"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum, bytes);
    Ok(())
}

/// Stacks of objects are those of folded stacks: live pages by stack are the same.
fn stacks_of_objects() -> Result<(), Skip> {
    let bin = environment("duckdb")?;
    let place = Directory::on_disk();
    let trace = archive::unpack("tree-stacks-amd64-6.1", place.path()).unwrap();
    let fleet = Directory::on_disk();
    TABLES.iter().for_each(|table| export(fleet.path(), table, "web-1", &trace));
    let answers = query("duckdb", &bin, fleet.path(), &["live pages by stack"]);
    let found: BTreeMap<String, u64> = answers["live pages by stack"]
        .iter()
        .map(|row| (row["stack"].as_str().unwrap().to_owned(), row["live_pages"].as_u64().unwrap() * 4096))
        .collect();
    let folded = run(REPORT, &["export", "--to", "folded", "--weight", "live"], &[&trace]);
    let folded = String::from_utf8(folded.stdout).unwrap();
    let line = |line: &str| line.rsplit_once(' ').map(|(stack, bytes)| (stack.to_owned(), bytes.parse().unwrap()));
    assert_eq!(found, folded.lines().filter_map(line).collect());
    assert!(found.len() > 3, "{found:?}");
    Ok(())
}

/// A full disk and a memory limit end an export with status 2, and without a file. One that is there stays.
fn whole_or_not_there() -> Result<(), Skip> {
    let (trace, dir) = (recording(5, &Options::plain(Shape::plain(), 2, 2000)), Directory::new(&[]));
    let export = |to: &str, file: &Path, arguments: &[&str]| {
        let to = format!("parquet-{to}");
        let arguments = [&["export", "--to", &to, "-o", file.to_str().unwrap()], arguments].concat();
        let output = run(REPORT, &arguments, &[trace.path()]);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for table in TABLES {
        let (status, message) = export(table, Path::new("/dev/full"), &["-f"]);
        assert!(status == Some(2) && message.contains("/dev/full: cannot be written"), "{table}: {message}");
        let file = dir.file(table);
        let (status, message) = export(table, &file, &["--max-memory", "1M"]);
        // Events are handed through, and none is kept.
        let is_kept = table != "events";
        assert_eq!((status, file.exists()), if is_kept { (Some(2), false) } else { (Some(0), true) }, "{message}");
        assert!(!is_kept || message.contains("memory"), "{table}: {message}");
        fs::write(&file, "mine").unwrap();
        let (status, _) = export(table, &file, &[]);
        assert_eq!((status, fs::read_to_string(&file).unwrap().as_str()), (Some(2), "mine"), "{table}");
        assert_eq!(export(table, &file, &["-f"]).0, Some(0));
        assert!(
            fs::read(&file).unwrap().starts_with(b"PAR1") && fs::read(&file).unwrap().ends_with(b"PAR1"),
            "{table}"
        );
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), TABLES.len(), "no unfinished file is left");
    Ok(())
}
