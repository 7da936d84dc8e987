//! Classes of findings in words: the meaning of each and the kernel's reason, for `--explain` and `help mismatch`.

use kmemtrace::Finding;
use kmemtrace_abi::text::wrap;

/// Class in words.
pub(crate) struct ClassText {
    /// Name in documents.
    pub(crate) name: &'static str,
    /// Meaning in one line.
    pub(crate) meaning: &'static str,
    /// Reasons in the kernel.
    pub(crate) reason: &'static str,
}

/// Words for a class of the view `mismatch`.
pub(crate) fn of_finding(class: Finding) -> &'static ClassText {
    match class {
        Finding::KindMismatch => &KIND_MISMATCH,
        Finding::KindMismatchLegal => &KIND_MISMATCH_LEGAL,
        Finding::CacheMismatch => &CACHE_MISMATCH,
        Finding::FreeAfterFree => &FREE_AFTER_FREE,
        Finding::InferredFree => &INFERRED_FREE,
        Finding::ShortAlloc => &SHORT_ALLOC,
    }
}

/// Classes that only `summary` counts.
pub(crate) const COUNTED: [&ClassText; 3] = [&FREE_WITHOUT_ALLOC, &FAILED_ALLOC, &NULL_FREE];

/// All classes, those of `mismatch` first.
pub(crate) fn all() -> impl Iterator<Item = &'static ClassText> {
    Finding::ALL.into_iter().map(of_finding).chain(COUNTED)
}

/// Names of all classes.
pub(crate) fn names() -> Vec<&'static str> {
    all().map(|class| class.name).collect()
}

/// Width of an explanation, in columns.
const WIDTH: usize = 78;

/// Text on lines that fit a terminal.
pub(crate) fn wrapped(text: &str) -> String {
    wrap::wrapped(text, WIDTH, 0)
}

/// Text on lines with blanks before them; narrower ones, because man pages indent them once more.
pub(crate) fn indented(text: &str, blanks: usize) -> String {
    wrap::wrapped(text, WIDTH - blanks, blanks)
}

const KIND_MISMATCH: ClassText = ClassText {
    name: "kind_mismatch",
    meaning: "An object was freed by the function of another kind.",
    reason: "The kernel frees memory of kmalloc with kfree and an object of a cache with kmem_cache_free. kmem_cache_free of kmalloc \
             memory is a bug on every kernel, kfree of a cache object is one before Linux 6.4: the allocator's debug checks stop at \
             it, and without them an object may land on the wrong list. Errors of this class are bugs to report, by both call-sites.",
};

const KIND_MISMATCH_LEGAL: ClassText = ClassText {
    name: "kind_mismatch_legal",
    meaning: "A cache object was freed with kfree, which this kernel allows.",
    reason: "Since Linux 6.4 kfree finds the cache of any slab object by itself, and callers such as skb and maple tree code use it. \
             Where a trace does not tell its kernel, these frees count here, too. Nothing is wrong.",
};

const CACHE_MISMATCH: ClassText = ClassText {
    name: "cache_mismatch",
    meaning: "An object of one cache was freed to another one.",
    reason: "The names of the cache in the allocation event and in the free event differ. kmem_cache_free with the wrong cache is a \
             bug. A cache that the kernel has merged with others keeps one name, so merging is not the reason. A free on a path \
             without events can be: the address then changed hands unseen, and such findings count as unseen.",
};

const FREE_AFTER_FREE: ClassText = ClassText {
    name: "free_after_free",
    meaning: "An address was freed twice, with no allocation in between.",
    reason: "Mostly the allocation took a path without an event, as bulk allocation does (kmem_cache_alloc_bulk). A double free \
             looks the same, so it is not excluded; the kernel's own slab_debug or KASAN tells the two apart.",
};

const INFERRED_FREE: ClassText = ClassText {
    name: "inferred_free",
    meaning: "An address was allocated again, with no free in between.",
    reason: "The object was freed on a path without an event: kfree_rcu, kmem_cache_free_bulk and others. The report closes it when \
             its address comes back. Live figures of its call-site are upper bounds (<=), because others of its objects may be gone, \
             too.",
};

const SHORT_ALLOC: ClassText = ClassText {
    name: "short_alloc",
    meaning: "An allocation got fewer bytes than its caller asked for.",
    reason: "The sizes in the event contradict each other. No kernel allocates less than requested: a driver or a patch has filled \
             the event wrongly, or the format of the event is not the one in the trace.",
};

const FREE_WITHOUT_ALLOC: ClassText = ClassText {
    name: "free_without_alloc",
    meaning: "An address was freed that has no earlier event in the trace.",
    reason: "The object is older than the recording, or was allocated on a path without an event. Normal at the start of each \
             recording, and never an error.",
};

const FAILED_ALLOC: ClassText = ClassText {
    name: "failed_alloc",
    meaning: "An allocation returned null.",
    reason: "The kernel had no memory for the request under its gfp flags. Callers in interrupts, and those with __GFP_NORETRY or \
             GFP_NOWAIT, meet it first.",
};

const NULL_FREE: ClassText = ClassText {
    name: "null_free",
    meaning: "kfree of a null pointer, or of what kmalloc(0) returns.",
    reason: "The kernel allows it, and callers save a test. It changes no memory.",
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_has_its_own_words() {
        for class in Finding::ALL {
            assert_eq!(of_finding(class).name, class.name());
        }
    }
}
