use super::super::dump_page::DumpPage;
use super::super::entry::{Reader, Trouble};
use super::super::trial::{Sums, Told, before, behind, damage, read};
use super::*;

/// Blocks as Linux 6.8 and later dumps them.
const DUMP_TEXT: &str = "\
Page allocated via order 2, mask 0x2a20(GFP_ATOMIC|__GFP_NOWARN), pid 77, tgid 70 (exa, (mp) le), ts 1200 ns
PFN 0x1000 type Unmovable Block 8 type Unmovable Flags 0x0()
 post_alloc_hook+0x1a0/0x200
 example_open+0x1c/0x40 [exampledrv]
Charged (via objcg) to offline memcg example.service

Page allocated via order 0, mask 0xcc0(GFP_KERNEL), pid 1, tgid 1 (init), ts 1300 ns
PFN 0x2001 type Unmovable Block 16 type Movable Flags 0x40(slab)
 allocate_slab+0x2d0/0x3f0
 getname_flags+0x4c/0x200
Page has been migrated, last migrate reason: compaction

";

const OLD_TEXT: &str = "\
Page allocated via order 2, mask 0x2a20
PFN 4096 Block 8 type 0          Flags   RU        
 [<ffffffff81234567>] post_alloc_hook+0x1a0/0x200
 [<ffffffffc0a01234>] example_open+0x1c/0x40 [exampledrv]

Page allocated via order 0, mask 0xcc0
PFN 8193 Block 16 type 0 Fallback Flags   RU   S    
 [<ffffffff81234000>] allocate_slab+0x2d0/0x3f0
 [<ffffffff81235000>] getname_flags+0x4c/0x200

";

const SORTED_TEXT: &str = "\
1 times, 4 pages, allocated by OTHERS :
Page allocated via order 2, mask 0x2a20(GFP_ATOMIC|__GFP_NOWARN), pid 77, tgid 70 (exa, (mp) le), ts  ns
 post_alloc_hook+0x1a0/0x200
 example_open+0x1c/0x40 [exampledrv]
Charged (via objcg) to offline memcg example.service

1 times, 1 pages, allocated by SLAB :
Page allocated via order 0, mask 0xcc0(GFP_KERNEL), pid 1, tgid 1 (init), ts  ns
 allocate_slab+0x2d0/0x3f0
 getname_flags+0x4c/0x200

";

const CULLED_TEXT: &str = "\
1 times, 4 pages, PID 77, TGID 70, task_comm_name: exa, (mp) le, allocated by OTHERS :
 post_alloc_hook+0x1a0/0x200
 example_open+0x1c/0x40 [exampledrv]
Charged (via objcg) to offline memcg example.service

1 times, 1 pages, PID 1, TGID 1, task_comm_name: init, allocated by SLAB :
 allocate_slab+0x2d0/0x3f0
 getname_flags+0x4c/0x200

";

const STACKS_TEXT: &str = "\
 post_alloc_hook+0x1a0/0x200
 example_open+0x1c/0x40 [exampledrv]
nr_base_pages: 4

 allocate_slab+0x2d0/0x3f0
 getname_flags+0x4c/0x200
nr_base_pages: 1

";

const CRASH_TEXT: &str = "\
PFN 4096(0x1000) paddr 1000000 page_owner ffff888100000000
Page allocated via order 2, mask 0x2a20, pid 77, tgid 70 (exa, (mp) le), ts 1200 ns, free_ts 0 ns
[alloc]
  post_alloc_hook+0x1a0
  example_open+0x1c [exampledrv]
free
  example_release+0x1c [exampledrv]

PFN 8193(0x2001) paddr 2001000 page_owner ffff888100000040
Page allocated via order 0, mask 0xcc0, pid 1, tgid 1 (init), ts 1300 ns, free_ts 0 ns
[alloc]
  allocate_slab+0x2d0
  getname_flags+0x4c

";

const GDB_TEXT: &str = "\
Page allocated via order 2, gfp_mask: 0x2a20, pid: 77, tgid: 70 (\"exa, (mp) le\\000\\000\\000\"), ts 1200 ns, free_ts 0 ns
PFN: 4096, Flags: 0x40
   0xffffffff81234567 <post_alloc_hook+416>:\tmov    %rax,%rbx
   0xffffffffc0a01234 <example_open+28>:\tmov    %rax,%rbx
Page allocated via order 0, gfp_mask: 0xcc0, pid: 1, tgid: 1 (init), ts 1300 ns, free_ts 0 ns
PFN: 8193, Flags: 0x40
   0xffffffff81234000 <allocate_slab+720>:\tmov    %rax,%rbx
   0xffffffff81235000 <getname_flags+76>:\tmov    %rax,%rbx
";

const DRGN_TEXT: &str = "\
Page allocated via order 2, gfp_mask: 0x2a20, pid: 77, tgid: 70 (exa, (mp) le), ts 1200 ns, free_ts 0 ns
PFN: 4096, Flags: 0x40
#0  post_alloc_hook (mm/page_alloc.c:1:2)
#1  example_open (drivers/x.c:12:3)
Page allocated via order 0, gfp_mask: 0xcc0, pid: 1, tgid: 1 (init), ts 1300 ns, free_ts 0 ns
PFN: 8193, Flags: 0x40
#0  allocate_slab (mm/slub.c:1:2)
#1  getname_flags (fs/namei.c:1:2)
";

const LOG_TEXT: &str = "\
page:000000001234abcd refcount:1 mapcount:0 mapping:0000000000000000 index:0x1 pfn:0x1000
flags: 0x40(head|node=0|zone=1)
page dumped because: example reason
page_owner tracks the page as allocated
page last allocated via order 2, migratetype Unmovable, gfp_mask 0x2a20(GFP_ATOMIC), pid 77, tgid 70 (exa, (mp) le), ts 1200, free_ts 800
 post_alloc_hook+0x1a0/0x200
 example_open+0x1c/0x40 [exampledrv]
page last free pid 77 tgid 70 stack trace:
 example_release+0x1c/0x40 [exampledrv]
page: refcount:1 mapcount:0 mapping:0000000000000000 index:0x1 pfn:0x2001
page_owner tracks the page as allocated
page last allocated via order 0, migratetype Unmovable, gfp_mask 0xcc0(GFP_KERNEL), pid 1, tgid 1 (init), ts 1300, free_ts 0
 allocate_slab+0x2d0/0x3f0
 getname_flags+0x4c/0x200
page_owner free stack trace missing
";

fn blocks(text: &str) -> Told {
    read(Blocks::default, text.as_bytes())
}

type BlockFacts = (String, Option<u64>, Option<i32>, Option<String>, u64);

/// Outermost frame without offset and address, pages, thread, command and frame number of each entry.
fn facts(told: &Told) -> Vec<BlockFacts> {
    let of = |name: Option<&String>| {
        let name = name.map_or("", |name| name.split(" at ").next().unwrap_or(name));
        let (function, module) = name.split_once(' ').unwrap_or((name, ""));
        format!("{} {module}", function.split('+').next().unwrap_or(function)).trim_end().to_owned()
    };
    told.entries
        .iter()
        .map(|entry| (of(entry.stack.last()), entry.pages, entry.pid, entry.comm.clone(), entry.address))
        .collect()
}

/// One set of blocks in each form: the same as far as the form tells it.
#[test]
fn all_forms_tell_the_same_blocks() {
    let comms = [Some("exa, (mp) le".to_owned()), Some("init".to_owned())];
    let none = [None, None];
    let (pids, no_pids) = ([Some(77), Some(1)], [None, None]);
    let (pfns, no_pfns) = ([0x1000, 0x2001], [0, 0]);
    for (text, form, pids, comms, pfns) in [
        (DUMP_TEXT, "dump", pids, &comms, pfns),
        (OLD_TEXT, "dump", no_pids, &none, pfns),
        (SORTED_TEXT, "sorted", pids, &comms, no_pfns),
        (CULLED_TEXT, "culled", pids, &comms, no_pfns),
        (STACKS_TEXT, "stacks", no_pids, &none, no_pfns),
        (CRASH_TEXT, "dump", pids, &comms, pfns),
        (GDB_TEXT, "dump", pids, &comms, pfns),
        (DRGN_TEXT, "dump", pids, &comms, pfns),
        (LOG_TEXT, "dump_page", pids, &comms, pfns),
    ] {
        let told = if form == "dump_page" { read(DumpPage::default, text.as_bytes()) } else { blocks(text) };
        let has_modules = text.contains("[exampledrv]");
        let sites = [if has_modules { "example_open [exampledrv]" } else { "example_open" }, "getname_flags"];
        let expected = [0, 1].map(|at| (sites[at].to_owned(), Some([4, 1][at]), pids[at], comms[at].clone(), pfns[at]));
        assert_eq!(facts(&told), expected, "{text}");
        let names: Vec<&str> = told.entries.iter().map(|entry| entry.stack[0].split('+').next().unwrap()).collect();
        assert_eq!(names, ["post_alloc_hook", "allocate_slab"], "{text}");
        assert_eq!((told.others, &told.troubles[..]), (0, &[][..]), "{text}");
        if form != "dump_page" {
            let mut reader = Blocks::default();
            text.lines().for_each(|line| assert_eq!(reader.take(line.as_bytes(), &mut Told::default()), Took::Line));
            reader.end(false, &mut Told::default());
            assert_eq!(reader.form().unwrap().form, form);
        }
    }
}

/// The most that the lines of a text may tell: each header a block, each count line its counts. Where a count line has no pages they are
/// those of that many blocks of its header's order.
fn most(text: &[u8]) -> Sums {
    let pages_of = |line: &[u8]| behind(line, "order").map_or(0, |order| 1u64 << order.min(63));
    let largest = text.split(|byte| *byte == b'\n').map(pages_of).max().unwrap_or(0);
    Sums::of_lines(text, |line| {
        let times = before(line, "times");
        let counts = [times, behind(line, "stack_count").unwrap_or(0), pages_of(line).min(1)];
        let pages = [
            pages_of(line),
            before(line, "pages"),
            times.saturating_mul(largest),
            behind(line, "nr_base_pages").unwrap_or(0),
        ];
        let sum = |numbers: &[u64]| numbers.iter().copied().fold(0, u64::saturating_add);
        Sums { objects: sum(&counts), pages: sum(&pages), ..Sums::default() }
    })
}

#[test]
fn damage_does_no_harm() {
    for text in [DUMP_TEXT, OLD_TEXT, SORTED_TEXT, CULLED_TEXT, STACKS_TEXT, CRASH_TEXT, GDB_TEXT, DRGN_TEXT] {
        damage(Blocks::default, text.as_bytes(), most);
    }
    let handles = "handle: 42\nnr_base_pages: 16\n\nhandle: 43\nnr_base_pages: 1\n\n";
    let lines = "3 times, 12 pages, PID 77\n1 times, 1 pages, PID 1\n";
    let stacks = " example_open+0x1c/0x40\nhandle: 42\n\n example_release+0x1c/0x40\nhandle: 43\n\n";
    for text in [handles, lines, stacks] {
        damage(Blocks::default, text.as_bytes(), most);
    }
    damage(DumpPage::default, LOG_TEXT.as_bytes(), most);
}

#[test]
fn counts_of_page_owner_sort_and_of_stacks_are_read() {
    let sums = |text: &str| -> Vec<(Option<u64>, Option<u64>)> {
        let told = blocks(text);
        assert_eq!((told.others, &told.troubles[..]), (0, &[][..]), "{text}");
        told.entries.iter().map(|entry| (entry.objects, entry.pages)).collect()
    };
    assert_eq!(sums("3 times:\nPage allocated via order 2, mask 0x0\n a+0x1/0x2\n\n"), [(Some(3), Some(12))]);
    assert_eq!(sums("3 times, 13 pages:\nPage allocated via order 2, mask 0x0\n a+0x1/0x2\n\n"), [(Some(3), Some(13))]);
    assert_eq!(
        sums(
            "3 times, 12 pages, PID 77, TGID 70, task_comm_name: a:b\n1 times, 1 pages, PID 1, TGID 1, task_comm_name: c\n"
        ),
        [(Some(3), Some(12)), (Some(1), Some(1))]
    );
    assert_eq!(
        sums(" a+0x1/0x2\nstack_count: 5\n\n b+0x1/0x2\nstack_count: 6\n\n"),
        [(Some(5), None), (Some(6), None)]
    );
    assert_eq!(sums(" a+0x1/0x2\nnr_base_pages: 5\n"), [(None, Some(5))]);
    let told = blocks("handle: 42\nnr_base_pages: 16\n\n");
    assert_eq!((told.entries[0].site.as_str(), told.entries[0].pages), ("handle 42", Some(16)));
    let told = blocks(" a+0x1/0x2\nhandle: 42\n\n");
    assert!(told.entries.is_empty() && told.troubles.is_empty() && told.facts.len() == 1, "{told:?}");
}

#[test]
fn modes_of_a_dump_have_handles() {
    let text =
        DUMP_TEXT.replace(" post_alloc_hook+0x1a0/0x200\n example_open+0x1c/0x40 [exampledrv]\n", "handle: 42\n");
    let told = blocks(&text);
    assert_eq!((told.entries[0].site.as_str(), told.entries[1].site.as_str()), ("handle 42", ""));
    let text = DUMP_TEXT.replace("[exampledrv]\n", "[exampledrv]\nhandle: 42\n");
    let told = blocks(&text);
    assert_eq!((told.entries[0].site.as_str(), told.entries.len()), ("", 2));
    assert!(told.facts.iter().any(|fact| fact.starts_with("HandleStack(42")), "{:?}", told.facts);
}

#[test]
fn made_up_stacks_have_words() {
    for (function, word) in [
        ("register_early_stack", "before page_owner"),
        ("register_dummy_stack.isra.0", "no stack"),
        ("register_failure_stack", "no stack"),
    ] {
        let told =
            blocks(&DUMP_TEXT.replace(" post_alloc_hook+", &format!(" create_dummy_stack+0x1/0x2\n {function}+")));
        assert_eq!((told.entries[0].site.as_str(), &told.entries[0].stack[..]), (word, &[word.to_owned()][..]));
        assert_eq!(told.entries[1].site, "");
    }
}

/// Lines without sense are skipped, blocks that lack what their count needs are left out, and reading goes on.
#[test]
fn nonsense_ends_no_text() {
    let (skipped, cut) = (Trouble::SkippedBlock, Trouble::Cut("ends inside a block"));
    for (from, to, entries, others, trouble) in [
        (" example_open", "rubbish\n example_open", 2, 1, None),
        ("PFN 0x1000", "rubbish", 2, 1, None),
        ("order 2", "order x", 1, 0, Some(skipped(owner_lines::NO_ORDER))),
        ("order 2", "order 64", 1, 0, Some(skipped("has a number out of range"))),
        ("ts 1200", "ts 9223372036854775808", 1, 0, Some(skipped("has a number out of range"))),
        ("PFN 0x1000", "PFN 0xffffffffffffffff", 1, 0, Some(skipped("has a number out of range"))),
        ("Page allocated via order 2", "rubbish", 1, 1, Some(Trouble::Cut("begins inside a block"))),
        ("Page allocated via order 0", "rubbish", 1, 1, Some(cut)),
        (" allocate_slab+0x2d0/0x3f0\n getname_flags+0x4c/0x200\n", "", 1, 0, Some(cut)),
        ("PFN 0x2001 type Unmovable Block 16 type Movable Flags 0x40(slab)\n", "", 1, 0, Some(cut)),
    ] {
        let told = blocks(&DUMP_TEXT.replacen(from, to, 1));
        let troubles: Vec<Trouble> = trouble.into_iter().collect();
        assert_eq!((told.entries.len(), told.others, &told.troubles), (entries, others, &troubles), "{from} {to}");
    }
    // In the middle of a text a block without its header was not cut.
    let middle = DUMP_TEXT.replace("Page allocated via order 0", "rubbish");
    let told = blocks(&format!("{middle}{DUMP_TEXT}"));
    assert_eq!((told.entries.len(), told.troubles), (3, vec![skipped(owner_lines::NO_ORDER)]));
    for (text, trouble) in [
        (SORTED_TEXT.replacen("1 times, 1", "x times, 1", 1), skipped("has no count")),
        (STACKS_TEXT.replacen("nr_base_pages: 4", "rubbish", 1), skipped("has no count of pages")),
        (STACKS_TEXT.replacen("nr_base_pages: 1", "rubbish", 1), cut),
        (STACKS_TEXT[STACKS_TEXT.find("nr_").unwrap()..].to_owned(), Trouble::Cut("begins inside a block")),
    ] {
        let told = blocks(&text);
        assert_eq!((told.entries.len(), told.troubles), (1, vec![trouble]), "{text}");
    }
}

#[test]
fn empty_lines_may_be_missing() {
    for text in [DUMP_TEXT, CRASH_TEXT, STACKS_TEXT, SORTED_TEXT] {
        for text in [text.replace("\n\n", "\n"), text.trim_end().to_owned() + "\n"] {
            let told = blocks(&text);
            assert_eq!((told.entries.len(), told.others, &told.troubles[..]), (2, 0, &[][..]), "{text}");
        }
    }
    // A text without a newline at its end is cut there.
    let told = blocks(DUMP_TEXT.trim_end());
    assert_eq!((told.entries.len(), told.troubles.len()), (1, 1));
}

#[test]
fn pages_that_are_free_are_marked() {
    let is_released = |text: &str| blocks(text).entries.iter().map(|entry| entry.is_released).collect::<Vec<_>>();
    assert_eq!(is_released(&DUMP_TEXT.replace("ts 1200 ns", "ts 1200 ns, free_ts 1201 ns")), [true, false]);
    assert_eq!(is_released(&DUMP_TEXT.replace("ts 1200 ns", "ts 1200 ns, free_ts 1200 ns")), [false, false]);
    assert_eq!(
        is_released(&CRASH_TEXT.replacen("[alloc]", "alloc", 1).replacen("free\n", "[free]\n", 1)),
        [true, false]
    );
    let told = read(DumpPage::default, LOG_TEXT.replacen("as allocated", "as freed", 1).as_bytes());
    assert_eq!(told.entries.iter().map(|entry| entry.is_released).collect::<Vec<_>>(), [true, false]);
}

/// Functions of one name and offset are one call site, wherever they are.
#[test]
fn call_sites_of_one_name_have_one_address() {
    let text = OLD_TEXT.to_owned() + &OLD_TEXT.replace("[<ffffffff", "[<fffffffe").replace("PFN ", "PFN 1");
    let told = blocks(&text);
    let half = told.entries.len() / 2;
    let stacks: Vec<_> = told.entries.iter().map(|entry| entry.stack.clone()).collect();
    assert_eq!((half > 0, &stacks[..half]), (true, &stacks[half..]));
}

/// gdb's and drgn's `--pfn` have the frame number behind the header.
#[test]
fn a_page_in_a_debugger_has_its_number() {
    const TEXT: &str = "\
page_owner tracks the page as allocated
Page last allocated via order 0, gfp_mask: 0xcc0, pid: 77, tgid: 70 (example), ts 10 ns, free_ts 0 ns
PFN: 4096, Flags: 0x40
   0xffffffff81234599 <example_open+28>:\tmov    %rax,%rbx
page last free stack trace:
   0xffffffff81234567 <example_release+28>:\tmov    %rax,%rbx
";
    let told = read(DumpPage::default, TEXT.as_bytes());
    assert_eq!((told.entries.len(), told.others, told.entries[0].address), (1, 0, 4096));
    assert_eq!(told.entries[0].stack.len(), 1);
}

#[test]
fn logs_of_old_kernels_have_owners() {
    const OLD: &str = "\
page:ffffea0000123456 count:1 mapcount:0 mapping:          (null) index:0x0
flags: 0x2000000000000000()
page dumped because: example reason
page allocated via order 0, migratetype Unmovable, gfp_mask 0xcc0(GFP_KERNEL)
 example_open+0x1c/0x40
page has been migrated, last migrate reason: compaction
------------[ cut here ]------------
Call Trace:
 other+0x1/0x2
page:ffffea0000123456 count:1 mapcount:0 mapping:          (null) index:0x0
page_owner info is not active (free page?)
";
    let told = read(DumpPage::default, OLD.as_bytes());
    assert_eq!((told.entries.len(), told.others, told.troubles.len()), (1, 3, 0));
    assert_eq!((told.entries[0].stack.len(), told.entries[0].address), (1, 0));
}

#[test]
fn a_page_size_is_told_by_blocks() {
    assert!(blocks(DUMP_TEXT).facts.contains(&"PageBytes(4096)".to_owned()));
    let large = DUMP_TEXT.replace("Block 8 ", "Block 0 ").replace("Block 16 ", "Block 1 ");
    assert!(blocks(&large).facts.contains(&"PageBytes(65536)".to_owned()));
    assert!(!blocks(GDB_TEXT).facts.iter().any(|fact| fact.starts_with("PageBytes")));
}

/// Addresses that somebody has replaced tell nothing.
#[test]
fn equal_addresses_of_different_functions_are_none() {
    let text: String = OLD_TEXT
        .lines()
        .map(|line| match line.find(">] ") {
            Some(at) => format!(" [<ffffffff81000000>] {}\n", &line[at + 3..]),
            None => format!("{line}\n"),
        })
        .collect();
    let told = blocks(&text);
    let stacks: Vec<&str> = told.entries.iter().flat_map(|entry| entry.stack.iter().map(String::as_str)).collect();
    assert_eq!(stacks[1..], ["example_open+0x1c [exampledrv]", "allocate_slab+0x2d0", "getname_flags+0x4c"]);
}
