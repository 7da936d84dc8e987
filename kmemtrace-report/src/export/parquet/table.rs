//! Writer of a Parquet table, row by row: rows are kept until a row group is full.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnDescPtr, Type};

use super::dictionary::{self, NONE};
use crate::terminal::output::Output;

/// Rows of a row group.
const GROUP: usize = 131_072;
/// Level of zstd.
const LEVEL: i32 = 3;
/// Bytes of a page; beyond them a page ends. All rows of a group fit, so that each column has one page.
const PAGE_BYTES: usize = 2 << 20;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    Int32,
    Int64,
    /// INT64 whose values differ little from row to row.
    Steps,
    Double,
    Boolean,
    Text,
}

/// Name and type of a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) of: Of,
    /// A row may have no value.
    pub(super) is_optional: bool,
}

impl Spec {
    /// Column that has a value in each row.
    pub(super) const fn each(name: &'static str, of: Of) -> Spec {
        Spec { name, of, is_optional: false }
    }

    /// Column that has a value in some rows.
    pub(super) const fn some(name: &'static str, of: Of) -> Spec {
        Spec { name, of, is_optional: true }
    }
}

/// Values of a column in the present row group.
#[derive(Debug)]
enum Values {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Double(Vec<f64>),
    Boolean(Vec<bool>),
    /// Numbers of texts, [`NONE`] for none.
    Text(Vec<u32>),
}

#[derive(Debug)]
struct Column {
    values: Values,
    /// 1 for a row with a value, 0 for one without; empty where each row has one, and for texts.
    levels: Vec<i16>,
    is_optional: bool,
    texts: Texts,
}

/// Texts of a column, each once.
#[derive(Debug, Default)]
struct Texts {
    all: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, u32>,
}

impl Texts {
    fn number(&mut self, text: &[u8]) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.all.len() as u32;
        self.all.push(text.into());
        self.numbers.insert(text.into(), number);
        number
    }
}

/// Number of a text in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextId(u32);

impl TextId {
    /// No text.
    pub(super) const NONE: TextId = TextId(NONE);
}

/// Writer of a table.
pub(super) struct Table {
    out: Output,
    file: SerializedFileWriter<Vec<u8>>,
    columns: Vec<Column>,
    /// Number of the next value's column.
    next: usize,
    /// Rows of the present group.
    rows: usize,
    level: ZstdLevel,
}

impl Table {
    pub(super) fn new(out: Output, specs: &[Spec]) -> Result<Table> {
        let level = ZstdLevel::try_new(LEVEL)?;
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level))
            .set_created_by(concat!("kmemtrace-report ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_data_page_row_count_limit(GROUP)
            .set_data_page_size_limit(PAGE_BYTES)
            .set_dictionary_page_size_limit(PAGE_BYTES)
            .set_max_row_group_row_count(Some(GROUP));
        for spec in specs.iter().filter(|spec| spec.of == Of::Steps) {
            properties = properties
                .set_column_dictionary_enabled(spec.name.into(), false)
                .set_column_encoding(spec.name.into(), Encoding::DELTA_BINARY_PACKED);
        }
        let fields = specs.iter().map(field).collect::<Result<Vec<_>>>()?;
        let schema = Type::group_type_builder("kmemtrace").with_fields(fields).build()?;
        let file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build()))?;
        let column = |spec: &Spec| Column {
            values: match spec.of {
                Of::Int32 => Values::Int32(Vec::new()),
                Of::Int64 | Of::Steps => Values::Int64(Vec::new()),
                Of::Double => Values::Double(Vec::new()),
                Of::Boolean => Values::Boolean(Vec::new()),
                Of::Text => Values::Text(Vec::new()),
            },
            levels: Vec::new(),
            is_optional: spec.is_optional,
            texts: Texts::default(),
        };
        Ok(Table { out, file, columns: specs.iter().map(column).collect(), next: 0, rows: 0, level })
    }

    /// Number of a text in the column of this number.
    pub(super) fn text_id(&mut self, column: usize, text: &[u8]) -> TextId {
        TextId(self.columns.get_mut(column).map_or(NONE, |column| column.texts.number(text)))
    }

    #[inline]
    fn column(&mut self) -> &mut Column {
        let column = &mut self.columns[self.next];
        self.next += 1;
        column
    }

    /// Puts the next value of the row.
    #[inline]
    pub(super) fn int64(&mut self, value: Option<i64>) -> &mut Self {
        let column = self.column();
        if let (true, Values::Int64(values)) = (column.levels_take(value.is_some()), &mut column.values) {
            values.push(value.unwrap_or(0));
        }
        self
    }

    /// Puts the next value of the row: INT64 of the same bits.
    #[inline]
    pub(super) fn bits(&mut self, value: Option<u64>) -> &mut Self {
        self.int64(value.map(u64::cast_signed))
    }

    /// Puts the next value of the row.
    #[inline]
    pub(super) fn int32(&mut self, value: Option<i32>) -> &mut Self {
        let column = self.column();
        if let (true, Values::Int32(values)) = (column.levels_take(value.is_some()), &mut column.values) {
            values.push(value.unwrap_or(0));
        }
        self
    }

    /// Puts the next value of the row.
    #[inline]
    pub(super) fn double(&mut self, value: Option<f64>) -> &mut Self {
        let column = self.column();
        if let (true, Values::Double(values)) = (column.levels_take(value.is_some()), &mut column.values) {
            values.push(value.unwrap_or(0.0));
        }
        self
    }

    /// Puts the next value of the row.
    #[inline]
    pub(super) fn boolean(&mut self, value: Option<bool>) -> &mut Self {
        let column = self.column();
        if let (true, Values::Boolean(values)) = (column.levels_take(value.is_some()), &mut column.values) {
            values.push(value.unwrap_or(false));
        }
        self
    }

    /// Puts the next value of the row.
    #[inline]
    pub(super) fn text(&mut self, id: TextId) -> &mut Self {
        if let Values::Text(values) = &mut self.column().values {
            values.push(id.0);
        }
        self
    }

    /// Puts the next values of the row.
    #[inline]
    pub(super) fn texts(&mut self, ids: &[TextId]) -> &mut Self {
        ids.iter().for_each(|&id| {
            self.text(id);
        });
        self
    }

    /// Puts the next value of the row, a text that was not given a number.
    pub(super) fn new_text(&mut self, text: Option<&[u8]>) -> &mut Self {
        let id = text.map_or(TextId::NONE, |text| self.text_id(self.next, text));
        self.text(id)
    }

    /// Ends a row, and writes the row group where it is full.
    #[inline]
    pub(super) fn end_row(&mut self) -> Result<()> {
        debug_assert_eq!(self.next, self.columns.len(), "each column has a value");
        self.next = 0;
        self.rows += 1;
        if self.rows == GROUP { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<()> {
        let descriptions: Vec<ColumnDescPtr> = self.file.schema_descr().columns().to_vec();
        let mut group = self.file.next_row_group()?;
        for (column, description) in self.columns.iter_mut().zip(descriptions) {
            column.write(&mut group, description, self.level)?;
        }
        group.close()?;
        self.rows = 0;
        self.forward()
    }

    /// Hands what the file has of its bytes to the output.
    fn forward(&mut self) -> Result<()> {
        self.file.flush()?;
        let bytes = std::mem::take(self.file.inner_mut());
        self.out.write_all(&bytes).map_err(|error| ParquetError::External(Box::new(error)))
    }

    /// Ends the table, with texts for its footer; `written` is the result so far.
    pub(super) fn finish(mut self, written: Result<()>, footer: &[(&str, String)]) -> anyhow::Result<()> {
        let written = written.and_then(|()| self.write_end(footer)).map_err(io_error);
        self.out.finish(written)
    }

    fn write_end(&mut self, footer: &[(&str, String)]) -> Result<()> {
        if self.rows > 0 {
            self.write_group()?;
        }
        for (key, value) in footer {
            self.file.append_key_value_metadata(KeyValue::new((*key).to_owned(), value.clone()));
        }
        self.file.finish()?;
        self.forward()
    }

    /// True where the output can be begun again: nothing of it has been seen yet.
    pub(super) fn is_hidden(&self) -> bool {
        self.out.is_unfinished()
    }
}

/// Error of the crate as one of writing: the output's own error where it is one.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    }
}

/// Number of the column with this name.
pub(super) fn position(specs: &[Spec], name: &str) -> usize {
    specs.iter().position(|spec| spec.name == name).unwrap_or(specs.len())
}

fn field(spec: &Spec) -> Result<Arc<Type>> {
    let (physical, logical) = match spec.of {
        Of::Int32 => (Physical::INT32, None),
        Of::Int64 | Of::Steps => (Physical::INT64, None),
        Of::Double => (Physical::DOUBLE, None),
        Of::Boolean => (Physical::BOOLEAN, None),
        Of::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    let repetition = if spec.is_optional { Repetition::OPTIONAL } else { Repetition::REQUIRED };
    let of = Type::primitive_type_builder(spec.name, physical).with_repetition(repetition);
    Ok(Arc::new(of.with_logical_type(logical).build()?))
}

impl Column {
    /// Notes a row with a value or without; true where there is a value to keep.
    #[inline]
    fn levels_take(&mut self, has_value: bool) -> bool {
        if self.is_optional {
            self.levels.push(i16::from(has_value));
        }
        has_value || !self.is_optional
    }

    /// Writes the values of a row group, and forgets them.
    fn write(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
        description: ColumnDescPtr,
        level: ZstdLevel,
    ) -> Result<()> {
        if let Values::Text(rows) = &mut self.values {
            let (bytes, close) = dictionary::chunk(description, &self.texts.all, rows, level)?;
            rows.clear();
            return group.append_column(&bytes, close);
        }
        let Some(mut writer) = group.next_column()? else { return Ok(()) };
        let levels = self.is_optional.then_some(&self.levels[..]);
        match (writer.untyped(), &mut self.values) {
            (ColumnWriter::Int32ColumnWriter(writer), Values::Int32(values)) => {
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            (ColumnWriter::Int64ColumnWriter(writer), Values::Int64(values)) => {
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            (ColumnWriter::DoubleColumnWriter(writer), Values::Double(values)) => {
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            (ColumnWriter::BoolColumnWriter(writer), Values::Boolean(values)) => {
                writer.write_batch(values, levels, None)?;
                values.clear();
            }
            _ => return Err(ParquetError::General("a column of another type".to_owned())),
        }
        self.levels.clear();
        writer.close()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use kmemtrace_tests::generate::Random;
    use kmemtrace_tests::recording::Directory;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;

    use super::*;

    /// Values of a row: one of few texts or none, one of many texts, a number or none.
    type Row = (Option<String>, String, Option<i64>);

    fn rows(random: &mut Random, count: usize, texts: u64) -> Vec<Row> {
        let mut last: Row = (None, "0".to_owned(), None);
        (0..count)
            .map(|_| {
                // Runs of equal values and changes are encoded in different ways.
                if random.chance(40) {
                    last.0 = random.chance(70).then(|| format!("few {}", random.below(3)));
                }
                if random.chance(80) {
                    last.1 = format!("{}", random.below(texts));
                }
                last.2 = random.chance(90).then(|| random.bits().cast_signed());
                last.clone()
            })
            .collect()
    }

    fn written(rows: &[Row], dir: &Directory) -> SerializedFileReader<File> {
        let path = dir.file("table.parquet");
        let specs = [Spec::some("few", Of::Text), Spec::each("many", Of::Text), Spec::some("number", Of::Steps)];
        let mut table = Table::new(Output::open(Some(&path), true).unwrap(), &specs).unwrap();
        for (few, many, number) in rows {
            table.new_text(few.as_ref().map(String::as_bytes)).new_text(Some(many.as_bytes())).int64(*number);
            table.end_row().unwrap();
        }
        table.finish(Ok(()), &[("trace", "{}".to_owned())]).unwrap();
        SerializedFileReader::new(File::open(path).unwrap()).unwrap()
    }

    /// The crate's reader finds what was written, with widths of 0 to 17 bits, runs and groups, in one row group or several.
    #[test]
    fn a_table_is_read_as_it_was_written() {
        let dir = Directory::new(&[]);
        let mut random = Random::new(1);
        for (count, texts) in [(0, 1), (1, 1), (7, 1), (8, 2), (300, 5), (5000, 40), (GROUP + 9, 1 << 17)] {
            let rows = rows(&mut random, count, texts);
            let reader = written(&rows, &dir);
            assert_eq!(reader.num_row_groups(), count.div_ceil(GROUP));
            let footer = reader.metadata().file_metadata().key_value_metadata().unwrap();
            assert!(footer.iter().any(|pair| pair.key == "trace" && pair.value.as_deref() == Some("{}")));
            let mut read = 0;
            for (row, expected) in reader.get_row_iter(None).unwrap().zip(&rows) {
                let row = row.unwrap();
                let values: Vec<&Field> = row.get_column_iter().map(|(_, value)| value).collect();
                let text = |text: &Option<String>| text.clone().map_or(Field::Null, Field::Str);
                let number = expected.2.map_or(Field::Null, Field::Long);
                let wanted = [text(&expected.0), text(&Some(expected.1.clone())), number];
                assert_eq!(values, wanted.iter().collect::<Vec<_>>(), "row {read} of {count}");
                read += 1;
            }
            assert_eq!(read, count);
        }
    }
}
