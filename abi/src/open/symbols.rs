//! Functions that texts name, as `%pS` prints them. Without an address a function gets a range of its own in [`MADE_UP`].

use std::collections::{BTreeMap, HashMap, HashSet};

use foldhash::fast::RandomState;
use memchr::memmem;

use crate::trace::{MADE_UP, WITHOUT_OFFSET, is_made_up};

/// Limit of a function's size, in bytes: a text may claim any.
const MAX_BYTES: u64 = 1 << 24;
/// Bytes of a page, as readers of symbols have it.
const PAGE: u64 = 4096;
/// Limit of functions: a kernel with all its modules has less.
const MAX_FUNCTIONS: usize = 1 << 22;

/// Limit of call sites with addresses.
const MAX_TOLD: usize = 1 << 18;

/// Frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'l> {
    /// `function+0x1f/0x40 [module]`.
    Function { name: &'l [u8], offset: u64, size: u64, module: Option<&'l [u8]> },
    /// `function [module]`, without the offset.
    Name { name: &'l [u8], module: Option<&'l [u8]> },
    /// `function+0x1f [module]` with its address.
    Placed { name: &'l [u8], offset: u64, module: Option<&'l [u8]>, address: u64 },
    /// Address without a name.
    Address(u64),
}

const NO_SIZE: u64 = u64::MAX;

/// Range of a function: from `begin` to `begin + bytes`, both included.
#[derive(Clone, Copy, Debug)]
struct Range {
    begin: u64,
    /// [`NO_SIZE`] where no offset is given.
    bytes: u64,
}

/// Function with an address.
#[derive(Debug)]
struct Placed {
    /// Address behind its last frame.
    end: u64,
    name: Box<[u8]>,
    module: Option<Box<[u8]>>,
}

/// Functions of a text, each with its range.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// By name, and after a line's end the module. Equal offsets in functions of one name are one call site, whatever their sizes, so
    /// the first range that is long enough counts.
    ranges: HashMap<Box<[u8]>, Vec<Range>, RandomState>,
    /// Number of all ranges.
    functions: usize,
    /// Latest key of `ranges` that was looked for.
    key: Vec<u8>,
    /// File and line of functions that are given with them, by address.
    sources: HashMap<u64, (Box<[u8]>, u32)>,
    /// The functions as lines of `/proc/kallsyms`.
    lines: Vec<u8>,
    /// Bytes of [`MADE_UP`] that are taken, and of [`WITHOUT_OFFSET`].
    taken: u64,
    taken_without_offset: u64,
    /// Functions with addresses, by their start. None reaches into another.
    placed: BTreeMap<u64, Placed>,
    /// First address of each call site, by function, module and offset; and all these addresses.
    told: HashMap<Box<[u8]>, u64, RandomState>,
    told_addresses: HashSet<u64, RandomState>,
}

impl Symbols {
    /// Return address of a frame; 0 where there are more functions than a kernel has.
    pub(super) fn address(&mut self, frame: Frame<'_>) -> u64 {
        match frame {
            Frame::Address(address) => address,
            Frame::Name { name, module } => {
                self.range(name, module, (0, NO_SIZE)).map_or(0, |begin| begin.saturating_add(1))
            }
            // No function is that long: an address beyond all symbols that the kernel keeps counts from the last one.
            Frame::Function { name, offset, module, .. } if offset > MAX_BYTES => {
                let name = [name, format!("+{offset:#x}").as_bytes()].concat();
                self.address(Frame::Name { name: &name, module })
            }
            Frame::Function { name, offset, size, module } => {
                let begin = self.range(name, module, (offset, size.clamp(offset, MAX_BYTES)));
                begin.map_or(0, |begin| begin.saturating_add(offset))
            }
            Frame::Placed { name, offset, module, address } => match self.told_address((name, module), offset, address)
            {
                Some(address) => {
                    self.place(address.saturating_sub(offset), address, (name, module));
                    address
                }
                None => self.address(Frame::Function { name, offset, size: 0, module }),
            },
        }
    }

    /// Address of a call site that a text tells with it: the first that it has told, because functions of one name are one. `None` where
    /// the text has told another function there: somebody has replaced the addresses.
    fn told_address(&mut self, (name, module): (&[u8], Option<&[u8]>), offset: u64, address: u64) -> Option<u64> {
        self.key.clear();
        for part in [name, b"\n", module.unwrap_or_default(), b"\n", &offset.to_le_bytes()] {
            self.key.extend_from_slice(part);
        }
        if let Some(first) = self.told.get(&self.key[..]) {
            return Some(*first);
        }
        let is_free = !self.told_addresses.contains(&address) && self.has_room((name, module), offset, address);
        if self.told.len() >= MAX_TOLD || !is_free {
            return None;
        }
        self.told.insert(self.key.clone().into(), address);
        self.told_addresses.insert(address);
        Some(address)
    }

    /// True where no other function has told addresses between the start of this one and `address`.
    fn has_room(&self, (name, module): (&[u8], Option<&[u8]>), offset: u64, address: u64) -> bool {
        let (start, end) = (address.saturating_sub(offset), address.saturating_add(1));
        let is_before = self.placed.range(..start).next_back().is_none_or(|(_, before)| before.end <= start);
        let is_same =
            |(at, placed): (&u64, &Placed)| *at == start && *placed.name == *name && placed.module.as_deref() == module;
        is_before && self.placed.range(start..end).all(is_same)
    }

    /// Names of all ranges by their begins, for [`Symbols::moved`].
    pub(super) fn begins(&self) -> BTreeMap<u64, &[u8]> {
        let mut begins = BTreeMap::new();
        for (key, ranges) in &self.ranges {
            begins.extend(ranges.iter().map(|range| (range.begin, &key[..])));
        }
        begins
    }

    /// Addresses of other symbols, which have these [`Symbols::begins`], as addresses of these.
    pub(super) fn moved(&mut self, (other, begins): (&Symbols, &BTreeMap<u64, &[u8]>), address: u64) -> u64 {
        let found = begins.range(..=address).next_back().filter(|_| is_made_up(address) && address < MADE_UP.end);
        let Some((begin, key)) = found else { return address };
        if let Some((file, line)) = other.sources.get(&address) {
            let mut parts = key.rsplitn(3, |byte| *byte == b'\n');
            let module = parts.next().filter(|module| !module.is_empty());
            return self.source((file, *line), parts.next().unwrap_or_default(), module);
        }
        let mut parts = key.splitn(2, |byte| *byte == b'\n');
        let (name, module) = (parts.next().unwrap_or(key), parts.next());
        let ranges = other.ranges.get(&key[..]).map_or(&[][..], Vec::as_slice);
        match ranges.iter().find(|range| range.begin == *begin).map(|range| range.bytes) {
            Some(NO_SIZE) | None => self.address(Frame::Name { name, module }),
            Some(size) => self.address(Frame::Function { name, offset: address.saturating_sub(*begin), size, module }),
        }
    }

    /// Address that stands for a line of source.
    pub(super) fn source(&mut self, (file, line): (&[u8], u32), function: &[u8], module: Option<&[u8]>) -> u64 {
        self.key.clear();
        let line_bytes = line.to_le_bytes();
        for part in [b"\n", file, b"\n", &line_bytes, b"\n", function, b"\n", module.unwrap_or_default()] {
            self.key.extend_from_slice(part);
        }
        if let Some(known) = self.ranges.get(&self.key[..]).and_then(|ranges| ranges.first()) {
            return known.begin.saturating_add(1);
        }
        let Some(begin) = self.new_range(function, module, NO_SIZE) else { return 0 };
        let address = begin.saturating_add(1);
        self.sources.insert(address, (file.into(), line));
        address
    }

    /// File and line of functions that were told with them, by address.
    pub(super) fn take_sources(&mut self) -> HashMap<u64, (Box<[u8]>, u32)> {
        std::mem::take(&mut self.sources)
    }

    /// Start of a function that reaches to an offset; `None` if there is no room for it.
    fn range(&mut self, name: &[u8], module: Option<&[u8]>, (offset, bytes): (u64, u64)) -> Option<u64> {
        self.key.clear();
        self.key.extend_from_slice(name);
        if let Some(module) = module {
            self.key.push(b'\n');
            self.key.extend_from_slice(module);
        }
        let known = self.ranges.get(&self.key[..]).map_or(&[][..], Vec::as_slice);
        let is_it = |range: &&Range| (range.bytes == NO_SIZE) == (bytes == NO_SIZE) && offset <= range.bytes;
        if let Some(range) = known.iter().find(is_it) {
            return Some(range.begin);
        }
        // A text may claim ever greater offsets: few ranges reach all of them.
        let bytes = if known.is_empty() || bytes == NO_SIZE { bytes } else { bytes.max(offset.next_power_of_two()) };
        self.new_range(name, module, bytes)
    }

    /// Makes a range for the latest key.
    fn new_range(&mut self, name: &[u8], module: Option<&[u8]>, bytes: u64) -> Option<u64> {
        let (area, taken, len) = match bytes {
            NO_SIZE => (WITHOUT_OFFSET, &mut self.taken_without_offset, 1),
            bytes => (MADE_UP.start..WITHOUT_OFFSET.start, &mut self.taken, bytes),
        };
        let begin = area.start.saturating_add(*taken);
        let last = begin.saturating_add(len);
        let end = last.saturating_add(1);
        if self.functions >= MAX_FUNCTIONS || area.end <= end {
            return None;
        }
        *taken = end.saturating_sub(area.start);
        self.functions = self.functions.saturating_add(1);
        self.add_line(begin, name, module);
        if begin / PAGE != last / PAGE {
            // Readers end a function with its page, where one of another module is next.
            self.add_symbol(end, b'd', b"_end", module);
        }
        let key = self.key.clone().into_boxed_slice();
        self.ranges.entry(key).or_default().push(Range { begin, bytes });
        Some(begin)
    }

    /// Notes that a function with this start reaches up to `address`.
    fn place(&mut self, start: u64, address: u64, (name, module): (&[u8], Option<&[u8]>)) {
        let end = address.saturating_add(1);
        if let Some(placed) = self.placed.get_mut(&start) {
            placed.end = placed.end.max(end);
        } else if self.placed.len() < MAX_FUNCTIONS {
            self.placed.insert(start, Placed { end, name: name.into(), module: module.map(Box::from) });
            self.add_line(start, name, module);
        }
    }

    fn add_line(&mut self, begin: u64, name: &[u8], module: Option<&[u8]>) {
        self.add_symbol(begin, b't', name, module);
    }

    fn add_symbol(&mut self, begin: u64, kind: u8, name: &[u8], module: Option<&[u8]>) {
        self.lines.extend_from_slice(format!("{begin:016x} {} ", char::from(kind)).as_bytes());
        self.lines.extend_from_slice(name);
        if let Some(module) = module {
            self.lines.extend_from_slice(b"\t[");
            self.lines.extend_from_slice(module);
            self.lines.push(b']');
        }
        self.lines.push(b'\n');
    }

    /// The functions as `/proc/kallsyms` lists them; empty without any.
    pub(super) fn into_kallsyms(mut self) -> Vec<u8> {
        if self.lines.is_empty() {
            return self.lines;
        }
        for Placed { end, module, .. } in std::mem::take(&mut self.placed).into_values() {
            self.add_symbol(end, b'd', b"_end", module.as_deref());
        }
        for (area, taken) in [(MADE_UP, self.taken), (WITHOUT_OFFSET, self.taken_without_offset)] {
            self.add_symbol(area.start.saturating_add(taken), b'd', b"_end", None);
        }
        self.lines
    }
}

/// `function+0x1f/0x40 [module]`, `0xffffffffc0100040`, and either behind `[<ffffffff81000000>] ` of old kernels.
pub(super) fn frame(text: &[u8]) -> Option<Frame<'_>> {
    let text = match text.strip_prefix(b"[<") {
        Some(old) => old.get(find(old, b">] ")?..)?.strip_prefix(b">] ")?,
        None => text,
    };
    if text.starts_with(b"0x") {
        return number(text).filter(|(_, rest)| rest.is_empty()).map(|(address, _)| Frame::Address(address));
    }
    let (place, module) = match find(text, b" [").and_then(|at| text.split_at_checked(at)) {
        // Some kernels write the module's build-id behind its name.
        Some((place, module)) => {
            let module = module.strip_prefix(b" [")?.strip_suffix(b"]")?;
            (place, Some(module.split(|byte| *byte == b' ').next().unwrap_or(module)))
        }
        None => (text, None),
    };
    let (name, offset) = place.split_at_checked(rfind(place, b"+0x")?)?;
    let (offset, rest) = number(offset.strip_prefix(b"+")?)?;
    let (size, rest) = number(rest.strip_prefix(b"/")?)?;
    let is_name = |name: &[u8]| !name.is_empty() && !name.iter().any(u8::is_ascii_whitespace);
    let is_whole = rest.is_empty() && is_name(name) && module.is_none_or(is_name);
    is_whole.then_some(Frame::Function { name, offset, size, module })
}

/// The decimal number at the start, or the hexadecimal one behind `0x`, and what follows it.
pub(super) fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let (digits, radix) = text.strip_prefix(b"0x").map_or((text, 10), |digits| (digits, 16));
    let end = digits.iter().position(|byte| !char::from(*byte).is_digit(radix)).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at_checked(end)?;
    Some((u64::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok()?, rest))
}

pub(super) fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    memmem::find(text, word)
}

pub(super) fn rfind(text: &[u8], word: &[u8]) -> Option<usize> {
    memmem::rfind(text, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses that somebody made up, or replaced, name the function of the text all the same.
    #[test]
    fn functions_that_reach_into_each_other_have_ranges_of_their_own() {
        let mut symbols = Symbols::default();
        let frame = |name: &'static [u8], offset, address| Frame::Placed { name, offset, module: None, address };
        let told = |symbols: &mut Symbols, name, offset, address| symbols.address(frame(name, offset, address));
        assert_eq!(told(&mut symbols, b"foo", 28, 0x1000), 0x1000);
        assert_eq!(told(&mut symbols, b"foo", 30, 0x1002), 0x1002);
        for (name, offset, address) in
            [(&b"bar"[..], 28, 0x1002), (b"bar", 28, 0x1001), (b"baz", 0x40, 0x1010), (b"foo", 4, 0xff0)]
        {
            assert!(is_made_up(told(&mut symbols, name, offset, address)), "{offset} {address:#x}");
        }
        assert_eq!(told(&mut symbols, b"next", 4, 0x1007), 0x1007, "foo ends below its start");
        assert!(is_made_up(told(&mut symbols, b"foo", 0x40, 0x1024)));
    }

    #[test]
    fn call_sites_keep_their_offsets() {
        let mut symbols = Symbols::default();
        let frame = |name: &'static [u8], offset| Frame::Function { name, offset, size: 0, module: None };
        let mut addresses = vec![symbols.address(Frame::Name { name: b"foo", module: None })];
        for (name, offset) in
            [(b"foo", 0), (b"foo", 1), (b"bar", 0), (b"foo", MAX_BYTES), (b"foo", MAX_BYTES + 1), (b"foo", 1 << 40)]
        {
            addresses.push(symbols.address(frame(name, offset)));
            assert_eq!(symbols.address(frame(name, offset)), addresses[addresses.len() - 1]);
        }
        // Those of other symbols have the same places in these.
        let mut others = Symbols::default();
        others.address(frame(b"other", 7));
        let moved: HashSet<u64> =
            addresses.iter().map(|address| others.moved((&symbols, &symbols.begins()), *address)).collect();
        assert_eq!((moved.len(), addresses.iter().collect::<HashSet<_>>().len()), (7, 7));
        assert_eq!(others.moved((&symbols, &symbols.begins()), addresses[1]), others.address(frame(b"foo", 0)));
        let lines = String::from_utf8(symbols.into_kallsyms()).unwrap();
        assert!(lines.contains(" foo+0x1000001\n") && lines.contains(" foo+0x10000000000\n"), "{lines}");
    }

    #[test]
    fn a_function_keeps_its_range() {
        let mut symbols = Symbols::default();
        let frame = |name: &'static [u8], offset, module| Frame::Function { name, offset, size: 0x20, module };
        let first = symbols.address(frame(b"foo", 8, None));
        assert_eq!(symbols.address(frame(b"foo", 9, None)), first + 1);
        assert_ne!(symbols.address(frame(b"foo", 8, Some(b"bar"))), first);
        assert_eq!(symbols.address(Frame::Address(7)), 7);
        let lines = String::from_utf8(symbols.into_kallsyms()).unwrap();
        assert_eq!(
            lines,
            "4000000000000000 t foo\n4000000000000021 t foo\t[bar]\n4000000000000042 d _end\n4000000080000000 d _end\n"
        );
    }
}
