//! Filters: `comm=foo* module!=ext4 alloc`. Rows are taken that meet all conditions.
//!
//! Conditions on what rows of a grouping have choose among its rows. Where rows lack a key, as call-sites lack the command, the
//! filter is one of allocations: rows count those that meet it.

use std::sync::Arc;

use kmemtrace::live::{LiveGroup, LiveName, LiveRow, ObjectNames, Selection};
use kmemtrace::{Glob, Kind};

use super::who;

/// Name that a condition looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Site,
    Module,
    Comm,
    Pid,
    Cgroup,
    Cache,
    Kind,
    Use,
    /// All that the row shows as its name.
    Name,
}

const MEMBERS: [(&str, Member); 8] = [
    ("site", Member::Site),
    ("module", Member::Module),
    ("comm", Member::Comm),
    ("pid", Member::Pid),
    ("cgroup", Member::Cgroup),
    ("cache", Member::Cache),
    ("kind", Member::Kind),
    ("use", Member::Use),
];

/// Condition of a filter.
#[derive(Clone, Debug)]
struct Condition {
    member: Member,
    is_excluded: bool,
    pattern: Glob,
}

/// Conditions that a row must meet.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowFilter {
    /// The filter as it was typed.
    pub(crate) text: String,
    conditions: Vec<Condition>,
}

impl RowFilter {
    /// Parses words `KEY=PATTERN`, `KEY!=PATTERN` and `TEXT`, which is a part of the row's name.
    ///
    /// # Errors
    /// The word that is no condition, and the keys that there are.
    pub(crate) fn parse(text: &str) -> Result<RowFilter, String> {
        let mut conditions = Vec::new();
        // Blanks may stand around the sign: `use != user`.
        let joined = [" != ", " = "].iter().fold(text.to_owned(), |text, sign| text.replace(sign, sign.trim()));
        for word in joined.split_whitespace() {
            let (key, pattern, is_excluded) = match word.split_once('=') {
                None => {
                    let pattern = Glob::new(&format!("*{word}*"));
                    conditions.push(Condition { member: Member::Name, is_excluded: false, pattern });
                    continue;
                }
                Some((key, pattern)) => match key.strip_suffix('!') {
                    Some(key) => (key, pattern, true),
                    None => (key, pattern, false),
                },
            };
            let Some((_, member)) = MEMBERS.iter().find(|(name, _)| *name == key) else {
                let names = MEMBERS.map(|(name, _)| name).join(", ");
                return Err(format!("{key}: no key of a filter; there are {names}"));
            };
            conditions.push(Condition { member: *member, is_excluded, pattern: Glob::new(pattern) });
        }
        Ok(RowFilter { text: text.trim().to_owned(), conditions })
    }

    /// Selection of allocations, where rows of the grouping lack a key of the filter.
    pub(crate) fn selection(&self, group: LiveGroup) -> Option<Arc<dyn Selection>> {
        let lacks = self.conditions.iter().any(|condition| !condition.is_of_rows(group));
        lacks.then(|| Arc::new(self.clone()) as Arc<dyn Selection>)
    }

    /// True for a row of a grouping that meets the conditions on its rows.
    pub(crate) fn takes(&self, group: LiveGroup, row: &LiveRow) -> bool {
        let cache = row.cache.as_deref();
        let names = [Some(&*row.name), cache].into_iter().flatten();
        self.conditions
            .iter()
            .filter(|condition| condition.is_of_rows(group))
            .all(|condition| condition.is_met(row.kind, names.clone()))
    }
}

impl Selection for RowFilter {
    fn text(&self) -> &str {
        &self.text
    }

    fn takes_objects(&self, kind: Kind, names: &ObjectNames<'_>) -> bool {
        // The module that an allocation belongs to comes before that of its call-site.
        let names = [names.module, names.site, names.cache, names.usage];
        let mut conditions = self.conditions.iter();
        conditions.all(|condition| match condition.member {
            Member::Comm | Member::Pid | Member::Cgroup | Member::Name => true,
            _ => condition.is_met(kind, names.into_iter()),
        })
    }

    fn takes_thread(&self, task: &LiveName) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.all(|condition| match condition.member {
            // A thread has objects of all kinds.
            Member::Comm | Member::Pid => condition.is_met(Kind::Kmalloc, std::iter::once(task)),
            _ => true,
        })
    }

    fn takes_cgroup(&self, cgroup: &LiveName) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.all(|condition| match condition.member {
            Member::Cgroup => condition.is_met(Kind::Kmalloc, std::iter::once(cgroup)),
            _ => true,
        })
    }
}

impl Condition {
    /// True where rows of a grouping tell whether they meet the condition.
    fn is_of_rows(&self, group: LiveGroup) -> bool {
        match (self.member, group) {
            (Member::Name, _)
            | (Member::Site | Member::Module | Member::Cache | Member::Kind, LiveGroup::Sites)
            | (Member::Site | Member::Module, LiveGroup::Stacks)
            | (Member::Module, LiveGroup::Modules)
            | (Member::Comm | Member::Pid, LiveGroup::Tasks)
            | (Member::Cgroup, LiveGroup::Cgroups)
            | (Member::Cache | Member::Kind, LiveGroup::Caches)
            | (Member::Use, LiveGroup::Uses) => true,
            // Rows are of all slab objects, or of pages.
            (Member::Kind, _) => {
                let [kmalloc, cache] =
                    [Kind::Kmalloc, Kind::Cache].map(|kind| self.pattern.matches(kind.name().as_bytes()));
                kmalloc == cache
            }
            _ => false,
        }
    }

    /// True where one of the names, or the kind, is as the condition says; a name that is not known is empty.
    fn is_met<'n>(&self, kind: Kind, mut names: impl Iterator<Item = &'n LiveName>) -> bool {
        let value = match self.member {
            Member::Kind => Some(kind.name().as_bytes().to_vec()),
            member => names.find_map(|name| value(member, name)),
        };
        self.pattern.matches(&value.unwrap_or_default()) != self.is_excluded
    }
}

/// Value of a member that a name tells, empty where it is not known; `None` for a name of something else.
fn value(member: Member, name: &LiveName) -> Option<Vec<u8>> {
    let of = |name: Option<&[u8]>| Some(name.unwrap_or_default().to_vec());
    match (member, name) {
        (Member::Name, name) => Some(who::name(name).into_bytes()),
        (Member::Site, LiveName::Site(_, symbol)) => of(symbol.as_ref().map(|symbol| &*symbol.name)),
        (Member::Module, LiveName::Site(_, symbol)) => of(symbol.as_ref().and_then(|symbol| symbol.module.as_deref())),
        (Member::Site, LiveName::Stack(frames)) => {
            of(frames.first().and_then(|(_, symbol)| Some(&*symbol.as_ref()?.name)))
        }
        (Member::Module, LiveName::Stack(frames)) => {
            of(frames.iter().find_map(|(_, symbol)| symbol.as_ref()?.module.as_deref()))
        }
        (Member::Use, LiveName::Use(name)) => of(name.as_deref()),
        (Member::Module, LiveName::Module(module)) => of(module.as_deref()),
        (Member::Cache, LiveName::Cache(cache)) => of(cache.as_deref()),
        (Member::Comm, LiveName::Task(_, comm)) => of(comm.as_deref()),
        (Member::Cgroup, LiveName::Cgroup(path)) => of(path.as_deref()),
        (Member::Pid, LiveName::Task(pid, _)) => Some(pid.map_or(Vec::new(), |pid| pid.to_string().into_bytes())),
        _ => None,
    }
}
