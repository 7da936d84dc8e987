//! Recorder's end on the running kernel, as root: signals at every stage, terminals and disks that take nothing,
//! limits. Tests that cannot run here are listed as skipped at the end.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use kmemtrace_tests::live::{Instance, Tracefs};
use kmemtrace_tests::load;
use kmemtrace_tests::programs::{json, program, run};
use kmemtrace_tests::recorder::{can_record, instance_name, sandbox};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::OpenptFlags;
use serde_json::Value;

kmemtrace_tests::tests![
    every_signal_at_every_stage_makes_one_clean_end,
    a_second_signal_ends_a_long_drain,
    a_second_signal_ends_it_while_the_disk_stalls,
    a_second_signal_ends_a_set_up_that_hangs,
    a_second_signal_ends_a_removal_that_hangs,
    a_second_signal_removes_an_instance_that_is_held_open,
    a_full_pipe_of_messages_holds_up_nothing,
    a_held_terminal_holds_up_nothing,
    a_report_that_hangs_is_ended_by_a_signal,
    a_file_limit_is_a_full_disk,
    a_hangup_that_was_ignored_at_the_start_stays_ignored,
    memory_is_locked_and_the_command_has_nothing_of_it,
    under_any_memory_limit_it_records_or_changes_nothing,
];

/// Time limits. A second signal ends the recorder within a second, a first one within two. Looks are counted, not time: on a machine that
/// keeps threads waiting, the recorder and the looks take longer alike.
const SECOND: Duration = Duration::from_millis(1500);
const FIRST: Duration = Duration::from_millis(2500);
/// Time limit for everything that does not hang.
const LONG: Duration = Duration::from_secs(30);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(2);
/// Distance of two signals that do not count as one; the recorder looks for signals every 20 ms.
const APART: Duration = Duration::from_millis(200);

fn until(what: &str, patience: Duration, mut is_so: impl FnMut() -> bool) {
    for _ in 0..patience.as_millis() / PAUSE.as_millis() {
        if is_so() {
            return;
        }
        sleep(PAUSE);
    }
    panic!("{what}: not after {patience:?}");
}

/// Recorder in an instance of its own. Both end on drop.
struct Recorder<'a> {
    child: Child,
    instance: Instance<'a>,
    name: String,
    directory: Directory,
    /// Directory of the file for messages, if it is another one.
    messages: Option<Directory>,
}

impl<'a> Recorder<'a> {
    /// Starts `wrapper kmemtraced OPTIONS -o DIRECTORY/trace -- COMMAND`, with standard error in DIRECTORY/stderr.
    fn spawn(tracefs: &'a Tracefs, wrapper: &[&str], options: &[&str], command: &[&str]) -> Recorder<'a> {
        let directory = Directory::new(&[]);
        let stderr = File::create(directory.file("stderr")).unwrap();
        Recorder::spawn_in(tracefs, directory, stderr.into(), Stdio::null(), (wrapper, options, command))
    }

    fn spawn_in(
        tracefs: &'a Tracefs,
        directory: Directory,
        stderr: OwnedFd,
        stdout: Stdio,
        (wrapper, options, rest): (&[&str], &[&str], &[&str]),
    ) -> Recorder<'a> {
        let name = instance_name();
        let me = program("kmemtraced");
        let mut command = match wrapper.split_first() {
            Some((first, others)) => {
                let mut command = Command::new(first);
                command.args(others).arg(me);
                command
            }
            None => Command::new(me),
        };
        // The list of the mode strict kills where strace fails a call.
        command.args(sandbox().iter().filter(|_| wrapper.first() != Some(&"strace")));
        command.args(["-e", "slab", "-B", &name]).args(options).arg("-o").arg(directory.file("trace"));
        if !rest.is_empty() {
            command.arg("--").args(rest);
        }
        let child = command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn().unwrap();
        Recorder { child, instance: Instance::of(tracefs, &name), name, directory, messages: None }
    }

    fn has_instance(&self) -> bool {
        self.instance.path().exists()
    }

    fn is_on(&self) -> bool {
        // A new instance is on for a moment, before the recorder has made any file.
        let on = self.instance.read("tracing_on");
        on.is_ok_and(|on| on.trim() == "1") && self.directory.file("trace/cpu0.out").exists()
    }

    fn until_set_up(&self) {
        until("an instance", LONG, || self.has_instance());
    }

    fn until_recording(&self) {
        until("recording", LONG, || self.is_on());
    }

    fn until_stopped(&self) {
        until("the end of recording", LONG, || !self.is_on());
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// True if the process has ended, even if one of its threads hangs in the kernel.
    fn is_dead(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    }

    /// Waits for the recorder's end, at most `patience`.
    fn ends_within(&self, patience: Duration) {
        let begin = Instant::now();
        for _ in 0..patience.as_millis() / PAUSE.as_millis() {
            if self.is_dead() {
                return println!("ended after {:.0?} of {patience:?}", begin.elapsed());
            }
            sleep(PAUSE);
        }
        panic!("no end within {patience:?}: {}", self.state());
    }

    /// Sends a second signal until the recorder takes it for one: on a busy machine the first one may have been seen late. Waits for the
    /// end, at most [`SECOND`].
    fn end_by(&self, signal: Signal) {
        let begin = Instant::now();
        let mut signalled = begin;
        self.signal(signal);
        until("an end by a second signal", SECOND, || {
            if signalled.elapsed() > 2 * APART && !self.is_dead() {
                signalled = Instant::now();
                self.signal(signal);
            }
            self.is_dead()
        });
        println!("ended after {:.0?} of {SECOND:?}", begin.elapsed());
    }

    /// Waits until a thread hangs, which the tracer holds in a system call.
    fn until_hanging(&self) {
        let mut looks = 0;
        until("a thread that hangs", LONG, || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
            let mut stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
            let hangs = stats.any(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('t')));
            // The tracer holds each system call for a moment.
            looks = if hangs { looks + 1 } else { 0 };
            looks > 50
        });
    }

    fn status(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Description of a recorder that does not end: its threads, and its messages.
    fn state(&self) -> String {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        let threads = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
        let threads: Vec<String> = threads.map(|stat| stat.chars().take(30).collect()).collect();
        format!("{threads:?}, instance {}: {}", self.has_instance(), self.stderr())
    }

    fn stderr(&self) -> String {
        // The file is missing if a pipe or a terminal takes the messages.
        let directory = self.messages.as_ref().unwrap_or(&self.directory);
        fs::read_to_string(directory.file("stderr")).unwrap_or_default()
    }

    fn check(&self) -> Value {
        json(&run("kmemtrace-check", &["--format", "json"], &[&self.directory.file("trace")]).stdout)
    }

    /// Asserts an orderly end: exactly one, with all files finished, and no instance left.
    fn assert_clean_end(&mut self, what: &str) {
        let status = self.status();
        let stderr = self.stderr();
        assert!(matches!(status.code(), Some(0 | 1)), "{what}: {status}: {stderr}");
        assert_eq!(stderr.matches("stopped: ").count(), 1, "{what}: {stderr}");
        let found = self.check();
        assert_eq!((&found["truncated"], &found["corrupt"]), (&0.into(), &0.into()), "{what}: {found}");
        assert!(!self.has_instance(), "{what}: instance {} is left", self.name);
    }

    /// Asserts the end by a second signal: files without an end, a message about them, and no instance left.
    fn assert_cut(&mut self) {
        assert!(!self.has_instance(), "instance {} is left", self.name);
        let status = self.status();
        let stderr = self.stderr();
        assert_eq!(status.code(), Some(3), "{status}: {stderr}");
        assert!(stderr.contains("a second signal cut cpu"), "{stderr}");
        let found = self.check();
        assert_eq!(found["corrupt"], 0, "{found}");
        assert!(found["truncated"].as_u64() > Some(0), "{found}");
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if self.has_instance() {
            let _ = self.instance.write("tracing_on", "0");
            let _ = fs::remove_dir(self.instance.path());
        }
    }
}

/// Runs `work` under load on every CPU.
fn with_load<T>(work: impl FnOnce() -> T) -> T {
    let goes_on = std::sync::atomic::AtomicBool::new(true);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    thread::scope(|scope| {
        for _ in 0..load::cpus().unwrap().len() {
            scope.spawn(|| {
                while goes_on.load(relaxed) {
                    load::iov(500, 9).unwrap();
                }
            });
        }
        // A panic in `work` must not leave the threads running.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        goes_on.store(false, relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Signals that change nothing; for USR1 the recorder prints its counters.
const HARMLESS: [Signal; 12] = [
    Signal::USR1,
    Signal::USR2,
    Signal::PIPE,
    Signal::XFSZ,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::WINCH,
    Signal::URG,
    Signal::TSTP,
    Signal::CONT,
];
const STOPPING: [Signal; 5] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::XCPU];

fn every_signal_at_every_stage_makes_one_clean_end() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let end = Directory::new(&[]);
    let script = format!("trap '' TERM INT; until [ -e {} ]; do sleep 0.1; done", end.file("end").display());
    let goes_on = ["sh", "-c", &script];
    // Name of the stage, options, true for a run with COMMAND, and a wait until the stage is reached.
    type Stage = (&'static str, &'static [&'static str], bool, fn(&Recorder<'_>));
    let stages: [Stage; 4] = [
        ("set-up", &[], false, |r| r.until_set_up()),
        ("recording", &[], false, |r| r.until_recording()),
        ("draining", &["-d", "300ms", "--compress", "zstd:12"], false, |r| {
            r.until_recording();
            with_load(|| r.until_stopped());
        }),
        ("after", &["-d", "100ms"], true, |r| {
            r.until_recording();
            until("the instance's end", LONG, || !r.has_instance());
        }),
    ];
    for (stage, options, has_command, reach) in stages {
        let command = if has_command { &goes_on[..] } else { &[] };
        for stopping in STOPPING.map(Some).into_iter().chain([None]) {
            let what = format!("{stage}, {stopping:?}");
            let _ = fs::remove_file(end.file("end"));
            let mut recorder = Recorder::spawn(&tracefs, &[], options, command);
            reach(&recorder);
            let Some(signal) = stopping else {
                for signal in HARMLESS {
                    recorder.signal(signal);
                    sleep(Duration::from_millis(5));
                }
                // STKFLT, or another where there is none, and a real-time signal; the shell takes them by number.
                let kill = "kill -16 $1; kill -40 $1";
                let done = Command::new("sh").args(["-c", kill, "sh", &recorder.child.id().to_string()]).status();
                assert!(done.unwrap().success());
                end.write("end", b"");
                if options.is_empty() {
                    until("recording", LONG, || recorder.is_on() || recorder.is_dead());
                    assert!(!recorder.is_dead(), "{what}: ended by a harmless signal: {}", recorder.stderr());
                    until("counters", LONG, || recorder.stderr().contains("CPU 0: "));
                    recorder.signal(Signal::TERM);
                }
                recorder.ends_within(LONG);
                recorder.assert_clean_end(&what);
                continue;
            };
            recorder.signal(signal);
            if has_command && signal != Signal::XCPU {
                recorder.ends_within(SECOND);
                assert!(recorder.stderr().contains("the command goes on"), "{what}: {}", recorder.stderr());
            }
            end.write("end", b"");
            recorder.ends_within(LONG);
            recorder.assert_clean_end(&what);
        }
    }
    Ok(())
}

fn a_second_signal_ends_a_long_drain() -> Result<(), Skip> {
    let tracefs = can_record()?;
    // The writers are far behind, also where other programs slow the load down: blocks are compressed for as long as half of --flush
    // allows, by threads that have less of the processors than the load.
    let options = ["-b", "32M", "--compress", "zstd:22", "--flush", "60s", "--priority", "none"];
    let mut recorder = Recorder::spawn(&tracefs, &["nice", "-n", "5"], &options, &[]);
    recorder.until_recording();
    with_load(|| {
        let entries = |cpu| recorder.instance.stat(cpu, "entries").unwrap_or(0);
        let waiting = || recorder.instance.cpus().unwrap_or_default().into_iter().map(entries).sum::<u64>();
        until("much to drain", LONG, || waiting() > 300_000);
        recorder.signal(Signal::INT);
        recorder.until_stopped();
        sleep(APART);
        assert!(!recorder.is_dead(), "there was too little to drain: {}", recorder.stderr());
        recorder.end_by(Signal::INT);
    });
    recorder.assert_cut();
    Ok(())
}

/// Ext4 file system that takes no writes while it is frozen.
struct Disk {
    at: std::path::PathBuf,
    _image: Directory,
}

fn tool(name: &str, arguments: &[&str], path: &Path) -> Result<(), Skip> {
    let output = Command::new(name).args(arguments).arg(path).output().map_err(|e| Skip(format!("{name}: {e}")))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(Skip(format!("{name}: {}", said.trim()))) }
}

impl Disk {
    fn mount(at: &Path) -> Result<Disk, Skip> {
        let image = Directory::new(&[]);
        let file = image.file("image");
        File::create(&file).and_then(|file| file.set_len(256 << 20)).unwrap();
        tool("mkfs.ext4", &["-q", "-F"], &file)?;
        tool("mount", &["-o", "loop", &file.display().to_string()], at)?;
        Ok(Disk { at: at.to_owned(), _image: image })
    }

    fn freeze(&self) -> Result<(), Skip> {
        tool("fsfreeze", &["-f"], &self.at)
    }

    fn thaw(&self) {
        let _ = tool("fsfreeze", &["-u"], &self.at);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.thaw();
        let _ = tool("umount", &["-l"], &self.at);
    }
}

/// Recorder whose trace is on a disk of its own.
fn spawn_on_disk(tracefs: &Tracefs, is_frozen: bool) -> Result<(Recorder<'_>, Disk), Skip> {
    let (directory, elsewhere) = (Directory::new(&[]), Directory::new(&[]));
    let disk = Disk::mount(directory.path())?;
    let stderr = File::create(elsewhere.file("stderr")).unwrap();
    if is_frozen {
        disk.freeze()?;
    }
    let mut recorder =
        Recorder::spawn_in(tracefs, directory, stderr.into(), Stdio::null(), (&[], &["--compress", "none"], &[]));
    recorder.messages = Some(elsewhere);
    Ok((recorder, disk))
}

fn a_second_signal_ends_it_while_the_disk_stalls() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let (mut recorder, disk) = spawn_on_disk(&tracefs, false)?;
    recorder.until_recording();
    disk.freeze()?;
    with_load(|| {
        sleep(Duration::from_millis(1000));
        recorder.signal(Signal::TERM);
        recorder.until_stopped();
        sleep(APART);
        assert!(
            recorder.has_instance() && !recorder.is_dead(),
            "the recorder has drained to a disk that takes nothing"
        );
        recorder.end_by(Signal::TERM);
    });
    assert!(!recorder.has_instance(), "instance {} is left while the disk stalls", recorder.name);
    disk.thaw();
    recorder.assert_cut();
    Ok(())
}

fn a_second_signal_ends_a_set_up_that_hangs() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let (mut recorder, disk) = spawn_on_disk(&tracefs, true)?;
    recorder.until_set_up();
    recorder.signal(Signal::INT);
    // The process ends only once the disk takes writes again.
    until("the instance's end", SECOND, || {
        sleep(APART);
        recorder.signal(Signal::INT);
        !recorder.has_instance()
    });
    disk.thaw();
    recorder.ends_within(SECOND);
    let status = recorder.status();
    assert_eq!(status.code(), Some(3), "{status}: {}", recorder.stderr());
    assert!(recorder.stderr().contains("ended at once by a second signal"), "{}", recorder.stderr());
    Ok(())
}

/// Wrapper that delays each of these system calls longer than a second signal may take: strace, with the recorder as
/// the process started.
fn holding(calls: &str) -> Result<Vec<String>, Skip> {
    if Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Err(Skip("needs strace".to_owned()));
    }
    let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:delay_enter=5s"));
    Ok(["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject].map(str::to_owned).to_vec())
}

fn a_second_signal_ends_a_removal_that_hangs() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let wrapper = holding("unlinkat")?;
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let mut recorder = Recorder::spawn(&tracefs, &wrapper, &[], &[]);
    recorder.until_recording();
    recorder.signal(Signal::TERM);
    recorder.until_stopped();
    recorder.until_hanging();
    assert!(recorder.has_instance() && !recorder.is_dead(), "the removal does not hang: {}", recorder.stderr());
    recorder.end_by(Signal::TERM);
    let (status, stderr) = (recorder.status(), recorder.stderr());
    assert_eq!(status.code(), Some(3), "{status}: {stderr}");
    assert!(recorder.has_instance(), "the instance was removed all the same: {stderr}");
    let left =
        format!("{}: is still being removed: if it stays, run kmemtraced recover", recorder.instance.path().display());
    assert!(stderr.contains(&left), "{stderr}");
    let found = recorder.check();
    assert_eq!(found["corrupt"], 0, "{found}");
    Ok(())
}

fn a_second_signal_removes_an_instance_that_is_held_open() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let wrapper = holding("renameat2")?;
    let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    // The disk hangs while the new recording takes the name of an earlier one: events arrive, and the thread that
    // would close the control files is blocked.
    let directory = Directory::new(&[]);
    let earlier = ["-q", "-d", "50ms", "-B", &instance_name(), "-o"];
    assert_eq!(run("kmemtraced", &earlier, &[&directory.file("trace")]).status.code(), Some(0));
    let before = fs::read(directory.file("trace/cpu0.out")).unwrap();
    let stderr = File::create(directory.file("stderr")).unwrap();
    let what = (&wrapper[..], &["-f"][..], &[][..]);
    let mut recorder = Recorder::spawn_in(&tracefs, directory, stderr.into(), Stdio::null(), what);
    recorder.until_recording();
    until("the recording's begin", LONG, || recorder.stderr().contains("recording to "));
    recorder.until_hanging();
    recorder.signal(Signal::TERM);
    sleep(APART);
    assert!(recorder.is_on() && !recorder.is_dead(), "the disk does not hang: {}", recorder.stderr());
    recorder.end_by(Signal::TERM);
    assert!(!recorder.has_instance(), "instance {} is left: {}", recorder.name, recorder.stderr());
    let (status, stderr) = (recorder.status(), recorder.stderr());
    assert_eq!(status.code(), Some(3), "{status}: {stderr}");
    assert!(stderr.contains("ended at once by a second signal"), "{stderr}");
    assert!(!stderr.contains("recover"), "{stderr}");
    let kept = fs::read(recorder.directory.file("trace/cpu0.out")).unwrap();
    assert!(kept == before, "the earlier recording has changed");
    Ok(())
}

/// Full pipe; its reading end must be kept.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reading, writing) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let flags = rustix::fs::fcntl_getfl(&writing).unwrap();
    rustix::fs::fcntl_setfl(&writing, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writing, &[b'.'; 4096]).is_ok() {}
    while rustix::io::write(&writing, b".").is_ok() {}
    rustix::fs::fcntl_setfl(&writing, flags).unwrap();
    (reading, writing)
}

fn a_full_pipe_of_messages_holds_up_nothing() -> Result<(), Skip> {
    let tracefs = can_record()?;
    for signals in [&[][..], &[Signal::TERM], &[Signal::USR1, Signal::TERM]] {
        let (reading, writing) = full_pipe();
        let limit = if signals.is_empty() { &["-v", "-d", "300ms"][..] } else { &["-v"] };
        let what = (&[][..], limit, &[][..]);
        let mut recorder = Recorder::spawn_in(&tracefs, Directory::new(&[]), writing, Stdio::null(), what);
        recorder.until_recording();
        for &signal in signals {
            recorder.signal(signal);
            sleep(Duration::from_millis(100));
        }
        recorder.ends_within(FIRST);
        let status = recorder.status();
        assert!(matches!(status.code(), Some(0 | 1)), "{signals:?}: {status}");
        assert_eq!(recorder.check()["truncated"], 0, "{signals:?}");
        assert!(!recorder.has_instance(), "{signals:?}");
        drop(reading);
    }
    // A pipe that is read late has all messages in their order.
    let (reading, writing) = full_pipe();
    let what = (&[][..], &["-v", "-d", "1s"][..], &[][..]);
    let mut recorder = Recorder::spawn_in(&tracefs, Directory::new(&[]), writing, Stdio::null(), what);
    recorder.until_recording();
    let mut said = String::new();
    File::from(reading).read_to_string(&mut said).unwrap();
    let places = ["event kmem/kfree", "recording to ", "stopped: --duration", "next: "].map(|line| said.find(line));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{said}");
    assert_eq!(recorder.status().code(), Some(0), "{said}");
    Ok(())
}

fn a_held_terminal_holds_up_nothing() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let open = || -> Result<(OwnedFd, File), Box<dyn std::error::Error>> {
        let terminal = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        rustix::pty::grantpt(&terminal)?;
        rustix::pty::unlockpt(&terminal)?;
        let name = rustix::pty::ptsname(&terminal, Vec::new())?;
        let path = Path::new(name.to_str()?).to_owned();
        Ok((terminal, File::options().read(true).write(true).open(path)?))
    };
    let (terminal, side) = open().map_err(|error| Skip(format!("no pseudo-terminal: {error}")))?;
    let what = (&[][..], &[][..], &[][..]);
    let mut recorder = Recorder::spawn_in(&tracefs, Directory::new(&[]), side.into(), Stdio::null(), what);
    recorder.until_recording();
    // Ctrl-S: from now on the terminal takes nothing, and the status line of each second waits.
    File::from(terminal.as_fd().try_clone_to_owned().unwrap()).write_all(b"\x13").unwrap();
    sleep(Duration::from_millis(2500));
    recorder.signal(Signal::INT);
    recorder.ends_within(FIRST);
    assert!(matches!(recorder.status().code(), Some(0 | 1)));
    assert_eq!(recorder.check()["truncated"], 0);
    assert!(!recorder.has_instance());
    Ok(())
}

fn a_report_that_hangs_is_ended_by_a_signal() -> Result<(), Skip> {
    let tracefs = can_record()?;
    // After a limit the first signal ends the report; after a stop signal the second one does.
    for (options, is_stopped) in [(&["--report", "sites", "-d", "300ms"][..], false), (&["--report", "sites"], true)] {
        let (_reading, writing) = full_pipe();
        let directory = Directory::new(&[]);
        let stderr = File::create(directory.file("stderr")).unwrap();
        let what = (&[][..], options, &[][..]);
        let mut recorder = Recorder::spawn_in(&tracefs, directory, stderr.into(), writing.into(), what);
        recorder.until_recording();
        if is_stopped {
            recorder.signal(Signal::TERM);
        }
        until("the next line", LONG, || recorder.stderr().contains("next: "));
        sleep(Duration::from_millis(500));
        assert!(!recorder.is_dead(), "the report does not hang: {}", recorder.stderr());
        recorder.end_by(Signal::TERM);
        assert_eq!(recorder.status().code(), Some(3), "{}", recorder.stderr());
        assert!(recorder.stderr().contains("--report sites: ended by a signal"), "{}", recorder.stderr());
        let found = recorder.check();
        assert_eq!((&found["truncated"], &found["corrupt"]), (&0.into(), &0.into()), "the trace itself is whole");
    }
    Ok(())
}

fn a_file_limit_is_a_full_disk() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let wrapper = ["prlimit", "--fsize=16777216"];
    let mut recorder = Recorder::spawn(&tracefs, &wrapper, &["--compress", "none", "--flush", "100ms"], &[]);
    recorder.until_recording();
    with_load(|| recorder.ends_within(LONG));
    let status = recorder.status();
    let stderr = recorder.stderr();
    assert_eq!(status.code(), Some(3), "{status}: {stderr}");
    assert!(stderr.contains("File too large") && stderr.contains("ulimit -f"), "{stderr}");
    assert!(!recorder.has_instance());
    let found = recorder.check();
    assert_eq!(found["corrupt"], 0, "{found}");
    let mut refused = Recorder::spawn(&tracefs, &["prlimit", "--fsize=4096"], &[], &[]);
    assert_eq!(refused.status().code(), Some(2), "{}", refused.stderr());
    assert!(refused.stderr().contains("ulimit -f"), "{}", refused.stderr());
    assert!(!refused.has_instance() && !refused.directory.file("trace").exists());
    let events: u64 = found["files"].as_array().into_iter().flatten().filter_map(|file| file["events"].as_u64()).sum();
    assert!(events > 50_000, "{found}");
    Ok(())
}

fn a_hangup_that_was_ignored_at_the_start_stays_ignored() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let wrapper = ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"];
    let mut recorder = Recorder::spawn(&tracefs, &wrapper, &[], &[]);
    recorder.until_recording();
    recorder.signal(Signal::HUP);
    sleep(Duration::from_millis(300));
    assert!(recorder.is_on(), "HUP has stopped the recorder: {}", recorder.stderr());
    recorder.signal(Signal::TERM);
    recorder.assert_clean_end("nohup");
    Ok(())
}

fn memory_is_locked_and_the_command_has_nothing_of_it() -> Result<(), Skip> {
    let tracefs = can_record()?;
    // The fields of stat are priority, nice level, real-time priority and policy.
    let end = Directory::new(&[]);
    let ask = format!(
        "grep -E '^(Sig(Blk|Ign|Cgt)|VmLck|Cpus_allowed):' /proc/self/status; cat /proc/self/oom_score_adj \
         /proc/self/limits; sed 's/.*) //' /proc/self/stat | cut -d' ' -f16,17,38,39; ls /proc/self/fd; \
         until [ -e {} ]; do sleep 0.1; done",
        end.file("end").display()
    );
    let ask = ask.as_str();
    end.write("end", b"");
    let plain = Command::new("sh").args(["-c", ask]).stdin(Stdio::null()).output().unwrap().stdout;
    fs::remove_file(end.file("end")).unwrap();
    let directory = Directory::new(&[]);
    let [stderr, stdout] = ["stderr", "stdout"].map(|name| File::create(directory.file(name)).unwrap());
    let what = (&[][..], &["-v"][..], &["sh", "-c", ask][..]);
    let mut recorder = Recorder::spawn_in(&tracefs, directory, stderr.into(), stdout.into(), what);
    until("the recording's begin", LONG, || recorder.stderr().contains("recording to "));
    let proc = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", recorder.child.id())).unwrap();
    until("the OOM score", LONG, || {
        proc("oom_score_adj").trim() == "-900" || recorder.stderr().contains("the OOM killer may choose this process")
    });
    let (status, score) = (proc("status"), proc("oom_score_adj"));
    let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")?.split_whitespace().next()?.parse().ok());
    end.write("end", b"");
    recorder.ends_within(LONG);
    recorder.assert_clean_end("a command");
    let stderr = recorder.stderr();
    assert!(locked > Some(16u64 << 10) || stderr.contains("memory is not locked"), "{locked:?} KiB locked: {stderr}");
    assert!(score.trim() == "-900" || stderr.contains("the OOM killer may choose this process"), "{score}: {stderr}");
    assert_eq!(recorder.directory.text("stdout"), String::from_utf8_lossy(&plain));
    Ok(())
}

fn under_any_memory_limit_it_records_or_changes_nothing() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let (mut recorded, mut refused) = (0, 0);
    for limit in ["--as", "--data"] {
        for mib in [20, 60, 100, 140, 180, 220, 260, 275, 280, 290, 310, 340, 380, 430, 600] {
            let wrapper = ["prlimit".to_owned(), format!("{limit}={}", mib << 20)];
            let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
            let mut recorder = Recorder::spawn(&tracefs, &wrapper, &["-d", "50ms"], &[]);
            let status = recorder.status();
            let (stderr, what) = (recorder.stderr(), format!("{limit}={mib}M"));
            assert!(!recorder.has_instance(), "{what}: {status}: {stderr}");
            match status.code() {
                Some(0 | 1) => {
                    assert_eq!(recorder.check()["truncated"], 0, "{what}");
                    recorded += 1;
                }
                Some(2) => {
                    assert_eq!(stderr.lines().count(), 1, "{what}: {stderr}");
                    assert!(stderr.contains("ulimit -v"), "{what}: {stderr}");
                    assert!(!recorder.directory.file("trace").exists(), "{what}: {stderr}");
                    refused += 1;
                }
                _ => panic!("{what}: {status} (signal {:?}): {stderr}", status.signal()),
            }
        }
    }
    assert!(recorded > 0 && refused > 0, "{recorded} recorded, {refused} refused");
    Ok(())
}
