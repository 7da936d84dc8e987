//! Files of trace-cmd and perf: the sub-buffers of a captured tree in a `trace.dat`, its records as the samples of a `perf.data`. Each has
//! the figures of the tree.

use std::fs;

use kmemtrace_abi::kernel::format::{EventFormat, PageShape};
use kmemtrace_abi::kernel::subbuffer::SubBuffer;
use kmemtrace_abi::target::{Endian, Little};
use kmemtrace_tests::archive;
use kmemtrace_tests::programs::{check, document, json, run, run_to, stderr};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::texts::{self, KERNELS, MadeText};
use serde_json::Value;

/// A captured tree, taken apart.
pub(crate) struct Tree {
    _dir: Directory,
    path: std::path::PathBuf,
    is_big: bool,
    header_page: Vec<u8>,
    formats: Vec<(String, Vec<Vec<u8>>)>,
    /// Sub-buffers and statistics of each CPU.
    cpus: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Tree {
    pub(crate) fn of(sample: &str) -> Tree {
        let dir = Directory::new(&[]);
        let path = archive::unpack(sample, dir.path()).unwrap();
        let mut formats = Vec::new();
        for system in fs::read_dir(path.join("events")).unwrap().map(|entry| entry.unwrap().path()) {
            if !system.is_dir() {
                continue;
            }
            let events = fs::read_dir(&system).unwrap().map(|event| event.unwrap().path().join("format"));
            let texts = events.filter_map(|format| fs::read(format).ok()).collect();
            formats.push((system.file_name().unwrap().to_string_lossy().into_owned(), texts));
        }
        let cpu = |n: usize| {
            let cpu = path.join(format!("per_cpu/cpu{n}"));
            Some((fs::read(cpu.join("trace_pipe_raw")).ok()?, fs::read(cpu.join("stats")).unwrap_or_default()))
        };
        Tree {
            is_big: sample.contains("s390x"),
            header_page: fs::read(path.join("events/header_page")).unwrap(),
            formats,
            cpus: (0..).map_while(cpu).collect(),
            path,
            _dir: dir,
        }
    }

    fn text(&self, name: &str) -> Vec<u8> {
        fs::read(self.path.join(name)).unwrap_or_default()
    }

    fn u16(&self, n: usize) -> Vec<u8> {
        self.number(n as u64, 2)
    }

    fn u32(&self, n: usize) -> Vec<u8> {
        self.number(n as u64, 4)
    }

    fn u64(&self, n: usize) -> Vec<u8> {
        self.number(n as u64, 8)
    }

    fn number(&self, n: u64, len: usize) -> Vec<u8> {
        if self.is_big { n.to_be_bytes()[8 - len..].to_vec() } else { n.to_le_bytes()[..len].to_vec() }
    }

    fn described(&self) -> Vec<u8> {
        let mut bytes = [b"header_page\0", &self.u64(self.header_page.len())[..], &self.header_page].concat();
        bytes.extend([b"header_event\0", &self.u64(1)[..], b"\n", &self.u32(0)].concat());
        bytes.extend(self.u32(self.formats.len()));
        for (system, texts) in &self.formats {
            bytes.extend([system.as_bytes(), b"\0", &self.u32(texts.len())].concat());
            texts.iter().for_each(|text| bytes.extend([&self.u64(text.len())[..], text].concat()));
        }
        bytes
    }

    fn head(&self, version: &str) -> Vec<u8> {
        let mut head = b"\x17\x08\x44tracing".to_vec();
        head.extend([version.as_bytes(), &[0, u8::from(self.is_big), 8]].concat());
        head.extend(self.u32(4096));
        head
    }

    fn option(&self, id: usize, data: &[u8]) -> Vec<u8> {
        [&self.u16(id)[..], &self.u32(data.len()), data].concat()
    }

    fn stats(&self) -> Vec<u8> {
        let stats = self.cpus.iter().enumerate();
        stats.flat_map(|(n, (_, text))| self.option(2, &[format!("CPU: {n}\n").as_bytes(), text].concat())).collect()
    }

    /// A `trace.dat` of version 6.
    pub(crate) fn version_6(&self) -> Vec<u8> {
        let (kallsyms, comms) = (self.text("kallsyms"), self.text("saved_cmdlines"));
        let mut file = [self.head("6"), self.described()].concat();
        file.extend([&self.u32(kallsyms.len())[..], &kallsyms, &self.u32(0), &self.u64(comms.len()), &comms].concat());
        file.extend([&self.u32(self.cpus.len())[..], b"options  \0"].concat());
        file.extend(
            [self.option(4, &self.text("trace_clock")), self.option(5, &self.text("uname")), self.stats()].concat(),
        );
        file.extend([&self.u16(0)[..], b"flyrecord\0"].concat());
        let clock = self.text("trace_clock");
        let table = file.len() + self.cpus.len() * 16 + 8 + clock.len();
        let mut at = table.next_multiple_of(65536);
        for (bytes, _) in &self.cpus {
            file.extend([self.u64(at), self.u64(bytes.len())].concat());
            at += bytes.len().next_multiple_of(65536);
        }
        file.extend([&self.u64(clock.len())[..], &clock].concat());
        for (bytes, _) in &self.cpus {
            file.resize(file.len().next_multiple_of(65536), 0);
            file.extend(bytes);
        }
        file
    }

    /// A `trace.dat` of version 7, with another buffer before the one that has the events.
    pub(crate) fn version_7(&self, compression: &str) -> Vec<u8> {
        let pack = |bytes: &[u8]| match compression {
            "zstd" => zstd::bulk::compress(bytes, 1).unwrap(),
            _ => bytes.to_vec(),
        };
        let packs = usize::from(compression != "none");
        let mut file = [&self.head("7")[..], compression.as_bytes(), b"\0\0"].concat();
        let first = file.len();
        file.extend(self.u64(0));
        let mut section = |id: usize, body: &[u8], packs: usize| {
            let at = file.len();
            let stored = match packs {
                0 => body.to_vec(),
                _ => [self.u32(pack(body).len()), self.u32(body.len()), pack(body)].concat(),
            };
            file.extend([self.u16(id), self.u16(packs), self.u32(0), self.u64(stored.len()), stored].concat());
            at
        };
        let described = self.described();
        let header = [b"header_page\0", &self.u64(self.header_page.len())[..], &self.header_page].concat();
        let header_len = header.len() + b"header_event\0".len() + 8 + 1;
        let comms = self.text("saved_cmdlines");
        let kallsyms = self.text("kallsyms");
        let places = [
            (16, section(16, &described[..header_len], packs)),
            (18, section(18, &described[header_len + 4..], packs)),
            (19, section(19, &[&self.u32(kallsyms.len())[..], &kallsyms].concat(), packs)),
            (21, section(21, &[&self.u64(comms.len())[..], &comms].concat(), packs)),
        ];
        let buffer = section(3, &[], 0);
        let mut parts = Vec::new();
        for (n, (bytes, _)) in self.cpus.iter().enumerate() {
            let at = section(99, &[], 0) + 16;
            let chunks: Vec<&[u8]> = bytes.chunks(3 * 4096).collect();
            let stored: Vec<u8> = match packs {
                0 => bytes.clone(),
                _ => {
                    let chunk =
                        |chunk: &&[u8]| [self.u32(pack(chunk).len()), self.u32(chunk.len()), pack(chunk)].concat();
                    [self.u32(chunks.len()), chunks.iter().flat_map(chunk).collect()].concat()
                }
            };
            let there = section(98, &stored, 0);
            assert_eq!(there, at);
            parts.extend([self.u32(n), self.u64(there + 16), self.u64(stored.len() - 4 * packs)].concat());
        }
        // A buffer's parts are compressed if its section has the flag.
        let buffer = if packs == 1 { section(3, b"", 1) } else { buffer };
        let size = self.header_page_size();
        let option = |buffer: usize, name: &str, parts: &[u8], cpus: usize| {
            let data = [
                self.u64(buffer),
                [name.as_bytes(), b"\0local\0"].concat(),
                self.u32(size),
                self.u32(cpus),
                parts.to_vec(),
            ];
            self.option(3, &data.concat())
        };
        let mut options: Vec<u8> = places.iter().flat_map(|&(id, at)| self.option(id, &self.u64(at))).collect();
        options.extend(
            [self.option(4, &self.text("trace_clock")), self.option(5, &self.text("uname")), self.stats()].concat(),
        );
        options.extend(option(buffer, "", &[], 0));
        options.extend(option(buffer, "kmem", &parts, self.cpus.len()));
        options.extend(self.option(0, &self.u64(0)));
        let at = section(0, &options, 0);
        file[first..first + 8].copy_from_slice(&self.u64(at));
        file
    }

    /// A `trace.dat` of a latency tracer, which has this text in place of sub-buffers.
    fn latency(&self, version: &str, compression: Option<&str>, text: &[u8]) -> Vec<u8> {
        let described = self.described();
        let comms = [&self.u64(0)[..]].concat();
        if version == "6" {
            let head = [self.head("6"), described, self.u32(0), self.u32(0), comms, self.u32(4)].concat();
            let options = [b"options  \0", &self.option(5, &self.text("uname"))[..], &self.u16(0)].concat();
            return [&head[..], &options, b"latency  \0", text].concat();
        }
        let name = compression.unwrap_or("none");
        let mut file = [&self.head("7")[..], name.as_bytes(), b"\0\0"].concat();
        let first = file.len();
        file.extend(self.u64(0));
        let mut section = |id: usize, stored: &[u8]| {
            let at = file.len();
            let is_packed = usize::from(id == 22 && compression.is_some());
            file.extend(
                [&self.u16(id)[..], &self.u16(is_packed), &self.u32(0), &self.u64(stored.len()), stored].concat(),
            );
            at
        };
        let header_len = 12 + 8 + self.header_page.len() + 13 + 8 + 1;
        let places = [(16, &described[..header_len]), (18, &described[header_len + 4..])];
        let mut options: Vec<u8> =
            places.iter().flat_map(|(id, body)| self.option(*id, &self.u64(section(*id, body)))).collect();
        let chunk = |chunk: &[u8]| {
            let packed = zstd::bulk::compress(chunk, 1).unwrap();
            [self.u32(packed.len()), self.u32(chunk.len()), packed].concat()
        };
        let chunks: Vec<&[u8]> = text.chunks(5000).collect();
        let stored = match compression {
            None => text.to_vec(),
            Some(_) => [self.u32(chunks.len()), chunks.into_iter().flat_map(chunk).collect()].concat(),
        };
        let buffer = [&self.u64(section(22, &stored))[..], b"\0[local] global\0"].concat();
        options.extend(
            [self.option(22, &buffer), self.option(5, &self.text("uname")), self.option(8, &self.u32(4))].concat(),
        );
        options.extend(self.option(0, &self.u64(0)));
        let at = section(0, &options);
        file[first..first + 8].copy_from_slice(&self.u64(at));
        file
    }

    /// Bytes of a sub-buffer.
    fn header_page_size(&self) -> usize {
        let text = String::from_utf8_lossy(&self.header_page).into_owned();
        let data = text.lines().find(|line| line.contains("char data")).unwrap();
        let number = |name: &str| -> usize {
            data.split(name).nth(1).unwrap().split(';').next().unwrap().trim().parse().unwrap()
        };
        number("offset:") + number("size:")
    }
}

/// Document without the members that a container does not have.
fn plain(mut document: Value) -> Value {
    let trace = document["trace"].as_object_mut().unwrap();
    for member in
        ["input", "recording", "boot", "host", "scope", "page_bytes_from", "page_bytes", "symbols", "deferred"]
    {
        trace.remove(member);
    }
    document
}

#[test]
fn a_trace_dat_has_the_figures_of_the_tree_with_its_sub_buffers() {
    for sample in ["tree-s390x-6.1", "tree-stacks-amd64-6.1", "tree-spaces-amd64-6.18", "tree-latency-amd64-6.1"] {
        let tree = Tree::of(sample);
        let dir = Directory::new(&[]);
        for (name, bytes) in [("6", tree.version_6()), ("7", tree.version_7("none")), ("7z", tree.version_7("zstd"))] {
            dir.write("trace.dat", &bytes);
            let file = dir.file("trace.dat");
            let views: &[&[&str]] = match sample {
                "tree-latency-amd64-6.1" => &[&["latency"], &["stalls"]],
                _ => &[&["summary"], &["sites"], &["live"], &["mismatch"], &["sites", "--by", "task"], &["cross"]],
            };
            for view in views {
                assert_eq!(
                    plain(document(view, &file)),
                    plain(document(view, &tree.path)),
                    "{sample}, version {name}: {view:?}"
                );
            }
        }
    }
}

#[test]
fn a_cut_trace_dat_is_read_up_to_the_cut_or_refused_in_one_sentence() {
    let tree = Tree::of("tree-s390x-6.1");
    let dir = Directory::new(&[]);
    let cut = |bytes: &[u8]| dir.write("trace.dat", bytes);
    let whole = tree.version_6();
    cut(&whole[..whole.len() - 5000]);
    let summary = document(&["summary"], &dir.file("trace.dat"));
    assert_eq!(summary["completeness"]["verdict"], "truncated");
    assert_eq!(check(&dir.file("trace.dat"))["files"][0]["verdict"], "truncated");
    assert!(summary["events"]["total"].as_u64().unwrap() > 10_000);
    let refused = |bytes: &[u8]| {
        cut(bytes);
        stderr(3, &run("kmemtrace-report", &["summary"], &[&dir.file("trace.dat")]))
    };
    assert!(refused(&whole[..5000]).contains("a trace.dat that ends before"));
    let newer = tree.version_7("none");
    assert!(refused(&newer[..newer.len() - 100]).contains("a trace.dat that ends before the options"));
    // Of one that trace-cmd has not finished the place of the options is not there.
    let mut unfinished = newer.clone();
    let head = unfinished.windows(6).position(|six| six == b"none\0\0").unwrap() + 6;
    unfinished[head..head + 8].fill(0);
    assert!(refused(&unfinished).contains("run: trace-cmd restore -o new.dat "));
    // Those of single CPUs have no head.
    for bytes in [&tree.cpus[0].0[..], b""] {
        dir.write("trace.dat.cpu0", bytes);
        for program in ["kmemtrace-report", "kmemtrace-check"] {
            let said = stderr(3, &run(program, &[], &[&dir.file("trace.dat.cpu0")]));
            assert!(
                said.contains("what trace-cmd has recorded of one CPU") && said.contains("trace-cmd restore"),
                "{said}"
            );
        }
    }
}

/// A latency tracer's file has the kernel's text, which has the figures of the text alone.
#[test]
fn the_text_of_a_latency_tracer_in_a_trace_dat_is_read() {
    let tree = Tree::of("tree-stacks-amd64-6.1");
    let dir = Directory::new(&[]);
    let MadeText { text: made, events: count, .. } = texts::made(KERNELS[11], 7, 500);
    // The header of a latency format tells the kernel; this one is without a number of CPUs.
    let percpu = "percpu_alloc_percpu: call_site=f+0x2/0x4 reserved=0 is_atomic=0 size=16 align=8 ptr=0000000047062bd3";
    let text = format!("{}            bash-8212    [001] .....     9.000001: {percpu}\n", made.replace("#P:3", ""));
    dir.write("text", text.as_bytes());
    let members = |document: Value| {
        let [events, kinds, pairs, findings, completeness] =
            ["events", "kinds", "pairs", "findings", "completeness"].map(|member| document[member].clone());
        (events, kinds, pairs, findings, completeness)
    };
    for (version, compression, clock) in
        [("6", None, None), ("7", None, Some("local")), ("7", Some("zstd"), Some("local"))]
    {
        let whole = tree.latency(version, compression, text.as_bytes());
        dir.write("trace.dat", &whole);
        let file = dir.file("trace.dat");
        let found = document(&["summary"], &file);
        let release = found["trace"]["kernel"].as_str().unwrap().to_owned();
        let options = ["summary", "--release", &release, "--clock", clock.unwrap_or("local")];
        let expected = document(&options, &dir.file("text"));
        let trace = &found["trace"];
        assert_eq!((&trace["input"], &trace["source"]), (&"trace.dat".into(), &"tracefs".into()), "{version}");
        assert_eq!((&trace["page_bytes_from"], trace["clock"].as_str()), (&"trace".into(), clock), "{version}");
        assert_eq!(trace["arch"], "x86_64");
        let (events, mut kinds, pairs, findings, completeness) = members(found);
        // The file tells how many CPUs there are, and the text does not.
        assert_eq!((&kinds["percpu"]["allocs"], &kinds["percpu"]["requested"]), (&1.into(), &64.into()), "{version}");
        let of_text = members(expected);
        assert!(of_text.1["percpu"]["requested"].is_null());
        kinds["percpu"] = of_text.1["percpu"].clone();
        assert_eq!((events, kinds, pairs, findings, completeness), of_text, "{version}");
        let refused =
            stderr(2, &run("kmemtrace-report", &["export", "--to", "trace-dat", "-o", "/dev/null"], &[&file]));
        assert!(refused.contains("has no sub-buffers of the kernel"), "{refused}");
        assert_eq!(check(&file)["files"][0]["events"], count + 1, "{version}");
        let cut = if version == "6" { 20 } else { 3000 };
        dir.write("trace.dat", &whole[..whole.len() - cut]);
        let cut = run("kmemtrace-report", &["summary", "--format", "json"], &[&file]);
        match version {
            "6" => assert_eq!(json(&cut.stdout)["completeness"]["verdict"], "truncated"),
            _ => assert_eq!(cut.status.code(), Some(3)),
        }
    }
    dir.write("trace.dat", &tree.latency("6", None, b"no event\n"));
    let refused = stderr(3, &run("kmemtrace-report", &["summary"], &[&dir.file("trace.dat")]));
    assert!(refused.contains("the text of a latency tracer"), "{refused}");
}

#[test]
fn no_byte_of_a_trace_dat_makes_a_report_fail() {
    let tree = Tree::of("tree-spaces-amd64-6.18");
    let dir = Directory::new(&[]);
    for whole in [tree.version_6(), tree.version_7("zstd")] {
        for n in 0..150 {
            let mut bytes = whole.clone();
            // Heads, tables and options: the rest are texts and sub-buffers.
            let at = if n % 3 == 0 { n } else { bytes.len() - 1 - (n * 7) % bytes.len().min(4000) };
            bytes[at] ^= 1 << (n % 8);
            dir.write("trace.dat", &bytes);
            let status = run("kmemtrace-report", &["summary"], &[&dir.file("trace.dat")]).status.code();
            assert!(matches!(status, Some(0 | 2 | 3)), "byte {at}: {status:?}");
        }
    }
}

#[test]
fn one_of_several_buffers_is_asked_for() {
    let dir = Directory::new(&[]);
    let tree = Tree::of("tree-s390x-6.1");
    dir.write("trace.dat", &tree.version_7("none"));
    let file = dir.file("trace.dat");
    run_to(0, "kmemtrace-report", &["summary", "--buffer", "kmem"], &[&file]);
    let message = stderr(2, &run("kmemtrace-report", &["summary", "--buffer", "other"], &[&file]));
    assert!(message.contains("has no buffer 'other'; it has '' (no events), 'kmem' ("), "{message}");
}

/// Address of the kernel's image in made files.
const KERNEL_AT: u64 = 0xffff_ffff_8000_0000;

/// Records of a tree as samples, in the order of their CPUs.
fn perf_data(tree: &Tree) -> Vec<u8> {
    const SAMPLE_TYPE: usize = 1 << 16 | 1 << 2 | 1 << 7 | 1 << 10;
    let shape = PageShape::parse(&String::from_utf8_lossy(&tree.header_page), Endian::Little).unwrap();
    let texts = tree.formats.iter().flat_map(|(_, texts)| texts);
    let ids: Vec<u16> = texts.map(|text| EventFormat::parse(&String::from_utf8_lossy(text)).unwrap().id).collect();
    let mut data = Vec::new();
    let record =
        |kind: usize, body: &[u8]| [&tree.u32(kind)[..], &tree.u16(0), &tree.u16(8 + body.len()), body].concat();
    // The map of the kernel's image tells where it begins.
    let map = [&tree.u64(usize::MAX)[..], &tree.u64(0), &tree.u64(0), &tree.u64(KERNEL_AT as usize)].concat();
    data.extend(record(1, &[&map[..], b"[kernel.kallsyms]_text\0\0"].concat()));
    for (cpu, (pages, _)) in tree.cpus.iter().enumerate() {
        for page in pages.chunks(shape.size) {
            let sub_buffer = SubBuffer::parse::<Little>(&shape, page).unwrap();
            for entry in sub_buffer.records::<Little>().map(Result::unwrap) {
                let id = usize::from(u16::from_le_bytes([entry.payload[0], entry.payload[1]]));
                let raw = [&tree.u32(entry.payload.len())[..], entry.payload].concat();
                let mut body = [tree.u64(id), tree.u64(entry.time as usize), tree.u32(cpu), tree.u32(0), raw].concat();
                body.resize(body.len().next_multiple_of(8), 0);
                data.extend(record(9, &body));
            }
        }
        data.extend(record(68, &[]));
    }
    let attr = |id: u16| {
        let mut attr = [tree.u32(2), tree.u32(128), tree.u64(id.into()), tree.u64(1), tree.u64(SAMPLE_TYPE)].concat();
        // sample_id_all and use_clockid, CLOCK_MONOTONIC.
        attr.extend([tree.u64(0), tree.u64(1 << 18 | 1 << 25)].concat());
        attr.resize(92, 0);
        attr.extend(tree.u32(1));
        attr.resize(128, 0);
        attr
    };
    let attrs_at = 104 + 8 * ids.len();
    let data_at = attrs_at + 144 * ids.len();
    let mut file = [b"PERFILE2", &tree.u64(104)[..], &tree.u64(144)].concat();
    file.extend([attrs_at, 144 * ids.len(), data_at, data.len(), 0, 0].map(|n| tree.u64(n)).concat());
    // Tracing data, release, architecture and number of CPUs.
    file.extend([1 << 1 | 1 << 4 | 1 << 6 | 1 << 7, 0, 0, 0].map(|n| tree.u64(n)).concat());
    ids.iter().for_each(|&id| file.extend(tree.u64(id.into())));
    ids.iter().enumerate().for_each(|(n, &id)| file.extend([attr(id), tree.u64(104 + 8 * n), tree.u64(8)].concat()));
    file.extend(&data);
    let uname = String::from_utf8_lossy(&tree.text("uname")).into_owned();
    let string = |text: &str| [&tree.u32(64)[..], text.as_bytes(), &vec![0; 64 - text.len()]].concat();
    let features = [
        [tree.head("0.6"), tree.described(), tree.u32(0), tree.u32(0), tree.u64(0)].concat(),
        string(uname.split(' ').nth(2).unwrap()),
        string("x86_64"),
        [tree.u32(tree.cpus.len()), tree.u32(tree.cpus.len())].concat(),
    ];
    let mut at = file.len() + 16 * features.len();
    for feature in &features {
        file.extend([tree.u64(at), tree.u64(feature.len())].concat());
        at += feature.len();
    }
    [file, features.concat()].concat()
}

#[test]
fn a_perf_data_has_the_figures_of_the_records_that_its_samples_hold() {
    let tree = Tree::of("tree-spaces-amd64-6.18");
    let dir = Directory::new(&[]);
    let whole = perf_data(&tree);
    dir.write("perf.data", &whole);
    let kinds = |document: Value| {
        let mut kinds = document["kinds"].clone();
        // Areas get their call site from stacks, which are records of their own in a tree.
        kinds.as_object_mut().unwrap().remove("vmalloc");
        (kinds, document["total"].clone(), document["findings"].clone())
    };
    let [found, expected] = [dir.file("perf.data"), tree.path.clone()].map(|path| document(&["summary"], &path));
    assert_eq!(found["completeness"]["verdict"], "complete");
    assert_eq!((&found["trace"]["input"], &found["trace"]["clock"]), (&"perf.data".into(), &"mono".into()));
    assert_eq!(kinds(found), kinds(expected));
    // The head and the attributes; then the file's end, where the features are.
    for n in 0..200 {
        let mut bytes = whole.clone();
        let at = if n % 2 == 0 { n * 5 % 2000 } else { bytes.len() - 1 - n * 37 % 3000 };
        bytes[at] ^= 1 << (n % 8);
        dir.write("perf.data", &bytes);
        let status = run("kmemtrace-report", &["summary"], &[&dir.file("perf.data")]).status.code();
        assert!(matches!(status, Some(0 | 2 | 3)), "byte {at}: {status:?}");
    }
    let refused = |bytes: &[u8]| {
        dir.write("perf.data", bytes);
        stderr(3, &run("kmemtrace-report", &["summary"], &[&dir.file("perf.data")]))
    };
    assert!(refused(&whole[..whole.len() / 2]).contains("a perf.data that is cut: it lacks the formats"));
    // Without the number of CPUs the bytes of per-CPU memory are not known.
    let mut without = whole.clone();
    without[72] &= !(1 << 7);
    dir.write("perf.data", &without);
    let percpu = document(&["summary"], &dir.file("perf.data"))["kinds"]["percpu"].clone();
    assert_eq!((&percpu["allocs"], &percpu["requested"]), (&156.into(), &Value::Null));
    let mut one_of_several = whole.clone();
    // The feature of a directory has an empty section, behind those of the file.
    one_of_several[72 + 3] |= 1;
    assert!(refused(&one_of_several).contains("record without --threads"));
}

/// `perf record --overwrite` keeps what the kernel has not overwritten, and says nothing of the rest.
#[test]
fn a_perf_data_of_the_newest_events_alone_is_lossy() {
    let tree = Tree::of("tree-spaces-amd64-6.18");
    let dir = Directory::new(&[]);
    let mut file = perf_data(&tree);
    let word = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let (attrs_at, attrs_len) = (word(&file, 24), word(&file, 32));
    // Bit 27 of the flags: write_backward.
    (attrs_at..attrs_at + attrs_len).step_by(144).for_each(|at| file[at + 40 + 3] |= 1 << 3);
    dir.write("perf.data", &file);
    let summary = document(&["summary"], &dir.file("perf.data"));
    let completeness = &summary["completeness"];
    assert_eq!((&completeness["verdict"], &completeness["lost_events"]), (&"lossy".into(), &Value::Null));
    let cpus_with_events = tree.cpus.iter().filter(|(pages, _)| !pages.is_empty()).count();
    assert_eq!(completeness["gaps"], cpus_with_events, "one before the first event of each CPU");
    let told = check(&dir.file("perf.data"));
    assert!(told["files"][0]["findings"].to_string().contains("without --overwrite"), "{told}");
}

/// The file with its records in compressed ones of `piece` bytes, as perf writes them from Linux 6.16 on: the length of a record has 16 bits,
/// which overflow, and more than 65,519 bytes of data are several records, of which the first counts the bytes of all.
fn compressed(whole: &[u8], piece: usize) -> Vec<u8> {
    const HEADER: usize = 16;
    let number = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
    let (at, len) = (number(40), number(48));
    let header = |size: usize, data: usize| {
        [&83u32.to_le_bytes()[..], &[0, 0], &(size as u16).to_le_bytes(), &(data as u64).to_le_bytes()].concat()
    };
    let mut data = Vec::new();
    // Frames of zstd whose one block is stored as it is, so that their length is known.
    for part in whole[at..at + len].chunks(piece - 12) {
        let block = ((part.len() << 3 | 1) as u32).to_le_bytes();
        let frame = [b"\x28\xb5\x2f\xfd\xa0", &(part.len() as u32).to_le_bytes()[..], &block[..3], part].concat();
        let mut records = Vec::new();
        for (n, bytes) in frame.chunks(65_519).enumerate() {
            records.extend(if n == 0 { vec![0; HEADER] } else { header(HEADER + bytes.len(), 0) });
            records.extend(bytes);
        }
        let padded = records.len().next_multiple_of(8);
        let first = header(padded & 0xffff, records.len() - HEADER);
        records[..HEADER].copy_from_slice(&first);
        if padded <= 0xffff {
            records.resize(padded, 0);
        }
        data.extend(records);
    }
    let mut file = [&whole[..at], &data, &whole[at + len..]].concat();
    file[48..56].copy_from_slice(&(data.len() as u64).to_le_bytes());
    let table = at + data.len();
    for entry in (table..).step_by(16).take(4) {
        let moved = u64::from_le_bytes(file[entry..entry + 8].try_into().unwrap()) + (data.len() - len) as u64;
        file[entry..entry + 8].copy_from_slice(&moved.to_le_bytes());
    }
    file
}

#[test]
fn compressed_records_whose_length_overflows_are_read() {
    let tree = Tree::of("tree-spaces-amd64-6.18");
    let dir = Directory::new(&[]);
    let whole = perf_data(&tree);
    dir.write("perf.data", &whole);
    let figures = || {
        let summary = document(&["summary"], &dir.file("perf.data"));
        ["completeness", "events", "kinds", "pairs"].map(|member| summary[member].clone())
    };
    let expected = figures();
    for piece in [5000, 65_504, 65_513, 65_519, 66_000] {
        dir.write("perf.data", &compressed(&whole, piece));
        assert_eq!(figures(), expected, "{piece}");
    }
}

/// What makes no sense and is passed over would leave a trace that is empty and complete.
#[test]
fn a_damaged_perf_data_is_no_empty_one() {
    let tree = Tree::of("tree-spaces-amd64-6.18");
    let dir = Directory::new(&[]);
    let whole = perf_data(&tree);
    let path = dir.file("perf.data");
    // Bytes of an entry in the table of events, and bytes of that table.
    for (at, number) in [(16, 0), (16, 1), (16, 79), (16, 145), (16, 4097), (32, 1 << 50), (32, u64::MAX), (32, 143)] {
        let mut bytes = whole.clone();
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        dir.write("perf.data", &bytes);
        for (name, view) in [("kmemtrace-report", &["summary"][..]), ("kmemtrace-check", &[])] {
            let told = stderr(3, &run(name, view, &[&path]));
            assert!(told.contains("the table of its events"), "{at} {number}: {told}");
        }
    }
    // Compressed records in compressed ones.
    dir.write("perf.data", &compressed(&compressed(&whole, 5000), 5000));
    assert_eq!(document(&["summary"], &path)["completeness"]["verdict"], "corrupt");
    run_to(3, "kmemtrace-check", &[], &[&path]);
    // Samples that end before their time.
    let number =
        |at: usize, len: usize| whole[at..at + len].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    // The first record is a map.
    let sample = number(40, 8) + number(number(40, 8) + 6, 2);
    let rest = number(sample + 6, 2) as u16 - 16;
    let mut short = whole.clone();
    short[sample + 6..sample + 8].copy_from_slice(&16u16.to_le_bytes());
    short[sample + 16..sample + 24]
        .copy_from_slice(&[&250u32.to_le_bytes()[..], &[0; 2], &rest.to_le_bytes()].concat());
    dir.write("perf.data", &short);
    assert_eq!(document(&["summary"], &path)["completeness"]["verdict"], "corrupt");
}

/// Events that two CPUs share would count twice.
#[test]
fn cpus_that_share_their_data_are_refused() {
    let tree = Tree::of("tree-spaces-amd64-6.18");
    let dir = Directory::new(&[]);
    let mut file = tree.version_6();
    let mark = b"flyrecord\0";
    let table = file.windows(mark.len()).position(|bytes| bytes == mark).unwrap() + mark.len();
    file.copy_within(table..table + 16, table + 16);
    dir.write("trace.dat", &file);
    for (name, view) in [("kmemtrace-report", &["summary"][..]), ("kmemtrace-check", &[])] {
        let told = stderr(3, &run(name, view, &[&dir.file("trace.dat")]));
        assert!(told.contains("the table of CPUs, two of which have the same data, makes no sense"), "{told}");
    }
}

/// The file of a perf that was killed: no length, no features, and the last record is cut.
fn killed(whole: &[u8]) -> Vec<u8> {
    let number = |at: usize| u64::from_le_bytes(whole[at..at + 8].try_into().unwrap()) as usize;
    let mut file = whole[..number(40) + number(48) - 20].to_vec();
    file[48..56].fill(0);
    file[72..104].fill(0);
    file
}

/// Any trace of the same boot has the formats that a killed perf did not write.
#[test]
fn a_perf_data_that_was_not_finished_takes_the_formats_of_another_trace() {
    let tree = Tree::of("tree-spaces-amd64-6.18");
    let dir = Directory::new(&[]);
    let whole = perf_data(&tree);
    for (name, bytes) in [
        ("perf.data", killed(&whole)),
        ("whole.data", whole.clone()),
        ("6.dat", tree.version_6()),
        ("7.dat", tree.version_7("zstd")),
        ("cut.data", whole[..whole.len() / 2].to_vec()),
    ] {
        dir.write(name, &bytes);
    }
    let file = dir.file("perf.data");
    let message = stderr(3, &run("kmemtrace-report", &["summary"], &[&file]));
    assert!(message.contains("has not finished") && message.contains("--event-formats"), "{message}");
    let whole = document(&["summary"], &dir.file("whole.data"));
    let sources =
        [dir.file("whole.data"), dir.file("6.dat"), dir.file("7.dat"), tree.path.clone(), tree.path.join("events")];
    for source in &sources {
        let option = ["summary", "--event-formats", source.to_str().unwrap()];
        let found = document(&option, &file);
        assert_eq!(found["completeness"]["verdict"], "truncated", "{source:?}");
        let events = |document: &Value| document["events"]["total"].as_u64().unwrap();
        assert_eq!(events(&found), events(&whole) - 1, "{source:?}");
        assert_eq!(found["kinds"]["pages"]["allocated"], whole["kinds"]["pages"]["allocated"], "{source:?}");
        assert_eq!(found["trace"]["page_bytes_from"], "trace", "{source:?}");
        assert_eq!(found["trace"]["kernel"], whole["trace"]["kernel"], "{source:?}");
        let checked = run("kmemtrace-check", &["--format", "json", option[1], option[2]], &[&file]);
        assert_eq!(checked.status.code(), Some(1), "{source:?}");
    }
    let formats = tree.path.display().to_string();
    let cut = document(&["summary", "--event-formats", &formats], &dir.file("cut.data"));
    assert_eq!(cut["completeness"]["verdict"], "truncated");
    assert!(
        cut["completeness"]["gaps"].as_u64() > Some(0),
        "what is behind the cut is missing: {}",
        cut["completeness"]
    );
    let refused = |arguments: &[&str], path: &std::path::Path| stderr(2, &run("kmemtrace-report", arguments, &[path]));
    let with = |source: &str| refused(&["summary", "--event-formats", source], &file);
    let other = Tree::of("tree-stacks-amd64-6.1");
    assert!(with(other.path.to_str().unwrap()).contains("is of another boot or lacks the event"));
    for (path, says) in [
        (dir.file("whole.data"), "leave out --event-formats"),
        (tree.path.clone(), "is no perf.data, and describes its events itself; leave the option out"),
    ] {
        let message = refused(&["summary", "--event-formats", &formats], &path);
        assert!(message.contains(says), "{message}");
    }
    let buffer = refused(&["summary", "--buffer", "x"], &dir.file("whole.data"));
    assert!(buffer.contains("has no ring buffers to choose from"), "{buffer}");
    let nothing =
        stderr(3, &run("kmemtrace-report", &["summary", "--event-formats", dir.path().to_str().unwrap()], &[&file]));
    assert!(nothing.contains("has no formats of events"), "{nothing}");
}

/// A System.map is moved to where the record of the kernel's map says that the image begins.
#[test]
fn the_map_of_the_kernel_places_the_symbols_of_another_boot() {
    let tree = Tree::of("tree-spaces-amd64-6.18");
    let dir = Directory::new(&[]);
    dir.write("perf.data", &perf_data(&tree));
    let file = dir.file("perf.data");
    let sites = document(&["sites", "--kind", "percpu,pages"], &file);
    let rows = sites["rows"].as_array().unwrap().iter();
    let site = rows.filter_map(|row| row["call_site"].as_str()).find(|site| site.starts_with("0xffffffff")).unwrap();
    let site = u64::from_str_radix(&site[2..], 16).unwrap();
    let linked_at = 0xffff_ffff_8100_0000u64;
    let function = site - 0x10 - KERNEL_AT + linked_at;
    dir.write(
        "System.map",
        format!("{linked_at:x} T _text\n{function:x} t here\n{:x} t there\n", function + 0x20).as_bytes(),
    );
    let map = dir.file("System.map").display().to_string();
    let named = document(&["sites", "--kind", "percpu,pages", "--kallsyms", &map], &file);
    let mut rows = named["rows"].as_array().unwrap().iter();
    assert!(rows.any(|row| row["symbol"] == "here+0x10"), "{named}");
    // A copy of the list with modules is of one boot, and says which.
    dir.write("kallsyms", format!("{linked_at:x} T _text\nffffffffc0000000 t x\t[mod]\n").as_bytes());
    let list = dir.file("kallsyms").display().to_string();
    let message = stderr(2, &run("kmemtrace-report", &["sites", "--kallsyms", &list], &[&file]));
    assert!(message.contains("is of another boot: its _text is at 0xffffffff81000000"), "{message}");
}

/// The events inside a stall have all of their fields, as those of a `trace.dat` have.
#[test]
fn events_of_a_perf_data_have_their_fields() {
    let tree = Tree::of("tree-latency-amd64-6.1");
    let dir = Directory::new(&[]);
    dir.write("perf.data", &perf_data(&tree));
    dir.write("trace.dat", &tree.version_6());
    let events = |name: &str| {
        let stalls = document(&["stalls", "--sort", "time", "--timeline"], &dir.file(name));
        let rows = stalls["rows"].as_array().unwrap().clone();
        let events = rows.iter().flat_map(|row| row["events"].as_array().unwrap().clone());
        // A sample has its stack itself, so a record of one names no event.
        events.filter(|event| event["event"] != "kernel_stack").collect::<Vec<Value>>()
    };
    let (found, expected) = (events("perf.data"), events("trace.dat"));
    assert!(expected.len() > 100 && expected[0].as_object().unwrap().len() > 4, "{}", expected.len());
    assert_eq!(found, expected);
}
