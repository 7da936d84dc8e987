//! Memory of the engine: zeroed arrays, prefetch, hashing, and the limit on all of it. All unsafe code of the library is here.

pub(crate) mod budget;
pub(crate) mod hashing;
pub(crate) mod prefetch;
pub(crate) mod zeroed;
