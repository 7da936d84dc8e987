//! What tests of readers share: an [`Out`] that keeps everything, and damage.

use std::ops::Range;

use super::entry::{Beside, Entry, EntryKind, Fact, Out, Reader, Site, Took, Trouble};
use super::numbers::MAX;
use crate::open::symbols::{Frame, Symbols};

/// What a reader has handed over.
#[derive(Debug, Default)]
pub(super) struct Told {
    symbols: Symbols,
    frames: Vec<(u64, String)>,
    pub(super) entries: Vec<Owned>,
    pub(super) facts: Vec<String>,
    pub(super) troubles: Vec<Trouble>,
    /// Lines that the reader did not take.
    pub(super) others: usize,
    /// Texts, one behind the other; entries and facts are of the last one.
    pub(super) texts: usize,
}

/// An entry, kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Owned {
    pub(super) kind: EntryKind,
    /// `frame`, `word`, `file:line function [module]`, empty if the stack tells it, `-` if nothing does.
    pub(super) site: String,
    pub(super) stack: Vec<String>,
    pub(super) objects: Option<u64>,
    pub(super) requested: Option<u64>,
    pub(super) allocated: Option<u64>,
    pub(super) wasted: Option<u64>,
    pub(super) pages: Option<u64>,
    pub(super) address: u64,
    pub(super) pid: Option<i32>,
    pub(super) comm: Option<String>,
    pub(super) cache: Option<String>,
    pub(super) is_released: bool,
    pub(super) beside: String,
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl Told {
    fn name(&self, address: u64) -> String {
        let found = self.frames.iter().find(|(known, _)| *known == address);
        found.map_or_else(|| format!("{address:#x}"), |(_, name)| name.clone())
    }
}

impl Out for Told {
    fn address(&mut self, frame: Frame<'_>) -> u64 {
        let address = self.symbols.address(frame);
        let of = |module: Option<&[u8]>| module.map(|module| format!(" [{}]", string(module))).unwrap_or_default();
        let name = match frame {
            Frame::Function { name, offset, module, .. } => format!("{}+{offset:#x}{}", string(name), of(module)),
            Frame::Name { name, module } => format!("{}{}", string(name), of(module)),
            Frame::Placed { name, offset, module, address: told } if told == address => {
                format!("{}+{offset:#x}{} at {told:#x}", string(name), of(module))
            }
            Frame::Placed { name, offset, module, .. } => format!("{}+{offset:#x}{}", string(name), of(module)),
            Frame::Address(address) => format!("{address:#x}"),
        };
        self.frames.push((address, name));
        address
    }

    fn entry(&mut self, entry: &Entry<'_>) {
        let site = match entry.site {
            Site::OfStack => String::new(),
            Site::Frame(address) => self.name(address),
            Site::Word(word) => string(word),
            Site::Handle(handle) => format!("handle {handle}"),
            Site::Source { file, line, function, module } => {
                let module = module.map(|module| format!(" [{}]", string(module))).unwrap_or_default();
                format!("{}:{line} {}{module}", string(file), string(function))
            }
            Site::Unknown => "-".to_owned(),
        };
        let figures = [entry.objects, entry.requested, entry.allocated, entry.wasted, entry.pages];
        assert!(figures.into_iter().flatten().all(|figure| figure <= MAX), "{entry:?}");
        self.entries.push(Owned {
            kind: entry.kind,
            site,
            stack: entry.stack.iter().map(|&address| self.name(address)).collect(),
            objects: entry.objects,
            requested: entry.requested,
            allocated: entry.allocated,
            wasted: entry.wasted,
            pages: entry.pages,
            address: entry.address,
            pid: entry.pid,
            comm: entry.comm.map(string),
            cache: entry.cache.map(string),
            is_released: entry.is_released,
            beside: match entry.beside {
                Beside::Nothing => String::new(),
                Beside::Traces(traces) => {
                    let [cpus, nodes] = [traces.cpus, traces.nodes].map(|list| list.map(string).unwrap_or_default());
                    format!("{:?} {:?} {cpus} {nodes}", traces.age_jiffies, traces.pids)
                }
                beside => format!("{beside:?}"),
            },
        });
    }

    fn fact(&mut self, fact: Fact<'_>) {
        self.facts.push(match fact {
            Fact::Counter(name, value) => format!("{} {value}", string(name)),
            Fact::Process(pid, comm, bytes) => format!("process {pid} {} {bytes}", string(comm)),
            Fact::Kernel(release) => format!("kernel {}", string(release)),
            Fact::Arch(machine) => format!("arch {}", string(machine)),
            fact => format!("{fact:?}"),
        });
    }

    fn trouble(&mut self, trouble: Trouble) {
        self.troubles.push(trouble);
    }
}

/// Reads a text with readers of one form, as the door does.
pub(super) fn read<R: Reader>(new: impl Fn() -> R, text: &[u8]) -> Told {
    let mut told = Told { texts: 1, ..Told::default() };
    let mut reader = new();
    let mut is_cut = false;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else {
            is_cut = true;
            break;
        };
        match reader.take(line, &mut told) {
            Took::Line => {}
            Took::NoLine => told.others += 1,
            Took::NextText => {
                (told.entries, told.facts) = Default::default();
                told.texts += 1;
                reader = new();
                assert_eq!(reader.take(line, &mut told), Took::Line, "{}", string(line));
            }
        }
    }
    reader.end(is_cut, &mut told);
    told
}

/// Sums of a text: what a reader found, or the most that it may find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) objects: u64,
    pub(super) requested: u64,
    pub(super) allocated: u64,
    pub(super) wasted: u64,
    pub(super) pages: u64,
    /// Values of counters.
    pub(super) counters: u64,
}

impl Sums {
    fn all(&self) -> [u64; 6] {
        [self.objects, self.requested, self.allocated, self.wasted, self.pages, self.counters]
    }

    fn is_within(&self, bound: &Sums) -> bool {
        self.all().iter().zip(bound.all()).all(|(sum, most)| *sum <= most)
    }

    /// Sums over the lines of a text.
    pub(super) fn of_lines(text: &[u8], of: impl Fn(&[u8]) -> Sums) -> Sums {
        text.split(|byte| *byte == b'\n').map(of).fold(Sums::default(), |sums, more| Sums {
            objects: sums.objects.saturating_add(more.objects),
            requested: sums.requested.saturating_add(more.requested),
            allocated: sums.allocated.saturating_add(more.allocated),
            wasted: sums.wasted.saturating_add(more.wasted),
            pages: sums.pages.saturating_add(more.pages),
            counters: sums.counters.saturating_add(more.counters),
        })
    }
}

/// Sums of the figures of all entries and facts.
fn sums(told: &Told) -> Sums {
    let of = |figure: fn(&Owned) -> Option<u64>| told.entries.iter().filter_map(figure).fold(0u64, u64::saturating_add);
    let counters = told.facts.iter().filter_map(|fact| fact.rsplit(' ').next()?.parse().ok());
    Sums {
        objects: of(|entry| entry.objects),
        requested: of(|entry| entry.requested),
        allocated: of(|entry| entry.allocated),
        wasted: of(|entry| entry.wasted),
        pages: of(|entry| entry.pages),
        counters: counters.fold(0, u64::saturating_add),
    }
}

/// Number of decimal digits at the begin of some bytes, 0 without any.
fn digits(bytes: &[u8]) -> u64 {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
}

/// Decimal numbers of a line, whatever stands around them.
pub(super) fn numbers(line: &[u8]) -> impl Iterator<Item = u64> {
    let begins = |at: &usize| line[*at].is_ascii_digit() && (*at == 0 || !line[at - 1].is_ascii_digit());
    (0..line.len()).filter(begins).map(|at| digits(&line[at..]))
}

/// Products of the two largest numbers of a line, and the largest one.
pub(super) fn largest(line: &[u8]) -> (u64, u64) {
    let mut numbers: Vec<u64> = numbers(line).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    let at = |place: usize| numbers.get(place).copied().unwrap_or(0);
    (at(0), at(0).saturating_mul(at(1)))
}

/// The largest number behind a word of a line, with at most two bytes and any blanks between; `None` without the word.
pub(super) fn behind(line: &[u8], word: &str) -> Option<u64> {
    let word = word.as_bytes();
    let places = (0..line.len()).filter(|at| line[*at..].starts_with(word)).map(|at| at + word.len());
    let rests = places.flat_map(|at| (at..=at + 2).map(|at| line.get(at..).unwrap_or_default()));
    rests.map(|rest| digits(rest.trim_ascii_start())).max()
}

/// The largest number before a word of a line, with any blanks between; 0 without one.
pub(super) fn before(line: &[u8], word: &str) -> u64 {
    let places = (0..line.len()).filter(|at| line[*at..].starts_with(word.as_bytes()));
    let number = |at: usize| {
        let line = line[..at].trim_ascii_end();
        digits(&line[line.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |before| before + 1)..])
    };
    places.map(number).max().unwrap_or(0)
}

/// Cuts a text of one moment at each byte, flips every third bit, and changes it at random 2,000 times. A cut text never has more than the whole.
///
/// A flipped digit changes what the text itself tells, so that the sums of a damaged text are held against `most`: what the lines of that
/// very text may tell at most, each counted once, found without the reader by the words around its numbers.
pub(super) fn damage<R: Reader>(new: impl Fn() -> R, text: &[u8], most: impl Fn(&[u8]) -> Sums) {
    let whole = read(&new, text);
    assert!(!whole.entries.is_empty() || !whole.facts.is_empty());
    let assert_bound = |told: &Told, text: &[u8]| {
        let (sums, most) = (sums(told), most(text));
        assert!(sums.is_within(&most), "{sums:?} of {most:?} in\n{}", string(text));
    };
    assert_bound(&whole, text);
    let is_one = whole.texts == 1;
    for end in 0..text.len() {
        let cut = read(&new, &text[..end]);
        let is_below = sums(&cut).is_within(&sums(&whole));
        assert!(!is_one || is_below && cut.facts.len() <= whole.facts.len() + 1, "cut at {end}: {:?}", sums(&cut));
        let ends_in_line = end > 0 && text[end - 1] != b'\n';
        let is_told = cut.troubles.iter().any(|trouble| matches!(trouble, Trouble::Cut(_)));
        assert!(!ends_in_line || is_told, "cut at {end}");
        assert!(read(&new, &text[end..]).entries.len() <= text.len());
    }
    let mut damaged = text.to_vec();
    for bit in (0..text.len() * 8).step_by(3) {
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_bound(&read(&new, &damaged), &damaged);
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
    let mut random = Random(1);
    for _ in 0..2000 {
        let mutated = random.mutated(text);
        let told = read(&new, &mutated);
        let lines = mutated.split(|byte| *byte == b'\n').count();
        assert!(told.entries.len() <= lines, "{}", string(&mutated));
        assert_bound(&told, &mutated);
    }
}

/// Seeded numbers (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }

    fn span(&mut self, len: usize) -> Range<usize> {
        let begin = self.below(len + 1);
        begin..(begin + self.below(40)).min(len)
    }

    /// The text with a few parts removed, repeated, moved or overwritten.
    pub(super) fn mutated(&mut self, text: &[u8]) -> Vec<u8> {
        const WORDS: [&[u8]; 8] =
            [b"\n", b" ", b"99999999999999999999", b"-1", b"9223372036854775807", b"[", b"0x", b"\xff\0"];
        let mut text = text.to_vec();
        for _ in 0..=self.below(4) {
            let (from, to) = (self.span(text.len()), self.below(text.len() + 1));
            match self.below(4) {
                0 => drop(text.drain(from)),
                1 => drop(text.splice(to..to, text[from].to_vec())),
                2 => drop(text.splice(from, WORDS[self.below(WORDS.len())].to_vec())),
                _ => {
                    if let Some(byte) = text.get_mut(to) {
                        *byte = self.below(256) as u8;
                    }
                }
            }
        }
        text
    }
}
