//! Selection of allocations: `--pid`, `--tgid`, `--comm`, `--module`, `--cache`, `--site`, `--kind`, `--size`, `--context`, `--reclaimable`,
//! `--cgroup`, `--accounted`.
//!
//! Options are ANDed, the values of one are ORed. Each option has its own test, so that a caller can keep
//! the result for a call-site or a cache; [`Select::matches`] runs all of them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use kmemtrace_abi::event::{Context, Kind};
use kmemtrace_abi::text::size;

use crate::account::grouping::GroupKey;
use crate::names::aliases::CacheAliases;
use crate::names::kallsyms::{SiteOwner, Symbol};
use crate::names::place::Place;
use kmemtrace_abi::text::glob::Glob;

/// Selection of allocations: options are ANDed, the values of one are ORed. The default selects all.
#[derive(Clone, Debug, Default)]
pub struct Select {
    /// Only allocations by these thread ids
    pub pid: Vec<i32>,
    /// Only allocations by these thread groups, where the input tells them
    pub tgid: Vec<i32>,
    /// Only allocations by these commands (* and ? allowed)
    pub comm: Vec<Glob>,
    /// Only call-sites in these modules (* and ? allowed)
    pub module: Vec<Glob>,
    /// Only objects of these caches (* and ? allowed)
    pub cache: Vec<Glob>,
    /// Only these call-sites: foo_open, foo_*, foo_open+0x3c or 0xffffffff81000100
    pub site: Vec<Site>,
    /// Only these kinds: kmalloc, cache, pages
    pub kind: Vec<Kind>,
    /// Only objects of these requested sizes: 512, 1K..4K, 2M.., ..64
    pub size: Vec<SizeRange>,
    /// Only allocations in these contexts of the kernel
    pub context: Vec<Context>,
    /// Only call-sites below these folders of the kernel's sources, as fs/ext4
    pub branch: Vec<Branch>,
    /// Only objects that the kernel takes back by itself when it is short of memory, or only others
    pub reclaimable: Option<bool>,
    /// Only allocations by threads in these cgroups (* and ? allowed), where the input tells them
    pub cgroup: Vec<Glob>,
    /// Only objects on the account of a memory cgroup, or only others
    pub accounted: Option<bool>,
}

/// Members of an allocation, or of a free without one, that options test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    /// Kind of the object.
    pub(crate) kind: Kind,
    /// The thread.
    pub(crate) pid: Option<i32>,
    /// The thread's group.
    pub(crate) tgid: Option<i32>,
    /// The thread's command name.
    pub(crate) comm: Option<&'a [u8]>,
    /// The cache's name.
    pub(crate) cache: Option<&'a [u8]>,
    /// The name of a size class without its variant, which the filter takes for all of them.
    pub(crate) size_class: Option<&'a [u8]>,
    /// Bytes asked for; `None` for a free.
    pub(crate) requested: Option<u64>,
    /// Context of the kernel; `None` without flags.
    pub(crate) context: Option<Context>,
    /// The kernel takes the object back by itself; `None` where that is not known.
    pub(crate) reclaimable: Option<bool>,
    /// Path of the thread's cgroup.
    pub(crate) cgroup: Option<&'a [u8]>,
    /// The object is on the account of a memory cgroup; `None` where that is not known.
    pub(crate) accounted: Option<bool>,
}

impl Select {
    /// True if no option selects: every allocation matches.
    pub fn is_all(&self) -> bool {
        let Select {
            pid,
            tgid,
            comm,
            module,
            cache,
            site,
            kind,
            size,
            context,
            branch,
            reclaimable,
            cgroup,
            accounted,
        } = self;
        pid.is_empty()
            && tgid.is_empty()
            && comm.is_empty()
            && module.is_empty()
            && cache.is_empty()
            && site.is_empty()
            && kind.is_empty()
            && size.is_empty()
            && context.is_empty()
            && branch.is_empty()
            && reclaimable.is_none()
            && cgroup.is_empty()
            && accounted.is_none()
    }

    /// Keys that tell rows apart by all that the options test.
    pub(crate) fn keys(&self) -> Vec<GroupKey> {
        let Select {
            pid,
            tgid,
            comm,
            module,
            cache,
            site,
            kind: _,
            size,
            context,
            branch,
            reclaimable: _,
            cgroup,
            accounted,
        } = self;
        let of = |key: GroupKey, is_asked: bool| is_asked.then_some(key);
        let keys = [
            of(GroupKey::Task, !pid.is_empty() || !comm.is_empty()),
            of(GroupKey::Tgid, !tgid.is_empty()),
            of(GroupKey::Cache, !cache.is_empty()),
            of(GroupKey::Site, !site.is_empty() || !module.is_empty() || !branch.is_empty()),
            of(GroupKey::Size, !size.is_empty()),
            of(GroupKey::Context, !context.is_empty()),
            of(GroupKey::Cgroup, !cgroup.is_empty()),
            of(GroupKey::Accounted, accounted.is_some()),
        ];
        keys.into_iter().flatten().collect()
    }

    /// True where all objects of each cache that is taken are taken.
    pub(crate) fn takes_whole_caches(&self) -> bool {
        Select { cache: Vec::new(), ..self.clone() }.is_all()
    }

    /// The selection on a trace whose caches have these `aliases`: a cache is found by any of its names.
    pub(crate) fn with_aliases(&self, aliases: Option<&CacheAliases>) -> Cow<'_, Select> {
        let Some(aliases) = aliases.filter(|_| !self.cache.is_empty()) else { return Cow::Borrowed(self) };
        let mut select = self.clone();
        let found = aliases.caches_with(|alias| any_glob(&self.cache, Some(alias)));
        // A pattern character in a name of the trace would find other caches.
        let names = found.filter_map(|name| std::str::from_utf8(name).ok()).filter(|name| !name.contains(['*', '?']));
        select.cache.extend(names.map(Glob::new));
        Cow::Owned(select)
    }

    /// True if all options but those of the call-site match, which [`Select::matches_site`] tests. A member that is not known (a comm)
    /// matches no option that tests it.
    pub(crate) fn matches(&self, candidate: &Candidate<'_>) -> bool {
        self.matches_kind(candidate.kind)
            && self.matches_pid(candidate.pid)
            && self.matches_tgid(candidate.tgid)
            && self.matches_size(candidate.requested)
            && (self.matches_cache(candidate.cache) || self.matches_cache(candidate.size_class))
            && self.matches_context(candidate.context)
            && self.matches_comm(candidate.comm)
            && (self.reclaimable.is_none() || candidate.reclaimable == self.reclaimable)
            && (self.accounted.is_none() || candidate.accounted == self.accounted)
            && any_glob(&self.cgroup, candidate.cgroup)
    }

    /// `--kind`.
    pub(crate) fn matches_kind(&self, kind: Kind) -> bool {
        self.kind.is_empty() || self.kind.contains(&kind)
    }

    /// `--pid`.
    pub(crate) fn matches_pid(&self, pid: Option<i32>) -> bool {
        self.pid.is_empty() || pid.is_some_and(|p| self.pid.contains(&p))
    }

    /// `--tgid`.
    pub(crate) fn matches_tgid(&self, tgid: Option<i32>) -> bool {
        self.tgid.is_empty() || tgid.is_some_and(|tgid| self.tgid.contains(&tgid))
    }

    /// `--size`.
    pub(crate) fn matches_size(&self, requested: Option<u64>) -> bool {
        self.size.is_empty() || requested.is_some_and(|n| self.size.iter().any(|r| r.contains(n)))
    }

    /// `--context`.
    pub(crate) fn matches_context(&self, context: Option<Context>) -> bool {
        self.context.is_empty() || context.is_some_and(|context| self.context.contains(&context))
    }

    /// `--cache`: the same for every object of a cache.
    pub(crate) fn matches_cache(&self, cache: Option<&[u8]>) -> bool {
        any_glob(&self.cache, cache)
    }

    /// `--comm`.
    pub(crate) fn matches_comm(&self, comm: Option<&[u8]>) -> bool {
        any_glob(&self.comm, comm)
    }

    /// `--cgroup`.
    pub(crate) fn matches_cgroup(&self, path: Option<&[u8]>) -> bool {
        any_glob(&self.cgroup, path)
    }

    /// `--branch`: by the source file, else by the folder.
    pub(crate) fn matches_branch(&self, place: &Place) -> bool {
        let path = place.path();
        self.branch.is_empty() || path.is_some_and(|path| self.branch.iter().any(|branch| branch.holds(path)))
    }

    /// `--module`. What is no module goes by its whole name, so that `*` takes all modules and nothing else.
    fn matches_module(&self, owner: SiteOwner<'_>) -> bool {
        let matches = |glob: &Glob| (owner.module().is_some() || glob.is_name()) && glob.matches(owner.name());
        self.module.is_empty() || self.module.iter().any(matches)
    }

    /// `--site` and `--module`: the same for every event of a call-site.
    pub(crate) fn matches_site(&self, call_site: u64, symbol: Option<&Symbol<'_>>, owner: SiteOwner<'_>) -> bool {
        self.matches_module(owner) && (self.site.is_empty() || self.site.iter().any(|s| s.matches(call_site, symbol)))
    }
}

/// One value of `--branch`: a folder of the kernel's sources, or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch(Box<str>);

impl Branch {
    /// True for a path at or below it, by whole components.
    pub fn holds(&self, path: &[u8]) -> bool {
        path.strip_prefix(self.0.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }
}

impl FromStr for Branch {
    type Err = String;

    fn from_str(text: &str) -> Result<Branch, String> {
        let path = text.trim_end_matches('/').trim_start_matches("./");
        if path.is_empty() || path.starts_with('/') {
            return Err("a branch is a folder of the kernel's sources, as fs/ext4".to_owned());
        }
        Ok(Branch(path.into()))
    }
}

impl fmt::Display for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn any_glob(globs: &[Glob], name: Option<&[u8]>) -> bool {
    globs.is_empty() || name.is_some_and(|n| globs.iter().any(|g| g.matches(n)))
}

/// A kind by its name.
///
/// # Errors
/// A sentence with the names that are known.
pub fn parse_kind(text: &str) -> Result<Kind, String> {
    Kind::ALL
        .into_iter()
        .find(|k| k.name() == text)
        .ok_or_else(|| format!("there is no such kind; known are {}", Kind::ALL.map(Kind::name).join(", ")))
}

/// One value of `--site`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Site {
    /// `0xffffffff81000100`: the call-site itself.
    Address(u64),
    /// `foo_*`, `foo_open+0x3c`, and `foo_open+0x3c [foo]` as tables show it.
    Symbol {
        /// The function.
        name: Glob,
        /// Bytes from its start; `None`: any.
        offset: Option<u64>,
        /// The module; `None`: any, or none.
        module: Option<Glob>,
    },
}

impl Site {
    fn matches(&self, call_site: u64, symbol: Option<&Symbol<'_>>) -> bool {
        match self {
            Site::Address(address) => *address == call_site,
            Site::Symbol { name, offset, module } => symbol.is_some_and(|s| {
                name.matches(s.name)
                    && offset.is_none_or(|o| Some(o) == s.offset)
                    && module.as_ref().is_none_or(|m| s.module.is_some_and(|n| m.matches(n)))
            }),
        }
    }
}

impl fmt::Display for Site {
    /// The text that gives this call-site.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Site::Address(address) => write!(f, "{address:#x}"),
            Site::Symbol { name, offset, module } => {
                write!(f, "{name}")?;
                offset.map_or(Ok(()), |offset| write!(f, "+{offset:#x}"))?;
                module.as_ref().map_or(Ok(()), |module| write!(f, " [{module}]"))
            }
        }
    }
}

impl FromStr for Site {
    type Err = String;

    fn from_str(text: &str) -> Result<Site, String> {
        let bad = || "a call-site is a symbol (foo_*), symbol+0xOFFSET or 0xADDRESS".to_owned();
        let hex = |digits| u64::from_str_radix(digits, 16).map_err(|_| bad());
        if let Some(digits) = text.strip_prefix("0x") {
            return Ok(Site::Address(hex(digits)?));
        }
        let (text, module) = match text.strip_suffix(']').and_then(|t| t.split_once(" [")) {
            Some((text, module)) => (text, Some(Glob::new(module))),
            None => (text, None),
        };
        let (name, offset) = match text.split_once("+0x") {
            Some((name, digits)) => (name, Some(hex(digits)?)),
            None => (text, None),
        };
        if name.is_empty() {
            return Err(bad());
        }
        Ok(Site::Symbol { name: Glob::new(name), offset, module })
    }
}

/// One value of `--size`: bytes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// Least.
    pub from: u64,
    /// Largest.
    pub to: u64,
}

impl SizeRange {
    fn contains(self, bytes: u64) -> bool {
        (self.from..=self.to).contains(&bytes)
    }
}

impl FromStr for SizeRange {
    type Err = String;

    fn from_str(text: &str) -> Result<SizeRange, String> {
        let bad =
            || "a size is N or A..B, in bytes or with a unit as in 1.5K, and one side of .. may be empty".to_owned();
        let size = |text: &str, empty: u64| match text {
            "" => Ok(empty),
            _ => parse_size(text).ok_or_else(bad),
        };
        let range = match text.split_once("..") {
            None => parse_size(text).map(|n| SizeRange { from: n, to: n }).ok_or_else(bad)?,
            Some(("", "")) => return Err(bad()),
            Some((from, to)) => SizeRange { from: size(from, 0)?, to: size(to, u64::MAX)? },
        };
        if range.from > range.to { Err("the first size is greater than the second".to_owned()) } else { Ok(range) }
    }
}

/// Bytes of `4096`, `4K`, `1.5M`, `1GiB`: the grammar of [`size::parse`] without a `+`.
pub fn parse_size(text: &str) -> Option<u64> {
    size::parse(text).filter(|_| !text.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list<T: FromStr>(text: &str, wrong: impl Fn(T::Err) -> String) -> Result<Vec<T>, String> {
        text.split(',').map(|part| part.parse().map_err(&wrong)).collect()
    }

    /// Options and their values, as the command takes them.
    fn select(options: &[&str]) -> Result<Select, String> {
        let mut select = Select::default();
        for pair in options.chunks(2) {
            let value = pair[1];
            match pair[0] {
                "--pid" => select.pid.extend(list::<i32>(value, |error| error.to_string())?),
                "--tgid" => select.tgid.extend(list::<i32>(value, |error| error.to_string())?),
                "--comm" => select.comm.extend(value.split(',').map(Glob::new)),
                "--module" => select.module.extend(value.split(',').map(Glob::new)),
                "--cache" => select.cache.extend(value.split(',').map(Glob::new)),
                "--site" => select.site.extend(list::<Site>(value, |error| error)?),
                "--kind" => select.kind.extend(value.split(',').map(parse_kind).collect::<Result<Vec<_>, _>>()?),
                "--size" => select.size.extend(list::<SizeRange>(value, |error| error)?),
                "--context" => select.context.extend(list::<Context>(value, |error| error)?),
                "--reclaimable" => select.reclaimable = Some(value == "yes"),
                "--accounted" => select.accounted = Some(value == "yes"),
                "--cgroup" => select.cgroup.extend(value.split(',').map(Glob::new)),
                other => panic!("{other}"),
            }
        }
        Ok(select)
    }

    #[test]
    fn a_cache_is_found_by_any_of_its_names() {
        let aliases = CacheAliases::parse(b"vmap_area Acpi-Operand audit_buffer\nc* x\nmm_slot y\n");
        let takes = |pattern: &str, cache: &[u8]| {
            let asked = select(&["--cache", pattern]).unwrap();
            asked.with_aliases(aliases.as_ref()).matches_cache(Some(cache))
        };
        assert!(takes("Acpi-*", b"vmap_area") && takes("audit_buffer", b"vmap_area") && takes("dentry", b"dentry"));
        assert!(!takes("Acpi-*", b"mm_slot") && !takes("x", b"cred"), "no other cache");
        let all = Select::default();
        assert!(all.with_aliases(aliases.as_ref()).is_all() && all.with_aliases(None).is_all());
    }

    const CANDIDATE: Candidate<'static> = Candidate {
        kind: Kind::Kmalloc,
        pid: Some(812),
        tgid: Some(810),
        comm: Some(b"insmod"),
        cache: Some(b"kmalloc-256"),
        size_class: None,
        requested: Some(200),
        context: Some(Context::SoftIrq),
        reclaimable: Some(false),
        cgroup: Some(b"/system.slice/foo.service"),
        accounted: Some(true),
    };
    const CALL_SITE: u64 = 0xffff_ffff_c010_003c;
    const SYMBOL: Symbol<'static> =
        Symbol { name: b"foo_open", offset: Some(0x3c), module: Some(b"foo"), is_gone: false };

    #[test]
    fn nothing_asked_is_everything() {
        let all = select(&[]).unwrap();
        assert!(all.is_all() && all.matches(&CANDIDATE) && all.matches_site(CALL_SITE, None, SiteOwner::Unknown));
    }

    #[test]
    fn each_option_selects() {
        for (options, want) in [
            (&["--pid", "1,812"][..], true),
            (&["--pid", "81"], false),
            (&["--tgid", "1,810"], true),
            (&["--tgid", "812"], false),
            (&["--comm", "ins*"], true),
            (&["--comm", "rmmod,ins"], false),
            (&["--module", "bar,fo?"], true),
            (&["--module", "*bar"], false),
            (&["--cache", "kmalloc-*"], true),
            (&["--cache", "dentry"], false),
            (&["--site", "foo_*"], true),
            (&["--site", "foo_close"], false),
            (&["--site", "foo_open+0x3c"], true),
            (&["--site", "foo_*+0x3d"], false),
            (&["--site", "foo_open+0x3c [foo]"], true),
            (&["--site", "foo_open+0x3c [bar]"], false),
            (&["--site", "bar,0xffffffffc010003c"], true),
            (&["--site", "0xffffffffc0100000"], false),
            (&["--kind", "pages,kmalloc"], true),
            (&["--kind", "cache"], false),
            (&["--size", "200"], true),
            (&["--size", "..64,201..", "--size", "128..200"], true),
            (&["--size", "1K.."], false),
            (&["--context", "task,softirq"], true),
            (&["--context", "hardirq,nmi"], false),
            (&["--reclaimable", "no"], true),
            (&["--reclaimable", "yes"], false),
            (&["--accounted", "yes"], true),
            (&["--accounted", "no"], false),
            (&["--cgroup", "/a,/system.slice/*"], true),
            (&["--cgroup", "/system.slice"], false),
            // Several options must all match.
            (&["--pid", "812", "--comm", "insmod", "--size", "1..256"], true),
            (&["--pid", "812", "--comm", "insmod", "--size", "1..199"], false),
        ] {
            let select = select(options).unwrap();
            assert!(!select.is_all());
            let matches =
                select.matches(&CANDIDATE) && select.matches_site(CALL_SITE, Some(&SYMBOL), SiteOwner::Module(b"foo"));
            assert_eq!(matches, want, "{options:?}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_selected() {
        let unknown = Candidate {
            pid: None,
            tgid: None,
            comm: None,
            cache: None,
            requested: None,
            context: None,
            reclaimable: None,
            cgroup: None,
            accounted: None,
            ..CANDIDATE
        };
        for options in [
            ["--pid", "0"],
            ["--tgid", "0"],
            ["--comm", "*"],
            ["--module", "*"],
            ["--cache", "*"],
            ["--site", "*"],
            ["--size", "0.."],
            ["--context", "task"],
            ["--reclaimable", "yes"],
            ["--reclaimable", "no"],
            ["--accounted", "no"],
            ["--cgroup", "*"],
        ] {
            let select = select(&options).unwrap();
            assert!(
                !select.matches(&unknown) || !select.matches_site(CALL_SITE, None, SiteOwner::Unknown),
                "{options:?}"
            );
        }
        let select = select(&["--site", "0xffffffffc010003c"]).unwrap();
        assert!(select.matches(&unknown) && select.matches_site(CALL_SITE, None, SiteOwner::Unknown));
    }

    #[test]
    fn what_is_no_module_is_selected_by_its_name_alone() {
        let takes = |pattern: &str, owner| select(&["--module", pattern]).unwrap().matches_site(CALL_SITE, None, owner);
        let init = SiteOwner::Init { module: b"foo", offset: None };
        assert!(takes("(kernel)", SiteOwner::Kernel) && takes("(unknown)", SiteOwner::Unknown) && takes("fo*", init));
        assert!(
            !takes("(kernel)", SiteOwner::Unknown)
                && !takes("(unknown)", init)
                && !takes("(unknown)", SiteOwner::Kernel)
        );
        assert!(!takes("*", SiteOwner::Kernel) && !takes("(*", SiteOwner::Unknown) && takes("*", init));
    }

    #[test]
    fn wrong_values_are_refused_with_what_would_do() {
        for (options, part) in [
            (["--size", ".."], "one side of .. may be empty"),
            (["--size", "2..1"], "greater than the second"),
            (["--size", "+5"], "a size is N or A..B"),
            (["--size", "17179869184G"], "a size is N or A..B"),
            (["--site", "0xfoo"], "0xADDRESS"),
            (["--site", "foo+0x"], "symbol+0xOFFSET"),
            (["--kind", "slab"], "kmalloc, cache, pages, percpu"),
            (["--context", "irq"], "task, softirq, hardirq and nmi"),
            (["--pid", "12x"], "invalid"),
        ] {
            let error = select(&options).unwrap_err();
            assert!(error.contains(part), "{options:?}: {error}");
        }
    }
}
