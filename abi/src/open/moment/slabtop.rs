//! What `slabtop -o` of procps prints.
//!
//! ```text
//!   OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME
//!  43146  41000  95%    0.19K   2054       21      8216K dentry
//! ```

use super::entry::{Out, Reader, Took, Trouble};
use super::numbers::{Reason, is_digits, number, size, trimmed, words};
use super::slabinfo::Line;
use crate::listed::SlabColumns;
use crate::open::symbols::find;

/// First line of the five above the table.
const FIRST: &[u8] = b"Active / Total Objects (% used)";

/// True for the first line, and for the table's head.
pub(super) fn begins(line: &[u8]) -> bool {
    trimmed(line).starts_with(FIRST) || is_head(line)
}

fn is_head(line: &[u8]) -> bool {
    trimmed(line).starts_with(b"OBJS ACTIVE ") && find(line, b"CACHE SIZE").is_some()
}

/// `None` for a line of another form.
fn parsed(line: &[u8]) -> Option<Result<Line<'_>, Reason>> {
    let line = trimmed(line);
    let columns: Vec<&[u8]> = words(line).take(7).collect();
    let [objects, active, used, ..] = columns[..] else { return None };
    if !(is_digits(objects) && is_digits(active) && used.ends_with(b"%")) {
        return None;
    }
    Some(row(line, &columns))
}

fn row<'l>(line: &'l [u8], columns: &[&[u8]]) -> Result<Line<'l>, Reason> {
    let &[objects, active, _, _, slabs, per_slab, bytes] = columns else { return Err("lacks a column") };
    // Names may have blanks, so the name is all that follows.
    let behind = |rest: &'l [u8], word: &&[u8]| {
        let end = find(rest, word).unwrap_or(0).saturating_add(word.len());
        rest.get(end..).unwrap_or_default()
    };
    let cache = trimmed(columns.iter().fold(line, behind));
    if cache.is_empty() {
        return Err("lacks its name");
    }
    let columns = SlabColumns {
        active_objs: Some(number(active)?),
        num_objs: Some(number(objects)?),
        num_slabs: Some(number(slabs)?),
        objperslab: Some(number(per_slab)?),
        bytes: Some(size(bytes, 10)?.bytes),
        ..SlabColumns::default()
    };
    Line { cache, columns, bytes: None }.with_bytes()
}

/// Reader of the form.
#[derive(Debug, Default)]
pub(super) struct Slabtop {
    has_first: bool,
    has_head: bool,
    has_rows: bool,
}

impl Reader for Slabtop {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        let line = trimmed(line);
        if line.starts_with(FIRST) || is_head(line) {
            let is_first = line.starts_with(FIRST);
            if self.has_rows || is_first && self.has_first {
                return Took::NextText;
            }
            self.has_first |= is_first;
            self.has_head |= !is_first;
            return Took::Line;
        }
        match parsed(line) {
            Some(row) => {
                self.has_rows = true;
                match row {
                    Ok(row) => row.put(out),
                    Err(reason) => out.trouble(Trouble::SkippedBlock(reason)),
                }
            }
            None if line.is_empty() || line.starts_with(b"Active / ") || line.starts_with(b"Minimum / ") => {}
            None => return Took::NoLine,
        }
        Took::Line
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        if is_cut || self.has_first && !self.has_head {
            out.trouble(Trouble::Cut("ends inside a line"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Sums, damage, largest, read};
    use super::*;

    const TEXT: &str = " Active / Total Objects (% used)    : 41010 / 43166 (95.0%)
 Active / Total Slabs (% used)      : 2055 / 2055 (100.0%)
 Active / Total Caches (% used)     : 78 / 110 (70.9%)
 Active / Total Size (% used)       : 83.97K / 84.34K (99.6%)
 Minimum / Average / Maximum Object : 0.01K / 0.19K / 8.00K

  OBJS ACTIVE  USE OBJ SIZE  SLABS OBJ/SLAB CACHE SIZE NAME
 43146  41000  95%    0.19K   2054       21      8216K dentry
    20     10  50%    1.00K      1       20        32 kmalloc 1k
     8      8 100%    8.00K      2        4       1.5M kmalloc-8k
";

    #[test]
    fn rounded_columns_are_unknown() {
        let told = read(Slabtop::default, TEXT.as_bytes());
        let rows: Vec<_> =
            told.entries.iter().map(|entry| (entry.cache.as_deref(), entry.objects, entry.allocated)).collect();
        let expected = [
            (Some("dentry"), Some(41000), None),
            (Some("kmalloc 1k"), Some(10), None),
            (Some("kmalloc-8k"), Some(8), None),
        ];
        assert_eq!(rows, expected);
        let columns = "active_objs: Some(41000), num_objs: Some(43146), objsize: None, objperslab: Some(21), pagesperslab: None, \
                       active_slabs: None, num_slabs: Some(2054), bytes: Some(8413184)";
        assert!(told.entries[0].beside.contains(columns), "{}", told.entries[0].beside);
        assert!(
            told.entries[1].beside.contains("bytes: Some(32768)")
                && told.entries[2].beside.contains("bytes: Some(1572864)")
        );
        assert_eq!((told.others, told.troubles.len()), (0, 0));
    }

    #[test]
    fn several_follow_each_other() {
        assert_eq!(read(Slabtop::default, TEXT.repeat(2).as_bytes()).texts, 2);
        let tables = &TEXT[TEXT.find("  OBJS").unwrap()..];
        assert_eq!(read(Slabtop::default, tables.repeat(2).as_bytes()).texts, 2);
    }

    /// The most that the lines of a text may tell.
    fn most(text: &[u8]) -> Sums {
        Sums::of_lines(text, |line| Sums { objects: largest(line).0, ..Sums::default() })
    }

    #[test]
    fn damage_does_no_harm() {
        damage(Slabtop::default, TEXT.as_bytes(), most);
    }
}
