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

/// Sums of the figures of all entries.
fn sums(told: &Told) -> [u64; 4] {
    let of = |figure: fn(&Owned) -> Option<u64>| told.entries.iter().filter_map(figure).fold(0u64, u64::saturating_add);
    [of(|entry| entry.objects), of(|entry| entry.allocated), of(|entry| entry.wasted), of(|entry| entry.pages)]
}

/// Cuts a text of one moment at each byte, flips each bit, and changes it at random 10,000 times. A cut text never has more than the whole.
pub(super) fn damage<R: Reader>(new: impl Fn() -> R, text: &[u8]) {
    let whole = read(&new, text);
    assert!(!whole.entries.is_empty() || !whole.facts.is_empty());
    let is_one = whole.texts == 1;
    for end in 0..text.len() {
        let cut = read(&new, &text[..end]);
        let is_below = sums(&cut).iter().zip(sums(&whole)).all(|(cut, whole)| *cut <= whole);
        assert!(!is_one || is_below && cut.facts.len() <= whole.facts.len() + 1, "cut at {end}: {:?}", sums(&cut));
        let ends_in_line = end > 0 && text[end - 1] != b'\n';
        let is_told = cut.troubles.iter().any(|trouble| matches!(trouble, Trouble::Cut(_)));
        assert!(!ends_in_line || is_told, "cut at {end}");
        assert!(read(&new, &text[end..]).entries.len() <= text.len());
    }
    let mut damaged = text.to_vec();
    for bit in 0..text.len() * 8 {
        damaged[bit / 8] ^= 1 << (bit % 8);
        read(&new, &damaged);
        damaged[bit / 8] ^= 1 << (bit % 8);
    }
    let mut random = Random(1);
    for _ in 0..10_000 {
        let mutated = random.mutated(text);
        let told = read(&new, &mutated);
        let lines = mutated.split(|byte| *byte == b'\n').count();
        assert!(told.entries.len() <= lines, "{}", string(&mutated));
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
