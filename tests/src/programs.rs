//! Runs of the programs, and comparison of their JSON with expected values.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Path of one of the project's programs, built in the profile of the running test, or in the directory `KMEMTRACE_PROGRAMS`: tests then
/// tell what other programs do.
pub fn program(name: &str) -> PathBuf {
    if let Some(dir) = std::env::var_os("KMEMTRACE_PROGRAMS") {
        let other = Path::new(&dir).join(name);
        if other.is_file() {
            return other;
        }
    }
    let test = std::env::current_exe().unwrap_or_default();
    // Layout: target/PROFILE/deps/TEST.
    let path = test.parent().and_then(Path::parent).map(|dir| dir.join(name)).unwrap_or_default();
    assert!(path.is_file(), "{} is not built: run `cargo build --workspace` first", path.display());
    path
}

/// Command limited to `threads` threads, the first one among them; uses util-linux, which every Debian has.
pub fn limited(program: impl AsRef<OsStr>, threads: u32) -> Command {
    // The kernel exempts root from the limit, so root runs the program as another real user without the capabilities.
    let is_root = rustix::process::getuid().is_root();
    let mut command = Command::new(if is_root { "setpriv" } else { "prlimit" });
    if is_root {
        command.args(["--ruid=64242", "--bounding-set=-sys_resource,-sys_admin", "prlimit"]);
    }
    command.arg(format!("--nproc={threads}")).arg(program);
    command
}

pub fn run(name: &str, arguments: &[&str], paths: &[&Path]) -> Output {
    let output = Command::new(program(name)).args(arguments).args(paths).output();
    output.unwrap()
}

/// Runs a program that must exit with `status`; returns its standard output.
pub fn run_to(status: i32, name: &str, arguments: &[&str], paths: &[&Path]) -> Vec<u8> {
    let output = run(name, arguments, paths);
    assert_eq!(
        output.status.code(),
        Some(status),
        "{name} {arguments:?} {paths:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

/// Runs a program that must end within `limit`.
pub fn run_within(limit: Duration, name: &str, arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(program(name));
    command.args(arguments).args(paths).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let until = Instant::now() + limit;
    while let Ok(None) = child.try_wait() {
        if Instant::now() > until {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{name} {arguments:?} {paths:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

pub fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|error| panic!("no JSON ({error}): {}", String::from_utf8_lossy(bytes)))
}

/// JSON values in `bytes`, one a line.
pub fn json_lines(bytes: &[u8]) -> Vec<Value> {
    bytes.split(|&b| b == b'\n').filter(|line| !line.is_empty()).map(json).collect()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard error of a program that must have ended with `status`.
pub fn stderr(status: i32, output: &Output) -> String {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    stderr
}

/// JSON document of the report, with a view and options.
pub fn document(arguments: &[&str], trace: &Path) -> Value {
    json(&run_to(0, "kmemtrace-report", &[arguments, &["--format", "json"]].concat(), &[trace]))
}

/// JSON document of check, whatever its verdict.
pub fn check(trace: &Path) -> Value {
    json(&run("kmemtrace-check", &["--format", "json"], &[trace]).stdout)
}

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

/// Waits for a condition; a minute is more than a busy machine takes.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not after a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Differences of `found` from `expected`, each a path and the two values. Expected members must be there and equal;
/// others may be there too, since fields may be added.
pub fn differences(expected: &Value, found: &Value) -> Vec<String> {
    let mut out = Vec::new();
    compare("$", expected, found, &mut out);
    out
}

fn compare(path: &str, expected: &Value, found: &Value, out: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            for (name, value) in a {
                match b.get(name) {
                    Some(other) => compare(&format!("{path}.{name}"), value, other, out),
                    None => out.push(format!("{path}.{name}: missing, expected {value}")),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                out.push(format!("{path}: {} elements, expected {}", b.len(), a.len()));
            }
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{i}]"), a, b, out);
            }
        }
        _ if expected == found => {}
        _ => out.push(format!("{path}: {found}, expected {expected}")),
    }
}

/// Bytes that a running program has written to the unfinished file in a directory; `None` while it has none open. Such a file has no
/// name, or where the file system knows none without, one with a mark and a hyphen.
pub fn unfinished(pid: u32, dir: &Path) -> Option<u64> {
    let dir = dir.canonicalize().ok()?;
    let is_unfinished = |target: &Path| {
        let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let is_nameless = name.starts_with('#') && name.ends_with(" (deleted)");
        target.parent() == Some(&dir) && (is_nameless || name.contains(".writing-") || name.contains(".packing-"))
    };
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().map(|entry| entry.path());
    let mut open = open.filter(|path| fs::read_link(path).is_ok_and(|target| is_unfinished(&target)));
    Some(fs::metadata(open.next()?).ok()?.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn added_members_are_no_difference_and_all_others_are() {
        let expected = json!({ "a": 1, "rows": [{ "b": null }] });
        assert_eq!(differences(&expected, &json!({ "a": 1, "rows": [{ "b": null, "c": 2 }], "d": 3 })), [""; 0]);
        for found in [
            json!({ "rows": [{ "b": null }] }),
            json!({ "a": 2, "rows": [{ "b": null }] }),
            json!({ "a": "1", "rows": [{ "b": null }] }),
            json!({ "a": 1, "rows": [{}] }),
            json!({ "a": 1, "rows": [{ "b": 0 }] }),
            json!({ "a": 1, "rows": [] }),
            json!({ "a": 1, "rows": [{ "b": null }, { "b": null }] }),
        ] {
            assert_eq!(differences(&expected, &found).len(), 1, "{found}");
        }
    }
}
