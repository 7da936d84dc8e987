//! `trace-dat`: the kernel's own sub-buffers in the container of trace-cmd, versions 6 and 7.
//!
//! Two passes. The first reads all events as any view does, counts sub-buffers, and notes the loss that none of them tells of; the second
//! copies the sub-buffers. The sizes of all parts are known by then, so the file is written from its first byte to its last.
//! What `trace.dat` has no place for goes into an option of our own, which trace-cmd passes over: `abi/FORMAT.md` describes it.

mod container;
mod texts;

use std::io::{self, Write};
use std::ops::ControlFlow;

use anyhow::bail;
use kmemtrace::{OrderedItem, Query, Trace};
use kmemtrace_abi::kernel::format::PageShape;
use kmemtrace_abi::kernel::subbuffer;
use kmemtrace_abi::kernel_texts::KernelTexts;
use kmemtrace_abi::stream::CpuStream;
use kmemtrace_abi::stream::file_loss::{FileLoss, MAX_KEPT};

use self::container::{Contents, Cpu};
use super::job::Job;
use crate::args::TraceDatVersion;
use crate::report;
use crate::terminal::output::Output;
use crate::terminal::progress::ProgressLine;

/// Level of zstd for the option.
const LEVEL: i32 = 6;

/// Writes the sub-buffers of a trace.
pub(super) fn trace_dat(job: &Job<'_>, version: TraceDatVersion) -> anyhow::Result<u8> {
    refuse_options(job)?;
    let mut trace = job.open()?;
    let name = crate::of_text::input_name(&trace);
    let shape = trace.streams.iter().find_map(CpuStream::page_shape);
    let Some((texts, shape)) = trace.metadata.texts.take().zip(shape) else {
        bail!(
            "export: {name} has no sub-buffers of the kernel, which a trace.dat is made of: name a recording of tracefs, a captured \
             tree or a trace.dat"
        );
    };
    let mut out = job.binary_output()?;
    let names = texts::Names::of(&trace.metadata, &trace.info);
    let of_names = trace.metadata.report.clone();
    trace.streams.iter_mut().for_each(CpuStream::note_loss);
    let query = report::with_options(job.request, Query::by_kind())?;
    let mut pass_over = |_: &OrderedItem<'_>| ControlFlow::Continue(());
    let observed = query.observe_with(&mut trace, &mut pass_over, &mut ProgressLine::new(job.request.args.quiet))?;
    let mut files = losses(&trace);
    let cpus = cpus(&files);
    if files.iter().any(|file| file.gaps.len() > MAX_KEPT) {
        bail!("export: {name} has more than {MAX_KEPT} gaps on one CPU; a trace.dat cannot keep them");
    }
    files.extend(of_names.as_ref().map(FileLoss::of_report));
    let head = container::head(
        version,
        &Contents { shape: &shape, texts: &texts, names: &names, cpus: &cpus, kept: kept(&texts, &files)? },
    );
    drop((texts, names));
    let mut again = trace.reopen()?;
    let copied = out.write_all(&head).map_err(Stopped::Output);
    let copied = copied.and_then(|()| copy(&mut again, &files, &shape, &mut out));
    match copied {
        Ok(()) => out.finish(Ok(()))?,
        Err(Stopped::Output(error)) => out.finish(Err(error))?,
        Err(Stopped::Changed) => {
            bail!("export: {name} has changed while it was read: export it once its recorder has ended")
        }
    }
    Ok(report::end_observed(job.request, &trace, &observed, true, 0))
}

/// Refuses options that choose among events, or change facts: sub-buffers are copied as they are.
fn refuse_options(job: &Job<'_>) -> anyhow::Result<()> {
    let request = job.request;
    let filter = request.asked.filters.first().map(|(name, _)| *name);
    let time = request.asked.time.as_ref().map(|_| "time");
    let host = request.args.host.as_ref().map(|_| "host");
    match filter.or(time).or(host) {
        Some(option) => bail!(
            "export: --{option} does not go with --to trace-dat, which has the kernel's sub-buffers whole; leave it out, or use --to jsonl"
        ),
        None => Ok(()),
    }
}

/// Loss of each CPU's file.
fn losses(trace: &Trace) -> Vec<FileLoss> {
    let of_stream = |stream: &CpuStream| {
        let loss = stream.file_loss().unwrap_or_default();
        let cpu = stream.cpu();
        FileLoss { cpu: Some(cpu), is_missing: trace.info.missing.contains(&cpu), ..loss }
    };
    trace.streams.iter().map(of_stream).collect()
}

fn cpus(files: &[FileLoss]) -> Vec<Cpu> {
    let cpu = |file: &FileLoss| Some(Cpu { cpu: file.cpu?, sub_buffers: file.sub_buffers, counters: file.counters });
    files.iter().filter_map(cpu).collect()
}

/// Bytes of our own option.
fn kept(texts: &KernelTexts, files: &[FileLoss]) -> io::Result<Vec<u8>> {
    let mut items = texts.items.clone();
    files.iter().for_each(|file| file.put(&mut items));
    zstd::bulk::compress(&items, LEVEL)
}

/// Why copying has stopped.
enum Stopped {
    /// The file cannot be written.
    Output(io::Error),
    /// The trace has other sub-buffers than before.
    Changed,
}

/// Copies the sub-buffers of all CPUs, those marked before which only the trace's own records tell of loss.
fn copy(trace: &mut Trace, files: &[FileLoss], shape: &PageShape, out: &mut Output) -> Result<(), Stopped> {
    let mut page = Vec::new();
    for file in files {
        let Some(cpu) = file.cpu.filter(|_| file.sub_buffers > 0) else { continue };
        let stream = trace.streams.iter_mut().find(|stream| stream.cpu() == cpu).ok_or(Stopped::Changed)?;
        let mut marks = file.marks.iter().copied().peekable();
        for number in 0..file.sub_buffers {
            if !stream.next_sub_buffer(&mut page) {
                return Err(Stopped::Changed);
            }
            if marks.next_if_eq(&number).is_some() {
                subbuffer::mark_missed(shape, &mut page);
            }
            out.write_all(&page).map_err(Stopped::Output)?;
        }
    }
    Ok(())
}
