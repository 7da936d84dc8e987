//! Cost of reading a text of page_owner: bytes a second, and memory, for 100,000 distinct stacks.
//!
//! A text is 1 GB (`KMEMTRACE_BENCH_SECONDS=3` makes it 100 MB). Frames are those of a usual kernel, and many more than any kernel has:
//! lines that are not in the processor's caches. Beside it stands `wc -l`, which does nothing but look for the ends of lines.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use kmemtrace_benches::child::usage;
use kmemtrace_benches::{build, seconds, table};
use kmemtrace_tests::generate::Random;
use kmemtrace_tests::programs::program;
use kmemtrace_tests::recording::Directory;

/// Value of `KMEMTRACE_BENCH_SECONDS` that gives the text its full size.
const FULL: u64 = 30;
const STACKS: usize = 100_000;
/// Different lines of frames: a usual kernel's, and far more.
const FRAMES: [u64; 2] = [30_000, 500_000];
const VIEWS: [&[&str]; 4] =
    [&["sites"], &["modules"], &["sites", "--cull", "stacktrace,pid"], &["live", "--objects", "-n", "20"]];

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    build();
    let dir = Directory::on_disk();
    let bytes = 1_000_000_000 * seconds(FULL).clamp(1, FULL) / FULL;
    let mut rows = Vec::new();
    for frames in FRAMES {
        dir.write("owners", b"");
        let path = dir.file("owners");
        let blocks = generate(&path, bytes, frames);
        let mut wc = Command::new("wc");
        rows.push(row(&format!("wc -l, {frames} frames"), wc.arg("-l").arg(&path), bytes, blocks));
        for view in VIEWS {
            let mut report = Command::new(program("kmemtrace-report"));
            rows.push(row(
                &format!("{}, {frames} frames", view.join(" ")),
                report.args(view).arg(&path),
                bytes,
                blocks,
            ));
        }
    }
    table("texts of page_owner", &["", "MB/s", "MB/s of processor time", "MiB", "bytes a block"], &rows);
}

fn row(name: &str, command: &mut Command, bytes: u64, blocks: u64) -> Vec<String> {
    let used = usage(command);
    let rate = |seconds: f64| format!("{:.0}", bytes as f64 / 1e6 / seconds);
    let memory = format!("{:.0}", used.peak_bytes as f64 / 1_048_576.0);
    let of_block = format!("{:.0}", used.peak_bytes as f64 / blocks as f64);
    vec![name.to_owned(), rate(used.seconds), rate(used.cpu_seconds), memory, of_block]
}

/// Writes a text of about so many bytes, with so many different frames, and returns the number of its blocks.
fn generate(path: &Path, bytes: u64, frames: u64) -> u64 {
    let mut random = Random::new(1);
    let frame = |number: u64| {
        let module = if number.is_multiple_of(5) { format!(" [module{}]", number % 97) } else { String::new() };
        format!(" subsystem_function_{}+{:#x}/0x900{module}\n", number / 3, 16 + number * 37 % 2048)
    };
    let stacks: Vec<String> = (0..STACKS)
        .map(|_| {
            let depth = 7 + random.below(7);
            let outer: String = (0..depth).map(|_| frame(random.below(frames))).collect();
            format!(
                " post_alloc_hook+0x1a/0x50\n get_page_from_freelist+0x1b5/0x390\n __alloc_pages+0xce/0x200\n{outer}\n"
            )
        })
        .collect();
    let mut file = BufWriter::new(File::create(path).unwrap());
    let (mut written, mut blocks) = (0, 0u64);
    while written < bytes {
        let order = if random.below(10) > 0 { 0 } else { 2 };
        let (pid, pfn) = (1 + random.below(30_000), 4096 + blocks * 4);
        let stack = stacks.get(blocks as usize).unwrap_or_else(|| &stacks[random.below(STACKS as u64) as usize]);
        let block = format!(
            "Page allocated via order {order}, mask 0xcc0(GFP_KERNEL), pid {pid}, tgid {pid} (task{}), ts {} ns, free_ts 0 ns\n\
             PFN {pfn} type Unmovable Block {} type Unmovable Flags 0x17ffffc0000000(node=0|zone=2|lastcpupid=0x1fffff)\n{stack}",
            pid % 500,
            1_000_000_000 + blocks * 50_000,
            pfn >> 9,
        );
        file.write_all(block.as_bytes()).unwrap();
        written += block.len() as u64;
        blocks += 1;
    }
    file.flush().unwrap();
    blocks
}
