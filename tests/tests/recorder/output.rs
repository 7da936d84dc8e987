//! Recorder's directory, and refusals before any change: earlier recordings, names that other users plant, files under
//! the directory's name, buffers too large for the machine, instances that no recorder has made. Tests that cannot run
//! here are listed as skipped at the end.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use kmemtrace_tests::live::Tracefs;
use kmemtrace_tests::programs::{program, run, text, until};
use kmemtrace_tests::recorder::{Recorder, can_record, instance_name, kmemtraced, sandbox};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;
use rustix::process::{Pid, Signal, kill_process};

/// User id other than root's.
const OTHER_USER: u32 = 65534;

kmemtrace_tests::tests![
    a_start_that_fails_leaves_earlier_recordings,
    a_new_recording_replaces_one_while_it_records,
    a_recorder_killed_at_any_call_loses_no_recording,
    file_systems_that_cannot_exchange_names_do,
    a_recording_in_a_lower_layer_is_refused,
    a_name_as_long_as_can_be_is_overwritten,
    recorders_that_start_at_once_say_who_has_the_name,
    a_name_in_tracefs_is_refused,
    a_name_that_cannot_be_taken_is_told,
    files_of_others_are_not_overwritten,
    a_name_that_is_no_directory_is_refused_at_once,
    a_full_disk_leaves_the_earlier_recording,
    a_mount_point_is_not_overwritten,
    a_lock_that_fails_is_no_other_recorder,
    names_that_another_user_swaps_lead_nowhere_else,
    a_directory_swapped_before_it_is_opened_is_refused,
    a_link_of_another_user_is_not_followed,
    modes_do_not_depend_on_the_umask,
    buffers_larger_than_the_machine_are_refused,
    an_instance_made_by_hand_stays,
    other_programs_find_the_running_recording,
    a_killed_recorders_instance_is_known_without_run,
    a_planted_state_file_is_not_written_through,
    under_sudo_a_recording_is_the_callers,
];

/// Runs the recorder with `arguments` in a directory; killed after 30 s.
fn record(dir: &Directory, arguments: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "30"]).arg(program("kmemtraced")).args(sandbox());
    command.args(["-q", "-B", &instance_name()]);
    command.args(arguments).current_dir(dir.path()).output().unwrap()
}

/// Asserts a recorder's refusal: exit status 2 and one line with `said` in it.
fn assert_refused(output: &Output, said: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}: {} {stderr}", output.status);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains(said), "{said}: {stderr}");
}

fn assert_recorded(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Name, and a function that puts something under it.
type Planted = (&'static str, fn(&Path));

/// Files of a directory by name.
fn files(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap_or_default().into(), fs::read(&path).unwrap())).collect()
}

/// Directories in a directory.
fn directories(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.is_dir());
    paths.sort();
    paths
}

fn names(dir: &Path) -> Vec<String> {
    directories(dir).iter().map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned()).collect()
}

fn a_start_that_fails_leaves_earlier_recordings() -> Result<(), Skip> {
    can_record()?;
    let dir = Directory::new(&[]);
    for _ in 0..2 {
        assert_recorded(&record(&dir, &["-d", "20ms"]));
    }
    assert_recorded(&record(&dir, &["-d", "20ms", "-o", "trace"]));
    let before: Vec<(PathBuf, Files)> = directories(dir.path()).into_iter().map(|d| (d.clone(), files(&d))).collect();
    assert_eq!(before.len(), 3);
    for arguments in
        [&["--", "./nosuch"][..], &["-f", "-o", "trace", "--", "./nosuch"], &["-f", "-o", "trace/", "-e", "no"]]
    {
        let output = record(&dir, arguments);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
        assert!(before.iter().all(|(path, old)| path.is_dir() && files(path) == *old), "{arguments:?}");
        assert_eq!(directories(dir.path()).len(), before.len(), "{:?}", names(dir.path()));
    }
    Ok(())
}

fn a_new_recording_replaces_one_while_it_records() -> Result<(), Skip> {
    can_record()?;
    for form in ["trace", "trace/", "./trace"] {
        let dir = Directory::new(&[]);
        assert_recorded(&record(&dir, &["-d", "20ms", "-o", "trace"]));
        // Files that killed readers leave, under old and present names.
        let left = ["report.index", "report.index.new", "report.index.new-0123456789abcdef", "cpu0.out.packing"];
        left.iter().for_each(|name| dir.write(&format!("trace/{name}"), b"x"));
        dir.write("trace/cpu1.out.packing-0123456789abcdef", b"x");
        let old = fs::metadata(dir.file("trace/meta.out")).unwrap().ino();
        // Whoever made directories of such names, they stay.
        let digits = "0123456789abcdef";
        let others = [format!("trace.begun-{digits}"), format!("trace.exchange-{digits}")];
        others.iter().for_each(|name| dir.write(&format!("{name}/cpu0.out"), b"x"));
        let mut command = kmemtraced();
        command.current_dir(dir.path()).args(["-q", "-f", "-B", &instance_name(), "-o", form]);
        let mut child = command.spawn().unwrap();
        until("the earlier recording stays", || {
            let new = fs::metadata(dir.file("trace/meta.out")).is_ok_and(|meta| meta.ino() != old);
            new && names(dir.path()) == ["trace", &others[0], &others[1]]
        });
        assert!(!dir.file("trace/report.index").exists());
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let whole = run("kmemtrace-check", &[], &[&dir.file("trace")]);
        assert_eq!(whole.status.code(), Some(0), "{}", text(&whole.stdout));
    }
    // The default name: the earlier recording is kept, the one before it goes.
    let dir = Directory::new(&[]);
    for _ in 0..3 {
        let earlier = fs::read(dir.file("kmemtrace.data/cpu0.out")).ok();
        assert_recorded(&record(&dir, &["-d", "20ms"]));
        assert_eq!(fs::read(dir.file("kmemtrace.data.old/cpu0.out")).ok(), earlier);
    }
    assert_eq!(names(dir.path()), ["kmemtrace.data", "kmemtrace.data.old"]);
    Ok(())
}

/// Runs the recorder under strace with these injections; skips without strace.
fn under_strace(dir: &Directory, injections: &[&str], arguments: &[&str], instance: &str) -> Result<Output, Skip> {
    let mut command = Command::new("strace");
    command.current_dir(dir.path());
    strace(&mut command, injections, arguments, instance);
    command.output().map_err(|error| Skip(format!("strace cannot be run: {error}")))
}

fn strace(command: &mut Command, injections: &[&str], arguments: &[&str], instance: &str) {
    command.args(["-f", "-qq", "-o", "/dev/null"]);
    // strace injects only into calls that it traces.
    let calls: Vec<&str> = injections.iter().filter_map(|injection| injection.split(':').next()).collect();
    command.args(["-e", &format!("trace={}", calls.join(","))]);
    injections.iter().for_each(|injection| {
        command.args(["-e", &format!("inject={injection}")]);
    });
    command.arg(program("kmemtraced")).args(["-q", "-d", "50ms", "-B", instance]).args(arguments);
}

/// Two recordings under the default names; `kmemtrace.data` is the later one.
fn two_recordings() -> Directory {
    let dir = Directory::new(&[]);
    for _ in 0..2 {
        assert_recorded(&record(&dir, &["-d", "20ms"]));
    }
    dir
}

fn a_recorder_killed_at_any_call_loses_no_recording() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let missing = |error| Skip(format!("strace cannot be run: {error}"));
    Command::new("strace").arg("-V").output().map_err(missing)?;
    let recordings = two_recordings();
    let [earlier, older] = ["kmemtrace.data", "kmemtrace.data.old"].map(|name| files(&recordings.file(name)));
    let mut kills = 0;
    // Plain calls first; then renameat2 fails as on file systems that cannot exchange names.
    let plain: &[(&str, &[&str])] = &[("/^mkdir", &[]), ("/^rename", &[]), ("/^unlink", &[]), ("/^rmdir", &[])];
    let in_steps: &[(&str, &[&str])] = &[("/^renameat$", &["renameat2:error=EINVAL"])];
    for arguments in [&[][..], &["-f", "-o", "kmemtrace.data"]] {
        for (call, injections) in plain.iter().chain(in_steps) {
            for n in (1..40).step_by(runs::step(2)) {
                let dir = Directory::new(&[]);
                for (name, of) in [("kmemtrace.data", &earlier), ("kmemtrace.data.old", &older)] {
                    of.iter().for_each(|(file, bytes)| dir.write(&format!("{name}/{}", file.display()), bytes));
                }
                let kill = format!("{call}:signal=KILL:when={n}");
                let instance = instance_name();
                // `/run` is read-only, so that the calls for state files, which are not tested here, fail at once.
                let mut command = Command::new("unshare");
                let script = "mount -t tmpfs -o ro none /run && exec strace \"$@\"";
                command.args(["-m", "sh", "-c", script, "sh"]).current_dir(dir.path());
                strace(&mut command, &[&[kill.as_str()], *injections].concat(), arguments, &instance);
                let output = command.output().map_err(|error| Skip(format!("unshare cannot be run: {error}")))?;
                let output = unless_refused(output)?;
                let _ = fs::remove_dir(tracefs.path().join("instances").join(&instance));
                let there: Vec<Files> = directories(dir.path()).iter().map(|d| files(d)).collect();
                let has_begun = dir.file("kmemtrace.data/cpu0.out").is_file()
                    && ![&earlier, &older].contains(&&files(&dir.file("kmemtrace.data")));
                let is_named = || format!("{arguments:?} {kill}: {:?}", names(dir.path()));
                let to_keep = if arguments.is_empty() { &earlier } else { &older };
                assert!(there.contains(to_keep), "{}", is_named());
                let to_go = if arguments.is_empty() { &older } else { &earlier };
                assert!(has_begun || there.contains(to_go), "{}", is_named());
                if output.status.success() {
                    break;
                }
                assert_eq!(text(&output.stderr), "", "{kill}");
                kills += 1;
            }
        }
    }
    assert!(kills > 10, "only {kills} kills");
    Ok(())
}

fn file_systems_that_cannot_exchange_names_do() -> Result<(), Skip> {
    can_record()?;
    for error in ["EINVAL", "ENOSYS"] {
        let dir = two_recordings();
        let [earlier, older] = ["kmemtrace.data", "kmemtrace.data.old"].map(|name| files(&dir.file(name)));
        let injection = [format!("renameat2:error={error}")];
        let injection = [injection[0].as_str()];
        under_strace(&dir, &injection, &["--", "./nosuch"], &instance_name())?;
        assert!(files(&dir.file("kmemtrace.data.old")) == older);
        let output = under_strace(&dir, &injection, &[], &instance_name())?;
        assert_recorded(&output);
        assert_eq!(names(dir.path()), ["kmemtrace.data", "kmemtrace.data.old"]);
        assert!(files(&dir.file("kmemtrace.data.old")) == earlier);
        assert!(![&earlier, &older].contains(&&files(&dir.file("kmemtrace.data"))));
        let whole = run("kmemtrace-check", &[], &[&dir.file("kmemtrace.data")]);
        assert_eq!(whole.status.code(), Some(0), "{}", text(&whole.stdout));
    }
    Ok(())
}

fn a_recording_in_a_lower_layer_is_refused() -> Result<(), Skip> {
    can_record()?;
    let dir = Directory::new(&[]);
    for name in ["lower/kmemtrace.data", "lower/new/kmemtrace.data", "lower/new/kmemtrace.data.old"] {
        dir.write(&format!("{name}/cpu0.out"), b"earlier");
    }
    ["over", "layers"].iter().for_each(|name| fs::create_dir(dir.file(name)).unwrap());
    let mount = "mount -t tmpfs none $0/layers; mkdir $0/layers/upper $0/layers/work
                 mount -t overlay -o lowerdir=$0/lower,upperdir=$0/layers/upper,workdir=$0/layers/work,redirect_dir=off none $0/over";
    let upper = "cd new; rm -r kmemtrace.data; mkdir kmemtrace.data";
    let cases = [
        ("cd .", &["-f", "-o", "kmemtrace.data"][..], "kmemtrace.data"),
        ("cd .", &[], "kmemtrace.data"),
        (upper, &[], "kmemtrace.data.old"),
    ];
    for (prepare, arguments, name) in cases {
        let instance = instance_name();
        let arguments = [&["-q", "-d", "20ms", "-B", &instance], arguments].concat();
        let output = with_mounts(&dir, &format!("{mount}\ncd $0/over; {prepare}"), &arguments)?;
        let said = format!("{name}: is in a lower layer of overlayfs and cannot be renamed: remove it, or use");
        assert_refused(&output, &said);
    }
    Ok(())
}

fn a_name_as_long_as_can_be_is_overwritten() -> Result<(), Skip> {
    can_record()?;
    let dir = Directory::new(&[]);
    let name = "n".repeat(255);
    for _ in 0..2 {
        assert_recorded(&record(&dir, &["-d", "20ms", "-f", "-o", &name]));
        assert_eq!(names(dir.path()), [name.as_str()]);
    }
    Ok(())
}

fn recorders_that_start_at_once_say_who_has_the_name() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let dir = Directory::new(&[]);
    let name = instance_name();
    // One instance for all, and one directory for all.
    for is_instance in [true, false] {
        for round in 0..2 {
            let children = (0..6).map(|n| {
                let own = [instance_name(), format!("trace-{round}-{n}")];
                let (instance, trace) =
                    if is_instance { (&name, own[1].clone()) } else { (&own[0], format!("trace-{round}")) };
                let mut command = kmemtraced();
                command.args(["-q", "-d", "300ms", "-B", instance, "-o", &trace]).current_dir(dir.path());
                command.stderr(Stdio::piped()).spawn().unwrap()
            });
            let children: Vec<_> = children.collect();
            let ended: Vec<Output> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
            let said: Vec<String> = ended.iter().map(|output| text(&output.stderr)).collect();
            let recorded = ended.iter().filter(|output| output.status.code() == Some(0)).count();
            assert!(recorded > 0, "{said:?}");
            let words =
                ["is in use by another recorder", "has just", "exists already", "another recorder writes to it"];
            let is_plain = |line: &String| line.is_empty() || words.iter().any(|words| line.contains(words));
            assert!(said.iter().all(is_plain), "{said:?}");
            assert!(!tracefs.path().join("instances").join(&name).exists(), "{said:?}");
        }
    }
    Ok(())
}

fn a_name_in_tracefs_is_refused() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let instance = tracefs.path().join("instances").join(instance_name());
    let output = run("kmemtraced", &["-d", "20ms", "-B", &instance_name(), "-o"], &[&instance]);
    assert!(!instance.exists());
    assert_refused(
        &output,
        "is in a file system of the kernel (tracefs), which stores no files: use another place (-o)",
    );
    Ok(())
}

fn a_name_that_cannot_be_taken_is_told() -> Result<(), Skip> {
    can_record()?;
    let dir = two_recordings();
    let earlier = files(&dir.file("kmemtrace.data"));
    let arguments = ["-f", "-o", "kmemtrace.data"];
    let output = under_strace(&dir, &["renameat2:error=EXDEV"], &arguments, &instance_name())?;
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("kmemtrace.data: cannot be replaced: ") && stderr.contains("the new recording is in"),
        "{stderr}"
    );
    assert!(files(&dir.file("kmemtrace.data")) == earlier);
    let new = names(dir.path()).into_iter().find(|name| stderr.contains(&format!("is in {name}\n")));
    let whole = run("kmemtrace-check", &[], &[&dir.file(&new.unwrap_or_else(|| panic!("not there: {stderr}")))]);
    assert_eq!(whole.status.code(), Some(0), "{}", text(&whole.stdout));
    Ok(())
}

fn files_of_others_are_not_overwritten() -> Result<(), Skip> {
    can_record()?;
    let plant: [Planted; 4] = [
        ("notes", |path| fs::write(path, "x").unwrap()),
        ("cpu-notes.out", |path| fs::write(path, "x").unwrap()),
        ("cpu0.out", |path| fs::create_dir(path).unwrap()),
        ("meta.out", |path| symlink("/dev/null", path).unwrap()),
    ];
    for (name, plant) in plant {
        let dir = Directory::new(&[]);
        dir.write("trace/cpu7.out", b"x");
        plant(&dir.file("trace").join(name));
        assert_refused(
            &record(&dir, &["-d", "20ms", "-f", "-o", "trace"]),
            &format!("trace/{name}: is not part of a trace"),
        );
        assert!(dir.file("trace/cpu7.out").exists());
        assert_eq!(names(dir.path()), ["trace"]);
    }
    Ok(())
}

fn a_name_that_is_no_directory_is_refused_at_once() -> Result<(), Skip> {
    can_record()?;
    let make: [Planted; 4] = [
        ("fifo", |path| rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap()),
        ("socket", |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap())),
        ("file", |path| fs::write(path, "x").unwrap()),
        ("link", |path| symlink("elsewhere", path).unwrap()),
    ];
    for (what, make) in make {
        let dir = Directory::new(&[]);
        fs::create_dir(dir.file("elsewhere")).unwrap();
        let start = Instant::now();
        make(&dir.file("trace"));
        for arguments in [&["-o", "trace"][..], &["-f", "-o", "trace"], &["-f", "-o", "trace/"]] {
            assert_refused(&record(&dir, &[&["-d", "20ms"], arguments].concat()), "is not a directory");
        }
        make(&dir.file("kmemtrace.data"));
        assert_refused(&record(&dir, &["-d", "20ms"]), "kmemtrace.data: is not a directory");
        fs::remove_file(dir.file("kmemtrace.data")).unwrap();
        assert_recorded(&record(&dir, &["-d", "20ms"]));
        make(&dir.file("kmemtrace.data.old"));
        assert_refused(&record(&dir, &["-d", "20ms"]), "kmemtrace.data.old: is not a directory");
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: {:?}", start.elapsed());
        assert!(files(&dir.file("elsewhere")).is_empty());
        assert!(dir.file("kmemtrace.data/meta.out").is_file(), "{what}");
    }
    Ok(())
}

fn a_full_disk_leaves_the_earlier_recording() -> Result<(), Skip> {
    can_record()?;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let dir = Directory::new(&[]);
    let mounted = mount("none", dir.path(), "tmpfs", MountFlags::empty(), c"size=4096k");
    mounted.map_err(|error| Skip(format!("nothing can be mounted: {error}")))?;
    let first = record(&dir, &["-d", "20ms", "-o", "trace"]);
    let earlier = files(&dir.file("trace"));
    let fill = vec![1; 4096 << 10];
    // A filler takes the rest of the disk.
    let filled = fs::write(dir.file("filler"), &fill);
    let output = record(&dir, &["-d", "20ms", "-f", "-o", "trace"]);
    let later = files(&dir.file("trace"));
    let left = names(dir.path());
    unmount(dir.path(), UnmountFlags::DETACH).unwrap();
    assert_recorded(&first);
    assert!(filled.is_err(), "the disk is not full");
    assert_refused(&output, "cannot be ");
    assert!(text(&output.stderr).contains("No space left on device"), "{}", text(&output.stderr));
    assert!(later == earlier && left == ["trace"], "{left:?}");
    Ok(())
}

fn a_mount_point_is_not_overwritten() -> Result<(), Skip> {
    can_record()?;
    use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
    for is_bound in [false, true] {
        let dir = Directory::new(&[]);
        dir.write("source/meta.out", b"x");
        let at = dir.file("trace");
        fs::create_dir(&at).unwrap();
        let mounted = match is_bound {
            true => mount_bind(dir.file("source"), &at),
            false => mount("none", &at, "tmpfs", MountFlags::empty(), None),
        };
        mounted.map_err(|error| Skip(format!("nothing can be mounted: {error}")))?;
        fs::write(at.join("meta.out"), "x").unwrap();
        let output = record(&dir, &["-d", "20ms", "-f", "-o", "trace"]);
        let is_there = at.join("meta.out").is_file();
        unmount(&at, UnmountFlags::DETACH).unwrap();
        assert_refused(&output, "trace: is a mount point");
        assert!(is_there, "bound: {is_bound}");
    }
    Ok(())
}

fn a_lock_that_fails_is_no_other_recorder() -> Result<(), Skip> {
    can_record()?;
    let dir = two_recordings();
    // The first locks are the turn to make instances, and the instance's.
    let injection = ["flock:error=ENOLCK:when=3+"];
    let output = under_strace(&dir, &injection, &["-f", "-o", "kmemtrace.data"], &instance_name())?;
    assert_refused(&output, "kmemtrace.data: cannot be locked: No locks available");
    assert_eq!(names(dir.path()), ["kmemtrace.data", "kmemtrace.data.old"]);
    Ok(())
}

/// Directory of another user, which that user can reach.
fn others_directory(dir: &Directory) -> PathBuf {
    fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).unwrap();
    let place = dir.file("place");
    fs::create_dir(&place).unwrap();
    chown(&place, Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    place
}

fn as_other_user(script: &str, place: &Path) -> Command {
    let mut command = Command::new("setpriv");
    let user = [format!("--reuid={OTHER_USER}"), format!("--regid={OTHER_USER}")];
    command.args(user).args(["--clear-groups", "sh", "-c", script]).current_dir(place);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn names_that_another_user_swaps_lead_nowhere_else() -> Result<(), Skip> {
    can_record()?;
    let dir = Directory::new(&[]);
    let place = others_directory(&dir);
    let victim = dir.file("victim");
    fs::create_dir(&victim).unwrap();
    // The script moves each directory that appears away, and puts a link to the victim in its place.
    let script = format!(
        "i=0; while :; do for t in trace trace.exchange-* trace.begun-*; do
           if [ -d $t ] && [ ! -L $t ]; then mv -T $t away.$i && ln -s {} $t; i=$((i+1)); touch swapped; fi
         done; done",
        victim.display()
    );
    let mut racer = as_other_user(&script, &place).spawn().map_err(|error| Skip(format!("setpriv: {error}")))?;
    let mut swaps = 0;
    for round in 0..8 {
        let mut arguments = vec!["-d", "20ms", "-o", "trace"];
        if round % 2 == 1 {
            // An earlier recording to overwrite, if it is there long enough.
            let _ = fs::create_dir(place.join("trace"));
            arguments.push("-f");
        }
        let mut command = kmemtraced();
        command.current_dir(&place).args(["-q", "-B", &instance_name()]).args(arguments);
        let output = command.output().unwrap();
        assert!(output.status.code().is_some(), "{}", text(&output.stderr));
        for entry in fs::read_dir(&place).unwrap().flatten() {
            let path = entry.path();
            swaps += u32::from(path.ends_with("swapped"));
            let is_dir = path.is_dir() && !path.is_symlink();
            let _ = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }
    racer.kill().unwrap();
    racer.wait().unwrap();
    let planted = files(&victim);
    assert!(planted.is_empty(), "{:?}", planted.keys());
    match swaps {
        0 => Err(Skip("the other user was never in time".to_owned())),
        _ => Ok(()),
    }
}

fn a_directory_swapped_before_it_is_opened_is_refused() -> Result<(), Skip> {
    can_record()?;
    let dir = Directory::new(&[]);
    let place = others_directory(&dir);
    let victim = dir.file("victim");
    fs::create_dir(&victim).unwrap();
    let link = format!("ln -s {} trace", victim.display());
    for (swap, said) in [("mkdir trace", "another user put another directory in its place"), (&link, "cannot be made")]
    {
        let script = format!("until [ -d trace ]; do :; done; mv -T trace away && {swap}; touch swapped");
        let mut racer = as_other_user(&script, &place).spawn().map_err(|error| Skip(format!("setpriv: {error}")))?;
        // Each mkdir is delayed, so that the other user is first.
        let mut command = Command::new("strace");
        strace(&mut command, &["/^mkdir:delay_exit=400000"], &["-o", "trace"], &instance_name());
        let output = command.current_dir(&place).output();
        let output = output.map_err(|error| Skip(format!("strace cannot be run: {error}")));
        let _ = racer.kill();
        racer.wait().unwrap();
        let is_swapped = place.join("swapped").exists();
        let planted: Vec<PathBuf> = [&victim, &place.join("trace"), &place.join("away")]
            .into_iter()
            .filter(|path| path.is_dir())
            .flat_map(|path| files(path).into_keys())
            .collect();
        for name in ["trace", "away"].map(|name| place.join(name)).iter().filter(|name| name.exists()) {
            let _ = if name.is_symlink() { fs::remove_file(name) } else { fs::remove_dir_all(name) };
        }
        let _ = fs::remove_file(place.join("swapped"));
        if !is_swapped {
            return Err(Skip("the other user was not in time".to_owned()));
        }
        assert_refused(&output?, said);
        assert!(planted.is_empty(), "{planted:?}");
    }
    Ok(())
}

fn a_link_of_another_user_is_not_followed() -> Result<(), Skip> {
    can_record()?;
    let dir = Directory::new(&[]);
    let place = others_directory(&dir);
    let target = dir.file("target");
    fs::create_dir(&target).unwrap();
    let (theirs, ours) = (place.join("theirs"), place.join("ours"));
    symlink(&target, &ours).unwrap();
    let linked = as_other_user("ln -s ../target theirs", &place).status();
    linked.map_err(|error| Skip(format!("setpriv: {error}")))?;
    assert!(theirs.is_symlink());
    assert_refused(
        &record(&dir, &["-d", "20ms", "-o", "place/theirs/a"]),
        "theirs is a link of another user (uid 65534)",
    );
    assert!(names(&target).is_empty());
    assert_recorded(&record(&dir, &["-d", "20ms", "-o", "place/ours/b"]));
    assert_recorded(&record(&dir, &["-d", "20ms", "-o", "place/ours/../place/c"]));
    // Under sudo, a link of the calling user is followed in that user's directory; another user's is not.
    for (sudo_uid, status) in [(OTHER_USER, 0), (OTHER_USER - 1, 2)] {
        let mut command = kmemtraced();
        command.current_dir(dir.path()).env("SUDO_UID", sudo_uid.to_string());
        command.args(["-q", "-d", "20ms", "-B", &instance_name(), "-o", "place/theirs/d"]);
        assert_eq!(command.output().unwrap().status.code(), Some(status));
        let _ = fs::remove_dir_all(target.join("d"));
    }
    assert_eq!(names(&target), ["b"]);
    assert!(place.join("c/meta.out").is_file(), "in a home of another user");
    Ok(())
}

fn modes_do_not_depend_on_the_umask() -> Result<(), Skip> {
    can_record()?;
    for umask in ["000", "022", "777"] {
        let dir = Directory::new(&[]);
        let mut command = Command::new("sh");
        command.args(["-c", "umask $0; exec \"$@\"", umask]).arg(program("kmemtraced")).current_dir(dir.path());
        command.args(sandbox()).args(["-q", "-d", "20ms", "-B", &instance_name(), "-o", "trace"]);
        assert_recorded(&command.output().unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&dir.file("trace")), 0o700, "umask {umask}");
        for name in files(&dir.file("trace")).keys() {
            assert_eq!(mode(&dir.file("trace").join(name)), 0o600, "umask {umask}: {}", name.display());
        }
    }
    Ok(())
}

/// Runs the recorder after `script` in a mount namespace of its own; `$0` is a directory for the script.
fn with_mounts(dir: &Directory, script: &str, arguments: &[&str]) -> Result<Output, Skip> {
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-e", "-c", &format!("{script}\nexec \"$@\"")]).arg(dir.path()).current_dir(dir.path());
    let recovers = arguments.first() == Some(&"recover");
    command.arg(program("kmemtraced")).args(sandbox().iter().filter(|_| !recovers));
    let output = command.args(arguments).output();
    let output = output.map_err(|error| Skip(format!("unshare: {error}")))?;
    unless_refused(output)
}

/// Returns the output of a program in a mount namespace; skips if the kernel refuses the namespace.
fn unless_refused(output: Output) -> Result<Output, Skip> {
    let stderr = text(&output.stderr);
    match ["unshare: ", "mount: "].iter().any(|program| stderr.starts_with(program)) {
        true => Err(Skip(stderr)),
        false => Ok(output),
    }
}

fn buffers_larger_than_the_machine_are_refused() -> Result<(), Skip> {
    can_record()?;
    let dir = Directory::new(&[]);
    for size in ["17179869183G", "4096G"] {
        for more in [&[][..], &["--boot"]] {
            let start = Instant::now();
            let output = record(&dir, &[&["-b", size], more].concat());
            assert_refused(&output, &format!("-b {size} on "));
            assert!(text(&output.stderr).contains("GiB may be taken (half of what is available)"));
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        }
    }
    // A machine of less memory.
    dir.write("meminfo", b"MemTotal: 4096 kB\nMemAvailable: 1024 kB\n");
    let little = "mount --bind $0/meminfo /proc/meminfo";
    for (more, status) in [(&[][..], 2), (&["--force-buffer"], 0)] {
        let instance = instance_name();
        let arguments = ["-q", "-d", "20ms", "-o", "trace", "-b", "1M", "-B", &instance];
        let output = with_mounts(&dir, little, &[&arguments, more].concat())?;
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        assert_eq!(text(&output.stderr).contains("0.5 MiB may be taken"), status == 2, "{}", text(&output.stderr));
    }
    Ok(())
}

/// Instance that no recorder has made; removed on drop.
struct ByHand(PathBuf);

impl ByHand {
    fn new(tracefs: &Tracefs, name: &str) -> ByHand {
        let path = tracefs.path().join("instances").join(name);
        fs::create_dir(&path).unwrap();
        ByHand(path)
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn other_programs_find_the_running_recording() -> Result<(), Skip> {
    can_record()?;
    let recorder = Recorder::start(&[]);
    let file = Path::new("/run/kmemtraced").join(recorder.instance_name());
    let trace = recorder.directory.file("trace").canonicalize().unwrap();
    let expected = format!("{}\n{}\n", recorder.pid(), trace.display());
    until(&expected, || fs::read_to_string(&file).is_ok_and(|text| text.starts_with(&expected)));
    recorder.stop();
    assert!(!file.exists());
    Ok(())
}

fn an_instance_made_by_hand_stays() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let name = instance_name();
    let foreign = ByHand::new(&tracefs, &name);
    let dir = Directory::new(&[]);
    let recover = || run("kmemtraced", &["recover", "-B", &name], &[]);
    let assert_stays = || {
        let output = recover();
        assert!(foreign.0.is_dir(), "{}", text(&output.stdout));
        assert!(text(&output.stdout).contains("was not made by a recorder"), "{}", text(&output.stdout));
        let output = run("kmemtraced", &["-d", "20ms", "-B", &name, "-o"], &[&dir.file("trace")]);
        assert_refused(&output, "was not made by a recorder");
        assert!(foreign.0.is_dir());
    };
    assert_stays();
    fs::remove_dir(&foreign.0).unwrap();
    // A killed recorder had this name before, and its instance was removed by hand.
    let recorder = Recorder::start_in(Directory::new(&[]), &name, &[]);
    recorder.signal(Signal::KILL);
    recorder.wait();
    fs::remove_dir(&foreign.0).unwrap();
    fs::create_dir(&foreign.0).unwrap();
    assert_stays();
    fs::remove_dir(&foreign.0).unwrap();
    // The instance of a killed recorder is removed.
    let recorder = Recorder::start_in(Directory::new(&[]), &instance_name(), &[]);
    let killed = recorder.instance_name().to_owned();
    recorder.signal(Signal::KILL);
    recorder.wait();
    recover();
    assert!(!tracefs.path().join("instances").join(killed).exists());
    Ok(())
}

fn a_killed_recorders_instance_is_known_without_run() -> Result<(), Skip> {
    let tracefs = can_record()?;
    let dir = Directory::new(&[]);
    let no_run = "mount -t tmpfs -o ro none /run";
    let name = instance_name();
    let path = tracefs.path().join("instances").join(&name);
    // The recorder is the parent of the process that starts programs.
    let kill = "kill -KILL $(cut -d ' ' -f 4 /proc/$PPID/stat)";
    let command = ["-q", "-B", &name, "-o", "trace", "--", "sh", "-c", kill];
    with_mounts(&dir, no_run, &command)?;
    assert!(path.is_dir(), "the killed recorder's instance");
    let output = with_mounts(&dir, no_run, &["-v", "-d", "20ms", "-B", &instance_name(), "-o", "told"])?;
    let said =
        "/run/kmemtraced: cannot be made, or another user may write to it: other programs do not find this recording";
    assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    let by_hand = ByHand::new(&tracefs, &instance_name());
    let other = by_hand.0.file_name().unwrap_or_default().to_string_lossy().into_owned();
    with_mounts(&dir, no_run, &["recover", "-B", &other])?;
    assert!(by_hand.0.is_dir() && !path.exists());
    // The folder is there, and cannot be written to; or the file is removed later.
    let full = "mount -t tmpfs -o size=4k none /run; mkdir /run/kmemtraced; head -c 4096 /dev/zero >/run/full";
    let read_only = "mount -t tmpfs none /run; mkdir /run/kmemtraced; mount -o remount,ro /run";
    let removed = format!("rm /run/kmemtraced/{name}; {kill}");
    for (script, kill) in [(full, kill), (read_only, kill), (":", &removed)] {
        with_mounts(&dir, script, &["-q", "-f", "-B", &name, "-o", "trace", "--", "sh", "-c", kill])?;
        assert!(path.is_dir(), "{script}: the killed recorder's instance");
        let output = run("kmemtraced", &["recover", "-B", &other], &[]);
        assert!(!path.exists() && by_hand.0.is_dir(), "{script}: {}", text(&output.stdout));
        assert!(text(&output.stdout).contains(&name), "{script}: {}", text(&output.stdout));
    }
    Ok(())
}

fn a_planted_state_file_is_not_written_through() -> Result<(), Skip> {
    let tracefs = can_record()?;
    for planted in [
        "mkdir -m 777 /run/kmemtraced; ln -s $0/victim/file /run/kmemtraced/$NAME",
        "ln -s $0/victim /run/kmemtraced",
        "mkdir /run/kmemtraced; ln -s $0/victim/file /run/kmemtraced/$NAME",
    ] {
        let dir = Directory::new(&[]);
        dir.write("victim/file", b"theirs");
        let name = instance_name();
        let script = format!("mount -t tmpfs none /run; NAME={name}; {planted}");
        let output = with_mounts(&dir, &script, &["-q", "-d", "20ms", "-B", &name, "-o", "trace"])?;
        assert_recorded(&output);
        let victim = files(&dir.file("victim"));
        assert_eq!(victim, Files::from([("file".into(), b"theirs".to_vec())]), "{planted}");
        assert!(!tracefs.path().join("instances").join(&name).exists());
    }
    Ok(())
}

fn under_sudo_a_recording_is_the_callers() -> Result<(), Skip> {
    can_record()?;
    if !rustix::process::geteuid().is_root() {
        return Err(Skip("needs root, as sudo gives it".to_owned()));
    }
    let user = OTHER_USER.to_string();
    for (variables, owner) in [
        (&[("SUDO_UID", &*user), ("SUDO_GID", &*user)][..], OTHER_USER),
        (&[("SUDO_UID", "0"), ("SUDO_GID", "0")], 0),
        (&[("SUDO_UID", &*user)], 0),
        (&[], 0),
    ] {
        let dir = Directory::new(&[]);
        let mut command = kmemtraced();
        command.args(["-q", "-B", &instance_name(), "-o", "trace"]).env_remove("SUDO_UID").env_remove("SUDO_GID");
        command.envs(variables.iter().copied()).current_dir(dir.path());
        // COMMAND's file is of this directory and of no recording.
        let during = "stat -c %u trace >owner; echo x >trace/other";
        let output = command.args(["--", "sh", "-c", during]).output().unwrap();
        assert_recorded(&output);
        assert_eq!(dir.text("owner").trim(), "0", "while it is recorded it is root's");
        let owners = |name: &str| fs::metadata(dir.file(name)).unwrap().uid();
        for name in ["trace", "trace/meta.out", "trace/cpu0.out"] {
            assert_eq!(owners(name), owner, "{variables:?} {name}");
        }
        assert_eq!(owners("trace/other"), 0, "only what this run has made");
    }
    // A recording that was not handed over.
    let dir = Directory::new(&[]);
    assert_recorded(&record(&dir, &["-d", "20ms", "-o", "trace"]));
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]).arg(program("kmemtrace-report"));
    let refused = command.arg(dir.file("trace")).output().unwrap();
    assert_refused(&refused, "trace: belongs to root");
    let said = text(&refused.stderr);
    assert!(said.contains(&format!("sudo chown -R {user}:{user} {}", dir.file("trace").display())), "{said}");
    Ok(())
}
