//! Guests with other kernels and of other architectures: recorded there, analysed here. Tests that cannot run on this machine are
//! listed as skipped at the end. `KMEMTRACE_RUNS=all` boots those of [`longer`] and [`vm_probes`] as well.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod longer;
mod vm_probes;

use std::process::ExitCode;

use kmemtrace_tests::guest::{Guest, checked};
use kmemtrace_tests::kernels;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::runs;
use kmemtrace_tests::views;

fn main() -> ExitCode {
    let longer = [longer::TESTS, vm_probes::TESTS];
    let longer = if runs::is_all() { longer.as_slice() } else { &[] };
    kmemtrace_tests::runner::main(&[&[TESTS], longer].concat())
}

kmemtrace_tests::tests![
    single_user_mode,
    a_locked_down_kernel,
    linux_5_10 => || kernels::assert_recordings(kernels::LINUX_5_10),
];

fn single_user_mode() -> Result<(), Skip> {
    let script = "
        [ ! -e /proc/self ] && [ ! -e /sys/kernel ]
        kmemtraced -o /out/trace 2>/tmp/messages &
        recorder=$!
        recording /tmp/messages
        kmemload iov 3000 20
        kill -TERM $recorder
        wait $recorder
        cat /tmp/messages
        [ ! -e /proc/self ] && [ ! -e /sys/kernel ]
        mkdir /tracefs
        mount -t tracefs none /tracefs
        ls /tracefs/instances >/out/instances";
    let out = Guest::new("amd64")?.bare().run(script)?;
    let trace = out.file("trace");
    let (verdict, events) = checked(&trace);
    assert_eq!(verdict, "ok");
    assert!(events > 6000, "{events} events");
    views::assert_iov(&trace, &["--comm", "kmemload"], 8);
    views::assert_invariants("single-user mode", &trace);
    assert_eq!(out.text("instances"), "", "an instance is left");
    Ok(())
}

fn a_locked_down_kernel() -> Result<(), Skip> {
    let script = "kmemtraced -d 1 -o /out/trace 2>/out/messages || echo $? >>/out/messages; [ ! -e /out/trace ]";
    let out = Guest::new("amd64")?.option("-c", "lockdown=confidentiality").run(script)?;
    let expected = "kmemtraced: /sys/kernel/tracing: the kernel is locked down (lockdown=confidentiality); boot with lockdown=integrity\n2\n";
    assert_eq!(out.text("messages"), expected);
    Ok(())
}
