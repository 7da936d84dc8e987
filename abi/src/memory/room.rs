//! Free memory of the machine and of the process's control groups.

use std::fs;
use std::path::{Path, PathBuf};

/// Least limit that means none: version 1 shows the largest number of whole pages instead.
const NO_LIMIT: u64 = 1 << 60;

/// Bytes that the process may still take: the least of the machine's `MemAvailable` and the room of each of its control groups,
/// their page cache counted as room. `None` where neither is known. `proc` is `/proc`.
pub(super) fn left(proc: &Path) -> Option<u64> {
    available(proc).into_iter().chain(groups_left(proc)).min()
}

/// `MemAvailable`, in bytes.
fn available(proc: &Path) -> Option<u64> {
    let text = fs::read_to_string(proc.join("meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Least room of the control groups that the process is in, from its own up to the root.
fn groups_left(proc: &Path) -> Option<u64> {
    let groups = fs::read_to_string(proc.join("self/cgroup")).ok()?;
    let mounts = fs::read_to_string(proc.join("self/mountinfo")).ok()?;
    let each = groups.lines().filter_map(|line| {
        // HIERARCHY:CONTROLLERS:PATH; version 2 has neither number nor controllers.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let is_v2 = controllers.is_empty();
        if !is_v2 && !controllers.split(',').any(|controller| controller == "memory") {
            return None;
        }
        let (root, mounted_at) = mounts.lines().find_map(|line| mount_of(line, is_v2))?;
        // A container's mount shows a part of the tree only; the path may even lie outside of it.
        let below = Path::new(path).strip_prefix(&root).unwrap_or(Path::new(""));
        let group = mounted_at.join(below);
        let up = group.ancestors().take_while(|dir| dir.starts_with(&mounted_at));
        up.filter_map(|dir| if is_v2 { left_v2(dir) } else { left_v1(dir) }).min()
    });
    each.min()
}

/// Root and mount point of a line of `mountinfo`, if the line is of the hierarchy with the memory controller.
fn mount_of(line: &str, is_v2: bool) -> Option<(PathBuf, PathBuf)> {
    let (mount, of) = line.split_once(" - ")?;
    let mut of = of.split(' ');
    let (kind, options) = (of.next()?, of.nth(1)?);
    let is_it = match kind {
        "cgroup2" => is_v2,
        "cgroup" => !is_v2 && options.split(',').any(|option| option == "memory"),
        _ => false,
    };
    let mut words = mount.split(' ').skip(3);
    is_it.then_some((words.next()?.into(), words.next()?.into()))
}

fn left_v2(group: &Path) -> Option<u64> {
    let used = used(group, "memory.current", ["inactive_file ", "active_file "])?;
    // Above `memory.high` the kernel slows the process down; `max` is no number.
    let limits = ["memory.max", "memory.high"].into_iter().filter_map(|name| number(&group.join(name)));
    Some(limits.min()?.saturating_sub(used))
}

fn left_v1(group: &Path) -> Option<u64> {
    let limit = number(&group.join("memory.limit_in_bytes")).filter(|&limit| limit < NO_LIMIT)?;
    let used = used(group, "memory.usage_in_bytes", ["total_inactive_file ", "total_active_file "])?;
    Some(limit.saturating_sub(used))
}

/// Bytes that a group holds, less its page cache: the kernel reclaims the cache before it refuses memory. `usage` is the file of
/// the whole, `cached` begin the lines on the page cache in `memory.stat`; a line that is not there counts as 0.
fn used(group: &Path, usage: &str, cached: [&str; 2]) -> Option<u64> {
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let bytes = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    // Two files are read one after the other: the cache may seem larger than the whole.
    let cache = cached.into_iter().filter_map(bytes).fold(0, u64::saturating_add);
    Some(number(&group.join(usage))?.saturating_sub(cache))
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const MEMINFO: (&str, &str) = ("meminfo", "MemTotal:       8000000 kB\nMemAvailable:   4000000 kB\n");

    /// Bytes left in a made-up `/proc` whose control groups are mounted beside it.
    fn left_of(files: &[(&str, &str)], mounts: &[(&str, &str, &str)]) -> Option<u64> {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        files.iter().for_each(|(name, text)| write(name, text));
        let line = |(root, at, of): &(&str, &str, &str)| {
            format!("30 23 0:26 {root} {} rw,relatime shared:4 - {of}\n", dir.path().join(at).display())
        };
        write("self/mountinfo", &mounts.iter().map(line).collect::<String>());
        left(dir.path())
    }

    #[test]
    fn the_least_of_the_machine_and_all_groups_above_is_what_is_left() {
        let v2 = [("/", "cg", "cgroup2 cgroup2 rw")];
        let files = [
            MEMINFO,
            ("self/cgroup", "0::/a/b\n"),
            ("cg/a/b/memory.max", "max\n"),
            ("cg/a/b/memory.high", "3000000000\n"),
            ("cg/a/b/memory.current", "1000000\n"),
            ("cg/a/memory.max", "2000000000\n"),
            ("cg/a/memory.high", "max\n"),
            ("cg/a/memory.current", "500000000\n"),
        ];
        assert_eq!(left_of(&files, &v2), Some(1_500_000_000));
        assert_eq!(left_of(&files[..5], &v2), Some(2_999_000_000), "memory.high counts");
        assert_eq!(left_of(&files[..3], &v2), Some(4_096_000_000), "no limit");
        assert_eq!(left_of(&files[1..], &[]), None, "nothing is mounted, and nothing is known of the machine");
        assert_eq!(left_of(&files[1..], &v2), Some(1_500_000_000));
    }

    #[test]
    fn version_1_and_containers_have_limits_too() {
        let v1 = [
            ("/", "cpu", "cgroup cgroup rw,cpu"),
            ("/docker/x", "mem", "cgroup cgroup rw,memory"),
            ("/", "uni", "cgroup2 cgroup2 rw"),
        ];
        let unlimited = "9223372036854771712\n";
        let files = [
            MEMINFO,
            ("self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/x/y\n0::/\n"),
            ("mem/memory.limit_in_bytes", "900000000\n"),
            ("mem/memory.usage_in_bytes", "100000000\n"),
            ("mem/y/memory.limit_in_bytes", unlimited),
            ("mem/y/memory.usage_in_bytes", "5\n"),
        ];
        assert_eq!(left_of(&files, &v1), Some(800_000_000));
        let full = ("mem/memory.usage_in_bytes", "900000001\n");
        assert_eq!(left_of(&[&files[..3], &[full]].concat(), &v1), Some(0));
        let garbage = [("meminfo", "MemAvailable: x kB\n"), ("self/cgroup", "\n:\n0\n::::\n0::../..\n")];
        assert_eq!(left_of(&garbage, &[("/", "cg", "cgroup2"), ("", "", "")]), None);
    }

    #[test]
    fn page_cache_is_left() {
        let v2 = [("/", "cg", "cgroup2 cgroup2 rw")];
        let stat = "anon 100000000\nfile 860000000\nshmem 50000000\ninactive_anon 9\nactive_anon 9\ninactive_file 500000000\n\
                    active_file 300000000\nworkingset_activate_file 7\n";
        let files = [
            MEMINFO,
            ("self/cgroup", "0::/a\n"),
            ("cg/a/memory.max", "1000000000\n"),
            ("cg/a/memory.current", "990000000\n"),
            ("cg/a/memory.stat", stat),
        ];
        assert_eq!(left_of(&files[..4], &v2), Some(10_000_000), "nothing is known of the cache");
        assert_eq!(left_of(&files, &v2), Some(810_000_000));
        for (stat, left) in [
            ("inactive_file 990000001\nactive_file 18446744073709551615\n", 1_000_000_000),
            ("inactive_file x\nactive_file 1000\n", 10_001_000),
            ("inactive_file\nactive_file -1\nactive_file_x 9\n\u{fffd}", 10_000_000),
        ] {
            let files = [&files[..4], &[("cg/a/memory.stat", stat)]].concat();
            assert_eq!(left_of(&files, &v2), Some(left), "{stat}");
        }
    }

    #[test]
    fn page_cache_of_groups_below_is_left_in_version_1() {
        let v1 = [("/", "mem", "cgroup cgroup rw,memory")];
        let files = [
            MEMINFO,
            ("self/cgroup", "4:memory:/\n"),
            ("mem/memory.limit_in_bytes", "900000000\n"),
            ("mem/memory.usage_in_bytes", "800000000\n"),
            // Version 1 has the group alone first, then it with those below.
            (
                "mem/memory.stat",
                "cache 5\ninactive_file 1\nactive_file 2\nhierarchical_memory_limit 900000000\ntotal_cache 700000000\n\
                 total_inactive_file 400000000\ntotal_active_file 200000000\n",
            ),
        ];
        assert_eq!(left_of(&files, &v1), Some(700_000_000));
        assert_eq!(left_of(&files[..4], &v1), Some(100_000_000));
    }

    #[test]
    fn this_machine_tells() {
        assert!(left(Path::new("/proc")).is_none_or(|left| left < 1 << 50));
    }
}
