//! Directories and files that another user plants, changes or holds back: readers write through no planted link, wait
//! for no writer, and believe no planted figures. Some tests need root; tests that cannot run here are listed as
//! skipped at the end.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use kmemtrace_abi::disk::block::crc32c;
use kmemtrace_tests::generate::{Options, Random, Shape, trace_dir, tree, workload};
use kmemtrace_tests::live::root;
use kmemtrace_tests::programs::{json, program, run, run_to, run_within, text, unfinished};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::fs::{CWD, FileType, Mode, RenameFlags};

/// Time limit of a reader, which takes a few milliseconds for such small inputs.
const LIMIT: Duration = Duration::from_secs(10);
const KMSG: &str = "/proc/kmsg";
const INDEX: &str = "report.index";
const USED: &str = "the figures are taken from it";
/// User id that no system has.
const STRANGER: u32 = 64_243;

/// Change to a file at a path.
type Change<'a> = &'a dyn Fn(&Path);

kmemtrace_tests::tests![
    no_planted_link_is_written_through,
    a_link_of_another_user_is_not_followed_by_the_output,
    no_folder_behind_a_link_of_another_user_is_used,
    pack_does_not_follow_a_link_at_a_files_own_name,
    a_file_that_changes_under_pack_is_left_as_it_is,
    a_directory_that_is_moved_under_pack_gets_no_file_elsewhere => a_moved_directory_gets_no_file_elsewhere,
    unfinished_files_of_killed_programs_are_removed,
    input_without_an_end_is_refused_in_one_line,
    a_trace_with_files_that_block_is_read_without_them,
    a_fifo_that_takes_a_files_place_does_not_block,
    an_index_of_a_stranger_is_not_believed,
    a_strangers_trace_has_only_its_owners_index,
];

fn files(seed: u64, events: usize) -> Vec<(String, Vec<u8>)> {
    trace_dir(&workload(seed, &Options::plain(Shape::plain(), 1, events)), seed)
}

/// Waits until the files are old enough for an index.
fn settle() {
    thread::sleep(Duration::from_millis(40));
}

fn stderr(output: &Output) -> String {
    text(&output.stderr)
}

fn one_line(output: &Output, says: &str) {
    let said = stderr(output);
    assert!(said.trim_end().lines().count() == 1 && said.contains(says), "{output:?}");
}

fn fifo(path: &Path) {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

fn no_planted_link_is_written_through() -> Result<(), Skip> {
    let dir = Directory::new(&files(1, 2000));
    let victims = Directory::new(&[("victim".to_owned(), b"of root".to_vec())]);
    let (victim, out) = (victims.file("victim"), dir.file("out.json"));
    for name in ["cpu0.out.packing", "meta.out.packing", "out.json.writing", "report.index.new"] {
        symlink(&victim, dir.file(name)).unwrap();
    }
    settle();
    let indexed = ["--index-from", "0", "--format", "json", "-o", out.to_str().unwrap()];
    for arguments in [&indexed[..], &["pack"]] {
        run("kmemtrace-report", arguments, &[dir.path()]);
        assert_eq!(fs::read(&victim).unwrap(), b"of root", "{arguments:?}");
    }
    json(&fs::read(&out).unwrap());
    fs::remove_file(&out).unwrap();
    settle();
    run_to(0, "kmemtrace-report", &indexed, &[dir.path()]);
    for name in ["cpu0.out", "meta.out", INDEX, "out.json"] {
        assert!(dir.file(name).symlink_metadata().unwrap().is_file(), "{name}");
    }
    assert_eq!(fs::read(&victim).unwrap(), b"of root");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2 + 4 + 2, "the trace, the links, the output and the index");
    Ok(())
}

fn a_link_of_another_user_is_not_followed_by_the_output() -> Result<(), Skip> {
    root()?;
    let dir = Directory::new(&files(1, 500));
    dir.write("victim", b"of root");
    let link = dir.file("out.json");
    symlink("victim", &link).unwrap();
    std::os::unix::fs::lchown(&link, Some(STRANGER), Some(STRANGER)).unwrap();
    let output = run("kmemtrace-report", &["-f", "-o", link.to_str().unwrap()], &[dir.path()]);
    assert_eq!(output.status.code(), Some(2));
    one_line(&output, "is a link of user 64243");
    assert_eq!(fs::read(dir.file("victim")).unwrap(), b"of root");
    Ok(())
}

fn no_folder_behind_a_link_of_another_user_is_used() -> Result<(), Skip> {
    root()?;
    let dir = Directory::new(&[]);
    files(1, 500).iter().for_each(|(name, bytes)| dir.write(&format!("real/trace/{name}"), bytes));
    dir.write("real/list", b"fs\tfs/*\n");
    symlink("real", dir.file("link")).unwrap();
    symlink("real/trace", dir.file("to-trace")).unwrap();
    let at = |name: &str| dir.file(name).to_str().unwrap().to_owned();
    let (trace, output, linked) = (at("real/trace"), at("link/out.json"), at("link/trace"));
    let (cpu, list, folder, to_trace) = (at("link/trace/cpu0.out"), at("link/list"), at("link"), at("to-trace"));
    let reports: [&[&str]; 9] = [
        &["sites", &linked],
        &["sites", &cpu],
        &["sites", &to_trace],
        &["pack", &to_trace],
        &["sites", "--areas", &list, &trace],
        &["sites", "--debug-dir", &folder, &trace],
        &["sites", "--kernel", &folder, &trace],
        &["static", &folder],
        &["sites", "-f", "-o", &output, &trace],
    ];
    let lines = reports.map(|words| ("kmemtrace-report", words)).into_iter();
    let checks: [&[&str]; 2] = [&[&linked], &[&to_trace]];
    let lines: Vec<_> = lines.chain(checks.map(|words| ("kmemtrace-check", words))).collect();
    let all = |is_refused: bool| {
        for (name, words) in &lines {
            let output = run_within(LIMIT, name, words, &[]);
            let said = stderr(&output);
            assert_eq!(said.contains("is a link of user 64243"), is_refused, "{name} {words:?}: {output:?}");
            if is_refused {
                assert_eq!(output.status.code(), Some(2), "{name} {words:?}: {said}");
                one_line(&output, "is a link of user 64243");
            }
        }
    };
    all(false);
    fs::remove_file(dir.file("real/out.json")).unwrap();
    let before = fs::read(dir.file("real/trace/cpu0.out")).unwrap();
    for name in ["link", "to-trace"] {
        std::os::unix::fs::lchown(dir.file(name), Some(STRANGER), Some(STRANGER)).unwrap();
    }
    all(true);
    assert!(!dir.file("real/out.json").exists());
    assert!(fs::read(dir.file("real/trace/cpu0.out")).unwrap() == before);
    Ok(())
}

fn pack_does_not_follow_a_link_at_a_files_own_name() -> Result<(), Skip> {
    let (dir, elsewhere) = (Directory::new(&files(2, 2000)), Directory::new(&[]));
    let (name, target) = (dir.file("cpu0.out"), elsewhere.file("cpu0.out"));
    fs::rename(&name, &target).or_else(|_| fs::copy(&name, &target).and_then(|_| fs::remove_file(&name))).unwrap();
    symlink(&target, &name).unwrap();
    let before = fs::read(&target).unwrap();
    for path in [dir.path(), name.as_path()] {
        let output = run("kmemtrace-report", &["pack", "-j", "1"], &[path]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        one_line(&output, "cpu0.out: cannot be read: is a symbolic link");
    }
    assert!(name.symlink_metadata().unwrap().is_symlink() && fs::read(&target).unwrap() == before);
    Ok(())
}

/// Starts a slow pack (level 22), and waits until it has begun to write.
fn slow_pack(dir: &Path) -> Child {
    let mut command = Command::new(program("kmemtrace-report"));
    command.args(["pack", "-q", "--level", "22", "-j", "1"]).arg(dir).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let until = Instant::now() + LIMIT;
    while unfinished(child.id(), dir).is_none() {
        assert!(Instant::now() < until, "pack writes nothing");
        thread::yield_now();
    }
    child
}

fn a_file_that_changes_under_pack_is_left_as_it_is() -> Result<(), Skip> {
    let files = files(3, 150_000);
    let whole = &files.iter().find(|(name, _)| name == "cpu0.out").unwrap().1;
    let append = |path: &Path| OpenOptions::new().append(true).open(path).unwrap();
    let changes: [(&str, &str, Change<'_>); 4] = [
        ("cut", "was changed while it was read", &|path| append(path).set_len(whole.len() as u64 / 3).unwrap()),
        ("emptied", "was changed while it was read", &|path| append(path).set_len(0).unwrap()),
        ("longer", "was changed while it was read", &|path| append(path).write_all(b"more").unwrap()),
        ("another", "another file has this name by now", &|path| {
            fs::write(path.with_extension("new"), "another").unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        }),
    ];
    for (what, says, change) in changes {
        let dir = Directory::new(&files);
        let path = dir.file("cpu0.out");
        let child = slow_pack(dir.path());
        change(&path);
        let changed = fs::read(&path).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{what}: {output:?}");
        one_line(&output, says);
        assert!(fs::read(&path).unwrap() == changed, "{what}: the file was replaced");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), files.len(), "{what}: something is left behind");
    }
    Ok(())
}

fn a_moved_directory_gets_no_file_elsewhere() -> Result<(), Skip> {
    let (parent, files) = (Directory::new(&[]), files(4, 150_000));
    let (dir, moved, victim) = (parent.file("trace"), parent.file("moved"), parent.file("victim"));
    for (name, bytes) in &files {
        parent.write(&format!("trace/{name}"), bytes);
    }
    fs::create_dir(&victim).unwrap();
    fs::write(victim.join("cpu0.out"), "of root").unwrap();
    let child = slow_pack(&dir);
    fs::rename(&dir, &moved).unwrap();
    symlink("victim", &dir).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(fs::read(victim.join("cpu0.out")).unwrap(), b"of root");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 1);
    assert_eq!(
        fs::read_dir(&moved).unwrap().count(),
        files.len(),
        "the unfinished file is removed from the moved directory"
    );
    Ok(())
}

/// A killed program leaves no file, but where the file system has none without a name: then the next one removes it.
fn unfinished_files_of_killed_programs_are_removed() -> Result<(), Skip> {
    let dir = Directory::new(&files(5, 150_000));
    let count = || fs::read_dir(dir.path()).unwrap().count();
    let before = count();
    let mut child = slow_pack(dir.path());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(count(), before);
    let left = dir.file("cpu0.out.packing-ab2cd3ef");
    fs::write(&left, "half of it").unwrap();
    // A young file may belong to a running program.
    run_to(0, "kmemtrace-report", &["pack", "--level", "1"], &[dir.path()]);
    assert!(left.exists());
    let hours_ago = std::time::SystemTime::now() - Duration::from_secs(7200);
    File::options().append(true).open(&left).unwrap().set_modified(hours_ago).unwrap();
    run_to(0, "kmemtrace-report", &["pack", "--level", "1"], &[dir.path()]);
    assert_eq!(count(), before);
    Ok(())
}

/// Skips a test that needs to read the kernel's log, where a reader would wait for the next message.
fn kmsg() -> Result<(), Skip> {
    File::open(KMSG).map(drop).map_err(|error| Skip(format!("{KMSG} cannot be opened: {error}")))
}

fn input_without_an_end_is_refused_in_one_line() -> Result<(), Skip> {
    kmsg()?;
    let dir = Directory::new(&[]);
    fifo(&dir.file("fifo"));
    for (name, target) in [("to-kmsg", KMSG), ("to-zero", "/dev/zero")] {
        symlink(target, dir.file(name)).unwrap();
    }
    for name in ["cpu0.out", "meta.out", "cpu3", "trace_pipe_raw"] {
        fs::create_dir_all(dir.file("fifos").join(name)).unwrap();
        fs::create_dir_all(dir.file("kmsgs").join(name)).unwrap();
        fifo(&dir.file("fifos").join(name).join(name));
        symlink(KMSG, dir.file("kmsgs").join(name).join(name)).unwrap();
    }
    let made_up = "is a file that proc makes up";
    let mut cases = vec![
        (KMSG.into(), made_up),
        ("/proc/self/mem".into(), made_up),
        (dir.file("to-kmsg"), made_up),
        (dir.file("fifo"), "is a FIFO"),
        (dir.file("to-zero"), "is a device"),
    ];
    for name in ["cpu0.out", "meta.out", "cpu3"] {
        cases.push((dir.file("fifos").join(name), "is a FIFO"));
        cases.push((dir.file("fifos").join(name).join(name), "is a FIFO"));
        cases.push((dir.file("kmsgs").join(name), made_up));
        cases.push((dir.file("kmsgs").join(name).join(name), made_up));
    }
    cases.push((dir.file("fifos/trace_pipe_raw/trace_pipe_raw"), "is a FIFO"));
    for (path, says) in &cases {
        for (name, arguments) in
            [("kmemtrace-check", &[][..]), ("kmemtrace-report", &["events"]), ("kmemtrace-report", &["pack", "-f"])]
        {
            let output = run_within(LIMIT, name, arguments, &[path]);
            assert_eq!(output.status.code(), Some(2), "{name} {}: {output:?}", path.display());
            one_line(&output, says);
        }
    }
    Ok(())
}

fn a_trace_with_files_that_block_is_read_without_them() -> Result<(), Skip> {
    kmsg()?;
    let plants: [Change<'_>; 3] =
        [&fifo, &|path| symlink(KMSG, path).unwrap(), &|path| symlink("/dev/zero", path).unwrap()];
    for plant in plants {
        let dir = Directory::new(&tree(&workload(6, &Options::plain(Shape::plain(), 2, 400)), 6));
        for name in ["per_cpu/cpu0/stats", "kallsyms", "modules", "saved_cmdlines", "events/kmem/kfree/format", "uname"]
        {
            let _ = fs::remove_file(dir.file(name));
            plant(&dir.file(name));
        }
        let checked = run_within(LIMIT, "kmemtrace-check", &["--format", "json"], &[dir.path()]);
        let said = json(&checked.stdout).to_string();
        for name in ["kallsyms is missing", "its stats are missing", "events/kmem/kfree/format is missing"] {
            assert!(said.contains(name), "{name}: {said}");
        }
        let report = run_within(LIMIT, "kmemtrace-report", &["sites", "--format", "json"], &[dir.path()]);
        assert_eq!(report.status.code(), Some(0), "{report:?}");
        let raw = dir.file("per_cpu/cpu1/trace_pipe_raw");
        fs::remove_file(&raw).unwrap();
        plant(&raw);
        for name in ["kmemtrace-check", "kmemtrace-report"] {
            run_within(LIMIT, name, &[], &[dir.path()]);
        }
        // An index that does not belong to the trace.
        let dir = Directory::new(&files(6, 500));
        plant(&dir.file(INDEX));
        settle();
        let report = run_within(LIMIT, "kmemtrace-report", &["--index-from", "0", "-v"], &[dir.path()]);
        assert!(report.status.success() && stderr(&report).contains("is not a regular file"), "{report:?}");
        let dir = Directory::new(&[("cpu0".to_owned(), Vec::new())]);
        plant(&dir.file("total_overruns"));
        run_within(LIMIT, "kmemtrace-check", &[], &[dir.path()]);
    }
    Ok(())
}

fn a_fifo_that_takes_a_files_place_does_not_block() -> Result<(), Skip> {
    let dir = Directory::new(&files(7, 300));
    let (file, other) = (dir.file("cpu0.out"), dir.file("other"));
    fifo(&other);
    if let Err(error) = rustix::fs::renameat_with(CWD, &file, CWD, &other, RenameFlags::EXCHANGE) {
        return Err(Skip(format!("the file system cannot exchange two files: {error}")));
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let _ = rustix::fs::renameat_with(CWD, &file, CWD, &other, RenameFlags::EXCHANGE);
            }
        });
        let all = std::panic::catch_unwind(|| {
            for _ in 0..40 {
                for (name, arguments) in
                    [("kmemtrace-check", &[][..]), ("kmemtrace-report", &[]), ("kmemtrace-report", &["pack"])]
                {
                    let output = run_within(LIMIT, name, arguments, &[dir.path()]);
                    assert!(matches!(output.status.code(), Some(0..=2)), "{output:?}");
                }
            }
        });
        ended.store(true, Ordering::Relaxed);
        all.unwrap();
    });
    Ok(())
}

fn document(dir: &Path, options: &[&str]) -> (Vec<u8>, String) {
    let output = run("kmemtrace-report", &[&["summary", "--format", "json"], options].concat(), &[dir]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    (output.stdout.clone(), stderr(&output))
}

/// Index that fits the trace in `dir`, is believed if it belongs to the reader, and has other figures than the trace.
fn forged(dir: &Directory, plain: &[u8]) -> Vec<u8> {
    let index = fs::read(dir.file(INDEX)).unwrap();
    let mut random = Random::new(1);
    for _ in 0..3000 {
        let mut bytes = index.clone();
        let at = 200 + random.below(bytes.len() as u64 - 200) as usize;
        bytes[at] ^= 1;
        let checksum = crc32c(&bytes[12..]).to_le_bytes();
        bytes[8..12].copy_from_slice(&checksum);
        dir.write(INDEX, &bytes);
        let (printed, said) = document(dir.path(), &["--index-from", "0", "-v"]);
        if said.contains(USED) && printed != plain {
            return bytes;
        }
    }
    panic!("no wrong index is believed");
}

fn an_index_of_a_stranger_is_not_believed() -> Result<(), Skip> {
    root()?;
    let dir = Directory::new(&files(8, 1500));
    settle();
    let (plain, _) = document(dir.path(), &["--no-index"]);
    document(dir.path(), &["--index-from", "0"]);
    let wrong = forged(&dir, &plain);
    let changes: [(&str, Change<'_>); 4] = [
        ("it belongs to user 64243, and the trace to user 0", &|path| chown(path, Some(STRANGER), None).unwrap()),
        ("may write to it (mode 620)", &|path| fs::set_permissions(path, fs::Permissions::from_mode(0o620)).unwrap()),
        ("may write to it (mode 602)", &|path| fs::set_permissions(path, fs::Permissions::from_mode(0o602)).unwrap()),
        ("is not a regular file", &|path| {
            fs::rename(path, path.with_extension("other")).unwrap();
            symlink("report.other", path).unwrap();
        }),
    ];
    for (says, change) in changes {
        dir.write(INDEX, &wrong);
        fs::set_permissions(dir.file(INDEX), fs::Permissions::from_mode(0o600)).unwrap();
        change(&dir.file(INDEX));
        let (printed, said) = document(dir.path(), &["--index-from", "0", "-v"]);
        assert!(said.contains("report.index: not used: ") && said.contains(says), "{says}: {said}");
        assert!(printed == plain, "{says}");
        let _ = fs::remove_file(dir.file(INDEX));
    }
    Ok(())
}

fn a_strangers_trace_has_only_its_owners_index() -> Result<(), Skip> {
    root()?;
    let dir = Directory::new(&files(9, 1500));
    let all = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    all.chain([dir.path().to_owned()]).for_each(|path| chown(path, Some(STRANGER), None).unwrap());
    settle();
    let by_stranger = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=64243", "--clear-groups"]).arg(program("kmemtrace-report"));
        command.args(["summary", "--format", "json", "--index-from", "0", "-v"]).arg(dir.path()).output().unwrap()
    };
    let (plain, said) = document(dir.path(), &["--index-from", "0", "-v"]);
    assert!(said.contains("not written: the trace belongs to another user"), "{said}");
    assert!(!dir.file(INDEX).exists());
    let first = by_stranger();
    if !first.status.success() {
        return Err(Skip(format!("another user cannot run the program: {}", stderr(&first).trim_end())));
    }
    assert!(stderr(&by_stranger()).contains(USED) && fs::metadata(dir.file(INDEX)).unwrap().uid() == STRANGER);
    let index = fs::read(dir.file(INDEX)).unwrap();
    let (printed, said) = document(dir.path(), &["--index-from", "0", "-v"]);
    assert!(printed == plain && !said.contains(USED), "{said}");
    assert!(said.contains("user 64243, who is neither root nor the reader"), "{said}");
    assert!(fs::read(dir.file(INDEX)).unwrap() == index);
    Ok(())
}
