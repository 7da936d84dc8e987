//! Kernels that cannot be booted here: a scripted tracefs with the layout and the format texts of an older release. The real
//! recorder runs on it, under strace, which gives it that release and takes the system calls away that came later.

mod formats;
mod fuse;
mod version;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kmemtrace_abi::target::{Endian, Target};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::generate::pages::{Stamp, SubBufferWriter};
use crate::generate::{Era, Shape};
use crate::programs::program;
use crate::recorder::instance_name;
use crate::runner::Skip;
use formats::{Format, formats};
use fuse::{FileSystem, Mount};
use version::SYSTEM_CALLS;
pub use version::{VERSIONS, Version, WITHOUT_INSTANCES};

/// Thread of all events, and its name. No kernel has such a number: the recorder asks this machine for the name of each thread.
pub const THREAD: (i32, &str) = (5_000_000, "load");
/// CPUs of the kernel.
const CPUS: u32 = 2;
/// Options that the top-level buffer has, with their values.
const OPTIONS: &str = "print-parent\nnosym-addr\nnostacktrace\nnosleep-time\noverwrite\nnodisable_on_free\nirq-info\n";

/// An event of a script: CPU, name, and values by field name. `frame` stands for the field of a page, which is its number or its
/// `struct page`.
pub type Scripted = (u32, &'static str, &'static [(&'static str, u64)]);

/// Stack of each event, where the option for stacks is set: return addresses from the innermost on.
pub const FRAMES: [u64; 3] = [0xffff_ffff_8111_1000, 0xffff_ffff_8122_2000, 0xffff_ffff_8133_3000];

/// A running older kernel, as far as programs see it.
#[derive(Debug)]
pub struct OldKernel {
    version: Version,
    /// Name of the recorder's instance: no other recorder of this machine has it, so that their state files differ.
    instance: String,
    mount: Mount,
    state: Arc<Mutex<State>>,
}

impl OldKernel {
    /// Mounts the tracefs of a release whose tasks do what the script says, once an instance records.
    pub fn new(version: Version, script: &'static [Scripted]) -> Result<OldKernel, Skip> {
        if !rustix::process::geteuid().is_root() {
            return Err(Skip("needs root, for a file system of its own".to_owned()));
        }
        if Command::new("strace").arg("--version").stdout(Stdio::null()).status().is_err() {
            return Err(Skip("needs strace".to_owned()));
        }
        let state = Arc::new(Mutex::new(State::new(version, script)));
        let mount = Mount::new(Served(Arc::clone(&state)))?;
        Ok(OldKernel { version, instance: instance_name(), mount, state })
    }

    /// Mount point.
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that programs changed so far: a line for each write and each directory made or removed. The recorder's instance is called
    /// `instance`.
    pub fn changes(&self) -> Vec<String> {
        let path = format!("instances/{}", self.instance);
        self.state().changes.iter().map(|change| change.replace(&path, "instance")).collect()
    }

    /// Runs a program of the project on this kernel, to its end.
    pub fn run(&self, name: &str, arguments: &[&str], paths: &[&Path]) -> Output {
        let output = self.command(&program(name)).args(arguments).args(paths).stdin(Stdio::null()).output();
        output.unwrap()
    }

    /// Runs the recorder on this kernel, to its end.
    pub fn record(&self, arguments: &[&str], trace: &Path, command: &[&str]) -> Output {
        let mut recorder = self.command(&program("kmemtraced"));
        recorder
            .args(["-B", &self.instance, "--tracefs"])
            .arg(self.path())
            .args(arguments)
            .arg("-o")
            .arg(trace)
            .arg("--")
            .args(command);
        recorder.stdin(Stdio::null()).output().unwrap()
    }

    /// Command that has this kernel's release and system calls.
    fn command(&self, program: &PathBuf) -> Command {
        let field = |text: &str| -> String {
            let mut bytes = text.as_bytes().to_vec();
            bytes.resize(65, 0);
            bytes.iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let system = [field("Linux"), field("old"), field(self.version.release)].concat();
        let later = SYSTEM_CALLS.iter().filter(|(_, since)| !self.version.has(*since));
        // The mark lets strace leave out calls that it does not know.
        let later: Vec<String> = later.map(|(name, _)| format!("?{name}")).collect();
        let later = later.join(",");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "--seccomp-bpf", "-o", "/dev/null"]);
        command.args(["-e", &format!("trace=uname,{later}"), "-e", &format!("inject=uname:poke_exit=@arg1={system}")]);
        command.args(["-e", &format!("inject={later}:error=ENOSYS")]).arg(program);
        command
    }
}

/// Files and buffers of the kernel.
#[derive(Debug)]
struct State {
    version: Version,
    formats: Vec<Format>,
    script: &'static [Scripted],
    /// Texts of files by path.
    files: BTreeMap<String, String>,
    /// Directories by path.
    dirs: BTreeSet<String>,
    /// Unread sub-buffers of each CPU's raw file, with their numbers of events.
    unread: BTreeMap<String, VecDeque<(Vec<u8>, u64)>>,
    /// Events read from each CPU's raw file.
    read: BTreeMap<String, u64>,
    changes: Vec<String>,
}

impl State {
    fn new(version: Version, script: &'static [Scripted]) -> State {
        let mut state = State {
            version,
            formats: formats(version),
            script,
            files: BTreeMap::new(),
            dirs: BTreeSet::from([String::new()]),
            unread: BTreeMap::new(),
            read: BTreeMap::new(),
            changes: Vec::new(),
        };
        state.add_buffer("", true);
        state.file("saved_cmdlines", &format!("{} {}\n", THREAD.0, THREAD.1));
        if version.has((3, 10)) {
            state.dirs.insert("instances".to_owned());
        }
        state
    }

    /// Adds a file and the directories above.
    fn file(&mut self, path: &str, text: &str) {
        let ends = path.match_indices('/').map(|(at, _)| path[..at].to_owned());
        self.dirs.extend(ends);
        self.files.insert(path.to_owned(), text.to_owned());
    }

    /// Adds the files of a buffer below `dir`, which ends with a slash unless it is empty: `init_tracer_tracefs` and
    /// `event_trace_add_tracer`.
    fn add_buffer(&mut self, dir: &str, is_top: bool) {
        let version = self.version;
        let clocks = version.clocks().join(" ").replace("local", "[local]") + "\n";
        let mut files = vec![
            ("trace_clock", clocks.as_str()),
            ("tracing_on", "1\n"),
            ("trace_options", OPTIONS),
            ("trace", "# tracer: nop\n#\n"),
            ("buffer_size_kb", "1408\n"),
            ("free_buffer", ""),
            ("set_event", ""),
            ("events/enable", "0\n"),
            ("events/header_page", HEADER_PAGE),
            ("events/header_event", crate::generate::layout::header_event()),
        ];
        if is_top || version.has((4, 4)) {
            files.extend([("options/overwrite", "1\n"), ("options/stacktrace", "0\n")]);
            files.push(("options/disable_on_free", "0\n"));
        }
        let since: [((u32, u32), &str, &str); 6] = [
            ((3, 11), "tracing_cpumask", "3\n"),
            ((3, 16), "current_tracer", "nop\n"),
            ((4, 4), "set_event_pid", ""),
            ((4, 8), "options/event-fork", "0\n"),
            ((5, 0), "buffer_percent", "50\n"),
            ((4, 17), "timestamp_mode", "[delta] absolute\n"),
        ];
        files.extend(since.into_iter().filter(|(since, ..)| version.has(*since)).map(|(_, name, text)| (name, text)));
        for (name, text) in files {
            self.file(&format!("{dir}{name}"), text);
        }
        let events: Vec<(&'static str, &'static str, String)> =
            self.formats.iter().map(|format| (format.system, format.name, format.text())).collect();
        for (system, event, text) in events {
            let system_dir = format!("{dir}events/{system}");
            // Before Linux 5.11 these two are in the directory of `ftrace`, too.
            self.file(&format!("{system_dir}/enable"), "0\n");
            self.file(&format!("{system_dir}/filter"), FILTER_TEXT);
            let event = format!("{system_dir}/{event}");
            self.file(&format!("{event}/format"), &text);
            self.file(&format!("{event}/filter"), "none\n");
            if system != "ftrace" {
                self.file(&format!("{event}/enable"), "0\n");
                if version.has((3, 14)) {
                    self.file(&format!("{event}/trigger"), "# Available triggers:\n# stacktrace\n");
                }
            }
        }
        for cpu in 0..CPUS {
            for name in ["trace_pipe_raw", "stats", "trace"] {
                self.file(&format!("{dir}per_cpu/cpu{cpu}/{name}"), "");
            }
        }
    }

    /// Text of a file; empty where it is absent.
    fn text(&self, path: &str) -> &str {
        self.files.get(path).map_or("", |text| text.trim())
    }

    /// Lets the script happen in the buffer below `dir`, now.
    fn begin(&mut self, dir: &str) {
        let shape = Shape {
            target: Target { endian: Endian::Little, word_bytes: 8 },
            page_bytes: 4096,
            sub_buffer_bytes: 4096,
            era: Era::V5_15,
            aligned: false,
            possible_cpus: 0,
        };
        let has_stacks = self.text(&format!("{dir}options/stacktrace")) == "1";
        let mut at = now();
        for cpu in 0..CPUS {
            let mut page = SubBufferWriter::new(&shape, at);
            let mut events = 0;
            for (_, name, values) in self.script.iter().filter(|(of, ..)| *of == cpu) {
                let format = |name: &str| self.formats.iter().find(|format| format.name == name);
                let is_enabled = |of: &&Format| self.text(&format!("{dir}events/{}/{name}/enable", of.system)) == "1";
                let Some(of_event) = format(name).filter(is_enabled) else { continue };
                let mut values = values.to_vec();
                if let Some(&(_, frame)) = values.iter().find(|(field, _)| *field == "frame") {
                    values.extend([("pfn", frame), ("page", self.version.frame_key(frame))]);
                }
                values.push(("gfp_flags", u64::from(self.version.gfp_kernel)));
                let mut records = vec![of_event.record(THREAD.0, &values, &[])];
                if let Some(stack) = format("kernel_stack").filter(|_| has_stacks) {
                    records.push(stack.record(THREAD.0, &[("size", FRAMES.len() as u64)], &FRAMES));
                }
                for record in records {
                    at += 1000;
                    assert!(page.record(at, &record, Stamp::Delta), "the script is longer than a sub-buffer");
                    events += 1;
                }
            }
            let raw = format!("{dir}per_cpu/cpu{cpu}/trace_pipe_raw");
            if events > 0 {
                self.unread.entry(raw).or_default().push_back((page.finish(None).0, events));
            }
        }
    }

    /// Text of `set_event` below `dir`, `s_show`: the enabled events.
    fn enabled_events(&self, dir: &str) -> String {
        let is_enabled =
            |format: &&Format| self.text(&format!("{dir}events/{}/{}/enable", format.system, format.name)) == "1";
        self.formats.iter().filter(is_enabled).map(|format| format!("{}:{}\n", format.system, format.name)).collect()
    }

    /// Text of a CPU's `stats`, `tracing_stats_read`.
    fn stats(&self, raw: &str) -> String {
        let unread: u64 = self.unread.get(raw).into_iter().flatten().map(|(_, events)| events).sum();
        let read = self.read.get(raw).copied().unwrap_or(0);
        let (seconds, micros) = (now() / 1_000_000_000, now() / 1000 % 1_000_000);
        format!(
            "entries: {unread}\noverrun: 0\ncommit overrun: 0\nbytes: 0\noldest event ts:     0.000000\n\
             now ts: {seconds:5}.{micros:06}\ndropped events: 0\nread events: {read}\n"
        )
    }
}

/// Text of `events/header_page`, `ring_buffer_print_page_header`.
const HEADER_PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";
/// Text of a system's filter.
const FILTER_TEXT: &str = "### global filter ###\n# Use this to set filters for multiple events.\n";

/// Nanoseconds on CLOCK_MONOTONIC.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The state, as the file system's thread serves it.
struct Served(Arc<Mutex<State>>);

impl Served {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileSystem for Served {
    fn is_dir(&self, path: &str) -> Option<bool> {
        let state = self.state();
        if state.dirs.contains(path) { Some(true) } else { state.files.contains_key(path).then_some(false) }
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let state = self.state();
        let below = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let all = state.dirs.iter().chain(state.files.keys());
        let names =
            all.filter_map(|path| path.strip_prefix(&below)).filter(|name| !name.is_empty() && !name.contains('/'));
        names.map(str::to_owned).collect()
    }

    fn read(&mut self, file: &str, offset: usize) -> Result<Vec<u8>, Errno> {
        let mut state = self.state();
        if file.ends_with("/trace_pipe_raw") {
            let (page, events) = state.unread.get_mut(file).and_then(VecDeque::pop_front).ok_or(Errno::AGAIN)?;
            *state.read.entry(file.to_owned()).or_default() += events;
            return Ok(page);
        }
        let text = match (file.strip_suffix("/stats"), file.strip_suffix("set_event")) {
            (Some(cpu), _) => state.stats(&format!("{cpu}/trace_pipe_raw")),
            (_, Some(dir)) => state.enabled_events(dir),
            _ => state.files.get(file).cloned().ok_or(Errno::NOENT)?,
        };
        Ok(text.as_bytes().get(offset..).unwrap_or_default().to_vec())
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> Result<(), Errno> {
        let mut state = self.state();
        let text = String::from_utf8_lossy(bytes).trim().to_owned();
        state.changes.push(format!("{file} {text}"));
        let name = file.rsplit('/').next().unwrap_or_default();
        let kept = match name {
            "trace_clock" if !state.version.clocks().contains(&text.as_str()) => return Err(Errno::INVAL),
            "trace_clock" => {
                let mark = |clock: &str| if clock == text { format!("[{clock}]") } else { clock.to_owned() };
                state.version.clocks().into_iter().map(mark).collect::<Vec<_>>().join(" ")
            }
            "filter" if text == "0" => "none".to_owned(),
            "trigger" if text.starts_with('!') => String::new(),
            "trigger" => format!("{text}:unlimited"),
            _ => text.clone(),
        };
        state.files.insert(file.to_owned(), kept + "\n");
        if name == "tracing_on" && text == "1" {
            let dir = file.trim_end_matches("tracing_on").to_owned();
            state.begin(&dir);
        }
        Ok(())
    }

    fn make_dir(&mut self, dir: &str) -> Result<(), Errno> {
        let mut state = self.state();
        state.changes.push(format!("mkdir {dir}"));
        if !dir.starts_with("instances/") {
            return Err(Errno::PERM);
        }
        if !state.dirs.insert(dir.to_owned()) {
            return Err(Errno::EXIST);
        }
        state.add_buffer(&format!("{dir}/"), false);
        Ok(())
    }

    fn remove_dir(&mut self, dir: &str) -> Result<(), Errno> {
        let mut state = self.state();
        state.changes.push(format!("rmdir {dir}"));
        let below = format!("{dir}/");
        if !state.dirs.remove(dir) {
            return Err(Errno::NOENT);
        }
        state.dirs.retain(|path| !path.starts_with(&below));
        state.files.retain(|path, _| !path.starts_with(&below));
        Ok(())
    }
}
