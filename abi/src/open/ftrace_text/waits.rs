//! Numbers of events about waiting for memory, as `include/trace/events/vmscan.h` and `compaction.h` of the kernel print them, from Linux
//! 2.6.32 on.

use memchr::memmem;

use super::head::{decimal, hexadecimal};
use super::record::{Caller, Pointer, pointer};
use super::sites;
use crate::event::{Mark, Span};
use crate::text::split::{rsplit_once, split_once};

/// Numbers of an event; one that the line has not is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wait<'l> {
    /// Pointer to the shrinker.
    pub(super) shrinker: Option<Pointer>,
    /// Function of the shrinker, or the one that was timed.
    pub(super) function: Option<Caller<'l>>,
    pub(super) node: Option<i32>,
    pub(super) order: Option<u8>,
    /// Flags where they are a number.
    pub(super) gfp: Option<u64>,
    /// Number that belongs to the mark: pages reclaimed, objects freed, microseconds of a sleep, nanoseconds of a call.
    pub(super) value: Option<i64>,
}

/// Reads the numbers of an event with this mark.
pub(super) fn wait(mark: Mark, text: &[u8]) -> Wait<'_> {
    match mark {
        Mark::Begin(Span::Shrinker) | Mark::End(Span::Shrinker) => shrinker(text),
        _ => of_fields(mark, text),
    }
}

/// `super_cache_scan+0x0/0x210 000000005b6add51: nid: 0 …`, or fields by name.
fn shrinker(text: &[u8]) -> Wait<'_> {
    let text = text.trim_ascii();
    let head = memmem::find(text, b": ").and_then(|colon| text.get(..colon)).filter(|head| !head.contains(&b'='));
    let Some((function, address)) = head.and_then(|head| rsplit_once(head, b' ')) else {
        return of_fields(Mark::End(Span::Shrinker), text);
    };
    let mut shrinker = None;
    pointer(address, &mut shrinker);
    // `%p` of some kernels pads `(ptrval)` with blanks.
    let function = caller(function.trim_ascii());
    let behind = |label: &[u8]| signed(text.get(memmem::find(text, label)?..)?.strip_prefix(label)?);
    Wait {
        shrinker,
        function,
        node: behind(b" nid: ").and_then(|node| i32::try_from(node).ok()),
        value: behind(b" last shrinker return val "),
        ..Wait::default()
    }
}

/// Reads fields `name=value`.
fn of_fields(mark: Mark, mut text: &[u8]) -> Wait<'_> {
    let mut wait = Wait::default();
    let (mut called, mut returned) = (None, None);
    while let Some((before, value)) = split_once(text, b'=') {
        let key = before.rsplit(|&byte| byte == b' ').next().unwrap_or(before);
        match (key, mark) {
            (b"nid", _) => wait.node = signed(value).and_then(|node| i32::try_from(node).ok()),
            (b"order" | b"alloc_order", _) => {
                wait.order = signed(value).map(|order| u8::try_from(order).unwrap_or(u8::MAX));
            }
            (b"gfp_flags" | b"gfp_mask", _) => wait.gfp = signed(value).map(i64::cast_unsigned),
            (b"shr", _) => drop(pointer(value, &mut wait.shrinker)),
            (b"shrink" | b"func", _) => wait.function = caller(word(value)),
            (b"retval", Mark::End(Span::Shrinker))
            | (b"nr_reclaimed", Mark::End(_))
            // The kernel misspells the field.
            | (b"usec_delayed" | b"usect_delayed", Mark::Throttled) => wait.value = signed(value),
            (b"calltime", Mark::Function) => called = signed(value),
            (b"rettime", Mark::Function) => returned = signed(value),
            _ => {}
        }
        text = value;
    }
    if mark == Mark::Function {
        wait.value = returned.zip(called).map(|(returned, called): (i64, i64)| returned.wrapping_sub(called));
    }
    wait
}

/// A function by address or name.
fn caller(word: &[u8]) -> Option<Caller<'_>> {
    match hexadecimal(word).filter(|_| word.starts_with(b"0x") || word.len() >= 8) {
        Some(address) => Some(Caller::Address(address)),
        None => sites::function(word).map(|_| Caller::Named(word)),
    }
}

fn word(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == b' ').next().unwrap_or_default()
}

/// A number at the start: decimal, hexadecimal behind `0x`, or that with the decimal one behind it in brackets, as the option `fields`
/// prints it.
fn signed(text: &[u8]) -> Option<i64> {
    if let Some(digits) = text.strip_prefix(b"0x") {
        let end = digits.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(digits.len());
        let (digits, rest) = digits.split_at_checked(end)?;
        let told = rest.strip_prefix(b" (").and_then(signed_decimal);
        return told.or_else(|| hexadecimal(digits).map(u64::cast_signed));
    }
    signed_decimal(text)
}

/// A decimal number at the start.
fn signed_decimal(text: &[u8]) -> Option<i64> {
    let (digits, is_negative) = text.strip_prefix(b"-").map_or((text, false), |digits| (digits, true));
    let (number, rest) = decimal(digits)?;
    // Flags by names begin with no digit, and a word that goes on is no number.
    if !rest.first().is_none_or(|byte| b" ,:)\t".contains(byte)) {
        return None;
    }
    let number = i64::try_from(number).ok()?;
    if is_negative { number.checked_neg() } else { Some(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrinkers_of_all_kernels_are_read() {
        let named = |word: &'static [u8]| Some(Caller::Named(word));
        let pointer = |value, is_real| Some(Pointer::Value(value, is_real));
        for (text, shrinker, function, node, value) in [
            (
                " super_cache_scan+0x0/0x210 000000005b6add51: nid: 0 unused scan count 0 new scan count 0 total_scan 0 last shrinker \
                 return val 7",
                pointer(0x5b6a_dd51, false),
                named(b"super_cache_scan+0x0/0x210"),
                Some(0),
                Some(7),
            ),
            (
                " ext4_es_scan+0x0 [ext4] 0xffff888100873e50: nid: 1 objects to shrink 0 gfp_flags GFP_NOFS|__GFP_HIGHMEM cache \
                 items 10 delta 20 total_scan 20 priority 0",
                pointer(0xffff_8881_0087_3e50, true),
                named(b"ext4_es_scan+0x0 [ext4]"),
                Some(1),
                None,
            ),
            (
                "shrink_dcache_memory ffffffff81a3b3a0: unused scan count 0 new scan count 0 total_scan 0 last shrinker return val -1",
                pointer(0xffff_ffff_81a3_b3a0, true),
                named(b"shrink_dcache_memory"),
                None,
                Some(-1),
            ),
            (
                "0xffffffff81234560 0xffff888100873e50: nid: 0 unused scan count 0",
                pointer(0xffff_8881_0087_3e50, true),
                Some(Caller::Address(0xffff_ffff_8123_4560)),
                Some(0),
                None,
            ),
            (
                "shr=0xffff888100873e50 (-131387330330032) nid=0x0 (0) shrink=f+0x0/0x10 (-17) unused_scan=0x0 (0) new_scan=0x0 (0) \
                 retval=0xffffffff (-1) total_scan=0x0 (0)",
                pointer(0xffff_8881_0087_3e50, true),
                named(b"f+0x0/0x10"),
                Some(0),
                Some(-1),
            ),
        ] {
            let found = wait(Mark::End(Span::Shrinker), text.as_bytes());
            assert_eq!((found.shrinker, found.function, found.node, found.value), (shrinker, function, node, value));
        }
        let hidden = wait(Mark::End(Span::Shrinker), b"f+0x0/0x2 (____ptrval____): nid: 0 unused scan count 0");
        assert_eq!((hidden.shrinker, hidden.function), (Some(Pointer::Hidden), named(b"f+0x0/0x2")));
    }

    #[test]
    fn numbers_are_found_by_the_names_of_their_fields() {
        let begin = wait(Mark::Begin(Span::Direct), b"order=2 may_writepage=1 gfp_flags=GFP_KERNEL|__GFP_COMP");
        assert_eq!((begin.order, begin.gfp, begin.value), (Some(2), None, None));
        let begin = wait(Mark::Begin(Span::Node), b"nid=1 order=0 gfp_flags=0xcc0");
        assert_eq!((begin.node, begin.order, begin.gfp), (Some(1), Some(0), Some(0xcc0)));
        assert_eq!(wait(Mark::End(Span::Memcg), b" nr_reclaimed=42").value, Some(42));
        let throttled = b"nid=0 usec_timeout=100000 usect_delayed=20000 reason=VMSCAN_THROTTLE_WRITEBACK";
        assert_eq!(wait(Mark::Throttled, throttled).value, Some(20_000));
        let exit = b"func=0xffffffff81234560 depth=1 overrun=0 calltime=40 rettime=100";
        let exit = wait(Mark::Function, exit);
        assert_eq!((exit.function, exit.value), (Some(Caller::Address(0xffff_ffff_8123_4560)), Some(60)));
        let nested = [&b"nid="[..], &b"0x (".repeat(1 << 14)].concat();
        assert_eq!(wait(Mark::Throttled, &nested).node, None, "brackets in brackets take no stack");
        for rubbish in
            [&b""[..], b"=", b"order=", b"order=x", b"nid=99999999999999999999", b"shr= f", b": ", b" : nid: "]
        {
            for mark in [Mark::End(Span::Shrinker), Mark::Throttled, Mark::Function] {
                let Wait { node, value, .. } = wait(mark, rubbish);
                assert_eq!((node, value), (None, None), "{}", String::from_utf8_lossy(rubbish));
            }
        }
    }
}
