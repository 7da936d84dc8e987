//! Call-site of a tree, before the tree is made.

use std::sync::Arc;

use crate::account::stats::Stats;
use crate::names::place::Place;

/// Call-site of the tree, with its sums.
pub(super) struct Leaf<'a> {
    /// Call-site.
    pub(crate) call_site: u64,
    /// `function+0x1f`, if it is known.
    pub(crate) symbol: Option<Vec<u8>>,
    /// Module of the call-site.
    pub(crate) module: Option<&'a [u8]>,
    /// Place in the sources.
    pub(crate) place: Arc<Place>,
    /// Sums over its objects.
    pub(crate) stats: &'a Stats,
}
