//! The header block of each file: the recording, its source and the machine.

use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context;
use kmemtrace_abi::disk::block::{RecordingId, item};
use kmemtrace_abi::kernel::format::without_print_fmt;
use kmemtrace_abi::random;
use kmemtrace_abi::target::Endian;

use crate::fs::kernelfs::{KernelFs, PROC};
use crate::process::messages;
use crate::source::{Framing, SourceFacts};

/// Description of a recording, for the header of each of its files.
pub(crate) struct Description {
    pub(crate) recording: RecordingId,
    pub(crate) facts: Arc<SourceFacts>,
    /// Start time, as [`now`] has it.
    pub(crate) started: [u8; 16],
    /// Name of the host; `None` where the user had it left out.
    pub(crate) host: Option<Vec<u8>>,
    /// Id of the boot; empty where it is not known.
    pub(crate) boot: Vec<u8>,
}

/// Id of a new recording: 16 random bytes.
fn new_recording() -> anyhow::Result<RecordingId> {
    let mut id = [0; 16];
    random::fill(&mut id).context("the kernel returns no random bytes")?;
    Ok(id)
}

/// Id of this boot; empty where the kernel has none.
fn boot() -> Vec<u8> {
    let read = KernelFs::find(&PROC).and_then(|proc| proc.read_if_there("sys/kernel/random/boot_id"));
    let text = read.unwrap_or_else(|error| {
        messages::say(format!("kmemtraced: {error:#}: the id of the boot will be missing in the trace"));
        Vec::new()
    });
    text.trim_ascii_end().to_vec()
}

/// Time of day and CLOCK_MONOTONIC, ns, little-endian, as in the items STARTED and STOPPED.
pub(crate) fn now() -> [u8; 16] {
    let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let mono = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let mono = mono.tv_sec.cast_unsigned() * 1_000_000_000 + mono.tv_nsec.cast_unsigned();
    let mut both = [0; 16];
    both[..8].copy_from_slice(&day.to_le_bytes());
    both[8..].copy_from_slice(&mono.to_le_bytes());
    both
}

impl Description {
    /// Describes a recording that starts now, under a random id; with the host's name if `names_host`.
    pub(crate) fn new(facts: &Arc<SourceFacts>, names_host: bool) -> anyhow::Result<Description> {
        let host = names_host.then(|| rustix::system::uname().nodename().to_bytes().to_vec());
        Ok(Description { recording: new_recording()?, facts: Arc::clone(facts), started: now(), host, boot: boot() })
    }

    /// Payload of a header block. `full` for `meta.out`, which keeps the event formats with their `print fmt`.
    pub(crate) fn payload(&self, full: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |tag, bytes: &[u8]| item::put(&mut out, tag, 0, bytes);
        let page = u32::try_from(rustix::param::page_size()).unwrap_or(0).to_le_bytes();
        let endian = if Endian::NATIVE == Endian::Little { 1 } else { 2 };
        let facts = &self.facts;
        put(item::TARGET, &[endian, facts.word_bytes, 0, 0, page[0], page[1], page[2], page[3]]);
        match &*facts.framing {
            Framing::SubBuffers(_) => {
                put(item::SOURCE, b"tracefs");
                put(item::HEADER_PAGE, facts.header_page.as_bytes());
                put(item::HEADER_EVENT, facts.header_event.as_bytes());
            }
            Framing::Relay(framing) => {
                put(item::SOURCE, b"relay");
                if let Some(layout) = framing.layout.get() {
                    put(item::RELAY_LAYOUT, layout.name().as_bytes());
                }
            }
        }
        put(item::CPUS, &facts.cpus.iter().flat_map(|cpu| cpu.to_le_bytes()).collect::<Vec<u8>>());
        if let Some(clock) = &facts.clock {
            put(item::CLOCK, clock.as_bytes());
        }
        let system = rustix::system::uname();
        put(item::KERNEL, system.release().to_bytes());
        put(item::ARCH, system.machine().to_bytes());
        for (name, format) in &facts.formats {
            let format = if full { format } else { without_print_fmt(format) };
            put(item::EVENT_FORMAT, format!("{name}\n{format}").as_bytes());
        }
        if facts.since_boot {
            put(item::SINCE_BOOT, &[]);
        }
        put(item::SCOPE, facts.scope.name().unwrap_or_default().as_bytes());
        if let Some(filter) = &facts.filter {
            put(item::FILTER, filter.as_bytes());
        }
        if let Some(group) = &facts.probes.group {
            put(item::PROBE_GROUP, group.as_bytes());
        }
        for (tag, text) in [(item::HOST, self.host.as_deref().unwrap_or_default()), (item::BOOT, &self.boot)] {
            if !text.is_empty() {
                put(tag, text);
            }
        }
        put(item::STARTED, &self.started);
        put(item::RECORDER, concat!("kmemtraced ", env!("CARGO_PKG_VERSION")).as_bytes());
        if let Some(bytes) = facts.buffer_bytes {
            put(item::BUFFER_BYTES, bytes.to_string().as_bytes());
        }
        out
    }
}
