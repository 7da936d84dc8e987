//! A system call that a filter lets through, and the conditions on its arguments.
#![cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]

use libc::c_long;

/// A system call that is allowed when all of its conditions hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) number: u32,
    pub(crate) when: &'static [When],
}

/// Condition on an argument, which is counted from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// Its low half is one of these numbers.
    OneOf(u32, &'static [u32]),
    /// It has all of these bits.
    Has(u32, u32),
    /// It has none of these bits.
    Lacks(u32, u32),
    /// It is no address.
    Null(u32),
    /// It is the id of this process.
    Own(u32),
}

/// `clone3`, which is refused with an error of its own.
pub(crate) const CLONE3: u32 = number(libc::SYS_clone3);

pub(crate) const fn number(number: c_long) -> u32 {
    number as u32
}

pub(crate) const fn call(of: c_long) -> Call {
    Call { number: number(of), when: &[] }
}

pub(crate) const fn call_when(of: c_long, when: &'static [When]) -> Call {
    Call { number: number(of), when }
}

/// `PROT_EXEC`.
pub(crate) const EXECUTABLE: u32 = 4;
/// `CLONE_VM`, `CLONE_SIGHAND` and `CLONE_THREAD`: a thread, no process.
pub(crate) const THREAD: u32 = 0x100 | 0x800 | 0x1_0000;
/// `CLONE_NEWNS` and the other namespaces.
pub(crate) const NAMESPACES: u32 = 0x7e02_0000;
/// `F_DUPFD`, `F_GETFD`, `F_SETFD`, `F_GETFL`, `F_SETFL` and `F_DUPFD_CLOEXEC`: no owner of signals, no locks.
pub(crate) const DESCRIPTORS: &[u32] = &[0, 1, 2, 3, 4, 1030];
/// `PR_SET_NAME`, `PR_GET_NAME`, and `PR_SET_VMA`, by which the C libraries name memory.
pub(crate) const NAMES: &[u32] = &[15, 16, 0x5356_4d41];
/// `TCGETS`, `TIOCGWINSZ`, `FIONREAD`, `FIONBIO`, `FIOCLEX`, and `TCGETS2`.
pub(crate) const ASKS_TERMINAL: &[When] = &[When::OneOf(1, &[0x5401, 0x5413, 0x541b, 0x5421, 0x5451, 0x802c_542a])];
