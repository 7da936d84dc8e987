//! Recordings of other programs, for comparison.

use std::path::Path;
use std::process::Command;

/// Events and lost events of a perf recording; not a number where perf does not print them.
pub fn perf_events(data: &Path) -> (f64, f64) {
    let stats = Command::new("perf").args(["report", "--stats", "-i"]).arg(data).output();
    let stats = stats.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    // perf prints totals over all events, where records of loss are counted, and then each event's, where their sums
    // are.
    let numbers = |name: &str| -> Vec<f64> {
        let numbers = stats.lines().filter_map(|line| line.trim().strip_prefix(name)?.split_whitespace().next());
        numbers.filter_map(|number| number.parse().ok()).collect()
    };
    let samples = numbers("SAMPLE events:").first().copied().unwrap_or(f64::NAN);
    let lost = numbers("LOST_SAMPLES events:").iter().skip(1).fold(0.0, |sum, n| sum + n);
    (samples, lost)
}

/// Events and lost events of a trace-cmd recording; none where trace-cmd does not print them.
pub fn trace_cmd_events(data: &Path) -> (f64, f64) {
    let stats = Command::new("trace-cmd").args(["report", "--stat", "-i"]).arg(data).output();
    let stats = stats.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    // trace-cmd prints each CPU's events at the end; some were still in the kernel's buffer, to be taken last.
    let sum = |name: &str| -> f64 {
        stats.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok()).sum()
    };
    (sum("entries:") + sum("read events:"), sum("overrun:"))
}
