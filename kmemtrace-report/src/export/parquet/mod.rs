//! Tables of sites, objects and events as Parquet, for engines that add up over hosts.
//!
//! Columns are INT32, INT64, DOUBLE, BOOLEAN and UTF-8 alone: Spark reads an unsigned 64-bit integer as a decimal. Addresses are
//! INT64 of the same bits.

mod dictionary;
mod events;
mod names;
mod objects;
mod sites;
mod table;

use kmemtrace::documents::head::{CompletenessMembers, TraceMembers};
use kmemtrace::{Completeness, Observed, Trace, TraceInfo};
use kmemtrace_abi::trace::InputCapabilities;
use serde::Serialize;
use serde_json::Value;

use self::table::{Of, Spec, Table, TextId};

pub(super) use self::events::events;
pub(super) use self::objects::objects;
pub(super) use self::sites::sites;

/// Columns that each table begins with: files may be moved and joined.
const ORIGIN: [Spec; 5] = [
    Spec::some("host", Of::Text),
    Spec::some("boot", Of::Text),
    Spec::some("recording", Of::Text),
    Spec::some("kernel", Of::Text),
    Spec::some("arch", Of::Text),
];

/// Columns of an event, after those of the origin.
const PLACE: [Spec; 5] = [
    Spec::each("seq", Of::Steps),
    Spec::each("ts", Of::Steps),
    Spec::each("cpu", Of::Int32),
    Spec::some("pid", Of::Int32),
    Spec::some("comm", Of::Text),
];

/// Values of [`PLACE`].
#[derive(Clone, Copy, Debug)]
struct Place {
    seq: u64,
    /// Order key and CPU; `None` where the input does not tell them.
    at: Option<u64>,
    cpu: Option<u32>,
    pid: Option<i32>,
    comm: TextId,
}

impl Place {
    /// Begins a row with its origin and its place.
    #[inline]
    fn begin_row<'t>(&self, table: &'t mut Table, origin: &[TextId; ORIGIN.len()]) -> &'t mut Table {
        let Place { seq, at, cpu, pid, comm } = *self;
        table.texts(origin).bits(Some(seq)).bits(at).int32(cpu.map(u32::cast_signed)).int32(pid).text(comm)
    }
}

/// Values of [`ORIGIN`].
#[derive(Clone, Debug)]
struct Origin {
    values: [Option<String>; ORIGIN.len()],
    capabilities: InputCapabilities,
}

impl Origin {
    fn of(info: &TraceInfo, given: Option<&str>) -> Origin {
        let TraceInfo { host, boot, recording, kernel, arch, .. } = info.clone();
        Origin {
            values: [given.map(str::to_owned).or(host), boot, recording, kernel, arch],
            capabilities: info.capabilities,
        }
    }

    /// Columns of a table: those of the origin, and these after them. If the input lists what is live at one moment, addresses,
    /// CPUs, times and figures may be unknown.
    fn columns(&self, columns: impl IntoIterator<Item = Spec>) -> Vec<Spec> {
        let optional = |spec: Spec| Spec { is_optional: spec.is_optional || !self.capabilities.past, ..spec };
        ORIGIN.into_iter().chain(columns).map(optional).collect()
    }

    /// Numbers of the values, which are the first texts of their columns.
    fn ids(&self, table: &mut Table) -> [TextId; ORIGIN.len()] {
        let mut column = 0..;
        self.values.each_ref().map(|value| {
            let column = column.next().unwrap_or(0);
            value.as_ref().map_or(TextId::NONE, |value| table.text_id(column, value.as_bytes()))
        })
    }

    fn host(&self) -> Option<&str> {
        self.values[0].as_deref()
    }
}

/// Texts of the footer: completeness and origin, as documents have them.
fn footer(
    completeness: CompletenessMembers<'_>,
    origin: TraceMembers<'_>,
    host: Option<&str>,
    counts_pairs: bool,
) -> Vec<(&'static str, String)> {
    let mut completeness = to_value(&completeness);
    if !counts_pairs && let Value::Object(members) = &mut completeness {
        // A pass over events pairs nothing.
        members.insert("inferred_frees".to_owned(), Value::Null);
        members.insert("frees_without_alloc".to_owned(), Value::Null);
    }
    let origin = to_value(&TraceMembers { host: host.or(origin.host), ..origin });
    vec![("completeness", completeness.to_string()), ("trace", origin.to_string())]
}

fn to_value(members: &impl Serialize) -> Value {
    serde_json::to_value(members).unwrap_or(Value::Null)
}

/// Footer of a table that a pass over events or objects fills.
fn observed_footer(
    trace: &Trace,
    observed: &Observed,
    origin: &Origin,
    counts_pairs: bool,
) -> Vec<(&'static str, String)> {
    let completeness = CompletenessMembers::of(&observed.completeness, false);
    let trace = TraceMembers::of_observed(&trace.info, observed);
    let mut footer = footer(completeness, trace, origin.host(), counts_pairs);
    let Completeness { stacks, stacks_distinct, stacks_unmatched, .. } = observed.completeness;
    let counts =
        [("stacks_seen", stacks), ("stacks_distinct", stacks_distinct), ("stacks_unmatched", stacks_unmatched)];
    footer.extend(counts.map(|(name, count)| (name, count.to_string())));
    footer
}
