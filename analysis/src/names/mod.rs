//! Names for call-sites and for caches. Other sources of names (debug information, source folders) belong here.

pub(crate) mod caches;
pub(crate) mod kallsyms;
pub(crate) mod size_class;
pub(crate) mod slabinfo;
