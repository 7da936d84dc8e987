//! Parts of the kernel's memory: a section's part by its name and flags, and bytes in each.

use object::elf::{SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS, SectionFlags};

/// Part of memory that a section becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Code.
    Text,
    /// Data that no code changes once the kernel runs.
    ReadOnly,
    /// Data with values.
    Data,
    /// Data without values: zeros, which no file has.
    Bss,
}

/// Bytes of functions and objects in each part of memory. Bytes of `init`, which the kernel gives back once it has started, are in
/// their part and apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartSizes {
    /// Bytes of code.
    pub text: u64,
    /// Bytes of data that is only read.
    pub rodata: u64,
    /// Bytes of data with values.
    pub data: u64,
    /// Bytes of zeros.
    pub bss: u64,
    /// Bytes of code for the start alone.
    pub init_text: u64,
    /// Bytes of read-only data for the start alone.
    pub init_rodata: u64,
    /// Bytes of data for the start alone.
    pub init_data: u64,
    /// Bytes of zeros for the start alone.
    pub init_bss: u64,
}

impl PartSizes {
    /// Bytes of all parts.
    pub fn total(&self) -> u64 {
        [self.text, self.rodata, self.data, self.bss].into_iter().fold(0, u64::saturating_add)
    }

    /// Bytes for the start alone, of all parts.
    pub fn init(&self) -> u64 {
        [self.init_text, self.init_rodata, self.init_data, self.init_bss].into_iter().fold(0, u64::saturating_add)
    }

    /// Adds the bytes of a symbol.
    pub(crate) fn add_symbol(&mut self, place: SectionPart, bytes: u64) {
        let (all, init) = match place.part {
            Part::Text => (&mut self.text, &mut self.init_text),
            Part::ReadOnly => (&mut self.rodata, &mut self.init_rodata),
            Part::Data => (&mut self.data, &mut self.init_data),
            Part::Bss => (&mut self.bss, &mut self.init_bss),
        };
        *all = all.saturating_add(bytes);
        if place.is_init {
            *init = init.saturating_add(bytes);
        }
    }

    /// Adds other bytes.
    pub fn add(&mut self, other: &PartSizes) {
        let PartSizes { text, rodata, data, bss, init_text, init_rodata, init_data, init_bss } = self;
        for (sum, more) in [
            (text, other.text),
            (rodata, other.rodata),
            (data, other.data),
            (bss, other.bss),
            (init_text, other.init_text),
            (init_rodata, other.init_rodata),
            (init_data, other.init_data),
            (init_bss, other.init_bss),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Part of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectionPart {
    /// Part of memory.
    pub(crate) part: Part,
    /// The kernel gives it back once it has started.
    pub(crate) is_init: bool,
}

impl SectionPart {
    /// Part of a section, by its name first: a linked kernel keeps read-only data in sections that can be written, because it makes
    /// them read-only itself.
    pub(crate) fn of(name: &[u8], kind: u32, flags: u64) -> SectionPart {
        let has = |flag: SectionFlags| flags & flag.0 != 0;
        let read_only = [&b".rodata"[..], b".data..ro_after_init", b".data.rel.ro"];
        let part = if has(SHF_EXECINSTR) {
            Part::Text
        } else if kind == SHT_NOBITS.0 {
            Part::Bss
        } else if has(SHF_ALLOC) && has(SHF_WRITE) && !read_only.iter().any(|start| name.starts_with(start)) {
            Part::Data
        } else {
            Part::ReadOnly
        };
        SectionPart { part, is_init: is_init(name) }
    }

    /// Part of an object that the linker gives a place: zeros.
    pub(crate) const COMMON: SectionPart = SectionPart { part: Part::Bss, is_init: false };
}

/// True for sections such as `.init.text`, `.initcall6.init`, `.con_initcall.init`, and those of older kernels.
fn is_init(name: &[u8]) -> bool {
    let starts = [&b".init."[..], b".initcall", b".meminit.", b".cpuinit.", b".devinit."];
    starts.iter().any(|start| name.starts_with(start)) || name.ends_with(b".init")
}

#[cfg(test)]
mod tests {
    use object::elf::SHT_PROGBITS;

    use super::*;

    #[test]
    fn a_section_is_in_the_part_that_it_becomes() {
        let (write, exec) = (SHF_ALLOC | SHF_WRITE, SHF_ALLOC | SHF_EXECINSTR);
        for (name, kind, flags, part, is_init) in [
            (&b".text"[..], SHT_PROGBITS, exec, Part::Text, false),
            (b".init.text", SHT_PROGBITS, exec, Part::Text, true),
            (b".text.unlikely", SHT_PROGBITS, exec, Part::Text, false),
            // As an image has it, and as objects have it.
            (b".rodata", SHT_PROGBITS, write, Part::ReadOnly, false),
            (b".data..ro_after_init", SHT_PROGBITS, write, Part::ReadOnly, false),
            (b"__param", SHT_PROGBITS, SHF_ALLOC, Part::ReadOnly, false),
            (b".init.rodata", SHT_PROGBITS, SHF_ALLOC, Part::ReadOnly, true),
            (b".data..percpu", SHT_PROGBITS, write, Part::Data, false),
            (b".initcall6.init", SHT_PROGBITS, write, Part::Data, true),
            (b".x86_cpu_dev.init", SHT_PROGBITS, write, Part::Data, true),
            (b".initial", SHT_PROGBITS, write, Part::Data, false),
            (b".bss..page_aligned", SHT_NOBITS, write, Part::Bss, false),
            (b".init.bss", SHT_NOBITS, write, Part::Bss, true),
        ] {
            let of = SectionPart::of(name, kind.0, flags.0);
            assert_eq!(of, SectionPart { part, is_init }, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn sums_end_at_the_greatest_number() {
        let mut sizes = PartSizes { text: u64::MAX, ..PartSizes::default() };
        sizes.add(&PartSizes { text: 1, data: 2, init_data: 2, ..PartSizes::default() });
        assert_eq!((sizes.total(), sizes.init()), (u64::MAX, 2));
    }
}
