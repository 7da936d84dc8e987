//! Trees, tasks, modules and rows of stacks of random traces with stacks, against a slow replay of every event.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::path::Path;

use kmemtrace_abi::event::{Action, Event, Kind, Names, StreamItem};
use kmemtrace_abi::fault::Fault;
use kmemtrace_abi::stream::source::EventSource;
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::generate::Random;
use kmemtrace_tests::runs::seeds;
use serde_json::{Value, json};

use crate::documents::{self, Document};
use crate::{
    Analysis, Fate, GroupKey, ModuleRule, NameOptions, ObjectFate, ObjectSink, Query, Select, Shape, SortKey,
    TreeOptions, Uses,
};

const PAGE: u64 = 4096;
/// Code of the kernel itself, a function a page.
const KERNEL: u64 = 0xffff_ffff_8100_0000;
/// Code of modules, a module a page.
const MODULES: u64 = 0xffff_ffff_c000_0000;
/// Functions that stand between an allocation of pages and its site, the first of the kernel.
const GLUE: [&str; 4] =
    ["trace_event_raw_event_mm_page_alloc", "__alloc_pages_noprof", "alloc_pages_mpol", "folio_alloc.isra.0"];
const FUNCTIONS: u64 = 16;
/// Frames of a stack that are kept.
const KEPT: usize = crate::account::stacks::MAX_FRAMES;

/// Event with its stack.
#[derive(Clone, Debug)]
pub(super) struct Made {
    at: u64,
    cpu: u32,
    pid: i32,
    action: Action,
    address: u64,
    call_site: u64,
    bytes: u64,
    order: u8,
    stack: Option<Vec<u64>>,
}

#[derive(Debug)]
struct Events(u32, std::vec::IntoIter<Made>);

impl EventSource for Events {
    fn cpu(&self) -> u32 {
        self.0
    }

    fn path(&self) -> &Path {
        Path::new("made")
    }

    fn read(&mut self, names: &mut Names, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
        for made in self.1.by_ref().take(37) {
            let is_alloc = matches!(made.action, Action::Alloc(_));
            let is_pages = matches!(made.action, Action::Alloc(Kind::Pages) | Action::Free(Kind::Pages));
            let bytes = if is_alloc { made.bytes } else { 0 };
            items.push(StreamItem::Event(Event {
                action: made.action,
                address: made.address,
                call_site: made.call_site,
                requested: bytes,
                allocated: bytes,
                pid: Some(made.pid),
                order: is_pages.then_some(made.order),
                stack: made.stack.as_deref().map(|frames| names.stacks.intern(frames)),
                ..Event::new(made.at, made.cpu, names.intern(b"event"))
            }));
        }
        Ok(())
    }
}

fn frame(random: &mut Random, functions: std::ops::Range<u64>) -> u64 {
    KERNEL + (functions.start + random.below(functions.end - functions.start)) * PAGE + 1 + random.below(3)
}

/// Stack of one of some forms: glue and allocators, then functions of the kernel and of modules, some of them over and over.
fn stack(random: &mut Random) -> Vec<u64> {
    let glue = GLUE.len() as u64;
    let mut frames: Vec<u64> = (0..random.below(3)).map(|_| frame(random, 0..glue)).collect();
    let depth = if random.chance(5) { 300 } else { random.below(7) };
    for _ in 0..depth {
        let of_module = MODULES + random.below(3) * PAGE + 7;
        frames.push(if random.chance(25) { of_module } else { frame(random, glue..FUNCTIONS) });
    }
    frames
}

pub(super) fn made(random: &mut Random) -> Vec<Made> {
    let stacks: Vec<Vec<u64>> = (0..12).map(|_| stack(random)).collect();
    let mut live: Vec<(Action, u64, u8)> = Vec::new();
    let mut events = Vec::new();
    for at in 0..300 + random.below(300) {
        let (cpu, pid) = (random.below(3) as u32, random.below(4) as i32);
        let stack = random.chance(85).then(|| random.pick(&stacks).clone());
        let plain = Made { at, cpu, pid, action: Action::Other, address: 0, call_site: 0, bytes: 0, order: 0, stack };
        if random.chance(40) && !live.is_empty() {
            let (action, address, order) = live.swap_remove(random.below(live.len() as u64) as usize);
            // A part of a block may be freed alone.
            let order = if random.chance(20) { 0 } else { order };
            events.push(Made { action, address, order, stack: None, ..plain });
        } else if random.chance(70) {
            let order = random.below(4) as u8;
            let address = random.below(64) << 3;
            live.push((Action::Free(Kind::Pages), address, order));
            events.push(Made { action: Action::Alloc(Kind::Pages), address, order, bytes: PAGE << order, ..plain });
        } else {
            let kind = *random.pick(&[Kind::Kmalloc, Kind::Cache]);
            let (address, bytes) = (0xffff_8000_0000_0000 + random.below(64) * 64, 8 << random.below(5));
            let of_stack = plain.stack.as_ref().filter(|stack| !stack.is_empty() && random.chance(80));
            let call_site = of_stack.map_or(KERNEL + 5 * PAGE + 3, |stack| *random.pick(stack));
            live.push((Action::Free(kind), address, 0));
            events.push(Made { action: Action::Alloc(kind), address, call_site, bytes, ..plain });
        }
    }
    events
}

pub(super) fn trace(events: &[Made]) -> Trace {
    let of_cpu = |cpu| events.iter().filter(|made| made.cpu == cpu).cloned().collect::<Vec<_>>().into_iter();
    let sources = (0..3).map(|cpu| Box::new(Events(cpu, of_cpu(cpu))) as Box<dyn EventSource>).collect();
    let mut trace = Trace::of_sources("made", Some("mono"), sources).unwrap();
    let kernel = (0..FUNCTIONS).map(|n| {
        let name = GLUE.get(n as usize).map_or(format!("function_{n}"), ToString::to_string);
        format!("{:x} t {name}\n", KERNEL + n * PAGE)
    });
    let modules = (0..3).map(|n| format!("{:x} t in_module_{n}\t[mod{n}]\n", MODULES + n * PAGE));
    trace.metadata.kallsyms = kernel.chain(modules).collect::<String>().into_bytes();
    trace.info.page_bytes = Some(PAGE);
    trace
}

/// Allocation as the reference sees it.
pub(super) struct Known {
    at: u64,
    pub(super) is_pages: bool,
    pub(super) kind: Kind,
    pub(super) pid: i32,
    pub(super) site: u64,
    /// From the site on, the innermost frame first.
    pub(super) stack: Vec<u64>,
}

impl Known {
    fn of(made: &Made, kind: Kind) -> Known {
        let frames = made.stack.clone().unwrap_or_default();
        let is_glue = |frame: &u64| (KERNEL..KERNEL + GLUE.len() as u64 * PAGE).contains(frame);
        let of_call = frames.iter().position(|&frame| frame == made.call_site);
        let from = of_call.or_else(|| frames.iter().position(|frame| !is_glue(frame)));
        let site = if made.call_site == 0 { from.map_or(0, |from| frames[from]) } else { made.call_site };
        let stack = frames.into_iter().skip(from.unwrap_or(0)).take(KEPT).collect();
        Known { at: made.at, is_pages: kind == Kind::Pages, kind, pid: made.pid, site, stack }
    }

    /// Modules of the stack, the innermost first; without a stack that of the site.
    pub(super) fn modules(&self, rule: ModuleRule) -> Vec<Option<String>> {
        let module = |frame: &u64| (*frame >= MODULES).then(|| format!("mod{}", (frame - MODULES) / PAGE));
        let unknown = || Some("(unknown)".to_owned()).filter(|_| self.site == 0);
        let of_site = vec![module(&self.site).or_else(unknown)];
        if self.stack.is_empty() || rule == ModuleRule::Site {
            return of_site;
        }
        let mut all: Vec<_> = self.stack.iter().map(module).filter(Option::is_some).collect();
        match rule {
            _ if all.is_empty() => vec![None],
            ModuleRule::Outermost => vec![all.pop().flatten()],
            ModuleRule::Any => all.into_iter().collect::<BTreeSet<_>>().into_iter().collect(),
            ModuleRule::Innermost | ModuleRule::Site => vec![all.swap_remove(0)],
        }
    }

    /// Steps from the root of a tree.
    fn path(&self, keys: &[GroupKey]) -> Vec<String> {
        let steps = keys.iter().flat_map(|key| match key {
            // A call-site stands for a stack that was not recorded.
            GroupKey::Stack if self.stack.is_empty() && self.site != 0 => vec![format!("{:#x}", self.site)],
            GroupKey::Stack if self.stack.is_empty() => vec!["(no stack)".to_owned()],
            GroupKey::Stack => self.stack.iter().rev().map(|frame| format!("{frame:#x}")).collect(),
            GroupKey::Task => vec![format!("(no name) ({})", self.pid)],
            GroupKey::Module => vec![self.modules(ModuleRule::Innermost)[0].clone().unwrap_or("(kernel)".to_owned())],
            GroupKey::Site => vec![format!("{:#x}", self.site)],
            other => panic!("{other}: not a key of trees"),
        });
        steps.collect()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StackSums {
    pub(super) allocs: u64,
    total: u64,
    pub(super) live: u64,
    pub(super) peak: u64,
}

/// Sums of each group that `groups` names for an allocation, after a replay of every event.
pub(super) fn replay<G: Ord + Clone>(events: &[Made], groups: impl Fn(&Known) -> Vec<G>) -> BTreeMap<G, StackSums> {
    let mut sums: BTreeMap<G, StackSums> = BTreeMap::new();
    let mut held: HashMap<(bool, u64), (Vec<G>, u64)> = HashMap::new();
    for made in events {
        let (Action::Alloc(kind) | Action::Free(kind)) = made.action else { continue };
        let is_pages = kind == Kind::Pages;
        let units = if is_pages { 1 << made.order } else { 1 };
        for unit in 0..units {
            let Some((of, bytes)) = held.remove(&(is_pages, made.address + unit)) else { continue };
            of.iter().for_each(|group| sums.get_mut(group).unwrap().live -= bytes);
        }
        if !matches!(made.action, Action::Alloc(_)) {
            continue;
        }
        let of = groups(&Known::of(made, kind));
        for group in &of {
            let sums = sums.entry(group.clone()).or_default();
            sums.allocs += 1;
            sums.total += made.bytes;
            sums.live += made.bytes;
            sums.peak = sums.peak.max(sums.live);
        }
        for unit in 0..units {
            held.insert((is_pages, made.address + unit), (of.clone(), made.bytes / units));
        }
    }
    sums
}

fn sums_of(row: &Value) -> StackSums {
    let figure = |member: &str| row[member].as_u64().unwrap();
    StackSums {
        allocs: figure("allocs"),
        total: figure("allocated"),
        live: figure("live_allocated"),
        peak: figure("peak_live_allocated"),
    }
}

/// Nodes of a tree by their paths; each is checked against its children.
fn nodes(node: &Value, path: &mut Vec<String>, into: &mut BTreeMap<Vec<String>, StackSums>) {
    let sums = sums_of(node);
    let children = node["children"].as_array().unwrap();
    let below: u64 = children.iter().map(|child| child["live_allocated"].as_u64().unwrap()).sum();
    assert!(below <= sums.live, "{path:?}: the children of a node hold more than it");
    assert!(into.insert(path.clone(), sums).is_none(), "{path:?} comes twice");
    for child in children {
        let name = child["address"].as_str().or(child["name"].as_str()).unwrap();
        path.push(name.to_owned());
        nodes(child, path, into);
        path.pop();
    }
}

/// Checks that each node grew by no more than it holds, and that children come by their growth.
fn assert_grows(node: &Value) {
    let grew = |node: &Value| node["grew"].as_i64().unwrap();
    assert!(grew(node) <= node["live_allocated"].as_i64().unwrap(), "{node}");
    let children = node["children"].as_array().unwrap();
    assert!(children.is_sorted_by(|a, b| grew(a) >= grew(b)), "{node}");
    if children.iter().map(|child| child["allocs"].as_u64().unwrap()).sum::<u64>() == node["allocs"].as_u64().unwrap() {
        assert_eq!(children.iter().map(grew).sum::<i64>(), if children.is_empty() { 0 } else { grew(node) }, "{node}");
    }
    children.iter().for_each(assert_grows);
}

fn document(
    events: &[Made],
    query: Query,
    cut: (usize, usize),
    make: impl for<'a> Fn(&'a Analysis) -> Document<'a>,
) -> Value {
    let analysis = query.threads(cut.0).cut(Some(cut.1), None).run(&mut trace(events)).unwrap();
    json!(make(&analysis))
}

fn pages_or_slab(is_pages: bool) -> Select {
    let kind = if is_pages { vec![] } else { vec![Kind::Kmalloc, Kind::Cache] };
    Select { kind, ..Select::default() }
}

const CUTS: [(usize, usize); 4] = [(1, 2048), (1, 16), (2, 64), (4, 32)];

#[test]
fn trees_are_those_of_a_replay() {
    use GroupKey::{Module, Site, Stack, Task};
    for seed in seeds(0..40) {
        let mut random = Random::new(seed);
        let events = made(&mut random);
        let all_keys: [&[GroupKey]; 6] =
            [&[Stack], &[Module, Stack], &[Task], &[Task, Stack], &[Site, Task], &[Module]];
        let keys = *random.pick(&all_keys);
        let is_pages = random.chance(60);
        let all = replay(&events, |known| {
            let path = known.path(keys);
            let is_shown = known.is_pages == is_pages;
            if is_shown { (0..=path.len()).map(|depth| path[..depth].to_vec()).collect() } else { vec![] }
        });
        let cut = *random.pick(&CUTS);
        let query = Query::by(keys).module_rule(ModuleRule::Innermost).with_nodes(true).select(pages_or_slab(is_pages));
        let (query, options) = (query.with_growth(true), TreeOptions::default());
        let shape = Shape { sort: vec![SortKey::Growth], top: None };
        let tree = document(&events, query, cut, |analysis| documents::key_tree(analysis, &shape, &options));
        let mut found = BTreeMap::new();
        nodes(&tree["root"], &mut Vec::new(), &mut found);
        assert_eq!(found, all, "seed {seed}, {keys:?}, pages {is_pages}, {cut:?}");
        assert_grows(&tree["root"]);
        assert_eq!(tree["shows"], if is_pages { "pages" } else { "slab" });
        let distinct: BTreeSet<_> = events.iter().filter_map(|made| made.stack.as_ref()).collect();
        assert_eq!(tree["stacks_distinct"], distinct.len() as u64, "seed {seed}");
    }
}

#[test]
fn folded_children_add_up() {
    for seed in seeds(0..20) {
        let mut random = Random::new(seed);
        let events = made(&mut random);
        let query = Query::by(&[GroupKey::Task, GroupKey::Stack]).with_nodes(true);
        let options = TreeOptions { throttle: Some(60.0), depth: Some(5), ..TreeOptions::default() };
        let shape = Shape { top: Some(2), ..Shape::default() };
        let tree = document(&events, query, (1, 64), |analysis| documents::key_tree(analysis, &shape, &options));
        let mut level = vec![&tree["root"]];
        for _ in 0..5 {
            for node in std::mem::take(&mut level) {
                let children = node["children"].as_array().unwrap();
                assert!(children.iter().filter(|child| child["kind"] != "others").count() <= 2);
                let sum = |member: &str| children.iter().map(|child| child[member].as_u64().unwrap()).sum::<u64>();
                assert!(sum("allocs") <= node["allocs"].as_u64().unwrap(), "seed {seed}");
                level.extend(children.iter().filter(|child| child["kind"] != "others"));
            }
        }
        assert!(tree["root"]["children"].as_array().unwrap().iter().any(|child| child["folded"].is_u64()));
    }
}

#[test]
fn tasks_and_modules_are_those_of_a_replay() {
    for seed in seeds(0..40) {
        let mut random = Random::new(seed);
        let events = made(&mut random);
        let is_pages = random.chance(60);
        let cut = *random.pick(&CUTS);
        let shape = Shape::default();
        let rows = |document: &Value, name: fn(&Value) -> Option<String>| -> BTreeMap<_, _> {
            let rows = document["rows"].as_array().unwrap().iter();
            rows.map(|row| ((name(row), row["kind"].as_str().unwrap().to_owned()), sums_of(row))).collect()
        };
        let named = |known: &Known, names: Vec<Option<String>>| -> Vec<(Option<String>, String)> {
            let names = names.into_iter().filter(|_| known.is_pages == is_pages);
            names.map(|name| (name, known.kind.name().to_owned())).collect()
        };
        let query = Query::by(&[GroupKey::Task]).select(pages_or_slab(is_pages));
        let tasks = document(&events, query, cut, |analysis| documents::tasks(analysis, &shape));
        let want = replay(&events, |known| named(known, vec![Some(known.pid.to_string())]));
        assert_eq!(rows(&tasks, |row| Some(row["pid"].to_string())), want, "seed {seed}");
        for rule in ModuleRule::ALL {
            let query = Query::by(&[GroupKey::Module]).module_rule(rule).with_nodes(rule == ModuleRule::Any);
            let query = query.select(pages_or_slab(is_pages));
            let modules = document(&events, query, cut, |analysis| documents::modules(analysis, &shape));
            let want = replay(&events, |known| named(known, known.modules(rule)));
            let name = |row: &Value| {
                let unknown = (row["module_known"] == false).then_some("(unknown)");
                row["module"].as_str().or(unknown).map(ToOwned::to_owned)
            };
            let found = rows(&modules, name);
            assert_eq!(found, want, "seed {seed}, {}", rule.name());
        }
    }
}

#[test]
fn uses_are_those_of_a_replay() {
    const RULES: &str = "first: frame function_4 in_module_*\nsecond: frame function_5 function_6\nbare: no-stack\n";
    for seed in seeds(0..40) {
        let mut random = Random::new(seed);
        let (events, cut) = (made(&mut random), *random.pick(&CUTS));
        let names = NameOptions { uses: Uses::parse(RULES).unwrap(), ..NameOptions::default() };
        let query =
            Query::by(&[GroupKey::Use]).select(Select { kind: vec![Kind::Pages], ..Select::default() }).names(names);
        let shape = Shape::default();
        let document = document(&events, query, cut, |analysis| documents::uses(analysis, &shape));
        let rows = document["rows"].as_array().unwrap().iter();
        let found: BTreeMap<_, _> = rows.map(|row| (row["use"].as_str().unwrap().to_owned(), sums_of(row))).collect();
        let function = |frame: &u64| if *frame >= MODULES { 4 } else { (*frame - KERNEL) / PAGE };
        let use_of = |known: &Known| match known.stack.iter().map(function).collect::<BTreeSet<u64>>() {
            functions if functions.contains(&4) => "first",
            functions if functions.contains(&5) || functions.contains(&6) => "second",
            functions if functions.is_empty() => "bare",
            _ => "other",
        };
        let want = replay(&events, |known| known.is_pages.then(|| use_of(known).to_owned()).into_iter().collect());
        assert_eq!(found, want, "seed {seed}");
    }
}

/// Addresses of a stack that a row names by its number; none for null.
fn frames_of(document: &Value, number: &Value) -> Vec<u64> {
    let frames = number.as_str().map(|number| document["stacks"][number].as_array().unwrap().clone());
    let address = |frame: Value| u64::from_str_radix(&frame["address"].as_str().unwrap()[2..], 16).unwrap();
    frames.into_iter().flatten().map(address).collect()
}

#[test]
fn rows_of_stacks_name_each_stack_once() {
    for seed in seeds(0..20) {
        let mut random = Random::new(seed);
        let events = made(&mut random);
        let cut = *random.pick(&CUTS);
        let shape = Shape::default();
        let sites =
            document(&events, Query::by(&[GroupKey::Stack]), cut, |analysis| documents::sites(analysis, &shape));
        let want = replay(&events, |known| vec![(known.stack.clone(), known.kind.name().to_owned())]);
        let rows = sites["rows"].as_array().unwrap();
        let found = rows
            .iter()
            .map(|row| ((frames_of(&sites, &row["stack"]), row["kind"].as_str().unwrap().to_owned()), sums_of(row)));
        assert_eq!(found.collect::<BTreeMap<_, _>>(), want, "seed {seed}");
        let mut next = 1;
        for number in rows.iter().filter_map(|row| row["stack"].as_str()?.parse::<u64>().ok()) {
            assert!(number <= next, "seed {seed}: numbered by first use");
            next = next.max(number + 1);
        }
    }
}

/// Objects and their stacks, by the keys of their allocations.
#[derive(Default)]
struct Objects(BTreeMap<u64, (Fate, Vec<u64>)>);

impl ObjectSink for Objects {
    fn object(&mut self, object: &ObjectFate<'_>) -> ControlFlow<()> {
        let of_object = (object.fate, object.stack.to_vec());
        assert!(self.0.insert(object.at, of_object).is_none(), "an object comes twice");
        ControlFlow::Continue(())
    }

    fn restart(&mut self) {
        self.0.clear();
    }
}

#[test]
fn objects_have_the_stacks_of_their_allocations() {
    for seed in seeds(0..20) {
        let mut random = Random::new(seed);
        let events = made(&mut random);
        let allocated: BTreeMap<u64, Known> = events
            .iter()
            .filter_map(|made| match made.action {
                Action::Alloc(kind) => Some((made.at, Known::of(made, kind))),
                _ => None,
            })
            .collect();
        let by_event = replay(&events, |known| vec![known.at]);
        let live: BTreeMap<u64, Vec<u64>> = by_event
            .iter()
            .filter(|(_, sums)| sums.live > 0)
            .map(|(at, _)| (*at, allocated[at].stack.clone()))
            .collect();
        let query = Query::by_site().with_stacks(true).with_live_objects(true);
        let listed =
            document(&events, query, *random.pick(&CUTS), |analysis| documents::live(analysis, &Shape::default()));
        let rows = listed["rows"].as_array().unwrap().iter();
        let found: BTreeMap<u64, Vec<u64>> =
            rows.map(|row| (row["at"].as_u64().unwrap(), frames_of(&listed, &row["stack"]))).collect();
        assert_eq!(found, live, "seed {seed}");
        let mut objects = Objects::default();
        Query::by_kind().objects(&mut trace(&events), &mut objects).unwrap();
        for (at, known) in &allocated {
            assert_eq!(objects.0[at].1, known.stack, "seed {seed}, the allocation at {at}");
            assert_eq!(objects.0[at].0 == Fate::Live, live.contains_key(at), "seed {seed}, {at}");
        }
        assert!(objects.0.iter().all(|(at, (_, stack))| allocated.contains_key(at) || stack.is_empty()));
    }
}

/// Call-sites of pages are the sites of their stacks, for rows and filters.
#[test]
fn pages_have_the_site_of_their_stack() {
    for seed in seeds(0..20) {
        let mut random = Random::new(seed);
        let events = made(&mut random);
        let select = Select { module: vec![crate::Glob::new("mod1")], kind: vec![Kind::Pages], ..Select::default() };
        let sites = document(&events, Query::by_site().select(select), (1, 64), |analysis| {
            documents::sites(analysis, &Shape::default())
        });
        let want = replay(&events, |known| {
            let is_taken = known.is_pages && known.modules(ModuleRule::Site) == [Some("mod1".to_owned())];
            if is_taken { vec![format!("{:#x}", known.site)] } else { vec![] }
        });
        let rows = sites["rows"].as_array().unwrap().iter();
        let found: BTreeMap<_, _> =
            rows.map(|row| (row["call_site"].as_str().unwrap().to_owned(), sums_of(row))).collect();
        assert_eq!(found, want, "seed {seed}");
    }
}
