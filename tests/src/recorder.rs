//! Recorder: `kmemtraced` on the running kernel, in an instance of the test's own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::live::{Instance, Tracefs};
use crate::programs::{data, program, run, text};
use crate::recording::Directory;
use crate::runner::Skip;

#[derive(Debug)]
pub struct Recorder {
    child: Child,
    instance: String,
    /// Directory of the `trace`, and of the file `stderr`.
    pub directory: Directory,
}

/// Longest wait for anything that does not hang.
const LONG: Duration = Duration::from_secs(30);

/// Recorder that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stderr: String,
    pub directory: Directory,
}

impl Ended {
    pub fn trace(&self) -> PathBuf {
        self.directory.file("trace")
    }
}

/// Recording of a command that has ended.
#[derive(Debug)]
pub struct Recorded {
    directory: Directory,
    /// What recorder and command wrote, and the recorder's status.
    pub output: Output,
}

impl Recorded {
    /// Records a command; the word INSTANCE in it becomes the instance's path.
    pub fn new(options: &[&str], command: &[&str]) -> Recorded {
        let tracefs = Tracefs::find().unwrap_or_else(|Skip(reason)| panic!("{reason}"));
        let (directory, instance) = (Directory::new(&[]), instance_name());
        let path = tracefs.path().join("instances").join(&instance).display().to_string();
        let mut recorder = kmemtraced();
        recorder.args(["-B", &instance]).args(options).arg("-o").arg(directory.file("trace")).arg("--");
        recorder.args(command.iter().map(|word| word.replace("INSTANCE", &path))).stdin(Stdio::null());
        let output = recorder.output().unwrap();
        assert!(!Path::new(&path).exists(), "instance {instance} is left");
        Recorded { directory, output }
    }

    pub fn stderr(&self) -> String {
        text(&self.output.stderr)
    }

    pub fn trace(&self) -> PathBuf {
        self.directory.file("trace")
    }
}

/// Words for the recorder's sandbox: strict where the kernel has all layers. Not under strace, whose failures are calls of number -1, which
/// a list that kills ends. Programs of earlier commits (`KMEMTRACE_PROGRAMS`) have none.
pub fn sandbox() -> &'static [&'static str] {
    static WORDS: OnceLock<&[&str]> = OnceLock::new();
    WORDS.get_or_init(|| {
        let strict = run("kmemtrace-check", &["--sandbox", "strict"], &[&data("amd64-6.18")]);
        match strict.status.success() {
            true => &["--sandbox", "strict"],
            false if text(&strict.stderr).contains("unexpected argument") => &[],
            false => &["--sandbox", "auto"],
        }
    })
}

/// The recorder, in this sandbox. Verbs come before it.
pub fn kmemtraced() -> Command {
    let mut command = Command::new(program("kmemtraced"));
    command.args(sandbox());
    command
}

pub fn instance_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("kmemtrace-recorder-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Skips where recording is not possible; the recorder finds tracefs by itself.
pub fn can_record() -> Result<Tracefs, Skip> {
    let tracefs = Tracefs::find()?;
    tracefs.need_event("kmem/kmalloc")?;
    Ok(tracefs)
}

impl Recorder {
    /// Starts a recorder of slab events, with these options besides.
    pub fn start(options: &[&str]) -> Recorder {
        let directory = Directory::new(&[]);
        Recorder::start_in(directory, &instance_name(), options)
    }

    pub fn start_in(directory: Directory, instance: &str, options: &[&str]) -> Recorder {
        Recorder::start_of("slab", directory, instance, options)
    }

    /// Starts a recorder of these events, as `-e` takes them.
    pub fn start_of(events: &str, directory: Directory, instance: &str, options: &[&str]) -> Recorder {
        let mut command = kmemtraced();
        command.args(["-e", events, "-B", instance]).args(options).arg("-o").arg(directory.file("trace"));
        let stderr = File::create(directory.file("stderr")).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn();
        let child = child.unwrap();
        let mut recorder = Recorder { child, instance: instance.to_owned(), directory };
        let tracefs = Tracefs::find().unwrap_or_else(|Skip(reason)| panic!("{reason}"));
        let deadline = Instant::now() + LONG;
        while !recorder.is_recording(&tracefs) {
            if let Ok(Some(status)) = recorder.child.try_wait() {
                panic!("kmemtraced ended early ({status}): {}", recorder.stderr());
            }
            assert!(Instant::now() < deadline, "kmemtraced does not begin to record");
            sleep(Duration::from_millis(10));
        }
        recorder
    }

    fn is_recording(&self, tracefs: &Tracefs) -> bool {
        let on = self.instance(tracefs).read("tracing_on");
        on.is_ok_and(|on| on.trim() == "1") && self.directory.file("trace/meta.out").is_file()
    }

    pub fn instance<'a>(&self, tracefs: &'a Tracefs) -> Instance<'a> {
        Instance::of(tracefs, &self.instance)
    }

    pub fn instance_name(&self) -> &str {
        &self.instance
    }

    pub fn trace(&self) -> PathBuf {
        self.directory.file("trace")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Messages up to now.
    pub fn stderr(&self) -> String {
        self.directory.text("stderr")
    }

    /// Waits until the running recorder has printed `text` so many times.
    pub fn until_said(&self, text: &str, times: usize) {
        let deadline = Instant::now() + LONG;
        while self.stderr().matches(text).count() < times {
            assert!(Instant::now() < deadline, "{text:?} was not printed {times} times: {}", self.stderr());
            sleep(Duration::from_millis(5));
        }
    }

    pub fn wait(mut self) -> Ended {
        let status = self.child.wait().unwrap();
        let stderr = self.stderr();
        Ended { status, stderr, directory: self.directory }
    }

    /// Kills the recorder, and undoes what it leaves in the kernel: a killed recorder cannot remove its instance.
    pub fn kill(self) -> Ended {
        let name = self.instance.clone();
        self.signal(Signal::KILL);
        let ended = self.wait();
        run("kmemtraced", &["recover", "-B", &name], &[]);
        ended
    }

    /// Stops the recorder as a user does, by SIGTERM.
    pub fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Stops the recorder and returns its directory. Check must end with the recorder's exit status: whole, or lossy.
    pub fn stop_whole(self) -> Directory {
        let ended = self.stop();
        assert!(matches!(ended.status.code(), Some(0 | 1)), "kmemtraced: {}: {}", ended.status, ended.stderr);
        let whole = run("kmemtrace-check", &[], &[&ended.trace()]);
        assert_eq!(whole.status.code(), ended.status.code(), "{}", String::from_utf8_lossy(&whole.stdout));
        ended.directory
    }
}

/// Process of `kmemtraced top` or `watch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The one that was started, which has the terminal.
    First,
    Recorder,
    Viewer,
}

impl Part {
    /// The process of the command that records in an instance; `None` where it is not there.
    pub fn of(self, instance: &str) -> Option<Pid> {
        let processes: Vec<Process> =
            fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| Process::at(&entry.path())).collect();
        let is_of_instance = |process: &&Process| process.has(instance) && (process.has("top") || process.has("watch"));
        let of = |is_served: bool| {
            processes.iter().filter(is_of_instance).find(move |process| process.has("--served") == is_served)
        };
        let found = match self {
            Part::First => of(false),
            Part::Recorder => of(true),
            Part::Viewer => {
                let first = of(false)?.id;
                processes.iter().find(|process| process.parent == first && process.has("--viewer"))
            }
        };
        Pid::from_raw(found?.id)
    }
}

/// Process that runs.
struct Process {
    id: i32,
    parent: i32,
    words: Vec<String>,
}

impl Process {
    fn at(path: &Path) -> Option<Process> {
        let id = path.file_name()?.to_str()?.parse().ok()?;
        let status = fs::read_to_string(path.join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()?;
        let line = fs::read(path.join("cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        Some(Process { id, parent, words })
    }

    fn has(&self, word: &str) -> bool {
        self.words.iter().any(|found| found == word)
    }
}
