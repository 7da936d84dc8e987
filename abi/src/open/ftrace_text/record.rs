//! Content of a line of an event: its name, and its fields by name, as the kernel's `include/trace/events/kmem.h` prints them from
//! Linux 2.6.32 on.

use memchr::memchr;

use super::graph::{self, Call};
use super::head::{decimal, hexadecimal};
use crate::event::{Action, Space};
use crate::kernel::profile::{self, EventProfile, Size};
use crate::kernel::release::Release;
use crate::text::split::split_once;

/// Content of a line behind the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content<'l> {
    /// An event; perf prints its system, too.
    Event { system: Option<&'l [u8]>, name: &'l [u8], fields: &'l [u8] },
    /// Head of a stack of the kernel (true) or of a program (false).
    Stack(bool),
    /// Loss that perf reports.
    Lost(u64),
    /// A call of the tracer function_graph, and the number of calls around it.
    Call(Call<'l>, Option<usize>),
}

/// Reads what follows the time; perf aligns names to the right, trace-cmd pads them on the right. `None` for what no program prints there.
pub(super) fn content(text: &[u8]) -> Option<Content<'_>> {
    let (first, rest) = word(text.trim_ascii_start());
    // trace-cmd's difference of times, and perf's period.
    let is_before = first.starts_with(b"(+") && first.ends_with(b")") || first.iter().all(u8::is_ascii_digit);
    let next = word(rest.trim_ascii_start());
    let (word, fields) = if is_before && next.0.ends_with(b":") { next } else { (first, rest) };
    match word {
        b"<stack" => return Some(Content::Stack(true)),
        b"<user" => return Some(Content::Stack(false)),
        b"kernel_stack:" => return Some(Content::Stack(true)),
        b"user_stack:" => return Some(Content::Stack(false)),
        b"PERF_RECORD_LOST" => {
            let lost = fields.trim_ascii().strip_prefix(b"lost ").and_then(decimal);
            return Some(Content::Lost(lost.map_or(0, |(lost, _)| lost)));
        }
        b"funcgraph_entry:" | b"funcgraph_exit:" => {
            if let Some((call, depth)) = graph::of_trace_cmd(fields) {
                return Some(Content::Call(call, depth));
            }
        }
        _ => {}
    }
    // A part of a line is gone, or the text has the fields of its events without their names.
    if word.iter().any(|byte| *byte == b'=' || *byte == 0) {
        return None;
    }
    let Some(name) = word.strip_suffix(b":") else {
        // Lines of the function tracer have no name of an event.
        return Some(Content::Event { system: None, name: b"function", fields });
    };
    Some(match split_once(name, b':') {
        Some((system, name)) => Content::Event { system: Some(system), name, fields },
        None => Content::Event { system: None, name, fields },
    })
}

/// True for a record of perf's that is no event: `PERF_RECORD_MMAP`, `PERF_RECORD_FINISHED_ROUND` (perf script --show-mmap-events).
pub(super) fn is_of_perf_alone(text: &[u8]) -> bool {
    let word = word(text.trim_ascii_start()).0;
    word.starts_with(b"PERF_RECORD_") && word != b"PERF_RECORD_LOST"
}

/// Meaning of an event of objects; the kernel and trace-cmd do not print its system.
pub(super) fn profile(system: Option<&[u8]>, name: &[u8], release: Option<Release>) -> Option<&'static EventProfile> {
    let name = std::str::from_utf8(name).ok()?;
    let mut systems = profile::SYSTEMS.iter().filter(|known| system.is_none_or(|system| system == known.as_bytes()));
    systems.find_map(|system| profile::find(system, name, release))
}

/// Pointer as `%p` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pointer {
    /// A number; true if it is no hash, which has 32 bits.
    Value(u64, bool),
    /// `(ptrval)`: the kernel had no key to hash it yet.
    Hidden,
}

/// Caller of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller<'l> {
    Address(u64),
    /// `f+0x1/0x2 [mod]`, `f+0x1`.
    Named(&'l [u8]),
}

/// Fields of an event; one that the line has not is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields<'l> {
    pub(super) caller: Option<Caller<'l>>,
    pub(super) pointer: Option<Pointer>,
    pub(super) page: Option<Pointer>,
    pub(super) pfn: Option<u64>,
    pub(super) order: Option<u8>,
    pub(super) requested: Option<u64>,
    pub(super) allocated: Option<u64>,
    /// Bytes of per-CPU memory on each CPU, and of an area.
    size: Option<u64>,
    /// Start of an area.
    area: Option<u64>,
    /// Not 0 for an area that there was no room for.
    failed: Option<u64>,
    /// Flags where they are a number.
    pub(super) gfp: Option<u64>,
    pub(super) node: Option<i32>,
    pub(super) cache: Option<&'l [u8]>,
}

/// Reads fields `name=value`; `None` where a value makes no sense.
pub(super) fn fields(mut text: &[u8]) -> Option<Fields<'_>> {
    let mut fields = Fields::default();
    // The event of an allocation of an area has it behind a colon.
    if let Some(value) = text.trim_ascii_start().strip_prefix(b"va_start: ") {
        text = wide(value, &mut fields.area)?;
    }
    while let Some((key, value)) = field(text) {
        text = match key {
            b"call_site" => caller(value, &mut fields)?,
            b"ptr" => pointer(value, &mut fields.pointer)?,
            b"page" => pointer(value, &mut fields.page)?,
            b"pfn" => wide(value, &mut fields.pfn)?,
            b"order" => wide(value, &mut fields.order)?,
            b"bytes_req" => wide(value, &mut fields.requested)?,
            b"bytes_alloc" => wide(value, &mut fields.allocated)?,
            b"size" => wide(value, &mut fields.size)?,
            b"va_start" | b"addr" => wide(value, &mut fields.area)?,
            b"failed" => wide(value, &mut fields.failed)?,
            b"node" => node(value, &mut fields.node)?,
            b"gfp_flags" => {
                let (word, rest) = word(value);
                fields.gfp = number(word);
                rest
            }
            b"name" => cache(value, &mut fields.cache),
            _ => value,
        };
    }
    Some(fields)
}

/// Name of the next field, and what follows its `=`.
#[inline]
fn field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    // Names are short: a loop finds their end before a search in whole vectors has begun.
    let mut begin = 0usize;
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b'=' => return Some((text.get(begin..at)?, text.get(at.wrapping_add(1)..)?)),
            // No slice is long enough to wrap, and a sum that saturates costs a third of the loop.
            b' ' => begin = at.wrapping_add(1),
            _ => {}
        }
    }
    None
}

/// The word at the start, and what follows it.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(memchr(b' ', text).unwrap_or(text.len()))
}

fn caller<'l>(value: &'l [u8], fields: &mut Fields<'l>) -> Option<&'l [u8]> {
    let (word, mut rest) = word(value);
    if let Some(address) = hexadecimal(word) {
        fields.caller = Some(Caller::Address(address));
        return Some(rest);
    }
    let is_name = word.first().is_some_and(|&first| first != b'(') && word.iter().all(u8::is_ascii_graphic);
    let mut name = word;
    if rest.starts_with(b" [") {
        (_, rest) = split_once(rest, b']')?;
        name = value.get(..value.len().checked_sub(rest.len())?)?;
    }
    fields.caller = Some(Caller::Named(name));
    is_name.then_some(rest)
}

pub(super) fn pointer<'l>(value: &'l [u8], to: &mut Option<Pointer>) -> Option<&'l [u8]> {
    // `%p` of NULL was padded with blanks up to Linux 5.1.
    if let Some(inner) = value.trim_ascii_start().strip_prefix(b"(") {
        let (word, rest) = split_once(inner, b')')?;
        *to = Some(match word {
            b"null" | b"nil" => Pointer::Value(0, false),
            word if word.windows(6).any(|part| part == b"ptrval") => Pointer::Hidden,
            _ => return None,
        });
        return Some(rest);
    }
    let (word, rest) = word(value);
    let address = hexadecimal(word)?;
    let is_real = address > u32::MAX.into() || word.starts_with(b"0x");
    *to = Some(Pointer::Value(address, is_real));
    Some(rest)
}

/// Reads a number that fits its field.
fn wide<'l, N: TryFrom<u64>>(value: &'l [u8], to: &mut Option<N>) -> Option<&'l [u8]> {
    let (number, rest) = first_number(value)?;
    *to = Some(N::try_from(number).ok()?);
    Some(rest)
}

/// The number that is the word at the start, and what follows it.
#[inline]
fn first_number(text: &[u8]) -> Option<(u64, &[u8])> {
    match decimal(text) {
        Some((value, rest)) if rest.first().is_none_or(|&byte| byte == b' ') => Some((value, rest)),
        _ => {
            let (word, rest) = word(text);
            Some((number(word)?, rest))
        }
    }
}

fn node<'l>(value: &'l [u8], to: &mut Option<i32>) -> Option<&'l [u8]> {
    let digits = value.strip_prefix(b"-");
    let (number, rest) = first_number(digits.unwrap_or(value))?;
    *to = match digits {
        Some(_) => i32::try_from(number).ok()?.checked_neg(),
        // The option `fields` prints it without sign.
        None => Some(u32::try_from(number).ok()?.cast_signed()),
    };
    Some(rest)
}

/// Name of a cache, which may hold blanks: up to the next field, or to the end.
fn cache<'l>(value: &'l [u8], to: &mut Option<&'l [u8]>) -> &'l [u8] {
    let next = value.windows(5).position(|part| part == b" ptr=" || part == b" byte").unwrap_or(value.len());
    let (name, rest) = value.split_at(next);
    *to = Some(name).filter(|name| !name.is_empty());
    rest
}

/// A decimal number, or a hexadecimal one behind `0x`, and nothing else.
fn number(word: &[u8]) -> Option<u64> {
    match word.strip_prefix(b"0x") {
        Some(digits) => hexadecimal(digits),
        None => decimal(word).filter(|(_, rest)| rest.is_empty()).map(|(number, _)| number),
    }
}

/// Facts of an object that an event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) address: u64,
    /// Bytes asked for and taken, of a slab object.
    pub(super) sizes: (u64, u64),
    pub(super) order: Option<u8>,
    pub(super) failed: bool,
}

/// Largest order of a block of pages. The kernel's largest have less (`MAX_PAGE_ORDER` of `include/linux/mmzone.h`).
const MAX_ORDER: u8 = 32;

impl Fields<'_> {
    /// The object of an event; `Err` where a field that it needs is missing or out of range, `Ok(None)` where the kernel did not print
    /// its address. `cpus`: those that the machine may have.
    pub(super) fn object(&self, profile: &EventProfile, cpus: u64) -> Result<Option<Object>, ()> {
        let (Action::Alloc(kind) | Action::Free(kind)) = profile.action else { return Err(()) };
        let allocates = profile.size != Size::None;
        let sizes = match profile.size {
            Size::None | Size::Order(_) => (0, 0),
            Size::Bytes { .. } => self.requested.zip(self.allocated).ok_or(())?,
            Size::Both(_) => self.size.map(|size| (size, size)).ok_or(())?,
            Size::EachCpu(_) => self.size.map(|size| size.saturating_mul(cpus)).map(|size| (size, size)).ok_or(())?,
        };
        let object = |address, failed| Ok(Some(Object { address, sizes, order: None, failed: allocates && failed }));
        match kind.space() {
            Space::Pages => {
                let (pfn, order) = self.pfn.zip(self.order).filter(|(_, order)| *order <= MAX_ORDER).ok_or(())?;
                // Before Linux 2.6.33 the frame of a failed allocation is rubbish, and the pointer is null.
                let is_null = matches!(pfn, 0 | u64::MAX) || self.page == Some(Pointer::Value(0, false));
                Ok(Some(Object { address: pfn, sizes, order: Some(order), failed: allocates && is_null }))
            }
            Space::Vmalloc => object(self.area.ok_or(())?, self.failed.is_some_and(|failed| failed != 0)),
            _ if profile.keys.is_empty() => object(0, true),
            _ => match self.pointer.ok_or(())? {
                Pointer::Value(address, _) => object(address, address == 0),
                Pointer::Hidden => Ok(None),
            },
        }
    }

    /// True where a pointer is no hash.
    pub(super) fn has_real_pointer(&self) -> bool {
        [self.pointer, self.page].into_iter().flatten().any(|pointer| matches!(pointer, Pointer::Value(_, true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> (Option<&'static EventProfile>, Option<Fields<'_>>) {
        let Some(Content::Event { system, name, fields: text }) = content(text.as_bytes()) else { panic!("{text}") };
        (profile(system, name, None), fields(text))
    }

    fn object(text: &str) -> Result<Option<Object>, ()> {
        let (profile, fields) = event(text);
        fields.ok_or(())?.object(profile.ok_or(())?, 4)
    }

    #[test]
    fn events_of_all_kernels_are_read() {
        let slab = |address, sizes| Object { address, sizes, order: None, failed: address == 0 && sizes != (0, 0) };
        let pages = |address, order, failed| Object { address, sizes: (0, 0), order: Some(order), failed };
        for (text, want) in [
            (
                "kmalloc: call_site=c01234 ptr=ffff880012345678 bytes_req=11 bytes_alloc=16 gfp_flags=GFP_KERNEL",
                slab(0xffff_8800_1234_5678, (11, 16)),
            ),
            (
                "kmalloc: call_site=f+0x3b/0x60 ptr=000000008b4223e2 bytes_req=11 bytes_alloc=16 gfp_flags=GFP_KERNEL node=-1 accounted=true",
                slab(0x8b42_23e2, (11, 16)),
            ),
            (
                "kmalloc: call_site=f+0x3b/0x60 [mod] ptr=          (null) bytes_req=11 bytes_alloc=16 gfp_flags= node=-1",
                slab(0, (11, 16)),
            ),
            (
                "kmalloc:              (f+0x2b) call_site=f+0x2b ptr=0xffff888100873e50 bytes_req=11 bytes_alloc=16 gfp_flags=0xcc0",
                slab(0xffff_8881_0087_3e50, (11, 16)),
            ),
            (
                "     kmem:kmalloc: call_site=f+0x2b ptr=(nil) bytes_req=11 bytes_alloc=16 gfp_flags=GFP_KERNEL",
                slab(0, (11, 16)),
            ),
            ("kfree: call_site=f+0x1/0x2 ptr=0000000000000000", slab(0, (0, 0))),
            (
                "kmem_cache_free: call_site=f+0x1/0x2 (-17) ptr=0xffff888104732738 (-131387269896392) name=a b",
                slab(0xffff_8881_0473_2738, (0, 0)),
            ),
            (
                "mm_page_alloc: page=0000000067008811 pfn=0x238d4 order=3 migratetype=0 gfp_flags=GFP_KERNEL",
                pages(0x238d4, 3, false),
            ),
            (
                "mm_page_alloc: page=ffffea0000000000 pfn=145620 order=0 migratetype=0 gfp_flags=GFP_KERNEL",
                pages(145_620, 0, false),
            ),
            (
                "mm_page_alloc: page=(null) pfn=6148914691236517205 order=0 migratetype=0 gfp_flags=GFP_KERNEL",
                pages(6_148_914_691_236_517_205, 0, true),
            ),
            (
                "mm_page_alloc: page=00000000f3a21234 pfn=0 order=9 migratetype=0 gfp_flags=GFP_KERNEL",
                pages(0, 9, true),
            ),
            ("mm_page_free_direct: page=ffffea0000000000 pfn=145620 order=1", pages(145_620, 1, false)),
            (
                "percpu_alloc_percpu: call_site=f+0x2bf/0x4d0 reserved=0 is_atomic=0 size=16 align=8 base_addr=000000004f0bd231 \
                 off=25376 ptr=0000000047062bd3 bytes_alloc=64 gfp_flags=GFP_KERNEL",
                slab(0x4706_2bd3, (64, 64)),
            ),
            ("percpu_alloc_percpu_fail: reserved=0 is_atomic=0 size=16 align=8", slab(0, (64, 64))),
            (
                "alloc_vmap_area: va_start: 18446683600570023936 size=20480 align=4096 vstart=0xffffc90000000000 vend=0xffffe8ff failed=0",
                slab(18_446_683_600_570_023_936, (20480, 20480)),
            ),
            (
                "free_vmap_area_noflush: va_start=0xffffc90005618000 nr_lazy=6109 nr_lazy_max=16384",
                slab(0xffff_c900_0561_8000, (0, 0)),
            ),
        ] {
            assert_eq!(object(text), Ok(Some(want)), "{text}");
        }
        assert_eq!(object("kfree: call_site=f+0x1/0x2 ptr=(____ptrval____)"), Ok(None));
        assert!(event("percpu:kfree: call_site=f+0x1/0x2 ptr=1").0.is_none());
    }

    #[test]
    fn values_without_sense_are_refused() {
        for text in [
            "kfree: call_site=f+0x1/0x2",
            "kfree: call_site=f+0x1/0x2 ptr=",
            "kfree: call_site=f+0x1/0x2 ptr=00000z0000000000",
            "kfree: call_site=f+0x1/0x2 ptr=00000000000000001",
            "kfree: call_site= ptr=1",
            "kfree: call_site=f+0x1/0x2 [mod ptr=1",
            "kmalloc: call_site=1 ptr=1 bytes_req=1",
            "kmalloc: call_site=1 ptr=1 bytes_req=99999999999999999999 bytes_alloc=1",
            "mm_page_alloc: page=1 order=0",
            "mm_page_alloc: page=1 pfn=1 order=77",
        ] {
            assert_eq!(object(text), Err(()), "{text}");
        }
    }

    #[test]
    fn callers_caches_and_flags_are_those_of_the_line() {
        let text = "kmem_cache_alloc: call_site=f+0x1/0x2 [m] ptr=1 name=a b bytes_req=4 bytes_alloc=8 gfp_flags=3264 node=0xffffffff";
        let fields = event(text).1.unwrap();
        assert_eq!(fields.caller, Some(Caller::Named(b"f+0x1/0x2 [m]")));
        assert_eq!((fields.cache, fields.gfp, fields.node), (Some(&b"a b"[..]), Some(3264), Some(-1)));
        assert_eq!(
            event("kfree: call_site=ffffffff8112c3d1 ptr=1").1.unwrap().caller,
            Some(Caller::Address(0xffff_ffff_8112_c3d1))
        );
    }

    #[test]
    fn stacks_and_loss_are_no_events() {
        assert_eq!(content(b" <stack trace>"), Some(Content::Stack(true)));
        assert_eq!(content(b"kernel_stack:         <stack trace >"), Some(Content::Stack(true)));
        assert_eq!(content(b" <user stack trace>"), Some(Content::Stack(false)));
        assert_eq!(content(b" PERF_RECORD_LOST lost 42"), Some(Content::Lost(42)));
        assert!(matches!(content(b" kfree <-f"), Some(Content::Event { name: b"function", .. })));
        for before in ["(+39)    ", "        1   "] {
            let line = format!("{before}kmem:kfree: call_site=f+0x1/0x2 ptr=1");
            assert!(matches!(content(line.as_bytes()), Some(Content::Event { name: b"kfree", .. })), "{line}");
        }
        assert_eq!(content(b" call_site=f+0x1/0x2 ptr=1"), None);
        assert_eq!(content(b" kmem_cache_alloc\0\0\0 curr=1"), None);
        assert!(is_of_perf_alone(b" PERF_RECORD_MMAP2 1/1: [0]") && !is_of_perf_alone(b"PERF_RECORD_LOST lost 1"));
    }
}
