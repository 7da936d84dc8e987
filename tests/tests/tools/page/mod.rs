//! The page of `html`: in a headless Chromium where there is one, its bytes everywhere.

mod pages;
mod whose;

use std::fs;

use kmemtrace_abi::text::units;
use kmemtrace_tests::browser::{Browser, key};
use kmemtrace_tests::programs::{data, document, json, run, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;
use serde_json::{Value, json};

use whose::{
    a_leak_opens_its_call_sites_and_its_stack, leaks_and_tasks_are_tables, names_of_the_machine_need_an_option,
    trees_are_those_of_the_tree_view, what_was_not_recorded_is_left_out,
};

use pages::{REPORT, page, page_with, place, recording_of, search, texts, traces};

/// Script that finds texts that are hard to read.
const CONTRASTS: &str = include_str!("contrasts.js");

const SHAPES: [&str; 4] = ["treemap", "rings", "icicle", "table"];
const SIZES: [&str; 4] = ["live", "wasted", "total", "allocs"];
/// Name of a function that is markup.
const MARKUP: &str = "</script><img/src=x/onerror=document.title=1>";

kmemtrace_tests::tests![
    the_same_input_makes_the_same_bytes,
    a_page_goes_where_it_is_told,
    a_page_asks_for_nothing,
    figures_are_those_of_the_documents,
    tables_sort_by_every_column,
    keys_walk_over_every_shape,
    a_search_dims_the_rest_and_says_its_share,
    the_address_keeps_what_is_shown,
    loss_is_hatched_and_said,
    names_are_text,
    a_saved_document_makes_a_page_that_names_what_it_lacks,
    folders_are_walked_and_searched,
    text_is_readable_in_both_themes,
    a_great_trace_makes_a_quick_page,
    trees_are_those_of_the_tree_view,
    leaks_and_tasks_are_tables,
    a_leak_opens_its_call_sites_and_its_stack,
    what_was_not_recorded_is_left_out,
    names_of_the_machine_need_an_option,
];

fn the_same_input_makes_the_same_bytes() -> Result<(), Skip> {
    let bytes = |jobs: &str| run_to(0, REPORT, &["html", "--jobs", jobs], &[&data("amd64-6.1")]);
    let once = bytes("1");
    assert!(once == bytes("1") && once == bytes("2"), "bytes differ");
    let text = String::from_utf8(once).unwrap();
    let own = std::env::current_dir().unwrap();
    assert_eq!(text.matches(own.to_str().unwrap()).count(), 1, "the path that was given, once");
    let addresses = text.matches("\"0xff").count();
    assert_eq!(addresses, 0, "addresses of objects, and of call-sites that have a symbol");
    Ok(())
}

fn a_page_goes_where_it_is_told() -> Result<(), Skip> {
    let (dir, file) = page(&data("amd64-6.18"));
    let again = run(REPORT, &["html", "-o", file.to_str().unwrap()], &[&data("amd64-6.18")]);
    assert_eq!(again.status.code(), Some(2), "a file that is there is kept");
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists already"));
    let missing = run(REPORT, &["html", "-o", dir.file("x").to_str().unwrap()], &[&dir.file("no-trace")]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(!dir.file("x").exists(), "no trace leaves no page");
    let text = run(REPORT, &["html", "--format", "json"], &[&data("amd64-6.18")]);
    assert_eq!(text.status.code(), Some(2), "a page has no other format");
    Ok(())
}

fn a_page_asks_for_nothing() -> Result<(), Skip> {
    let browser = Browser::start()?;
    for (number, (verdict, trace, _dir)) in traces().into_iter().enumerate() {
        let (_page_dir, file) = page(&trace);
        for (turn, shape) in SHAPES.iter().enumerate() {
            let sizes = SIZES.iter().cycle().skip(number + turn);
            for size in sizes.take(runs::number(1, SIZES.len() as u64) as usize) {
                browser.open(&file, &format!("#shape={shape}&size={size}"));
                let pressed = browser.run("return document.querySelector('#shapes [aria-pressed=true]').textContent");
                assert_eq!(pressed, *shape, "{}", trace.display());
            }
        }
        let word = browser.run("return document.querySelector('#word b').textContent");
        assert_eq!(word, verdict.to_uppercase(), "{}", trace.display());
        let outside = |url: &String| !["file://", "about:blank", "data:,"].iter().any(|own| url.starts_with(own));
        let requests = browser.requests();
        assert!(requests.len() >= SHAPES.len(), "each page was loaded: {requests:?}");
        let files = requests.iter().filter(|url| url.starts_with("file://") && !url.contains("page.html"));
        assert_eq!(requests.iter().filter(|url| outside(url)).chain(files).count(), 0, "{requests:?}");
        assert_eq!(browser.console(), Vec::<String>::new(), "{}", trace.display());
    }
    Ok(())
}

fn figures_are_those_of_the_documents() -> Result<(), Skip> {
    let browser = Browser::start()?;
    let n = |value: &Value| value.as_u64().unwrap();
    for name in ["amd64-6.1", "amd64-6.1-lossy", "s390x-6.1"] {
        let trace = data(name);
        let (_dir, file) = page(&trace);
        browser.open(&file, "");
        let summary = document(&["summary"], &trace);
        let total = &summary["total"];
        let tiles = texts(&browser, "#tiles .tile b");
        let bound = if total["live_is_upper_bound"] == true { "\u{2264} " } else { "" };
        let expected = [
            format!("{bound}{}", units::bytes(n(&total["live_allocated"]))),
            units::bytes(n(&total["peak_live_allocated"])),
            units::bytes(n(&total["wasted"])),
            units::bytes(n(&total["allocated"])),
            units::percent(n(&summary["pairs"]["cross_cpu"]), n(&summary["pairs"]["paired"])),
        ];
        assert_eq!(tiles[..5], expected, "{name}");
        assert_eq!(browser.run("return DATA.summary.total"), *total, "{name}");
        let root = document(&["tree"], &trace)["root"].clone();
        let members = ["live_allocated", "wasted", "allocated", "allocs", "frees", "live_objects", "live_wasted"];
        let figures = browser.run("return Object.fromEntries(Object.entries(MEMBERS).map(([k, v]) => [k, ROOT[v]]))");
        for member in members {
            assert_eq!(figures[member], root[member], "{name}: {member}");
        }
        let sums = browser.run(
            "const bad = []; (function f(n) { if (n.children.length && n.children.reduce((s, c) => s + c.live, 0) !== n.live) bad.push(n.name); n.children.forEach(f); })(ROOT); return bad",
        );
        assert_eq!(sums, json!([]), "{name}: children sum to parents");
        let cross = document(&["cross"], &trace);
        let shown = texts(&browser, "#cpus .matrix tbody td");
        let pairs = cross["matrix"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
        assert_eq!(shown, pairs.map(|pairs| units::grouped(n(pairs))).collect::<Vec<_>>(), "{name}");
        let growth = document(&["growth"], &trace);
        let live = browser.run("return DATA.growth.total.live_allocated");
        assert_eq!(live, growth["total"]["live_allocated"], "{name}");
        let first = n(&growth["trace"]["first"]);
        let ends: Vec<u64> = growth["slices"].as_array().unwrap().iter().map(|end| n(end) - first).collect();
        assert_eq!(browser.run("return DATA.growth.slices"), json!(ends), "{name}");
        let rows = |view: &[&str]| document(view, &trace)["rows"].as_array().unwrap().len();
        let shown = browser.run(
            "return [DATA.sites.rows, DATA.caches.rows, DATA.mismatch.rows, DATA.sizes.rows].map(rows => rows.length)",
        );
        let counted = [rows(&["sites"]), rows(&["caches"]), rows(&["mismatch"]), rows(&["sites", "--by", "size"])];
        assert_eq!(shown, json!(counted), "{name}");
    }
    Ok(())
}

fn tables_sort_by_every_column() -> Result<(), Skip> {
    let browser = Browser::start()?;
    let trace = data("amd64-6.1");
    let (_dir, file) = page(&trace);
    browser.open(&file, "");
    let rows = document(&["sites", "--sort", "live"], &trace)["rows"].as_array().unwrap().clone();
    let formatted = |member: &str, row: &Value| {
        let figure = row[member].as_u64().unwrap();
        let is_bytes = !["allocs", "frees", "live_objects"].contains(&member);
        if is_bytes { units::bytes(figure) } else { units::grouped(figure) }
    };
    let columns = [
        ("live", "live_allocated"),
        ("objects", "live_objects"),
        ("live_wasted", "live_wasted"),
        ("total", "allocated"),
        ("wasted", "wasted"),
        ("peak", "peak_live_allocated"),
        ("allocs", "allocs"),
        ("frees", "frees"),
    ];
    for (key, member) in columns {
        let button = format!("#sites th[data-key={key}] button");
        if key != "live" {
            browser.click(&button);
        }
        for direction in ["descending", "ascending"] {
            let sorted = browser.run(&format!(
                "return [document.querySelector('#sites th[data-key={key}]').ariaSort, document.activeElement.closest('th')?.dataset.key ?? 'live']"
            ));
            assert_eq!(sorted, json!([direction, key]), "the focus stays on the heading");
            let mut figures: Vec<&Value> = rows.iter().collect();
            figures.sort_by_key(|row| row[member].as_u64());
            if direction == "descending" {
                figures.reverse();
            }
            let expected: Vec<String> = figures.iter().map(|row| formatted(member, row)).take(50).collect();
            let shown = texts(&browser, "#sites tbody td.chosen");
            let shown: Vec<&str> = shown.iter().map(|text| text.trim_start_matches("\u{2264} ")).collect();
            assert_eq!(shown, expected, "{key} {direction}");
            if direction == "descending" {
                browser.click(&button);
            }
        }
    }
    for section in ["caches", "mismatches", "slot-rows"] {
        let keys = browser
            .run(&format!("return [...document.querySelectorAll('#{section} th')].map(head => head.dataset.key)"));
        for key in keys.as_array().unwrap() {
            browser.click(&format!("#{section} th[data-key={}] button", key.as_str().unwrap()));
            let sorted = browser.run(&format!("return document.querySelectorAll('#{section} th[aria-sort]').length"));
            assert_eq!(sorted, 1, "{section} {key}");
        }
    }
    let trace = recording_of(&(0..700).map(|number| format!("function_{number}")).collect::<Vec<_>>());
    let (_dir, file) = page(trace.path());
    browser.open(&file, "");
    for (shown, button) in [(50, "Show 500 more"), (550, "Show 150 more")] {
        let pager = texts(&browser, "#sites .pager button");
        assert_eq!((texts(&browser, "#sites tbody tr").len(), pager[0].as_str()), (shown, button));
        browser.click("#sites .pager button");
    }
    assert_eq!(texts(&browser, "#sites tbody tr").len(), 700);
    assert_eq!(browser.console(), Vec::<String>::new());
    Ok(())
}

fn keys_walk_over_every_shape() -> Result<(), Skip> {
    let browser = Browser::start()?;
    let (_dir, file) = page_with(&["--by", "folder"], &data("amd64-6.1"));
    let by_size = "return sized(ROOT.children[0], state.size).map(node => node.name)";
    for shape in SHAPES {
        browser.open(&file, &format!("#shape={shape}"));
        let functions: Vec<String> = serde_json::from_value(browser.run(by_size)).unwrap();
        let is_table = shape == "table";
        browser.run("document.querySelector('#stage [tabindex=\"0\"]').focus()");
        // A treemap has no cell for its root, the others begin with it.
        let (first, _) = place(&browser);
        let branch = browser.run("return ROOT.children[0].name").as_str().unwrap().to_owned();
        if first.as_deref() == Some("linux") {
            browser.press(&[key::DOWN]);
        }
        assert_eq!(place(&browser), (Some(branch.clone()), "linux".to_owned()), "{shape}");
        if is_table {
            browser.press(&[key::RIGHT]);
        }
        browser.press(&[key::DOWN]);
        assert_eq!(place(&browser).0.as_ref(), Some(&functions[0]), "{shape}: down to the greatest child");
        let (next, back) = if is_table { (key::DOWN, key::UP) } else { (key::RIGHT, key::LEFT) };
        browser.press(&[next]);
        assert_eq!(place(&browser).0.as_ref(), Some(&functions[1]), "{shape}: on to the next one");
        browser.press(&[back]);
        assert_eq!(place(&browser).0.as_ref(), Some(&functions[0]), "{shape}: and back");
        browser.press(&[key::ENTER]);
        let (focus, at) = place(&browser);
        assert_eq!(at, functions[0], "{shape}: into it");
        assert!(focus.is_some(), "{shape}: the focus survives drawing");
        browser.press(&[key::ESCAPE]);
        assert_eq!(place(&browser), (Some(functions[0].clone()), branch.clone()), "{shape}: out of it");
        browser.press(&[key::ESCAPE]);
        assert_eq!(place(&browser), (Some(branch), "linux".to_owned()), "{shape}: to the top");
        browser.press(&[key::ESCAPE]);
        assert_eq!(place(&browser).1, "linux", "{shape}: and no further");
    }
    browser.open(&file, "#shape=table");
    browser.click("#outline th:nth-child(4) button");
    let head = browser.run("return [document.activeElement.closest('th')?.ariaSort ?? null, state.size.key]");
    assert_eq!(head, json!(["descending", "total"]), "a heading sorts, and keeps the focus");
    browser.open(&file, "#shape=treemap");
    browser.click("#branch button");
    assert_ne!(place(&browser).1, "linux", "a call-site of the list leads to its function");
    browser.click("#path button");
    assert_eq!(place(&browser).1, "linux", "the path leads back");
    assert_eq!(browser.console(), Vec::<String>::new());
    Ok(())
}

fn a_search_dims_the_rest_and_says_its_share() -> Result<(), Skip> {
    let browser = Browser::start()?;
    let trace = data("amd64-6.1");
    let (_dir, file) = page(&trace);
    let rows = document(&["sites"], &trace)["rows"].as_array().unwrap().clone();
    let live = |takes: &dyn Fn(&str) -> bool| -> u64 {
        let taken = rows.iter().filter(|row| takes(row["symbol"].as_str().unwrap_or_default()));
        taken.map(|row| row["live_allocated"].as_u64().unwrap()).sum()
    };
    let all = live(&|_| true);
    for shape in ["treemap", "rings", "icicle"] {
        browser.open(&file, &format!("#shape={shape}"));
        for (typed, found) in [
            ("ALLOC_INODE", live(&|symbol| symbol.contains("alloc_inode"))),
            ("/alloc_(inode|file)/", live(&|symbol| symbol.contains("alloc_inode") || symbol.contains("alloc_file"))),
            ("/ALLOC_INODE/i", live(&|symbol| symbol.contains("alloc_inode"))),
        ] {
            search(&browser, typed);
            let share = browser.run("return document.getElementById('share').textContent");
            let expected = format!("{}, {} of all", units::bytes(found), units::percent(found, all));
            assert_eq!(share, expected, "{shape} {typed}");
            let dimmed = browser.run(
                "return [...drawn].every(([node, { element }]) => element.classList.contains('dim') === !node.isNear) && [document.querySelectorAll('.cell.dim').length, document.querySelectorAll('.cell:not(.dim)').length]",
            );
            assert!(dimmed[0].as_u64() > Some(0) && dimmed[1].as_u64() > Some(0), "{shape} {typed}: {dimmed}");
        }
        search(&browser, "/alloc(/");
        let said = browser.run("return document.getElementById('share').textContent");
        assert!(said.as_str().unwrap().starts_with("no regular expression"), "{said}");
        search(&browser, "no such name");
        assert_eq!(browser.run("return document.getElementById('share').textContent"), "no match");
        browser.run("document.getElementById('find').focus()");
        browser.press(&[key::ESCAPE]);
        assert_eq!(browser.run("return document.querySelectorAll('.cell.dim').length"), 0, "Escape ends the search");
    }
    search(&browser, "alloc_inode");
    let rows = texts(&browser, "#sites tbody tr");
    assert!(!rows.is_empty() && rows.iter().all(|row| row.contains("alloc_inode")), "{rows:?}");
    assert_eq!(browser.console(), Vec::<String>::new());
    Ok(())
}

fn the_address_keeps_what_is_shown() -> Result<(), Skip> {
    let browser = Browser::start()?;
    let (_dir, file) = page(&data("amd64-6.1"));
    browser.open(&file, "");
    browser.click("#shapes [data-shape=rings]");
    browser.run(
        "const size = document.getElementById('size'); size.value = 'wasted'; size.dispatchEvent(new Event('change'))",
    );
    browser.click("#branch button");
    browser.click("#sites th[data-key=peak] button");
    search(&browser, "a/b&c=%41");
    let seen = "return JSON.stringify([state.shape, state.size.key, pathOf(state.at), state.find, state.sorts])";
    let before = browser.run(seen);
    let fragment = browser.run("return location.hash").as_str().unwrap().to_owned();
    browser.open(&file, &fragment);
    assert_eq!(browser.run(seen), before, "{fragment}");
    let sorted = browser.run("return document.querySelector('#sites th[data-key=peak]').ariaSort");
    assert_eq!(sorted, "descending");
    browser.open(&file, "");
    browser.click("#branch button");
    browser.run("history.back()");
    browser.wait_for("return state.at === ROOT");
    for nonsense in ["#shape=&size=%&at=%E0%A4%A/x/y&sites=.&find=%", "#=&&==", "#at=////", "#shape=__proto__&size=x"] {
        browser.open(&file, nonsense);
        assert_eq!(browser.run("return state.at === ROOT && state.size.key"), "live", "{nonsense}");
    }
    assert_eq!(browser.console(), Vec::<String>::new());
    Ok(())
}

fn loss_is_hatched_and_said() -> Result<(), Skip> {
    let browser = Browser::start()?;
    let lossy = data("amd64-6.1-lossy");
    let (_dir, file) = page(&lossy);
    browser.open(&file, "");
    let events = run_to(0, REPORT, &["events", "--format", "jsonl"], &[&lossy]);
    let events = String::from_utf8(events).unwrap();
    let gaps: Vec<Value> = events.lines().map(|line| json(line.as_bytes())).filter(|e| e["event"] == "gap").collect();
    let loss = browser.run("return DATA.loss");
    let first = document(&["summary"], &lossy)["trace"]["first"].as_u64().unwrap();
    let since = |value: &Value| value.as_u64().unwrap().saturating_sub(first);
    for gap in &gaps {
        let is_in =
            |run: &&Value| run[0].as_u64() <= Some(since(&gap["from"])) && Some(since(&gap["at"])) <= run[1].as_u64();
        assert_eq!(loss.as_array().unwrap().iter().filter(is_in).count(), 1, "{gap} in {loss}");
    }
    assert!(gaps.len() > 1, "{gaps:?}");
    let drawn = browser.run("return document.querySelectorAll('#time figure rect.lossy').length");
    assert_eq!(drawn, loss.as_array().unwrap().len());
    assert!(texts(&browser, "#time .hint")[0].starts_with("hatched: events may be missing"));
    let (_dir, file) = page(&data("amd64-6.1"));
    browser.open(&file, "");
    assert_eq!(browser.run("return document.querySelectorAll('#time .lossy').length"), 0);
    Ok(())
}

fn names_are_text() -> Result<(), Skip> {
    let unseen = "cod\u{202e}exe\u{200b}.";
    let names = [MARKUP, "__proto__", "constructor", unseen, "<!--", "plain"].map(str::to_owned);
    let trace = recording_of(&names);
    let (_dir, file) = page(trace.path());
    let bytes = fs::read_to_string(&file).unwrap();
    assert!(!bytes.contains("<img") && !bytes.contains('\u{202e}'), "no markup, and nothing unseen, in the file");
    let browser = Browser::start()?;
    for shape in SHAPES {
        browser.open(&file, &format!("#shape={shape}&find={}", "%3C%2Fscript%3E"));
        assert_eq!(browser.run("return [document.images.length, document.scripts.length]"), json!([0, 2]), "{shape}");
        assert!(texts(&browser, "#sites tbody td:last-child")[0].starts_with(MARKUP), "{shape}");
        let title = browser.run("return document.title");
        assert!(title.as_str().unwrap().starts_with("kmemtrace: "), "{title}");
    }
    browser.open(&file, "#shape=table");
    let all = texts(&browser, "#sites tbody td:last-child").join("\n");
    for name in ["__proto__", "constructor", "<!--", "plain", r"cod\u{202e}exe\u{200b}."] {
        assert!(all.contains(name), "{name} in {all}");
    }
    assert_eq!(browser.console(), Vec::<String>::new());
    Ok(())
}

fn a_saved_document_makes_a_page_that_names_what_it_lacks() -> Result<(), Skip> {
    let (dir, trace) = (Directory::new(&[]), data("amd64-6.1-lossy"));
    let saved = dir.file("sites.json");
    run_to(0, REPORT, &["sites", "--format", "json", "-o", saved.to_str().unwrap()], &[&trace]);
    let by_folder = |trace| page_with(&["--by", "folder"], trace);
    let (_dir, file) = by_folder(&saved);
    let browser = Browser::start()?;
    browser.open(&file, "");
    assert!(
        ["leaks", "waiting", "tasks"]
            .iter()
            .all(|section| { browser.run(&format!("return document.getElementById('{section}').hidden")) == true })
    );
    for section in ["time", "cpus", "slots", "caches", "mismatches"] {
        let said = texts(&browser, &format!("#{section} .body"));
        assert_eq!(said, ["Not in this input: a saved document does not have it."], "{section}");
    }
    let of_document = (texts(&browser, "#sites tbody tr"), browser.run("return DATA.trees[0]"));
    assert_eq!(browser.console(), Vec::<String>::new());
    let (_dir, file) = by_folder(&trace);
    browser.open(&file, "");
    assert_eq!((texts(&browser, "#sites tbody tr"), browser.run("return DATA.trees[0]")), of_document);
    let (_dir, file) = page(&saved);
    browser.open(&file, "");
    assert_eq!(
        browser.run("return [TREE.by, ROOT.children.map(node => node.name)]"),
        json!([["module"], ["(kernel)"]])
    );
    Ok(())
}

fn folders_are_walked_and_searched() -> Result<(), Skip> {
    let deep = format!("{}end.c", "d/".repeat(300));
    let files = ["fs/ext4/inode.c", "fs/ext4/dir.c", "fs/<b>\u{202e}/x.c", "mm/util.c", &deep];
    let mut sites = document(&["sites"], &data("amd64-6.1"));
    let rows = sites["rows"].as_array_mut().unwrap();
    for (number, row) in rows.iter_mut().enumerate() {
        let file = files[number % files.len()];
        row["source"] = json!({ "function": row["symbol"], "file": file, "line": number + 1 });
        row["folder"] = file.rsplit_once('/').unwrap().0.into();
        row["folder_from"] = "dwarf".into();
    }
    let live = |file: &str| -> u64 {
        let of_file = rows.iter().filter(|row| row["source"]["file"].as_str().unwrap().starts_with(file));
        of_file.map(|row| row["live_allocated"].as_u64().unwrap()).sum()
    };
    let [all, ext4] = [live(""), live("fs/ext4/")];
    let dir = Directory::new(&[("sites.json".to_owned(), sites.to_string().into_bytes())]);
    let (_page, file) = page(&dir.file("sites.json"));
    let browser = Browser::start()?;
    for shape in SHAPES {
        browser.open(&file, &format!("#shape={shape}&at=fs/ext4"));
        let sum = texts(&browser, "#path .sum").remove(0);
        let shown = (units::bytes(ext4), units::percent(ext4, all));
        assert_eq!(sum, format!("{} live at the end, {} of all", shown.0, shown.1), "{shape}");
        assert_eq!(texts(&browser, "#path button"), ["linux", "fs", "ext4"], "{shape}");
        search(&browser, "/^fs\\/ext4/");
        assert_eq!(texts(&browser, "#share"), [format!("{}, {} of all", shown.0, shown.1)], "{shape}");
        let places = texts(&browser, "#branch .line");
        assert!(
            !places.is_empty() && places.iter().all(|place| place.starts_with("fs/ext4/") && place.contains(".c:")),
            "{places:?}"
        );
    }
    browser.open(&file, "#shape=table&at=fs");
    let names = texts(&browser, "#outline td.text").join(" ");
    assert!(names.contains(r"<b>\u{202e}"), "{names}");
    assert_eq!(browser.console(), Vec::<String>::new());
    Ok(())
}

fn text_is_readable_in_both_themes() -> Result<(), Skip> {
    let browser = Browser::start()?;
    for name in ["amd64-6.1", "amd64-6.1-lossy"] {
        let (_dir, file) = page(&data(name));
        for theme in ["light", "dark"] {
            browser.set_media("prefers-color-scheme", theme);
            for shape in SHAPES {
                for find in ["", "alloc_inode"] {
                    browser.open(&file, &format!("#shape={shape}&find={find}"));
                    assert_eq!(browser.run("return dark()"), theme == "dark");
                    let found = browser.run(CONTRASTS);
                    assert!(found[0].as_u64() > Some(300), "texts: {}", found[0]);
                    assert_eq!(found[1], json!([]), "{name} {theme} {shape} {find:?}");
                }
            }
        }
    }
    Ok(())
}

fn a_great_trace_makes_a_quick_page() -> Result<(), Skip> {
    let name = |number: usize| format!("subsystem{}_driver_object_alloc_{number}", number % 41);
    let trace = recording_of(&(0..10_000).map(name).collect::<Vec<_>>());
    let (_dir, file) = page(trace.path());
    let bytes = fs::metadata(&file).unwrap().len();
    let mut sites = document(&["sites"], trace.path());
    for (number, row) in sites["rows"].as_array_mut().unwrap().iter_mut().enumerate() {
        let file = format!("drivers/subsystem{}/driver/object_{}.c", number % 41, number % 2_000);
        row["source"] = json!({ "function": row["symbol"], "file": file, "line": number });
        row["folder"] = file.rsplit_once('/').unwrap().0.into();
    }
    let dir = Directory::new(&[("sites.json".to_owned(), sites.to_string().into_bytes())]);
    let (_page, with_sources) = page(&dir.file("sites.json"));
    let bytes_with_sources = fs::metadata(&with_sources).unwrap().len();
    assert!(bytes.max(bytes_with_sources) <= 3 << 20, "{bytes} bytes, {bytes_with_sources} with sources");
    println!("  {bytes} bytes, {bytes_with_sources} with sources");
    let browser = Browser::start()?;
    let usable = (0..10).map(|number| {
        browser.open(if number % 2 == 0 { &file } else { &with_sources }, "");
        let nodes = browser.run("return [nodeCount + TREE.folded, drawn.size]");
        assert!(nodes[0].as_u64() > Some(10_000) && nodes[1].as_u64() > Some(100), "{nodes}");
        browser.run("return performance.getEntriesByType('navigation')[0].domInteractive").as_f64().unwrap()
    });
    let quickest = usable.fold(f64::MAX, f64::min);
    assert!(quickest < 1_000.0, "usable after {quickest} ms");
    let said = texts(&browser, "#shows").join(" ");
    let nodes = browser.run("return nodeCount").as_u64().unwrap();
    assert!(nodes <= 20_000 && said.contains("smaller ones are folded"), "{nodes}: {said}");
    Ok(())
}
