//! `events`: the decoded events in the total order, with the gaps where they end.

use kmemtrace_abi::event::{Action, Event, Names};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::row::{Address, text_of};
use crate::order::ordered::OrderedItem;

impl Serialize for OrderedItem<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        match *self {
            OrderedItem::Gap { from, at, cpu, lost, .. } => {
                members.serialize_entry("at", &at)?;
                members.serialize_entry("from", &from)?;
                members.serialize_entry("cpu", &cpu)?;
                members.serialize_entry("event", "gap")?;
                members.serialize_entry("lost", &lost)?;
            }
            OrderedItem::Event { event, addresses, names, comm, cgroup, reclaimable, .. } => {
                put_event(&mut members, (event, addresses), names, comm)?;
                if cgroup.is_some() {
                    put_name(&mut members, "cgroup", cgroup)?;
                }
                if let Some(reclaimable) = reclaimable {
                    members.serialize_entry("reclaimable", &reclaimable)?;
                }
            }
        }
        members.end()
    }
}

fn put_event<M: SerializeMap>(
    members: &mut M,
    (event, addresses): (&Event, &[Event]),
    names: &Names,
    comm: Option<&[u8]>,
) -> Result<(), M::Error> {
    members.serialize_entry("at", &event.told_at())?;
    members.serialize_entry("cpu", &event.told_cpu())?;
    members.serialize_entry("pid", &event.pid)?;
    put_name(members, "comm", comm)?;
    if let Some(context) = event.context() {
        members.serialize_entry("context", context.name())?;
    }
    put_name(members, "event", Some(names.get(event.name)))?;
    if event.action != Action::Other {
        members.serialize_entry("call_site", &Address(event.call_site))?;
        match event.objects() {
            Some(objects) => {
                members.serialize_entry("addresses", &Addresses(addresses))?;
                members.serialize_entry("size", &objects)?;
            }
            None => members.serialize_entry("address", &Address(event.address))?,
        }
    }
    if event.allocates() {
        if let Some((requested, allocated)) = event.told_bytes() {
            members.serialize_entry("requested", &requested)?;
            members.serialize_entry("allocated", &allocated)?;
        }
        if let Some(gfp) = event.gfp {
            members.serialize_entry("gfp", &gfp)?;
        }
        if let Some(node) = event.node {
            members.serialize_entry("node", &node)?;
        }
    }
    if let Some(cache) = event.cache {
        put_name(members, "cache", Some(names.get(cache)))?;
    }
    match event.stack {
        Some(stack) => members.serialize_entry("stack", &Stack(names.stacks.get(stack))),
        None => Ok(()),
    }
}

/// Addresses of a record of several objects.
struct Addresses<'e>(&'e [Event]);

impl Serialize for Addresses<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|event| Address(event.address)))
    }
}

/// Frames of a stack, innermost first.
struct Stack<'f>(&'f [u64]);

impl Serialize for Stack<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|&frame| Address(frame)))
    }
}

/// Writes a name as rows have it, with its bytes as digits where they are no UTF-8.
fn put_name<M: SerializeMap>(members: &mut M, member: &str, name: Option<&[u8]>) -> Result<(), M::Error> {
    let (text, hex) = name.map(text_of).unzip();
    members.serialize_entry(member, &text)?;
    match hex.flatten() {
        Some(hex) => members.serialize_entry(&format!("{member}_hex"), &hex),
        None => Ok(()),
    }
}
