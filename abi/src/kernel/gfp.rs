//! Names of gfp flags: the kernel's own, from the `print fmt` of an event that has such flags.
//!
//! The bits differ from kernel to kernel, and so do the names. Both are in the text of an event's format, as the table that the
//! kernel itself prints flags by.

mod constant;

use std::fmt::{self, Display};

use crate::kernel::format::EventFormat;

/// Events with gfp flags, all with the same table; the first one that has names is taken.
const EVENTS: [(&str, &str); 8] = [
    ("kmem", "kmalloc"),
    ("kmem", "kmem_cache_alloc"),
    ("kmem", "mm_page_alloc"),
    ("kmem", "kmalloc_node"),
    ("kmem", "kmem_cache_alloc_node"),
    ("vmscan", "mm_vmscan_direct_reclaim_begin"),
    ("vmscan", "mm_vmscan_memcg_reclaim_begin"),
    ("percpu", "percpu_alloc_percpu"),
];
/// Largest number of entries in a table. Kernels have up to 45.
const MAX_ENTRIES: usize = 256;
/// Largest length of a name, in bytes. Kernels have up to 22.
const MAX_NAME_BYTES: usize = 64;

/// Flags of a table, and the name that they have together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FlagsName {
    mask: u64,
    /// Letters, digits and `_` only.
    name: String,
}

/// Names of the gfp flags of one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GfpNames {
    /// In the kernel's order: names of several flags come before names of one.
    entries: Vec<FlagsName>,
    /// Name of no flags at all.
    none: String,
}

impl GfpNames {
    /// The names in the formats of a kernel's events, each with its system; `None` where no format has names.
    pub(crate) fn of_formats(formats: &[(String, String)]) -> Option<GfpNames> {
        let is_of = |text: &str, event: &str| {
            let name = text.lines().find_map(|line| line.trim().strip_prefix("name:"));
            name.is_some_and(|name| name.trim() == event)
        };
        EVENTS.iter().find_map(|(of, event)| {
            let mut texts = formats.iter().filter(|(system, text)| system == of && is_of(text, event));
            texts.find_map(|(_, text)| GfpNames::of_format(text))
        })
    }

    /// The names in the text of an event's `format` file; `None` where it has no names of gfp flags.
    ///
    /// Entries whose flags are no constants are left out: some kernels have names of an enum there.
    pub fn of_format(text: &str) -> Option<GfpNames> {
        let bytes = EventFormat::parse(text).ok()?.field("gfp_flags")?.size;
        let field_mask =
            u64::MAX.checked_shr(u64::BITS.saturating_sub(u32::try_from(bytes).ok()?.saturating_mul(8)))?;
        let print = text.split_once("\nprint fmt:")?.1;
        let (_, after) = print.split_once("__print_flags(REC->gfp_flags,")?;
        let mut rest = string(after)?.1.trim_start();
        let mut entries = Vec::new();
        for _ in 0..MAX_ENTRIES {
            let Some((entry, behind)) = rest.strip_prefix(',').map(str::trim_start).and_then(braces) else { break };
            entries.extend(FlagsName::parse(entry, field_mask));
            rest = behind.trim_start();
        }
        let none = rest.strip_prefix(')').and_then(|rest| string(rest.trim_start().strip_prefix(':')?));
        let none = none.map_or("none", |(name, _)| name).to_owned();
        (!entries.is_empty()).then_some(GfpNames { entries, none })
    }

    /// `flags` as the kernel prints them: `GFP_KERNEL|__GFP_ZERO`, flags without a name as one hexadecimal number after the
    /// others, and no flags as `none`.
    pub fn text(&self, flags: u64) -> impl Display {
        Shown { names: self, flags }
    }

    /// The flags that have this name.
    pub fn flags(&self, name: &str) -> Option<u64> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| entry.mask)
    }

    /// The flags each of which says that the caller can do without the memory, or then asks for less: `__GFP_NOWARN` and
    /// `__GFP_NORETRY`. `None` where the kernel names neither.
    pub fn fallback_flags(&self) -> Option<u64> {
        // Old kernels print some flags without the underscores.
        let flag = |name: &str| self.flags(name).or_else(|| self.flags(name.trim_start_matches('_')));
        ["__GFP_NOWARN", "__GFP_NORETRY"].into_iter().filter_map(flag).reduce(|all, flag| all | flag)
    }
}

/// Flags to be printed.
struct Shown<'a> {
    names: &'a GfpNames,
    flags: u64,
}

impl Display for Shown<'_> {
    /// Prints as the kernel's `trace_print_flags_seq` does.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.flags;
        let mut delimiter = "";
        for FlagsName { mask, name } in &self.names.entries {
            if left == 0 {
                break;
            }
            if left & mask == *mask {
                write!(out, "{delimiter}{name}")?;
                left &= !mask;
                delimiter = "|";
            }
        }
        match (left, delimiter) {
            (0, "") => out.write_str(&self.names.none),
            (0, _) => Ok(()),
            _ => write!(out, "{delimiter}{left:#x}"),
        }
    }
}

impl FlagsName {
    /// Parses `EXPRESSION, "NAME"`; `field_mask` has the bits of the field that holds such flags.
    fn parse(text: &str, field_mask: u64) -> Option<FlagsName> {
        let (expression, name) = text.split_once(',')?;
        let (name, _) = string(name)?;
        let mask = constant::evaluate(expression)? & field_mask;
        Some(FlagsName { mask, name: name.to_owned() })
    }
}

/// A string of letters, digits, `_` and the delimiter `|` at the start of a text, and the text behind it.
fn string(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.trim_start().strip_prefix('"')?.split_once('"')?;
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'|'));
    (is_plain && (1..=MAX_NAME_BYTES).contains(&name.len())).then_some((name, rest))
}

/// The text between a brace at the start and the next closing one, and the text behind that.
fn braces(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('{')?.split_once('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A format with this declaration of the flags, and this text in place of the flags.
    fn format(declaration: &str, flags: &str) -> String {
        format!(
            "name: kmalloc\nID: 5\nformat:\n\tfield:{declaration};\tsigned:0;\n\n\
             print fmt: \"gfp_flags=%s\", REC->ptr, {flags}, REC->node\n"
        )
    }

    const LONG: &str = "unsigned long gfp_flags;\toffset:40;\tsize:8";

    fn table(entries: &str) -> Option<GfpNames> {
        let flags = format!("(REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", {entries} ) : \"none\"");
        GfpNames::of_format(&format(LONG, &flags))
    }

    #[test]
    fn flags_are_printed_as_the_kernel_prints_them() {
        let names = table(
            "{( unsigned long)((( gfp_t)(0x400u|0x800u)) | (( gfp_t)0x40u) | (( gfp_t)0x80u)), \"GFP_KERNEL\"}, \
             {( unsigned long)(( gfp_t)(0x400u|0x800u)), \"__GFP_RECLAIM\"}, \
             {( unsigned long)(( gfp_t)((((1UL))) << (8))), \"__GFP_ZERO\"}, \
             {( unsigned long)(( gfp_t)0x40u), \"__GFP_IO\"}",
        )
        .unwrap();
        for (flags, text) in [
            (0, "none"),
            (0xcc0, "GFP_KERNEL"),
            (0xdc0, "GFP_KERNEL|__GFP_ZERO"),
            (0xc40, "__GFP_RECLAIM|__GFP_IO"),
            // Half of a name's flags is not the name.
            (0x440, "__GFP_IO|0x400"),
            (0x2000, "0x2000"),
            (0xdc0 | 1 << 63, "GFP_KERNEL|__GFP_ZERO|0x8000000000000000"),
        ] {
            assert_eq!(names.text(flags).to_string(), text);
        }
        assert_eq!((names.flags("GFP_KERNEL"), names.flags("__GFP_ZERO")), (Some(0xcc0), Some(0x100)));
        assert_eq!((names.flags("none"), names.flags("")), (None, None));
    }

    #[test]
    fn an_entry_without_flags_takes_part_as_in_the_kernel() {
        let names = table("{( gfp_t)0, \"__GFP_NOLOCKDEP\"}, {1, \"A\"}").unwrap();
        assert_eq!(names.text(1).to_string(), "__GFP_NOLOCKDEP|A");
        assert_eq!(names.text(0).to_string(), "none");
    }

    #[test]
    fn an_entry_that_is_no_constant_is_left_out() {
        let names = table(
            "{( unsigned long)(( gfp_t)((((1UL))) << (___GFP_IO_BIT))), \"__GFP_IO\"}, {2, \"__GFP_FS\"}, \
             {4, name}, {8, \"a\\\"b\"}, {16, \"\u{1b}[2J\"}, {16}, {}, {32, \"\"}, { 0, ((void *)0) }",
        );
        assert_eq!(names.map(|names| names.text(0xff).to_string()).as_deref(), Some("__GFP_FS|0xfd"));
        assert_eq!(table("{( unsigned long)(___GFP_IO_BIT), \"__GFP_IO\"}"), None);
    }

    #[test]
    fn flags_have_the_size_of_their_field() {
        let int = "gfp_t gfp_flags;\toffset:40;\tsize:4";
        for (declaration, mask) in [(int, 0xffff_fffe), (LONG, u64::MAX - 1)] {
            let text = format(declaration, "__print_flags(REC->gfp_flags, \"|\", {~1UL, \"ALL\"} )");
            assert_eq!(GfpNames::of_format(&text).and_then(|names| names.flags("ALL")), Some(mask));
        }
    }

    #[test]
    fn no_flags_have_the_name_that_the_format_says() {
        let text = format(LONG, "(REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", {1, \"A\"}) : \"GFP_NOWAIT\"");
        assert_eq!(GfpNames::of_format(&text).map(|names| names.text(0).to_string()).as_deref(), Some("GFP_NOWAIT"));
    }

    #[test]
    fn the_first_event_that_has_names_is_taken() {
        let named = |event: &str, system: &str, name: &str| {
            let flags = format!("__print_flags(REC->gfp_flags, \"|\", {{1, \"{name}\"}} )");
            (system.to_owned(), format(LONG, &flags).replacen("kmalloc", event, 1))
        };
        let without = ("kmem".to_owned(), format(LONG, "REC->gfp_flags"));
        let formats = [named("mm_page_alloc", "kmem", "PAGE"), named("kmalloc", "sched", "OTHER"), without];
        let flag = |formats: &[(String, String)]| GfpNames::of_formats(formats).map(|names| names.text(1).to_string());
        assert_eq!(flag(&formats).as_deref(), Some("PAGE"));
        let with = [&formats[..], &[named("kmem_cache_alloc", "kmem", "CACHE")]].concat();
        assert_eq!(flag(&with).as_deref(), Some("CACHE"));
        assert_eq!(flag(&formats[1..]), None);
    }

    #[test]
    fn hostile_tables_are_bounded() {
        let many = vec!["{1, \"A\"}"; 100_000].join(", ");
        assert_eq!(table(&many).map(|names| names.entries.len()), Some(MAX_ENTRIES));
        let long = format!("{{1, \"{}\"}}, {{{}1, \"B\"}}, {{2, \"C\"}}", "A".repeat(65), "(".repeat(1_000_000));
        assert_eq!(table(&long).map(|names| names.text(3).to_string()).as_deref(), Some("C|0x1"));
        for entries in ["", "{", "{1, \"A\"", "1, \"A\"}", "{1, \"A", "\"", "{{1, \"A\"}}"] {
            assert_eq!(table(entries), None, "{entries}");
        }
        for text in ["", "print fmt:", "name: x\nID: 3\nprint fmt: __print_flags(REC->gfp_flags,"] {
            assert_eq!(GfpNames::of_format(text), None);
        }
        let wide =
            format("char gfp_flags[9];\toffset:40;\tsize:9", "__print_flags(REC->gfp_flags, \"|\", {1, \"A\"} )");
        assert_eq!(GfpNames::of_format(&wide).and_then(|names| names.flags("A")), Some(1));
        let empty =
            format("char gfp_flags[];\toffset:40;\tsize:0", "__print_flags(REC->gfp_flags, \"|\", {1, \"A\"} )");
        assert_eq!(GfpNames::of_format(&empty), None);
    }
}
