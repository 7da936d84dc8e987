//! Names of a row of any grouping: the values of its keys, as documents have them.

use kmemtrace_abi::event::Kind;
use kmemtrace_abi::kernel::gfp::GfpNames;

use super::naming::{CallSite, Candidates, Naming};
use super::ranked::{Listing, Shape, ranked_by};
use super::row::{Cell, Field, Name, Row, TakeMember, row};
use super::stack_frame::RowStack;
use super::stacks::{StackMembers, StackNaming};
use super::sums::{Ordering, PrintedStats, Saturation, ToldStats};
use crate::account::group_reader::{SourceParts, parts_of_function, parts_of_source, parts_of_task};
use crate::account::grouping::{GroupKey, GroupValue, Grouping, NO_VALUE, RowKey};
use crate::analysis::Analysis;
use crate::names::place::SourceLine;
use crate::pairing::result::PairingResult;

/// Value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupMember<'a> {
    /// Call-site with symbol and module.
    Site(CallSite<'a>),
    /// Call stack, from the call-site on; `None` if the trace has none.
    Stack(Option<RowStack<'a>>),
    /// Line of source that asked for the memory.
    Source(Option<SourceLine>),
    /// Function of that line, and its module.
    Function {
        /// Name of the function.
        function: Name<'a>,
        /// Module; `None` for the kernel itself.
        module: Name<'a>,
    },
    /// Source file.
    File(Name<'a>),
    /// Folder of the source file.
    Folder(Name<'a>),
    /// Area of the source file.
    Area(Name<'a>),
    /// Thread id and command name of the thread.
    Task {
        /// Thread id; `None` if the trace does not tell it.
        pid: Option<i32>,
        /// Command name.
        comm: Name<'a>,
    },
    /// Thread id.
    Pid(Option<i32>),
    /// Thread group of the thread; `None` where the input does not tell it.
    Tgid(Option<i32>),
    /// Command name of the thread.
    Comm(Name<'a>),
    /// Name of the cache, and the origin of the name.
    Cache {
        /// Name; `None` if nothing tells it.
        cache: Name<'a>,
        /// `event`, `free`, `slabinfo` or `size`; `None` without a name.
        cache_from: Option<&'static str>,
        /// Caches that the objects may be of, where slabinfo has several with their size.
        candidates: Option<Candidates>,
    },
    /// Module of the call-site.
    Module {
        /// Name; `None` for the kernel itself, and where the code at the call-site is not known.
        module: Name<'a>,
        /// False where the call-site is in no symbol and no module's range.
        is_known: bool,
    },
    /// Use of pages; `None` for objects of slabs.
    Use(Name<'a>),
    /// Binary logarithm of the number of pages; `None` for objects of slabs.
    Order(Option<u64>),
    /// Bytes requested.
    Size(u64),
    /// Allocation flags and their names.
    Gfp {
        /// Flags; `None` if the event has none.
        gfp: Option<u64>,
        /// Names as the kernel prints them.
        names: Option<String>,
    },
    /// NUMA node that was asked for, -1 for any; `None` if the event has none.
    Node(Option<i32>),
    /// `task`, `softirq`, `hardirq` or `nmi`; `None` if the event does not tell it.
    Context(Option<&'static str>),
    /// Allocators that pages came through; `None` where the input does not tell them.
    Allocator(Name<'a>),
    /// True for memory that was given back since; `None` where the input does not tell it.
    Released(Option<bool>),
}

impl GroupMember<'_> {
    fn put(&self, (has_site, has_module): (bool, bool), has_task: bool, take: &mut TakeMember<'_>) {
        match self {
            GroupMember::Site(site) => site.members(take),
            GroupMember::Task { pid, comm } => {
                pid.put("pid", take);
                comm.put("comm", take);
            }
            GroupMember::Cache { cache, cache_from, candidates } => {
                cache.put("cache", take);
                cache_from.put("cache_from", take);
                candidates.put("cache_candidates", take);
            }
            // Another key of the row has the same member.
            GroupMember::Pid(_) | GroupMember::Comm(_) if has_task => {}
            GroupMember::Module { .. } | GroupMember::Source(_) | GroupMember::Folder(_) if has_site => {}
            GroupMember::Source(source) => take("source", source.as_ref().map_or(Cell::Null, Cell::Source)),
            GroupMember::Function { function, module } => {
                function.put("function", take);
                if !has_site && !has_module {
                    module.put("module", take);
                }
            }
            GroupMember::File(file) => file.put("file", take),
            GroupMember::Folder(folder) => folder.put("folder", take),
            GroupMember::Area(area) => area.put("area", take),
            GroupMember::Pid(pid) => pid.put("pid", take),
            GroupMember::Tgid(tgid) => tgid.put("tgid", take),
            GroupMember::Comm(comm) => comm.put("comm", take),
            GroupMember::Module { module, is_known } => {
                module.put("module", take);
                is_known.put("module_known", take);
            }
            GroupMember::Stack(stack) => stack.put("stack", take),
            GroupMember::Use(name) => name.put("use", take),
            GroupMember::Order(order) => order.put("order", take),
            GroupMember::Size(size) => size.put("size", take),
            GroupMember::Gfp { gfp, names } => {
                gfp.put("gfp", take);
                take("gfp_names", names.as_deref().map_or(Cell::Null, |names| Cell::Name(names.as_bytes())));
            }
            GroupMember::Node(node) => node.put("node", take),
            GroupMember::Context(context) => context.put("context", take),
            GroupMember::Allocator(name) => name.put("allocator", take),
            GroupMember::Released(released) => released.put("released", take),
        }
    }
}

/// Values of a row's keys, in the order asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNames<'a>(pub Vec<GroupMember<'a>>);

impl Row for GroupNames<'_> {
    fn members(&self, take: &mut TakeMember<'_>) {
        let has = |is: fn(&GroupMember<'_>) -> bool| self.0.iter().any(is);
        let has_site = has(|member| matches!(member, GroupMember::Site(_)));
        let has_task = has(|member| matches!(member, GroupMember::Task { .. }));
        let has_module = has(|member| matches!(member, GroupMember::Module { .. }));
        self.0.iter().for_each(|member| member.put((has_site, has_module), has_task, take));
    }
}

impl Field for GroupNames<'_> {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        self.members(take);
    }
}

/// Place of a row among rows of equal rank: its values, those that are not known first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank<'a> {
    Unknown,
    Number(i128),
    Text(&'a [u8]),
}

/// Row of one grouping: names that sort it among equals, and its key.
pub(super) type Place<'a> = (Vec<SortValue<'a>>, RowKey);

/// Value that sorts rows of equal rank.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SortValue<'a>(Rank<'a>);

impl<'a> SortValue<'a> {
    /// Value of something that is true or false; false first.
    pub(super) fn of_flag(flag: bool) -> SortValue<'a> {
        SortValue(Rank::Number(flag.into()))
    }

    /// Value of a name.
    pub(super) fn of_name(name: Option<&'a [u8]>) -> SortValue<'a> {
        SortValue(name.map_or(Rank::Unknown, Rank::Text))
    }
}

/// Reader of the names of rows.
#[derive(Clone)]
pub(super) struct GroupNaming<'a> {
    pub(super) naming: Naming<'a>,
    grouping: Grouping,
    paired: &'a PairingResult,
    gfp_names: Option<&'a GfpNames>,
    stacks: StackNaming<'a>,
}

impl<'a> GroupNaming<'a> {
    pub(super) fn of(analysis: &'a Analysis) -> GroupNaming<'a> {
        GroupNaming {
            naming: Naming::of(analysis),
            grouping: analysis.grouping,
            paired: &analysis.paired,
            gfp_names: analysis.gfp_names.as_deref(),
            stacks: StackNaming::of(analysis),
        }
    }

    /// Keys and values of a row.
    fn values(&self, key: RowKey) -> Vec<(GroupKey, GroupValue)> {
        let mut others = self.paired.lists.of(key.others).into_iter();
        let value = |name| if name == GroupKey::Site { Some(key.site) } else { others.next() };
        let mut value = value;
        self.grouping.keys().map(|name| (name, value(name).unwrap_or(NO_VALUE))).collect()
    }

    /// Names of a row.
    pub(super) fn names(&self, key: RowKey) -> GroupNames<'a> {
        GroupNames(self.values(key).into_iter().map(|(name, value)| self.member(name, value, key)).collect())
    }

    fn member(&self, key: GroupKey, value: GroupValue, row: RowKey) -> GroupMember<'a> {
        let name = || self.naming.numbered(value).map(Into::into);
        let pid = (value != NO_VALUE).then_some(value as u32 as i32);
        match key {
            GroupKey::Site => GroupMember::Site(self.naming.call_site(value)),
            GroupKey::Task => {
                let (pid, comm) = self.task(value);
                GroupMember::Task { pid, comm }
            }
            GroupKey::Pid => GroupMember::Pid(pid),
            GroupKey::Tgid => GroupMember::Tgid(pid),
            GroupKey::Comm => GroupMember::Comm(name()),
            GroupKey::Cache => {
                let (cache, candidates) = self.naming.cache(value);
                let cache_from = cache.and_then(|_| self.cache_from(row));
                GroupMember::Cache { cache: cache.map(Into::into), cache_from, candidates }
            }
            GroupKey::Module => GroupMember::Module { module: name(), is_known: value != NO_VALUE },
            GroupKey::Stack => GroupMember::Stack(self.stacks.stack(value)),
            GroupKey::Use => GroupMember::Use(name()),
            GroupKey::Order => GroupMember::Order((value != NO_VALUE).then_some(value)),
            GroupKey::Source => GroupMember::Source(self.naming.numbered(value).and_then(source_line)),
            GroupKey::Function => {
                let known = self.naming.numbered(value).and_then(parts_of_function);
                let (function, module) = known.map_or((None, None), |(function, module)| (Some(function), module));
                GroupMember::Function { function: function.map(Into::into), module: module.map(Into::into) }
            }
            GroupKey::File => GroupMember::File(name()),
            GroupKey::Folder => GroupMember::Folder(name()),
            GroupKey::Area => GroupMember::Area(name()),
            GroupKey::Size => GroupMember::Size(value),
            GroupKey::Gfp => {
                let gfp = (value != NO_VALUE).then_some(value);
                let names = gfp.zip(self.gfp_names).map(|(gfp, names)| names.text(gfp).to_string());
                GroupMember::Gfp { gfp, names }
            }
            GroupKey::Node => GroupMember::Node(pid),
            GroupKey::Context => GroupMember::Context(CONTEXTS.get(value as usize).copied()),
            GroupKey::Allocator => GroupMember::Allocator(name()),
            GroupKey::Released => GroupMember::Released((value != NO_VALUE).then_some(value != 0)),
        }
    }

    /// Thread and command name of a row of tasks.
    pub(super) fn task(&self, value: GroupValue) -> (Option<i32>, Name<'a>) {
        let (pid, comm) = parts_of_task(value);
        let named = |pid| match comm {
            Some(comm) => self.naming.numbered(comm).map(Into::into),
            None => self.naming.comm(pid),
        };
        (pid, pid.and_then(named))
    }

    /// Value of one key that sorts a row: a number, or a text. A stack is sorted by its text.
    fn value(&self, key: RowKey, sort: GroupKey) -> (Option<i128>, Vec<u8>) {
        let value = self.values(key).into_iter().find_map(|(key, value)| (key == sort).then_some(value));
        let Some(value) = value.filter(|value| *value != NO_VALUE) else { return (None, Vec::new()) };
        match sort {
            GroupKey::Comm | GroupKey::Allocator => {
                (None, self.naming.numbered(value).map(<[u8]>::to_vec).unwrap_or_default())
            }
            GroupKey::Stack => {
                let frames = self.paired.stacks.frames(value).iter();
                let texts = frames.map(|&frame| self.naming.symbols.lookup(frame).map(|symbol| symbol.text()));
                (None, texts.map(Option::unwrap_or_default).collect::<Vec<_>>().join(&b'\n'))
            }
            GroupKey::Pid | GroupKey::Tgid => (Some((value as u32 as i32).into()), Vec::new()),
            _ => (Some(value.into()), Vec::new()),
        }
    }

    /// Members of the document about its stacks, where rows are made of them.
    pub(super) fn stack_members(&self) -> Option<StackMembers<'a>> {
        self.grouping.has(GroupKey::Stack).then(|| self.stacks.clone().members())
    }

    /// Origin of the name of a row's cache.
    pub(super) fn cache_from(&self, row: RowKey) -> Option<&'static str> {
        match row.kind {
            Kind::Kmalloc => Some("size"),
            Kind::Cache | Kind::Pages | Kind::Percpu | Kind::Vmalloc => {
                self.paired.caches_from.get(&row).map(|from| from.name())
            }
        }
    }

    /// Place of a row among rows of equal rank.
    pub(super) fn place(&self, key: RowKey) -> Place<'a> {
        let mut values = Vec::new();
        for (name, value) in self.values(key) {
            match name {
                GroupKey::Source => {
                    let source = self.naming.numbered(value).and_then(parts_of_source);
                    let SourceParts { file, line, function } = source.unwrap_or_default();
                    values.push(SortValue(file.map_or(Rank::Unknown, Rank::Text)));
                    values.push(SortValue(line.map_or(Rank::Unknown, |line| Rank::Number(line.into()))));
                    values.push(SortValue(Rank::Text(function)));
                }
                GroupKey::Function => {
                    let known = self.naming.numbered(value).and_then(parts_of_function);
                    let (function, module) = known.map_or((None, None), |(function, module)| (Some(function), module));
                    let names = [function, module].map(|name| SortValue(name.map_or(Rank::Unknown, Rank::Text)));
                    values.extend(names);
                }
                GroupKey::Cache => {
                    // Rows without a name differ by their candidates.
                    let (cache, candidates) = self.naming.cache(value);
                    values.push(SortValue::of_name(cache));
                    values.push(SortValue::of_name(candidates.and_then(|_| self.naming.numbered(value))));
                }
                GroupKey::Module => {
                    values.push(SortValue::of_name(self.naming.numbered(value)));
                    values.push(SortValue::of_flag(value == NO_VALUE));
                }
                GroupKey::Comm
                | GroupKey::Use
                | GroupKey::Allocator
                | GroupKey::File
                | GroupKey::Folder
                | GroupKey::Area => {
                    values.push(SortValue(self.naming.numbered(value).map_or(Rank::Unknown, Rank::Text)));
                }
                GroupKey::Context => {
                    let context = CONTEXTS.get(value as usize);
                    values.push(SortValue(context.map_or(Rank::Unknown, |context| Rank::Text(context.as_bytes()))));
                }
                GroupKey::Stack => {
                    let frames = self.paired.stacks.frames(value);
                    values.extend(frames.iter().map(|&frame| SortValue(Rank::Number(frame.into()))));
                    // A stack sorts before those that it begins.
                    values.push(SortValue(Rank::Unknown));
                }
                GroupKey::Task => {
                    let (pid, comm) = parts_of_task(value);
                    values.push(SortValue(pid.map_or(Rank::Unknown, |pid| Rank::Number(pid.into()))));
                    // Rows of one thread differ by the names that it had.
                    values.extend(comm.map(|comm| SortValue::of_name(self.naming.numbered(comm))));
                }
                GroupKey::Pid
                | GroupKey::Tgid
                | GroupKey::Node
                | GroupKey::Gfp
                | GroupKey::Order
                | GroupKey::Released
                    if value == NO_VALUE =>
                {
                    values.push(SortValue(Rank::Unknown));
                }
                GroupKey::Pid | GroupKey::Tgid | GroupKey::Node => {
                    values.push(SortValue(Rank::Number((value as u32 as i32).into())));
                }
                GroupKey::Site | GroupKey::Size | GroupKey::Gfp | GroupKey::Order | GroupKey::Released => {
                    values.push(SortValue(Rank::Number(value.into())));
                }
            }
        }
        (values, key)
    }
}

fn source_line(name: &[u8]) -> Option<SourceLine> {
    let SourceParts { file, line, function } = parts_of_source(name)?;
    Some(SourceLine { function: function.into(), file: file.map(Into::into), line })
}

/// Words of the contract by the number of a context.
const CONTEXTS: [&str; 4] = ["task", "softirq", "hardirq", "nmi"];

row! {
    /// Row of `sites` for a grouping other than the call-site.
    pub struct GroupRow<'a> {
        /// Values of the keys.
        pub names: GroupNames<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Sums.
        pub stats: PrintedStats,
    }
}

/// The listing of `sites` for any grouping.
pub(super) fn groups<'a>(
    naming: GroupNaming<'a>,
    shape: &Shape,
    sums: (&Saturation, Ordering),
) -> Listing<'a, GroupRow<'a>, ToldStats> {
    let stacks = naming.stack_members();
    let sorted = naming.clone();
    let rows: Vec<_> = naming.paired.rows.iter().map(|(key, stats)| (naming.place(*key), key.kind, stats)).collect();
    let make = move |(_, key): &Place<'a>, kind, stats| GroupRow { names: naming.names(*key), kind, stats };
    let value = move |(_, key): &Place<'a>, sort: GroupKey| sorted.value(*key, sort);
    Listing { stacks, ..ranked_by(rows.into_iter(), shape, sums, value, make) }
}
