//! Names for call-sites, places in the kernel's sources, and names for caches.

#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects, clippy::indexing_slicing))]

pub(crate) mod aliases;
pub(crate) mod allocinfo;
pub(crate) mod areas;
pub(crate) mod caches;
#[cfg(feature = "dwarf")]
pub(crate) mod debug;
pub(crate) mod error;
pub(crate) mod frame_list;
#[cfg(feature = "dwarf")]
pub(crate) mod function_files;
#[cfg(feature = "dwarf")]
pub(crate) mod image_sizes;
pub(crate) mod kallsyms;
pub(crate) mod known;
#[cfg(feature = "dwarf")]
pub(crate) mod map;
pub(crate) mod module_area;
pub(crate) mod module_info;
#[cfg(feature = "dwarf")]
pub(crate) mod objects;
pub(crate) mod options;
pub(crate) mod place;
pub(crate) mod reclaim;
pub(crate) mod resolver;
pub(crate) mod size_class;
pub(crate) mod slabinfo;
pub(crate) mod symbol_files;
pub(crate) mod threads;
pub(crate) mod uses;
pub(crate) mod work;
pub(crate) mod wrappers;
