//! Crates that the programs are built from: no version in `Cargo.lock` is one that an advisory of the committed list warns of.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use semver::{Version, VersionReq};

/// An advisory of `docs/advisories.txt`.
struct Advisory<'a> {
    name: &'a str,
    id: &'a str,
    fixed: Vec<VersionReq>,
    unaffected: Vec<VersionReq>,
    what: &'a str,
}

fn workspace(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)).unwrap()
}

/// Names and versions of the crates in a lock file that come from a registry.
fn locked(lock: &str) -> Vec<(&str, Version)> {
    let member = |package: &'_ str, name: &str| -> Option<std::ops::Range<usize>> {
        let begin = package.find(&format!("\n{name} = \""))? + name.len() + 5;
        Some(begin..begin + package[begin..].find('"')?)
    };
    let packages = lock.split("[[package]]").skip(1).filter(|package| package.contains("\nsource = "));
    let read = |package| Some((member(package, "name")?, member(package, "version")?));
    packages
        .map(|package| {
            let (name, version) = read(package).unwrap();
            (&package[name], package[version].parse().unwrap())
        })
        .collect()
}

fn requirements(text: &str) -> Vec<VersionReq> {
    text.split(" | ").filter(|one| *one != "-").map(|one| one.parse().unwrap()).collect()
}

impl<'a> Advisory<'a> {
    fn of_line(line: &'a str) -> Advisory<'a> {
        let [name, id, fixed, unaffected, what] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        Advisory { name, id, fixed: requirements(fixed), unaffected: requirements(unaffected), what }
    }
}

fn advisories(list: &str) -> Vec<Advisory<'_>> {
    let lines = list.lines().filter(|line| !line.starts_with('#') && !line.starts_with("crates "));
    lines.map(Advisory::of_line).collect()
}

impl Advisory<'_> {
    fn warns_of(&self, version: &Version) -> bool {
        let is_accepted = self.fixed.is_empty() && self.what.contains("(accepted: ");
        !is_accepted && !self.fixed.iter().chain(&self.unaffected).any(|good| good.matches(version))
    }
}

#[test]
fn no_crate_is_one_that_an_advisory_warns_of() {
    let (lock, list) = (workspace("Cargo.lock"), workspace("docs/advisories.txt"));
    let (locked, advisories) = (locked(&lock), advisories(&list));
    assert!(locked.len() > 100 && advisories.len() > 20);
    for (name, version) in &locked {
        for advisory in advisories.iter().filter(|advisory| advisory.name == *name) {
            assert!(!advisory.warns_of(version), "{name} {version}: {}: {}", advisory.id, advisory.what);
        }
    }
    // Versions that are known to be bad.
    for (name, version) in [("crossbeam-channel", "0.5.14"), ("smallvec", "0.6.5"), ("generic-array", "0.12.3")] {
        let version = version.parse().unwrap();
        assert!(advisories.iter().any(|advisory| advisory.name == name && advisory.warns_of(&version)), "{name}");
    }
}

#[test]
fn each_crate_was_looked_up() {
    let (lock, list) = (workspace("Cargo.lock"), workspace("docs/advisories.txt"));
    let looked_up: BTreeSet<&str> =
        list.lines().filter_map(|line| line.strip_prefix("crates ")).flat_map(|names| names.split(' ')).collect();
    let missing: BTreeSet<&str> =
        locked(&lock).into_iter().map(|(name, _)| name).filter(|name| !looked_up.contains(name)).collect();
    assert!(missing.is_empty(), "look for advisories on these crates and add them to docs/advisories.txt: {missing:?}");
}

/// `fuzz` has a lock file of its own, and no test builds it.
#[test]
fn the_lock_file_of_fuzz_has_what_our_crates_need() {
    let lock = workspace("fuzz/Cargo.lock");
    let is_plain = |line: &&str| !line.contains("optional = true") && line.contains('=') && !line.starts_with('#');
    let mut seen = 0;
    for package in lock.split("[[package]]").skip(1).filter(|package| !package.contains("\nsource = ")) {
        let name = package.split('"').nth(1).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let short = name.strip_prefix("kmemtrace-").unwrap_or(name);
        let folders = [short, name, if name == "kmemtrace" { "analysis" } else { short }];
        let manifests = folders.map(|folder| fs::read_to_string(root.join(folder).join("Cargo.toml")));
        let manifest = manifests.into_iter().find_map(Result::ok).unwrap_or_else(|| panic!("where is {name}?"));
        let needed = manifest.split("\n[").find_map(|section| section.strip_prefix("dependencies]\n")).unwrap_or("");
        for line in needed.lines().filter(is_plain) {
            let needed = line.split(['=', '.', ' ']).next().unwrap();
            let is_there =
                package.contains(&format!("\n \"{needed}\"")) || package.contains(&format!("\n \"{needed} "));
            assert!(is_there, "fuzz/Cargo.lock lacks {needed} of {name}: run cargo update --workspace in fuzz");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}
