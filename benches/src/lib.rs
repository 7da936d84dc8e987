//! Shared parts of the benchmarks: tables, resources of commands and threads, and limits of the machine.
//!
//! Every figure stands beside a limit of the machine, measured in the same run on the same load: machines differ, and
//! one machine differs from hour to hour, so only the ratios are worth keeping.

pub mod child;
pub mod limits;
pub mod others;

use std::fs;
use std::path::Path;
use std::process::Command;

use comfy_table::{CellAlignment, Table, presets};

/// Prints a table of right-aligned figures after a left-aligned name.
pub fn table(title: &str, head: &[&str], rows: &[Vec<String>]) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head);
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("\n{title}\n{table}");
}

/// Median of the values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Processor time of the live threads of a process, ns (`/proc/PID/task/*/schedstat`).
pub fn cpu_ns(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let times = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    times.sum()
}

/// Builds the commands in the profile that benchmarks run in.
pub fn build() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(["build", "--release", "--workspace", "--locked", "-q"]).status();
    assert!(status.is_ok_and(|status| status.success()), "cargo build --release has failed");
}

/// Command pinned to one processor.
pub fn on_one_core(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(program).args(arguments);
    command
}

/// Seconds for one run of a load, from `KMEMTRACE_BENCH_SECONDS`.
pub fn seconds(usual: u64) -> u64 {
    std::env::var("KMEMTRACE_BENCH_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
