//! What the programs wrote and read back, and what a user types: saved documents, the index beside a trace, filters and times.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use kmemtrace::documents::saved::is_document;
use kmemtrace::{
    Branch, Figure, Glob, Moment, NameOptions, Query, Shape, Site, SizeRange, SortKey, TimeWindow, documents,
    parse_kind, parse_size,
};
use kmemtrace_abi::disk::block::crc32c;
use kmemtrace_abi::text::escape::{escape, escape_csv, escape_json};
use kmemtrace_abi::text::{duration, memstrack, size};
use kmemtrace_abi::trace::Trace;

use crate::fuzz::recordings::{Files, bases};
use crate::fuzz::target::{MAX_BYTES, Target, choice, with_choice};
use crate::fuzz::{mutate, read};
use crate::programs::json;
use crate::recording::Directory;

/// Target of `sites` documents that are read in place of a trace.
pub const SAVED: Target =
    Target { name: "saved", run: run_saved, seeds: saved_documents, mutate: mutate::text, executions: 200 };
/// Target of the index beside a trace, behind the part that tells of which files it is.
pub const INDEX: Target =
    Target { name: "index", run: run_index, seeds: indices, mutate: mutate::bytes, executions: 100 };
/// Target of filters, times, sizes and patterns.
pub const EXPRESSIONS: Target = Target {
    name: "expressions",
    run: run_expression,
    seeds: expressions,
    mutate: mutate::chosen_text,
    executions: 1000,
};

fn shape() -> Shape {
    Shape { sort: vec![SortKey::Figure(Figure::Wasted)], top: Some(20) }
}

/// Documents of generated recordings.
fn saved_documents() -> Vec<Vec<u8>> {
    let document = |files: &Files| {
        let dir = Directory::new(files);
        let trace = Trace::open(&[dir.path().to_owned()]).unwrap();
        let document = read::answer(Query::by_site(), documents::sites, &shape(), trace, 1).unwrap();
        // A member a line: changes of a text are changes of its lines.
        serde_json::to_vec_pretty(&json(document.as_bytes())).unwrap()
    };
    bases().iter().map(document).collect()
}

fn run_saved(input: &[u8]) {
    let dir = Directory::new(&[("saved.json".to_owned(), input.to_vec())]);
    let path = dir.file("saved.json");
    let _ = is_document(&path);
    match Query::by_site().names(NameOptions::default()).of_document(&path) {
        Ok(analysis) => {
            let sites = serde_json::to_string(&documents::sites(&analysis, &shape())).expect("it serialises");
            // What was read once and written is read again as the same.
            dir.write("again.json", sites.as_bytes());
            let again = Query::by_site().of_document(&dir.file("again.json"));
            assert!(again.is_ok(), "a document of a document is read: {:?}", again.err());
            if let Ok(document) = documents::compare(&analysis, &analysis, &shape()) {
                assert!(serde_json::to_string(&document).is_ok());
            }
        }
        Err(error) => read::sentence(&error.to_string()),
    }
}

/// A recording with an index, and the bytes of the index that tell of which files it is.
struct Indexed {
    dir: Directory,
    head: Vec<u8>,
    rest: Vec<u8>,
}

/// Magic and checksum at the start of an index, in bytes.
const UNCHECKED: usize = 12;
/// Files change before an index is written by more than a tick of their clock.
const TICK: Duration = Duration::from_millis(60);

fn indexed() -> &'static Mutex<Indexed> {
    static INDEXED: OnceLock<Mutex<Indexed>> = OnceLock::new();
    INDEXED.get_or_init(|| {
        let dir = Directory::new(&bases()[1]);
        sleep(TICK);
        let query = Query::by_site().with_live_objects(true).index(0);
        query.run(&mut Trace::open(&[dir.path().to_owned()]).unwrap()).unwrap();
        let bytes = fs::read(dir.file("report.index")).unwrap_or_default();
        let end = identity_end(&bytes).unwrap_or(bytes.len());
        Mutex::new(Indexed { head: bytes[..end].to_vec(), rest: bytes[end..].to_vec(), dir })
    })
}

/// End of the version and of the identity of the files: numbers of variable length, strings with theirs (postcard).
fn identity_end(bytes: &[u8]) -> Option<usize> {
    let mut at = UNCHECKED;
    let mut number = |bytes: &[u8], skipped: usize| -> Option<usize> {
        at += skipped;
        let (mut value, mut shift) = (0u128, 0);
        loop {
            let byte = *bytes.get(at)?;
            at += 1;
            value |= u128::from(byte & 0x7f) << shift.min(120);
            shift += 7;
            if byte & 0x80 == 0 {
                return usize::try_from(value).ok().or(Some(0));
            }
        }
    };
    number(bytes, 0)?;
    let version = number(bytes, 0)?;
    let files = number(bytes, version + 16)?;
    for _ in 0..files {
        let mut skipped = number(bytes, 0)?;
        for _ in 0..5 {
            number(bytes, std::mem::take(&mut skipped))?;
        }
    }
    Some(at)
}

fn indices() -> Vec<Vec<u8>> {
    vec![indexed().lock().unwrap_or_else(PoisonError::into_inner).rest.clone()]
}

fn run_index(input: &[u8]) {
    let indexed = indexed().lock().unwrap_or_else(PoisonError::into_inner);
    let mut bytes = [&indexed.head[..], input].concat();
    let Some(checked) = bytes.get(UNCHECKED..).map(crc32c) else { return };
    bytes[UNCHECKED - 4..UNCHECKED].copy_from_slice(&checked.to_le_bytes());
    let path = indexed.dir.file("report.index");
    fs::write(&path, &bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let window = (read::sum(input).is_multiple_of(3)).then(|| "10%,90%".parse().unwrap());
    let query = match read::sum(input) % 4 {
        0 => Query::by_site().with_live_objects(true),
        1 => Query::by_kind(),
        _ => Query::by_site(),
    };
    let mut trace = Trace::open(&[indexed.dir.path().to_owned()]).unwrap();
    match query.index(0).time(window).run(&mut trace) {
        Ok(analysis) => {
            let document = serde_json::to_string(&documents::sites(&analysis, &shape()));
            assert!(document.is_ok(), "every document serialises");
        }
        Err(error) => read::sentence(&error.to_string()),
    }
}

fn expressions() -> Vec<Vec<u8>> {
    let texts = [
        "10%,90%",
        "+1.5s,-2s",
        "12.5,",
        ",99999999999999999999.999999999",
        "peak",
        "foo_open+0x3c [foo]",
        "0xffffffff81000100",
        "foo_*",
        "1K..4K",
        "1.5M..",
        "..64",
        "fs/ext4/",
        "kmalloc",
        "module_summary,task_top:top=5:throttle=10",
        "128M",
        "64KiB",
        "*a?b*c",
        "\u{202e}\x1b]52;c;x\x07",
    ];
    (0..).zip(texts).map(|(number, text)| with_choice(number, text.as_bytes())).collect()
}

fn run_expression(input: &[u8]) {
    let (_, bytes) = choice(input);
    // Longer than any command line has them.
    let bytes = &bytes[..bytes.len().min(4096)];
    let text = String::from_utf8_lossy(bytes);
    fn told<T>(parsed: Result<T, String>) {
        if let Err(why) = parsed {
            read::sentence(&why);
        }
    }
    told(text.parse::<TimeWindow>());
    told(text.parse::<Moment>());
    told(text.parse::<SizeRange>());
    told(text.parse::<Branch>());
    told(parse_kind(&text));
    told(size::parse_page(&text));
    if text.len() < 200 {
        text.split(',').for_each(|report| drop(memstrack::Report::parse(report)));
    }
    let _ = (parse_size(&text), size::parse(&text), size::parse_large(&text));
    let _ = (duration::parse(&text), duration::parse_exact(&text), duration::billionths(&text));
    if let Ok(site) = text.parse::<Site>() {
        // Leading zeros of a number are not kept, nor are characters that are none.
        assert!(site.to_string().parse::<Site>().is_ok(), "{site}");
    }
    let (pattern, name) = text.split_at(text.char_indices().nth(6).map_or(text.len(), |(at, _)| at));
    let name: String = name.chars().take(16).collect();
    let glob: Glob = pattern.parse().unwrap();
    assert_eq!(glob.matches(name.as_bytes()), matches(pattern, &name), "{pattern:?} {name:?}");
    for escaped in [escape(bytes), escape_csv(bytes), escape_json(&text).replace('\n', "").into()] {
        assert!(!escaped.chars().any(char::is_control), "{escaped:?}");
        assert!(escaped.len() < MAX_BYTES * 16);
    }
}

/// True where a name matches a pattern, by the definition.
fn matches(pattern: &str, name: &str) -> bool {
    let mut left = pattern.chars();
    match left.next() {
        None => name.is_empty(),
        Some('*') => {
            name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| matches(left.as_str(), &name[at..]))
        }
        Some(first) => {
            let mut rest = name.chars();
            rest.next().is_some_and(|other| (first == '?' || first == other) && matches(left.as_str(), rest.as_str()))
        }
    }
}
