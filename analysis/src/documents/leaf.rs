//! Call-site of a tree, before the tree is made.

use super::shown::Grown;
use crate::account::place_paths::PlacedSite;

/// Call-site of the tree, with its sums.
pub(super) struct Leaf<'a> {
    /// Call-site and its names.
    pub(crate) site: PlacedSite<'a>,
    /// Sums over its objects.
    pub(crate) grown: Grown,
    /// Numbers of the nodes from the root to the call-site, where their peaks were counted.
    pub(crate) nodes: &'a [u32],
}
