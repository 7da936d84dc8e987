//! Pages for the tests: of samples, and of recordings that are made for them.

use std::path::{Path, PathBuf};

use kmemtrace_tests::browser::Browser;
use kmemtrace_tests::generate::symbols::Function;
use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::programs::{data, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::scenario::Scenario;

pub(crate) const REPORT: &str = "kmemtrace-report";

/// Page of a trace, in a directory of its own.
pub(crate) fn page(trace: &Path) -> (Directory, PathBuf) {
    page_with(&[], trace)
}

/// The same, with options.
pub(crate) fn page_with(options: &[&str], trace: &Path) -> (Directory, PathBuf) {
    let dir = Directory::new(&[]);
    let file = dir.file("page.html");
    run_to(0, REPORT, &[&["html", "-o", file.to_str().unwrap()], options].concat(), &[trace]);
    (dir, file)
}

/// Recording of functions with these names, each with a call-site; the last ones belong to modules.
pub(crate) fn recording_of(names: &[String]) -> Directory {
    let site = |number: usize| 0xffff_ffff_8110_0000 + number as u64 * 0x100;
    let functions = names.iter().enumerate().map(|(number, name)| Function {
        start: site(number),
        end: site(number) + 0x80,
        name: name.clone(),
        module: (number * 10 > names.len() * 9).then(|| format!("module_{}", number % 100)),
    });
    let functions = functions.collect();
    let mut scenario = Scenario::new(Shape::plain(), 2).with(|machine| machine.symbols.functions = functions);
    for number in 0..names.len() {
        let (at, size) = (1_000_000 * number as u64, 64 << (number % 7));
        let address = 0xffff_8880_0000_0000 + number as u64 * 0x4000;
        scenario = scenario.kmalloc(at, 0, site(number) + 0x15, address, (size - number as u64 % 23, size));
        if number % 3 == 0 {
            scenario = scenario.kfree(at + 10, 1, site(number) + 0x40, address);
        }
    }
    Directory::new(&trace_dir(&scenario.finish(), 1))
}

/// Traces of every verdict, and of another byte order.
pub(crate) fn traces() -> Vec<(&'static str, PathBuf, Option<Directory>)> {
    let written = |files: &[(String, Vec<u8>)]| {
        let dir = Directory::new(files);
        (dir.path().to_owned(), Some(dir))
    };
    let (empty, empty_dir) = written(&trace_dir(&Scenario::new(Shape::plain(), 2).finish(), 1));
    let mut damaged = trace_dir(&workload(7, &Options::plain(Shape::plain(), 2, 3_000)), 7);
    let (_, bytes) = damaged.iter_mut().find(|(name, _)| name == "cpu1.out").unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 64].fill(0x5a);
    let (corrupt, corrupt_dir) = written(&damaged);
    let pages = Scenario::new(Shape::plain(), 2).page_alloc(10, 0, 77, 4096).page_alloc(20, 1, 78, 8192);
    let (pages, pages_dir) = written(&trace_dir(&pages.page_free(30, 1, 77, 0).finish(), 1));
    vec![
        ("complete", data("amd64-6.1"), None),
        ("lossy", data("amd64-6.1-lossy"), None),
        ("complete", data("s390x-6.1"), None),
        ("complete", empty, empty_dir),
        ("corrupt", corrupt, corrupt_dir),
        ("complete", pages, pages_dir),
    ]
}

/// Texts of the elements that a selector finds.
pub(crate) fn texts(browser: &Browser, selector: &str) -> Vec<String> {
    let found = browser.run(&format!("return [...document.querySelectorAll({selector:?})].map(e => e.textContent)"));
    found.as_array().unwrap().iter().map(|text| text.as_str().unwrap().trim().to_owned()).collect()
}

/// Name of the cell or row with the focus, and the name of the node at the top.
pub(crate) fn place(browser: &Browser) -> (Option<String>, String) {
    let place = browser.run("return [document.activeElement.node?.name ?? null, state.at.name]");
    (place[0].as_str().map(str::to_owned), place[1].as_str().unwrap().to_owned())
}

/// Types a text into the search, and waits for its answer.
pub(crate) fn search(browser: &Browser, text: &str) {
    let script = "const find = document.getElementById('find'); find.value = ";
    browser.run(&format!("{script}{text:?}; find.dispatchEvent(new Event('input'))"));
    browser.wait_for(&format!("return state.find === {text:?}"));
}
