//! Column chunks of texts: a dictionary page and a page of numbers.
//!
//! The crate's own encoder hashes each value of each row, which takes longer than reading the event. A table knows the number of
//! each text, so that a row costs a few bits here.

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

/// Number of a row without a text.
pub(super) const NONE: u32 = u32::MAX;

/// Column chunk of the texts with the numbers `rows`, as bytes and their description. `texts` are those of the whole file.
pub(super) fn chunk(
    column: ColumnDescPtr,
    texts: &[Box<[u8]>],
    rows: &[u32],
    level: ZstdLevel,
) -> Result<(Bytes, ColumnCloseResult)> {
    let (used, numbers, nulls) = local_numbers(texts.len(), rows);
    let text = |&number: &u32| texts.get(number as usize).map_or(&[][..], |text| text);
    let mut dictionary = Vec::new();
    for text in used.iter().map(text) {
        dictionary.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
        dictionary.extend_from_slice(text);
    }
    let mut values = Vec::new();
    if column.max_def_level() > 0 {
        let mut levels = Vec::new();
        encode(rows.iter().map(|&row| u32::from(row != NONE)), 1, &mut levels);
        values.extend_from_slice(&u32::try_from(levels.len()).unwrap_or(u32::MAX).to_le_bytes());
        values.append(&mut levels);
    }
    let width = u32::BITS - (used.len().saturating_sub(1) as u32).leading_zeros();
    values.push(width as u8);
    encode(numbers.iter().copied(), width, &mut values);
    let bytes_of = |text: &[u8]| ByteArray::from(text.to_vec());
    let statistics = Statistics::byte_array(
        used.iter().map(text).min().map(bytes_of),
        used.iter().map(text).max().map(bytes_of),
        None,
        Some(nulls),
        false,
    );
    write(column, (dictionary, used.len()), (values, rows.len()), statistics, level)
}

/// Texts that the rows use, in the order of their first row; the number of each row's text among them, without rows that have none;
/// and the number of these.
fn local_numbers(texts: usize, rows: &[u32]) -> (Vec<u32>, Vec<u32>, u64) {
    let mut local = vec![NONE; texts];
    let (mut used, mut numbers) = (Vec::new(), Vec::with_capacity(rows.len()));
    for &row in rows {
        let Some(number) = local.get_mut(row as usize) else { continue };
        if *number == NONE {
            *number = used.len() as u32;
            used.push(row);
        }
        numbers.push(*number);
    }
    let nulls = (rows.len() - numbers.len()) as u64;
    (used, numbers, nulls)
}

/// Least number of equal values that are written as one run.
const RUN: usize = 8;

/// Encodes numbers of `width` bits as runs of equal ones and groups of eight.
fn encode(numbers: impl Iterator<Item = u32>, width: u32, out: &mut Vec<u8>) {
    let mut numbers = numbers.peekable();
    // Groups of eight that are written together.
    let mut literals: Vec<u32> = Vec::new();
    while let Some(number) = numbers.next() {
        let mut count = 1;
        while numbers.next_if_eq(&number).is_some() {
            count += 1;
        }
        let fill = if literals.len().is_multiple_of(RUN) { 0 } else { (RUN - literals.len() % RUN).min(count) };
        literals.extend(std::iter::repeat_n(number, fill));
        count -= fill;
        if count < RUN {
            literals.extend(std::iter::repeat_n(number, count));
        } else {
            put_literals(&mut literals, width, out);
            put_varint((count as u64) << 1, out);
            out.extend_from_slice(&number.to_le_bytes()[..width.div_ceil(8) as usize]);
        }
    }
    put_literals(&mut literals, width, out);
}

/// Writes groups of eight; the last one is filled up with zeros.
fn put_literals(literals: &mut Vec<u32>, width: u32, out: &mut Vec<u8>) {
    if literals.is_empty() {
        return;
    }
    literals.resize(literals.len().next_multiple_of(RUN), 0);
    put_varint(((literals.len() / RUN) as u64) << 1 | 1, out);
    let (mut bits, mut len) = (0u64, 0);
    for literal in literals.drain(..) {
        bits |= u64::from(literal) << len;
        len += width;
        while len >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            len -= 8;
        }
    }
}

fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Compresses the pages; each with its number of values.
fn write(
    column: ColumnDescPtr,
    dictionary: (Vec<u8>, usize),
    values: (Vec<u8>, usize),
    statistics: Statistics,
    level: ZstdLevel,
) -> Result<(Bytes, ColumnCloseResult)> {
    let compress = |bytes: &[u8]| -> Result<Bytes> {
        let packed = zstd::bulk::compress(bytes, level.compression_level());
        packed.map(Bytes::from).map_err(|error| ParquetError::External(Box::new(error)))
    };
    let mut sink = TrackedWrite::new(Vec::new());
    let mut pages = SerializedPageWriter::new(&mut sink);
    let page = Page::DictionaryPage {
        buf: compress(&dictionary.0)?,
        num_values: dictionary.1 as u32,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    };
    let head = pages.write_page(CompressedPage::new(page, dictionary.0.len()))?;
    let page = Page::DataPage {
        buf: compress(&values.0)?,
        num_values: values.1 as u32,
        encoding: Encoding::RLE_DICTIONARY,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    let data = pages.write_page(CompressedPage::new(page, values.0.len()))?;
    let bytes = sink.into_inner()?;
    let metadata = ColumnChunkMetaData::builder(column)
        .set_compression(Compression::ZSTD(level))
        .set_encodings(vec![Encoding::PLAIN, Encoding::RLE, Encoding::RLE_DICTIONARY])
        .set_num_values(values.1 as i64)
        .set_total_compressed_size(bytes.len() as i64)
        .set_total_uncompressed_size((head.uncompressed_size + data.uncompressed_size) as i64)
        .set_dictionary_page_offset(Some(0))
        .set_data_page_offset(head.bytes_written as i64)
        .set_statistics(statistics)
        .build()?;
    let close = ColumnCloseResult {
        bytes_written: bytes.len() as u64,
        rows_written: values.1 as u64,
        metadata,
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    };
    Ok((Bytes::from(bytes), close))
}
