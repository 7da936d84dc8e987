//! Names of a row of any grouping: the values of its keys, as documents have them.

use std::collections::HashMap;

use kmemtrace_abi::event::Kind;
use kmemtrace_abi::kernel::gfp::GfpNames;

use super::naming::{CallSite, Candidates, Naming, SiteOrder};
use super::ranked::{Listing, Shape, ranked_by};
use super::row::{Cell, Field, Name, Row, TakeMember, row};
use super::stack_frame::RowStack;
use super::stacks::{StackMembers, StackNaming};
use super::sums::{Ordering, PrintedStats, Saturation, ToldStats};
use super::text_members::{TextMembers, TextNaming};
use crate::account::group_reader::{SourceParts, parts_of_function, parts_of_source, parts_of_task};
use crate::account::grouping::{GroupKey, GroupValue, Grouping, NO_VALUE, RowKey};
use crate::account::keys::KeyForm;
use crate::analysis::Analysis;
use crate::names::allocinfo::AllocinfoChange;
use crate::names::place::SourceLine;
use crate::pairing::result::PairingResult;

/// Value of a key as documents have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyValue<'a> {
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
    /// Thread id and command name of the thread.
    Task {
        /// Thread id; `None` if the trace does not give it.
        pid: Option<i32>,
        /// Command name.
        comm: Name<'a>,
    },
    /// Name of the cache, and the origin of the name.
    Cache {
        /// Name; `None` if nothing gives it.
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
    /// Allocation flags and their names.
    Gfp {
        /// Flags; `None` if the event has none.
        gfp: Option<u64>,
        /// Names as the kernel prints them.
        names: Option<String>,
    },
    /// [`KeyForm::Name`].
    Name(Name<'a>),
    /// [`KeyForm::Id`].
    Id(Option<i32>),
    /// [`KeyForm::Number`].
    Number(Option<u64>),
    /// [`KeyForm::Bytes`].
    Bytes(u64),
    /// [`KeyForm::Flag`].
    Flag(Option<bool>),
    /// [`KeyForm::Word`].
    Word(Option<&'static str>),
}

/// Key of a row, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember<'a> {
    /// The key.
    pub key: GroupKey,
    /// The value.
    pub value: KeyValue<'a>,
}

/// Values of a row's keys, in the order asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupNames<'a>(pub Vec<GroupMember<'a>>);

impl GroupNames<'_> {
    /// True if rows are made of the key, too.
    pub fn has(&self, key: GroupKey) -> bool {
        self.0.iter().any(|member| member.key == key)
    }
}

impl Row for GroupNames<'_> {
    fn members(&self, take: &mut TakeMember<'_>) {
        for GroupMember { key, value } in &self.0 {
            let word = key.name();
            match value {
                _ if key.entry().part_of.is_some_and(|whole| self.has(whole)) => {}
                KeyValue::Site(site) => site.members(take),
                KeyValue::Stack(stack) => stack.put(word, take),
                KeyValue::Source(source) => take(word, source.as_ref().map_or(Cell::Null, Cell::Source)),
                KeyValue::Function { function, module } => {
                    function.put("function", take);
                    if ![GroupKey::Site, GroupKey::Module].into_iter().any(|key| self.has(key)) {
                        module.put("module", take);
                    }
                }
                KeyValue::Task { pid, comm } => {
                    pid.put("pid", take);
                    comm.put("comm", take);
                }
                KeyValue::Cache { cache, cache_from, candidates } => {
                    cache.put("cache", take);
                    cache_from.put("cache_from", take);
                    candidates.put("cache_candidates", take);
                }
                KeyValue::Module { module, is_known } => {
                    module.put("module", take);
                    is_known.put("module_known", take);
                }
                KeyValue::Gfp { gfp, names } => {
                    gfp.put("gfp", take);
                    take("gfp_names", names.as_deref().map_or(Cell::Null, |names| Cell::Name(names.as_bytes())));
                }
                KeyValue::Name(name) => name.put(word, take),
                KeyValue::Id(id) => id.put(word, take),
                KeyValue::Number(number) => number.put(word, take),
                KeyValue::Bytes(bytes) => bytes.put(word, take),
                KeyValue::Flag(flag) => flag.put(word, take),
                KeyValue::Word(value) => value.put(word, take),
            }
        }
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
    /// A call site without an address follows those that have one.
    Named(SiteOrder),
}

/// Row of one grouping: names that sort it among equals, and its key.
pub(super) type RowPlace<'a> = (Vec<SortValue<'a>>, RowKey);

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
    allocinfo: Option<&'a AllocinfoChange>,
    /// Members of a text of one moment.
    pub(super) text: TextNaming<'a>,
}

impl<'a> GroupNaming<'a> {
    pub(super) fn of(analysis: &'a Analysis) -> GroupNaming<'a> {
        GroupNaming {
            naming: Naming::of(analysis),
            grouping: analysis.grouping,
            paired: &analysis.paired,
            gfp_names: analysis.gfp_names.as_deref(),
            stacks: StackNaming::of(analysis),
            allocinfo: analysis.allocinfo.as_ref(),
            text: TextNaming::of(analysis),
        }
    }

    /// Change of the function that a row is, by allocinfo.
    fn function_change(&self, key: RowKey) -> FunctionChange {
        if self.grouping != Grouping::of(&[GroupKey::Function]) {
            return FunctionChange::NoMember;
        }
        let value = self.values(key).first().map(|(_, value)| *value);
        let (function, module) = value.map_or((None, None), |value| self.function(value));
        FunctionChange::Change(self.allocinfo.zip(function).and_then(|(change, function)| change.of(function, module)))
    }

    /// Keys and values of a row.
    pub(super) fn values(&self, key: RowKey) -> Vec<(GroupKey, GroupValue)> {
        let mut others = self.paired.lists.of(key.others).into_iter();
        let value = |name| if name == GroupKey::Site { Some(key.site) } else { others.next() };
        let mut value = value;
        self.grouping.keys().map(|name| (name, value(name).unwrap_or(NO_VALUE))).collect()
    }

    /// Names of a row.
    pub(super) fn names(&self, key: RowKey) -> GroupNames<'a> {
        let member = |(name, value)| GroupMember { key: name, value: self.value(name, value, key) };
        GroupNames(self.values(key).into_iter().map(member).collect())
    }

    fn value(&self, key: GroupKey, value: GroupValue, row: RowKey) -> KeyValue<'a> {
        let name = || self.naming.numbered(value).map(Into::into);
        let known = (value != NO_VALUE).then_some(value);
        match (key.entry().form, key) {
            (KeyForm::Name, _) => KeyValue::Name(name()),
            (KeyForm::Id, _) => KeyValue::Id(known.map(|id| id as u32 as i32)),
            (KeyForm::Number, _) => KeyValue::Number(known),
            (KeyForm::Bytes, _) => KeyValue::Bytes(value),
            (KeyForm::Flag, _) => KeyValue::Flag(known.map(|flag| flag != 0)),
            (KeyForm::Word(words), _) => KeyValue::Word(words.get(value as usize).copied()),
            (KeyForm::Own, GroupKey::Task) => {
                let (pid, comm) = self.task(value);
                KeyValue::Task { pid, comm }
            }
            (KeyForm::Own, GroupKey::Cache) => {
                let (cache, candidates) = self.naming.cache(value);
                let cache_from = cache.and_then(|_| self.cache_from(row));
                KeyValue::Cache { cache: cache.map(Into::into), cache_from, candidates }
            }
            (KeyForm::Own, GroupKey::Module) => KeyValue::Module { module: name(), is_known: value != NO_VALUE },
            (KeyForm::Own, GroupKey::Stack) => KeyValue::Stack(self.stacks.stack(value)),
            (KeyForm::Own, GroupKey::Source) => KeyValue::Source(self.naming.numbered(value).and_then(source_line)),
            (KeyForm::Own, GroupKey::Function) => {
                let (function, module) = self.function(value);
                KeyValue::Function { function: function.map(Into::into), module: module.map(Into::into) }
            }
            (KeyForm::Own, GroupKey::Gfp) => {
                let names = known.zip(self.gfp_names).map(|(gfp, names)| names.text(gfp).to_string());
                KeyValue::Gfp { gfp: known, names }
            }
            (KeyForm::Own, _) => KeyValue::Site(self.naming.call_site(value)),
        }
    }

    /// Function and module from the value of [`GroupKey::Function`].
    fn function(&self, value: GroupValue) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        let known = self.naming.numbered(value).and_then(parts_of_function);
        known.map_or((None, None), |(function, module)| (Some(function), module))
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
    fn sort_value(&self, key: RowKey, sort: GroupKey) -> (Option<i128>, Vec<u8>) {
        let value = self.values(key).into_iter().find_map(|(key, value)| (key == sort).then_some(value));
        let Some(value) = value.filter(|value| *value != NO_VALUE) else { return (None, Vec::new()) };
        match sort.entry().form {
            KeyForm::Name => (None, self.naming.numbered(value).map(<[u8]>::to_vec).unwrap_or_default()),
            KeyForm::Id => (Some((value as u32 as i32).into()), Vec::new()),
            _ if sort == GroupKey::Stack => {
                let frames = self.paired.stacks.frames(value).iter();
                let texts = frames.map(|&frame| self.naming.symbols.lookup(frame).map(|symbol| symbol.text()));
                (None, texts.map(Option::unwrap_or_default).collect::<Vec<_>>().join(&b'\n'))
            }
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
            Kind::Cache | Kind::Pages | Kind::Percpu | Kind::Vmalloc | Kind::Tag => {
                self.paired.caches_from.get(&row).map(|from| from.name())
            }
        }
    }

    /// Place of a row among rows of equal rank.
    pub(super) fn place(&self, key: RowKey) -> RowPlace<'a> {
        let mut values = Vec::new();
        for (name, value) in self.values(key) {
            self.add_place(name, value, &mut values);
        }
        (values, key)
    }

    /// Adds what sorts rows by a value to `values`.
    pub(super) fn add_place(&self, key: GroupKey, value: GroupValue, values: &mut Vec<SortValue<'a>>) {
        let name = SortValue::of_name;
        let number = |number: Option<i128>| SortValue(number.map_or(Rank::Unknown, Rank::Number));
        let known = (value != NO_VALUE).then_some(value);
        match (key.entry().form, key) {
            (KeyForm::Name, _) => values.push(name(self.naming.numbered(value))),
            (KeyForm::Word(words), _) => values.push(name(words.get(value as usize).map(|word| word.as_bytes()))),
            (KeyForm::Id, _) => values.push(number(known.map(|id| (id as u32 as i32).into()))),
            (KeyForm::Number | KeyForm::Flag, _) | (KeyForm::Own, GroupKey::Gfp) => {
                values.push(number(known.map(i128::from)));
            }
            (KeyForm::Own, GroupKey::Source) => {
                let source = self.naming.numbered(value).and_then(parts_of_source);
                let SourceParts { file, line, function } = source.unwrap_or_default();
                values.extend([name(file), number(line.map(i128::from)), name(Some(function))]);
            }
            (KeyForm::Own, GroupKey::Function) => {
                let (function, module) = self.function(value);
                values.extend([name(function), name(module)]);
            }
            (KeyForm::Own, GroupKey::Cache) => {
                // Rows without a name differ by their candidates.
                let (cache, candidates) = self.naming.cache(value);
                values.extend([name(cache), name(candidates.and_then(|_| self.naming.numbered(value)))]);
            }
            (KeyForm::Own, GroupKey::Module) => {
                values.extend([name(self.naming.numbered(value)), SortValue::of_flag(value == NO_VALUE)]);
            }
            (KeyForm::Own, GroupKey::Stack) => {
                let frames = self.paired.stacks.frames(value);
                values.extend(frames.iter().map(|&frame| self.site_value(frame)));
                // A stack sorts before those that it begins.
                values.push(SortValue(Rank::Unknown));
            }
            (KeyForm::Own, GroupKey::Task) => {
                let (pid, comm) = parts_of_task(value);
                values.push(number(pid.map(i128::from)));
                // Rows of one thread differ by the names that it had.
                values.extend(comm.map(|comm| name(self.naming.numbered(comm))));
            }
            (KeyForm::Own, GroupKey::Site) => values.push(self.site_value(value)),
            (KeyForm::Bytes | KeyForm::Own, _) => values.push(number(Some(value.into()))),
        }
    }

    /// Value that sorts rows by a call site.
    fn site_value(&self, site: u64) -> SortValue<'a> {
        match self.naming.place_of(site) {
            SiteOrder::Address(address) => SortValue(Rank::Number(address.into())),
            named @ SiteOrder::Named(..) => SortValue(Rank::Named(named)),
        }
    }
}

fn source_line(name: &[u8]) -> Option<SourceLine> {
    let SourceParts { file, line, function } = parts_of_source(name)?;
    Some(SourceLine { function: function.into(), file: file.map(Into::into), line })
}

row! {
    /// Row of `sites` for a grouping other than the call-site.
    pub struct GroupRow<'a> {
        /// Values of the keys.
        pub names: GroupNames<'a>,
        /// Kind of the objects.
        pub kind: Kind,
        /// Sums.
        pub stats: PrintedStats,
        /// Bytes by `/proc/allocinfo`, in rows of functions.
        pub allocinfo: FunctionChange,
        /// Members of a text of one moment.
        pub text: TextMembers,
    }
}

/// Member `allocinfo_change` of rows of functions: bytes at the end less those at the start, over all lines of the function and its
/// module. Other rows have no such member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionChange {
    /// The rows are not functions.
    NoMember,
    /// The change; `None` where the recording does not keep `/proc/allocinfo`, or it has no line of the function.
    Change(Option<i64>),
}

impl Field for FunctionChange {
    fn put(&self, _: &'static str, take: &mut TakeMember<'_>) {
        if let FunctionChange::Change(change) = self {
            change.put("allocinfo_change", take);
        }
    }
}

/// How far functions of `/proc/allocinfo` and the events agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocinfoAgreement {
    /// Functions that both report.
    pub functions: u64,
    /// Those whose change by allocinfo differs from the live bytes of their events by more than 1% and 64 KiB.
    pub differing: u64,
}

impl AllocinfoAgreement {
    /// Agreement of an analysis by function; `None` where the recording does not keep `/proc/allocinfo`.
    pub fn of(analysis: &Analysis) -> Option<AllocinfoAgreement> {
        const LEAST: i128 = 64 << 10;
        analysis.allocinfo.as_ref()?;
        let naming = GroupNaming::of(analysis);
        // A function has a row for each kind of object.
        let mut live: HashMap<u64, (i128, i128)> = HashMap::new();
        for (key, stats) in analysis.paired.rows.iter().filter(|(_, stats)| !stats.is_empty()) {
            if let FunctionChange::Change(Some(change)) = naming.function_change(*key) {
                let bytes = i128::try_from(stats.live_allocated).unwrap_or(i128::MAX);
                let known = live.entry(key.others).or_insert((change.into(), 0));
                known.1 = known.1.saturating_add(bytes);
            }
        }
        let differs = |&&(change, live): &&(i128, i128)| {
            let difference = (change - live).abs();
            difference > LEAST && difference.saturating_mul(100) > change.abs().max(live.abs())
        };
        let differing = live.values().filter(differs).count();
        Some(AllocinfoAgreement { functions: live.len() as u64, differing: differing as u64 })
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
    let make = move |(_, key): &RowPlace<'a>, kind, stats| GroupRow {
        names: naming.names(*key),
        kind,
        stats,
        allocinfo: naming.function_change(*key),
        text: naming.text.members(key),
    };
    let value = move |(_, key): &RowPlace<'a>, sort: GroupKey| sorted.sort_value(*key, sort);
    Listing { stacks, ..ranked_by(rows.into_iter(), shape, sums, value, make) }
}
