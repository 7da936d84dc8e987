//! `export`: files that other programs open, a file a format.

#[cfg(feature = "parquet")]
mod parquet;

use crate::args::ExportTo;
use crate::cli::Request;

/// Writes the file that was asked for.
pub(crate) fn export(request: &Request) -> anyhow::Result<u8> {
    let Some(to) = request.args.to else {
        anyhow::bail!("export: name a format with --to; see kmemtrace-report help export");
    };
    match to {
        #[cfg(feature = "parquet")]
        ExportTo::ParquetSites => parquet::sites(request),
        #[cfg(feature = "parquet")]
        ExportTo::ParquetObjects => parquet::objects(request),
        #[cfg(feature = "parquet")]
        ExportTo::ParquetEvents => parquet::events(request),
        #[cfg(not(feature = "parquet"))]
        ExportTo::ParquetSites | ExportTo::ParquetObjects | ExportTo::ParquetEvents => {
            anyhow::bail!("export: this kmemtrace-report was built without Parquet: build it with the feature parquet")
        }
        ExportTo::Pprof | ExportTo::Folded | ExportTo::Perfetto | ExportTo::Jsonl | ExportTo::Csv => {
            anyhow::bail!("export: this format is not there yet")
        }
    }
}
