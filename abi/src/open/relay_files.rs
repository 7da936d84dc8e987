//! Raw bytes of a kmemtrace relay channel, as `cat` or the recorder of 2008 left them.

use std::sync::Arc;

use super::foreign;
use super::listing::{FoundFile, Listing, MAX_CPUS, add_missing, no_trace, origin};
use crate::clock::OrderKey;
use crate::event::Names;
use crate::kernel::relay::{self, Layout};
use crate::stream::CpuStream;
use crate::stream::payload::{PayloadFormat, RelayFormat, RelayNames};
use crate::stream::report::Source;
use crate::target::Endian;
use crate::trace::{Addresses, InputKind, Metadata, OpenError, PageBytesFrom, Run, Scope, Trace, TraceInfo};

pub(super) fn open(listing: Listing) -> Result<Trace, OpenError> {
    let Listing { root, files, total_overruns, .. } = listing;
    let detected = files.iter().find_map(|f| relay::detect(&f.sample).map(|found| (f, found)));
    let (layout, endian) = match (detected, files.first()) {
        (Some((_, found)), _) => found,
        // A channel on which nothing was recorded.
        (None, Some(_)) if files.iter().all(|f| f.sample.is_empty() && f.cpu.is_some()) => (Layout::R4, Endian::NATIVE),
        (None, first) => {
            let (path, sample) = first.map_or((root.as_path(), &[][..]), |f| (f.path.as_path(), &f.sample));
            return Err(no_trace(path, &foreign::described_at(path, sample)));
        }
    };
    let mut names = Names::new();
    let first = |f: &FoundFile| match relay::tally(layout, endian, &f.sample) {
        tally if tally.events > 0 => Some(tally.first as u32),
        _ => None,
    };
    let origin = origin(files.iter().filter_map(first));
    let format =
        Arc::new(PayloadFormat::Relay(RelayFormat { layout, endian, origin, names: RelayNames::new(&mut names) }));
    let suffix = if files.iter().any(|f| f.out) { ".out" } else { "" };
    let mut streams = Vec::new();
    for (index, found) in files.into_iter().enumerate() {
        if let Some((other_layout, other_endian)) = relay::detect(&found.sample)
            && (other_layout, other_endian) != (layout, endian)
            && relay::tally(layout, endian, &found.sample).events == 0
        {
            let reason = format!(
                "holds {} records in {} byte order, and the others {} in {}: they are not of one recording",
                other_layout.name(),
                other_endian.name(),
                layout.name(),
                endian.name()
            );
            return Err(no_trace(&found.path, &reason));
        }
        let cpu = found.cpu.unwrap_or(index as u32);
        let mut stream = CpuStream::raw(found.path, cpu, found.file, Arc::clone(&format));
        stream.report_mut().source = Some(Source::Relay);
        streams.push(stream);
    }
    let there: Vec<u32> = streams.iter().map(CpuStream::cpu).collect();
    let last = there.iter().copied().max().unwrap_or(0);
    let missing: Vec<u32> = (0..last.min(MAX_CPUS)).filter(|cpu| !there.contains(cpu)).collect();
    add_missing(&mut streams, &missing, &root, suffix);
    let info = TraceInfo {
        input: InputKind::Relay,
        capabilities: format.capabilities(),
        source: Some(Source::Relay),
        kernel: None,
        arch: None,
        endian: Some(endian),
        word_bytes: None,
        page_bytes: None,
        page_bytes_from: PageBytesFrom::Trace,
        addresses: Addresses::Raw,
        clock: None,
        since_boot: false,
        cpus: streams.iter().map(CpuStream::cpu).collect(),
        missing,
        order: if layout == Layout::R4 { OrderKey::Sequence } else { OrderKey::Time },
        scope: Scope::System,
        deferred: None,
        filter: None,
        host: None,
        boot: None,
        recording: None,
        run: Run::default(),
        symbols: None,
        text: None,
    };
    Ok(Trace {
        has_begun: false,
        inputs: Vec::new(),
        origin: None,
        series: Vec::new(),
        info,
        streams,
        names,
        metadata: Metadata::default(),
        total_overruns,
    })
}
