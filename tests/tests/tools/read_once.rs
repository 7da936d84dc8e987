//! Bytes that a reader takes from the disk: at most those of the files, and for a window at most those that the window
//! needs.

use std::fs;
use std::path::Path;

use kmemtrace_abi::disk::block::{End, MARKS_COUNTED, MARKS_UNKNOWN, MARKS_VAGUE};
use kmemtrace_abi::disk::seek_index::SeekIndex;
use kmemtrace_abi::event::{Gap, GapCause, StreamItem};
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::{Load, LoadOptions, Workload, trace_dir, tree};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

kmemtrace_tests::tests![
    a_lossy_recording_is_read_once,
    a_window_from_landmarks_reads_no_more_than_it_needs,
    a_captured_tree_is_read_once,
];

/// Bytes that this thread has read so far.
fn bytes_read() -> Result<u64, Skip> {
    let file = "/proc/thread-self/io";
    let text = fs::read_to_string(file).map_err(|error| Skip(format!("cannot read {file}: {error}")))?;
    let count = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    count.and_then(|count| count.parse().ok()).ok_or_else(|| Skip(format!("{file} has no rchar")))
}

/// Events of one CPU, of which the kernel overwrote 50 at no known time; `is_vague` adds a mark without a count near
/// the end.
fn lossy(is_vague: bool) -> Workload {
    let (mut work, load) = Load::new(3, LoadOptions { cpus: 1, events: 40_000, live: 1000, reuses: true });
    let cpu = &mut work.cpus[0];
    cpu.items.extend(load.map(StreamItem::Event));
    cpu.overrun = 50;
    let place = cpu.items.len() - 20;
    if let (true, StreamItem::Event(last), StreamItem::Event(next)) = (is_vague, cpu.items[place - 1], cpu.items[place])
    {
        let gap = Gap { from: Some(last.at), to: Some(next.at), cpu: 0, lost: None, cause: GapCause::Overrun };
        cpu.items.insert(place, StreamItem::Gap(gap));
    }
    work
}

/// Recording of a workload whose end block says `marks`.
fn recording(work: &Workload, marks: u32) -> Directory {
    let says = |files: &[(String, Vec<u8>)]| End::at_end_of(&files[0].1).unwrap().marks.get() == marks;
    Directory::new(&(0..100).map(|seed| trace_dir(work, seed)).find(|files| says(files)).unwrap())
}

/// Events and bytes read of the first CPU's stream, and its seek index; limited to a time range by `part`.
fn read(path: &Path, part: Option<(&SeekIndex, (u64, u64))>) -> Result<(u64, u64, SeekIndex), Skip> {
    let mut trace = Trace::open(&[path.to_owned()]).unwrap();
    let stream = &mut trace.streams[0];
    stream.keep_seek_index();
    if let Some((landmarks, window)) = part {
        stream.restrict_to(landmarks, window);
    }
    let (mut events, mut items) = (0, Vec::new());
    let before = bytes_read()?;
    while stream.fill(&mut trace.names, &mut items) {
        events += items.iter().filter(|item| matches!(item, StreamItem::Event(_))).count() as u64;
    }
    Ok((events, bytes_read()? - before, stream.seek_index().unwrap().clone()))
}

fn len(dir: &Directory, file: &str) -> u64 {
    fs::metadata(dir.file(file)).unwrap().len()
}

fn a_lossy_recording_is_read_once() -> Result<(), Skip> {
    for (is_vague, marks) in [(false, MARKS_COUNTED), (true, MARKS_VAGUE)] {
        let dir = recording(&lossy(is_vague), marks);
        let (events, bytes, landmarks) = read(dir.path(), None)?;
        let (size, gaps) = (len(&dir, "cpu0.out"), landmarks.gaps);
        assert_eq!((events, gaps.len(), gaps[0].lost), (40_000, 1, Some(50).filter(|_| !is_vague)));
        assert!(bytes < size + size / 5, "{bytes} bytes were read of {size}, vague: {is_vague}");
    }
    Ok(())
}

fn a_window_from_landmarks_reads_no_more_than_it_needs() -> Result<(), Skip> {
    // The end block has no number of marks, so a reader that looks for further loss reads all data.
    let dir = recording(&lossy(true), MARKS_UNKNOWN);
    let (_, _, landmarks) = read(dir.path(), None)?;
    let at = landmarks.points[landmarks.points.len() / 2].last.unwrap();
    let (events, bytes, _) = read(dir.path(), Some((&landmarks, (at, at + 1000))))?;
    let size = len(&dir, "cpu0.out");
    assert!(events > 5 && bytes < size / 2, "{bytes} bytes of {size} were read for {events} events");
    Ok(())
}

fn a_captured_tree_is_read_once() -> Result<(), Skip> {
    let mut work = lossy(false);
    work.cpus[0].overrun = 0;
    let dir = Directory::new(&tree(&work, 1));
    let (events, bytes, landmarks) = read(dir.path(), None)?;
    let size = len(&dir, "per_cpu/cpu0/trace_pipe_raw");
    assert_eq!((events, landmarks.gaps.len()), (40_000, 0));
    assert!(bytes < size + size / 5, "{bytes} bytes were read of {size}");
    Ok(())
}
