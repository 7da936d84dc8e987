//! Profiles and folded stacks in speedscope, whose page a browser opens from the package of npm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use kmemtrace_tests::browser::Browser;
use kmemtrace_tests::npm;
use kmemtrace_tests::programs::{data, json, run_to};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

use super::{REPORT, exported};

/// Title of the last column of the page's table.
const TITLE: &str = "Symbol Name";

/// Texts of the page in its view of functions, once it has loaded the file and shows these functions.
fn texts<'f>(
    browser: &Browser,
    page: &Path,
    file: &Path,
    functions: impl Iterator<Item = &'f String>,
) -> Result<Vec<String>, Skip> {
    // The page takes a file's bytes from a script, as from speedscope's own command line.
    let load = r#"
const [file, script] = process.argv.slice(1), fs = require('fs');
const bytes = fs.readFileSync(file).toString('base64');
fs.writeFileSync(script, `speedscope.loadFileFromBase64("exported", "${bytes}")`);
"#;
    let place = Directory::new(&[]);
    let script = place.file("load.js");
    let node = Command::new("node").args(["-e", load]).args([file, &script]).output();
    let node = node.map_err(|_| Skip("node is not installed: package nodejs".to_owned()))?;
    assert!(node.status.success(), "{}", String::from_utf8_lossy(&node.stderr));
    browser.load(page, &format!("#localProfilePath={}&view=sandwich", script.display()));
    let words: Vec<&str> = functions.map(String::as_str).chain([TITLE]).collect();
    let words = serde_json::to_string(&words).unwrap();
    browser.wait_for(&format!("return {words}.every(word => document.body.textContent.includes(word))"));
    let shown = browser.run("return document.documentElement.outerHTML");
    let all = shown.as_str().unwrap().split('<').filter_map(|tag| tag.split_once('>')).map(|(_, text)| text.trim());
    Ok(all.filter(|text| !text.is_empty()).map(str::to_owned).collect())
}

/// Weights of functions in the table of the page, without those that have none of their own.
fn weights(texts: &[String]) -> BTreeMap<String, String> {
    let rows: Vec<&String> = texts.iter().skip_while(|text| *text != TITLE).skip(1).collect();
    let row = |row: &[&String]| {
        // Total, own weight and name; a weight has its percentage behind it.
        let (weight, _) = row[1].rsplit_once(" (").unwrap_or_else(|| panic!("{row:?}"));
        (row[2].clone(), weight.replace(',', ""))
    };
    rows.chunks_exact(3).map(row).filter(|(_, weight)| weight != "0" && weight != "0 B").collect()
}

/// Bytes below a mebibyte as speedscope prints them.
fn bytes(number: u64) -> String {
    let kibibytes = number as f64 / 1024.0;
    if kibibytes < 1.0 { format!("{number} B") } else { format!("{kibibytes:.2} KB") }
}

pub(crate) fn shows_the_bytes_of_each_function() -> Result<(), Skip> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("speedscope");
    let page: PathBuf = npm::package(&place, "speedscope", "1.25.0")?.join("dist/release/index.html");
    let trace = data("amd64-6.1");
    let by_function = ["sites", "--no-index", "--by", "function", "--format", "json"];
    let mut wasted = BTreeMap::<String, u64>::new();
    for row in json(&run_to(0, REPORT, &by_function, &[&trace]))["rows"].as_array().unwrap() {
        let function = row["function"].as_str().unwrap_or_else(|| panic!("{row}"));
        *wasted.entry(function.to_owned()).or_default() += row["wasted"].as_u64().unwrap();
    }
    wasted.retain(|_, bytes| *bytes > 0);
    assert!(wasted.len() > 10);
    let browser = Browser::start()?;
    // The table draws the rows that the window has room for.
    browser.resize(1200, 4000);
    let profile = exported("pprof", &[], &trace);
    let shown = weights(&texts(&browser, &page, &profile.file("exported"), wasted.keys())?);
    let expected: BTreeMap<String, String> =
        wasted.iter().map(|(name, number)| (name.clone(), bytes(*number))).collect();
    assert_eq!(shown, expected);
    let folded = exported("folded", &[], &trace);
    let shown = weights(&texts(&browser, &page, &folded.file("exported"), wasted.keys())?);
    let expected: BTreeMap<String, String> =
        wasted.into_iter().map(|(name, number)| (name, number.to_string())).collect();
    assert_eq!(shown, expected);
    Ok(())
}
