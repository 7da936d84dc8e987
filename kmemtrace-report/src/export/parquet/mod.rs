//! Tables of sites, leaks, objects and events as Parquet, for engines that add up over hosts.
//!
//! Columns are INT32, INT64, DOUBLE, BOOLEAN and UTF-8 alone: Spark reads an unsigned 64-bit integer as a decimal. Addresses are
//! INT64 of the same bits.
//!
//! The field of a row is the column: `table::row!`. `parquet_derive` was tried in place of it, and wrote 0.6 million rows of events a
//! second and processor: it copies and hashes each text of each row.

mod dictionary;
mod events;
mod leaks;
mod objects;
mod sites;
mod table;
mod texts;

use std::ops::ControlFlow;

use kmemtrace::documents::head::{CompletenessMembers, TraceMembers};
use kmemtrace::{Completeness, Observed, Trace, TraceInfo};
use parquet::errors::Result;
use serde::Serialize;
use serde_json::Value;

use self::table::{Columns, Table, column};
use self::texts::Texts;
use super::Job;
use crate::terminal::output::Output;

pub(super) use self::events::events;
pub(super) use self::leaks::leaks;
pub(super) use self::objects::objects;
pub(super) use self::sites::sites;

/// Origin of a recording. Each table begins with it: files may be moved and joined.
#[derive(Clone, Debug)]
struct Origin {
    host: Option<String>,
    boot: Option<String>,
    recording: Option<String>,
    kernel: Option<String>,
    arch: Option<String>,
}

impl Origin {
    /// Origin of a trace; the command line may name the host.
    fn of(info: &TraceInfo, job: &Job<'_>) -> Origin {
        let TraceInfo { host, boot, recording, kernel, arch, .. } = info.clone();
        Origin { host: job.host().map(str::to_owned).or(host), boot, recording, kernel, arch }
    }

    /// Table with the columns of the origin, and these after them.
    fn table<R: 'static>(&self, out: Output, columns: Columns<R>) -> anyhow::Result<Table<R>> {
        let mut texts = Texts::default();
        let Origin { host, boot, recording, kernel, arch } = self;
        let origin = [("host", host), ("boot", boot), ("recording", recording), ("kernel", kernel), ("arch", arch)];
        let of_origin = origin.map(|(name, value)| {
            let text = value.as_ref().map(|value| texts.id(value.as_bytes()));
            column(name, move |_: &R| text)
        });
        let columns = of_origin.into_iter().chain(columns).collect();
        Ok(Table::new(out, texts, columns)?)
    }

    /// Texts of the footer: completeness and origin, as documents have them.
    fn footer(&self, completeness: impl Serialize, trace: TraceMembers<'_>) -> Vec<(&'static str, String)> {
        let host = self.host.as_deref().or(trace.host);
        let [completeness, trace] = [to_value(&completeness), to_value(&TraceMembers { host, ..trace })];
        vec![("completeness", completeness.to_string()), ("trace", trace.to_string())]
    }

    /// Footer of a table that a pass over events or objects fills.
    fn observed_footer(&self, trace: &Trace, observed: &Observed, counts_pairs: bool) -> Vec<(&'static str, String)> {
        let mut completeness = to_value(&CompletenessMembers::of(&observed.completeness, false));
        if !counts_pairs && let Value::Object(members) = &mut completeness {
            // A pass over events pairs nothing.
            members.insert("inferred_frees".to_owned(), Value::Null);
            members.insert("frees_without_alloc".to_owned(), Value::Null);
        }
        let mut footer = self.footer(completeness, TraceMembers::of_observed(&trace.info, observed));
        let Completeness { stacks, stacks_distinct, stacks_unmatched, .. } = observed.completeness;
        let counts =
            [("stacks_seen", stacks), ("stacks_distinct", stacks_distinct), ("stacks_unmatched", stacks_unmatched)];
        footer.extend(counts.map(|(name, count)| (name, count.to_string())));
        footer
    }
}

fn to_value(members: &impl Serialize) -> Value {
    serde_json::to_value(members).unwrap_or(Value::Null)
}

/// Goes on while rows can be written.
fn flow(written: &Result<()>) -> ControlFlow<()> {
    if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}
