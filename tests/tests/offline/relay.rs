//! `kmemtraced --relay` on channels of plain files and pipes: reports of the recording equal those of the raw bytes.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use kmemtrace_abi::target::Endian;
use kmemtrace_tests::generate::RelayStreams;
use kmemtrace_tests::programs::{json, json_lines, run, run_to, text, until};
use kmemtrace_tests::recorder::kmemtraced;
use kmemtrace_tests::recording::{Directory, random_relay};
use kmemtrace_tests::views::{DOCUMENTS, printed};
use serde_json::Value;

/// Channel of this machine's byte order, from the first such seed at or after `seed`.
fn native(mut seed: u64) -> RelayStreams {
    loop {
        let (_, options, streams) = random_relay(seed, 400);
        if options.endian == Endian::NATIVE {
            return streams;
        }
        seed += 1000;
    }
}

/// Directory as debugfs has it, with these records already in its buffers.
fn channel(streams: &RelayStreams, overruns: u64) -> Directory {
    let dir = Directory::new(&[]);
    for stream in &streams.cpus {
        dir.write(&format!("cpu{}", stream.cpu), &stream.bytes());
    }
    dir.write("total_overruns", format!("{overruns}\n").as_bytes());
    dir.write("abi_version", b"1\n");
    dir.write("enabled", b"0\n");
    dir
}

/// Lines of a view, without members that name the input or need a known kernel.
fn figures(view: &str, trace: &Path) -> Vec<Value> {
    let bytes = printed(view, trace);
    let lines: Vec<Value> = match view {
        "events" => json_lines(&bytes),
        _ => vec![json(&bytes)],
    };
    lines.into_iter().map(|value| stripped(value, "")).collect()
}

fn stripped(value: Value, name: &str) -> Value {
    match value {
        Value::Object(mut members) if name == "trace" => {
            members.retain(|name, _| ["first", "last", "order", "cpus", "endian"].contains(&name.as_str()));
            Value::Object(members)
        }
        Value::Object(members) => {
            const OF_KERNEL: [&str; 9] = [
                "module",
                "cross_node",
                "slabinfo_change",
                "visibility_percent",
                "aliases",
                "names",
                "buddyinfo",
                "reclaimable",
                "reclaimable_from",
            ];
            // Places of call-sites, also of the two sides of a pair.
            const OF_PLACES: [&str; 6] = ["symbol", "frames", "source", "folder", "folder_from", "wrapper"];
            // Raw bytes do not tell the size of a page.
            const OF_PAGES: [&str; 5] =
                ["pages_allocated", "pages_freed", "pages_inferred", "live_pages", "peak_live_pages"];
            let is_of_kernel = |name: &str| {
                [&OF_KERNEL[..], &OF_PAGES].concat().contains(&name)
                    || OF_PLACES.iter().any(|of_place| name.ends_with(of_place))
            };
            let members = members.into_iter().filter(|(name, _)| !is_of_kernel(name));
            Value::Object(members.map(|(name, value)| (name.clone(), stripped(value, &name))).collect())
        }
        Value::Array(values) => values.into_iter().map(|value| stripped(value, "")).collect(),
        other => other,
    }
}

fn assert_same_figures(what: &str, raw: &Path, recorded: &Path) {
    // Raw bytes have no slabinfo, which names caches in a recording.
    for view in DOCUMENTS.into_iter().filter(|view| *view != "caches").chain(["events"]) {
        let (raw, recorded) = (figures(view, raw), figures(view, recorded));
        assert!(raw == recorded, "{what}, {view}:\n{raw:#?}\n{recorded:#?}");
    }
}

#[test]
fn a_recorded_channel_has_the_figures_of_its_raw_bytes() {
    for seed in 0..8 {
        let streams = native(seed);
        let overruns = seed / 4 * 5;
        let channel = channel(&streams, overruns);
        let out = Directory::new(&[]);
        let output = run(
            "kmemtraced",
            &["--relay"],
            &[channel.path(), "-o".as_ref(), &out.file("trace"), "--".as_ref(), "true".as_ref()],
        );
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "seed {seed}: {stderr}");
        assert_eq!(stderr.contains(" 0 lost"), overruns == 0, "seed {seed}: {stderr}");
        assert_eq!(fs::read_to_string(channel.file("enabled")).unwrap(), "0\n", "seed {seed}");
        assert_same_figures(&format!("seed {seed}"), channel.path(), &out.file("trace"));
        let verdict = run("kmemtrace-check", &[], &[&out.file("trace")]).status.code();
        assert_eq!(verdict, run("kmemtrace-check", &[], &[channel.path()]).status.code(), "seed {seed}");
    }
}

fn make_fifo(path: &Path) {
    let made = rustix::fs::mknodat(
        rustix::fs::CWD,
        path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    );
    made.unwrap();
}

fn stop(mut recorder: Child) -> i32 {
    let pid = rustix::process::Pid::from_child(&recorder);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    recorder.wait().unwrap().code().unwrap()
}

#[test]
fn records_that_come_in_pieces_while_it_runs_are_all_there() {
    let streams = native(3);
    let (raw, live, out) = (channel(&streams, 0), channel(&streams, 0), Directory::new(&[]));
    for stream in &streams.cpus {
        fs::remove_file(live.file(&format!("cpu{}", stream.cpu))).unwrap();
        make_fifo(&live.file(&format!("cpu{}", stream.cpu)));
    }
    let mut command = kmemtraced();
    command.arg("--relay").arg(live.path()).args(["-q", "--flush", "10ms", "-o"]).arg(out.file("trace"));
    let recorder = command.stdin(Stdio::null()).spawn().unwrap();
    until("the channel is enabled", || live.text("enabled").trim() == "1");
    let mut pipes: Vec<_> = streams
        .cpus
        .iter()
        .map(|stream| {
            let pipe = OpenOptions::new().write(true).open(live.file(&format!("cpu{}", stream.cpu))).unwrap();
            (pipe, stream.bytes())
        })
        .collect();
    // Pieces never end where a record does.
    while pipes.iter().any(|(_, bytes)| !bytes.is_empty()) {
        for (pipe, bytes) in &mut pipes {
            let some = 1001.min(bytes.len());
            pipe.write_all(&bytes.drain(..some).collect::<Vec<u8>>()).unwrap();
        }
        sleep(Duration::from_millis(3));
    }
    assert_eq!(stop(recorder), 0);
    assert_eq!(fs::read_to_string(live.file("enabled")).unwrap().trim(), "0", "the switch is set back");
    assert_same_figures("in pieces", raw.path(), &out.file("trace"));
}

#[test]
fn a_directory_that_is_no_channel_is_refused() {
    let dir = Directory::new(&[("total_overruns".to_owned(), b"0\n".to_vec())]);
    let out = dir.file("trace");
    let refused = run("kmemtraced", &["--relay"], &[dir.path(), "-o".as_ref(), &out]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("not a kmemtrace channel"));
    dir.write("cpu0", b"");
    dir.write("abi_version", b"7\n");
    let refused = run("kmemtraced", &["--relay"], &[dir.path(), "-o".as_ref(), &out]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(!out.exists(), "nothing is left of a recording that did not begin");
    run_to(2, "kmemtraced", &["--relay", "/nonexistent"], &[]);
}
