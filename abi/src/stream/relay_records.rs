//! Records of a relay channel, one after the other: in the blocks of a file of ours, or raw.

use super::payload::{RelayFormat, RelayNames};
use super::state::StreamState;
use crate::disk::blocks::{Block, Ending, Window};
use crate::event::{Action, Event, EventSink, Mark, Names};
use crate::fault::{Code, Fault};
use crate::kernel::relay::{self, Layout, Parsed, RelayRecord};
use crate::target::{Big, Endian, Little, TargetOrder};

impl StreamState {
    /// Decodes some of a raw relay file; says how it ended once it has.
    pub(super) fn raw_records(
        &mut self,
        window: &mut Window,
        format: &RelayFormat,
        names: &Names,
        items: &mut impl EventSink,
    ) -> Option<Ending> {
        const AT_ONCE: usize = 128 << 10;
        let offset = window.offset();
        let bytes = window.fill(AT_ONCE);
        let at_end = bytes.len() < AT_ONCE;
        let (taken, after) = self.relay_records(bytes, offset, format, names, items);
        let rest = bytes.get(taken..).unwrap_or_default();
        let at = offset.saturating_add(taken as u64);
        let zeros = !at_end && rest.iter().all(|&byte| byte == 0);
        let (skip, ending) = match after {
            None => (0, (at_end && rest.is_empty()).then_some(Ending::Whole)),
            Some(Parsed::Bad) => {
                if self.pending.is_none() {
                    let message = format!("no record at byte {at}");
                    self.report.add(Fault { code: Code::BadRelayRecord, offset: at, block: None, message });
                    self.damage();
                }
                match resume(format, rest, at_end) {
                    Some(skip) => (skip, None),
                    None if zeros => (rest.len(), None),
                    None if at_end => (rest.len(), Some(Ending::Damaged)),
                    // Three records convince, and they may straddle what is at hand: keep the tail.
                    None => (rest.len().saturating_sub(AT_ONCE / 2).max(1), None),
                }
            }
            Some(_) if at_end => {
                let message = format!("ends inside the record at byte {at}; every earlier record is whole");
                self.report.add(Fault { code: Code::RelayCut, offset: at, block: None, message });
                (rest.len(), Some(Ending::Cut))
            }
            Some(_) => (0, None),
        };
        let passed = taken.saturating_add(skip);
        window.advance(passed);
        if zeros {
            window.skip_hole(passed, 1);
        }
        ending
    }

    /// Decodes some of a data block's payload from byte `from`; returns where to go on, `None` at its end.
    pub(super) fn relay_payload(
        &mut self,
        payload: &[u8],
        from: usize,
        block: &Block,
        format: &RelayFormat,
        names: &Names,
        items: &mut impl EventSink,
    ) -> Option<usize> {
        let at = block.offset.saturating_add(block.header.header_len.get().into());
        let bytes = payload.get(from..)?;
        let (taken, parsed) = self.relay_records(bytes, at.saturating_add(from as u64), format, names, items);
        let (rest, end) = (bytes.get(taken..)?, from.saturating_add(taken));
        let next = match parsed {
            None => end,
            Some(Parsed::Bad) => {
                self.fault(Code::BadRelayRecord, block, format!("no record at byte {end} of it"));
                self.damage();
                end.saturating_add(resume(format, rest, true).unwrap_or(rest.len()))
            }
            Some(_) => {
                self.fault(Code::BadRelayRecord, block, "it ends inside a record".into());
                self.damage();
                payload.len()
            }
        };
        (next < payload.len()).then_some(next)
    }

    /// Decodes whole relay records; returns the bytes they took and what stands after them, `None` where the batch is full.
    fn relay_records(
        &mut self,
        bytes: &[u8],
        offset: u64,
        format: &RelayFormat,
        names: &Names,
        items: &mut impl EventSink,
    ) -> (usize, Option<Parsed>) {
        match format.endian {
            Endian::Little => self.relay_records_in::<Little>(bytes, offset, format, names, items),
            Endian::Big => self.relay_records_in::<Big>(bytes, offset, format, names, items),
        }
    }

    fn relay_records_in<O: TargetOrder>(
        &mut self,
        bytes: &[u8],
        offset: u64,
        format: &RelayFormat,
        names: &Names,
        items: &mut impl EventSink,
    ) -> (usize, Option<Parsed>) {
        let mut taken = 0;
        while let Some(rest) = bytes.get(taken..).filter(|_| !self.is_full()) {
            match relay::parse::<O>(format.layout, rest) {
                Parsed::Record(record, len) => {
                    let at = self.relay_key(&record, format, offset.saturating_add(taken as u64));
                    self.push(items, &relay_event(&record, at, self.cpu, &format.names), names);
                    taken = taken.saturating_add(len);
                }
                _ if rest.is_empty() => return (taken, None),
                other => return (taken, Some(other)),
            }
        }
        (taken, None)
    }

    fn relay_key(&mut self, record: &RelayRecord, format: &RelayFormat, offset: u64) -> u64 {
        if format.layout != Layout::R4 {
            return self.key(record.stamp, offset);
        }
        let sequence = record.stamp as u32;
        let Some(last) = self.last else {
            return u64::from(format.origin).saturating_add(sequence.wrapping_sub(format.origin).into());
        };
        let step = sequence.wrapping_sub(last as u32).cast_signed();
        if step <= 0 {
            let message = format!("sequence number {sequence} follows {}", last as u32);
            self.report.add(Fault { code: Code::BackInTime, offset, block: None, message });
        }
        last.saturating_add(step.max(0).cast_unsigned().into())
    }
}

fn resume(format: &RelayFormat, bytes: &[u8], at_end: bool) -> Option<usize> {
    match format.endian {
        Endian::Little => relay::resume::<Little>(format.layout, bytes, at_end),
        Endian::Big => relay::resume::<Big>(format.layout, bytes, at_end),
    }
}

#[expect(clippy::indexing_slicing, reason = "the parser lets no type pass that is not in the table")]
fn relay_event(record: &RelayRecord, at: u64, cpu: u32, names: &RelayNames) -> Event {
    let [alloc, free] = names.0[record.type_id];
    let (kind, allocation) = (relay::TYPES[record.type_id].kind, record.allocation);
    Event {
        accounted: None,
        at,
        address: record.ptr,
        call_site: record.call_site,
        requested: allocation.map_or(0, |a| a.requested),
        allocated: allocation.map_or(0, |a| a.allocated),
        gfp: allocation.map(|a| a.gfp),
        cpu,
        pid: None,
        flags: None,
        node: allocation.map(|a| a.node),
        cache: None,
        name: if allocation.is_some() { alloc } else { free },
        action: if allocation.is_some() { Action::Alloc(kind) } else { Action::Free(kind) },
        failed: allocation.is_some() && record.ptr == 0,
        order: None,
        stack: None,
        mark: Mark::None,
        value: None,
        owner: None,
        fields: None,
        bulk: None,
    }
}
