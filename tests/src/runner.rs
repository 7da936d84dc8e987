//! Test runner for tests that not every machine can run. A test that cannot run is counted and listed as skipped with
//! its reason at the end; it never passes quietly.
//!
//! Arguments are those of `cargo test -- …` that make sense here: names to select by, `--exact`, `--skip NAME`,
//! `--list`. With `KMEMTRACE_NO_SKIP=1` a skipped test is a failed one.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::Instant;

/// Reason why a test cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(pub String);

/// Test with its name; a panic is a failure.
pub type Test = (&'static str, fn() -> Result<(), Skip>);

/// `TESTS` of a module, for [`main`]: the names of its test functions, or `name => function`.
#[macro_export]
macro_rules! tests {
    ($($name:ident $(=> $test:expr)?),* $(,)?) => {
        pub(crate) const TESTS: &[$crate::runner::Test] =
            &[$((concat!(module_path!(), "::", stringify!($name)), $crate::tests!(@ $name $($test)?))),*];
    };
    (@ $name:ident) => { $name };
    (@ $name:ident $test:expr) => { $test };
}

/// Runs the tests of these modules that the command line selects, one after the other. A test's name is its path in the
/// program: `module::test`.
pub fn main(modules: &[&[Test]]) -> ExitCode {
    let selection = Selection::parse(std::env::args().skip(1));
    let tests =
        modules.concat().into_iter().map(|(path, test)| (path.split_once("::").map_or(path, |(_, name)| name), test));
    let selected: Vec<Test> = tests.filter(|(name, _)| selection.takes(name)).collect();
    if selection.list {
        selected.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let strict = std::env::var_os("KMEMTRACE_NO_SKIP").is_some();
    println!("\nrunning {} tests", selected.len());
    let (mut passed, mut failed, mut skipped) = (0, Vec::new(), Vec::new());
    let begin = Instant::now();
    for (name, test) in selected {
        let begin = Instant::now();
        match catch_unwind(test) {
            Ok(Ok(())) => {
                println!("test {name} ... ok ({:.1} s)", begin.elapsed().as_secs_f64());
                passed += 1;
            }
            Ok(Err(Skip(reason))) if !strict => {
                println!("test {name} ... skipped");
                skipped.push((name, reason));
            }
            Ok(Err(Skip(reason))) => {
                println!("test {name} ... FAILED: must not be skipped ({reason})");
                failed.push(name);
            }
            // The panic has already printed the reason.
            Err(_) => {
                println!("test {name} ... FAILED");
                failed.push(name);
            }
        }
    }
    println!();
    failed.iter().for_each(|name| println!("failed: {name}"));
    skipped.iter().for_each(|(name, reason)| println!("skipped: {name}: {reason}"));
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    let (failures, skips, seconds) = (failed.len(), skipped.len(), begin.elapsed().as_secs_f64());
    println!(
        "test result: {verdict}. {passed} passed; {failures} failed; {skips} skipped; finished in {seconds:.1} s\n"
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[derive(Debug, Default)]
struct Selection {
    list: bool,
    exact: bool,
    /// `--ignored`: no test is marked so, so none runs.
    none: bool,
    names: Vec<String>,
    without: Vec<String>,
}

impl Selection {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Selection {
        let mut selection = Selection::default();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => selection.list = true,
                "--exact" => selection.exact = true,
                "--ignored" => selection.none = true,
                "--skip" => selection.without.extend(arguments.next()),
                "--test-threads" | "--format" | "--color" | "--logfile" => drop(arguments.next()),
                option if option.starts_with('-') => {}
                name => selection.names.push(name.to_owned()),
            }
        }
        selection
    }

    fn takes(&self, name: &str) -> bool {
        let matches = |wanted: &String| if self.exact { name == wanted } else { name.contains(wanted.as_str()) };
        let wanted = self.names.is_empty() || self.names.iter().any(matches);
        !self.none && wanted && !self.without.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_selected_as_cargo_selects_them() {
        let takes = |arguments: &[&str], name| Selection::parse(arguments.iter().map(|a| (*a).to_owned())).takes(name);
        assert!(takes(&[], "live_iov"));
        assert!(takes(&["--nocapture", "--test-threads", "1", "iov"], "live_iov"));
        assert!(!takes(&["leak"], "live_iov"));
        assert!(!takes(&["--exact", "iov"], "live_iov"));
        assert!(!takes(&["--skip", "iov"], "live_iov"));
        assert!(!takes(&["--ignored"], "live_iov"));
    }
}
