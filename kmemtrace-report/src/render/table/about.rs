//! What the lines above a view depend on. A view has one entry here, and the compiler asks for that of a new one.

use kmemtrace::documents::Body;
use kmemtrace::documents::head::TraceMembers;
use kmemtrace_abi::event::Kind;

/// What a view shows, as far as the lines above it depend on that.
#[derive(Clone, Copy, Default)]
pub(super) struct About {
    /// It shows what is live at the end.
    pub(super) has_live: bool,
    /// It has a column of wasted bytes.
    pub(super) has_waste: bool,
    /// It has rows of vmalloc.
    pub(super) has_areas: bool,
    /// A row of it is an upper bound, because frees were not seen.
    pub(super) has_bounds: bool,
}

impl About {
    pub(super) fn of(trace: &TraceMembers<'_>, body: &Body<'_>) -> About {
        let plain = About { has_areas: trace.shows_vmalloc, ..About::default() };
        let vmalloc = Kind::Vmalloc.name();
        match body {
            Body::Summary(view) => {
                let has_bounds = view.rows.iter().any(|row| row.stats.0.is_some_and(|stats| stats.live_is_upper_bound));
                About { has_waste: true, has_bounds, ..plain }
            }
            Body::Sites(_) | Body::Groups(_) => About { has_waste: true, ..plain },
            Body::Caches(_) => About { has_waste: true, has_areas: false, ..plain },
            Body::LiveGroups(listing) => {
                let has_bounds = listing.rows.iter().any(|row| row.live_is_upper_bound);
                About { has_live: true, has_waste: true, has_bounds, ..plain }
            }
            Body::Live(listing) => {
                let has_bounds = listing.rows.iter().any(|row| row.live_is_upper_bound);
                About { has_live: true, has_bounds, ..plain }
            }
            Body::Leaks(view) => {
                About { has_bounds: view.listing.rows.iter().any(|row| row.live_is_upper_bound), ..plain }
            }
            Body::Growth(view) => About { has_bounds: view.listing.rows.iter().any(|row| row.slices.bound.0), ..plain },
            Body::Tree(view) => About { has_waste: true, has_areas: view.shows == vmalloc, ..plain },
            Body::Holders(view) => About { has_waste: true, has_areas: view.shows.contains(vmalloc), ..plain },
            Body::Account(view) => About { has_areas: view.kinds.contains(&vmalloc), ..plain },
            Body::Failed(_) | Body::Mismatch(_) | Body::Cross(_) => About { has_areas: false, ..plain },
            Body::Balance(_)
            | Body::Compare(_)
            | Body::Latency(_)
            | Body::Shrinkers(_)
            | Body::Stalls(_)
            | Body::Waits(_)
            | Body::Functions(_) => plain,
        }
    }
}
