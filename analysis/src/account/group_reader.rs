//! Values of an event's keys: the call-site's module, the thread's command name, the name of the object's cache.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;
use kmemtrace_abi::event::{Event, Kind, ModuleLoad, Space};
use kmemtrace_abi::kernel::gfp::GfpNames;
use kmemtrace_abi::owner::Owner;

use crate::account::cgroups::{CgroupNumber, Cgroups};
use crate::account::classes::{CacheNumber, Classes};
use crate::account::grouping::{GroupKey, GroupValue, Grouping, ModuleRule, NO_VALUE};
use crate::account::module_loads::{INIT, LoadedModule, ModuleLoads};
use crate::account::stacks::StackNumber;
use crate::names::caches::{CacheFrom, CacheNames, candidates};
use crate::names::kallsyms::{SiteOwner, Symbolizer};
use crate::names::known::KnownNames;
use crate::names::place::{Place, SourceLine};
use crate::names::reclaim::{Reclaim, ReclaimedObject};
use crate::names::resolver::Places;
use crate::names::wrappers::plain_name;

/// Facts of a trace that the values of keys depend on.
#[derive(Clone, Copy)]
pub(crate) struct GroupFacts<'a> {
    /// Command names by thread id.
    pub(crate) comms: &'a HashMap<i32, Box<[u8]>>,
    /// Symbols, where the keys need names of call-sites.
    pub(crate) symbols: Option<&'a Symbolizer>,
    /// Places of call-sites.
    pub(crate) places: &'a Places,
    /// Names of caches that events do not carry.
    pub(crate) caches: &'a CacheNames,
    /// Names of the trace, for symbols of stacks.
    pub(crate) names: Option<&'a KnownNames>,
    /// Names of allocation flags.
    pub(crate) gfp_names: Option<&'a GfpNames>,
    /// Rule by which an allocation belongs to a module.
    pub(crate) module_rule: ModuleRule,
    /// Loads of modules, where the keys need them and the trace tells them.
    pub(crate) loads: Option<&'a ModuleLoads>,
    /// Cgroups of threads, where the keys need them and the trace tells them.
    pub(crate) cgroups: Option<&'a Cgroups>,
    /// The query asks which objects the kernel takes back by itself.
    pub(crate) marks_reclaim: bool,
}

impl<'a> GroupFacts<'a> {
    /// Symbols, indexed now where no key needed them so far.
    pub(crate) fn symbolizer(&self) -> Option<&'a Symbolizer> {
        self.symbols.or_else(|| self.names.map(KnownNames::symbols))
    }
}

/// Numbers of an event's names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EventNumbers {
    /// Cache that the event names; 0 for none.
    pub(crate) cache: CacheNumber,
    /// Stack; 0 for none.
    pub(crate) stack: StackNumber,
    /// Frames that the stack passes over, of pages; 0 for none.
    pub(crate) passed: StackNumber,
    /// Values of the owner that the input tells with the event.
    pub(crate) owner: Option<OwnerValues>,
}

/// Name that page_owner_sort has for the kernel itself among modules (tools/mm/page_owner_sort.c).
const KERNEL_IMAGE: &[u8] = b"vmlinux";

/// Values of an owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerValues {
    tgid: GroupValue,
    /// Number of the command name; 0 for none.
    comm: CacheNumber,
    allocators: GroupValue,
    is_released: bool,
    /// Number of the module that the input names as the owner, 0 for the kernel itself; `None` where it names none.
    module: Option<CacheNumber>,
    /// Bytes asked for by each object of an entry of a text; `None` for an event of one object, which tells its own.
    size: Option<GroupValue>,
}

impl OwnerValues {
    pub(crate) fn new(owner: &Owner, classes: &Classes) -> OwnerValues {
        OwnerValues {
            tgid: owner.tgid.map_or(NO_VALUE, |tgid| u64::from(tgid.cast_unsigned())),
            comm: owner.comm.as_ref().map_or(0, |comm| classes.cache(comm)),
            allocators: classes.cache(owner.allocators.names().as_bytes()).into(),
            is_released: owner.is_released,
            module: owner.listed.as_ref().and_then(|listed| listed.module.as_ref()).map(|name| match &**name {
                KERNEL_IMAGE => 0,
                name => classes.cache(name),
            }),
            size: owner.listed.as_ref().map(|listed| listed.amounts.requested_of_each().unwrap_or(NO_VALUE)),
        }
    }

    /// Thread with the command name that it had, as [`parts_of_task`] takes it apart.
    fn task(self, pid: i32) -> GroupValue {
        u64::from(self.comm) << u32::BITS | u64::from(pid.cast_unsigned())
    }
}

/// Thread, and the number of its command name where the input tells it with the allocation, from the value of [`GroupKey::Task`].
pub(crate) fn parts_of_task(value: GroupValue) -> (Option<i32>, Option<GroupValue>) {
    let comm = value >> u32::BITS;
    ((value != NO_VALUE).then_some(value as u32 as i32), (value != NO_VALUE && comm != 0).then_some(comm))
}

/// Values of a key by what they depend on: each is looked up once.
type Memory<K, V = GroupValue> = HashMap<K, V, RandomState>;

/// What it depends on whether the kernel takes an object back by itself: kind, cache, call-site and bytes, and what its flags ask for.
type ReclaimedBy = (Kind, CacheNumber, (u64, u64), Option<bool>);

/// Threads whose command names are at hand.
const RECENT: usize = 256;
/// Id that no thread has.
const NO_THREAD: i32 = i32::MIN;

/// Sizes and flags whose size classes are at hand.
const RECENT_SIZES: usize = 256;
/// Bytes that no allocation has; the class of a trace that has them all the same is looked up each time.
const NO_SIZE: u64 = u64::MAX;

/// Limit of the values that are remembered of one key: a trace may make up any number of sizes.
const MAX_REMEMBERED: usize = 1 << 16;

/// Empties a memory that has grown to its limit.
fn limit<K, V>(memory: &mut Memory<K, V>) {
    if memory.len() >= MAX_REMEMBERED {
        memory.clear();
    }
}

/// Slot of a size and its flags: a product's high bits depend on all of theirs.
#[inline]
fn recent_size(allocated: u64, gfp: Option<u64>) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (allocated ^ gfp.unwrap_or(0).rotate_right(16)).wrapping_mul(FACTOR);
    (mixed >> (u64::BITS - RECENT_SIZES.ilog2())) as usize
}

/// Lists of values that are at hand.
const RECENT_LISTS: usize = 256;
/// Longest list that is kept at hand. Only `--by` makes rows of more keys beside the call-site.
const SHORT_LIST: usize = 4;
/// Number in a slot that has no list yet.
const NO_LIST: u64 = u64::MAX;

/// Values of the keys of a short list; 0 where the list has no more.
type ShortList = [GroupValue; SHORT_LIST];

/// Slot of a list: a product's high bits depend on all of theirs.
#[inline]
fn recent_list(values: &ShortList) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let [first, second, third, fourth] = values.map(|value| value.wrapping_mul(FACTOR));
    let mixed = first ^ second.rotate_left(16) ^ third.rotate_left(32) ^ fourth.rotate_left(48);
    (mixed.wrapping_mul(FACTOR) >> (u64::BITS - RECENT_LISTS.ilog2())) as usize
}

/// Reader of the keys of events, but for the call-site.
#[derive(Clone)]
pub(crate) struct GroupReader<'a> {
    keys: Vec<GroupKey>,
    facts: GroupFacts<'a>,
    classes: &'a Classes,
    comms: Memory<i32>,
    /// Latest threads by the low bits of their ids: nearly all events are of few threads.
    recent_comms: Box<[(i32, GroupValue); RECENT]>,
    cgroups: Memory<CgroupNumber>,
    /// Names by key and call-site.
    sites: Memory<(GroupKey, u64)>,
    sizes: Memory<(u64, Option<u64>)>,
    /// Latest bytes allocated and flags, by some of their bits: most objects are of some tens of them.
    recent_sizes: Box<[(u64, Option<u64>, GroupValue); RECENT_SIZES]>,
    /// Caches by call-site and bytes allocated.
    caches: Memory<(u64, u64)>,
    /// Stacks of call-sites alone, where nodes of a tree show the call-site of an allocation without a stack; `None` elsewhere.
    alone: Option<Memory<u64>>,
    /// Modules by stack and by the module that is initialised.
    modules: Memory<(StackNumber, LoadedModule)>,
    /// 1 for stacks within the initialisation of a module, else 0.
    inits: Memory<StackNumber>,
    /// Uses by stack, flags and order.
    uses: Memory<(StackNumber, StackNumber, Option<u64>, Option<u8>)>,
    reclaims: Memory<ReclaimedBy, Reclaim>,
    lists: Memory<Box<[GroupValue]>>,
    /// Latest short lists with their numbers, by some of the bits of their values.
    recent_lists: Box<[(ShortList, u64); RECENT_LISTS]>,
    /// Loads of modules of a trace that is being read; `None` where they are at hand, or not needed.
    coming_loads: Option<ModuleLoads>,
    /// Values of one event, of a long list.
    values: Vec<GroupValue>,
}

impl<'a> GroupReader<'a> {
    /// Reader of the keys of `grouping`.
    pub(crate) fn new(grouping: Grouping, facts: GroupFacts<'a>, classes: &'a Classes) -> GroupReader<'a> {
        GroupReader {
            keys: grouping.others().collect(),
            facts,
            classes,
            comms: HashMap::default(),
            recent_comms: Box::new([(NO_THREAD, 0); RECENT]),
            cgroups: HashMap::default(),
            sites: HashMap::default(),
            sizes: HashMap::default(),
            recent_sizes: Box::new([(NO_SIZE, None, 0); RECENT_SIZES]),
            caches: HashMap::default(),
            alone: classes.has_paths().then(HashMap::default),
            modules: HashMap::default(),
            inits: HashMap::default(),
            uses: HashMap::default(),
            reclaims: HashMap::default(),
            lists: HashMap::default(),
            recent_lists: Box::new([(ShortList::default(), NO_LIST); RECENT_LISTS]),
            coming_loads: None,
            values: Vec::new(),
        }
    }

    /// Reader of a trace whose loads of modules are known as they come. The value of [`GroupKey::Module`] is the module that is
    /// initialised, and nothing else: symbols of other modules come later, too.
    pub(crate) fn with_coming_loads(self) -> GroupReader<'a> {
        GroupReader { coming_loads: Some(ModuleLoads::default()), ..self }
    }

    /// Takes a load of a module.
    #[cold]
    pub(crate) fn take_load(&mut self, load: ModuleLoad<'_>) {
        if let Some(loads) = &mut self.coming_loads {
            loads.add_latest(load);
        }
    }

    /// Facts that the values depend on.
    pub(crate) fn facts(&self) -> GroupFacts<'a> {
        self.facts
    }

    /// True where rows have keys beside the call-site.
    #[inline(always)]
    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// True where the value of a key depends on the time of the event, too.
    pub(crate) fn depends_on_time(&self) -> bool {
        self.keys.iter().any(|key| key.is_of_time())
    }

    /// True where objects are to be told apart that the kernel takes back by itself.
    #[inline(always)]
    pub(crate) fn marks_reclaim(&self) -> bool {
        self.facts.marks_reclaim
    }

    /// Whether an allocation with these flags asks for memory that the kernel takes back; `None` also where no query asks for it.
    #[inline]
    pub(crate) fn asks_reclaimable(&self, gfp: Option<u64>) -> Option<bool> {
        if self.facts.marks_reclaim { self.facts.caches.reclaim.asks_reclaimable(gfp) } else { None }
    }

    /// Whether the kernel takes an object back by itself that was given out at this call-site with so many bytes.
    pub(crate) fn reclaim(
        &mut self,
        kind: Kind,
        cache: CacheNumber,
        place: (u64, u64),
        asks_reclaimable: Option<bool>,
    ) -> Reclaim {
        if !self.facts.marks_reclaim {
            return Reclaim::Unknown;
        }
        // Only the name of a cache that the event does not give depends on the bytes.
        let place = (place.0, if kind == Kind::Cache && cache == 0 { place.1 } else { 0 });
        let object = (kind, cache, place, asks_reclaimable);
        if let Some(&known) = self.reclaims.get(&object) {
            return known;
        }
        let reclaim = self.other_reclaim(object);
        limit(&mut self.reclaims);
        self.reclaims.insert(object, reclaim);
        reclaim
    }

    #[cold]
    fn other_reclaim(&self, (kind, cache, place, asks_reclaimable): ReclaimedBy) -> Reclaim {
        let named = self.classes.name(cache);
        let known = || {
            let known = self.facts.caches.of_object(place).filter(|_| kind == Kind::Cache)?;
            Some(known.0).filter(|name| candidates(name).is_none())
        };
        let function = self.facts.symbolizer().and_then(|symbols| symbols.lookup(place.0)).map(|symbol| symbol.name);
        let cache = named.as_deref().or_else(known);
        self.facts.caches.reclaim.of_object(ReclaimedObject { kind, cache, asks_reclaimable, function })
    }

    /// The keys of an allocation as one number, see [`crate::account::grouping::RowKey::others`].
    #[inline]
    pub(crate) fn others(&mut self, event: &Event, kind: Kind, numbers: EventNumbers) -> u64 {
        match self.keys[..] {
            [] => 0,
            [key] => self.value(key, event, kind, numbers),
            _ => self.list(event, kind, numbers),
        }
    }

    fn list(&mut self, event: &Event, kind: Kind, numbers: EventNumbers) -> u64 {
        let len = self.keys.len();
        if len > SHORT_LIST {
            return self.long_list(event, kind, numbers);
        }
        let mut values = ShortList::default();
        for (index, value) in values.iter_mut().enumerate().take(len) {
            *value = self.value(self.keys[index], event, kind, numbers);
        }
        let slot = recent_list(&values);
        let (recent, number) = self.recent_lists[slot];
        if recent == values && number != NO_LIST {
            return number;
        }
        let number = self.list_number(&values[..len]);
        self.recent_lists[slot] = (values, number);
        number
    }

    #[cold]
    fn long_list(&mut self, event: &Event, kind: Kind, numbers: EventNumbers) -> u64 {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        for index in 0..self.keys.len() {
            values.push(self.value(self.keys[index], event, kind, numbers));
        }
        let number = self.list_number(&values);
        self.values = values;
        number
    }

    #[inline(never)]
    fn list_number(&mut self, values: &[GroupValue]) -> u64 {
        if let Some(&number) = self.lists.get(values) {
            return number;
        }
        let number = self.classes.list(values);
        limit(&mut self.lists);
        self.lists.insert(values.into(), number);
        number
    }

    #[inline]
    fn value(&mut self, key: GroupKey, event: &Event, kind: Kind, numbers: EventNumbers) -> GroupValue {
        match key {
            GroupKey::Site => event.call_site,
            GroupKey::Task | GroupKey::Pid => match (numbers.owner, event.pid) {
                (Some(owner), Some(pid)) if key == GroupKey::Task => owner.task(pid),
                (_, pid) => pid.map_or(NO_VALUE, |pid| u64::from(pid.cast_unsigned())),
            },
            GroupKey::Comm => match numbers.owner {
                Some(owner) => owner.comm.into(),
                None => event.pid.map_or(0, |pid| self.comm(pid)),
            },
            GroupKey::Cgroup => self.cgroup(event),
            GroupKey::Accounted => self.facts.caches.reclaim.is_accounted(event).map_or(NO_VALUE, Into::into),
            GroupKey::Tgid => numbers.owner.map_or(NO_VALUE, |owner| owner.tgid),
            GroupKey::Allocator => numbers.owner.map_or(0, |owner| owner.allocators),
            GroupKey::Released => numbers.owner.map_or(NO_VALUE, |owner| owner.is_released.into()),
            GroupKey::Cache => self.cache(event, kind, numbers.cache),
            GroupKey::Stack if numbers.stack == 0 && event.call_site != 0 => self.stack_of_site(event.call_site),
            GroupKey::Stack => numbers.stack.into(),
            GroupKey::Use if kind.space() == Space::Pages => self.use_of_pages(event, (numbers.passed, numbers.stack)),
            GroupKey::Use => 0,
            GroupKey::Order => event.order.map_or(NO_VALUE, Into::into),
            GroupKey::Module if numbers.stack == 0 && numbers.owner.is_some_and(|owner| owner.module.is_some()) => {
                numbers.owner.and_then(|owner| owner.module).map_or(0, Into::into)
            }
            GroupKey::Module if self.coming_loads.is_some() => self.initialised_now(event, numbers.stack),
            GroupKey::Module if numbers.stack != 0 && self.facts.module_rule != ModuleRule::Site => {
                let loaded = self.facts.loads.map_or(0, |loads| self.initialised(event, numbers.stack, loads));
                self.module_of_stack(numbers.stack, loaded)
            }
            GroupKey::Source
            | GroupKey::Function
            | GroupKey::File
            | GroupKey::Folder
            | GroupKey::Area
            | GroupKey::Module => self.of_call_site(key, event.call_site),
            GroupKey::Size => match numbers.owner.and_then(|owner| owner.size) {
                Some(size) => size,
                None => event.told_bytes().map_or(NO_VALUE, |(requested, _)| requested),
            },
            GroupKey::Gfp => event.gfp.unwrap_or(NO_VALUE),
            GroupKey::Node => event.node.map_or(NO_VALUE, |node| u64::from(node.cast_unsigned())),
            GroupKey::Context => event.context().map_or(NO_VALUE, |context| context as u64),
        }
    }

    #[inline]
    fn comm(&mut self, pid: i32) -> GroupValue {
        let slot = pid as usize % RECENT;
        let (recent, value) = self.recent_comms[slot];
        if recent == pid && pid != NO_THREAD {
            return value;
        }
        let value = self.other_comm(pid);
        self.recent_comms[slot] = (pid, value);
        value
    }

    fn cgroup(&mut self, event: &Event) -> GroupValue {
        let Some((cgroups, pid)) = self.facts.cgroups.zip(event.pid) else { return 0 };
        let classes = self.classes;
        let number = |path| classes.cache(path).into();
        let of = cgroups.at(pid, event.at);
        limit(&mut self.cgroups);
        *self.cgroups.entry(of).or_insert_with(|| cgroups.path_of(of).map_or(0, number))
    }

    #[cold]
    fn other_comm(&mut self, pid: i32) -> GroupValue {
        let (facts, classes) = (self.facts, self.classes);
        let number = || facts.comms.get(&pid).map_or(0, |comm| classes.cache(comm).into());
        *self.comms.entry(pid).or_insert_with(number)
    }

    #[inline]
    fn of_call_site(&mut self, key: GroupKey, call_site: u64) -> GroupValue {
        let (facts, classes) = (self.facts, self.classes);
        let number = || {
            let symbols = facts.symbols?;
            let module = || symbols.lookup(call_site)?.module;
            if key == GroupKey::Module {
                return Some(value_of_owner(symbols.owner(call_site), classes));
            }
            name_of(&facts.places.place(call_site, symbols), key, module).map(|name| classes.cache(&name).into())
        };
        limit(&mut self.sites);
        *self.sites.entry((key, call_site)).or_insert_with(|| number().unwrap_or(0))
    }

    /// Stack of an allocation without one.
    fn stack_of_site(&mut self, call_site: u64) -> GroupValue {
        let classes = self.classes;
        let Some(alone) = &mut self.alone else { return 0 };
        limit(alone);
        *alone.entry(call_site).or_insert_with(|| classes.stack_of_site(call_site).into())
    }

    /// Module whose initialisation the event is part of; 0 for none.
    fn initialised(&mut self, event: &Event, stack: StackNumber, loads: &ModuleLoads) -> LoadedModule {
        let (facts, classes) = (self.facts, self.classes);
        let loaded = event.pid.map_or(0, |pid| loads.latest(pid, event.at));
        if loaded == 0 {
            return 0;
        }
        let is_init = || {
            let frames = classes.frames(stack);
            let symbols = facts.symbolizer();
            let function = |frame: &u64| symbols.and_then(|symbols| symbols.lookup(*frame));
            let functions = frames.iter().filter_map(function).filter(|symbol| symbol.module.is_none());
            u64::from(functions.map(|symbol| symbol.name).any(|name| plain_name(name) == INIT))
        };
        limit(&mut self.inits);
        if *self.inits.entry(stack).or_insert_with(is_init) == 1 { loaded } else { 0 }
    }

    /// Name of the module whose initialisation the event is part of, by the loads that have come; 0 for none.
    fn initialised_now(&mut self, event: &Event, stack: StackNumber) -> GroupValue {
        let Some(loads) = self.coming_loads.take_if(|loads| stack != 0 && !loads.is_empty()) else { return 0 };
        let loaded = self.initialised(event, stack, &loads);
        let value = loads.name(loaded).map_or(0, |name| self.classes.cache(name).into());
        self.coming_loads = Some(loads);
        value
    }

    /// Module of a stack, or the module that is initialised.
    fn module_of_stack(&mut self, stack: StackNumber, loaded: LoadedModule) -> GroupValue {
        let (facts, classes) = (self.facts, self.classes);
        let number = || {
            let symbols = facts.symbolizer()?;
            let frames = classes.frames(stack);
            let loaded = facts.loads.and_then(|loads| loads.name(loaded));
            let owners = || frames.iter().map(|&frame| symbols.owner(frame));
            if loaded.is_none() && owners().all(|owner| owner.module().is_none()) {
                // No module: the call-site tells the kernel from what is not known.
                return Some(value_of_owner(owners().next().unwrap_or(SiteOwner::Unknown), classes));
            }
            let mut modules = owners().filter_map(SiteOwner::module);
            let module: Box<[u8]> = match facts.module_rule {
                ModuleRule::Innermost | ModuleRule::Outermost if loaded.is_some() => loaded?.into(),
                ModuleRule::Innermost | ModuleRule::Site => modules.next()?.into(),
                ModuleRule::Outermost => modules.next_back()?.into(),
                ModuleRule::Any => {
                    let all: BTreeSet<&[u8]> = modules.chain(loaded).collect();
                    all.into_iter().collect::<Vec<_>>().join(&0).into()
                }
            };
            (!module.is_empty()).then(|| classes.cache(&module).into())
        };
        limit(&mut self.modules);
        *self.modules.entry((stack, loaded)).or_insert_with(|| number().unwrap_or(0))
    }

    /// Use of the pages of an event by the whole stack: what it passes over may tell more than the site.
    fn use_of_pages(&mut self, event: &Event, (passed, stack): (StackNumber, StackNumber)) -> GroupValue {
        let (facts, classes) = (self.facts, self.classes);
        let number = || {
            let frames = [classes.frames(passed), classes.frames(stack)].concat();
            let symbols = facts.symbolizer().filter(|_| !frames.is_empty());
            let functions = frames.iter().filter_map(|&frame| Some(symbols?.lookup(frame)?.name));
            let uses = &facts.places.options.uses;
            classes.cache(uses.of_pages(functions, event.gfp.zip(facts.gfp_names), event.order).as_bytes()).into()
        };
        limit(&mut self.uses);
        *self.uses.entry((passed, stack, event.gfp, event.order)).or_insert_with(number)
    }

    #[inline]
    fn cache(&mut self, event: &Event, kind: Kind, cache: CacheNumber) -> GroupValue {
        match kind {
            _ if cache != 0 => cache.into(),
            Kind::Kmalloc => self.size_class(event.allocated, event.gfp),
            Kind::Cache => self.other_cache((event.call_site, event.allocated)),
            Kind::Pages | Kind::Percpu | Kind::Vmalloc | Kind::Tag => 0,
        }
    }

    /// Origin of the name of the cache of an allocation of `kmem_cache_alloc`; `None` for others, and where rows are not made of caches.
    pub(crate) fn cache_from(&self, kind: Kind, cache: CacheNumber, place: (u64, u64)) -> Option<CacheFrom> {
        match kind {
            Kind::Cache if !self.keys.contains(&GroupKey::Cache) => None,
            Kind::Cache if cache != 0 => Some(CacheFrom::Event),
            Kind::Cache => self.facts.caches.of_object(place).map(|(_, from)| from),
            Kind::Kmalloc | Kind::Pages | Kind::Percpu | Kind::Vmalloc | Kind::Tag => None,
        }
    }

    #[inline]
    fn size_class(&mut self, allocated: u64, gfp: Option<u64>) -> GroupValue {
        let slot = recent_size(allocated, gfp);
        let (recent, recent_gfp, value) = self.recent_sizes[slot];
        if recent == allocated && recent_gfp == gfp && allocated != NO_SIZE {
            return value;
        }
        let value = self.other_size_class(allocated, gfp);
        self.recent_sizes[slot] = (allocated, gfp, value);
        value
    }

    #[cold]
    fn other_size_class(&mut self, allocated: u64, gfp: Option<u64>) -> GroupValue {
        let (caches, classes) = (self.facts.caches, self.classes);
        limit(&mut self.sizes);
        let name = || caches.size_class(allocated, gfp);
        let number = || name().map_or(0, |name| classes.cache(name.as_bytes()).into());
        *self.sizes.entry((allocated, gfp)).or_insert_with(number)
    }

    /// Number of the name, or of the candidates, of a cache that the event does not name.
    fn other_cache(&mut self, place: (u64, u64)) -> GroupValue {
        let (caches, classes) = (self.facts.caches, self.classes);
        limit(&mut self.caches);
        let number = || caches.of_object(place).map_or(0, |(name, _)| classes.cache(name).into());
        *self.caches.entry(place).or_insert_with(number)
    }
}

#[cfg(test)]
mod tests {
    use kmemtrace_abi::event::{Action, Names};
    use kmemtrace_abi::trace::Metadata;

    use super::*;

    #[test]
    fn sizes_that_share_a_slot_keep_their_classes() {
        let line = |(name, bytes): (&str, u64)| format!("{name} 1 1 {bytes} 1 1 : tunables 0 0 0 : slabdata 1 1 0\n");
        let caches = [("kmalloc-64", 64), ("kmalloc-1k", 1024), ("kmalloc-2k", 2048), ("kmalloc-8", u64::MAX)];
        let text = format!("slabinfo - version: 2.1\n{}", caches.map(line).concat());
        let metadata = Metadata { slabinfo_start: text.into_bytes(), ..Metadata::default() };
        let names = CacheNames::of(&metadata, None);
        let (comms, places) = (HashMap::new(), Places::default());
        let facts = GroupFacts {
            comms: &comms,
            symbols: None,
            places: &places,
            caches: &names,
            names: None,
            gfp_names: None,
            module_rule: ModuleRule::Site,
            loads: None,
            cgroups: None,
            marks_reclaim: false,
        };
        let mut own = Names::new();
        let name = own.intern(b"kmalloc");
        let classes = Classes::new(own, 1);
        let mut reader = GroupReader::new(Grouping::CACHE, facts, &classes);
        let event = Event { action: Action::Alloc(Kind::Kmalloc), ..Event::new(0, 0, name) };
        // Far more sizes than slots, each among others, and the size that stands for none.
        let sizes: Vec<u64> = (0..3000).chain([u64::MAX, 64, 1024, 64, u64::MAX, 2048]).collect();
        for (allocated, gfp) in sizes.iter().flat_map(|&size| [(size, None), (size, Some(0)), (size, Some(0xcc0))]) {
            let number = reader.others(&Event { allocated, gfp, ..event }, Kind::Kmalloc, EventNumbers::default());
            let expected = names.size_class(allocated, gfp).map_or(0, |name| classes.cache(name.as_bytes()).into());
            assert_eq!(number, expected, "{allocated} {gfp:?}");
        }
    }
}

/// Value of [`GroupKey::Module`] for an owner: 0 for the kernel, [`NO_VALUE`] for an unknown one.
fn value_of_owner(owner: SiteOwner<'_>, classes: &Classes) -> GroupValue {
    match owner {
        SiteOwner::Kernel => 0,
        SiteOwner::Unknown => NO_VALUE,
        SiteOwner::Module(module) | SiteOwner::Init { module, .. } => classes.cache(module).into(),
    }
}

/// Name of a place for a key; `None` if it is not known.
fn name_of<'m>(place: &Place, key: GroupKey, module: impl FnOnce() -> Option<&'m [u8]>) -> Option<Box<[u8]>> {
    let source = place.source.as_ref();
    match key {
        GroupKey::Source => source.map(name_of_source),
        GroupKey::Function => {
            source.map(|source| [module().unwrap_or_default(), b"\0", &source.function].concat().into())
        }
        GroupKey::File => source.and_then(|source| source.file.clone()),
        GroupKey::Folder => place.folder.clone(),
        GroupKey::Area => place.area.clone(),
        _ => None,
    }
}

/// Line of source as one name: line, file and function, each but the last with a zero behind it.
fn name_of_source(source: &SourceLine) -> Box<[u8]> {
    let line = source.line.map_or(String::new(), |line| line.to_string());
    let file = source.file.as_deref().unwrap_or_default();
    [line.as_bytes(), b"\0", file, b"\0", &source.function].concat().into()
}

/// Function and module from the name that [`GroupKey::Function`] has for them.
pub(crate) fn parts_of_function(name: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let end = name.iter().position(|byte| *byte == 0)?;
    Some((&name[end + 1..], Some(&name[..end]).filter(|module| !module.is_empty())))
}

/// Line of source, as the name that [`GroupKey::Source`] has for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SourceParts<'n> {
    /// Source file.
    pub(crate) file: Option<&'n [u8]>,
    /// Line, from 1.
    pub(crate) line: Option<u32>,
    /// Name of the function.
    pub(crate) function: &'n [u8],
}

/// File, line and function from the name that [`GroupKey::Source`] has for them.
pub(crate) fn parts_of_source(name: &[u8]) -> Option<SourceParts<'_>> {
    let mut parts = name.splitn(3, |byte| *byte == 0);
    let (line, file, function) = (parts.next()?, parts.next()?, parts.next()?);
    let line = std::str::from_utf8(line).ok().and_then(|line| line.parse().ok());
    Some(SourceParts { file: (!file.is_empty()).then_some(file), line, function })
}
