//! Filters on allocations.

use kmemtrace_abi::event::{Action, Event, Kind};
use kmemtrace_abi::target::Target;
use serde_json::{Map, Value, json};

use super::caches;
use super::symbols::Function;
use crate::generate::symbols::{MODULES, SITES, call_site};
use crate::generate::workload::{CACHES, COMMS, PIDS};
use crate::generate::{Random, Shape};

/// Filters on allocations; the default takes all. Filters are ANDed, the values of one are ORed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only this thread's.
    pub pid: Option<i32>,
    /// Only threads of these names.
    pub comm: Vec<String>,
    /// Only call-sites in these modules.
    pub module: Vec<String>,
    /// Only objects of these caches.
    pub cache: Vec<String>,
    /// Only these call-sites.
    pub site: Vec<u64>,
    /// Only this kind.
    pub kind: Option<Kind>,
    /// Only of at least this many requested bytes, which a free does not tell.
    pub least: Option<u64>,
    /// Only events in these contexts.
    pub context: Vec<&'static str>,
}

/// Names that belong to an event.
#[derive(Clone, Debug)]
pub struct Named<'a> {
    /// Name of the thread.
    pub comm: Option<&'a str>,
    /// Function of the call-site.
    pub function: Option<&'a Function>,
    /// Cache of the object; for a free the cache that the event names.
    pub cache: Option<String>,
}

/// Context of an event; `None` without flags.
pub fn context(event: &Event) -> Option<&'static str> {
    let flags = event.flags?;
    let contexts = [(0x40, "nmi"), (0x08, "hardirq"), (0x10, "softirq")];
    Some(contexts.iter().find(|(bit, _)| flags & bit != 0).map_or("task", |(_, name)| name))
}

fn any<T>(asked: &[T], takes: impl Fn(&T) -> bool) -> bool {
    asked.is_empty() || asked.iter().any(takes)
}

impl Selection {
    /// Filters that take some of the allocations of a generated trace, mostly.
    pub fn random(random: &mut Random, word_bytes: u8) -> Selection {
        let target = Target { word_bytes, ..Shape::plain().target };
        let shape = Shape { target, ..Shape::plain() };
        let mut selection = Selection::default();
        for _ in 0..1 + random.below(2) {
            let some = |random: &mut Random, names: &[&str]| -> Vec<String> {
                (0..1 + random.below(2)).map(|_| (*random.pick(names)).to_owned()).collect()
            };
            match random.below(9) {
                0 => selection.pid = Some(*random.pick(&PIDS)),
                1 => selection.comm = some(random, &COMMS.map(|(_, comm)| comm)),
                2 => selection.module = some(random, &MODULES),
                3 => selection.cache = some(random, &CACHES),
                4 => selection.cache = some(random, &["kmalloc-8", "kmalloc-64", "kmalloc-1k", "kmalloc-192"]),
                5 => selection.site = vec![call_site(&shape, 0, random.below(SITES)), random.below(2)],
                6 => selection.kind = Some(*random.pick(&Kind::ALL)),
                7 => selection.least = Some(*random.pick(&[1, 17, 100, 4096])),
                _ => selection.context = vec![*random.pick(&["nmi", "hardirq", "softirq", "task"])],
            }
        }
        selection
    }

    /// Filters by option, each with its values as a command line gives them: a size as `17..`, a call-site as `0x1f`.
    pub fn given(&self) -> Vec<(&'static str, Vec<String>)> {
        let all = [
            ("pid", self.pid.iter().map(i32::to_string).collect()),
            ("comm", self.comm.clone()),
            ("module", self.module.clone()),
            ("cache", self.cache.clone()),
            ("site", self.site.iter().map(|site| format!("{site:#x}")).collect()),
            ("kind", self.kind.iter().map(|kind| kind.name().to_owned()).collect()),
            ("size", self.least.iter().map(|least| format!("{least}..")).collect::<Vec<_>>()),
            ("context", self.context.iter().map(|&context| context.to_owned()).collect()),
        ];
        all.into_iter().filter(|(_, values)| !values.is_empty()).collect()
    }

    /// Member `filters` of `query`.
    pub fn filters(&self) -> Value {
        self.given()
            .into_iter()
            .map(|(option, values)| (option.to_owned(), json!(values)))
            .collect::<Map<_, _>>()
            .into()
    }

    /// True for an allocation that is asked for, or a free of no known object.
    pub fn takes(&self, event: &Event, named: &Named) -> bool {
        let (kind, requested) = match event.action {
            Action::Alloc(kind) => (kind, Some(event.requested)),
            Action::Bulk(kind) => (kind, (event.requested > 0).then_some(event.requested)),
            Action::Free(kind) | Action::BulkFree(kind) => (kind, None),
            // Free of either kind, which counts as the first.
            Action::Deferred => (Kind::Kmalloc, None),
            Action::Other => return true,
        };
        let module = named.function.and_then(|function| function.module.as_deref());
        self.pid.is_none_or(|pid| event.pid == Some(pid))
            && any(&self.comm, |comm| named.comm == Some(comm))
            && any(&self.module, |asked| module == Some(asked))
            && any(&self.cache, |asked| named.cache.as_ref().is_some_and(|name| caches::takes(asked, name)))
            && any(&self.site, |site| event.call_site == *site)
            && self.kind.is_none_or(|asked| asked == kind)
            && self.least.is_none_or(|least| requested.is_some_and(|bytes| bytes >= least))
            && any(&self.context, |asked| context(event) == Some(*asked))
    }
}
