//! Memory that goes missing or leaks on any kernel that a guest can boot: where `balance` says it went, and whether `leaks` names the
//! leaker.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::kernels::Kernel;
use crate::programs::{document, run_to, text};
use crate::recording::Directory;
use crate::runner::Skip;

/// Loads, each in a recording of its own, by the names of these; then reports of the OOM killer.
const LOADS: &str = r#"
    mkdir /disk /tmp/group /tmp/fill
    mount -t ext4 /dev/vdb /disk
    mount -t cgroup2 none /tmp/group
    echo +memory >/tmp/group/cgroup.subtree_control
    # The guest is at rest before both readings of its counters.
    load() {
        sleep 2
        kmemtraced -e all -o /out/$1 -- sh -c "sleep 1; $2; sleep 3" 2>/tmp/messages || cat /tmp/messages
    }
    load unpacked 'tar xf /bin/tree.tar -C /disk; sync'
    load tmpfs 'mount -t tmpfs none /tmp/fill; dd if=/dev/zero of=/tmp/fill/file bs=1M count=100 2>/dev/null'
    load processes 'for i in $(seq 300); do sleep 1000 & done; sleep 4'
    killall sleep
    load huge_pages 'echo 16 >/proc/sys/vm/nr_hugepages'
    echo 0 >/proc/sys/vm/nr_hugepages
    load cgroups 'for i in $(seq 500); do mkdir /tmp/group/$i; done'
    dmesg -c >/dev/null
    tail /dev/zero || true
    dmesg -c >/out/oom
    mkdir /tmp/group/small
    echo 30M >/tmp/group/small/memory.max
    sh -c 'echo $$ >/tmp/group/small/cgroup.procs; exec tail /dev/zero' || true
    dmesg >/out/oom_of_group"#;

/// Checks that the parts of `balance` explain all but 5% or 1 MiB of what happened, for each load, in a guest; and the parts of its reports
/// of the OOM killer. `counts_page_tables`: the kernel counts page tables of all levels (Linux 6.14 on).
pub fn assert_balance(kernel: Kernel, counts_page_tables: bool) -> Result<(), Skip> {
    let dir = Directory::on_disk();
    let (disk, tree) = (dir.file("disk"), dir.file("tree.tar"));
    File::create(&disk).and_then(|file| file.set_len(512 << 20)).unwrap();
    let sources = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    run("mkfs.ext4", &["-q"], &disk)?;
    let folders = ["abi", "analysis", "kmemtraced", "kmemtrace-report", "tests/src", "tests/tests", "docs"];
    run("tar", &[&["-C", &sources.display().to_string(), "-c"][..], &folders, &["-f"]].concat(), &tree)?;
    let guest = kernel.guest()?.option("-M", "ext4").option("-d", &disk).option("-f", &tree).option("-t", "600");
    let out = guest.run(LOADS)?;
    for load in ["unpacked", "tmpfs", "processes", "huge_pages", "cgroups"] {
        let balance = document(&["balance"], &out.file(load));
        let parts = balance["parts"].as_array().unwrap().iter();
        let sum: i64 = parts.filter_map(|part| part["change"].as_i64()).map(i64::abs).sum();
        let left = balance["unexplained"].as_i64().unwrap();
        let percent = if load == "processes" && !counts_page_tables { 20 } else { 5 };
        assert!(left.abs() <= (sum * percent / 100).max(1 << 20), "{load}: {left} of {sum} bytes: {balance:#}");
    }
    assert_report(&out.file("oom"), &out.text("oom"));
    let group = document(&["balance"], &out.file("oom_of_group"));
    let counter = |name: &str| {
        let of_group = out.text("oom_of_group");
        let line = of_group.lines().find_map(|line| line.split("] ").nth(1)?.strip_prefix(&format!("{name} ")));
        line.and_then(|bytes| bytes.trim().parse::<u64>().ok())
    };
    for (part, name) in [("anonymous", "anon"), ("slab unreclaimable", "slab_unreclaimable"), ("per-CPU", "percpu")] {
        assert!(counter(name).is_some(), "{}", out.text("oom_of_group"));
        assert_eq!(bytes(&group, part), counter(name), "{part}: {group:#}");
    }
    assert!(group["memtotal"] == 30 << 20 && group["unexplained"].is_i64(), "{group:#}");
    Ok(())
}

fn run(program: &str, arguments: &[&str], path: &Path) -> Result<(), Skip> {
    let output = Command::new(program).args(arguments).arg(path).output();
    let output = output.map_err(|error| Skip(format!("{program}: {error}")))?;
    assert!(output.status.success(), "{program}: {}", text(&output.stderr));
    Ok(())
}

fn bytes(balance: &Value, part: &str) -> Option<u64> {
    balance["parts"].as_array().unwrap().iter().find(|of| of["part"] == part)?["bytes"].as_u64()
}

/// Checks that the parts of a machine's report are its counters.
fn assert_report(path: &Path, report: &str) {
    let balance = document(&["balance"], path);
    let mut pages: HashMap<&str, u64> = HashMap::new();
    for word in report.split("Mem-Info:").last().unwrap_or_default().split_whitespace() {
        let counter = word.split_once(':').and_then(|(name, value)| Some((name, value.parse().ok()?)));
        // The counters of nodes and zones that follow are in kB.
        if let Some((name, value)) = counter {
            pages.entry(name).or_insert(value);
        }
    }
    let line =
        |end: &str| report.lines().rev().find_map(|line| line.strip_suffix(end)?.split(' ').next_back()?.parse().ok());
    let [all, reserved]: [u64; 2] = [" pages RAM", " pages reserved"].map(|end| line(end).unwrap());
    let of = |name: &str| pages[name] * 4096;
    let anonymous = (of("active_anon") + of("inactive_anon") + of("isolated_anon")).saturating_sub(of("shmem"));
    for (part, want) in [
        ("anonymous", anonymous),
        ("tmpfs and shared", of("shmem")),
        ("files", of("active_file") + of("inactive_file") + of("isolated_file")),
        ("slab reclaimable", of("slab_reclaimable")),
        ("slab unreclaimable", of("slab_unreclaimable")),
        ("page tables", of("pagetables") + of("sec_pagetables")),
        ("free on per-CPU lists", of("free_pcp")),
    ] {
        assert_eq!(bytes(&balance, part), Some(want), "{part}: {report}");
    }
    let total = (all - reserved) * 4096;
    assert_eq!([&balance["memtotal"], &balance["memfree"]].map(Value::as_u64), [Some(total), Some(of("free"))]);
    let parts = balance["parts"].as_array().unwrap().iter().filter_map(|part| part["bytes"].as_u64()).sum::<u64>();
    assert_eq!(balance["unexplained"].as_i64(), Some(total as i64 - of("free") as i64 - parts as i64), "{report}");
    assert!(balance["tasks"][0]["comm"] == "tail", "{balance:#}");
}

/// Leaks of one object a second: by a process that lives, and by processes that end at once.
const LEAKS: &str = "
    for kind in pipes sockets; do
        kmemload $kind 60 >/dev/null &
        load=$!
        sleep 1
        kmemtraced -d 30 -o /out/$kind
        kill $load
    done
    mkdir /tmp/queues
    mount -t mqueue none /tmp/queues
    # So small that a user may have many.
    echo 1 >/proc/sys/fs/mqueue/msg_default
    echo 128 >/proc/sys/fs/mqueue/msgsize_default
    (for i in $(seq 60); do sh -c \": >/tmp/queues/$i\"; sleep 1; done) &
    sleep 1
    kmemtraced -d 30 -o /out/queues";

/// Checks that `leaks` names each leaker of a guest, and nobody beside one that lives; the summary names it, too.
pub fn assert_leaks(kernel: Kernel) -> Result<(), Skip> {
    let out = kernel.guest()?.run(LEAKS)?;
    let leaks = |name: &str| -> Vec<Value> {
        let document = document(&["leaks"], &out.file(name));
        let rows = document["rows"].as_array().unwrap().iter().filter(|row| row["verdict"] == "leak");
        rows.cloned().collect()
    };
    for (name, function) in [("pipes", "alloc_pipe_info+"), ("sockets", "alloc_empty_file+")] {
        let rows = leaks(name);
        assert!(!rows.is_empty() && rows.iter().all(|row| row["comm"] == "kmemload" && row["group"] == 1), "{rows:#?}");
        assert!(rows.iter().any(|row| row["symbol"].as_str().is_some_and(|at| at.starts_with(function))), "{rows:#?}");
        let summary = text(&run_to(0, "kmemtrace-report", &["summary", "--width", "80"], &[&out.file(name)]));
        assert!(summary.lines().any(|line| line.starts_with("leak") && line.contains("kmemload")), "{summary}");
    }
    let rows = leaks("queues");
    let is_queue = |row: &&Value| row["comm"] == "sh" && row["symbol"].as_str().is_some_and(|at| at.contains("mqueue"));
    let queue = rows.iter().find(is_queue).unwrap_or_else(|| panic!("{rows:#?}"));
    assert!(queue["pid"].is_null(), "no shell makes two of them: {queue}");
    Ok(())
}
