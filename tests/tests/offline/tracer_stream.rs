//! Streams of the ftrace tracer "kmemtrace" of 2009: all CPUs in one file, by time.

use std::path::PathBuf;

use kmemtrace_abi::event::StreamItem;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::programs::{check, document, json, run, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runs;
use serde_json::{Value, json};

/// Machine that wrote a stream.
#[derive(Clone, Copy, Debug)]
struct Machine {
    word: usize,
    is_big: bool,
}

const MACHINES: [Machine; 4] = [
    Machine { word: 8, is_big: false },
    Machine { word: 8, is_big: true },
    Machine { word: 4, is_big: false },
    Machine { word: 4, is_big: true },
];
const SITE: u64 = 0xc012_3456;

impl Machine {
    /// A record of an object of this type: an allocation, or a free without sizes.
    fn record(self, (time, cpu): (u64, u32), type_id: u8, address: u64, sizes: Option<(u64, u64)>) -> Vec<u8> {
        let mut out = vec![u8::from(sizes.is_none()), type_id];
        let mut put = |number: u64, len: usize| match self.is_big {
            true => out.extend(&number.to_be_bytes()[8 - len..]),
            false => out.extend(&number.to_le_bytes()[..len]),
        };
        let len = 16 + 2 * self.word + if sizes.is_some() { 2 * self.word + 8 } else { 0 };
        put(len as u64, 2);
        put(cpu.into(), 4);
        put(time, 8);
        put(SITE, self.word);
        put(address, self.word);
        if let Some((requested, allocated)) = sizes {
            put(requested, self.word);
            put(allocated, self.word);
            put(0xd0, 4);
            put(u32::MAX.into(), 4);
        }
        out
    }

    /// Objects of three kinds, one of them freed on another CPU, one that failed, and one that stays.
    fn stream(self) -> Vec<u8> {
        [
            self.record((100, 0), 0, 0xc100_0000, Some((40, 64))),
            self.record((200, 2), 1, 0xc100_1000, Some((190, 192))),
            self.record((200, 0), 0, 0, Some((10, 16))),
            self.record((300, 2), 0, 0xc100_0000, None),
            self.record((400, 0), 2, 0xc200_0000, Some((4096, 4096))),
            self.record((500, 0), 2, 0xc200_0000, None),
            self.record((600, 2), 0, 0xc100_0000, Some((8, 8))),
        ]
        .concat()
    }
}

fn write(dir: &Directory, bytes: &[u8]) -> PathBuf {
    dir.write("kmem.trace", bytes);
    dir.file("kmem.trace")
}

#[test]
fn streams_of_four_machines_have_their_figures() {
    for machine in MACHINES {
        let dir = Directory::new(&[]);
        let path = write(&dir, &machine.stream());
        let summary = document(&["summary"], &path);
        let trace = &summary["trace"];
        let endian = if machine.is_big { "big" } else { "little" };
        let facts =
            ["input", "order", "endian", "word_bytes", "clock", "cpus", "first", "last"].map(|name| &trace[name]);
        let expected = [
            json!("relay"),
            json!("time"),
            json!(endian),
            json!(machine.word),
            Value::Null,
            json!(2),
            json!(100),
            json!(600),
        ];
        assert_eq!(facts, expected.each_ref(), "{machine:?}");
        assert_eq!(summary["completeness"]["verdict"], "complete", "{machine:?}");
        let kmalloc = &summary["kinds"]["kmalloc"];
        let figures =
            ["allocs", "failed_allocs", "requested", "allocated", "wasted", "frees", "cross_cpu", "live_objects"];
        assert_eq!(figures.map(|name| &kmalloc[name]), [2, 1, 48, 72, 24, 1, 1, 1].map(Value::from).each_ref());
        assert_eq!(
            (&summary["kinds"]["cache"]["live_allocated"], &summary["kinds"]["pages"]["frees"]),
            (&json!(192), &json!(1))
        );
        let checked = check(&path);
        let file = &checked["files"][0];
        let facts = ["cpu", "verdict", "events", "gaps"].map(|name| &file[name]);
        assert_eq!(facts, [Value::Null, json!("ok"), json!(7), json!(0)].each_ref(), "{machine:?}: {checked}");
        // The file tells no names, and takes those of a list.
        let list = dir.file("kallsyms");
        dir.write("kallsyms", b"c0100000 T _text\nc0123400 t do_thing\nc0124000 t other\nc0800000 t mod_init\t[mod]\n");
        let arguments = ["sites", "--kallsyms", list.to_str().unwrap()];
        let named = document(&arguments, &path);
        assert_eq!(
            (&named["rows"][0]["symbol"], &named["trace"]["symbols"]),
            (&json!("do_thing+0x56"), &json!("file"))
        );
    }
}

#[test]
fn damage_is_a_gap_and_a_cut_is_told() {
    let dir = Directory::new(&[]);
    for machine in MACHINES {
        let stream = machine.stream();
        let cut = document(&["summary"], &write(&dir, &stream[..stream.len() - 1]));
        assert_eq!((&cut["completeness"]["verdict"], &cut["events"]["total"]), (&json!("truncated"), &json!(6)));
        let later = [700, 800, 900].map(|time| machine.record((time, 2), 1, 0xc100_5000 + time, None));
        let again = later.concat().repeat(2);
        let damaged = [&stream[..], &[7; 13], &again[..]].concat();
        let found = document(&["summary"], &write(&dir, &damaged));
        // Times of the second half fall, which the order of the stream overrules.
        let complete = &found["completeness"];
        assert_eq!(
            (&complete["verdict"], &complete["gaps"], &found["events"]["total"]),
            (&json!("corrupt"), &json!(1), &json!(13)),
            "{machine:?}"
        );
    }
}

#[test]
fn a_stream_may_be_packed_and_relay_files_stay_what_they_are() {
    let dir = Directory::new(&[]);
    let stream = MACHINES[0].stream();
    let path = write(&dir, &zstd::encode_all(&stream[..], 3).unwrap());
    let found = json(&run_to(0, "kmemtrace-report", &["summary", "--format", "json"], &[&path]));
    assert_eq!(found["events"]["total"], 7);
    // Frees of a relay channel have numbers where a stream of 32 bits has CPUs.
    let relay: Vec<u8> = (0..99u32)
        .flat_map(|number| {
            let mut free = vec![1, 0, 24, 0];
            free.extend(number.to_le_bytes());
            free.extend([SITE, 0xc100_0000].map(u64::to_le_bytes).concat());
            free
        })
        .collect();
    let found = document(&["summary"], &write(&dir, &relay));
    assert_eq!((&found["trace"]["order"], &found["events"]["total"]), (&json!("sequence"), &json!(99)));
}

#[test]
fn no_damage_stops_the_reader_of_streams() {
    let dir = Directory::new(&[]);
    let read = |bytes: &[u8]| -> usize {
        let Ok(mut trace) = Trace::open(&[write(&dir, bytes)]) else { return 0 };
        let (mut items, mut count): (Vec<StreamItem>, usize) = (Vec::new(), 0);
        for stream in &mut trace.streams {
            while stream.fill(&mut trace.names, &mut items) {
                count += items.len();
            }
        }
        count
    };
    for machine in MACHINES {
        let stream = machine.stream();
        let counts: Vec<usize> = (0..stream.len()).map(|len| read(&stream[..len])).collect();
        assert!(counts.is_sorted(), "{machine:?}: {counts:?}");
        for bit in (0..stream.len() * 8).step_by(runs::step(7)) {
            let mut bad = stream.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            read(&bad);
        }
    }
    let output = run("kmemtrace-report", &["summary"], &[&write(&dir, &[0; 100])]);
    assert_eq!(output.status.code(), Some(3));
}
