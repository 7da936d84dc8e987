//! Memory that the kernel takes back by itself when it is short of it.
//!
//! The flag of a cache decides (`SLAB_RECLAIM_ACCOUNT`, as `/sys/kernel/slab/CACHE/reclaim_account` gives it), for `kmalloc` the flag
//! of the allocation. `reclaimable.txt` stands in where the recording has no flags, and names what goes with an inode.

use std::collections::HashMap;

use kmemtrace_abi::event::{Event, Kind, Space};
use kmemtrace_abi::kernel::gfp::GfpNames;
use kmemtrace_abi::trace::Metadata;
use serde::{Deserialize, Serialize};

use crate::names::wrappers::plain_name;
use kmemtrace_abi::text::glob::Glob;

/// Names that come with the library.
const BUILT_IN: &str = include_str!("reclaimable.txt");
/// Functions that allocate for slabs and CPUs.
const SLAB_OWN: &str = include_str!("slab_own.txt");
/// Largest number of caches whose flags are kept. Kernels have some hundreds.
const MAX_CACHES: usize = 1 << 16;

/// Origin of what is known about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum ReclaimFrom {
    /// A flag of the cache, or of the allocation.
    Flag,
    /// The list of names.
    List,
}

impl ReclaimFrom {
    /// Word of documents.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReclaimFrom::Flag => "flag",
            ReclaimFrom::List => "list",
        }
    }
}

/// Whether the kernel takes an object back by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Reclaim {
    /// The cache is not known.
    #[default]
    Unknown,
    /// No object of this kind is of a cache.
    NoCache,
    /// It does, or it does not.
    Known {
        /// It does.
        is_reclaimable: bool,
        /// Origin of this.
        from: ReclaimFrom,
    },
}

impl Reclaim {
    const fn known(is_reclaimable: bool, from: ReclaimFrom) -> Reclaim {
        Reclaim::Known { is_reclaimable, from }
    }

    /// True or false, where it is known.
    pub(crate) fn is_reclaimable(self) -> Option<bool> {
        match self {
            Reclaim::Unknown => None,
            Reclaim::NoCache => Some(false),
            Reclaim::Known { is_reclaimable, .. } => Some(is_reclaimable),
        }
    }

    /// Word for the origin, where one is known.
    pub(crate) fn from(self) -> Option<&'static str> {
        match self {
            Reclaim::Known { from, .. } => Some(from.name()),
            Reclaim::Unknown | Reclaim::NoCache => None,
        }
    }

    /// That of a row with objects of both. One object that stays makes the row stay; else one that is not known leaves it open.
    pub(crate) fn and(self, other: Reclaim) -> Reclaim {
        let rank = |of: Reclaim| match of {
            Reclaim::NoCache => 0,
            Reclaim::Known { is_reclaimable: false, .. } => 1,
            Reclaim::Unknown => 2,
            Reclaim::Known { is_reclaimable: true, .. } => 3,
        };
        match (self, other) {
            (Reclaim::Known { is_reclaimable: a, from }, Reclaim::Known { is_reclaimable: b, from: other })
                if a == b =>
            {
                Reclaim::known(a, from.max(other))
            }
            _ if rank(other) < rank(self) => other,
            _ => self,
        }
    }
}

/// Object as the rules look at it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReclaimedObject<'a> {
    pub(crate) kind: Kind,
    /// Name of its cache, where one is certain.
    pub(crate) cache: Option<&'a [u8]>,
    /// Whether its allocation has `__GFP_RECLAIMABLE`, where that is known.
    pub(crate) asks_reclaimable: Option<bool>,
    /// Function of the call-site.
    pub(crate) function: Option<&'a [u8]>,
}

/// Rules of a trace.
#[derive(Clone, Debug)]
pub(crate) struct ReclaimRules {
    /// Flags of caches, by name.
    flags: HashMap<Box<[u8]>, bool>,
    caches: Vec<Glob>,
    followers: Vec<Glob>,
    call_sites: Vec<Glob>,
    /// Flags of `__GFP_RECLAIMABLE`, where the trace has the kernel's names.
    gfp: Option<u64>,
    /// Flags of `__GFP_ACCOUNT`, likewise.
    account: Option<u64>,
}

impl ReclaimRules {
    /// Rules by the flags that the recording keeps, and by the list.
    pub(crate) fn of(metadata: &Metadata) -> ReclaimRules {
        let mut rules = ReclaimRules {
            flags: flags(&metadata.reclaim_account),
            caches: Vec::new(),
            followers: Vec::new(),
            call_sites: Vec::new(),
            gfp: metadata.gfp_names.as_deref().and_then(|names| flag(names, "__GFP_RECLAIMABLE")),
            account: metadata.gfp_names.as_deref().and_then(|names| flag(names, "__GFP_ACCOUNT")),
        };
        let mut section = "";
        for line in lines(BUILT_IN) {
            match (line, section) {
                ("[caches]" | "[followers]" | "[call-sites]", _) => section = line,
                (name, "[followers]") => rules.followers.push(Glob::new(name)),
                (name, "[call-sites]") => rules.call_sites.push(Glob::new(name)),
                (name, _) => rules.caches.push(Glob::new(name)),
            }
        }
        rules
    }

    /// Whether an allocation with these flags has `__GFP_RECLAIMABLE`.
    #[inline]
    pub(crate) fn asks_reclaimable(&self, gfp: Option<u64>) -> Option<bool> {
        Some(gfp? & self.gfp? != 0)
    }

    /// Whether the kernel counts the slabs of a cache as reclaimable: by its flag, else by the list. What goes with an inode without such a
    /// flag does not count.
    pub(crate) fn counts_cache(&self, cache: &[u8]) -> bool {
        self.flags.get(cache).copied().unwrap_or_else(|| self.caches.iter().any(|glob| glob.matches(cache)))
    }

    /// Whether an allocation is on the account of a memory cgroup: by its event, else by its flags.
    pub(crate) fn is_accounted(&self, event: &Event) -> Option<bool> {
        event.accounted.or_else(|| Some(event.gfp? & self.account? != 0)).filter(|_| event.allocates())
    }

    /// Whether the kernel takes the object back by itself.
    pub(crate) fn of_object(&self, object: ReclaimedObject<'_>) -> Reclaim {
        if object.kind.space() != Space::Slab {
            return Reclaim::NoCache;
        }
        let is_of =
            |globs: &[Glob], name: Option<&[u8]>| name.is_some_and(|name| globs.iter().any(|glob| glob.matches(name)));
        if is_of(&self.call_sites, object.function.map(plain_name)) || is_of(&self.followers, object.cache) {
            return Reclaim::known(true, ReclaimFrom::List);
        }
        match (object.kind, object.asks_reclaimable, object.cache) {
            (Kind::Kmalloc, Some(asks), _) => Reclaim::known(asks, ReclaimFrom::Flag),
            (_, _, Some(cache)) => match self.flags.get(cache) {
                Some(&flag) => Reclaim::known(flag, ReclaimFrom::Flag),
                None => Reclaim::known(is_of(&self.caches, Some(cache)), ReclaimFrom::List),
            },
            // The size class is known, whatever the flags.
            (Kind::Kmalloc, None, None) => Reclaim::known(false, ReclaimFrom::Flag),
            (_, _, None) => Reclaim::Unknown,
        }
    }
}

/// Functions that allocate for slabs and CPUs: what they hold lives as long as its slab.
#[derive(Clone, Debug)]
pub(crate) struct SlabOwn(Vec<Glob>);

impl Default for SlabOwn {
    fn default() -> SlabOwn {
        SlabOwn(lines(SLAB_OWN).map(Glob::new).collect())
    }
}

impl SlabOwn {
    /// True for such a function, whatever suffixes its name has.
    pub(crate) fn has(&self, function: &[u8]) -> bool {
        let name = plain_name(function);
        self.0.iter().any(|glob| glob.matches(name))
    }
}

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The flag of this name. Old kernels print some of them without the underscores.
fn flag(names: &GfpNames, name: &str) -> Option<u64> {
    names.flags(name).or_else(|| names.flags(name.trim_start_matches('_')))
}

/// Parses lines `CACHE 0` and `CACHE 1`; the text is hostile, and other lines are skipped.
fn flags(text: &[u8]) -> HashMap<Box<[u8]>, bool> {
    let line = |line: &[u8]| {
        let (name, flag) = line.trim_ascii_end().split_last_chunk::<2>()?;
        let flag = match flag {
            b" 0" => false,
            b" 1" => true,
            _ => return None,
        };
        (!name.is_empty()).then(|| (name.into(), flag))
    };
    text.split(|&b| b == b'\n').filter_map(line).take(MAX_CACHES).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn rules(flags: &[u8]) -> ReclaimRules {
        let print = r#"print fmt: "%s", __print_flags(REC->gfp_flags, "|", {0x10UL, "__GFP_RECLAIMABLE"})"#;
        let field = "\tfield:unsigned long gfp_flags;\toffset:40;\tsize:8;\tsigned:0;";
        let gfp = GfpNames::of_format(&format!("name: kmalloc\nID: 5\n{field}\n{print}\n"));
        let metadata =
            Metadata { reclaim_account: flags.to_vec(), gfp_names: gfp.map(Arc::new), ..Metadata::default() };
        ReclaimRules::of(&metadata)
    }

    fn of(rules: &ReclaimRules, kind: Kind, cache: Option<&str>, gfp: Option<u64>) -> Reclaim {
        let asks_reclaimable = rules.asks_reclaimable(gfp);
        rules.of_object(ReclaimedObject { kind, cache: cache.map(str::as_bytes), asks_reclaimable, function: None })
    }

    #[test]
    fn a_flag_goes_before_the_list() {
        let rules = rules(b"dentry 0\nmine 1\ntwo words 1\nnonsense\n 1\nx 2\n");
        let known = |cache| of(&rules, Kind::Cache, Some(cache), None);
        assert_eq!(known("mine"), Reclaim::known(true, ReclaimFrom::Flag));
        assert_eq!(known("dentry"), Reclaim::known(false, ReclaimFrom::Flag));
        assert_eq!(known("two words"), Reclaim::known(true, ReclaimFrom::Flag));
        assert_eq!(known("ext4_inode_cache"), Reclaim::known(true, ReclaimFrom::List));
        assert_eq!(known("x"), Reclaim::known(false, ReclaimFrom::List));
        assert_eq!(of(&rules, Kind::Cache, None, None), Reclaim::Unknown);
    }

    #[test]
    fn flags_of_the_allocation_decide_for_kmalloc() {
        let rules = rules(b"");
        assert_eq!(of(&rules, Kind::Kmalloc, None, Some(0x10)), Reclaim::known(true, ReclaimFrom::Flag));
        assert_eq!(of(&rules, Kind::Kmalloc, None, Some(0xcc0)), Reclaim::known(false, ReclaimFrom::Flag));
        assert_eq!(of(&rules, Kind::Kmalloc, None, None), Reclaim::known(false, ReclaimFrom::Flag));
        assert_eq!(of(&rules, Kind::Pages, None, Some(0x10)), Reclaim::NoCache);
    }

    #[test]
    fn what_goes_with_an_inode_is_listed() {
        let rules = rules(b"lsm_inode_cache 0\n");
        let list = Reclaim::known(true, ReclaimFrom::List);
        assert_eq!(of(&rules, Kind::Cache, Some("lsm_inode_cache"), None), list);
        let at = |function: &'static str| {
            let function = Some(function.as_bytes());
            rules.of_object(ReclaimedObject { kind: Kind::Cache, cache: None, asks_reclaimable: None, function })
        };
        assert!(!rules.counts_cache(b"lsm_inode_cache") && rules.counts_cache(b"dentry"), "counters go by flags");
        assert_eq!((at("security_inode_alloc.isra.0"), at("security_file_alloc")), (list, Reclaim::Unknown));
    }

    #[test]
    fn one_object_that_stays_makes_its_row_stay() {
        let [yes, no] = [true, false].map(|yes| Reclaim::known(yes, ReclaimFrom::Flag));
        assert_eq!((yes.and(no), no.and(yes)), (no, no));
        assert_eq!((yes.and(Reclaim::Unknown), Reclaim::Unknown.and(no)), (Reclaim::Unknown, no));
        let listed = Reclaim::known(true, ReclaimFrom::List);
        assert_eq!((yes.and(listed), listed.and(yes)), (listed, listed));
    }

    #[test]
    fn the_allocators_own_are_known() {
        let own = SlabOwn::default();
        assert!(
            own.has(b"alloc_slab_obj_exts") && own.has(b"alloc_empty_sheaf.constprop.0") && !own.has(b"alloc_inode")
        );
    }
}
