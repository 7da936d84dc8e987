//! Document: the head that every view has, and a body of one view.

use serde::Serialize;

use super::account::AccountBody;
use super::balance::BalanceBody;
use super::caches::CachesBody;
use super::compare::CompareBody;
use super::cross::Cross;
use super::failed::FailedBody;
use super::group::GroupRow;
use super::growth::GrowthBody;
use super::head::Head;
use super::holders::HoldersBody;
use super::latency::{Functions, Shrinkers, Spans, Stalls, Waits};
use super::leaks::LeaksBody;
use super::live::{LiveRow, OtherObjects};
use super::live_groups::LiveGroupRow;
use super::mismatch::{MismatchRow, OtherFindings};
use super::ranked::Listing;
use super::row::{RowSource, TakeRow};
use super::sites::SiteRow;
use super::stacks::StackMembers;
use super::summary::Summary;
use super::sums::ToldStats;
use super::tree::TreeBody;

/// A view's content, before it has the form of an output.
///
/// Serialised, it is the JSON document; rows are made while they are serialised.
#[derive(Serialize)]
pub struct Document<'a> {
    /// Schema, completeness and origin.
    #[serde(flatten)]
    pub head: Head<'a>,
    /// The view.
    #[serde(flatten)]
    pub body: Body<'a>,
}

/// Body of a document: one variant a view.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Body<'a> {
    /// Totals.
    Summary(Box<Summary<'a>>),
    /// Rows per call-site.
    Sites(Listing<'a, SiteRow<'a>, ToldStats>),
    /// Rows of any other grouping.
    Groups(Listing<'a, GroupRow<'a>, ToldStats>),
    /// Rows per cache.
    Caches(Box<CachesBody<'a>>),
    /// Parts of the machine's memory.
    Balance(Box<BalanceBody<'a>>),
    /// Failed allocations.
    Failed(Box<FailedBody<'a>>),
    /// Findings.
    Mismatch(Listing<'a, MismatchRow<'a>, OtherFindings>),
    /// Two analyses side by side.
    Compare(Box<CompareBody<'a>>),
    /// Live objects, summed by keys.
    LiveGroups(Listing<'a, LiveGroupRow<'a>, ToldStats>),
    /// Tree of folders, files, functions and call-sites.
    Tree(Box<TreeBody>),
    /// Rows of tasks, modules or uses.
    Holders(Box<HoldersBody<'a>>),
    /// Growth over time.
    Growth(Box<GrowthBody<'a>>),
    /// Rows of leaks.
    Leaks(Box<LeaksBody<'a>>),
    /// Live objects.
    Live(Listing<'a, LiveRow<'a>, OtherObjects>),
    /// Frees on another CPU.
    Cross(Cross<'a>),
    /// Account of callers.
    Account(Box<AccountBody<'a>>),
    /// Kinds of spans.
    Latency(Box<Spans<'a>>),
    /// Shrinkers.
    Shrinkers(Shrinkers<'a>),
    /// Stalls.
    Stalls(Box<Stalls<'a>>),
    /// Waits of allocations.
    Waits(Box<Waits<'a>>),
    /// Timed functions.
    Functions(Functions<'a>),
}

impl Body<'_> {
    /// True where the keys of the query make the rows.
    pub(super) fn has_groups(&self) -> bool {
        match self {
            Body::Sites(_)
            | Body::Groups(_)
            | Body::Caches(_)
            | Body::LiveGroups(_)
            | Body::Growth(_)
            | Body::Holders(_) => true,
            Body::Summary(_)
            | Body::Balance(_)
            | Body::Failed(_)
            | Body::Mismatch(_)
            | Body::Leaks(_)
            | Body::Live(_)
            | Body::Cross(_)
            | Body::Compare(_)
            | Body::Account(_)
            | Body::Latency(_)
            | Body::Shrinkers(_)
            | Body::Stalls(_)
            | Body::Waits(_)
            | Body::Functions(_)
            | Body::Tree(_) => false,
        }
    }
}

impl<'a> Document<'a> {
    /// Call stacks that rows name by number; to be printed after the rows.
    pub fn stacks(&self) -> Option<&StackMembers<'a>> {
        match &self.body {
            Body::Groups(listing) => listing.stacks.as_ref(),
            Body::LiveGroups(listing) => listing.stacks.as_ref(),
            Body::Growth(growth) => growth.listing.stacks.as_ref(),
            Body::Leaks(leaks) => leaks.listing.stacks.as_ref(),
            Body::Live(listing) => listing.stacks.as_ref(),
            _ => None,
        }
    }
}

impl RowSource for Document<'_> {
    fn each_row<E>(&self, take: &mut TakeRow<'_, E>) -> Result<(), E> {
        match &self.body {
            Body::Summary(summary) => summary.rows.each_row(take),
            Body::Sites(listing) => listing.each_row(take),
            Body::Groups(listing) => listing.each_row(take),
            Body::Caches(view) => view.listing.each_row(take),
            Body::Balance(view) => view.each_row(take),
            Body::Failed(view) => view.listing.each_row(take),
            Body::Mismatch(listing) => listing.each_row(take),
            Body::LiveGroups(listing) => listing.each_row(take),
            Body::Compare(compare) => compare.listing.each_row(take),
            Body::Tree(tree) => tree.each_row(take),
            Body::Holders(holders) => holders.listing.each_row(take),
            Body::Growth(growth) => growth.listing.each_row(take),
            Body::Leaks(leaks) => leaks.listing.each_row(take),
            Body::Live(listing) => listing.each_row(take),
            Body::Cross(cross) => cross.listing.each_row(take),
            Body::Account(account) => account.each_row(take),
            Body::Latency(spans) => spans.each_row(take),
            Body::Shrinkers(listing) => listing.each_row(take),
            Body::Stalls(stalls) => stalls.listing.each_row(take),
            Body::Waits(waits) => waits.listing.each_row(take),
            Body::Functions(listing) => listing.each_row(take),
        }
    }
}
