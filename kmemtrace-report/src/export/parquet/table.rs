//! Writer of a Parquet table. Rows are structs, and each field is a column.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnDescPtr, Type};

use super::dictionary;
use super::texts::{TextId, Texts};
use crate::terminal::output::Output;

/// Rows of a row group.
const GROUP: usize = 131_072;
/// Rows that are handed to the columns together: few enough for the processor's cache.
const BATCH: usize = 256;
/// Level of zstd.
const LEVEL: i32 = 3;
/// Bytes of a page. All rows of a group fit, so that each column has one page.
const PAGE_BYTES: usize = 2 << 20;
/// Columns whose values differ little from row to row.
const STEPS: [&str; 4] = ["seq", "ts", "free_seq", "lifetime"];

/// A number that a column of INT64 has: one beyond 63 bits is the largest.
pub(super) fn within_63_bits(number: u64) -> u64 {
    number.min(i64::MAX.cast_unsigned())
}

/// Place of a column chunk that is to be written.
pub(super) struct Chunk<'a, 'g> {
    group: &'a mut SerializedRowGroupWriter<'g, Vec<u8>>,
    column: ColumnDescPtr,
    texts: &'a Texts,
}

/// Values of a column, as they are kept until a row group is full.
pub(super) trait Stored: Copy + 'static {
    const IN_FILE: Physical;

    /// Writes a column chunk. `levels` has 1 for a row with a value, 0 for one without, and nothing in a column without nulls.
    fn write(values: &[Self], levels: &[i16], chunk: Chunk<'_, '_>) -> Result<()>;
}

macro_rules! stored {
    ($($type:ty: $data_type:ty, $in_file:ident;)*) => {
        $(impl Stored for $type {
            const IN_FILE: Physical = Physical::$in_file;

            fn write(values: &[Self], levels: &[i16], chunk: Chunk<'_, '_>) -> Result<()> {
                let Some(mut column) = chunk.group.next_column()? else { return Ok(()) };
                let levels = (!levels.is_empty()).then_some(levels);
                column.typed::<$data_type>().write_batch(values, levels, None)?;
                column.close()
            }
        })*
    };
}

stored! {
    bool: BoolType, BOOLEAN;
    i32: Int32Type, INT32;
    i64: Int64Type, INT64;
    f64: DoubleType, DOUBLE;
}

impl Stored for TextId {
    const IN_FILE: Physical = Physical::BYTE_ARRAY;

    fn write(values: &[Self], levels: &[i16], chunk: Chunk<'_, '_>) -> Result<()> {
        let Chunk { group, column, texts } = chunk;
        let (bytes, close) = dictionary::chunk(column, &texts.all, (values, levels), level()?)?;
        group.append_column(&bytes, close)
    }
}

/// Type of a field.
pub(super) trait Value: Copy {
    type Stored: Stored;
    const IS_OPTIONAL: bool = false;

    fn stored(self) -> Option<Self::Stored>;
}

macro_rules! values {
    ($($type:ty: $stored:ty = $conversion:expr;)*) => {
        $(impl Value for $type {
            type Stored = $stored;

            #[inline]
            fn stored(self) -> Option<$stored> {
                Some($conversion(self))
            }
        })*
    };
}

values! {
    bool: bool = bool::from;
    i32: i32 = i32::from;
    u32: i32 = u32::cast_signed;
    i64: i64 = i64::from;
    u64: i64 = u64::cast_signed;
    f64: f64 = f64::from;
    TextId: TextId = TextId::from;
}

impl<V: Value> Value for Option<V> {
    type Stored = V::Stored;
    const IS_OPTIONAL: bool = true;

    #[inline]
    fn stored(self) -> Option<V::Stored> {
        self.and_then(V::stored)
    }
}

/// Columns of a table with rows `R`.
pub(super) type Columns<R> = Vec<Box<dyn Column<R>>>;

/// Column of a table with rows `R`.
pub(super) trait Column<R> {
    fn description(&self) -> Result<Type>;

    /// Keeps the values of rows.
    fn add(&mut self, rows: &[R]);

    /// Writes the values that were kept, and forgets them.
    fn write(&mut self, chunk: Chunk<'_, '_>) -> Result<()>;
}

struct ValueColumn<F, S> {
    name: &'static str,
    read: F,
    values: Vec<S>,
    levels: Vec<i16>,
}

/// Column whose values are read from the rows by `read`.
pub(super) fn column<R, V: Value>(name: &'static str, read: impl Fn(&R) -> V + 'static) -> Box<dyn Column<R>> {
    Box::new(ValueColumn { name, read, values: Vec::new(), levels: Vec::new() })
}

impl<R, V: Value, F: Fn(&R) -> V> Column<R> for ValueColumn<F, V::Stored> {
    fn description(&self) -> Result<Type> {
        let in_file = V::Stored::IN_FILE;
        let text = (in_file == Physical::BYTE_ARRAY).then_some(LogicalType::String);
        let repetition = if V::IS_OPTIONAL { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let column = Type::primitive_type_builder(self.name, in_file).with_repetition(repetition);
        column.with_logical_type(text).build()
    }

    fn add(&mut self, rows: &[R]) {
        for value in rows.iter().map(|row| (self.read)(row).stored()) {
            if V::IS_OPTIONAL {
                self.levels.push(value.is_some().into());
            }
            self.values.extend(value);
        }
    }

    fn write(&mut self, chunk: Chunk<'_, '_>) -> Result<()> {
        V::Stored::write(&self.values, &self.levels, chunk)?;
        self.values.clear();
        self.levels.clear();
        Ok(())
    }
}

/// Declares the struct of a table's rows, with a function `columns`: a column for each field.
macro_rules! row {
    ($(#[$about:meta])* $row:ident { $($(#[$field_about:meta])* $column:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default)]
        struct $row {
            $($(#[$field_about])* $column: $type,)*
        }

        impl $row {
            fn columns() -> $crate::export::parquet::table::Columns<$row> {
                use $crate::export::parquet::table::column;
                vec![$(column(stringify!($column), |row: &$row| row.$column)),*]
            }
        }
    };
}
pub(super) use row;

/// Writer of a table with rows `R`.
pub(super) struct Table<R> {
    pub(super) texts: Texts,
    out: Output,
    file: SerializedFileWriter<Vec<u8>>,
    columns: Columns<R>,
    batch: Vec<R>,
    /// Rows that the columns keep.
    kept: usize,
}

impl<R> Table<R> {
    pub(super) fn new(out: Output, texts: Texts, columns: Columns<R>) -> Result<Table<R>> {
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(level()?))
            .set_created_by(concat!("kmemtrace-report ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_data_page_row_count_limit(GROUP)
            .set_data_page_size_limit(PAGE_BYTES)
            .set_dictionary_page_size_limit(PAGE_BYTES)
            .set_max_row_group_row_count(Some(GROUP));
        for name in STEPS {
            properties = properties
                .set_column_dictionary_enabled(name.into(), false)
                .set_column_encoding(name.into(), Encoding::DELTA_BINARY_PACKED);
        }
        let fields = columns.iter().map(|column| Ok(Arc::new(column.description()?))).collect::<Result<_>>()?;
        let schema = Type::group_type_builder("kmemtrace").with_fields(fields).build()?;
        let file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build()))?;
        Ok(Table { texts, out, file, columns, batch: Vec::with_capacity(BATCH), kept: 0 })
    }

    /// Adds a row, and writes the row group if it is full.
    #[inline]
    pub(super) fn push(&mut self, row: R) -> Result<()> {
        self.batch.push(row);
        if self.batch.len() < BATCH { Ok(()) } else { self.end_batch() }
    }

    fn end_batch(&mut self) -> Result<()> {
        self.columns.iter_mut().for_each(|column| column.add(&self.batch));
        self.kept += self.batch.len();
        self.batch.clear();
        if self.kept < GROUP { Ok(()) } else { self.write_group() }
    }

    fn write_group(&mut self) -> Result<()> {
        let descriptions = self.file.schema_descr().columns().to_vec();
        let mut group = self.file.next_row_group()?;
        for (values, column) in self.columns.iter_mut().zip(descriptions) {
            values.write(Chunk { group: &mut group, column, texts: &self.texts })?;
        }
        group.close()?;
        self.kept = 0;
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
        self.end_batch()?;
        if self.kept > 0 {
            self.write_group()?;
        }
        for (key, value) in footer {
            self.file.append_key_value_metadata(KeyValue::new((*key).to_owned(), value.clone()));
        }
        self.file.finish()?;
        self.forward()
    }

    /// True if the output can be begun again: nothing of it has been seen yet.
    pub(super) fn is_hidden(&self) -> bool {
        self.out.is_unfinished()
    }
}

fn level() -> Result<ZstdLevel> {
    ZstdLevel::try_new(LEVEL)
}

/// Error of the crate as one of writing: the output's own error if it is one.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
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

    row! {
        FileRow {
            few: Option<TextId>,
            many: TextId,
            seq: Option<i64>,
            row: u32,
        }
    }

    fn written(rows: &[Row], dir: &Directory) -> SerializedFileReader<File> {
        let path = dir.file("table.parquet");
        let out = Output::open(Some(&path), true).unwrap();
        let mut table = Table::new(out, Texts::default(), FileRow::columns()).unwrap();
        for ((few, many, seq), row) in rows.iter().zip(0..) {
            let few = few.as_ref().map(|few| table.texts.id(few.as_bytes()));
            let many = table.texts.id(many.as_bytes());
            table.push(FileRow { few, many, seq: *seq, row }).unwrap();
        }
        table.finish(Ok(()), &[("trace", "{}".to_owned())]).unwrap();
        SerializedFileReader::new(File::open(path).unwrap()).unwrap()
    }

    /// The crate's reader finds what was written, with widths of 0 to 17 bits, runs and groups, in one row group or several.
    #[test]
    #[cfg_attr(target_endian = "big", ignore = "Parquet is not written on a big-endian machine")]
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
                let wanted = [text(&expected.0), text(&Some(expected.1.clone())), number, Field::Int(read as i32)];
                assert_eq!(values, wanted.iter().collect::<Vec<_>>(), "row {read} of {count}");
                read += 1;
            }
            assert_eq!(read, count);
        }
    }
}
