//! `export`: files that other programs open, a file a format.

use crate::args::ExportTo;
use crate::cli::Request;

/// Writes the file that was asked for.
pub(crate) fn export(request: &Request) -> anyhow::Result<u8> {
    let Some(to) = request.args.to else {
        anyhow::bail!("export: name a format with --to; see kmemtrace-report help export");
    };
    match to {
        ExportTo::Pprof
        | ExportTo::Folded
        | ExportTo::Perfetto
        | ExportTo::ParquetSites
        | ExportTo::ParquetObjects
        | ExportTo::ParquetEvents
        | ExportTo::Jsonl
        | ExportTo::Csv => anyhow::bail!("export: this format is not there yet"),
    }
}
