//! Filters of rows: `comm=foo* module!=ext4 alloc`. Rows are taken that meet all conditions.

use kmemtrace::Glob;
use kmemtrace::live::{LiveGroup, LiveName, LiveRow};

use super::who;

/// Member of a row that a condition looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    Site,
    Module,
    Comm,
    Pid,
    Cache,
    Kind,
    Use,
    /// All that the row shows as its name.
    Name,
}

const MEMBERS: [(&str, Member); 7] = [
    ("site", Member::Site),
    ("module", Member::Module),
    ("comm", Member::Comm),
    ("pid", Member::Pid),
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

    /// First key that rows of this grouping do not have.
    pub(crate) fn lacking(&self, group: LiveGroup) -> Option<&'static str> {
        let has = |member| match group {
            LiveGroup::Sites => matches!(member, Member::Site | Member::Module | Member::Cache),
            LiveGroup::Stacks => matches!(member, Member::Site | Member::Module),
            LiveGroup::Uses => member == Member::Use,
            LiveGroup::Modules => member == Member::Module,
            LiveGroup::Tasks => matches!(member, Member::Comm | Member::Pid),
            LiveGroup::Caches => member == Member::Cache,
        };
        let is_there = |member| matches!(member, Member::Kind | Member::Name) || has(member);
        let lacking = self.conditions.iter().map(|condition| condition.member).find(|member| !is_there(*member))?;
        MEMBERS.iter().find(|(_, member)| *member == lacking).map(|(name, _)| *name)
    }

    /// True for a row that meets all conditions; those on keys that its grouping lacks are left out.
    pub(crate) fn takes(&self, row: &LiveRow) -> bool {
        self.conditions.iter().all(|condition| match value(condition.member, row) {
            Some(value) => condition.pattern.matches(&value) != condition.is_excluded,
            None => true,
        })
    }
}

/// Value of a row's member, empty where it is not known; `None` where rows of its grouping do not have the member.
fn value(member: Member, row: &LiveRow) -> Option<Vec<u8>> {
    let of = |name: Option<&[u8]>| Some(name.unwrap_or_default().to_vec());
    match (member, &*row.name) {
        (Member::Name, name) => Some(who::name(name).into_bytes()),
        (Member::Kind, _) => of(Some(row.kind.name().as_bytes())),
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
        (Member::Cache, LiveName::Site(..)) => match row.cache.as_deref() {
            Some(LiveName::Cache(cache)) => of(cache.as_deref()),
            _ => of(None),
        },
        (Member::Comm, LiveName::Task(_, comm)) => of(comm.as_deref()),
        (Member::Pid, LiveName::Task(pid, _)) => Some(pid.map_or(Vec::new(), |pid| pid.to_string().into_bytes())),
        _ => None,
    }
}
