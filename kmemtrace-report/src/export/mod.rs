//! `export`: files that other programs open, a file a format.

mod about;
mod folded;
mod frames;
mod job;
mod parquet;
mod perfetto;
mod pprof;
mod protobuf;
mod trace_dat;

use crate::args::{ExportTo, Format, TraceDatVersion};
use crate::cli::Request;
use crate::report;
use job::Job;

/// Writes the file that was asked for.
pub(crate) fn export(request: &Request) -> anyhow::Result<u8> {
    let args = &request.args;
    let Some(to) = args.to else {
        anyhow::bail!("export: name a format with --to; see kmemtrace-report help export");
    };
    if args.weight.is_some() && to != ExportTo::Folded {
        anyhow::bail!("export: --weight goes with --to folded: the other formats have all figures");
    }
    if args.trace_dat_version.is_some() && to != ExportTo::TraceDat {
        anyhow::bail!("export: --trace-dat-version goes with --to trace-dat alone");
    }
    // The crate writes numbers in the machine's byte order; Parquet is little endian.
    if cfg!(target_endian = "big") && is_parquet(to) {
        anyhow::bail!(
            "export: Parquet is not written on a big-endian machine: its numbers would be wrong; copy the recording to another machine, \
             which reads it all the same"
        );
    }
    // A saved document has no rows of these formats, and is refused by its name.
    report::saved_document(request)?;
    let job = Job::new(request);
    match to {
        ExportTo::Pprof => pprof::pprof(&job),
        ExportTo::Folded => folded::folded(&job, args.weight),
        ExportTo::Jsonl => report::events(request, Some(Format::Jsonl)),
        ExportTo::Csv => report::events(request, Some(Format::Csv)),
        ExportTo::Perfetto => perfetto::perfetto(&job),
        ExportTo::ParquetSites => parquet::sites(&job),
        ExportTo::ParquetLeaks => parquet::leaks(&job),
        ExportTo::ParquetObjects => parquet::objects(&job),
        ExportTo::ParquetEvents => parquet::events(&job),
        ExportTo::TraceDat => trace_dat::trace_dat(&job, args.trace_dat_version.unwrap_or(TraceDatVersion::V6)),
    }
}

fn is_parquet(to: ExportTo) -> bool {
    use ExportTo::{ParquetEvents, ParquetLeaks, ParquetObjects, ParquetSites};
    matches!(to, ParquetSites | ParquetLeaks | ParquetObjects | ParquetEvents)
}
