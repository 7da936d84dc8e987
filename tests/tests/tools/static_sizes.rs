//! `static` and `names`: bytes of functions and objects are those of `readelf` and `size`, whatever a tree is like.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kmemtrace_tests::generate::Random;
use kmemtrace_tests::guest;
use kmemtrace_tests::programs::{document, json, json_lines, run, run_to, run_within};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;
use serde_json::Value;

const REPORT: &str = "kmemtrace-report";
/// Members of a node that have bytes.
const BYTES: [&str; 10] =
    ["static", "text", "rodata", "data", "bss", "init", "init_text", "init_rodata", "init_data", "init_bss"];

kmemtrace_tests::tests![
    a_built_tree_has_the_bytes_of_its_objects,
    parts_are_those_of_the_sections,
    loops_and_unreadable_objects_are_told,
    names_of_files_are_data,
    a_linked_kernel_has_the_bytes_of_its_symbols,
    formats_have_the_same_bytes,
    a_branch_has_its_own_bytes,
    damaged_kernels_end_nothing,
    a_map_names_the_files_of_functions,
    what_is_no_kernel_is_refused,
    a_small_kernel_has_the_bytes_of_readelf,
];

/// Sources of a made-up kernel.
const SOURCES: [(&str, &str); 9] = [
    ("Makefile", ""),
    (
        "fs/inode.c",
        "int table[100]; static int zeros[50]; const char letters[7] = \"abcdef\"; int counter = 1;
         __attribute__((section(\".init.text\"))) int begin(void) { return 1; }
         __attribute__((section(\".init.data\"))) int at_start = 3;
         int used(int n) { zeros[n] = n; return table[0] + zeros[1] + counter; }
         int other_name(int n) __attribute__((alias(\"used\")));
         static __attribute__((noinline)) int helper(int n) { return n * 3; }
         int _start(int n) { return helper(n) + begin(); }",
    ),
    ("fs/ext/super.c", "int fill_super(int *a) { return a[1]; } static int helper(int n) { return n - 1; } int (*p)(int) = helper;"),
    ("fs/ext/dir.c", "int common_one[30]; int read_dir(int a) { return a + common_one[2]; }"),
    (
        "arch/x86/entry.S",
        ".text\n.globl enter\n.type enter,@function\nenter: nop\n nop\n ret\n.size enter, .-enter\n
         .data\n.globl blob\n.type blob,@object\nblob: .long 1, 2, 3\n.size blob, .-blob\n.section .note.GNU-stack,\"\",@progbits\n",
    ),
    ("arch/x86/tools/relocs.c", "int of_the_build(void) { return 1; }"),
    ("scripts/host.c", "int of_the_build(void) { return 2; }"),
    ("tools/perf.c", "int of_the_build(void) { return 3; }"),
    ("lib/quiet.c", "static __attribute__((noinline,used)) int quiet(int n) { return n ^ 7; } int loud(int n) { return quiet(n); }"),
];

/// Runs a tool in a folder; skips where it is missing.
fn tool(folder: &Path, words: &[&str]) -> Result<String, Skip> {
    let mut command = Command::new(words[0]);
    let output = command.args(&words[1..]).current_dir(folder).env("LC_ALL", "C").output();
    let output = output.map_err(|error| Skip(format!("{} cannot be run: {error}", words[0])))?;
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Built kernel: its sources, and its objects in the same folder or in one of their own.
struct Built {
    dir: Directory,
    objects: PathBuf,
}

impl Built {
    /// Compiles all sources; those of `out` come into a folder of their own.
    fn new(out: Option<&str>) -> Result<Built, Skip> {
        let files = SOURCES.map(|(name, text)| (format!("src/{name}"), text.as_bytes().to_vec()));
        let dir = Directory::new(&files);
        let sources = dir.file("src");
        let objects = out.map_or(sources.clone(), |out| dir.file(out));
        for (name, _) in &SOURCES[1..] {
            let object = objects.join(name).with_extension("o");
            fs::create_dir_all(object.parent().unwrap()).unwrap();
            let debug = if *name == "lib/quiet.c" { "-g0" } else { "-g" };
            let common = if *name == "fs/ext/dir.c" { "-fcommon" } else { "-fno-common" };
            let object = object.to_str().unwrap();
            tool(
                &sources,
                &["gcc", "-O1", debug, common, "-fno-pic", "-fcf-protection=none", "-c", name, "-o", object],
            )?;
        }
        // A linked module, an archive, and the whole kernel in one object: none has a source.
        tool(&objects, &["ld", "-r", "-o", "fs/ext/ext.o", "fs/ext/super.o", "fs/ext/dir.o"])?;
        tool(&objects, &["ar", "rcT", "fs/built-in.a", "fs/inode.o"])?;
        tool(&objects, &["ld", "-r", "-o", "vmlinux.o", "fs/inode.o", "fs/ext/ext.o"])?;
        Ok(Built { dir, objects })
    }

    /// Objects that count, by their sources.
    fn counted(&self) -> BTreeMap<String, PathBuf> {
        let sources = SOURCES[1..].iter().filter(|(name, _)| !name.contains("tools/") && !name.contains("scripts/"));
        sources.map(|(name, _)| ((*name).to_owned(), self.objects.join(name).with_extension("o"))).collect()
    }

    /// Kernel linked of the objects.
    fn vmlinux(&self) -> Result<PathBuf, Skip> {
        let objects: Vec<String> = self.counted().values().map(|path| path.to_str().unwrap().to_owned()).collect();
        let words = ["ld", "-static", "-Ttext-segment=0x1000000", "-o", "linked"].map(str::to_owned);
        let words: Vec<String> = words.into_iter().chain(objects).collect();
        tool(self.dir.path(), &words.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(self.dir.file("linked"))
    }
}

/// Bytes of functions and objects by readelf: for each section and address the greatest size.
fn by_readelf(file: &Path) -> Result<u64, Skip> {
    let text = tool(Path::new("/"), &["readelf", "-sW", file.to_str().unwrap()])?;
    let mut places: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut common = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, value, size, "FUNC" | "OBJECT", _, _, section, ..] = words[..] else { continue };
        let size = size.strip_prefix("0x").map_or(size.parse(), |hex| u64::from_str_radix(hex, 16)).unwrap();
        match section {
            "UND" => {}
            "COM" => common += size,
            _ => {
                let known = places.entry((section.to_owned(), value.to_owned())).or_default();
                *known = size.max(*known);
            }
        }
    }
    Ok(places.values().sum::<u64>() + common)
}

/// Document of a tree or a kernel.
fn tree_of(path: &Path) -> Value {
    let document = document(&["static"], path);
    assert_eq!(document["schema"], "kmemtrace.static/1");
    assert!(document["completeness"].is_null() && document["trace"].is_null());
    assert_sums(&document["root"]);
    document
}

/// Checks that each node is the sum of its children, and of its parts.
fn assert_sums(node: &Value) {
    let bytes = |node: &Value, member: &str| node[member].as_u64().unwrap();
    let parts = |names: [&str; 4]| names.iter().map(|name| bytes(node, name)).sum::<u64>();
    assert_eq!(bytes(node, "static"), parts(["text", "rodata", "data", "bss"]), "{node}");
    assert_eq!(bytes(node, "init"), parts(["init_text", "init_rodata", "init_data", "init_bss"]), "{node}");
    let children = node["children"].as_array().unwrap();
    for member in BYTES.iter().filter(|_| !children.is_empty()) {
        let sum: u64 = children.iter().map(|child| bytes(child, member)).sum();
        assert_eq!(bytes(node, member), sum, "{} {member}", node["name"]);
    }
    children.iter().for_each(assert_sums);
}

/// Files of a node and their bytes, by path.
fn files(node: &Value) -> BTreeMap<String, u64> {
    let mut files = BTreeMap::new();
    let mut to_visit = vec![(String::new(), node)];
    while let Some((path, node)) = to_visit.pop() {
        for child in node["children"].as_array().unwrap() {
            let name = child["name"].as_str().unwrap();
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            if child["kind"] == "file" {
                files.insert(path, child["static"].as_u64().unwrap());
            } else {
                to_visit.push((path, child));
            }
        }
    }
    files
}

/// Bytes by readelf of objects, by their sources.
fn expected(objects: &BTreeMap<String, PathBuf>) -> Result<BTreeMap<String, u64>, Skip> {
    objects.iter().map(|(source, object)| Ok((source.clone(), by_readelf(object)?))).collect()
}

/// Bytes of each section over some files, as `size -A` says.
fn by_size<'p>(objects: impl Iterator<Item = &'p PathBuf>) -> Result<BTreeMap<String, u64>, Skip> {
    let mut sections = BTreeMap::new();
    for object in objects {
        let text = tool(Path::new("/"), &["size", "-A", object.to_str().unwrap()])?;
        for line in text.lines().skip(2) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [name, bytes, _] = words[..] {
                *sections.entry(name.to_owned()).or_default() += bytes.parse::<u64>().unwrap();
            }
        }
    }
    sections.retain(|_, bytes| *bytes > 0);
    Ok(sections)
}

fn sections(document: &Value) -> BTreeMap<String, u64> {
    let sections = document["sections"].as_array().unwrap().iter();
    let of = |section: &Value| (section["name"].as_str().unwrap().to_owned(), section["bytes"].as_u64().unwrap());
    sections.map(of).filter(|(_, bytes)| *bytes > 0).collect()
}

fn a_built_tree_has_the_bytes_of_its_objects() -> Result<(), Skip> {
    for out in [None, Some("out")] {
        let built = Built::new(out)?;
        if out.is_some() {
            // The folder of a build has either of these.
            fs::write(
                built.objects.join("Makefile"),
                format!("# made\ninclude {}/Makefile\n", built.dir.file("src").display()),
            )
            .unwrap();
        }
        let (tree, counted) = (tree_of(&built.objects), built.counted());
        assert_eq!(files(&tree["root"]), expected(&counted)?);
        assert_eq!(sections(&tree), by_size(counted.values())?);
        assert_eq!((&tree["source"]["objects"], &tree["source"]["left_out"]), (&counted.len().into(), &0.into()));
        if out.is_some() {
            fs::remove_file(built.objects.join("Makefile")).unwrap();
            symlink("../src", built.objects.join("source")).unwrap();
            assert_eq!(tree_of(&built.objects)["root"], tree["root"]);
        }
    }
    Ok(())
}

fn parts_are_those_of_the_sections() -> Result<(), Skip> {
    let built = Built::new(None)?;
    let tree = tree_of(&built.objects);
    let child = |node: &Value, name: &str| {
        let children = node["children"].as_array().unwrap();
        children.iter().find(|child| child["name"] == name).unwrap_or_else(|| panic!("no {name}: {node}")).clone()
    };
    let fs = child(&tree["root"], "fs");
    let inode = child(&fs, "inode.c");
    // `zeros`, `table`; `letters`; `counter`, `at_start`.
    for (member, bytes) in
        [("bss", 600), ("rodata", 7), ("data", 8), ("init_data", 4), ("init_rodata", 0), ("init_bss", 0)]
    {
        assert_eq!(inode[member], bytes, "{member}: {inode}");
    }
    let init_text = inode["init_text"].as_u64().unwrap();
    assert!(init_text > 0 && init_text < inode["text"].as_u64().unwrap(), "{inode}");
    // The linker places it: zeros.
    assert_eq!(child(&child(&fs, "ext"), "dir.c")["bss"], 120);
    Ok(())
}

fn loops_and_unreadable_objects_are_told() -> Result<(), Skip> {
    let built = Built::new(None)?;
    let (root, whole) = (&built.objects, files(&tree_of(&built.objects)["root"]));
    symlink("..", root.join("fs/loop")).unwrap();
    symlink("itself", root.join("fs/itself")).unwrap();
    // Sources elsewhere that a link brings into the tree.
    built.dir.write("elsewhere/own.c", b"int own(void) { return 5; }");
    tool(&built.dir.file("elsewhere"), &["gcc", "-c", "own.c"])?;
    symlink("../../elsewhere", root.join("fs/linked")).unwrap();
    for name in ["bad", "cut", "gone", "pipe", "folder"] {
        fs::write(root.join(format!("lib/{name}.c")), "").unwrap();
    }
    fs::write(root.join("lib/bad.o"), "no object \u{1b}[31m").unwrap();
    let object = fs::read(root.join("fs/inode.o")).unwrap();
    fs::write(root.join("lib/cut.o"), &object[..object.len() / 2]).unwrap();
    symlink("nothing", root.join("lib/gone.o")).unwrap();
    tool(root, &["mkfifo", "lib/pipe.o"])?;
    fs::create_dir(root.join("lib/folder.o")).unwrap();
    let limit = Duration::from_secs(60);
    let output = run_within(limit, REPORT, &["static", "--format", "json"], &[root]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    for name in ["fs/loop", "fs/itself", "lib/bad.o", "lib/cut.o", "lib/gone.o"] {
        assert!(told.lines().any(|line| line.contains(&format!("{name}: left out: "))), "{name}: {told}");
    }
    assert_eq!((told.lines().count(), told.contains('\u{1b}')), (5, false), "{told}");
    let tree = json(&output.stdout);
    assert_eq!(tree["source"]["left_out"], 5);
    let mut want = whole;
    want.insert("fs/linked/own.c".to_owned(), by_readelf(&built.dir.file("elsewhere/own.o"))?);
    assert_eq!(files(&tree["root"]), want);
    Ok(())
}

fn names_of_files_are_data() -> Result<(), Skip> {
    let built = Built::new(None)?;
    let hostile = std::ffi::OsStr::from_bytes(b"lib/=\x1b[31m\xff\n.c");
    let source = built.objects.join(hostile);
    fs::write(&source, "").unwrap();
    fs::copy(built.objects.join("fs/inode.o"), source.with_extension("o")).unwrap();
    for (format, shown) in
        [("table", r"=\x1b[31m\xff\x0a.c"), ("csv", r"'=\x1b[31m\xff\x0a.c"), ("json", r"\u001b[31m\ufffd\n.c")]
    {
        let words = ["static", "--depth", "9", "--format", format];
        let text = run_to(0, REPORT, &words, &[&built.objects]);
        assert!(!text.contains(&0x1b), "{format}");
        let text = String::from_utf8_lossy(&text).replace('\u{fffd}', r"\ufffd");
        assert!(text.contains(shown), "{format}: {text}");
    }
    let tree = tree_of(&built.objects);
    assert!(tree.to_string().contains(r#""name_hex":"3d1b5b33316dff0a2e63""#), "{tree}");
    Ok(())
}

fn a_linked_kernel_has_the_bytes_of_its_symbols() -> Result<(), Skip> {
    let built = Built::new(None)?;
    let linked = built.vmlinux()?;
    let kernel = tree_of(&linked);
    assert_eq!(kernel["root"]["static"], by_readelf(&linked)?);
    assert_eq!(sections(&kernel), by_size([linked.clone()].iter())?);
    let (found, want) = (files(&kernel["root"]), expected(&built.counted())?);
    for source in ["fs/inode.c", "fs/ext/super.c", "fs/ext/dir.c"] {
        assert_eq!(found[source], want[source], "{source}");
    }
    // Assembler has no debug information about its data, and the last file has none at all: its local function is after the
    // symbol of its file.
    let unplaced = want["arch/x86/entry.S"] - found["arch/x86/entry.S"];
    assert_eq!(unplaced, 12);
    let children = kernel["root"]["children"].as_array().unwrap();
    let unknown = children.iter().find(|child| child["name"] == "(no folder known)").unwrap();
    assert_eq!((&unknown["kind"], &unknown["static"]), (&"unknown".into(), &(want["lib/quiet.c"] + unplaced).into()));
    let quiet = unknown["children"].as_array().unwrap().iter().find(|child| child["name"] == "quiet.c");
    assert!(quiet.unwrap()["text"].as_u64().unwrap() > 0);
    // The same kernel without debug information: every byte is there, and no folder.
    tool(built.dir.path(), &["objcopy", "--strip-debug", "linked", "bare"])?;
    let bare = tree_of(&built.dir.file("bare"));
    assert_eq!(bare["root"]["static"], kernel["root"]["static"]);
    let names: BTreeSet<&str> =
        bare["root"]["children"].as_array().unwrap().iter().map(|child| child["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["(no folder known)"].into());
    Ok(())
}

fn formats_have_the_same_bytes() -> Result<(), Skip> {
    let built = Built::new(None)?;
    let whole = tree_of(&built.objects);
    let lines = json_lines(&run_to(0, REPORT, &["static", "--format", "jsonl"], &[&built.objects]));
    assert_eq!((&lines[0]["schema"], &lines[0]["total"]["static"]), (&whole["schema"], &whole["root"]["static"]));
    let rows: BTreeMap<String, u64> = lines[1..]
        .iter()
        .map(|row| {
            let path = format!("{}/{}", row["folder"].as_str().unwrap(), row["file"].as_str().unwrap());
            (path, row["static"].as_u64().unwrap())
        })
        .collect();
    assert_eq!(rows, files(&whole["root"]));
    let csv = String::from_utf8(run_to(0, REPORT, &["static", "--format", "csv"], &[&built.objects])).unwrap();
    let sum = |column: usize| -> u64 {
        csv.lines().skip(1).map(|row| row.split(',').nth(column).unwrap().parse::<u64>().unwrap()).sum()
    };
    for (column, member) in BYTES.iter().enumerate() {
        assert_eq!(csv.lines().next().unwrap().split(',').nth(3 + column), Some(*member));
        assert_eq!(whole["root"][member], sum(3 + column), "{member}");
    }
    // Nodes beyond the limit are one node.
    let folded =
        json(&run_to(0, REPORT, &["static", "--format", "json", "-n", "1", "--depth", "1"], &[&built.objects]));
    assert_sums(&folded["root"]);
    let children = folded["root"]["children"].as_array().unwrap();
    assert_eq!((children.len(), &children[1]["kind"], &children[1]["folded"]), (2, &"others".into(), &2.into()));
    let table =
        String::from_utf8(run_to(0, REPORT, &["static", "--bytes", "--depth", "3"], &[&built.objects])).unwrap();
    for (path, bytes) in files(&whole["root"]) {
        let name = path.rsplit('/').next().unwrap();
        let row =
            table.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap_or_else(|| panic!("{name}: {table}"));
        assert!(row.split_whitespace().any(|cell| cell == bytes.to_string()), "{row}");
    }
    Ok(())
}

fn a_branch_has_its_own_bytes() -> Result<(), Skip> {
    let built = Built::new(None)?;
    let whole = tree_of(&built.objects);
    let of = |branches: &str| {
        let line = ["static", "--format", "json", "-b", branches];
        json(&run_to(0, REPORT, &line, &[&built.objects]))
    };
    let fs = of("fs/");
    assert_sums(&fs["root"]);
    assert_eq!((&fs["root"]["name"], &fs["source"]["branch"]), (&"fs".into(), &"fs".into()));
    assert_eq!(&fs["root"]["children"], &below(&whole["root"], "fs")["children"]);
    // Several have the root of all.
    let both = of("fs/ext,lib");
    assert_sums(&both["root"]);
    let mut expected = files(&whole["root"]);
    expected.retain(|path, _| path.starts_with("fs/ext/") || path.starts_with("lib/"));
    assert!(expected.len() == 3 && files(&both["root"]) == expected, "{both}");
    // Rows have whole paths, also of a single file.
    for (branch, paths) in [("fs/ext", &["fs/ext,dir.c", "fs/ext,super.c"][..]), ("fs/inode.c", &["fs,inode.c"])] {
        let csv = run_to(0, REPORT, &["static", "--format", "csv", "-b", branch], &[&built.objects]);
        let csv = String::from_utf8(csv).unwrap();
        let mut rows: Vec<&str> = csv.lines().skip(1).map(|row| row.rsplit_once(",file").unwrap().0).collect();
        rows.sort_unstable();
        assert_eq!(rows, paths, "{csv}");
    }
    let refused = run(REPORT, &["static", "-b", "fs/ex"], &[&built.objects]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(told.contains("--branch fs/ex: no source file of this kernel is there; did you mean fs/ext"), "{told}");
    Ok(())
}

/// Child of this name.
fn below<'n>(node: &'n Value, name: &str) -> &'n Value {
    node["children"].as_array().unwrap().iter().find(|child| child["name"] == name).unwrap()
}

fn damaged_kernels_end_nothing() -> Result<(), Skip> {
    let built = Built::new(None)?;
    let whole = fs::read(built.vmlinux()?).unwrap();
    let (place, map) = (built.dir.file("damaged"), built.dir.file("map"));
    let mut random = Random::new(7);
    for turn in 0..runs::number(30, 150) {
        let mut bytes = whole.clone();
        if turn % 5 == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        for _ in 0..(1 << random.below(8)).min(bytes.len()) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.below(256) as u8;
        }
        fs::write(&place, &bytes).unwrap();
        for words in [&["static", "--format", "json"][..], &["names", "--force", "-o", map.to_str().unwrap()]] {
            let output = run_within(Duration::from_secs(30), REPORT, words, &[&place]);
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(0 | 2)), "turn {turn}: {:?} {told}", output.status);
        }
    }
    Ok(())
}

fn a_map_names_the_files_of_functions() -> Result<(), Skip> {
    let built = Built::new(None)?;
    let (linked, map) = (built.vmlinux()?, built.dir.file("a.names"));
    fs::create_dir(built.dir.file("modules")).unwrap();
    fs::copy(built.objects.join("fs/ext/ext.o"), built.dir.file("modules/ext-two.ko")).unwrap();
    fs::write(built.dir.file("modules/bad.ko"), "no module").unwrap();
    let words = ["names", "-o", map.to_str().unwrap()];
    let output = run(REPORT, &words, &[&linked, &built.dir.file("modules")]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), told.lines().count()), (Some(0), 1), "{told}");
    assert!(told.contains("modules/bad.ko: left out: "), "{told}");
    let bytes = fs::read(&map).unwrap();
    let packed = bytes.strip_prefix(b"kmemtrace.names/1\n").unwrap();
    let text = String::from_utf8(zstd::decode_all(packed).unwrap()).unwrap();
    let (kernel, module) = text.split_once("=ext-two\n").unwrap();
    assert_eq!(module, "/fs/ext/dir.c\nread_dir\n/fs/ext/super.c\nfill_super\nhelper\n");
    let of_inode = kernel.split_once("/fs/inode.c\n").unwrap().1.split("\n/").next().unwrap();
    assert_eq!(of_inode.trim_end(), "_start\nbegin\nhelper\nother_name\nused", "both names of one address are there");
    let again = String::from_utf8(run(REPORT, &words, &[&linked]).stderr).unwrap();
    assert!(again.contains("use -f to overwrite it"), "{again}");
    Ok(())
}

fn what_is_no_kernel_is_refused() -> Result<(), Skip> {
    let built = Built::new(None)?;
    let empty = Directory::new(&[]);
    for (path, words) in [
        (empty.path().to_owned(), "no built tree"),
        (empty.file("nothing"), "No such file"),
        (built.dir.file("src/fs/inode.c"), "not an ELF file"),
        (built.objects.join("fs/inode.o"), "not a linked kernel"),
    ] {
        let output = run(REPORT, &["static"], &[&path]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
        assert!(told.contains(words) && told.contains(path.to_str().unwrap()), "{told}");
    }
    Ok(())
}

fn a_small_kernel_has_the_bytes_of_readelf() -> Result<(), Skip> {
    let kernel = guest::small_kernel()?;
    let (build, sources) = (kernel.join("build"), kernel.join("linux-source-6.1"));
    let list =
        tool(&build, &["find", ".", "-name", "*.o", "-not", "-path", "*/scripts/*", "-not", "-path", "*/tools/*"])?;
    let mut objects = BTreeMap::new();
    for object in list.lines().filter_map(|line| line.strip_prefix("./")) {
        let has_source = |end: &&str| {
            let source = Path::new(object).with_extension(end);
            [&build, &sources].iter().any(|root| root.join(&source).is_file())
        };
        if let Some(end) = ["c", "S"].into_iter().find(has_source).filter(|_| !object.starts_with(".tmp_")) {
            let source = Path::new(object).with_extension(end);
            objects.insert(source.to_str().unwrap().to_owned(), build.join(object));
        }
    }
    assert!(objects.len() > 500);
    assert_eq!(files(&tree_of(&build)["root"]), expected(&objects)?);
    let vmlinux = build.join("vmlinux");
    let linked = tree_of(&vmlinux);
    assert_eq!(linked["root"]["static"], by_readelf(&vmlinux)?);
    let text = |node: &Value| node["text"].as_u64().unwrap();
    let unknown = linked["root"]["children"].as_array().unwrap().iter().find(|child| child["kind"] == "unknown");
    assert!(unknown.map_or(0, text) * 1000 <= text(&linked["root"]), "99.9% of the functions' bytes have a folder");
    Ok(())
}
