//! Texts that list memory at one moment: page_owner in all its forms, slab's own witnesses, allocinfo, kmemleak, meminfo, OOM reports.
//!
//! Data flows one way: a file's lines, without the noise around them (`noise`), go to the [`Reader`] of the form that claims them
//! (`form`, one table). A reader makes [`Entry`]s and hands them to an [`Out`], which keeps stacks, owners and names once and adds
//! up entries that are alike (`collect`). The collected entries are the trace's only source of events.

#![allow(dead_code, reason = "readers are used once the door knows them")]

mod alloc_traces;
mod allocinfo;
pub(crate) mod collect;
mod crash_slabs;
pub(crate) mod entry;
mod kmemleak;
mod memleak;
mod numbers;
mod places;
mod slab_report;
mod slabinfo;
mod slabtop;
#[cfg(test)]
mod trial;
mod vmallocinfo;
