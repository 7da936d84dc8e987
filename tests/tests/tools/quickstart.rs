//! `quickstart` on machines that lack a toolchain or have an old one. Package manager, rustup, download and compiler are
//! scripts of the test; each writes a line to standard error, among the lines of `quickstart`.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kmemtrace_tests::programs::program;
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

/// Programs of the system that the script and the scripts of this test call.
const TOOLS: [&str; 13] =
    ["bash", "sh", "env", "dirname", "sed", "awk", "grep", "sort", "mktemp", "rm", "cat", "cp", "chmod"];
/// Line with which a run ends that could record nothing but has built the programs.
const BUILT: &str = "here is a small recording of another machine instead";

kmemtrace_tests::tests![
    a_toolchain_that_is_new_enough_is_used_as_it_is,
    an_old_cargo_is_replaced_by_the_distributions,
    an_old_distribution_gives_its_rustup,
    a_rustup_that_is_there_keeps_its_default,
    the_installer_asks_and_a_no_is_taken,
    where_nothing_can_be_reached_a_line_says_what_to_do => where_nothing_can_be_reached,
    without_root_no_package_is_touched,
];

/// Machine with a user, candidates of its package manager, and a network or none.
struct Machine {
    directory: Directory,
}

impl Machine {
    fn new(user: u32) -> Machine {
        let machine = Machine { directory: Directory::new(&[]) };
        for folder in ["bin", "packages", "of-rustup", "home", "target/release"] {
            fs::create_dir_all(machine.path(folder)).unwrap();
        }
        for tool in TOOLS {
            let places = ["/usr/bin", "/bin"].map(|folder| Path::new(folder).join(tool));
            let place = places.iter().find(|place| place.exists());
            symlink(place.unwrap_or_else(|| panic!("no {tool}")), machine.path("bin").join(tool)).unwrap();
        }
        for name in ["kmemtrace-check", "kmemtrace-report"] {
            symlink(program(name), machine.path("target/release").join(name)).unwrap();
        }
        // A recorder that finds no tracefs: nothing is recorded.
        machine.script("target/release/kmemtraced", "exit 2");
        machine.script("bin/id", &format!("echo {user}"));
        machine.script("bin/cc", "exit 0");
        machine.script("bin/apt-get", APT_GET);
        machine.script("bin/apt-cache", APT_CACHE);
        machine.script("bin/curl", CURL);
        for (name, body) in [("rustup", RUSTUP), ("cargo", CARGO), ("rustc", RUSTC_OF_RUSTUP)] {
            machine.script(&format!("of-rustup/{name}"), body);
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn script(&self, name: &str, body: &str) {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    /// Toolchain in PATH, without a rustup.
    fn with_rust(self, version: &str) -> Machine {
        self.script("bin/cargo", CARGO);
        self.script("bin/rustc", &format!("echo 'rustc {version} (test)'"));
        self
    }

    /// Rustup with a default toolchain.
    fn with_rustup(self, version: &str) -> Machine {
        self.script("bin/rustup", RUSTUP);
        self.script("bin/cargo", CARGO);
        self.script("bin/rustc", RUSTC_OF_RUSTUP);
        fs::write(self.path("default"), version).unwrap();
        self
    }

    /// Package that the package manager has in this version.
    fn with_package(self, name: &str, version: &str) -> Machine {
        fs::write(self.path("packages").join(name), version).unwrap();
        self
    }

    fn with_network(self) -> Machine {
        fs::write(self.path("network"), "").unwrap();
        self
    }

    /// Runs the script: exit status and the lines of standard error.
    fn quickstart(&self, answer: &str) -> (i32, Vec<String>) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../quickstart");
        let mut command = Command::new(self.path("bin/bash"));
        command.arg(script).env_clear().env("PATH", self.path("bin")).env("HOME", self.path("home"));
        command.env("MACHINE", self.directory.path()).env("CARGO_TARGET_DIR", self.path("target"));
        let answers = self.path("answer");
        fs::write(&answers, answer).unwrap();
        let output = command.stdin(fs::File::open(answers).unwrap()).stdout(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        if stderr.contains(BUILT) {
            assert!(String::from_utf8_lossy(&output.stdout).contains("COMPLETE"), "no report: {stderr}");
        }
        (output.status.code().unwrap(), stderr.lines().map(str::to_owned).collect())
    }
}

const CARGO: &str = r#"echo "ran: cargo $* of ${RUSTUP_TOOLCHAIN-default}" >&2"#;

const RUSTC_OF_RUSTUP: &str = r#"
version=$(cat "$MACHINE/${RUSTUP_TOOLCHAIN-default}" 2>/dev/null) || exit 1
echo "rustc $version (test)""#;

const RUSTUP: &str = r#"
case $1 in
run) version=$(cat "$MACHINE/$2" 2>/dev/null) && echo "rustc $version (test)" ;;
toolchain)
	echo "ran: rustup $*" >&2
	[ -f "$MACHINE/network" ] && echo 1.95.0 >"$MACHINE/stable" ;;
*) echo "ran: rustup $*" >&2; exit 1 ;;
esac"#;

/// `install` gives what the real packages give: of cargo and rustc a toolchain, of rustup its own and two proxies.
const APT_GET: &str = r#"
[ "$1" = install ] || exit 0
echo "ran: apt-get $*" >&2
case "$*" in
*" cargo rustc"*)
	printf '#!/bin/sh\necho "ran: cargo $* of default" >&2\n' >"$MACHINE/bin/cargo"
	printf '#!/bin/sh\necho "rustc %s (test)"\n' "$(cat "$MACHINE/packages/rustc")" >"$MACHINE/bin/rustc"
	chmod +x "$MACHINE/bin/cargo" "$MACHINE/bin/rustc" ;;
*" rustup"*)
	cp "$MACHINE/of-rustup/rustup" "$MACHINE/of-rustup/cargo" "$MACHINE/of-rustup/rustc" "$MACHINE/bin" ;;
esac"#;

const APT_CACHE: &str = r#"
echo "$2:"
echo "  Installed: (none)"
echo "  Candidate: $(cat "$MACHINE/packages/$2" 2>/dev/null || echo '(none)')""#;

/// Fetches an installer that asks on standard input.
const CURL: &str = r#"
for last; do :; done
echo "ran: curl $last" >&2
[ -f "$MACHINE/network" ] || exit 6
while [ "$1" != -o ]; do shift; done
cat >"$2" <<'END'
read -r answer
echo "ran: installer, answered $answer" >&2
[ "$answer" = yes ] || exit 1
cp "$MACHINE/of-rustup/rustup" "$MACHINE/of-rustup/cargo" "$MACHINE/of-rustup/rustc" "$MACHINE/bin"
echo 1.95.0 >"$MACHINE/default"
END"#;

/// Place of the only line that contains `text`.
fn line(lines: &[String], text: &str) -> usize {
    let found: Vec<usize> = (0..lines.len()).filter(|&at| lines[at].contains(text)).collect();
    assert_eq!(found.len(), 1, "lines with {text:?} in {lines:#?}");
    found[0]
}

fn assert_none(lines: &[String], text: &str) {
    assert!(!lines.iter().any(|line| line.contains(text)), "a line with {text:?} in {lines:#?}");
}

fn a_toolchain_that_is_new_enough_is_used_as_it_is() -> Result<(), Skip> {
    for version in ["1.89.0", "1.97.0-nightly", "2.0.0"] {
        let machine = Machine::new(0).with_rust(version).with_package("rustc", "1.99.0").with_network();
        let (status, lines) = machine.quickstart("");
        assert_eq!(status, 0, "{lines:#?}");
        assert!(lines[0].starts_with("ran: cargo build"), "{lines:#?}");
        assert_eq!(line(&lines, BUILT), 1, "{lines:#?}");
    }
    Ok(())
}

fn an_old_cargo_is_replaced_by_the_distributions() -> Result<(), Skip> {
    let machine = Machine::new(0).with_rust("1.63.0").with_package("cargo", "1.97.0+dfsg1-1").with_network();
    let machine = machine.with_package("rustc", "1.97.0+dfsg1-1").with_package("rustup", "1.27.1-3");
    let (status, lines) = machine.quickstart("");
    assert_eq!(status, 0, "{lines:#?}");
    assert_eq!(line(&lines, "Rust 1.63.0 is too old"), 0, "{lines:#?}");
    assert_eq!(line(&lines, "ran: apt-get install"), 1, "{lines:#?}");
    assert!(lines[0].contains("cargo and rustc 1.97.0"), "{lines:#?}");
    line(&lines, "ran: cargo build");
    line(&lines, BUILT);
    assert_none(&lines, "rustup");
    Ok(())
}

fn an_old_distribution_gives_its_rustup() -> Result<(), Skip> {
    for version in [None, Some("1.85.0")] {
        let machine = Machine::new(0).with_package("cargo", "1.85.0").with_package("rustc", "1.85.0+dfsg3-1");
        let machine = machine.with_package("rustup", "1.27.1-3").with_network();
        let machine = if let Some(version) = version { machine.with_rust(version) } else { machine };
        let (status, lines) = machine.quickstart("");
        assert_eq!(status, 0, "{lines:#?}");
        assert!(line(&lines, "distribution's rustup") < line(&lines, "ran: apt-get install"), "{lines:#?}");
        assert!(line(&lines, "ran: rustup toolchain install stable") < line(&lines, "ran: cargo build"), "{lines:#?}");
        line(&lines, "of stable");
        assert_none(&lines, "ran: curl");
    }
    Ok(())
}

fn a_rustup_that_is_there_keeps_its_default() -> Result<(), Skip> {
    let machine = Machine::new(0).with_rustup("1.70.0").with_package("rustup", "1.27.1-3").with_network();
    let (status, lines) = machine.quickstart("");
    assert_eq!(status, 0, "{lines:#?}");
    assert!(
        line(&lines, "Rust 1.70.0 is too old") < line(&lines, "ran: rustup toolchain install stable"),
        "{lines:#?}"
    );
    line(&lines, "of stable");
    assert_none(&lines, "ran: apt-get");
    assert_eq!(machine.directory.text("default"), "1.70.0");
    // The second time all is there.
    let (status, lines) = machine.quickstart("");
    assert_eq!(status, 0, "{lines:#?}");
    assert_none(&lines, "ran: rustup");
    line(&lines, "of stable");

    let machine = Machine::new(0).with_rustup("1.70.0").with_package("rustup", "1.27.1-3");
    let (status, lines) = machine.quickstart("");
    assert_eq!(status, 2, "{lines:#?}");
    assert!(lines.last().unwrap().contains("install Rust 1.89 or later"), "{lines:#?}");
    Ok(())
}

fn the_installer_asks_and_a_no_is_taken() -> Result<(), Skip> {
    for (answer, wanted) in [("yes\n", 0), ("no\n", 2), ("", 2)] {
        let machine = Machine::new(0).with_package("cargo", "0.66.0").with_package("rustc", "1.63.0+dfsg1-2");
        let (status, lines) = machine.with_network().quickstart(answer);
        assert_eq!(status, wanted, "{lines:#?}");
        assert_eq!(line(&lines, "which asks before it installs"), 0, "{lines:#?}");
        line(&lines, "ran: installer");
        assert_none(&lines, "ran: apt-get");
        if wanted == 0 {
            line(&lines, BUILT);
        } else {
            assert_none(&lines, "ran: cargo");
            assert!(lines.last().unwrap().contains("has installed nothing: install Rust 1.89 or later"), "{lines:#?}");
        }
    }
    Ok(())
}

fn where_nothing_can_be_reached() -> Result<(), Skip> {
    for version in [None, Some("1.88.0")] {
        let machine = Machine::new(0);
        let machine = if let Some(version) = version { machine.with_rust(version) } else { machine };
        let (status, lines) = machine.quickstart("");
        assert_eq!(status, 2, "{lines:#?}");
        let last = lines.last().unwrap();
        assert!(last.starts_with("quickstart: ") && last.contains("cannot be reached"), "{lines:#?}");
        assert!(last.contains("install Rust 1.89 or later"), "{lines:#?}");
        assert_none(&lines, "ran: cargo");
    }
    Ok(())
}

fn without_root_no_package_is_touched() -> Result<(), Skip> {
    let machine = Machine::new(1000).with_package("cargo", "1.97.0").with_package("rustc", "1.97.0").with_network();
    let (status, lines) = machine.quickstart("yes\n");
    assert_eq!(status, 0, "{lines:#?}");
    line(&lines, "ran: installer");
    assert_none(&lines, "ran: apt-get");

    let machine = Machine::new(1000).with_rust("1.95.0");
    fs::remove_file(machine.path("bin/cc")).unwrap();
    let (status, lines) = machine.quickstart("");
    assert_eq!(status, 2, "{lines:#?}");
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("install gcc and libc6-dev"), "{lines:#?}");
    Ok(())
}
