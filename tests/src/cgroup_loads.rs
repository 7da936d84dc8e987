//! Loads in many memory cgroups of a guest: live bytes of accounted objects are held against the kernel's own account.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use crate::guest::{Guest, checked, project};
use crate::kernels::Kernel;
use crate::programs::{document, text};
use crate::recording::Directory;
use crate::runner::Skip;

/// Memory cgroups of the guest.
const GROUPS: u64 = 50;
/// Largest difference between our live bytes and the kernel's: the larger of a share of the kernel's, and bytes. The kernel counts 8 bytes
/// more for each object (`obj_full_size`, `mm/slub.c`), and keeps up to a page for each CPU to itself.
const SHARE: u64 = 20;
const BYTES: u64 = 64 << 10;

/// Tasks come into a cgroup in four ways: moved by themselves, put there by `clone3`, started by a task of either kind. One load of five
/// ends, and leaves files; one cgroup of five has its task killed before the end. `before` and `after` have `NAME slab BYTES`.
const SCRIPT: &str = "
    ulimit -n 8192
    groups=/tmp/group
    mkdir $groups /tmp/files
    mount -t cgroup2 none $groups
    mount -t tmpfs none /tmp/files
    echo +memory >$groups/cgroup.subtree_control
    numbers=$(seq 50)
    for n in $numbers; do mkdir $groups/load$n; done
    slab() { for n in $numbers; do echo load$n $(grep '^slab ' $groups/load$n/memory.stat); done; }
    kmemtraced -o /out/trace 2>/tmp/messages &
    recorder=$!
    recording /tmp/messages
    slab >/out/before
    cd /tmp/files
    for n in $numbers; do
        group=$groups/load$n
        count=$((200 + n * 20))
        enter=\"echo \\$\\$ >$group/cgroup.procs\"
        case $((n % 5)) in
        0) sh -c \"$enter; exec kmemload hold pipes $count\" ;;
        1) into-cgroup $group kmemload hold pipes $count ;;
        2) sh -c \"$enter; kmemload hold sockets $count; true\" ;;
        3) into-cgroup $group sh -c \"kmemload hold opened $((count * 3)); true\" ;;
        4) sh -c \"$enter; exec kmemload files $((count * 2))\" ;;
        esac >/tmp/said$n &
    done
    for n in $numbers; do
        for i in $(seq 600); do
            if grep -q ready /tmp/said$n; then continue 2; fi
            sleep 0.1
        done
        echo load$n is not ready
        exit 1
    done
    sleep 1
    for n in $(seq 1 10 50) $(seq 2 10 50); do kill $(head -1 /tmp/said$n); done
    sleep 3
    slab >/out/after
    kill -TERM $recorder
    wait $recorder || [ $? = 1 ]
    cat /tmp/messages";

/// Program that starts another one in a cgroup by `clone3`, and its directory.
fn into_cgroup() -> Result<(Directory, PathBuf), Skip> {
    let dir = Directory::new(&[]);
    let program = dir.file("into-cgroup");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-static", "-o"]).arg(&program).arg(project("tests/vm/into-cgroup.c"));
    let output = compiler.output();
    let output = output.map_err(|error| Skip(format!("no C compiler: {error}")))?;
    if output.status.success() { Ok((dir, program)) } else { Err(Skip(format!("cc: {}", text(&output.stderr)))) }
}

/// Boots the kernel, and compares the bytes of each cgroup.
pub fn assert_bytes_of_the_kernel(kernel: Kernel) -> Result<(), Skip> {
    let (_kept, program) = into_cgroup()?;
    let mut guest = Guest::new("amd64")?.option("-k", kernel.package).option("-f", program);
    if let Some(suite) = kernel.suite {
        guest = guest.option("-S", suite);
    }
    let out = guest.run(SCRIPT)?;
    let trace = out.file("trace");
    assert_eq!(checked(&trace).0, "ok");
    let slab = |name: &str| -> BTreeMap<String, u64> {
        let text = out.text(name);
        let lines = text.lines().filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            Some((format!("/{}", words.first()?), words.get(2)?.parse().ok()?))
        });
        lines.collect()
    };
    let (before, after) = (slab("before"), slab("after"));
    assert_eq!((before.len() as u64, after.len() as u64), (GROUPS, GROUPS));
    let live = document(&["live", "--by", "cgroup", "--accounted", "yes"], &trace);
    // A row is a cgroup and a kind.
    let mut ours: BTreeMap<&str, u64> = BTreeMap::new();
    for row in live["rows"].as_array().into_iter().flatten() {
        if let (Some(group), Some(bytes)) = (row["cgroup"].as_str(), row["live_allocated"].as_u64()) {
            *ours.entry(group).or_default() += bytes;
        }
    }
    let mut wrong = Vec::new();
    for (group, kernels) in &after {
        let kernels = kernels.saturating_sub(before.get(group).copied().unwrap_or_default());
        let ours = ours.get(group.as_str()).copied().unwrap_or_default();
        println!("{group}: {ours} bytes live, the kernel counts {kernels}");
        if ours.abs_diff(kernels) > BYTES.max(kernels / SHARE) {
            wrong.push(format!("{group}: {ours} bytes live, the kernel counts {kernels}"));
        }
    }
    let large = after.values().filter(|kernels| **kernels > BYTES * 4).count();
    assert!(large > 25, "{large} cgroups have a load that shows");
    assert!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}
