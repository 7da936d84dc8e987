//! Modules as the recorder saw them: build-id, path of the module's file, addresses of its sections.
//!
//! The text is hostile: lines of any length, names of any bytes, modules that come twice.

use kmemtrace_abi::kernel::notes;
use kmemtrace_abi::target::Endian;
use kmemtrace_abi::text::cut::cut;

/// Largest number of modules that are read, those that come twice included; machines have some hundreds.
const MAX_MODULES: usize = 1 << 16;
/// Largest number of sections of all of them together.
const MAX_SECTIONS: usize = 1 << 18;
/// Largest length of a build-id that is taken.
const MAX_BUILD_ID: usize = 64;

/// Facts about a loaded module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleInfo {
    /// Name as the kernel has it (`_` for `-`), any bytes.
    pub name: Vec<u8>,
    /// Build-id of its file.
    pub build_id: Option<Vec<u8>>,
    /// Path below the kernel's modules without suffix, as `fs/ext4/ext4`, any bytes.
    pub path: Option<Vec<u8>>,
    /// Executable sections and their addresses, as `.text.unlikely`; none at address 0, which stands for a hidden one.
    pub sections: Vec<(Vec<u8>, u64)>,
}

impl ModuleInfo {
    /// Modules of a text with lines `NAME BUILDID PATH SECTION=0xADDRESS…`, in the order of the lines; `-` is what is not known.
    /// A module that was loaded twice comes twice, with other addresses. Lines without these three words are skipped, and sections
    /// that make no sense are.
    pub fn parse(text: &[u8]) -> Vec<ModuleInfo> {
        let mut sections = MAX_SECTIONS;
        let lines = text.split(|&b| b == b'\n').filter_map(|line| ModuleInfo::of_line(line, &mut sections));
        lines.take(MAX_MODULES).collect()
    }

    /// Module of a line, with at most `left` sections, which are taken off.
    fn of_line(line: &[u8], left: &mut usize) -> Option<ModuleInfo> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let name = words.next().filter(|&name| name != b"-")?;
        let build_id = words.next()?;
        let path = words.next()?;
        let sections: Vec<(Vec<u8>, u64)> = words.filter_map(section).take(*left).collect();
        *left = left.saturating_sub(sections.len());
        Some(ModuleInfo {
            name: cut(name).to_vec(),
            build_id: bytes_of_hex(build_id),
            path: (path != b"-").then(|| cut(path).to_vec()),
            sections,
        })
    }
}

/// `SECTION=0xADDRESS`; the name may have a `=`.
fn section(word: &[u8]) -> Option<(Vec<u8>, u64)> {
    let equals = word.iter().rposition(|&b| b == b'=')?;
    let (name, address) = (word.get(..equals)?, word.get(equals..)?.get(1..)?);
    let digits = address.strip_prefix(b"0x")?;
    // The parser of numbers takes a sign.
    if name.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let address = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (address != 0).then(|| (cut(name).to_vec(), address))
}

/// Largest distance of a call-site from the start of the section `.init.text` that it is in, in bytes: no module has as much code
/// for its initialisation.
const MAX_INIT_BYTES: u64 = 1 << 20;

/// Distance of a call-site from the start of the section `.init.text` of a module; `None` where no load of the module has one that
/// may hold the call-site.
pub(crate) fn offset_in_init(modules: &[ModuleInfo], module: &[u8], call_site: u64) -> Option<u64> {
    let of_name = modules.iter().filter(|info| info.name == module).flat_map(|info| &info.sections);
    let starts = of_name.filter(|(section, _)| section == b".init.text").map(|(_, start)| *start);
    let offsets = starts.filter_map(|start| call_site.checked_sub(start));
    offsets.filter(|offset| (1..=MAX_INIT_BYTES).contains(offset)).min()
}

/// Bytes of hexadecimal digits, two a byte; `None` for other text and for no digits.
fn bytes_of_hex(text: &[u8]) -> Option<Vec<u8>> {
    if text.is_empty() || text.len() > 2 * MAX_BUILD_ID || !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |b: u8| char::from(b).to_digit(16).map(|n| n as u8);
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    text.chunks_exact(2).map(byte).collect()
}

/// Build-id in ELF notes, as a recording keeps those of the kernel (`Metadata::notes`).
pub fn build_id_of_notes(notes: &[u8], endian: Endian) -> Option<Vec<u8>> {
    notes::build_id(notes, endian).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_have_build_id_path_and_sections() {
        let text = b"ext4 0a1Bff fs/ext4/ext4 .text=0xffffffffc0400000 .init.text=0xffffffffc0500000\n\
            dm_mod - drivers/md/dm-mod\n\
            odd - -  a=b=0x10\n\
            ext4 0a1bff fs/ext4/ext4 .text=0xffffffffc0700000";
        let modules = ModuleInfo::parse(text);
        let names: Vec<&[u8]> = modules.iter().map(|module| &module.name[..]).collect();
        assert_eq!(names, [&b"ext4"[..], b"dm_mod", b"odd", b"ext4"]);
        assert_eq!(modules[0].build_id.as_deref(), Some(&[0x0a, 0x1b, 0xff][..]));
        assert_eq!(modules[0].path.as_deref(), Some(&b"fs/ext4/ext4"[..]));
        let sections = [(b".text".to_vec(), 0xffff_ffff_c040_0000), (b".init.text".to_vec(), 0xffff_ffff_c050_0000)];
        assert_eq!(modules[0].sections, sections);
        assert_eq!((&modules[1].build_id, modules[1].path.as_deref()), (&None, Some(&b"drivers/md/dm-mod"[..])));
        assert_eq!((&modules[2].path, &modules[2].sections), (&None, &vec![(b"a=b".to_vec(), 16)]));
        assert_eq!(modules[3].sections[0].1, 0xffff_ffff_c070_0000);
    }

    #[test]
    fn offsets_go_by_the_load_whose_section_is_nearest() {
        let modules = ModuleInfo::parse(
            b"m - - .init.text=0x1000\nn - - .init.text=0x1fff\nm - - .init.text=0x2000 .text=0x2010\n",
        );
        let offset = |site| offset_in_init(&modules, b"m", site);
        assert_eq!(
            [offset(0x1019), offset(0x2019), offset(0x1000), offset(0xfff)],
            [Some(0x19), Some(0x19), None, None]
        );
        assert_eq!((offset(0x20_0000), offset_in_init(&modules, b"other", 0x1019)), (None, None));
    }

    #[test]
    fn text_that_makes_no_sense_is_left_out() {
        for line in [&b""[..], b" ", b"ext4", b"ext4 -", b"- - -", b"\n\n"] {
            assert_eq!(ModuleInfo::parse(line), [], "{}", String::from_utf8_lossy(line));
        }
        let words = b"m abc x .a=0x0 .b=12 .c .d= =0x1 .e=0x .f=0x+1 .g=0xx .h=0x10000000000000000 .i=0xff";
        let modules = ModuleInfo::parse(words);
        assert_eq!((modules.len(), &modules[0].build_id), (1, &None), "an odd number of digits");
        assert_eq!(modules[0].sections, [(b".i".to_vec(), 255)]);
        for id in ["0g", "zz", &"ab".repeat(MAX_BUILD_ID + 1)] {
            assert_eq!(ModuleInfo::parse(format!("m {id} -").as_bytes())[0].build_id, None, "{id}");
        }
        assert_eq!(ModuleInfo::parse(b"\xff\xfe 00 \xff/\x01")[0].path.as_deref(), Some(&b"\xff/\x01"[..]));
    }
}
