//! The live screen: as text over samples and over files that grow, on a terminal with tmux, and beside a recorder.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use kmemtrace_abi::disk::block::Header;
use kmemtrace_abi::text::units::bytes;
use kmemtrace_tests::programs::{json, program, run, run_to};
use kmemtrace_tests::recorder::{Recorder, can_record};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::{self, Skip};
use rustix::fs::{FlockOperation, flock};
use zerocopy::FromBytes;

const REPORT: &str = "kmemtrace-report";

fn main() -> ExitCode {
    runner::main(&[
        ("the_last_screen_has_the_figures_of_reports", the_last_screen_has_the_figures_of_reports),
        ("a_trace_is_played_at_its_own_times", a_trace_is_played_at_its_own_times),
        ("a_trace_that_grows_is_followed_to_its_end", a_trace_that_grows_is_followed_to_its_end),
        ("a_killed_recorder_leaves_the_last_screen", a_killed_recorder_leaves_the_last_screen),
        ("what_is_no_terminal_is_refused_with_the_way_out", what_is_no_terminal_is_refused_with_the_way_out),
        ("keys_work_on_a_terminal", keys_work_on_a_terminal),
        ("a_terminal_without_a_size_has_80_columns", a_terminal_without_a_size_has_80_columns),
        ("the_terminal_comes_back_after_a_signal", the_terminal_comes_back_after_a_signal),
        ("memory_that_grows_tops_the_list_within_five_seconds", memory_that_grows_tops_the_list_within_five_seconds),
    ])
}

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(name)
}

fn text(arguments: &[&str], trace: &Path) -> String {
    String::from_utf8_lossy(&run_to(0, REPORT, arguments, &[trace])).into_owned()
}

/// Panics on an error in the test's environment.
fn must<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn the_last_screen_has_the_figures_of_reports() -> Result<(), Skip> {
    for name in ["amd64-6.1", "amd64-6.18", "s390x-6.1", "ppc64el-6.1", "i386-6.1", "amd64-6.1-lossy"] {
        let trace = sample(name);
        let screen = text(&["top", "--once"], &trace);
        let totals = json(&run_to(0, REPORT, &["summary", "--format", "json"], &[&trace]))["total"].take();
        let figure = |member: &str| bytes(totals[member].as_u64().unwrap_or_else(|| panic!("{name}: no {member}")));
        let line = screen.lines().nth(1).unwrap_or_default();
        let live = format!("slab {} live", figure("live_allocated"));
        let peak = format!("peak {}", figure("peak_live_allocated"));
        assert!(line.contains(&live) && line.contains(&peak), "{name}: {live}, {peak}: {screen}");
        let sites = json(&run_to(0, REPORT, &["sites", "--sort", "live", "--format", "json"], &[&trace]));
        let first = bytes(sites["rows"][0]["live_allocated"].as_u64().unwrap_or(0)).replace("iB", "");
        let row = screen.lines().nth(5).unwrap_or_default();
        assert!(row.contains(&first) && row.contains(" >"), "{name}: {first}: {screen}");
        assert!(screen.lines().count() == 24 && screen.is_ascii(), "{name}: {screen}");
    }
    Ok(())
}

fn a_trace_is_played_at_its_own_times() -> Result<(), Skip> {
    let trace = sample("amd64-6.1");
    let screens = text(&["top", "--batch", "3", "--speed", "2"], &trace);
    let times: Vec<&str> = screens.lines().filter_map(|line| line.split("PLAY ").nth(1)?.get(..9)).collect();
    assert_eq!(times, ["+00:00:02", "+00:00:04", "+00:00:06"], "{screens}");
    let from = text(&["top", "--once", "--from", "4s"], &trace);
    assert_eq!(from.lines().nth(1), screens.lines().nth(26), "the same time has the same figures");
    Ok(())
}

/// Directory in which files of a sample grow, locked as its recorder locks it.
struct Growing {
    directory: Directory,
    lock: File,
    /// Path of a file, all of its bytes, and how many are there.
    files: Vec<(PathBuf, Vec<u8>, usize)>,
    /// Times of the first and the last event.
    times: (u64, u64),
}

impl Growing {
    /// The files with their headers, and all names.
    fn new(name: &str) -> Growing {
        let directory = Directory::new(&[]);
        let (mut files, mut times) = (Vec::new(), (u64::MAX, 0));
        for entry in must(name, fs::read_dir(sample(name))).flatten() {
            let (to, bytes) =
                (directory.file(&entry.file_name().to_string_lossy()), must(name, fs::read(entry.path())));
            let timed = blocks(&bytes).filter(|(_, header)| header.events.get() > 0);
            timed.for_each(|(_, header)| times = (times.0.min(header.first.get()), times.1.max(header.last.get())));
            let header = blocks(&bytes).next().map_or(0, |(end, _)| end);
            let there = if entry.file_name() == "meta.out" { bytes.len() } else { header };
            must(name, fs::write(&to, &bytes[..there]));
            files.push((to, bytes, there));
        }
        let lock = must("directory", File::open(directory.path()));
        must("lock", flock(&lock, FlockOperation::LockExclusive));
        Growing { directory, lock, files, times }
    }

    /// Appends the blocks up to a share of the time, and half of the next one; all with a share of 100%.
    fn grow(&mut self, percent: u64) {
        let (first, last) = self.times;
        let now = first + (last - first) / 100 * percent;
        for (path, bytes, there) in &mut self.files {
            let mut until = 0;
            for (end, header) in blocks(bytes) {
                let is_later = header.last.get() > now && percent < 100;
                until = if is_later { until + (end - until) / 2 } else { end };
                if is_later {
                    break;
                }
            }
            let mut file = must("file", OpenOptions::new().append(true).open(path));
            must("file", file.write_all(bytes.get(*there..until).unwrap_or_default()));
            *there = until.max(*there);
        }
    }

    fn top(&self, frames: &str) -> Child {
        let mut top = Command::new(program(REPORT));
        top.args(["top", "--batch", frames]).arg(self.directory.path()).stdout(Stdio::piped());
        must("top", top.spawn())
    }
}

/// Blocks of a file: where they end, and their headers.
fn blocks(bytes: &[u8]) -> impl Iterator<Item = (usize, Header)> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let (header, _) = Header::read_from_prefix(bytes.get(end..)?).ok()?;
        end += usize::from(header.header_len.get()) + header.payload_len.get() as usize;
        Some((end, header))
    })
}

/// Frames of 24 lines, with an empty line between two.
fn frames(output: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(output);
    let lines: Vec<&str> = text.lines().collect();
    lines.chunks(25).map(|lines| lines.join("\n")).collect()
}

/// Screens of a program that has ended.
fn screens(child: Child) -> Vec<String> {
    let output = must("top", child.wait_with_output());
    assert!(output.status.success());
    frames(&output.stdout)
}

fn a_trace_that_grows_is_followed_to_its_end() -> Result<(), Skip> {
    let mut growing = Growing::new("amd64-6.1");
    let top = growing.top("5");
    std::thread::sleep(Duration::from_millis(1000));
    growing.grow(100);
    std::thread::sleep(Duration::from_millis(500));
    let Growing { lock, .. } = growing;
    drop(lock);
    let screens = screens(top);
    assert!(screens[0].contains(" REC +"), "{screens:?}");
    let last = screens.last().map(String::as_str).unwrap_or_default();
    assert!(last.contains("ENDED") && last.contains("the recorder was stopped") && last.contains("0 lost"), "{last}");
    let whole = text(&["top", "--once"], &sample("amd64-6.1"));
    assert_eq!(last.lines().nth(1), whole.lines().nth(1), "a block that was there in part was read in part");
    assert_eq!(last.lines().nth(5), whole.lines().nth(5));
    Ok(())
}

fn a_killed_recorder_leaves_the_last_screen() -> Result<(), Skip> {
    let mut growing = Growing::new("amd64-6.1");
    growing.grow(60);
    let top = growing.top("4");
    std::thread::sleep(Duration::from_millis(1500));
    let Growing { lock, directory, .. } = growing;
    drop(lock);
    let screens = screens(top);
    let last = screens.last().map(String::as_str).unwrap_or_default();
    assert!(last.contains("ENDED") && last.contains("the recorder was killed"), "{screens:?}");
    assert!(last.contains(" >"), "rows stay: {last}");
    drop(directory);
    Ok(())
}

fn what_is_no_terminal_is_refused_with_the_way_out() -> Result<(), Skip> {
    let output = run(REPORT, &["top"], &[&sample("amd64-6.1")]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), error.contains("--batch N"), error.lines().count()),
        (Some(2), true, 1),
        "{error}"
    );
    Ok(())
}

/// Terminal of a tmux server of its own.
struct Terminal {
    socket: String,
    directory: Directory,
}

impl Terminal {
    /// Runs a line of the shell in a terminal of this size; the shell goes on afterwards.
    fn start(line: &str, (width, height): (u16, u16)) -> Result<Terminal, Skip> {
        let version = Command::new("tmux").arg("-V").output();
        version.map_err(|error| Skip(format!("tmux cannot be run: {error}")))?;
        let directory = Directory::new(&[]);
        let socket = directory.file("tmux").display().to_string();
        let terminal = Terminal { socket, directory };
        let (width, height) = (width.to_string(), height.to_string());
        let line = format!("cd '{}'; {line}; echo left with $?; sleep 100", terminal.directory.path().display());
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height, "sh", "-c", &line]);
        Ok(terminal)
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.args(["-S", &self.socket]).args(arguments).env("LC_ALL", "C").env_remove("TMUX");
        String::from_utf8_lossy(&must("tmux", tmux.output()).stdout).into_owned()
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen shows a text.
    fn wait_for(&self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                return screen;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "no {text:?} on the screen: {screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Line of the shell that plays a sample to its end at once.
fn playing() -> String {
    format!("{} top --speed 1000 '{}'", program(REPORT).display(), sample("amd64-6.1").display())
}

fn keys_work_on_a_terminal() -> Result<(), Skip> {
    for size in [(80, 24), (160, 45)] {
        let terminal = Terminal::start(&playing(), size)?;
        let screen = terminal.wait_for("ENDED");
        assert!(screen.contains("[sites]") && screen.contains("do_epoll_create"), "{screen}");
        assert_eq!(screen.contains("AGE50"), size.0 == 160, "{screen}");
        for (keys, shown) in [
            (&["l"][..], "sort live v"),
            (&["l"], "sort live ^"),
            (&["n"], "sort name v"),
            (&["s"], "sort +60s v"),
            (&["]"], "window 5 min"),
            (&["[", "["], "window 10 s"),
            (&["m"], "[modules]"),
            (&["m"], "[tasks]"),
            (&["Tab"], "[caches]"),
            (&["m"], "[sites]"),
            (&["/", "site=do_*", "Enter"], "filter site=do_*"),
            (&["p"], "FROZEN"),
            (&["p"], "ENDED"),
            (&["0"], "mark +00:00:0"),
            (&["?"], "any key goes back"),
            (&["x"], "[sites]"),
            (&["w"], "saved kmemtrace-top"),
            (&["Escape"], "window 10 s"),
            (&["/", "colour=1", "Enter"], "no key of a filter"),
            (&["t"], "no call stacks are recorded"),
        ] {
            terminal.press(keys);
            terminal.wait_for(shown);
        }
        terminal.press(&["Escape"]);
        terminal.press(&["G"]);
        terminal.press(&["Enter"]);
        terminal.tmux(&["resize-window", "-x", "50", "-y", "20"]);
        terminal.wait_for("needs 60 columns");
        terminal.tmux(&["resize-window", "-x", "100", "-y", "20"]);
        terminal.wait_for("[sites]");
        terminal.press(&["q"]);
        terminal.wait_for("left with 0");
        let saved = must("saved", fs::read_dir(terminal.directory.path())).flatten();
        let names: Vec<_> = saved.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        assert!(
            names.iter().any(|name| name.ends_with(".txt")) && names.iter().any(|name| name.ends_with(".json")),
            "{names:?}"
        );
    }
    Ok(())
}

fn a_terminal_without_a_size_has_80_columns() -> Result<(), Skip> {
    let terminal = Terminal::start(&format!("stty rows 0 cols 0; {}", playing()), (100, 30))?;
    let screen = terminal.wait_for("q quit");
    assert_eq!(screen.lines().position(|line| line.contains("q quit")), Some(23), "{screen}");
    Ok(())
}

fn the_terminal_comes_back_after_a_signal() -> Result<(), Skip> {
    let line = format!("{} & echo $! > pid; fg", playing());
    let terminal = Terminal::start(&format!("set -m; {line}"), (80, 24))?;
    terminal.wait_for("ENDED");
    let pid = terminal.directory.text("pid");
    must("kill", Command::new("kill").args(["-TERM", pid.trim()]).status());
    let screen = terminal.wait_for("left with");
    assert!(!screen.contains("[sites]"), "{screen}");
    Ok(())
}

fn memory_that_grows_tops_the_list_within_five_seconds() -> Result<(), Skip> {
    can_record()?.need_event("kmem/mm_page_alloc")?;
    let recorder = Recorder::start(&["-e", "page", "--stack", "--buffer-size", "32M"]);
    let file = must("memfd", rustix::fs::memfd_create("kmt-top", rustix::fs::MemfdFlags::CLOEXEC));
    let mut file = File::from(file);
    let block = vec![1; 1 << 20];
    (0..256).for_each(|_| must("memfd", file.write_all(&block)));
    let begun = Instant::now();
    let screen = run_to(0, REPORT, &["top", "--batch", "3"], &[&recorder.trace()]);
    let seconds = begun.elapsed().as_secs_f64();
    recorder.stop();
    let screens = frames(&screen);
    let last = screens.last().map(String::as_str).unwrap_or_default();
    let first = last.lines().nth(5).unwrap_or_default();
    assert!(first.contains("shmem"), "{last}");
    assert!(last.contains(" REC +") && last.contains("0 lost"), "{last}");
    // Three frames take two seconds beside the first one.
    assert!(seconds < 15.0, "{seconds} s");
    Ok(())
}
