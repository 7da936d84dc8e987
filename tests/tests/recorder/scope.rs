//! Tests of what the recorder leaves out, names and shows, on the running kernel as root. Tests that cannot run here are listed as
//! skipped at the end.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::{self, sleep};
use std::time::Duration;

use kmemtrace_tests::load;
use kmemtrace_tests::programs::{document, json_lines, program, run, run_to};
use kmemtrace_tests::recorder::{Recorded, Recorder, can_record, instance_name, kmemtraced};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::process::{Signal, kill_process};
use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

kmemtrace_tests::tests![
    a_command_alone_is_recorded_from_its_first_event,
    a_command_alone_has_nothing_of_the_recorder,
    another_list_of_tasks_is_a_change_by_others,
    a_filter_holds_for_allocations_and_leaves_frees_whole,
    a_filter_that_the_kernel_refuses_changes_nothing,
    allocations_without_frees_are_told,
    an_idle_recorder_takes_little_memory,
    a_lean_recorder_takes_8_mib_on_four_cpus,
    threads_that_the_kernel_forgot_have_names,
    a_status_line_stands_alone_and_does_not_wrap,
    a_command_without_dashes_is_told_the_line_to_type,
];

/// Events of the trace, which must be complete.
fn events(recorded: &Recorded) -> Vec<Value> {
    run_to(0, "kmemtrace-check", &[], &[&recorded.trace()]);
    json_lines(&run_to(0, "kmemtrace-report", &["events", "--format", "jsonl"], &[&recorded.trace()]))
}

/// Member `trace` of the documents.
fn members(recorded: &Recorded) -> Value {
    document(&["summary"], &recorded.trace())["trace"].clone()
}

/// Path of the load, as a word of a command.
fn kmemload() -> String {
    program("kmemload").display().to_string()
}

fn is_alloc(event: &Value) -> bool {
    event["requested"].is_u64()
}

fn a_command_alone_is_recorded_from_its_first_event() -> Result<(), Skip> {
    can_record()?;
    const COUNT: usize = 500;
    // The first allocations of the command are those of its start: `sh` alone, then its child.
    let script = format!("{} iov {COUNT} 40", kmemload());
    let others = thread::spawn(|| load::iov(200_000, 40));
    let recorded = Recorded::new(&["--only-command"], &["sh", "-c", &script]);
    others.join().unwrap_or(Ok(())).unwrap();
    assert_eq!(recorded.output.status.code(), Some(0), "{}", recorded.stderr());
    let own = members(&recorded)["own_threads"].as_array().cloned().unwrap_or_default();
    let events = events(&recorded);
    let mut comms: Vec<&str> = Vec::new();
    for event in &events {
        assert_ne!(event["pid"], std::process::id(), "{event}");
        if !own.contains(&event["pid"]) {
            comms.push(event["comm"].as_str().unwrap_or_else(|| panic!("no comm: {event}")));
        }
    }
    let bytes = 40 * load::VECTOR_BYTES;
    let iovecs = events.iter().filter(|event| event["requested"] == bytes && event["comm"] == "kmemload").count();
    assert_eq!(iovecs, COUNT);
    comms.sort_unstable();
    comms.dedup();
    assert!(comms.iter().all(|comm| ["sh", "kmemload"].contains(comm)), "{comms:?}");
    assert!(comms.contains(&"kmemload"), "{comms:?}");
    assert_eq!((&members(&recorded)["scope"], &members(&recorded)["filtered"]), (&"tasks".into(), &Value::Null));
    let stderr = recorded.stderr();
    assert!(stderr.contains("sh and its children alone"), "{stderr}");
    assert!(!stderr.contains("another program"), "{stderr}");
    // Without the option the machine is recorded.
    let system = Recorded::new(&[], &["true"]);
    assert_eq!(members(&system)["scope"], "system");
    assert!(system.stderr().contains("the whole machine"), "{}", system.stderr());
    Ok(())
}

fn a_command_alone_has_nothing_of_the_recorder() -> Result<(), Skip> {
    can_record()?;
    // The fields of stat are priority, nice level, real-time priority and policy.
    let ask = "grep -E '^(Sig(Blk|Ign|Cgt)|VmLck|Cpus_allowed):' /proc/self/status; cat /proc/self/limits; \
               sed 's/.*) //' /proc/self/stat | cut -d' ' -f16,17,38,39; \
               ls /proc/self/fd; exit 7";
    let plain = Command::new("sh").args(["-c", ask]).stdin(Stdio::null()).output().unwrap();
    let recorded = Recorded::new(&["--only-command", "-q"], &["sh", "-c", ask]);
    assert_eq!(String::from_utf8_lossy(&recorded.output.stdout), String::from_utf8_lossy(&plain.stdout));
    assert_eq!(recorded.output.status.code(), Some(7), "{}", recorded.stderr());
    let missing = Recorded::new(&["--only-command"], &["/no/such/program"]);
    assert_eq!(missing.output.status.code(), Some(2));
    assert!(missing.stderr().contains("/no/such/program: cannot be run: No such file"), "{}", missing.stderr());
    assert!(!missing.trace().exists());
    Ok(())
}

fn another_list_of_tasks_is_a_change_by_others() -> Result<(), Skip> {
    can_record()?;
    let script = "echo 1 > INSTANCE/set_event_pid; sleep 0.3";
    let recorded = Recorded::new(&["--only-command"], &["sh", "-c", script]);
    let stderr = recorded.stderr();
    // The shell may have ended before the list is looked at; then no thread that lives is missing.
    let told = ["lacks threads that were recorded", "written to"];
    let is_told = |how| stderr.contains(&format!("another program changed the recording: set_event_pid {how}"));
    assert!(told.into_iter().any(is_told), "{stderr}");
    let recorded = Recorded::new(
        &["--filter", "bytes_req >= 64"],
        &["sh", "-c", "echo 0 > INSTANCE/events/kmem/kmalloc/filter; sleep 0.3"],
    );
    let stderr = recorded.stderr();
    assert!(stderr.contains("kmem/kmalloc/filter is none instead of bytes_req >= 64"), "{stderr}");
    Ok(())
}

fn a_filter_holds_for_allocations_and_leaves_frees_whole() -> Result<(), Skip> {
    can_record()?;
    const COUNT: usize = 500;
    let bytes = 40 * load::VECTOR_BYTES;
    let filter = format!("bytes_req == {bytes}");
    let recorded = Recorded::new(&["--filter", &filter], &[&kmemload(), "iov", &COUNT.to_string(), "40"]);
    assert_eq!(recorded.output.status.code(), Some(0), "{}", recorded.stderr());
    let events = events(&recorded);
    let (allocs, frees): (Vec<&Value>, Vec<&Value>) = events.iter().partition(|event| is_alloc(event));
    assert!(allocs.len() >= COUNT && allocs.iter().all(|event| event["requested"] == bytes), "{}", allocs.len());
    let of_cache = frees.iter().filter(|event| event["event"] == "kmem_cache_free").count();
    assert!(of_cache > 100, "{of_cache} frees of {} are of objects that the filter left out", frees.len());
    assert_eq!(
        (&members(&recorded)["scope"], &members(&recorded)["filtered"]),
        (&"system".into(), &filter.clone().into())
    );
    let stderr = recorded.stderr();
    assert!(stderr.contains(&filter) && !stderr.contains("another program"), "{stderr}");
    Ok(())
}

fn a_filter_that_the_kernel_refuses_changes_nothing() -> Result<(), Skip> {
    let tracefs = can_record()?;
    tracefs.need_event("kmem/mm_page_alloc")?;
    // A filter must hold for each event that it is set on: pages have no bytes. "0" would remove the filter.
    for (filter, events, event, reason) in [
        ("no_such > 3", "slab", "kmem/kmalloc", "Field not found"),
        ("bytes_req > 3", "all", "kmem/mm_page_alloc", "Field not found"),
        ("bytes_req >", "slab", "kmem/kmalloc", ""),
        ("0", "slab", "kmem/kmalloc", "'none' instead"),
        ("\u{1b}[2J", "slab", "kmem/kmalloc", "\\x1b[2J"),
        ("bytes_req > 3", "kfree", "no allocation event", "-e"),
    ] {
        let recorded = Recorded::new(&["--filter", filter, "-e", events], &["true"]);
        let stderr = recorded.stderr();
        assert_eq!(recorded.output.status.code(), Some(2), "{filter}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{filter}: {stderr}");
        assert!(stderr.contains(event) && stderr.contains(reason), "{filter}: {stderr}");
        assert!(!stderr.contains('\u{1b}') && !recorded.trace().exists(), "{filter}: {stderr}");
    }
    Ok(())
}

fn allocations_without_frees_are_told() -> Result<(), Skip> {
    can_record()?;
    let warning = "kmem_cache_alloc is recorded without the events of frees";
    for (events, is_told) in [("kmem_cache_alloc", true), ("kmem_cache_alloc,kmem_cache_free", false), ("slab", false)]
    {
        let stderr = Recorded::new(&["-q", "-e", events], &["true"]).stderr();
        assert_eq!(stderr.contains(warning), is_told, "{events}: {stderr}");
    }
    Ok(())
}

fn an_idle_recorder_takes_little_memory() -> Result<(), Skip> {
    can_record()?;
    // A rare event: a machine at work makes the recorder take more blocks.
    let recorder = Recorder::start_of("mm_page_alloc_extfrag", Directory::new(&[]), &instance_name(), &["-b", "1M"]);
    sleep(Duration::from_secs(2));
    let status = std::fs::read_to_string(format!("/proc/{}/status", recorder.pid())).unwrap();
    let kib = |field: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(field)?.strip_suffix("kB")?.trim().parse().ok())
    };
    // Pages of the program's own file are left out: a debug build has 7 MB of them, a release build 4 MB.
    let own = |field: &str| kib(field)?.checked_sub(kib("RssFile:")?);
    let (resident, greatest) = (own("VmRSS:"), own("VmHWM:"));
    let cpus = recorder.instance(&can_record()?).cpus().unwrap().len() as u64;
    recorder.stop_whole();
    // 12 MB with the program on two CPUs; each further one has its blocks and stacks.
    let limit = 6_000_000 / 1024 + cpus.saturating_sub(2) * 1536;
    assert!(
        resident.is_some_and(|kib| kib <= limit),
        "{resident:?} KiB resident, greatest {greatest:?}, limit {limit}"
    );
    assert!(
        greatest.is_some_and(|kib| kib <= limit),
        "{resident:?} KiB resident, greatest {greatest:?}, limit {limit}"
    );
    Ok(())
}

fn a_lean_recorder_takes_8_mib_on_four_cpus() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let recorder = Recorder::start(&["--lean", "--stack"]);
    let instance = recorder.instance(&tracefs);
    let size = instance.read("buffer_size_kb").unwrap();
    // Rounded by the kernel.
    assert!(size.trim().parse::<u32>().unwrap() < 300, "{size}");
    // Every CPU's buffers are in use.
    (0..20).for_each(|_| load::iov(5000, 9).unwrap());
    let status = std::fs::read_to_string(format!("/proc/{}/status", recorder.pid())).unwrap();
    let kib = |field: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap_or(&status).trim_end_matches("kB").trim().parse().unwrap()
    };
    let cpus = instance.cpus().unwrap().len() as u64;
    // Pages of the program's file are those of a build for tests: a static one for an initramfs has 2 MiB. The rest is as much
    // for each CPU, at most.
    let own = kib("VmHWM:") - kib("RssFile:");
    let on_four = own * 4 / cpus.min(4) + 2048;
    let ended = recorder.stop();
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{}", ended.stderr);
    assert!(on_four <= 8192, "{own} KiB on {cpus} CPUs");
    // The symbols are there all the same.
    let sites = document(&["sites"], &ended.trace());
    let is_named = |row: &Value| row["symbol"].as_str().is_some_and(|symbol| !symbol.is_empty());
    assert!(sites["rows"].as_array().is_some_and(|rows| rows.iter().any(is_named)), "{sites}");
    Ok(())
}

fn threads_that_the_kernel_forgot_have_names() -> Result<(), Skip> {
    let tracefs = can_record()?;
    const COUNT: usize = 300;
    let remembered = std::fs::read_to_string(tracefs.path().join("saved_cmdlines_size")).unwrap_or_default();
    let remembered: usize = remembered.trim().parse().unwrap_or(128);
    let programs = Directory::new(&[]);
    let names: Vec<String> = (0..COUNT).map(|n| format!("short-{n}")).collect();
    // Frees of all tasks are recorded, and allocations of new tasks alone.
    let filter = format!("common_pid >= {}", std::process::id());
    let recorder = Recorder::start(&["--filter", &filter]);
    for name in &names {
        let path = programs.file(name);
        symlink("/bin/true", &path).unwrap();
        Command::new(&path).status().unwrap();
        sleep(Duration::from_millis(10));
    }
    // The recorder reads the kernel's names once a second, and more often where there are few.
    sleep(Duration::from_millis(1300));
    // Threads that allocate and end take the places of those names in the kernel's memory.
    for _ in 0..remembered * 2 {
        thread::spawn(|| load::iov(1, load::STACK_VECTORS + 1)).join().unwrap_or(Ok(())).unwrap();
    }
    let kept = std::fs::read_to_string(tracefs.path().join("saved_cmdlines")).unwrap();
    let forgotten = names.iter().filter(|name| !kept.lines().any(|line| line.ends_with(&format!(" {name}")))).count();
    let directory = recorder.stop_whole();
    let trace = directory.file("trace");
    let events = run("kmemtrace-report", &["events", "--format", "jsonl", "--comm", "short-*"], &[&trace]).stdout;
    let of_comm = |line: &str| Some(line.split_once("\"comm\":\"")?.1.split_once('"')?.0.to_owned());
    let comms: HashSet<String> = String::from_utf8_lossy(&events).lines().filter_map(of_comm).collect();
    let named = names.iter().filter(|name| comms.contains(*name)).count();
    if forgotten < COUNT / 10 {
        return Err(Skip(format!("the kernel remembers {} of {COUNT} names", COUNT - forgotten)));
    }
    // The kernel passes over a name where another CPU is just keeping one: of a hundred about one, and up to twenty on a busy machine.
    assert!(named >= COUNT * 2 / 3, "{named} of {COUNT} have names, the kernel forgot {forgotten}");
    Ok(())
}

/// Pseudo-terminal: the side that shows, and the side for the program.
fn terminal(columns: u16) -> Result<(OwnedFd, File), Skip> {
    let open = || -> Result<(OwnedFd, File), Box<dyn std::error::Error>> {
        let terminal = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        rustix::pty::grantpt(&terminal)?;
        rustix::pty::unlockpt(&terminal)?;
        tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
        let name = rustix::pty::ptsname(&terminal, Vec::new())?;
        Ok((terminal, File::options().read(true).write(true).open(Path::new(name.to_str()?))?))
    };
    open().map_err(|error| Skip(format!("no pseudo-terminal: {error}")))
}

/// Text of a recorder on a terminal of so many columns: it answers SIGUSR1, and SIGINT ends it where it has no COMMAND.
fn on_terminal(columns: u16, command: &[&str]) -> Result<String, Skip> {
    let (shown, side) = terminal(columns)?;
    let directory = Directory::new(&[]);
    let mut recorder = kmemtraced();
    recorder.args(["-B", &instance_name(), "-o"]).arg(directory.file("trace")).args(command);
    recorder.stdin(Stdio::null()).stdout(Stdio::null()).stderr(side);
    let mut child = recorder.spawn().unwrap();
    // The command keeps the terminal's side open until it is dropped.
    drop(recorder);
    let (pid, has_command) = (rustix::process::Pid::from_child(&child), !command.is_empty());
    let signals = thread::spawn(move || {
        sleep(Duration::from_millis(3500));
        let _ = kill_process(pid, Signal::USR1);
        sleep(Duration::from_millis(1500));
        // A command ends the recording by itself.
        if !has_command {
            let _ = kill_process(pid, Signal::INT);
        }
    });
    let (mut text, mut shown) = (Vec::new(), File::from(shown));
    // Reading ends with an error once the other side is closed.
    let _ = shown.read_to_end(&mut text);
    let _ = signals.join();
    child.wait().unwrap();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Lines as a terminal shows them in the end: what is written after a carriage return replaces what was there.
fn screen(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let mut shown: Vec<char> = Vec::new();
        for piece in line.split('\r') {
            for (at, c) in piece.chars().enumerate() {
                match shown.get_mut(at) {
                    Some(place) => *place = c,
                    None => shown.push(c),
                }
            }
        }
        lines.push(shown.into_iter().collect::<String>().trim_end().to_owned());
    }
    lines
}

fn a_status_line_stands_alone_and_does_not_wrap() -> Result<(), Skip> {
    can_record()?;
    // All at once: they wait for lines that come once a second.
    let (narrow, wide, beside) = thread::scope(|scope| {
        let narrow = scope.spawn(|| on_terminal(40, &[]));
        let beside = scope.spawn(|| on_terminal(80, &["--", "sleep", "5"]));
        let wide = on_terminal(80, &[]);
        (narrow.join().unwrap(), wide, beside.join().unwrap())
    });
    for (columns, text) in [(40, narrow?), (80, wide?)] {
        let statuses: Vec<&str> = text.split(['\r', '\n']).filter(|piece| piece.starts_with('+')).collect();
        assert!(statuses.len() >= 2 && statuses.iter().all(|line| line.contains(" 0 lost")), "{text:?}");
        assert!(statuses.iter().all(|line| line.len() < columns), "{text:?}");
        let screen = screen(&text);
        assert!(!screen.iter().any(|line| line.contains(" s   ")), "a status line is left: {screen:?}");
        assert!(screen.iter().any(|line| line.starts_with("CPU 0: ")), "{screen:?}");
        assert!(screen.iter().any(|line| line.starts_with("stopped: Ctrl-C ")), "{screen:?}");
    }
    // A command writes to the same terminal.
    let text = beside?;
    assert!(!text.contains('+') && text.contains("stopped: sleep exited 0"), "{text:?}");
    Ok(())
}

fn a_command_without_dashes_is_told_the_line_to_type() -> Result<(), Skip> {
    let said = run("kmemtraced", &["-B", "make", "make", "-C", "x"], &[]);
    let stderr = String::from_utf8_lossy(&said.stderr);
    assert_eq!((said.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains("put -- before the command: ") && stderr.ends_with(" -B make -- make -C x\n"), "{stderr}");
    Ok(())
}
