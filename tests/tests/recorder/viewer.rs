//! The viewer of `kmemtraced top` and `watch` in a stranger's hands: a program in place of the report, other users beside it, and ends by
//! force. Tests that cannot run here are listed as skipped at the end.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kmemtrace_tests::generate::Random;
use kmemtrace_tests::live::Tracefs;
use kmemtrace_tests::programs::{data, program, run, run_to, text, until};
use kmemtrace_tests::recorder::{Part, can_record, instance_name, sandbox};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;
use kmemtrace_tests::terminal::Terminal;
use rustix::process::{Pid, Signal, kill_process};

kmemtrace_tests::tests![
    nothing_but_text_reaches_the_terminal_and_no_byte_its_input,
    another_user_reaches_nothing_of_the_viewer,
    a_viewer_that_takes_and_ends_nothing_delays_no_end,
    a_viewer_of_lines_that_never_ends_has_five_seconds,
    what_a_viewer_leaves_running_ends_with_it,
    lines_that_cannot_be_written_are_told,
    a_second_signal_ends_a_recorder_that_is_stopped,
    a_key_ends_a_recorder_that_is_stopped_once_its_screen_is_gone,
    whatever_is_killed_nothing_is_left,
    saved_screens_belong_to_the_caller_and_follow_no_link,
    the_list_of_system_calls_is_enough_for_a_viewer,
];

/// A recorder with a program of the test's own in place of the report, in a directory that all users reach.
pub(crate) struct Place {
    pub(crate) directory: Directory,
    pub(crate) instance: String,
    tracefs: Tracefs,
}

impl Place {
    /// `viewer` is a shell script in place of the report, or the report itself where it is empty.
    pub(crate) fn new(viewer: &str) -> Result<Place, Skip> {
        let tracefs = can_record()?;
        let directory = Directory::on_disk();
        let allow = |name: &str, mode| fs::set_permissions(directory.file(name), Permissions::from_mode(mode)).unwrap();
        for (name, link) in
            [("kmemtraced", "kmemtraced"), ("kmemtrace-report", "kmemtrace-report"), ("kmemtrace-report", "report")]
        {
            if fs::hard_link(program(name), directory.file(link)).is_err() {
                fs::copy(program(name), directory.file(link)).unwrap();
            }
        }
        if !viewer.is_empty() {
            fs::remove_file(directory.file("kmemtrace-report")).unwrap();
            let out = directory.file("out").display().to_string();
            directory.write("kmemtrace-report", format!("#!/bin/sh\ncd '{out}'\n{viewer}\n").as_bytes());
            allow("kmemtrace-report", 0o755);
        }
        fs::create_dir(directory.file("out")).unwrap();
        allow("out", 0o777);
        allow("", 0o711);
        Ok(Place { directory, instance: instance_name(), tracefs })
    }

    fn line(&self, words: &str) -> String {
        let (program, instance) = (self.directory.file("kmemtraced"), &self.instance);
        format!("{} {words} -B {instance} {}", program.display(), sandbox().join(" "))
    }

    /// The live screen on a terminal.
    pub(crate) fn top(&self, more: &str) -> Result<Terminal, Skip> {
        Terminal::start(&format!("{} {more}", self.line("top")), (100, 30))
    }

    /// Lines of waits, through pipes.
    pub(crate) fn watch(&self, more: &[&str]) -> Child {
        let mut watch = Command::new(self.directory.file("kmemtraced"));
        watch.args(["watch", "-B", &self.instance]).args(sandbox()).args(more).current_dir(self.directory.path());
        watch.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn process(&self, part: Part) -> Pid {
        let mut found = None;
        until(&format!("{part:?}"), || {
            found = part.of(&self.instance);
            found.is_some()
        });
        found.unwrap()
    }

    pub(crate) fn signal(&self, part: Part, signal: Signal) {
        kill_process(self.process(part), signal).unwrap();
    }

    pub(crate) fn has_instance(&self) -> bool {
        self.tracefs.path().join("instances").join(&self.instance).exists()
    }

    pub(crate) fn has_process(&self) -> bool {
        [Part::First, Part::Recorder, Part::Viewer].into_iter().any(|part| part.of(&self.instance).is_some())
    }

    /// No process and no instance is left.
    fn assert_gone(&self) {
        until("end of the processes", || !self.has_process());
        assert!(!self.has_instance(), "instance {} is left", self.instance);
    }

    pub(crate) fn wait_for_file(&self, name: &str) {
        until(name, || self.directory.file("out").join(name).exists());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for part in [Part::First, Part::Recorder, Part::Viewer] {
            if let Some(process) = part.of(&self.instance) {
                let _ = kill_process(process, Signal::KILL);
            }
        }
        run("kmemtraced", &["recover", "-B", &self.instance], &[]);
    }
}

/// Sequences that a terminal answers to, or that change what stays: its kind, the cursor's place, the title, the clipboard.
pub(crate) const ESCAPES: &str = r"printf '\033[6n\033[c\033[>c\033[5n\033]0;stolen title\007\033]52;c;?\007\033]10;?\007\033[21t\033P$qm\033\\\005'";
/// Keys pushed into the input of each terminal that it can reach, as a user types them.
pub(crate) const PUSHES: &str = r#"perl -e 'for my $name ("/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/tty") {
    open(my $tty, "+<", $name) or next; ioctl($tty, 0x5412, my $key = $_) for split(//, "touch /pushed\n"); }' 2>/dev/null"#;

/// The terminal types what it is asked for into its input: the shell would read it once the screen is gone.
fn nothing_but_text_reaches_the_terminal_and_no_byte_its_input() -> Result<(), Skip> {
    let viewer = format!(
        "stty -a >state 2>&1; {ESCAPES}\nprintf 'shown text\\r\\n'\n{PUSHES}\nexec 5<&0\n(cat <&5 >keys) &\ntouch ready; sleep 600"
    );
    let place = Place::new(&viewer)?;
    let rest = "dd bs=100 count=1 2>/dev/null | od -An -c > read; echo over";
    let line = format!("{}; stty -icanon min 0 time 10; {rest}", place.line("top"));
    let terminal = Terminal::start(&line, (100, 30))?;
    let screen = terminal.wait_for("shown text");
    place.wait_for_file("ready");
    sleep(Duration::from_millis(500));
    assert!(!screen.contains("stolen"), "{screen}");
    let title = terminal.tmux(&["display", "-p", "#{pane_title}"]);
    assert!(!title.contains("stolen"), "{title}");
    // What the terminal says, and only that, reaches the viewer; it was asked for nothing.
    let keys = fs::read(place.directory.file("out/keys")).unwrap_or_default();
    let pushed = text(&keys).replace("touch /pushed\n", "");
    assert_eq!(pushed, "", "an answer of the terminal");
    // What was typed for the screen is thrown away, too.
    terminal.press(&["C-c", "x", "y"]);
    terminal.wait_for("over");
    assert_eq!(terminal.directory.text("read").trim(), "", "{}", terminal.screen());
    assert!(!Path::new("/pushed").exists());
    place.assert_gone();
    Ok(())
}

/// What another user gets of a process: each line is an attempt that must fail.
fn attempts(process: Pid) -> String {
    let id = process.as_raw_nonzero();
    let number = if cfg!(target_arch = "x86_64") { 101 } else { 117 };
    format!(
        r#"kill -0 {id} && echo signal
        perl -e 'print "ptrace\n" if syscall({number}, 16, {id}, 0, 0) == 0'
        perl -e 'print "seize\n" if syscall({number}, 0x4206, {id}, 0, 0) == 0'
        for name in environ maps mem auxv stack syscall io; do head -c 1 /proc/{id}/$name | grep -q . && echo $name; done
        ls /proc/{id}/fd/ | grep . && echo descriptors
        for name in exe cwd root fd/0 fd/3; do readlink /proc/{id}/$name && echo $name; done
        for name in 0 1 2 3 4; do head -c 1 </proc/{id}/fd/$name && echo open $name; done
        true"#
    )
}

fn another_user_reaches_nothing_of_the_viewer() -> Result<(), Skip> {
    let place = Place::new("")?;
    // The user who called sudo was the viewer's, else nobody.
    let line = format!("export SUDO_UID=61000 SUDO_GID=61000; {}", place.line("top"));
    let terminal = Terminal::start(&line, (100, 30))?;
    terminal.wait_for("REC +");
    let viewer = place.process(Part::Viewer);
    let id = viewer.as_raw_nonzero();
    let pty = fs::read_link(format!("/proc/{id}/fd/0")).unwrap();
    assert!(pty.starts_with("/dev/pts"), "{}", pty.display());
    for user in ["65534", "61000"] {
        let script = format!("{}\n: <'{}' && echo pty", attempts(viewer), pty.display());
        let mut other = Command::new("setpriv");
        other.args(["--reuid", user, "--regid", user, "--clear-groups", "sh", "-c", &script]);
        let Output { stdout, stderr, .. } = other.output().unwrap();
        assert_eq!(text(&stdout), "", "user {user}: {}", text(&stderr));
    }
    // Root sees what it has.
    let environment = fs::read(format!("/proc/{id}/environ")).unwrap();
    let names: Vec<String> = environment
        .split(|byte| *byte == 0)
        .filter(|variable| !variable.is_empty())
        .map(|variable| text(variable).split('=').next().unwrap_or_default().to_owned())
        .collect();
    let allowed = ["TERM", "COLORTERM", "NO_COLOR", "LINES", "COLUMNS", "LANG", "LC_ALL", "LC_CTYPE", "TZ"];
    assert!(names.iter().all(|name| allowed.contains(&name.as_str())), "{names:?}");
    assert_eq!(fs::read_link(format!("/proc/{id}/cwd")).unwrap(), Path::new("/"));
    let mut files: Vec<String> = fs::read_dir(format!("/proc/{id}/fd"))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|file| file.display().to_string())
        .filter(|file| !file.starts_with("anon_inode:") && !file.starts_with("socket:") && !file.starts_with("pipe:"))
        .collect();
    files.dedup();
    assert_eq!(files, [pty.display().to_string()], "files of the viewer");
    terminal.press(&["q"]);
    terminal.wait_for("left with 0");
    place.assert_gone();
    Ok(())
}

fn a_viewer_that_takes_and_ends_nothing_delays_no_end() -> Result<(), Skip> {
    for viewer in [
        "trap '' TERM HUP INT; touch ready; while :; do sleep 600; done",
        "trap '' TERM HUP INT; touch ready; kill -STOP $$; sleep 600",
        "trap '' TERM HUP INT; touch ready; while :; do echo flood of lines; done",
    ] {
        let place = Place::new(viewer)?;
        let terminal = place.top("--keep out/kept")?;
        fs::create_dir(terminal.directory.file("out")).unwrap();
        place.wait_for_file("ready");
        sleep(Duration::from_millis(300));
        let begun = Instant::now();
        place.signal(Part::First, Signal::TERM);
        let screen = terminal.wait_for("left with ");
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}: {screen}", begun.elapsed());
        let screen = terminal.wait_for("killed");
        assert!(screen.contains("left with 0") || screen.contains("left with 1"), "{screen}");
        run("kmemtrace-check", &[], &[&terminal.directory.file("out/kept")]);
        place.assert_gone();
    }
    Ok(())
}

/// A process in a session of its own holds the stream open, and with it the recorder.
fn what_a_viewer_leaves_running_ends_with_it() -> Result<(), Skip> {
    let is_left = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok()).any(|line| line == b"sleep\x006119\0")
    };
    for (viewer, ends_by_itself) in
        [("setsid sleep 6119 & touch ready; sleep 600", false), ("setsid sleep 6119 & touch ready; sleep 1", true)]
    {
        let place = Place::new(viewer)?;
        let terminal = place.top("")?;
        place.wait_for_file("ready");
        if !ends_by_itself {
            place.signal(Part::First, Signal::INT);
        }
        terminal.wait_for("left with ");
        place.assert_gone();
        until("end of what it has left", || !is_left());
    }
    Ok(())
}

fn lines_that_cannot_be_written_are_told() -> Result<(), Skip> {
    let place = Place::new("while :; do echo a line; sleep 0.1; done")?;
    let line = format!("{} >/dev/full", place.line("watch -d 10s"));
    let Output { status, stderr, .. } = Command::new("sh").args(["-c", &line]).output().unwrap();
    let stderr = text(&stderr);
    assert_eq!(status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("standard output: cannot be written: No space left on device"), "{stderr}");
    place.assert_gone();
    Ok(())
}

fn a_viewer_of_lines_that_never_ends_has_five_seconds() -> Result<(), Skip> {
    let place = Place::new("trap '' TERM HUP INT; touch ready; kill -STOP $$; sleep 600")?;
    let begun = Instant::now();
    let watch = place.watch(&["-d", "1s", "-o", "kept"]);
    let Output { status, stderr, .. } = watch.wait_with_output().unwrap();
    let stderr = text(&stderr);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}: {stderr}", begun.elapsed());
    assert_eq!(status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("the viewer did not end in time and was killed"), "{stderr}");
    run_to(0, "kmemtrace-check", &[], &[&place.directory.file("kept")]);
    place.assert_gone();
    Ok(())
}

fn a_second_signal_ends_a_recorder_that_is_stopped() -> Result<(), Skip> {
    for command in ["top", "watch"] {
        let place = Place::new(if command == "top" { "" } else { "cat >/dev/null; true" })?;
        let terminal = Terminal::start(&place.line(command), (100, 30))?;
        terminal.wait_for(if command == "top" { "REC +" } else { "watching" });
        place.process(Part::Viewer);
        place.signal(Part::Recorder, Signal::STOP);
        place.signal(Part::First, Signal::INT);
        sleep(Duration::from_millis(400));
        assert!(place.has_process(), "{command}: {}", terminal.screen());
        let begun = Instant::now();
        place.signal(Part::First, Signal::INT);
        let screen = terminal.wait_for("left with ");
        assert!(screen.contains("left with 3"), "{command}: {screen}");
        assert!(begun.elapsed() < Duration::from_secs(4), "{command}: {:?}", begun.elapsed());
        place.assert_gone();
    }
    Ok(())
}

fn a_key_ends_a_recorder_that_is_stopped_once_its_screen_is_gone() -> Result<(), Skip> {
    let place = Place::new("")?;
    let terminal = place.top("")?;
    terminal.wait_for("REC +");
    place.signal(Part::Recorder, Signal::STOP);
    terminal.press(&["q"]);
    until("end of the screen", || Part::Viewer.of(&place.instance).is_none());
    // An end of a screen and a key that follow each other at once have the same cause.
    sleep(Duration::from_millis(800));
    terminal.press(&["q"]);
    let screen = terminal.wait_for("left with ");
    assert!(screen.contains("left with 3"), "{screen}");
    place.assert_gone();
    Ok(())
}

/// Files that hold users of viewers.
fn held_users() -> Vec<String> {
    let entries = fs::read_dir("/run/kmemtraced").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("uid-")).collect()
}

fn whatever_is_killed_nothing_is_left() -> Result<(), Skip> {
    // Once each, or at a hundred moments in all.
    let mut random = Random::new(44);
    let parts = [Part::First, Part::Recorder, Part::Viewer];
    let kinds = [true, false].map(|is_top| parts.map(|part| (is_top, part))).concat();
    for (is_top, part) in kinds.iter().copied().cycle().take(runs::number(kinds.len() as u64, 102) as usize) {
        let place = Place::new("")?;
        let line = if is_top { place.line("top --keep kept") } else { place.line("watch -o kept") };
        let terminal = Terminal::start(&line, (100, 30))?;
        terminal.wait_for(if is_top { "REC +" } else { "watching" });
        let user =
            fs::metadata(format!("/proc/{}", place.process(Part::Viewer).as_raw_nonzero())).map(|data| data.uid());
        sleep(Duration::from_millis(random.below(1000)));
        place.signal(part, Signal::KILL);
        if is_top && part == Part::Recorder {
            terminal.wait_for("the recorder was killed");
            terminal.press(&["q"]);
        }
        // A process that is killed leaves its terminal in raw mode.
        if part != Part::First {
            terminal.wait_for("left with ");
        }
        until("end of the processes", || !place.has_process());
        run_to(0, "kmemtraced", &["recover", "-B", &place.instance], &[]);
        place.assert_gone();
        let name = format!("uid-{}", user.unwrap_or(0));
        assert!(!held_users().contains(&name), "{part:?}: {name} is left");
        let checked = run("kmemtrace-check", &[], &[&terminal.directory.file("kept")]);
        let is_cut = part == Part::Recorder;
        assert!(matches!(checked.status.code(), Some(0 | 1)) || is_cut, "{part:?}: {}", text(&checked.stdout));
        assert_ne!(checked.status.code(), Some(3), "{part:?}: {}", text(&checked.stdout));
    }
    Ok(())
}

fn saved_screens_belong_to_the_caller_and_follow_no_link() -> Result<(), Skip> {
    let place = Place::new("")?;
    let terminal = Terminal::start(&format!("export SUDO_UID=61000 SUDO_GID=61000; {}", place.line("top")), (100, 30))?;
    terminal.wait_for("REC +");
    // Whatever its name will be, there is a link of that name.
    let target = place.directory.file("out/target");
    symlink(&target, terminal.directory.file("kmemtrace-top.txt")).unwrap();
    terminal.press(&["w"]);
    terminal.wait_for("handed to kmemtraced");
    terminal.press(&["q"]);
    let screen = terminal.wait_for("left with 0");
    assert!(screen.contains("saved kmemtrace-top") && screen.contains(".txt and .json"), "{screen}");
    let saved: Vec<_> = fs::read_dir(terminal.directory.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file() && path.display().to_string().contains("kmemtrace-top"))
        .collect();
    assert_eq!(saved.len(), 2, "{saved:?}");
    for path in &saved {
        let data = fs::metadata(path).unwrap();
        assert_eq!((data.uid(), data.gid(), data.mode() & 0o777), (61_000, 61_000, 0o600), "{}", path.display());
        let content = fs::read_to_string(path).unwrap();
        assert!(content.contains("REC +") || content.contains("\"rows\""), "{content}");
    }
    assert!(!target.exists());
    place.assert_gone();
    Ok(())
}

/// In the mode strict a call outside of the list ends the program.
fn the_list_of_system_calls_is_enough_for_a_viewer() -> Result<(), Skip> {
    let place = Place::new("exec ../report \"$@\" --sandbox strict")?;
    let checked = run("kmemtrace-report", &["top", "--once", "--sandbox", "strict"], &[&data("amd64-6.1")]);
    if !checked.status.success() {
        return Err(Skip(format!("this kernel lacks a layer of the sandbox: {}", text(&checked.stderr))));
    }
    let terminal = place.top("")?;
    terminal.wait_for("REC +");
    terminal.wait_for(">");
    for (key, shown) in
        [("m", "[modules]"), ("m", "[tasks]"), ("r", "REC +"), ("w", "handed to kmemtraced"), ("?", "goes back")]
    {
        terminal.press(&[key]);
        terminal.wait_for(shown);
    }
    terminal.tmux(&["resize-window", "-x", "120", "-y", "35"]);
    sleep(Duration::from_secs(1));
    terminal.press(&["x"]);
    sleep(Duration::from_millis(300));
    terminal.press(&["q"]);
    terminal.wait_for("left with 0");
    let watch = place.watch(&["-d", "2s", "--all-spans"]);
    let Output { status, stdout, stderr } = watch.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(0), "{}", text(&stderr));
    assert!(text(&stdout).contains("In all"), "{}", text(&stdout));
    place.assert_gone();
    Ok(())
}
