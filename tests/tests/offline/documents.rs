//! README and the pages in `docs`. Each command line of check and report is run on a sample, each option of the recorder is one that
//! its help has, scripts have a test, and the site has every page.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use kmemtrace_tests::programs::program;
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::texts;

/// Traces that the documents name.
const TRACES: [&str; 8] =
    ["kmemtrace.data", "before", "after", "BEFORE", "AFTER", "trace", "captured", "relay-amd64-6.1"];
const PROMPTS: [&str; 4] = ["# ", "$ ", "traced# ", "analyst$ "];

fn in_tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path)
}

/// Words of the command `kmemtrace` that record.
const RECORDING: [&str; 5] = ["record", "top", "watch", "recover", "doctor"];

/// README and pages for people who use the programs, with their text.
fn documents() -> Vec<(String, String)> {
    let mut paths = vec![in_tree("README.md")];
    paths.extend(fs::read_dir(in_tree("docs")).unwrap().map(|entry| entry.unwrap().path()));
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "md"));
    paths.sort();
    paths.iter().map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect()
}

/// Lines of a code block after a prompt; without any prompt all lines, if the first one begins with `name`.
fn lines_of_block(block: &str, name: &str) -> Vec<String> {
    let after_prompt = |line: &str| PROMPTS.iter().find_map(|prompt| line.strip_prefix(prompt)).map(str::to_owned);
    // The rest of the line with the fence names a language.
    let (_, body) = block.split_once('\n').unwrap_or(("", block));
    let prompted: Vec<String> = body.lines().filter_map(after_prompt).collect();
    let is_script = prompted.is_empty() && body.starts_with(name);
    let lines = if is_script { body.lines().map(str::to_owned).collect() } else { prompted };
    lines.iter().flat_map(|line| line.split("&&")).map(|part| part.trim().to_owned()).collect()
}

/// Command lines of `name` in code blocks and in backquotes, without redirections and further commands. Lines with
/// placeholders for anything but traces are left out.
fn command_lines(text: &str, name: &str) -> Vec<String> {
    let is_placeholder = |word: &str| {
        let letters = word.trim_matches(|c: char| !c.is_alphanumeric());
        letters.len() > 2 && letters.chars().all(|c| c.is_ascii_uppercase()) && !TRACES.contains(&word)
    };
    let mut lines = Vec::new();
    for (number, block) in text.split("```").enumerate() {
        if number % 2 == 1 {
            lines.extend(lines_of_block(block, name));
        } else {
            lines.extend(block.split('`').skip(1).step_by(2).map(|code| code.replace('\n', " ")));
        }
    }
    let first = |line: &String| line.split([';', '|', '>', '…']).next().unwrap_or("").trim().to_owned();
    let mut lines: Vec<String> = lines.iter().map(first).collect();
    lines.retain(|line| line.split(' ').next() == Some(name) && !line.split(' ').any(is_placeholder));
    lines.sort();
    lines.dedup();
    lines
}

/// True for a line of the command that runs the recorder.
fn records(line: &str) -> bool {
    line.split(' ').next() == Some("kmemtrace") && line.split(' ').nth(1).is_some_and(|word| RECORDING.contains(&word))
}

/// Small texts that documents name.
const TEXTS: [(&str, &str); 3] = [
    ("show_handles.txt", "handle: 42\nnr_base_pages: 16\n\n"),
    ("show_stacks_handles.txt", " example_open+0x1c/0x40 [exampledrv]\nhandle: 42\n\n"),
    (
        "dmesg.txt",
        "[    1.000000] Mem-Info:\n\
         [    1.000000] active_anon:10 inactive_anon:20 isolated_anon:0\n\
         [    1.000000]  free:100 free_pcp:3 free_cma:0\n\
         [    1.000000] 1000 pages RAM\n\
         [    1.000000] 10 pages reserved\n\
         [    2.000000] page: refcount:1 mapcount:0 mapping:0000000000000000 index:0x1 pfn:0x1000\n\
         [    2.000000] page_owner tracks the page as allocated\n\
         [    2.000000] page last allocated via order 0, migratetype Unmovable, gfp_mask 0xcc0(GFP_KERNEL)\n\
         [    2.000000]  example_open+0x1c/0x40 [exampledrv]\n",
    ),
];

#[test]
fn commands_of_the_documents_are_understood() {
    let directory = Directory::new(&[]);
    // Any trace stands for files of other programs: the words are tried, not the formats.
    for name in TRACES.into_iter().chain(["trace.dat", "perf.data"]) {
        symlink(in_tree("tests/data/amd64-6.18"), directory.file(name)).unwrap();
    }
    let owners = File::open(in_tree("tests/data/page_owner-amd64-6.1.txt.zst")).unwrap();
    fs::write(directory.file("owners.txt"), zstd::decode_all(owners).unwrap()).unwrap();
    fs::write(directory.file("trace.txt"), texts::made(texts::KERNELS[0], 1, 50).text).unwrap();
    for (name, text) in TEXTS {
        fs::write(directory.file(name), text).unwrap();
    }
    for (name, slabs) in [("slabinfo.1", "slabinfo_router.log"), ("slabinfo.2", "slabinfo_router.later")] {
        symlink(in_tree("tests/data/texts").join(slabs), directory.file(name)).unwrap();
    }
    // The folder that a debug package is unpacked to.
    fs::create_dir_all(directory.file("usr/lib/debug")).unwrap();
    let folder = program("kmemtrace-report").parent().unwrap().to_owned();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let (mut runs, mut refused) = (0, Vec::new());
    for (document, text) in documents() {
        for name in ["kmemtrace", "kmemtrace-report", "kmemtrace-check"] {
            for line in command_lines(&text, name).into_iter().filter(|line| !records(line)) {
                let mut command = Command::new("sh");
                let output = command.args(["-c", &line]).current_dir(directory.path()).env("PATH", &path).output();
                let output = output.unwrap();
                runs += 1;
                // The live screen needs a terminal, a stream a writer, and few kernels have page_owner; each is said once all words
                // are understood.
                let said = String::from_utf8_lossy(&output.stderr);
                let is_lacking = said.contains("top: there is no terminal")
                    || said.contains("standard input: has no block of a recording")
                    || said.contains("/sys/kernel/debug/page_owner: No such file or directory");
                if !matches!(output.status.code(), Some(0 | 1)) && !is_lacking {
                    refused.push(format!("{document}: {line}: {}", String::from_utf8_lossy(&output.stderr)));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(runs >= 40, "only {runs} command lines were found");
}

#[test]
fn options_of_the_recorder_in_the_documents_are_those_of_its_help() {
    let help = |words: &[&str]| {
        let output = Command::new(program("kmemtraced")).args(words).arg("--help").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    // Options of one verb are taken for those of all.
    let help = help(&[]) + &help(&["watch"]) + &help(&["doctor"]);
    let known: Vec<&str> = help.split([' ', ',', '\n', '(', '[']).filter(|word| word.starts_with('-')).collect();
    let (mut options, mut unknown) = (0, Vec::new());
    for (document, text) in documents() {
        let of_command = command_lines(&text, "kmemtrace").into_iter().filter(|line| records(line));
        for line in command_lines(&text, "kmemtraced").into_iter().chain(of_command) {
            let own = line.split(' ').take_while(|word| *word != "--");
            for option in own.filter(|word| word.starts_with('-')) {
                options += 1;
                // A value may follow.
                if !known.contains(&option.split('=').next().unwrap_or(option)) {
                    unknown.push(format!("{document}: {line}: {option}"));
                }
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(options >= 10, "only {options} options were found");
}

#[test]
fn the_site_has_every_page_and_the_readme_is_short() {
    let summary = fs::read_to_string(in_tree("docs/site/SUMMARY.md")).unwrap();
    for (document, _) in documents() {
        let path = Path::new(&document).strip_prefix(in_tree("")).unwrap().display().to_string();
        assert!(summary.contains(&format!("]({path})")), "{path} is not in docs/site/SUMMARY.md");
    }
    let readme = fs::read_to_string(in_tree("README.md")).unwrap();
    assert!(readme.lines().count() <= 150, "README has {} lines", readme.lines().count());
}

#[test]
fn each_script_is_run_by_a_test_or_says_why_not() {
    let mut scripts = 0;
    for (document, text) in documents() {
        for (before, _) in text.match_indices("\n```sh\n").map(|(at, _)| text.split_at(at)) {
            scripts += 1;
            let mark = before.trim_end().lines().last().unwrap_or_default();
            let named = mark.strip_prefix("<!-- run by ").and_then(|rest| rest.strip_suffix(" -->"));
            match named.and_then(|test| test.split_once("::")) {
                Some((file, test)) => {
                    let source = fs::read_to_string(in_tree(&format!("tests/tests/{file}.rs"))).unwrap_or_default();
                    assert!(source.contains(&format!("fn {test}(")), "{document}: no test {file}::{test}");
                }
                None => assert!(mark.starts_with("<!-- not run: "), "{document}: a script without a mark: {before}"),
            }
        }
    }
    assert!(scripts >= 5, "only {scripts} scripts were found");
}
