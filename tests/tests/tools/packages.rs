//! Packages, made of stand-ins for the programs: what is in them, and that two builds are equal.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kmemtrace_tests::programs::{json, program, text};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;

const PROGRAMS: [&str; 4] = ["kmemtrace", "kmemtraced", "kmemtrace-check", "kmemtrace-report"];

kmemtrace_tests::tests![
    two_packages_for_debian_are_equal_and_whole => || two_are_equal_and_whole("deb", "dpkg-deb", listed_by_dpkg),
    two_packages_for_rpm_are_equal_and_whole => || {
        runs::before_a_release()?;
        two_are_equal_and_whole("rpm", "rpmbuild", listed_by_rpm)
    },
    the_sbom_has_each_crate_of_the_programs,
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn has(program: &str) -> Result<(), Skip> {
    let found = Command::new(program).arg("--version").output();
    found.map(|_| ()).map_err(|_| Skip(format!("{program} is not installed")))
}

/// Makes a package in a folder, of programs that do nothing.
fn package(kind: &str) -> Result<(Directory, PathBuf), Skip> {
    let place = Directory::on_disk();
    fs::create_dir(place.file("programs")).unwrap();
    for name in PROGRAMS {
        fs::copy("/bin/true", place.file("programs").join(name))
            .map_err(|error| Skip(format!("/bin/true: {error}")))?;
    }
    let mut build = Command::new(root().join("contrib/packages/build"));
    build.arg("--programs").arg(place.file("programs")).arg("--output").arg(place.file("out")).arg(kind);
    build.arg("--manual").arg(program("kmemtrace-manual"));
    let output = build.env("SOURCE_DATE_EPOCH", "1700000000").output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let made = fs::read_dir(place.file("out")).unwrap().map(|entry| entry.unwrap().path());
    let made = made.filter(|path| path.extension().is_some_and(|end| end == kind)).collect::<Vec<_>>();
    let [package] = &made[..] else { panic!("{made:?}") };
    let sums = fs::read_to_string(place.file("out/SHA256SUMS")).unwrap();
    assert!(sums.contains(package.file_name().unwrap().to_str().unwrap()), "{sums}");
    Ok((place, package.clone()))
}

fn printed(program: &str, words: &[&str], package: &Path) -> String {
    let output = Command::new(program).args(words).arg(package).output().unwrap();
    assert!(output.status.success(), "{program}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Files of the package, and its script for removal.
fn listed_by_dpkg(package: &Path) -> (String, String) {
    (printed("dpkg-deb", &["--contents"], package), printed("dpkg-deb", &["--info"], package) + &prerm(package))
}

fn prerm(package: &Path) -> String {
    let output = Command::new("dpkg-deb").arg("--info").arg(package).arg("prerm").output().unwrap();
    text(&output.stdout)
}

fn listed_by_rpm(package: &Path) -> (String, String) {
    (printed("rpm", &["-qp", "--list"], package), printed("rpm", &["-qp", "--scripts"], package))
}

fn two_are_equal_and_whole(kind: &str, tool: &str, listed: fn(&Path) -> (String, String)) -> Result<(), Skip> {
    for tool in [tool, "python3", "git", "objdump"] {
        has(tool)?;
    }
    let ((_a, first), (_b, second)) = (package(kind)?, package(kind)?);
    assert!(fs::read(&first).unwrap() == fs::read(&second).unwrap(), "two builds of {kind} differ");
    let (files, scripts) = listed(&first);
    let expected = [
        "/usr/bin/kmemtrace-report",
        "/usr/bin/kmemtraced",
        "/usr/share/man/man1/kmemtrace.1.gz",
        "/usr/share/man/man5/kmemtrace.data.5.gz",
        "/usr/share/man/man8/kmemtraced-doctor.8.gz",
        "/usr/share/bash-completion/completions/kmemtrace-check",
        "/usr/share/fish/vendor_completions.d/kmemtrace.fish",
        "/_kmemtraced",
        "/usr/lib/dracut/modules.d/99kmemtrace/module-setup.sh",
        "/usr/share/doc/kmemtrace/copyright",
        "/usr/share/doc/kmemtrace/sbom.cdx.json",
    ];
    for file in expected {
        assert!(files.contains(file), "{file} is not in {files}");
    }
    assert!(scripts.contains("kmemtraced recover"), "{scripts}");
    Ok(())
}

fn the_sbom_has_each_crate_of_the_programs() -> Result<(), Skip> {
    has("python3")?;
    let made = Command::new(root().join("contrib/packages/inventory")).arg("sbom").output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let document = json(&made.stdout);
    let listed: BTreeSet<String> = document["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|component| {
            let expression = component["licenses"][0]["expression"].as_str();
            assert!(expression.is_some_and(|expression| !expression.is_empty()), "{component}");
            format!("{} v{}", component["name"].as_str().unwrap(), component["version"].as_str().unwrap())
        })
        .collect();
    for name in ["kmemtrace-cli", "kmemtraced", "kmemtrace-check", "kmemtrace-report"] {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["tree", "--locked", "-p", name, "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
        let tree = cargo.current_dir(root()).output().unwrap();
        assert!(tree.status.success(), "{}", text(&tree.stderr));
        for line in text(&tree.stdout).lines().filter(|line| !line.is_empty()) {
            let package = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
            assert!(listed.contains(&package), "{package} is not listed");
        }
    }
    Ok(())
}
