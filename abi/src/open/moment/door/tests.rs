use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::open::options::OpenOptions;
use crate::trace::TextInfo;

const HEAD: &str = "Page allocated via order 0, mask 0xcc0(GFP_KERNEL), pid 7, tgid 7 (a&b), ts 1200 ns\n";
const BLOCK: &str =
    "PFN 0x1000 type Unmovable Block 8 type Unmovable Flags 0x0()\n example_open+0x1c/0x40 [exampledrv]\n\n";
const SLABS: &str = "slabinfo - version: 2.1\n\
    # name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> <batchcount> <sharedfactor>\n\
    example_cache         12     21    192   21    1 : tunables    0    0    0 : slabdata      1      1      0\n";

fn dump() -> String {
    [HEAD, BLOCK, HEAD, &BLOCK.replace("0x1000", "0x1001")].concat()
}

/// Form, facts and troubles of each text.
fn texts(text: &[u8]) -> Vec<(&'static str, TextInfo, Vec<Trouble>)> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text).unwrap();
    let options = OpenOptions::default();
    let texts = read(&mut Lines::new(Arc::new(file)), About { path: Path::new("text"), options: &options }).unwrap();
    let of = |text: Text| {
        let (info, troubles) = text.collector.told();
        (text.name.form, info.clone(), troubles)
    };
    texts.into_iter().map(of).collect()
}

fn counts(text: &str) -> Vec<(&'static str, u64, u64)> {
    texts(text.as_bytes()).into_iter().map(|(form, info, _)| (form, info.entries, info.skipped_lines)).collect()
}

#[test]
fn noise_is_taken_off_and_not_counted() {
    let plain = dump();
    let each = |change: &dyn Fn(&str) -> String| plain.lines().map(|line| change(line) + "\n").collect::<String>();
    for text in [
        plain.clone(),
        format!("~ # cat /sys/kernel/debug/page_owner\n{plain}~ # "),
        each(&|line| format!("> {line}")),
        each(&|line| format!("| {line}")),
        each(&|line| format!("[   12.345678] {line}")),
        each(&|line| format!("Nov 26 11:27:31 host kernel: [   12.345678][  T123] {line}")),
        each(&|line| format!("{line}\r")),
        each(&|line| format!("\x1b[32m{line}\x1b[m")),
        plain.replace('&', "&amp;"),
        format!("\u{feff}{plain}"),
        format!("\0\0\0\0{plain}"),
        format!("Thu Nov 26 11:27:31 UTC 2026\n{plain}"),
        each(&|line| format!("2026-11-26 11:27:31 {line}")),
        each(&|line| format!("2026-11-26 11:27:31,345 {line}")),
        each(&|line| format!("2026-11-26 11:27:31+00:00 {line}")),
        each(&|line| format!("2026-11-26 11:27:31 {line}").trim_end().to_owned()),
        each(&|line| format!("Nov 26 11:27:31 host kernel: {line}").trim_end().to_owned()),
        each(&|line| format!("6,1234,12345678,-;{line}")),
    ] {
        assert_eq!(counts(&text), [("dump", 2, 0)], "{text}");
        assert!(texts(text.as_bytes())[0].2.is_empty(), "{text}");
    }
}

#[test]
fn other_lines_are_skipped_and_counted() {
    let text = format!("rubbish\n{HEAD}more rubbish\n{BLOCK}{}\n{HEAD}{BLOCK}end\n", "x".repeat(1 << 20));
    assert_eq!(counts(&text), [("dump", 2, 4)]);
    assert_eq!(counts("rubbish\n"), []);
    assert_eq!(counts(""), []);
}

#[cfg(feature = "inputs")]
#[test]
fn a_log_has_several_forms_behind_each_other() {
    let text = format!("{}\n{SLABS}\n{HEAD}{BLOCK}", dump());
    assert_eq!(counts(&text), [("dump", 3, 0), ("slabinfo", 1, 0)]);
}

/// A command or a date begins the next text of a series.
#[cfg(feature = "inputs")]
#[test]
fn texts_of_one_form_behind_each_other_are_several() {
    let dates = ["Thu Nov 26 11:27:31 UTC 2026\n", "2026-11-26T12:27:31+01:00\n"];
    let text = format!("{}{}{}\n{}", dates[0], dump(), dates[1], dump());
    let of = |text: &str| -> Vec<(u64, Option<i64>)> {
        texts(text.as_bytes()).iter().map(|(_, info, _)| (info.entries, info.taken_at)).collect()
    };
    assert_eq!(of(&text), [(2, Some(1_795_692_451)), (2, Some(1_795_692_451))]);
    let text = format!("# cat owners\n{}# cat owners\n{}", dump(), dump());
    assert_eq!(of(&text), [(2, None), (2, None)]);
    assert_eq!(of(&SLABS.repeat(3)), [(1, None); 3]);
}

#[test]
#[cfg(feature = "inputs")]
fn a_report_on_a_slab_begins_with_a_rule() {
    let rule = "=".repeat(77);
    let report =
        format!("{rule}\nBUG a (Not tainted): Objects remaining on __kmem_cache_shutdown()\nObject 0x1 @offset=0\n");
    assert_eq!(counts(&report), [("slab_report", 1, 0)]);
    assert_eq!(counts(&format!("other\n[    1.0] {report}")), [("slab_report", 1, 1)]);
    assert_eq!(counts(&format!("{rule}\n{}", dump())), [("dump", 2, 1)]);
}

#[test]
fn loss_and_cuts_are_told() {
    let messages = |text: String| -> Vec<Trouble> { texts(text.as_bytes()).remove(0).2 };
    assert_eq!(messages(format!("{}** 12 printk messages dropped **\n", dump())), [Trouble::Dropped]);
    let failed = messages(format!("{}cat: owners: Cannot allocate memory\n", dump()));
    assert!(matches!(failed[..], [Trouble::Cut(_)]), "{failed:?}");
    assert_eq!(counts(&format!("{}cat: owners: Cannot allocate memory\n", dump())), [("dump", 2, 0)]);
    for len in HEAD.len() + BLOCK.len()..dump().len() {
        let cut = texts(&dump().as_bytes()[..len]);
        let whole = dump()[..len].matches("\n\n").count() as u64;
        let of_cut = cut.first().map(|(_, info, faults)| (info.entries, faults.len()));
        let is_whole = dump()[..len].ends_with("]\n") || dump()[..len].ends_with("\n\n");
        let entries = whole + u64::from(dump()[..len].ends_with("]\n"));
        assert_eq!(of_cut.unwrap_or_default(), (entries, usize::from(!is_whole)), "{len}");
    }
}
