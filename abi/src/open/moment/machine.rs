//! What lines around a text tell of the machine: the kernel's release and the architecture.
//!
//! ```text
//! Linux version 6.12.0-amd64 (…) (x86_64-linux-gnu-gcc-12 (Debian …) …) #1 SMP …             the log's first line
//! Linux host 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC … x86_64 GNU/Linux                        uname -a
//! CPU: 0 PID: 77 Comm: example Not tainted 6.1.0-18-amd64 #1 Debian 6.1.76-1                 a call trace
//! RIP: 0010:example_open+0x1c/0x40                                                           its registers
//!      RELEASE: 6.1.0-18-amd64                                                               crash
//!      MACHINE: x86_64  (2400 Mhz)
//! ```

use super::entry::{Fact, Out};
use super::numbers::{trimmed, words};
use crate::open::symbols::find;

/// What a line tells. Empty for nearly all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Told<'l> {
    /// Release, as `uname -r` has it.
    pub(super) kernel: Option<&'l [u8]>,
    /// Machine, as `uname -m` has it.
    pub(super) arch: Option<&'l [u8]>,
}

impl Told<'_> {
    /// Hands over what was told.
    pub(super) fn put(self, out: &mut dyn Out) {
        if let Some(release) = self.kernel {
            out.fact(Fact::Kernel(release));
        }
        if let Some(machine) = self.arch {
            out.fact(Fact::Arch(machine));
        }
    }
}

/// Words of `uname -m`. Kernels of 32 bits on ARM and MIPS have several words each, which no other line tells.
const MACHINES: [&[u8]; 13] = [
    b"x86_64",
    b"i386",
    b"i486",
    b"i586",
    b"i686",
    b"aarch64",
    b"armv7l",
    b"s390x",
    b"ppc64le",
    b"ppc64",
    b"ppc",
    b"riscv64",
    b"loongarch64",
];

/// Names of compilers' targets where they are other words, and the word of `uname -m`.
const TARGETS: [(&[u8], &[u8]); 4] =
    [(b"powerpc64le", b"ppc64le"), (b"powerpc64", b"ppc64"), (b"powerpc", b"ppc"), (b"arm64", b"aarch64")];

/// Lines of registers that the kernels of one architecture alone print, by their begins.
const REGISTERS: [(&[u8], &[u8]); 4] =
    [(b"RIP: ", b"x86_64"), (b"EIP: ", b"i686"), (b"Krnl PSW : ", b"s390x"), (b"pstate: ", b"aarch64")];

/// What a line tells of the machine.
pub(super) fn told(line: &[u8]) -> Told<'_> {
    let line = trimmed(line);
    match line.first() {
        Some(b'L') => of_version(line),
        Some(b'C') => Told { kernel: of_cpu(line), arch: None },
        Some(b'M') => Told { kernel: None, arch: line.strip_prefix(b"MACHINE: ").and_then(first_machine) },
        Some(b'R' | b'E' | b'K' | b'p') => of_registers(line),
        _ => Told::default(),
    }
}

fn of_registers(line: &[u8]) -> Told<'_> {
    if let Some(release) = line.strip_prefix(b"RELEASE: ") {
        return Told { kernel: words(release).next().filter(|release| is_release(release)), arch: None };
    }
    let arch = REGISTERS.iter().find(|(begin, _)| line.starts_with(begin)).map(|(_, machine)| *machine);
    Told { kernel: None, arch }
}

/// `Linux version …`, and the output of `uname -a`.
fn of_version(line: &[u8]) -> Told<'_> {
    let Some(text) = line.strip_prefix(b"Linux ") else { return Told::default() };
    let mut parts = text.split(|byte| *byte == b' ');
    let (Some(first), Some(release)) = (parts.next(), parts.next()) else { return Told::default() };
    if !is_release(release) {
        return Told::default();
    }
    if first == b"version" {
        return Told { kernel: Some(release), arch: of_compiler(text) };
    }
    match parts.next() {
        Some(number) if number.starts_with(b"#") => Told { kernel: Some(release), arch: last_machine(text) },
        _ => Told::default(),
    }
}

fn is_release(word: &[u8]) -> bool {
    word.first().is_some_and(u8::is_ascii_digit) && word.contains(&b'.')
}

fn machine(word: &[u8]) -> Option<&[u8]> {
    MACHINES.contains(&word).then_some(word)
}

fn first_machine(text: &[u8]) -> Option<&[u8]> {
    machine(words(text).next()?)
}

/// The last word of a machine: the version before it may hold any words, behind it is the name of the system.
fn last_machine(text: &[u8]) -> Option<&[u8]> {
    words(text).rev().find_map(machine)
}

/// `x86_64` of `(x86_64-linux-gnu-gcc-12 …`.
fn of_compiler(text: &[u8]) -> Option<&[u8]> {
    let compiler = words(text).find_map(|word| {
        let word = word.strip_prefix(b"(")?;
        (find(word, b"-linux-").is_some() && (find(word, b"gcc").is_some() || find(word, b"clang").is_some()))
            .then_some(word)
    })?;
    let target = compiler.split(|byte| *byte == b'-').next()?;
    let of_target = TARGETS.iter().find(|(name, _)| *name == target).map(|(_, machine)| *machine);
    of_target.or_else(|| machine(target))
}

/// The release in a line of a call trace, which stands before the number of the build.
fn of_cpu(line: &[u8]) -> Option<&[u8]> {
    let before = line.strip_prefix(b"CPU: ")?;
    let before = before.get(..find(before, b" #")?)?;
    before.rsplit(|byte| *byte == b' ').next().filter(|release| is_release(release))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_release_and_machine() {
        for (line, kernel, arch) in [
            ("Linux version 6.1.0-18-amd64 (debian) (gcc-12 (Debian 12.2.0) 12.2.0) #1", Some("6.1.0-18-amd64"), None),
            ("Linux version 6.12.0 (a@b) (x86_64-linux-gnu-gcc-12 (Debian) 12) #1 SMP", Some("6.12.0"), Some("x86_64")),
            ("Linux version 5.15.0 (a) (powerpc64le-linux-gnu-gcc 11) #1", Some("5.15.0"), Some("ppc64le")),
            ("Linux host 6.12.0 #1 SMP PREEMPT_DYNAMIC Debian 6.12-1 x86_64 GNU/Linux", Some("6.12.0"), Some("x86_64")),
            ("Linux localhost 4.19.1 #1 SMP PREEMPT Thu Nov 26 aarch64", Some("4.19.1"), Some("aarch64")),
            ("Linux x86_64 6.12.0 #1 SMP", Some("6.12.0"), Some("x86_64")),
            ("Linux host", None, None),
            ("Linux a 1.b c", None, None),
            ("CPU: 0 PID: 77 Comm: a #1 b Tainted: G           OE      6.1.0-18-amd64 #1 Debian", None, None),
            ("CPU: 3 UID: 0 PID: 1 Comm: example Not tainted 6.12.0 #1", Some("6.12.0"), None),
            ("RIP: 0010:example_open+0x1c/0x40", None, Some("x86_64")),
            ("pstate: 60400005 (nZCv daif +PAN -UAO)", None, Some("aarch64")),
            ("     RELEASE: 6.1.0-18-amd64", Some("6.1.0-18-amd64"), None),
            ("     MACHINE: x86_64  (2400 Mhz)", None, Some("x86_64")),
            ("MACHINE: bicycle", None, None),
        ] {
            let of = |word: Option<&'static str>| word.map(str::as_bytes);
            assert_eq!(told(line.as_bytes()), Told { kernel: of(kernel), arch: of(arch) }, "{line}");
        }
    }
}
