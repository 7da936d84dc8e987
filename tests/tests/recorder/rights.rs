//! Recorders that lack rights: what they print, and what they do without. Each case is made in a mount namespace of its own, with capabilities taken
//! away by setpriv.

use std::fs::{self, File};
use std::process::{Command, Output, Stdio};

use kmemtrace_tests::live::root;
use kmemtrace_tests::programs::{program, text, until};
use kmemtrace_tests::recorder::{can_record, instance_name, sandbox};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

kmemtrace_tests::tests![
    hidden_symbols_are_reported_with_the_reason,
    without_cap_sys_admin_the_mount_is_named,
    a_locked_down_kernel_is_named,
    a_read_only_tracefs_is_named,
    a_read_only_sys_is_no_hindrance,
    threads_have_the_priority_that_is_printed,
];

/// Remedy of every line about missing symbols.
const LATER: &str = "name call sites later with kmemtrace-report --kallsyms FILE";

/// Runs `kmemtraced` with the arguments where `mounts` were made ($0 is the directory) and without the capability `without`.
fn run(directory: &Directory, mounts: &str, without: Option<&str>, arguments: &[&str]) -> Result<Output, Skip> {
    let drop = without.map_or_else(String::new, |name| format!("setpriv --bounding-set=-{name} --inh-caps=-{name} "));
    let script = format!("set -e; {mounts}\nexec {drop}\"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).arg(directory.path()).arg(program("kmemtraced")).args(arguments);
    let output = command.current_dir(directory.path()).stdin(Stdio::null()).output();
    let output = output.map_err(|error| Skip(format!("unshare: {error}")))?;
    let stderr = text(&output.stderr);
    match ["unshare: ", "mount: ", "umount: ", "setpriv: "].iter().any(|program| stderr.starts_with(program)) {
        true => Err(Skip(stderr)),
        false => Ok(output),
    }
}

/// A short recording there; its standard error and exit status.
fn record(mounts: &str, without: Option<&str>, more: &[&str]) -> Result<(String, Option<i32>), Skip> {
    let instance = instance_name();
    let arguments = ["-q", "-d", "20ms", "-o", "trace", "-b", "1M", "-B", &instance];
    let output = run(&Directory::new(&[]), mounts, without, &[&arguments, sandbox(), more].concat())?;
    Ok((text(&output.stderr), output.status.code()))
}

fn hidden_symbols_are_reported_with_the_reason() -> Result<(), Skip> {
    can_record()?;
    let zeros = "yes '0000000000000000 T f' | head -n 3000 > $0/zeros; mount --bind $0/zeros /proc/kallsyms";
    let restricted = format!("{zeros}; echo 2 > $0/two; mount --bind $0/two /proc/sys/kernel/kptr_restrict");
    let empty =
        "mount --bind /dev/null /proc/kallsyms; echo 1 > $0/one; mount --bind $0/one /proc/sys/kernel/kptr_restrict";
    let syslog = Some("syslog");
    let cases = [
        (restricted.as_str(), None, format!("kptr_restrict=2; run sysctl kernel.kptr_restrict=1, or {LATER}")),
        (empty, syslog, format!("no CAP_SYSLOG; run with it (docker run --cap-add SYSLOG), or {LATER}")),
        (empty, None, format!("kptr_restrict=2, no CAP_SYSLOG, or CONFIG_KALLSYMS=n; {LATER}")),
    ];
    for (mounts, without, reason) in cases {
        let line = format!("no kernel symbols: {reason}");
        // Even with --quiet, and the recording goes on.
        let (stderr, status) = record(mounts, without, &[])?;
        assert!(stderr.lines().any(|said| said == format!("kmemtraced: {line}")), "{stderr}");
        assert!(matches!(status, Some(0 | 1)), "{status:?}: {stderr}");
        let doctor = run(&Directory::new(&[]), mounts, without, &["doctor", "--quick"])?;
        assert!(
            text(&doctor.stdout).lines().any(|said| said == format!("symbols    {line}")),
            "{}",
            text(&doctor.stdout)
        );
    }
    Ok(())
}

fn without_cap_sys_admin_the_mount_is_named() -> Result<(), Skip> {
    root()?;
    let unmounted = "umount -a -t tracefs; umount -a -t debugfs";
    let (stderr, status) = record(unmounted, Some("sys_admin"), &[])?;
    assert_eq!(
        stderr,
        "kmemtraced: tracefs is not mounted and this process may not mount it (no CAP_SYS_ADMIN); run mount -t tracefs none \
         /sys/kernel/tracing on the host, and add -v /sys/kernel/tracing:/sys/kernel/tracing to docker run\n"
    );
    assert_eq!(status, Some(2));
    Ok(())
}

fn a_locked_down_kernel_is_named() -> Result<(), Skip> {
    root()?;
    let locked = "echo 'none integrity [confidentiality]' > $0/lockdown; mkdir $0/tracing
        mount -t securityfs none /sys/kernel/security
        mount --bind $0/lockdown /sys/kernel/security/lockdown";
    let (stderr, status) = record(locked, None, &["--tracefs", "tracing"])?;
    assert_eq!(
        stderr,
        "kmemtraced: tracing: the kernel is locked down (lockdown=confidentiality); boot with lockdown=integrity\n"
    );
    assert_eq!(status, Some(2));
    let (stderr, status) = record("mkdir $0/tracing", None, &["--tracefs", "tracing"])?;
    assert_eq!(stderr, "kmemtraced: tracing: has no trace events; name a directory where tracefs is mounted\n");
    assert_eq!(status, Some(2));
    Ok(())
}

fn a_read_only_tracefs_is_named() -> Result<(), Skip> {
    can_record()?;
    let mounts = "mkdir $0/tracing; mount -t tracefs none $0/tracing; mount -o remount,bind,ro $0/tracing";
    let (stderr, status) = record(mounts, None, &["--tracefs", "tracing"])?;
    let reason = ": cannot be made: Read-only file system (os error 30): tracing is mounted read-only; run mount -o remount,rw tracing, \
                  and leave out :ro of docker run -v\n";
    assert!(stderr.starts_with("kmemtraced: tracing/instances/") && stderr.ends_with(reason), "{stderr}");
    assert_eq!(status, Some(2));
    Ok(())
}

/// A container has no tracefs in a read-only /sys. With CAP_SYS_ADMIN the recorder mounts one for itself.
fn a_read_only_sys_is_no_hindrance() -> Result<(), Skip> {
    can_record()?;
    let mounts = "umount -a -t tracefs; umount -a -t debugfs; mount -o remount,bind,ro /sys";
    let (stderr, status) = record(mounts, None, &[])?;
    assert!(matches!(status, Some(0 | 1)), "{status:?}: {stderr}");
    Ok(())
}

/// Threads of a process by name, with nice level, real-time priority and policy (`/proc/PID/stat`: 0 SCHED_OTHER, 1 SCHED_FIFO).
fn threads(pid: u32) -> Vec<(String, [i32; 3])> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let threads = stats.filter_map(|stat| {
        let (start, rest) = stat.rsplit_once(") ")?;
        let name = start.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = rest.split(' ').collect();
        let number = |at: usize| fields.get(at)?.parse().ok();
        Some((name, [number(16)?, number(37)?, number(38)?]))
    });
    threads.collect()
}

fn threads_have_the_priority_that_is_printed() -> Result<(), Skip> {
    can_record()?;
    let own = rustix::process::getpriority_process(None).unwrap_or(0);
    let unprivileged = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"];
    let (fifo, nice, none) = ("SCHED_FIFO 1".to_owned(), "nice -20".to_owned(), format!("nice {own}"));
    let cases = [
        (&[][..], "fifo", vec![fifo, format!("{nice}; SCHED_FIFO: cpu.rt_runtime_us of this cgroup is 0")]),
        (&unprivileged[..], "fifo", vec![format!("{none}; SCHED_FIFO: no CAP_SYS_NICE")]),
        (&[], "nice", vec![nice]),
        (&[], "none", vec![none]),
    ];
    for (wrapper, asked, expected) in cases {
        let directory = Directory::new(&[]);
        let mut words: Vec<String> = wrapper.iter().map(|&word| word.to_owned()).collect();
        words.push(program("kmemtraced").display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(sandbox()).args([
            "-v",
            "--priority",
            asked,
            "-o",
            "trace",
            "-b",
            "1M",
            "-B",
            &instance_name(),
        ]);
        // The recording ends with COMMAND.
        command.args(["--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]).current_dir(directory.path());
        let stderr = File::create(directory.file("stderr")).map_err(|error| Skip(error.to_string()))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn();
        let mut child = child.map_err(|error| Skip(format!("{}: {error}", words[0])))?;
        until("recording to trace", || directory.text("stderr").contains("recording to trace"));
        let found = threads(child.id());
        directory.write("go", b"");
        let _ = child.wait();
        let stderr = directory.text("stderr");
        let printed = stderr.lines().find_map(|line| line.strip_prefix("readers and writers run at "));
        let printed = printed.unwrap_or_else(|| panic!("{stderr}"));
        assert!(expected.iter().any(|line| line == printed), "{printed}: {expected:?}");
        let nice = printed.strip_prefix("nice ").map(|level| level.split(';').next().unwrap_or_default().parse());
        let is_of_cpu = |name: &str| {
            ["read", "write"].iter().any(|kind| name.strip_prefix(kind).is_some_and(|cpu| cpu.parse::<u32>().is_ok()))
        };
        let (of_cpus, others): (Vec<_>, Vec<_>) = found.iter().partition(|(name, _)| is_of_cpu(name));
        assert!(of_cpus.len() >= 2 && !others.is_empty(), "{found:?}");
        for (name, [level, real_time, policy]) in of_cpus {
            let expected = nice.as_ref().map_or((1, 1), |_| (0, 0));
            assert_eq!((*real_time, *policy), expected, "{asked}: {name}: {found:?}");
            assert!(nice.as_ref().is_none_or(|nice| *nice == Ok(*level)), "{asked}: {name}: {found:?}");
        }
        for (name, [_, real_time, policy]) in others {
            assert_eq!((*real_time, *policy), (0, 0), "{asked}: {name}: {found:?}");
        }
    }
    Ok(())
}
