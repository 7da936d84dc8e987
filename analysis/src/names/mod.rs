//! Names for call-sites. Other sources of names (debug information, source folders) belong here.

pub(crate) mod caches;
pub(crate) mod kallsyms;
