//! Whatever path an option takes: only stored files are read, nothing waits, and no other user's link leads a program on.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::programs::{run_to, run_within, text};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use rustix::fs::{CWD, FileType, Mode};

const REPORT: &str = "kmemtrace-report";
/// More than any refusal takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// A user that no machine has.
const STRANGER: u32 = 64_242;

/// Things that an option takes.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    File,
    Folder,
    Output,
}

/// Options that take a path, each with the words of a view that has it.
const OPTIONS: [(&str, &[&str], Takes); 13] = [
    ("--areas", &["sites"], Takes::File),
    ("--debug-dir", &["sites"], Takes::Folder),
    ("--kallsyms", &["sites"], Takes::File),
    ("--kernel", &["sites"], Takes::Folder),
    ("--names", &["sites"], Takes::File),
    ("--output", &["sites"], Takes::Output),
    ("--proc-modules", &["sites"], Takes::File),
    ("--save-in", &["top", "--once"], Takes::Folder),
    ("--script", &["top", "--once"], Takes::File),
    ("--skip-frames", &["tree"], Takes::File),
    ("--uses", &["uses"], Takes::File),
    ("--vmlinux", &["sites"], Takes::File),
    ("--wrappers", &["sites"], Takes::File),
];
/// Names of values that are paths, in help.
const PATHS: [&str; 4] = ["<FILE>", "<DIR>", "<TREE>", "<FILE|none>"];

kmemtrace_tests::tests![
    every_option_with_a_path_is_in_the_table,
    no_option_waits_or_reads_what_is_no_stored_file,
    inputs_are_stored_files_or_no_trace,
    outputs_go_into_devices_and_replace_nothing_of_others,
];

fn trace() -> Directory {
    Directory::new(&trace_dir(&workload(1, &Options::plain(Shape::plain(), 1, 300)), 1))
}

fn every_option_with_a_path_is_in_the_table() -> Result<(), Skip> {
    let mut found = BTreeSet::new();
    for (_, view, _) in OPTIONS {
        let help = text(&run_to(0, REPORT, &[view[0], "--help"], &[]));
        for line in help.lines().filter(|line| PATHS.iter().any(|value| line.contains(value))) {
            found.extend(line.split_whitespace().find(|word| word.starts_with("--")).map(str::to_owned));
        }
    }
    let table: BTreeSet<String> = OPTIONS.iter().map(|(option, ..)| (*option).to_owned()).collect();
    assert_eq!(found, table);
    let check = text(&run_to(0, "kmemtrace-check", &["--help"], &[]));
    assert!(
        !check.lines().any(|line| line.contains("--") && PATHS.iter().any(|value| line.contains(value))),
        "{check}"
    );
    Ok(())
}

/// Odd paths, each with a part of the refusal.
fn odd(dir: &Directory) -> Vec<(PathBuf, &'static str)> {
    rustix::fs::mknodat(CWD, dir.file("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    fs::create_dir(dir.file("folder")).unwrap();
    let mut paths = vec![
        (dir.file("fifo"), "is a FIFO: use -"),
        ("/dev/zero".into(), "is a device"),
        ("/proc/kmsg".into(), "is a file that proc makes up"),
        (dir.file("folder"), "is a directory"),
    ];
    if rustix::process::geteuid().is_root() {
        dir.write("target", b"fs\tfs/*\n");
        symlink("target", dir.file("link")).unwrap();
        lchown(dir.file("link"), Some(STRANGER), None).unwrap();
        paths.push((dir.file("link"), "is a link of user 64242"));
    }
    paths
}

/// A file of a TiB that takes nothing on the disk.
fn sparse(dir: &Directory) -> PathBuf {
    let path = dir.file("sparse");
    File::create(&path).unwrap().set_len(1 << 40).unwrap();
    path
}

/// A refusal in one line.
fn is_refused(status: i32, output: &Output, says: &str, what: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{what}: {stderr}");
    assert!(stderr.lines().count() == 1 && stderr.contains(says), "{what}: {stderr}");
}

fn no_option_waits_or_reads_what_is_no_stored_file() -> Result<(), Skip> {
    let (trace, dir) = (trace(), Directory::new(&[]));
    let odd = odd(&dir);
    let sparse = sparse(&dir);
    for (option, view, takes) in OPTIONS.iter().filter(|(_, _, takes)| *takes != Takes::Output) {
        for (path, says) in odd.iter().chain([&(sparse.clone(), "")]) {
            let what = format!("{option} {}", path.display());
            let arguments = [*view, &[*option, path.to_str().unwrap()]].concat();
            let output = run_within(LIMIT, REPORT, &arguments, &[trace.path()]);
            match takes {
                // Saving is tried when a key asks for it.
                Takes::Folder if *option == "--save-in" => assert!(output.status.success(), "{what}"),
                Takes::Folder if path.is_dir() => assert_ne!(output.status.code(), None, "{what}"),
                Takes::Folder => is_refused(2, &output, "", &what),
                _ => is_refused(2, &output, says, &what),
            }
        }
    }
    Ok(())
}

fn inputs_are_stored_files_or_no_trace() -> Result<(), Skip> {
    let dir = Directory::new(&[]);
    let odd = odd(&dir);
    let sparse = sparse(&dir);
    for (name, arguments) in [(REPORT, &["summary"][..]), ("kmemtrace-check", &[])] {
        for (path, says) in odd.iter().filter(|(path, _)| !path.is_dir()) {
            let output = run_within(LIMIT, name, arguments, &[path]);
            is_refused(2, &output, says, &format!("{name} {}", path.display()));
        }
        for path in [&sparse, &dir.file("folder")] {
            let output = run_within(LIMIT, name, arguments, &[path]);
            is_refused(3, &output, "", &format!("{name} {}", path.display()));
        }
        // Another user's files are read.
        let trace = trace();
        if rustix::process::geteuid().is_root() {
            for file in ["cpu0.out", "meta.out"] {
                chown(trace.file(file), Some(STRANGER), None).unwrap();
            }
        }
        assert!(run_within(LIMIT, name, arguments, &[trace.path()]).status.success());
    }
    Ok(())
}

fn outputs_go_into_devices_and_replace_nothing_of_others() -> Result<(), Skip> {
    let (trace, dir) = (trace(), Directory::new(&[]));
    let to = |path: &Path| run_within(LIMIT, REPORT, &["sites", "-f", "-o", path.to_str().unwrap()], &[trace.path()]);
    for (path, says) in odd(&dir).into_iter().filter(|(path, _)| !path.starts_with("/dev")) {
        let says = if path.starts_with("/proc") { "" } else { says };
        is_refused(2, &to(&path), says, &path.display().to_string());
    }
    assert!(fs::symlink_metadata(dir.file("fifo")).unwrap().file_type().is_fifo());
    for device in ["/dev/null", "/dev/zero"] {
        assert!(to(Path::new(device)).status.success());
        assert!(fs::metadata(device).unwrap().file_type().is_char_device());
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Skip("files of another user can be made by root only".to_owned()));
    }
    dir.write("others", b"theirs");
    chown(dir.file("others"), Some(STRANGER), None).unwrap();
    is_refused(2, &to(&dir.file("others")), "is a file of user 64242", "another user's file");
    assert_eq!(dir.text("others"), "theirs");
    Ok(())
}
