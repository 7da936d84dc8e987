//! Addresses at which the kernel puts modules.

use super::kallsyms::Symbolizer;

/// Addresses of modules on x86-64: "module mapping space" in Documentation/arch/x86/x86_64/mm.rst (Linux 3.10 to 7.3). With KASLR the
/// kernel's image may lie in the first 512 MiB, and modules begin after these.
const X86_64: (u64, u64) = (0xffff_ffff_a000_0000, 0xffff_ffff_ff00_0000);
/// Distance from the modules that a trace lists at which another one may lie, on 64 bits. arm64, riscv64 and s390x have 2 GiB for all
/// modules (`MODULES_VSIZE`, `MODULES_LEN`), because their code must reach each other and the kernel.
const REACH_64: u64 = 2 << 30;
/// The same on 32 bits: i386 takes modules from the vmalloc area (128 MiB), ARM from 16 MiB below the kernel or from the vmalloc area.
const REACH_32: u64 = 128 << 20;

/// Addresses at which the kernel puts modules: both ends of the area, and of the kernel's image, which is not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModuleArea {
    area: (u64, u64),
    image: (u64, u64),
}

impl ModuleArea {
    /// Area of a machine, by its name as `uname -m` prints it. On x86-64 it is fixed. Elsewhere it depends on the version and on the
    /// boot, and is derived: around the modules that the trace lists. `None` where it lists none.
    pub(crate) fn of(arch: Option<&str>, word_bytes: Option<u8>, symbols: &Symbolizer) -> Option<ModuleArea> {
        let area = match arch {
            Some("x86_64") => X86_64,
            _ => {
                let (start, end) = symbols.range_of_modules()?;
                let reach = if word_bytes == Some(4) { REACH_32 } else { REACH_64 };
                (start.saturating_sub(reach), end.saturating_add(reach))
            }
        };
        let ends = symbols.kernel_symbol(b"_text").zip(symbols.kernel_symbol(b"_end"));
        Some(ModuleArea { area, image: ends.unwrap_or_default() })
    }

    /// True for the return address of a call in the area.
    pub(crate) fn holds(self, call_site: u64) -> bool {
        let is_in = |(start, end): (u64, u64)| start < call_site && call_site <= end;
        is_in(self.area) && !is_in(self.image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x86_64_has_its_area_but_for_the_image() {
        let moved = b"ffffffffa1000000 T _text\nffffffffa3000000 B _end\n".to_vec();
        let area = ModuleArea::of(Some("x86_64"), Some(8), &Symbolizer::new(moved, b"")).unwrap();
        assert!(area.holds(0xffff_ffff_c040_0019) && !area.holds(0xffff_ffff_a200_0000));
        assert!(!area.holds(0xffff_ffff_8100_0000) && !area.holds(0xffff_8880_0000_1000) && !area.holds(0));
    }

    #[test]
    fn other_machines_have_modules_near_each_other() {
        let near = |modules: &[u8], word_bytes| {
            ModuleArea::of(Some("s390x"), Some(word_bytes), &Symbolizer::new(Vec::new(), modules))
        };
        let modules = b"ext4 4096 0 - Live 0x000003ff80100000\n";
        let area = near(modules, 8).unwrap();
        assert!(area.holds(0x3ff_8050_0000) && area.holds(0x3ff_0150_0000) && !area.holds(0x100_0000));
        let area = near(b"ext4 4096 0 - Live 0xf8100000\n", 4).unwrap();
        assert!(area.holds(0xf900_0000) && !area.holds(0xc010_0000));
        assert_eq!(near(b"", 8), None);
    }
}
