//! Places in the records of `perf.data` (`include/uapi/linux/perf_event.h` of Linux 6.18, stable since 2.6.32 but for fields that were
//! added).

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::target::{Endian, u32_of, u64_of};

/// Type of an attribute whose `config` is the id of a trace event.
const TRACEPOINT: u32 = 2;
/// Type and `config` of an event that is never sampled; perf adds one to have the records of maps and names.
const DUMMY: (u32, u64) = (1, 9);
/// Bytes of the first version of `perf_event_attr`; later ones are longer.
const LEAST_ATTR: usize = 64;
/// Largest id of a trace event.
const MAX_EVENT_ID: u64 = u16::MAX as u64;

/// Bits of `sample_type`.
mod sample {
    pub(super) const IP: u64 = 1 << 0;
    pub(super) const TID: u64 = 1 << 1;
    pub(super) const TIME: u64 = 1 << 2;
    pub(super) const ADDR: u64 = 1 << 3;
    pub(super) const READ: u64 = 1 << 4;
    pub(super) const CALLCHAIN: u64 = 1 << 5;
    pub(super) const ID: u64 = 1 << 6;
    pub(super) const CPU: u64 = 1 << 7;
    pub(super) const PERIOD: u64 = 1 << 8;
    pub(super) const STREAM_ID: u64 = 1 << 9;
    pub(super) const RAW: u64 = 1 << 10;
    pub(super) const IDENTIFIER: u64 = 1 << 16;
}

/// Bits of `read_format`.
mod read_format {
    pub(super) const TIME_ENABLED: u64 = 1 << 0;
    pub(super) const TIME_RUNNING: u64 = 1 << 1;
    pub(super) const ID: u64 = 1 << 2;
    pub(super) const GROUP: u64 = 1 << 3;
    pub(super) const LOST: u64 = 1 << 4;
}

/// What an attribute says about the records of its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attr {
    /// Id of the trace event; `None` for an event of another type.
    pub(super) event: Option<u16>,
    /// It has no samples.
    is_dummy: bool,
    sample_type: u64,
    read_format: u64,
    /// Offsets of fields in a sample.
    places: Places,
    /// Events between two samples, or samples a second.
    period: u64,
    is_frequency: bool,
    /// The kernel overwrites the oldest records, and perf keeps those that are left at the end (`--overwrite`).
    pub(super) is_overwritten: bool,
    /// Clock of the times, where the user has chosen one: a `clockid_t`.
    pub(super) clock: Option<i32>,
}

/// Offsets of fields in a sample, in bytes; those before the first field of variable length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Places {
    /// The event's id; `None` where samples have none.
    id: Option<usize>,
    time: usize,
    cpu: usize,
    /// Start of what follows.
    end: usize,
}

impl Attr {
    /// Parses `perf_event_attr`; `None` where it is too short.
    pub(super) fn parse(bytes: &[u8], endian: Endian) -> Option<Attr> {
        let at = |at: usize| u64_of(endian, bytes, at);
        if bytes.len() < LEAST_ATTR {
            return None;
        }
        // The flags are a C bit field: bit 0 is the lowest on little endian, the highest on big endian.
        let flags = if endian == Endian::Little { at(40)? } else { at(40)?.reverse_bits() };
        let flag = |bit: u32| flags & 1 << bit != 0;
        let (kind, config) = (u32_of(endian, bytes, 0)?, at(8)?);
        let event = (kind == TRACEPOINT).then_some(config);
        let attr = Attr {
            places: Places::default(),
            event: event.filter(|&id| id <= MAX_EVENT_ID).map(|id| id as u16),
            is_dummy: (kind, config) == DUMMY,
            sample_type: at(24)?,
            read_format: at(32)?,
            period: at(16)?,
            is_frequency: flag(10),
            is_overwritten: flag(27),
            clock: flag(25).then(|| u32_of(endian, bytes, 92)).flatten().map(u32::cast_signed),
        };
        let id = [sample::IDENTIFIER, sample::ID].into_iter().find(|&bit| attr.has(bit));
        let places = Places {
            id: id.map(|bit| attr.before(bit)),
            time: attr.before(sample::TIME),
            cpu: attr.before(sample::CPU),
            end: attr.before(0),
        };
        Some(Attr { places, ..attr })
    }

    /// True if the kernel leaves out some events: it counts them, or takes samples at a rate.
    pub(super) fn leaves_out_events(&self) -> bool {
        self.is_frequency || (self.period > 1 && !self.has(sample::PERIOD))
    }

    /// The field that every sample of the event must have and has not, by perf's name.
    pub(super) fn lacks(&self) -> Option<&'static str> {
        let needed = [(sample::TIME, "time"), (sample::CPU, "CPU"), (sample::RAW, "raw data")];
        needed.into_iter().find(|&(bit, _)| !self.has(bit)).map(|(_, name)| name)
    }

    fn has_fields_of(&self, other: &Attr) -> bool {
        (self.sample_type, self.read_format) == (other.sample_type, other.read_format)
    }

    fn has(&self, bit: u64) -> bool {
        self.sample_type & bit != 0
    }

    /// Bytes of the sample before the field `bit`, as far as each field has one length.
    fn before(&self, bit: u64) -> usize {
        let order = [
            sample::IDENTIFIER,
            sample::IP,
            sample::TID,
            sample::TIME,
            sample::ADDR,
            sample::ID,
            sample::STREAM_ID,
            sample::CPU,
            sample::PERIOD,
        ];
        order.iter().take_while(|&&field| field != bit).filter(|&&field| self.has(field)).count().saturating_mul(8)
    }

    /// Bytes of a sample's number of events read, from `at` on.
    fn read_len(&self, body: &[u8], at: usize, endian: Endian) -> Option<usize> {
        let fields_of = |bits: u64| (self.read_format & bits).count_ones() as usize;
        let times = fields_of(read_format::TIME_ENABLED | read_format::TIME_RUNNING);
        let each = fields_of(read_format::ID | read_format::LOST).checked_add(1)?;
        if self.read_format & read_format::GROUP == 0 {
            return each.checked_add(times)?.checked_mul(8);
        }
        let count = usize::try_from(u64_of(endian, body, at)?).ok()?;
        count.checked_mul(each)?.checked_add(times)?.checked_add(1)?.checked_mul(8)
    }

    /// Takes a sample's body apart; `None` where it is cut short.
    pub(super) fn sample<'b>(&self, body: &'b [u8], endian: Endian) -> Option<Sample<'b>> {
        let mut at = self.places.end;
        if self.has(sample::READ) {
            at = at.checked_add(self.read_len(body, at, endian)?)?;
        }
        let mut chain: &[u8] = &[];
        if self.has(sample::CALLCHAIN) {
            let len = usize::try_from(u64_of(endian, body, at)?).ok()?.checked_mul(8)?;
            at = at.checked_add(8)?;
            chain = body.get(at..)?.get(..len)?;
            at = at.checked_add(len)?;
        }
        let len = u32_of(endian, body, at)? as usize;
        let raw_at = at.checked_add(4)?;
        let raw = body.get(raw_at..)?.get(..len)?;
        Some(Sample { chain, raw, raw_at })
    }

    /// Time and CPU of a sample.
    pub(super) fn place(&self, body: &[u8], endian: Endian) -> Option<(u64, u32)> {
        Some((u64_of(endian, body, self.places.time)?, u32_of(endian, body, self.places.cpu)?))
    }

    /// Id at the end of a record that is no sample.
    fn id_at_end(&self, body: &[u8], endian: Endian) -> Option<u64> {
        self.has(sample::IDENTIFIER).then(|| u64_of(endian, body, body.len().checked_sub(8)?)).flatten()
    }

    /// Time and CPU in the fields at the end of a record that is no sample (`sample_id_all`).
    pub(super) fn place_at_end(&self, body: &[u8], endian: Endian) -> Option<(u64, u32)> {
        let order = [sample::TID, sample::TIME, sample::ID, sample::STREAM_ID, sample::CPU, sample::IDENTIFIER];
        let behind =
            |bit: u64| order.iter().rev().take_while(|&&field| field != bit).filter(|&&field| self.has(field)).count();
        let at = |bit: u64| body.len().checked_sub(behind(bit).checked_add(1)?.checked_mul(8)?);
        Some((u64_of(endian, body, at(sample::TIME)?)?, u32_of(endian, body, at(sample::CPU)?)?))
    }
}

/// The parts of a sample that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample<'b> {
    /// Addresses of the call chain, 8 bytes each, the innermost first; markers tell what those behind them are of.
    pub(super) chain: &'b [u8],
    /// The trace event's record, as the kernel's ring buffer has it.
    pub(super) raw: &'b [u8],
    /// Offset of `raw` in the sample's body, in bytes.
    pub(super) raw_at: usize,
}

/// Attributes of a file, and the events' ids.
#[derive(Clone, Debug, Default)]
pub(super) struct Attrs {
    list: Vec<Attr>,
    by_id: HashMap<u64, usize, RandomState>,
    /// Index of the first attribute of a trace event, else of the first one.
    first: usize,
    /// All samples are of trace events and have the same fields, so none needs its own attribute: looking one up takes a tenth of the
    /// time that a file takes.
    is_uniform: bool,
}

impl Attrs {
    pub(super) fn add(&mut self, attr: Attr, ids: impl Iterator<Item = u64>) {
        self.by_id.extend(ids.map(|id| (id, self.list.len())));
        self.list.push(attr);
        self.first = self.list.iter().position(|attr| attr.event.is_some()).unwrap_or(0);
        self.is_uniform = self.list.get(self.first).is_some_and(|first| {
            self.list.iter().all(|attr| attr.is_dummy || (attr.event.is_some() && attr.has_fields_of(first)))
        });
    }

    /// Attributes of trace events.
    pub(super) fn traced(&self) -> impl Iterator<Item = &Attr> {
        self.list.iter().filter(|attr| attr.event.is_some())
    }

    /// The attribute with the fields of a sample: that of its id, or the only one there is a choice of.
    #[inline]
    pub(super) fn of_sample(&self, body: &[u8], endian: Endian) -> Option<&Attr> {
        if self.is_uniform {
            return self.list.get(self.first);
        }
        self.of_id(|attr| u64_of(endian, body, attr.places.id?))
    }

    /// The attribute of the event that a record is of which is no sample.
    pub(super) fn of_other(&self, body: &[u8], endian: Endian) -> Option<&Attr> {
        // Without an identifier all attributes have the same fields.
        self.of_id(|attr| attr.id_at_end(body, endian))
    }

    /// Id at the end of a record that is no sample, if it has one there.
    pub(super) fn id_of_other(&self, body: &[u8], endian: Endian) -> Option<u64> {
        self.list.get(self.first)?.id_at_end(body, endian)
    }

    /// Either all attributes have the id at one place, or all have the same fields: perf refuses to read other files.
    fn of_id(&self, id: impl Fn(&Attr) -> Option<u64>) -> Option<&Attr> {
        let first = self.list.get(self.first)?;
        let found = id(first).and_then(|id| self.by_id.get(&id)).and_then(|&index| self.list.get(index));
        Some(found.unwrap_or(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(sample_type: u64, read_format: u64) -> Vec<u8> {
        let mut bytes = vec![0; 136];
        bytes[0] = 2;
        bytes[8..16].copy_from_slice(&653u64.to_le_bytes());
        bytes[16] = 1;
        bytes[24..32].copy_from_slice(&sample_type.to_le_bytes());
        bytes[32..40].copy_from_slice(&read_format.to_le_bytes());
        bytes
    }

    #[test]
    fn fields_are_found_whatever_stands_before_them() {
        let all = sample::IDENTIFIER | sample::IP | sample::TID | sample::TIME | sample::CPU | sample::PERIOD;
        let attr = Attr::parse(&attr(all | sample::RAW | sample::CALLCHAIN | sample::READ, 0), Endian::Little).unwrap();
        assert_eq!((attr.event, attr.lacks(), attr.leaves_out_events()), (Some(653), None, false));
        let mut body: Vec<u8> = [9u64, 0x1000, 7 << 32 | 7, 555, 3, 1, 42].map(u64::to_le_bytes).concat();
        body.extend([2u64, u64::MAX - 127, 0x2000].map(u64::to_le_bytes).concat());
        body.extend(4u32.to_le_bytes());
        body.extend(b"raw.");
        assert_eq!(attr.place(&body, Endian::Little), Some((555, 3)));
        let sample = attr.sample(&body, Endian::Little).unwrap();
        assert_eq!((sample.chain.len(), sample.raw), (16, &b"raw."[..]));
        for len in 0..body.len() {
            assert_eq!(attr.sample(&body[..len], Endian::Little), None);
        }
        let end: Vec<u8> = [1u64, 2, 7, 555, 3, 9].map(u64::to_le_bytes).concat();
        assert_eq!(attr.place_at_end(&end, Endian::Little), Some((555, 3)));
        // A length beyond the record is no length.
        let mut long = body.clone();
        long[56..64].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(attr.sample(&long, Endian::Little), None);
    }

    #[test]
    fn rates_and_periods_leave_events_out() {
        let mut bytes = attr(sample::TIME | sample::CPU | sample::RAW, 0);
        bytes[16] = 10;
        let parsed = |bytes: &[u8]| Attr::parse(bytes, Endian::Little).unwrap();
        assert!(parsed(&bytes).leaves_out_events());
        bytes[25] |= (sample::PERIOD >> 8) as u8;
        assert!(!parsed(&bytes).leaves_out_events(), "with its period in each sample the kernel records all");
        bytes[41] |= 1 << 2;
        assert!(parsed(&bytes).leaves_out_events());
        assert_eq!(Attr::parse(&bytes[..63], Endian::Little), None);
        assert_eq!(parsed(&attr(sample::TIME, 0)).lacks(), Some("CPU"));
    }
}
