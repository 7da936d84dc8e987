//! Column chunks of texts: a dictionary page and a page of numbers.
//!
//! The encoder of the crate hashes each value of each row, which takes longer than reading the event: with it, `parquet-events` wrote
//! less than a million rows a second. Here the rows have the numbers of their texts already.

use std::rc::Rc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::data_type::ByteArray;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

use super::texts::TextId;
use crate::export::protobuf::varint;

/// Numbers that are packed together.
const GROUP: usize = 8;

/// Column chunk of a row group, as bytes and their description. `texts` are those of the whole file; `values` has the number of the
/// text of each row that has one, `levels` 1 for such a row and 0 for others, and nothing in a column without nulls.
pub(super) fn chunk(
    column: ColumnDescPtr,
    texts: &[Rc<[u8]>],
    (values, levels): (&[TextId], &[i16]),
    level: ZstdLevel,
) -> Result<(Bytes, ColumnCloseResult)> {
    // Number of each text among those of the chunk, and these.
    let mut local = vec![u32::MAX; texts.len()];
    let mut used: Vec<&[u8]> = Vec::new();
    let mut numbers = Vec::with_capacity(values.len());
    for text in values.iter().map(|text| text.0 as usize) {
        if local[text] == u32::MAX {
            local[text] = used.len() as u32;
            used.push(&texts[text]);
        }
        numbers.push(local[text]);
    }
    let mut dictionary = Vec::new();
    for text in &used {
        put_sized(text, &mut dictionary);
    }
    let (mut data, rows) = (Vec::new(), levels.len().max(values.len()));
    if column.max_def_level() > 0 {
        let mut packed = Vec::new();
        pack(levels.iter().map(|&level| level as u32), 1, &mut packed);
        put_sized(&packed, &mut data);
    }
    let width = u32::BITS - (used.len().saturating_sub(1) as u32).leading_zeros();
    data.push(width as u8);
    pack(numbers.into_iter(), width, &mut data);
    let bytes = |text: Option<&&[u8]>| text.map(|text| ByteArray::from(text.to_vec()));
    let nulls = (rows - values.len()) as u64;
    let statistics =
        Statistics::byte_array(bytes(used.iter().min()), bytes(used.iter().max()), None, Some(nulls), false);
    write(column, (&dictionary, used.len()), (&data, rows), statistics, level)
}

/// Appends the number of bytes, 32 bits in little endian, and the bytes.
fn put_sized(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Packs numbers of `width` bits, the lowest bit first; the last group is filled up with zeros. Runs are left to the compression.
fn pack(numbers: impl ExactSizeIterator<Item = u32>, width: u32, out: &mut Vec<u8>) {
    let groups = numbers.len().div_ceil(GROUP);
    let fill = groups * GROUP - numbers.len();
    varint(out, (groups as u64) << 1 | 1);
    let (mut bits, mut len) = (0u64, 0);
    for number in numbers.chain(std::iter::repeat_n(0, fill)) {
        bits |= u64::from(number) << len;
        len += width;
        while len >= u8::BITS {
            out.push(bits as u8);
            bits >>= u8::BITS;
            len -= u8::BITS;
        }
    }
}

/// Compresses the pages; each with its number of values.
fn write(
    column: ColumnDescPtr,
    (dictionary, texts): (&[u8], usize),
    (data, rows): (&[u8], usize),
    statistics: Statistics,
    level: ZstdLevel,
) -> Result<(Bytes, ColumnCloseResult)> {
    let mut sink = TrackedWrite::new(Vec::new());
    let mut pages = SerializedPageWriter::new(&mut sink);
    let mut put = |bytes: &[u8], page: &dyn Fn(Bytes) -> Page| {
        let packed = zstd::bulk::compress(bytes, level.compression_level());
        let packed = packed.map_err(|error| ParquetError::External(Box::new(error)))?;
        pages.write_page(CompressedPage::new(page(packed.into()), bytes.len()))
    };
    let head = put(dictionary, &|buf| Page::DictionaryPage {
        buf,
        num_values: texts as u32,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    })?;
    let body = put(data, &|buf| Page::DataPage {
        buf,
        num_values: rows as u32,
        encoding: Encoding::RLE_DICTIONARY,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    })?;
    let bytes = sink.into_inner()?;
    let metadata = ColumnChunkMetaData::builder(column)
        .set_compression(Compression::ZSTD(level))
        .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
        .set_num_values(rows as i64)
        .set_total_compressed_size(bytes.len() as i64)
        .set_total_uncompressed_size((head.uncompressed_size + body.uncompressed_size) as i64)
        .set_dictionary_page_offset(Some(0))
        .set_data_page_offset(head.bytes_written as i64)
        .set_statistics(statistics)
        .build()?;
    let close = ColumnCloseResult {
        bytes_written: bytes.len() as u64,
        rows_written: rows as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    Ok((Bytes::from(bytes), close))
}
