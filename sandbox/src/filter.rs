//! The layer of seccomp: a filter, in the code of the classic Berkeley packet filter, that lets through the system calls of a list.
//!
//! The filter sees numbers and registers and no memory: it cannot look at a path.

/// No filter on other machines.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
pub(crate) fn install(_: crate::role::Role, _: bool) -> std::io::Result<()> {
    Err(std::io::Error::other("there is no list of system calls for this architecture"))
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
pub(crate) use with_list::install;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
mod with_list {
    use std::io;

    use rustix::io::Errno;

    use crate::call::{CLONE3, Call, When};
    use crate::calls;
    use crate::kernel::{self, Instruction};
    use crate::role::Role;

    /// `AUDIT_ARCH_*`: number of the machine, 64 bits, little endian.
    const MACHINE: u32 = 0xc000_0000
        | if cfg!(target_arch = "x86_64") {
            62
        } else if cfg!(target_arch = "aarch64") {
            183
        } else {
            243
        };
    /// Bit of the numbers of the x32 ABI, which x86-64 has beside its own.
    const X32: u32 = 0x4000_0000;

    /// Bytes in `struct seccomp_data`.
    const NUMBER: u32 = 0;
    const ARCHITECTURE: u32 = 4;
    const ARGUMENTS: u32 = 16;

    const LOAD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const JUMP_SET: u16 = 0x45;
    const AND: u16 = 0x54;
    const RETURN: u16 = 0x06;

    const ALLOW: u32 = 0x7fff_0000;
    const FAIL: u32 = 0x0005_0000;
    const KILL_PROCESS: u32 = 0x8000_0000;

    /// `SECCOMP_FILTER_FLAG_SPEC_ALLOW`: before Linux 5.16 a filter switches mitigations on that cost a third of the speed.
    const SPEC_ALLOW: u64 = 1 << 2;

    /// Installs the filter of a role. `kills`: a system call outside of the list ends the program, in place of failing with EPERM.
    pub(crate) fn install(role: Role, kills: bool) -> io::Result<()> {
        let refusal = if kills { KILL_PROCESS } else { failing(Errno::PERM) };
        let filter = program(&calls::of(role), refusal);
        match kernel::seccomp(&filter, SPEC_ALLOW) {
            // Before Linux 4.17 there is no such flag.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => kernel::seccomp(&filter, 0),
            installed => installed,
        }
    }

    fn failing(with: Errno) -> u32 {
        FAIL | with.raw_os_error().cast_unsigned()
    }

    fn program(calls: &[Call], refusal: u32) -> Vec<Instruction> {
        let mut code = Code(Vec::new());
        code.load(ARCHITECTURE);
        code.jump(JUMP_EQUAL, MACHINE, 1, 0);
        code.give(refusal);
        code.load(NUMBER);
        if cfg!(target_arch = "x86_64") {
            code.jump(JUMP_SET, X32, 0, 1);
            code.give(refusal);
        }
        for call in calls {
            let block = block(call, refusal);
            let len = u8::try_from(block.len()).unwrap_or(u8::MAX);
            code.jump(JUMP_EQUAL, call.number, 0, len);
            code.0.extend(block);
        }
        // The C libraries try it first, and take this error for a kernel without it: its flags are in memory, out of sight.
        code.jump(JUMP_EQUAL, CLONE3, 0, 1);
        code.give(failing(Errno::NOSYS));
        code.give(refusal);
        code.0
    }

    /// What a call of the list has to fulfil; each path through it returns.
    fn block(call: &Call, refusal: u32) -> Vec<Instruction> {
        let mut code = Code(Vec::new());
        for when in call.when {
            match *when {
                When::OneOf(argument, values) => code.one_of(argument, values, refusal),
                When::Own(argument) => code.one_of(argument, &[std::process::id()], refusal),
                When::Has(argument, bits) => {
                    code.load(low(argument));
                    code.0.push(Instruction { code: AND, if_true: 0, if_false: 0, value: bits });
                    code.jump(JUMP_EQUAL, bits, 1, 0);
                    code.give(refusal);
                }
                When::Lacks(argument, bits) => {
                    code.load(low(argument));
                    code.jump(JUMP_SET, bits, 0, 1);
                    code.give(refusal);
                }
                When::Null(argument) => {
                    for half in [low(argument), low(argument) + 4] {
                        code.load(half);
                        code.jump(JUMP_EQUAL, 0, 1, 0);
                        code.give(refusal);
                    }
                }
            }
        }
        code.give(ALLOW);
        code.0
    }

    /// Place of the low half of an argument; all machines of the list are little endian.
    fn low(argument: u32) -> u32 {
        ARGUMENTS + 8 * argument
    }

    struct Code(Vec<Instruction>);

    impl Code {
        fn load(&mut self, place: u32) {
            self.0.push(Instruction { code: LOAD, if_true: 0, if_false: 0, value: place });
        }

        fn jump(&mut self, code: u16, value: u32, if_true: u8, if_false: u8) {
            self.0.push(Instruction { code, if_true, if_false, value });
        }

        fn give(&mut self, value: u32) {
            self.0.push(Instruction { code: RETURN, if_true: 0, if_false: 0, value });
        }

        fn one_of(&mut self, argument: u32, values: &[u32], refusal: u32) {
            self.load(low(argument));
            for (at, value) in values.iter().enumerate() {
                let after = u8::try_from(values.len() - at).unwrap_or(u8::MAX);
                self.jump(JUMP_EQUAL, *value, after, 0);
            }
            self.give(refusal);
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// What the filter returns for a call of this machine.
        fn run(filter: &[Instruction], number: u32, arguments: [u64; 6]) -> u32 {
            let word = |place: u32| match place {
                NUMBER => number,
                ARCHITECTURE => MACHINE,
                _ => {
                    let argument = arguments[(place as usize - ARGUMENTS as usize) / 8];
                    if place.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
                }
            };
            let (mut at, mut sum) = (0, 0);
            loop {
                let Instruction { code, if_true, if_false, value } = filter[at];
                at += 1;
                let jump = |is_true: bool| usize::from(if is_true { if_true } else { if_false });
                match code {
                    LOAD => sum = word(value),
                    AND => sum &= value,
                    JUMP_EQUAL => at += jump(sum == value),
                    JUMP_SET => at += jump(sum & value != 0),
                    RETURN => return value,
                    other => panic!("code {other}"),
                }
            }
        }

        #[test]
        fn only_calls_of_the_list_are_let_through() {
            const REFUSED: u32 = 7;
            let filter = program(&calls::of(Role::Reader), REFUSED);
            let got = |number: libc::c_long, arguments| run(&filter, u32::try_from(number).unwrap(), arguments);
            let none = [0; 6];
            assert_eq!(got(libc::SYS_read, none), ALLOW);
            for number in [
                libc::SYS_execve,
                libc::SYS_execveat,
                libc::SYS_socket,
                libc::SYS_connect,
                libc::SYS_ptrace,
                libc::SYS_mount,
                libc::SYS_kill,
                libc::SYS_bpf,
                libc::SYS_io_uring_setup,
                libc::SYS_process_vm_readv,
                libc::SYS_fchmod,
                500,
            ] {
                assert_eq!(got(number, none), REFUSED, "{number}");
            }
            // A thread, a process, and a call that a tracer has replaced.
            assert_eq!(got(libc::SYS_clone, [0x3d_0f00, 0, 0, 0, 0, 0]), ALLOW);
            assert_eq!(got(libc::SYS_clone, [17, 0, 0, 0, 0, 0]), REFUSED);
            assert_eq!(got(libc::SYS_clone3, none), failing(Errno::NOSYS));
            assert_eq!(run(&filter, u32::MAX, none), REFUSED);
            // The size of a terminal, and a key pushed into its input.
            assert_eq!([0x5413, 0x5412].map(|asked| got(libc::SYS_ioctl, [1, asked, 0, 0, 0, 0])), [ALLOW, REFUSED]);
            // Memory that can be executed.
            assert_eq!([3, 5].map(|rights| got(libc::SYS_mprotect, [0, 4096, rights, 0, 0, 0])), [ALLOW, REFUSED]);
            // A limit that is asked for, and one that is set: also by an address without low bits.
            let limit = |new| got(libc::SYS_prlimit64, [0, 3, new, 0, 0, 0]);
            assert_eq!([limit(0), limit(8), limit(1 << 32)], [ALLOW, REFUSED, REFUSED]);
        }

        #[test]
        fn the_screen_may_do_more() {
            let set = [1, 0x5402, 0, 0, 0, 0];
            let of = |role| run(&program(&calls::of(role), 7), u32::try_from(libc::SYS_ioctl).unwrap(), set);
            assert_eq!([Role::Reader, Role::Screen, Role::Viewer].map(of), [7, ALLOW, ALLOW]);
        }

        #[test]
        fn a_viewer_changes_no_file_and_pushes_no_key() {
            let filter = program(&calls::of(Role::Viewer), 7);
            let got = |number: libc::c_long, arguments| run(&filter, u32::try_from(number).unwrap(), arguments);
            for number in
                [libc::SYS_unlinkat, libc::SYS_renameat2, libc::SYS_linkat, libc::SYS_ftruncate, libc::SYS_execve]
            {
                assert_eq!(got(number, [0; 6]), 7, "{number}");
            }
            // TIOCSTI, and TCSETS.
            assert_eq!([0x5412, 0x5402].map(|asked| got(libc::SYS_ioctl, [0, asked, 0, 0, 0, 0])), [7, ALLOW]);
            assert_eq!(got(libc::SYS_write, [0; 6]), ALLOW);
        }

        #[test]
        fn threads_of_the_recorder_have_lists_of_their_own() {
            let roles =
                [Role::Recorder, Role::Drain, Role::Writer, Role::Names, Role::Remover, Role::Messages].map(|role| {
                    let filter = program(&calls::of(role), 7);
                    assert!(filter.len() < 1000, "{role:?}");
                    filter
                });
            let got = |number: libc::c_long, arguments| {
                roles.each_ref().map(|filter| run(filter, u32::try_from(number).unwrap(), arguments) == ALLOW)
            };
            let none = [0; 6];
            assert_eq!(got(libc::SYS_futex, none), [true; 6]);
            // Landlock says what can be opened.
            assert_eq!([libc::SYS_read, libc::SYS_openat].map(|number| got(number, none)), [[true; 6]; 2]);
            assert_eq!(got(libc::SYS_getdents64, none), [true, false, false, true, true, false]);
            assert_eq!(got(libc::SYS_fallocate, none), [true, false, true, true, false, false]);
            assert_eq!(got(libc::SYS_unlinkat, none), [true, false, false, false, true, false]);
            for number in [libc::SYS_fchown, libc::SYS_renameat2, libc::SYS_mkdirat, libc::SYS_capset] {
                assert_eq!(got(number, none), [true, false, false, false, false, false], "{number}");
            }
            for number in [
                libc::SYS_execve,
                libc::SYS_socket,
                libc::SYS_kill,
                libc::SYS_ptrace,
                libc::SYS_mount,
                libc::SYS_bpf,
                libc::SYS_fsopen,
                libc::SYS_setuid,
                libc::SYS_sched_setscheduler,
            ] {
                assert_eq!(got(number, none), [false; 6], "{number}");
            }
            // A name, the giving away of rights, and a process that is told of the end of its parent.
            let options = [15, 38, 1].map(|option| got(libc::SYS_prctl, [option, 0, 0, 0, 0, 0]));
            assert_eq!(options, [[true; 6], [true, false, false, false, false, false], [false; 6]]);
            assert_eq!(got(libc::SYS_clone, [17, 0, 0, 0, 0, 0]), [false; 6]);
        }

        #[test]
        fn another_machine_is_refused() {
            let filter = program(&calls::of(Role::Reader), 7);
            let mut other = filter.clone();
            other[1].value ^= 1;
            assert_eq!(run(&other, u32::try_from(libc::SYS_read).unwrap(), [0; 6]), 7);
            assert!(filter.len() < 1000);
        }
    }
}
