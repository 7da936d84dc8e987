//! Guests with other kernels and of other architectures: recorded there, analysed here. Tests that cannot run on this machine are
//! listed as skipped at the end. `KMEMTRACE_RUNS=all` boots those of [`longer`] and [`vm_probes`] as well.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod longer;
mod vm_probes;

use std::process::ExitCode;

use kmemtrace_tests::guest::Guest;
use kmemtrace_tests::kernels;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;

fn main() -> ExitCode {
    let longer = [longer::TESTS, vm_probes::TESTS];
    let longer = if runs::is_all() { longer.as_slice() } else { &[] };
    kmemtrace_tests::runner::main(&[&[TESTS], longer].concat())
}

kmemtrace_tests::tests![
    a_locked_down_kernel,
    linux_5_10 => || kernels::assert_recordings(kernels::LINUX_5_10),
];

fn a_locked_down_kernel() -> Result<(), Skip> {
    let script = "kmemtraced -d 1 -o /out/trace 2>/out/messages || echo $? >>/out/messages; [ ! -e /out/trace ]";
    let out = Guest::new("amd64")?.option("-c", "lockdown=confidentiality").run(script)?;
    let expected = "kmemtraced: /sys/kernel/tracing: the kernel is locked down (lockdown=confidentiality); boot with lockdown=integrity\n2\n";
    assert_eq!(out.text("messages"), expected);
    Ok(())
}
