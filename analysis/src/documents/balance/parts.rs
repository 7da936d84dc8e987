//! Parts of a machine's memory, or of a memory cgroup's, without double counting: no byte is in two of them.
//!
//! The table says of which counters each part is made, for each form of text that has counters. It is the same for a recording,
//! which has two texts, and for a text of one moment.

use super::counters::{Counters, PAGESETS};

/// Text that counters come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterForm {
    /// `/proc/meminfo`, with `/proc/zoneinfo` next to it.
    Meminfo,
    /// Report of a machine out of memory.
    Oom,
    /// Report of a memory cgroup out of memory, Linux 5.4 and later.
    Memcg,
    /// The same of an older kernel: the line of the group itself.
    OldMemcg,
}

/// Makes the parts of their table: `Part "name": formulas for Meminfo, Oom, Memcg, OldMemcg`.
///
/// A formula is a sum of counters, with ` + ` and ` - ` between their names. A counter with `?` after it need not be there; without any
/// counter, or without one that is needed, the part is not known. An empty formula: the text does not say the part.
macro_rules! parts {
    ($($part:ident $name:literal: $meminfo:expr, $oom:literal, $memcg:literal, $old_memcg:literal;)*) => {
        /// Part of memory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Part {
            $(#[doc = $name] $part,)*
        }

        impl Part {
            /// All parts, in the order of documents.
            pub const ALL: [Part; [$($name),*].len()] = [$(Part::$part),*];

            /// Name in documents.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Part::$part => $name,)*
                }
            }

            /// Counters that make the part.
            fn formula(self, form: CounterForm) -> &'static str {
                match (self, form) {
                    $(
                        (Part::$part, CounterForm::Meminfo) => $meminfo,
                        (Part::$part, CounterForm::Oom) => $oom,
                        (Part::$part, CounterForm::Memcg) => $memcg,
                        (Part::$part, CounterForm::OldMemcg) => $old_memcg,
                    )*
                }
            }
        }
    };
}

parts! {
    Anonymous "anonymous":
        "AnonPages", "active_anon + inactive_anon + isolated_anon - shmem", "anon", "rss";
    Shared "tmpfs and shared":
        "Shmem", "shmem", "shmem", "shmem";
    Files "files":
        "Cached + Buffers + SwapCached - Shmem", "active_file + inactive_file + isolated_file", "file - shmem?",
        "cache - shmem?";
    SlabReclaimable "slab reclaimable":
        "SReclaimable", "slab_reclaimable", "slab_reclaimable", "";
    SlabUnreclaimable "slab unreclaimable":
        "SUnreclaim", "slab_unreclaimable", "slab_unreclaimable", "";
    PageTables "page tables":
        "PageTables + SecPageTables?", "pagetables + sec_pagetables?", "pagetables + sec_pagetables?", "";
    KernelStacks "kernel stacks":
        "KernelStack", "kernel_stack", "kernel_stack", "";
    Vmalloc "vmalloc":
        "VmallocUsed", "", "vmalloc", "";
    Percpu "per-CPU":
        "Percpu", "", "percpu", "";
    HugePages "huge pages":
        "Hugetlb", "", "", "";
    Others "other counters":
        "GPUActive? + GPUReclaim? + Balloon? + Zswap? + Bounce?",
        "unevictable? + bounce? + kernel_misc_reclaimable? + Balloon? + gpu_active? + gpu_reclaim?", "sock", "";
    FreeOnCpus "free on per-CPU lists":
        PAGESETS, "free_pcp", "", "";
    OtherPages "other pages":
        "", "", "", "";
}

impl CounterForm {
    /// Formulas of all memory and of the free one.
    const fn totals(self) -> [&'static str; 2] {
        match self {
            CounterForm::Meminfo => ["MemTotal", "MemFree"],
            CounterForm::Oom => ["pages RAM - pages reserved", "free"],
            CounterForm::Memcg | CounterForm::OldMemcg => ["limit", "limit - usage"],
        }
    }

    /// Counters without which what is left unexplained means nothing.
    const fn needed(self) -> &'static [&'static str] {
        match self {
            CounterForm::Meminfo => &["AnonPages", "Cached", "Slab"],
            CounterForm::Oom => &["active_anon", "active_file", "slab_reclaimable", "slab_unreclaimable"],
            CounterForm::Memcg => &["anon", "file", "slab_reclaimable", "slab_unreclaimable"],
            CounterForm::OldMemcg => &["rss", "cache", "slab"],
        }
    }

    /// Source of a part's bytes, a word of documents.
    pub fn source(self, part: Part) -> &'static str {
        match (self, part) {
            (_, Part::OtherPages) => "events",
            (CounterForm::Meminfo, Part::FreeOnCpus) => "zoneinfo",
            (CounterForm::Meminfo, _) => "meminfo",
            _ => "oom",
        }
    }
}

/// Counters of a formula: name, whether it is needed, whether it is taken off.
fn terms(formula: &str) -> impl Iterator<Item = (&str, bool, bool)> {
    let sums = formula.split(" + ").filter(|term| !term.is_empty());
    let terms = sums.flat_map(|sum| sum.split(" - ").enumerate().map(|(index, name)| (name, index > 0)));
    terms.map(|(name, is_taken_off)| match name.strip_suffix('?') {
        Some(name) => (name, false, is_taken_off),
        None => (name, true, is_taken_off),
    })
}

/// Sum of counters by a formula, at least 0; `None` where a counter that it needs is not there, or none at all.
fn sum(formula: &str, counters: &Counters) -> Option<u64> {
    let mut sum = None;
    for (name, is_needed, is_taken_off) in terms(formula) {
        match counters.get(name).map(i128::from) {
            Some(bytes) => *sum.get_or_insert(0) += if is_taken_off { -bytes } else { bytes },
            None if is_needed => return None,
            None => {}
        }
    }
    sum.map(|sum: i128| u64::try_from(sum.max(0)).unwrap_or(u64::MAX))
}

/// Parts of memory at one moment, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartSums {
    /// All memory that the kernel manages, or the limit of a memory cgroup.
    pub memtotal: Option<u64>,
    /// Free memory, or what is left to the limit.
    pub memfree: Option<u64>,
    /// Bytes of each part that counters give; `None` where one that it needs is not there. Kernel stacks that are in the part vmalloc are
    /// no part of their own.
    pub parts: Vec<(Part, Option<u64>)>,
    /// The counters are there without which what is left means nothing.
    pub(super) is_whole: bool,
}

impl PartSums {
    /// Parts by these counters. `maps_stacks`: kernel stacks are allocated by vmalloc (`CONFIG_VMAP_STACK`), or it is not known that they
    /// are not; kernels up to 5.2 give no `VmallocUsed` (it is 0), and stacks are a part there.
    pub fn of(form: CounterForm, counters: &Counters, maps_stacks: bool) -> PartSums {
        let of = |part: Part| sum(part.formula(form), counters);
        let is_of_machine = form == CounterForm::Meminfo;
        let tells_vmalloc = !is_of_machine || of(Part::Vmalloc) != Some(0) || of(Part::KernelStacks).is_none();
        let has_stacks = !is_of_machine || !maps_stacks || !tells_vmalloc || of(Part::Vmalloc).is_none();
        let is_part = |part: &Part| match part {
            Part::OtherPages => false,
            Part::KernelStacks => has_stacks,
            _ => true,
        };
        let bytes = |part| of(part).filter(|_| part != Part::Vmalloc || tells_vmalloc);
        let parts = Part::ALL.into_iter().filter(is_part).map(|part| (part, bytes(part)));
        let [memtotal, memfree] = form.totals().map(|formula| sum(formula, counters));
        // A counter may be lost with its line.
        let has_parts = is_of_machine || of(Part::Anonymous).is_some() && of(Part::Files).is_some();
        let is_whole = has_parts && form.needed().iter().all(|name| counters.get(name).is_some());
        PartSums { memtotal, memfree, parts: parts.collect(), is_whole }
    }

    /// Bytes of a part; `None` also where it is no part of its own.
    pub fn get(&self, part: Part) -> Option<u64> {
        self.parts.iter().find(|(of, _)| *of == part).and_then(|(_, bytes)| *bytes)
    }

    /// Bytes that are neither free nor in a part; `None` where anonymous pages, files or slab are not known.
    pub fn unexplained(&self) -> Option<i64> {
        let parts = self.parts.iter().filter_map(|(_, bytes)| *bytes).map(i128::from).sum::<i128>();
        let left = i128::from(self.memtotal?) - i128::from(self.memfree?) - parts;
        i64::try_from(left).ok().filter(|_| self.is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters of these bytes.
    fn counters(bytes: &[(&str, u64)]) -> Counters {
        let mut counters = Counters::default();
        bytes.iter().for_each(|(name, bytes)| counters.add(name, *bytes));
        counters
    }

    const MEMINFO: [(&str, u64); 19] = [
        ("MemTotal", 10_000),
        ("MemFree", 1000),
        ("AnonPages", 2000),
        ("Shmem", 300),
        ("Cached", 900),
        ("Buffers", 50),
        ("SwapCached", 10),
        ("Slab", 700),
        ("SReclaimable", 400),
        ("SUnreclaim", 300),
        ("PageTables", 20),
        ("SecPageTables", 1),
        ("KernelStack", 30),
        ("VmallocUsed", 80),
        ("Percpu", 40),
        ("Hugetlb", 2048),
        ("Zswap", 5),
        ("Bounce", 2),
        (PAGESETS, 60),
    ];

    #[test]
    fn no_byte_of_meminfo_is_in_two_parts() {
        let sums = PartSums::of(CounterForm::Meminfo, &counters(&MEMINFO), true);
        let parts: Vec<_> = sums.parts.iter().map(|(part, bytes)| (part.name(), bytes.unwrap())).collect();
        let expected = [
            ("anonymous", 2000),
            ("tmpfs and shared", 300),
            ("files", 660),
            ("slab reclaimable", 400),
            ("slab unreclaimable", 300),
            ("page tables", 21),
            ("vmalloc", 80),
            ("per-CPU", 40),
            ("huge pages", 2048),
            ("other counters", 7),
            ("free on per-CPU lists", 60),
        ];
        assert_eq!(parts, expected);
        assert_eq!(sums.unexplained(), Some(9000 - 5916));
    }

    #[test]
    fn kernel_stacks_are_in_vmalloc_or_a_part() {
        let of = |vmalloc: u64, maps_stacks| {
            let mut meminfo = MEMINFO;
            meminfo[13].1 = vmalloc;
            let sums = PartSums::of(CounterForm::Meminfo, &counters(&meminfo), maps_stacks);
            [Part::KernelStacks, Part::Vmalloc].map(|part| sums.get(part))
        };
        assert_eq!(of(80, true), [None, Some(80)]);
        assert_eq!(of(80, false), [Some(30), Some(80)], "stacks are pages of their own");
        assert_eq!(of(0, true), [Some(30), None], "up to 5.2");
    }

    #[test]
    fn a_part_without_its_counter_is_not_known() {
        let without = |name: &str| {
            let rest: Vec<_> = MEMINFO.into_iter().filter(|(of, _)| *of != name).collect();
            PartSums::of(CounterForm::Meminfo, &counters(&rest), true)
        };
        assert_eq!(without("Buffers").get(Part::Files), None);
        assert_eq!(without("SecPageTables").get(Part::PageTables), Some(20), "kernels before 6.1 have none");
        assert_eq!(without(PAGESETS).get(Part::FreeOnCpus), None);
        assert!(without("Percpu").unexplained().is_some());
        for needed in ["AnonPages", "Cached", "Slab", "MemTotal"] {
            assert_eq!(without(needed).unexplained(), None, "{needed}");
        }
        let none = PartSums::of(CounterForm::Meminfo, &Counters::default(), true);
        assert!(none.parts.iter().all(|(_, bytes)| bytes.is_none()) && none.memtotal.is_none());
    }

    #[test]
    fn reports_of_the_oom_killer_have_the_same_parts() {
        let oom = counters(&[
            ("pages RAM", 1000),
            ("pages reserved", 100),
            ("free", 50),
            ("active_anon", 200),
            ("inactive_anon", 10),
            ("isolated_anon", 1),
            ("shmem", 300),
            ("active_file", 20),
            ("inactive_file", 30),
            ("isolated_file", 0),
            ("slab_reclaimable", 40),
            ("slab_unreclaimable", 60),
            ("pagetables", 5),
            ("free_pcp", 7),
            ("unevictable", 9),
        ]);
        let sums = PartSums::of(CounterForm::Oom, &oom, true);
        assert_eq!((sums.memtotal, sums.memfree), (Some(900), Some(50)));
        assert_eq!(sums.get(Part::Anonymous), Some(0), "shmem may be on another list");
        assert_eq!([Part::Files, Part::Others, Part::Vmalloc].map(|part| sums.get(part)), [Some(50), Some(9), None]);
        assert_eq!(sums.unexplained(), Some(850 - 300 - 50 - 100 - 5 - 9 - 7));
        let memcg = counters(&[("limit", 100), ("usage", 90), ("anon", 40), ("file", 30), ("sock", 2)]);
        let sums = PartSums::of(CounterForm::Memcg, &memcg, true);
        assert_eq!((sums.memtotal, sums.memfree, sums.unexplained()), (Some(100), Some(10), None));
        assert_eq!([Part::Files, Part::Shared, Part::Others].map(|part| sums.get(part)), [Some(30), None, Some(2)]);
    }
}
