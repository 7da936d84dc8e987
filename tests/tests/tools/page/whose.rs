//! Whose memory a page shows: trees by module, task, cgroup and stack, leaks, stalls; and what it leaves out.

use std::fs;

use kmemtrace_tests::browser::Browser;
use kmemtrace_tests::generate::symbols::Function;
use kmemtrace_tests::generate::{Shape, trace_dir};
use kmemtrace_tests::programs::{data, document};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::pages::{page, page_with, texts, traces};

/// Recording of ten seconds in which two threads allocate: one keeps ten objects each second.
fn leaking() -> Directory {
    let site = |number: u64| 0xffff_ffff_8110_0000 + number * 0x100;
    let functions = ["keep", "use"].into_iter().zip(0..).map(|(name, number)| Function {
        start: site(number),
        end: site(number) + 0x80,
        name: name.to_owned(),
        module: (number == 0).then(|| "ring".to_owned()),
    });
    let functions = functions.collect();
    let mut scenario = Scenario::new(Shape::plain(), 2).with(|machine| machine.symbols.functions = functions);
    for number in 0..100 {
        let (at, address) = (1_000_000_000 + number * 100_000_000, 0xffff_8880_0000_0000 + number * 0x1000);
        scenario = scenario.thread(7, 0).kmalloc(at, 0, site(0) + 0x15, address, (60, 64));
        scenario = scenario.thread(9, 0).kmalloc(at + 1_000, 1, site(1) + 0x15, address + 0x100, (900, 1024));
        scenario = scenario.kfree(at + 2_000, 1, site(1) + 0x40, address + 0x100);
    }
    Directory::new(&trace_dir(&scenario.finish(), 1))
}

/// Sections that are shown.
fn shown(browser: &Browser) -> Vec<String> {
    let found =
        browser.run("return [...document.querySelectorAll('section[id]')].filter(s => !s.hidden).map(s => s.id)");
    found.as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned()).collect()
}

pub(crate) fn trees_are_those_of_the_tree_view() -> Result<(), Skip> {
    let browser = Browser::start()?;
    let (trace, lossy) = (leaking(), data("amd64-6.1-lossy"));
    for trace in [trace.path(), &lossy] {
        let (_dir, file) = page(trace);
        for (by, keys) in [("module", "module,site"), ("task", "task,site")] {
            let wanted = document(&["tree", "--by", keys], trace)["root"].clone();
            browser.open(&file, &format!("#tree={by}-site.slab&shape=table"));
            let root =
                browser.run("return [ROOT.live, ROOT.allocs, ROOT.children.map(n => [n.name, n.live]).slice(0, 20)]");
            let children = wanted["children"].as_array().unwrap().iter().take(20);
            let children: Vec<Value> = children.map(|child| json!([child["name"], child["live_allocated"]])).collect();
            assert_eq!(root, json!([wanted["live_allocated"], wanted["allocs"], children]), "{by}");
        }
        let options = texts(&browser, "#group option");
        assert_eq!(options, ["module", "task"], "no folder, cgroup or stack is known");
    }
    let (_dir, file) = page_with(&["--by", "task"], trace.path());
    browser.open(&file, "");
    assert_eq!(browser.run("return TREE.by"), json!(["task", "site"]));
    assert_eq!(browser.console(), Vec::<String>::new());
    Ok(())
}

pub(crate) fn leaks_and_tasks_are_tables() -> Result<(), Skip> {
    let browser = Browser::start()?;
    let trace = leaking();
    let leaks = document(&["leaks"], trace.path());
    assert_eq!(leaks["rows"][0]["verdict"], "leak", "{leaks}");
    let (_dir, file) = page(trace.path());
    browser.open(&file, "");
    let rows = texts(&browser, "#leaks tbody tr");
    assert_eq!(rows.len(), 1);
    assert!(
        rows[0].starts_with("leak") && rows[0].contains("keep+0x15 [ring]") && rows[0].contains("6.25 KiB"),
        "{rows:?}"
    );
    assert!(texts(&browser, "#tiles .tile.bad")[0].starts_with("1leak"));
    let tasks = texts(&browser, "#tasks tbody tr");
    assert!(tasks.len() == 2 && tasks[0].contains("(7)") && tasks[0].starts_with("6.25 KiB"), "{tasks:?}");
    browser.click("#tasks tbody button");
    let at = browser.run("return [TREE.by[0], state.at.name, state.at.live]");
    assert_eq!((&at[0], &at[2]), (&json!("task"), &json!(6400)), "{at}");
    // Each heading has a title, and a line of a legend.
    let untold = "return [...document.querySelectorAll('#leaks th, #tasks th, #sites th, #caches th, #slots th')].filter(th => !(th.title || th.querySelector('button')?.title)).map(th => th.textContent)";
    assert_eq!(browser.run(untold), json!([]));
    for section in ["leaks", "tasks", "sites", "caches", "slot-rows"] {
        let [heads, told] = ["th", ".legend dt"].map(|of| texts(&browser, &format!("#{section} {of}")).len());
        assert_eq!(heads, told, "{section}");
    }
    assert_eq!(browser.console(), Vec::<String>::new());
    Ok(())
}

/// Other call sites of a leak and its callers open from the table, as far as the recording has them.
pub(crate) fn a_leak_opens_its_call_sites_and_its_stack() -> Result<(), Skip> {
    let browser = Browser::start()?;
    let site = |number: u64| 0xffff_ffff_8110_0000 + number * 0x100;
    let names = ["keep", "name", "probe", "entry"].into_iter().zip(0..);
    let functions = names.map(|(name, number)| Function {
        start: site(number),
        end: site(number) + 0x80,
        name: name.to_owned(),
        module: None,
    });
    let functions = functions.collect();
    let mut scenario = Scenario::new(Shape::plain(), 1).with(|machine| machine.symbols.functions = functions);
    for number in 0..100 {
        let (at, address) = (1_000_000_000 + number * 100_000_000, 0xffff_8880_0000_0000 + number * 0x1000);
        scenario = scenario.kmalloc(at, 0, site(0) + 0x15, address, (60, 64));
        scenario = scenario.stack(at, 0, &[site(0) + 0x15, site(2) + 0x25, site(3) + 0x35]);
        scenario = scenario.kmalloc(at + 1_000, 0, site(1) + 0x15, address + 0x100, (30, 32));
    }
    let trace = Directory::new(&trace_dir(&scenario.finish(), 1));
    let (_dir, file) = page(trace.path());
    browser.open(&file, "");
    let rows = texts(&browser, "#leaks tbody tr");
    assert!(rows.len() == 1 && rows[0].contains("keep+0x15"), "{rows:?}");
    assert_eq!(texts(&browser, "#leaks td summary"), ["and 1 more call-site, stack"]);
    assert_eq!(browser.run("return document.querySelector('#leaks td details').open"), json!(false));
    browser.click("#leaks td summary");
    assert_eq!(browser.run("return document.querySelector('#leaks td details').open"), json!(true));
    assert_eq!(texts(&browser, "#leaks td details li"), ["name+0x15  3.13 KiB", "probe+0x25", "entry+0x35"]);
    assert_eq!(browser.console(), Vec::<String>::new());
    Ok(())
}

pub(crate) fn what_was_not_recorded_is_left_out() -> Result<(), Skip> {
    let browser = Browser::start()?;
    let pages = traces().pop().unwrap();
    let (_dir, file) = page(&pages.1);
    browser.open(&file, "");
    let sections = shown(&browser);
    assert!(sections.contains(&"explore".to_owned()) && !sections.contains(&"slots".to_owned()), "{sections:?}");
    let tiles = texts(&browser, "#tiles .tile");
    assert!(tiles.iter().all(|tile| !tile.contains("wasted") && !tile.contains("peak")), "{tiles:?}");
    assert!(tiles.iter().any(|tile| tile.contains("pages live at the end")), "{tiles:?}");
    let (_dir, file) = page(&data("latency-amd64-6.18"));
    browser.open(&file, "");
    assert!(
        !shown(&browser).iter().any(|id| ["slots", "caches", "leaks"].contains(&id.as_str())),
        "{:?}",
        shown(&browser)
    );
    let stalls = document(&["stalls"], &data("latency-amd64-6.18"))["rows"].as_array().unwrap().len();
    assert!(stalls > 0);
    let said = texts(&browser, "#waiting .hint").remove(0);
    assert!(said.starts_with("Tasks had to wait") && said.contains(&stalls.to_string()), "{said}");
    assert_eq!(texts(&browser, "#waiting figure line.stall").len(), stalls.min(500));
    assert_eq!(browser.console(), Vec::<String>::new());
    Ok(())
}

pub(crate) fn names_of_the_machine_need_an_option() -> Result<(), Skip> {
    let trace = data("latency-amd64-6.18");
    let summary = document(&["summary"], &trace);
    let named = |options: &[&str], member: &str| {
        let (_dir, file) = page_with(options, &trace);
        let page = fs::read_to_string(file).unwrap();
        page.contains(&format!("\"{member}\":"))
    };
    for member in ["host", "command"] {
        assert!(summary["trace"].get(member).is_some(), "{member}");
        assert!(!named(&[], member) && named(&["--with-host"], member), "{member}");
    }
    assert!(!named(&["--with-host"], "boot"), "the boot stays out");
    Ok(())
}
