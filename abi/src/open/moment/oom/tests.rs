use super::super::entry::EntryKind;
use super::super::trial::{Sums, Told, damage, numbers, read};
use super::*;
use crate::event::Kind;

/// Linux 6.8 and later, with pages of 4 KiB.
const NEW: &str = "example invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO), order=0, oom_score_adj=0
CPU: 1 UID: 0 PID: 77 Comm: example Not tainted 6.12.0-1-amd64 #1  Example 6.12.0-1
Hardware name: Example
Call Trace:
 <TASK>
 dump_stack_lvl+0x5d/0x80
 </TASK>
Mem-Info:
active_anon:100 inactive_anon:20 isolated_anon:1
 active_file:30 inactive_file:40 isolated_file:2
 unevictable:5 dirty:0 writeback:0
 slab_reclaimable:50 slab_unreclaimable:60
 mapped:7 shmem:8 pagetables:9
 sec_pagetables:1 bounce:0
 kernel_misc_reclaimable:3
 free:500 free_pcp:11 free_cma:0
Node 0 active_anon:400kB inactive_anon:80kB kernel_stack:160kB pagetables:36kB sec_pagetables:4kB all_unreclaimable? no Balloon:8kB
Node 0 DMA free:1000kB boost:0kB min:380kB managed:15360kB mlocked:0kB bounce:0kB free_pcp:0kB local_pcp:0kB free_cma:0kB
lowmem_reserve[]: 0 0 0 0
Node 0 DMA: 3*4kB (UM) 2*8kB (U) 0*16kB = 28kB
Node 0 hugepages_total=0 hugepages_free=0 hugepages_surp=0 hugepages_size=2048kB
78 total pagecache pages
0 pages in swap cache
Free swap  = 0kB
Total swap = 0kB
1000 pages RAM
0 pages HighMem/MovableOnly
100 pages reserved
0 pages hwpoisoned
Memory cgroup min protection 0kB -- low protection 0kB
Unreclaimable slab info:
Name                      Used          Total
example cache             12KB         21KB
kmalloc-64                 4KB          8KB
Tasks state (memory values in pages):
[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name
[     77]     0    77     1234      567      500       67         0    45056        0             0 exa mple
[    123]  1000   123      999        1        1        0         0    45056        0         -1000 sshd
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/,task=example,pid=77,uid=0
Out of memory: Killed process 77 (exa mple) total-vm:4936kB, anon-rss:2000kB, file-rss:268kB, shmem-rss:0kB, UID:0 pgtables:44kB oom_score_adj:0
";
/// Linux 4.4, with pages of 64 KiB.
const OLD: &str = "example invoked oom-killer: gfp_mask=0x24280ca, order=0, oom_score_adj=0
Mem-Info:
active_anon:100 inactive_anon:20 isolated_anon:0
 active_file:30 inactive_file:40 isolated_file:0
 unevictable:5 dirty:0 writeback:0 unstable:0
 slab_reclaimable:50 slab_unreclaimable:60
 mapped:7 shmem:8 pagetables:9 bounce:0
 free:500 free_pcp:11 free_cma:0
Node 0 DMA free:1000kB min:380kB slab_unreclaimable:60kB kernel_stack:16kB pagetables:36kB unstable:0kB bounce:0kB
Node 0 Normal free:1000kB min:380kB slab_unreclaimable:60kB kernel_stack:32kB pagetables:36kB unstable:0kB bounce:0kB
lowmem_reserve[]: 0 0 0 0
Node 0 DMA: 3*64kB (UM) 2*128kB (U) = 448kB
1000 pages RAM
100 pages reserved
[ pid ]   uid  tgid total_vm      rss nr_ptes nr_pmds swapents oom_score_adj name
[   77]     0    77     1234      567      10       3        0             0 example
Out of memory: Kill process 77 (example) score 900 or sacrifice child
Killed process 77 (example) total-vm:4936kB, anon-rss:2000kB, file-rss:268kB
";
/// A memory cgroup, Linux 5.4 and later.
const MEMCG: &str = "example invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
memory: usage 1024kB, limit 2048kB, failcnt 3
swap: usage 0kB, limit 9007199254740988kB, failcnt 0
Memory cgroup stats for /a:b:
anon 4096
      file 8192
      kernel_stack 16384
      workingset_refault_anon 0
      slab 300
Tasks state (memory values in pages):
[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name
[     77]     0    77     1234      567    45056        0             0 example
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a:b,task_memcg=/a:b,task=example,pid=77,uid=0
Memory cgroup out of memory: Killed process 77 (example) total-vm:4936kB, anon-rss:2000kB, file-rss:268kB
";
/// A memory cgroup with a child, before Linux 5.4.
const OLD_MEMCG: &str = "Task in /a/b killed as a result of limit of /a
memory: usage 1024kB, limit 2048kB, failcnt 3
memory+swap: usage 1024kB, limit 9007199254740988kB, failcnt 0
kmem: usage 0kB, limit 9007199254740988kB, failcnt 0
Memory cgroup stats for /a: cache:16KB rss:12KB rss_huge:0KB shmem:4KB mapped_file:0KB
Memory cgroup stats for /a/b: cache:99KB rss:99KB rss_huge:0KB shmem:99KB mapped_file:0KB
";

fn told(text: &str) -> Told {
    read(|| Oom::new(None), text.as_bytes())
}

fn has(told: &Told, facts: &[&str]) {
    for fact in facts {
        assert!(told.facts.iter().any(|known| known == fact), "{fact}: {:?}", told.facts);
    }
}

#[test]
fn a_report_of_the_machine_has_pages_slabs_and_tasks() {
    let new = told(NEW);
    assert_eq!((new.others, &new.troubles[..]), (0, &[][..]));
    let expected = [
        "active_anon 409600",
        "isolated_file 8192",
        "sec_pagetables 4096",
        "kernel_misc_reclaimable 12288",
        "free 2048000",
    ];
    has(&new, &expected);
    has(&new, &["free_pcp 45056", "kernel_stack 163840", "Balloon 8192", "pages RAM 4096000", "pages reserved 409600"]);
    has(&new, &["kernel 6.12.0-1-amd64", "process 77 exa mple 2322432", "process 123 sshd 4096", "PageBytes(4096)"]);
    let slabs: Vec<_> = new.entries.iter().map(|entry| (entry.cache.as_deref(), entry.allocated, entry.kind)).collect();
    let kinds = [Kind::Cache, Kind::Kmalloc].map(EntryKind::Told);
    assert_eq!(
        slabs,
        [(Some("example cache"), Some(12 << 10), kinds[0]), (Some("kmalloc-64"), Some(4 << 10), kinds[1])]
    );
    assert!(new.entries[0].beside.contains("bytes: Some(21504)"));
}

#[test]
fn stacks_of_zones_add_up_and_pages_have_the_size_of_the_first_block() {
    let old = told(OLD);
    assert_eq!((old.others, &old.troubles[..]), (0, &[][..]));
    has(&old, &["PageBytes(65536)", "kernel_stack 49152", "free 32768000", "process 77 example 37158912"]);
    let asked = read(|| Oom::new(Some(4096)), OLD.as_bytes());
    has(&asked, &["PageBytes(65536)", "free 2048000"]);
}

#[test]
fn a_report_of_a_memory_cgroup_has_its_counters() {
    let new = told(MEMCG);
    assert_eq!((new.others, &new.troubles[..]), (0, &[][..]));
    has(
        &new,
        &[
            "usage 1048576",
            "limit 2097152",
            "anon 4096",
            "file 8192",
            "kernel_stack 16384",
            "process 77 example 2322432",
        ],
    );
    let old = told(OLD_MEMCG);
    has(&old, &["usage 1048576", "limit 2097152", "cache 16384", "rss 12288", "shmem 4096"]);
    assert_eq!((old.facts.len(), old.others), (7, 0));
    // The tree of another cgroup comes first.
    let lines: Vec<&str> = OLD_MEMCG.lines().collect();
    let other = told(&["x invoked oom-killer: order=0", lines[0], lines[1], lines[5], lines[4], ""].join("\n"));
    has(&other, &["cache 16384"]);
    let version_1 = told(
        "memory: usage 1024kB, limit 2048kB, failcnt 3\nMemory cgroup stats for /a:\ncache 1\nrss 2\ntotal_cache 10\ntotal_rss 20\n",
    );
    has(&version_1, &["cache 10", "rss 20"]);
}

#[test]
fn each_report_is_a_text() {
    for texts in [[NEW, OLD], [OLD, MEMCG], [MEMCG, MEMCG], [MEMCG, NEW]] {
        let both = told(&texts.concat());
        assert_eq!((both.texts, &both.facts), (2, &told(texts[1]).facts));
    }
    let alone = &NEW[NEW.find("Mem-Info").unwrap()..];
    assert_eq!(told(&[NEW, alone].concat()).texts, 2);
    let failure =
        format!("example: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL), nodemask=(null)\n{alone}");
    assert_eq!((told(&failure).texts, told(&[&failure[..], &failure].concat()).texts), (1, 2));
}

#[test]
fn lines_between_are_passed_over_and_cut_reports_are_told() {
    let mixed: String = NEW.lines().map(|line| format!("{line}\nusb 1-1: new device number 7\n")).collect();
    let mixed = told(&mixed);
    assert_eq!((mixed.others, mixed.troubles.len(), &mixed.facts), (NEW.lines().count(), 0, &told(NEW).facts));
    let cut = told(&NEW[..NEW.find(" free:500").unwrap()]);
    assert_eq!(cut.troubles, [Trouble::Cut("ends inside a report")]);
    has(&cut, &["active_anon 409600"]);
    let begins = told(&NEW[NEW.find("active_anon").unwrap()..]);
    assert_eq!(begins.troubles, [Trouble::Cut("begins inside a report")]);
    has(&begins, &["process 123 sshd 4096"]);
    let huge =
        told(&NEW.replace("free:500", "free:9223372036854775807").replace("shmem:8 ", "shmem:99999999999999999999 "));
    assert_eq!(huge.troubles, [Trouble::SkippedBlock("has a number out of range"); 2]);
}

/// The most that the lines of a text may tell: each number as a count of the largest pages.
fn most(text: &[u8]) -> Sums {
    Sums::of_lines(text, |line| {
        let bytes = numbers(line).fold(0, u64::saturating_add).saturating_mul(256 << 10);
        Sums { objects: bytes, allocated: bytes, counters: bytes, ..Sums::default() }
    })
}

#[test]
fn damage_does_no_harm() {
    for text in [NEW, OLD, MEMCG, OLD_MEMCG] {
        damage(|| Oom::new(None), text.as_bytes(), most);
    }
}
