//! Documents: from an [`Analysis`] to a value that serialises, one file a view. No I/O, no terminal.
//!
//! A [`Document`] is a head, which is the same for all views, and a [`Body`] with the structs of one view. Serialised it is the JSON
//! that `kmemtrace-report` prints. A renderer reads the structs; one that prints all views alike, as CSV, takes their members from
//! [`row::RowSource::each_row`].
//!
//! ```no_run
//! use kmemtrace::documents::{self, Body};
//! use kmemtrace::{Query, Shape, SortKey, Trace};
//!
//! let mut trace = Trace::open(&["kmemtrace.data".into()])?;
//! let analysis = Query::by_site().run(&mut trace)?;
//! let document = documents::sites(&analysis, &Shape { sort: vec![SortKey::Wasted], top: Some(10) });
//! if let Body::Sites(sites) = &document.body {
//!     for row in sites.rows.iter() {
//!         println!("{} {}", row.site.call_site, row.stats.wasted);
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod caches;
pub mod cross;
pub mod document;
pub(crate) mod events;
pub mod live;
pub mod mismatch;
pub mod naming;
pub mod ranked;
pub mod row;
pub mod sites;
pub mod summary;
pub mod sums;

use std::sync::LazyLock;

use crate::account::classes::Grouping;
use crate::analysis::Analysis;
use crate::pairing::pairs::PairingResult;
pub use cross::CpuMatrix;
pub use document::{Body, Document, Head};
use naming::Naming;
pub use ranked::{Shape, SortKey};
use sums::{Ordering, Saturation};

/// Call-sites in each list of `summary`.
const TOP_SITES: usize = 5;

/// The rows of an analysis whose query was grouped otherwise: none.
static NO_ROWS: LazyLock<PairingResult> = LazyLock::new(PairingResult::default);

/// Pairs of an analysis, if its rows are those that the view shows.
fn grouped(analysis: &Analysis, by: Grouping) -> &PairingResult {
    if analysis.grouping == by { &analysis.paired } else { &NO_ROWS }
}

/// `summary`: totals per kind, pairs and findings; with lists of the top call-sites where rows are call-sites.
pub fn summary<'a>(analysis: &'a Analysis, _: &Shape) -> Document<'a> {
    of("summary", analysis, |sums| {
        let mut summary = summary::summary(&analysis.paired, analysis.own_threads.is_some(), &analysis.order, sums);
        if analysis.grouping == Grouping::Site {
            let top = |by| Some(sites::top(&analysis.paired, Naming::of(analysis), by, TOP_SITES, sums.1));
            summary.top_sites = top(|stats| stats.wasted);
            summary.top_live = top(|stats| stats.live_allocated);
            summary.top_live_waste = top(|stats| stats.live_wasted);
        }
        Body::Summary(Box::new(summary))
    })
}

/// `sites`: a row per call-site and kind. The query is [`crate::Query::by_site`]; an analysis of another one has no rows here.
pub fn sites<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    of("sites", analysis, |sums| Body::Sites(sites::sites(grouped(analysis, Grouping::Site), naming, shape, sums)))
}

/// `caches`: a row per cache name and kind. The query is [`crate::Query::by_cache`]; an analysis of another one has no rows
/// here.
pub fn caches<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    of("caches", analysis, |sums| Body::Caches(caches::caches(grouped(analysis, Grouping::Cache), naming, shape, sums)))
}

/// `mismatch`: findings, by class and the two sides of the pair.
pub fn mismatch<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    of("mismatch", analysis, |_| {
        Body::Mismatch(mismatch::mismatch(grouped(analysis, Grouping::Site), naming, shape.top))
    })
}

/// `live`: objects that are live at the end, oldest first. The query is one [`crate::Query::with_live_objects`].
pub fn live<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    let paired = grouped(analysis, Grouping::Site);
    of("live", analysis, |(saturation, _)| Body::Live(live::live(paired, naming, shape.top, saturation)))
}

/// `cross`: pairs freed on another CPU, per call-site and as a matrix. The query is one [`crate::Query::with_cpu_matrix`].
pub fn cross<'a>(analysis: &'a Analysis, shape: &Shape) -> Document<'a> {
    let naming = Naming::of(analysis);
    let cpus = &analysis.info.cpus;
    of("cross", analysis, |sums| {
        Body::Cross(cross::cross(grouped(analysis, Grouping::Site), naming, cpus, shape.top, sums))
    })
}

/// A view's body under its head. Sums that do not fit 64 bits are known once the body is made.
fn of<'a>(view: &str, analysis: &'a Analysis, body: impl FnOnce((&Saturation, Ordering)) -> Body<'a>) -> Document<'a> {
    let saturation = Saturation::default();
    let body = body((&saturation, Ordering::new(analysis.info.keys().agreement)));
    Document { head: Head::new(view, analysis, saturation.has_occurred()), body }
}
