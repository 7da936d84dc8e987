//! What recordings of other programs have, where they stand beside ours.

use std::path::Path;
use std::process::Command;

/// Events of a recording of perf, and how many it has lost; not a number where perf does not tell.
pub fn perf_events(data: &Path) -> (f64, f64) {
    let stats = Command::new("perf").args(["report", "--stats", "-i"]).arg(data).output();
    let stats = stats.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    // First of all events together, where records of loss are counted, then of each, where their sums are.
    let numbers = |name: &str| -> Vec<f64> {
        let numbers = stats.lines().filter_map(|line| line.trim().strip_prefix(name)?.split_whitespace().next());
        numbers.filter_map(|number| number.parse().ok()).collect()
    };
    let samples = numbers("SAMPLE events:").first().copied().unwrap_or(f64::NAN);
    let lost = numbers("LOST_SAMPLES events:").iter().skip(1).fold(0.0, |sum, n| sum + n);
    (samples, lost)
}

/// Events of a recording of trace-cmd, and how many it has lost; none where trace-cmd does not tell.
pub fn trace_cmd_events(data: &Path) -> (f64, f64) {
    let stats = Command::new("trace-cmd").args(["report", "--stat", "-i"]).arg(data).output();
    let stats = stats.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    // Of each CPU at the end, when some were still in the kernel's buffer, to be taken last.
    let sum = |name: &str| -> f64 {
        stats.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok()).sum()
    };
    (sum("entries:") + sum("read events:"), sum("overrun:"))
}
