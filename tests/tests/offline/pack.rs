//! `kmemtrace-report pack`: smaller files with the same events.

use std::fs;
use std::path::Path;

use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::guest::checked;
use kmemtrace_tests::programs::{data, run, run_to};
use kmemtrace_tests::recording::{Directory, random_workload};
use kmemtrace_tests::views::{DOCUMENTS, printed};

fn bytes_in(dir: &Path) -> u64 {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

fn everything(trace: &Path) -> Vec<Vec<u8>> {
    DOCUMENTS.into_iter().chain(["events"]).map(|view| printed(view, trace)).collect()
}

#[test]
fn a_packed_recording_says_the_same_in_less_room() {
    for seed in 0..10 {
        let (_, workload) = random_workload(seed, 3000);
        let dir = Directory::new(&trace_dir(&workload, seed));
        let (before, bytes) = ((everything(dir.path()), checked(dir.path())), bytes_in(dir.path()));
        run_to(0, "kmemtrace-report", &["pack", "--level", "3", "-f"], &[dir.path()]);
        assert!((everything(dir.path()), checked(dir.path())) == before, "seed {seed}");
        assert!(bytes_in(dir.path()) < bytes, "seed {seed}");
        let again = bytes_in(dir.path());
        run_to(0, "kmemtrace-report", &["pack", "--level", "3", "-f"], &[dir.path()]);
        assert_eq!(bytes_in(dir.path()), again, "a packed file stays as it is");
    }
}

#[test]
fn any_number_of_pack_threads_writes_the_same_files() {
    let files = trace_dir(&workload(1, &Options::plain(Shape::plain(), 5, 4000)), 1);
    let packed = |jobs: &str| {
        let dir = Directory::new(&files);
        let printed = String::from_utf8(run_to(0, "kmemtrace-report", &["pack", "-j", jobs], &[dir.path()])).unwrap();
        let mut printed: Vec<String> =
            printed.lines().map(|line| line.replace(dir.path().to_str().unwrap(), "")).collect();
        printed.sort();
        let bytes = files.iter().map(|(name, _)| fs::read(dir.file(name)).unwrap()).collect::<Vec<_>>();
        (printed, bytes)
    };
    let one = packed("1");
    assert_eq!(one.0.len(), files.len(), "{:?}", one.0);
    assert!(packed("4") == one);
}

#[test]
fn one_file_that_cannot_be_packed_changes_no_report() {
    for jobs in ["1", "3"] {
        let mut files = trace_dir(&workload(2, &Options::plain(Shape::plain(), 4, 3000)), 2);
        let cut = files.iter_mut().find(|(name, _)| name == "cpu2.out").unwrap();
        let len = cut.1.len();
        cut.1.truncate(len - 10);
        let dir = Directory::new(&files);
        let before = (everything(dir.path()), checked(dir.path()));
        let output = run("kmemtrace-report", &["pack", "-j", jobs], &[dir.path()]);
        let (printed, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(2));
        assert!(error.contains("cpu2.out: has no end"), "{error}");
        assert!(printed.contains("cpu0.out   ") && !printed.contains("cpu2.out   "), "{printed}");
        assert!((everything(dir.path()), checked(dir.path())) == before);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), files.len(), "nothing else is left there");
        if jobs == "1" {
            let later = files.iter().find(|(name, _)| name == "cpu3.out").unwrap();
            assert!(fs::read(dir.file("cpu3.out")).unwrap() == later.1, "no other is begun");
        }
    }
}

#[test]
fn an_index_stays_where_no_file_is_packed() {
    let files = trace_dir(&workload(3, &Options::plain(Shape::plain(), 1, 3000)), 3);
    let dir = Directory::new(&files);
    dir.write("report.index", b"of the files as they are");
    let (name, bytes) = &files[0];
    let len = bytes.len();
    dir.write(name, &bytes[..len - 10]);
    run_to(2, "kmemtrace-report", &["pack", "-j", "1"], &[dir.path()]);
    assert!(dir.file("report.index").exists());
    dir.write(name, bytes);
    run_to(0, "kmemtrace-report", &["pack"], &[dir.path()]);
    assert!(!dir.file("report.index").exists());
}

#[test]
fn damage_is_kept_as_it_is() {
    for seed in 0..6 {
        let mut files = trace_dir(&workload(seed, &Options::plain(Shape::plain(), 2, 3000)), seed);
        let bytes = &mut files[0].1;
        let at = bytes.len() * 2 / 3;
        match seed % 3 {
            0 => bytes.truncate(at),
            1 => bytes[at] ^= 0x10,
            _ => drop(bytes.drain(at..at + 50)),
        }
        let dir = Directory::new(&files);
        let before = (everything(dir.path()), checked(dir.path()));
        run_to(0, "kmemtrace-report", &["pack", "-f"], &[dir.path()]);
        assert!((everything(dir.path()), checked(dir.path())) == before, "seed {seed}");
    }
}

#[test]
fn a_file_is_packed_alone_only_where_all_files_keep_one_version() {
    let read = |name: &str| (name.to_owned(), fs::read(data("amd64-6.1").join(name)).unwrap());
    let files = ["cpu0.out", "cpu1.out", "meta.out"].map(read);
    let dir = Directory::new(&files);
    let cpu = dir.file("cpu0.out");
    let output = run("kmemtrace-report", &["pack"], &[&cpu]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr);
    let want =
        ["cpu0.out: would be in version 2 of the format, and ", "is in version 1: pack the directory, not one file"];
    assert!(want.iter().all(|part| error.contains(part)), "{error}");
    assert!(files.iter().all(|(name, bytes)| fs::read(dir.file(name)).unwrap() == *bytes));
    run_to(0, "kmemtrace-report", &["pack", "--raw"], &[&cpu]);
    run_to(0, "kmemtrace-report", &["pack"], &[dir.path()]);
    run_to(0, "kmemtrace-report", &["pack", "--level", "1"], &[&cpu]);
    run_to(2, "kmemtrace-report", &["pack", "--raw"], &[&cpu]);
    // Alone in its directory, or beside another recording.
    let other = trace_dir(&workload(5, &Options::plain(Shape::plain(), 2, 1000)), 5);
    let alone = Directory::new(&[files[0].clone(), other[1].clone()]);
    run_to(0, "kmemtrace-report", &["pack"], &[&alone.file(&files[0].0)]);
}

#[test]
fn an_unfinished_file_is_left_alone() {
    let mut files = trace_dir(&workload(1, &Options::plain(Shape::plain(), 1, 1000)), 1);
    let len = files[0].1.len();
    files[0].1.truncate(len - 10);
    let dir = Directory::new(&files);
    let before = fs::read(dir.file(&files[0].0)).unwrap();
    let output = run("kmemtrace-report", &["pack"], &[dir.path()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("has no end"), "{output:?}");
    assert!(fs::read(dir.file(&files[0].0)).unwrap() == before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), files.len(), "nothing else is left there");
}

#[test]
fn a_directory_locked_by_a_recorder_or_a_pack_is_refused() {
    let files = trace_dir(&workload(1, &Options::plain(Shape::plain(), 1, 1000)), 1);
    let dir = Directory::new(&files);
    let before = fs::read(dir.file(&files[0].0)).unwrap();
    let lock = fs::File::open(dir.path()).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    for path in [dir.path(), &dir.file(&files[0].0)] {
        // Even -f takes no file away from its recorder.
        let output = run("kmemtrace-report", &["pack", "-f"], &[path]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("a recorder or another pack"), "{output:?}");
    }
    assert!(fs::read(dir.file(&files[0].0)).unwrap() == before);
    drop(lock);
    run_to(0, "kmemtrace-report", &["pack"], &[dir.path()]);
}

#[test]
fn an_input_without_a_recording_is_no_trace_to_pack() {
    let dir = Directory::new(&[("notes.txt".to_owned(), b"nothing".to_vec())]);
    run_to(3, "kmemtrace-report", &["pack"], &[dir.path()]);
    run_to(3, "kmemtrace-report", &["pack"], &[&dir.file("notes.txt")]);
    run_to(2, "kmemtrace-report", &["pack"], &[&dir.file("absent")]);
}
