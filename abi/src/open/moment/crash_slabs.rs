//! What `kmem -s` of crash and of drgn's crash commands prints.
//!
//! ```text
//! CACHE             OBJSIZE  ALLOCATED     TOTAL  SLABS  SSIZE  NAME
//! ffff888100042a00      192       1234      1300     65     4k  dentry
//! ```

use super::entry::{Out, Reader, Took, Trouble};
use super::numbers::{Reason, number, product, size, trimmed, words};
use super::slabinfo::Line;
use crate::listed::SlabColumns;
use crate::open::symbols::find;

/// True for the table's head.
pub(super) fn begins(line: &[u8]) -> bool {
    let line = trimmed(line);
    line.starts_with(b"CACHE ") && find(line, b"SSIZE").is_some() && find(line, b"ALLOCATED").is_some()
}

/// Where the name stands: behind the numbers, or before them in old versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Order {
    #[default]
    NameLast,
    NameFirst,
}

/// Reader of the form.
#[derive(Debug)]
pub(super) struct CrashSlabs {
    order: Order,
    page_bytes: u64,
    has_rows: bool,
}

impl CrashSlabs {
    /// Slabs are told in bytes, so the size of a page tells their pages.
    pub(super) fn new(page_bytes: u64) -> CrashSlabs {
        CrashSlabs { order: Order::default(), page_bytes: page_bytes.max(1), has_rows: false }
    }

    /// `None` for a line of another form.
    fn row<'l>(&self, line: &'l [u8]) -> Option<Result<Line<'l>, Reason>> {
        let (address, rest) = super::numbers::first_word(line);
        let is_address = matches!(address.len(), 8 | 16) && address.iter().all(u8::is_ascii_hexdigit);
        let columns: Vec<&[u8]> = words(rest).collect();
        if !is_address || columns.len() < 6 {
            return None;
        }
        let (name, numbers) = match self.order {
            Order::NameLast => columns.split_first_chunk().map(|(numbers, name)| (name, numbers))?,
            Order::NameFirst => columns.split_last_chunk()?,
        };
        let (begin, end) = (name.first()?, name.last()?);
        let place = |word: &[u8]| (word.as_ptr() as usize).saturating_sub(rest.as_ptr() as usize);
        let name = rest.get(place(begin)..place(end).saturating_add(end.len()))?;
        Some(self.columns(name, numbers))
    }

    fn columns<'l>(&self, cache: &'l [u8], numbers: &[&[u8]; 5]) -> Result<Line<'l>, Reason> {
        let &[object, allocated, total, slabs, slab] = numbers;
        let known = |word: &[u8]| if word == b"?" { Ok(None) } else { number(word).map(Some) };
        let (num_objs, num_slabs) = (known(total)?, known(slabs)?);
        let slab_bytes = if slab == b"?" { None } else { Some(size(slab, 0)?.bytes) };
        let columns = SlabColumns {
            active_objs: known(allocated)?,
            num_objs,
            objsize: known(object)?,
            objperslab: num_objs.zip(num_slabs).and_then(|(objects, slabs)| objects.checked_div(slabs)),
            pagesperslab: slab_bytes.and_then(|bytes| bytes.checked_div(self.page_bytes)),
            active_slabs: None,
            num_slabs,
            bytes: num_slabs.zip(slab_bytes).map(|(slabs, bytes)| product(slabs, bytes)).transpose()?,
        };
        Line { cache, columns, bytes: None }.with_bytes()
    }
}

impl Reader for CrashSlabs {
    fn take(&mut self, line: &[u8], out: &mut dyn Out) -> Took {
        if begins(line) {
            if self.has_rows {
                return Took::NextText;
            }
            let is_old = words(line).nth(1) == Some(b"NAME");
            self.order = if is_old { Order::NameFirst } else { Order::NameLast };
            return Took::Line;
        }
        match self.row(line) {
            Some(row) => {
                self.has_rows = true;
                match row {
                    Ok(row) => row.put(out),
                    Err(reason) => out.trouble(Trouble::SkippedBlock(reason)),
                }
            }
            None if trimmed(line).is_empty() => {}
            None => return Took::NoLine,
        }
        Took::Line
    }

    fn end(&mut self, is_cut: bool, out: &mut dyn Out) {
        if is_cut {
            out.trouble(Trouble::Cut("ends inside a line"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trial::{Sums, damage, largest, read};
    use super::*;

    const TEXT: &str = "CACHE             OBJSIZE  ALLOCATED     TOTAL  SLABS  SSIZE  NAME
ffff888100042a00      192       1234      1300     65     4k  dentry
ffff888100042b00     1024          ?      1300      0     8k  kmalloc-1k
";
    const OLD: &str = "CACHE            NAME                 OBJSIZE  ALLOCATED     TOTAL  SLABS  SSIZE
c1c6e000         exampl drv               192       1234      1300     65     4k
";

    #[test]
    fn slabs_have_bytes_and_pages() {
        let told = read(|| CrashSlabs::new(4096), TEXT.as_bytes());
        assert_eq!((told.others, told.troubles.len(), told.entries.len()), (0, 0, 2));
        let [dentry, class] = &told.entries[..] else { unreachable!() };
        assert_eq!((dentry.objects, dentry.allocated), (Some(1234), Some(1234 * 192)));
        let columns =
            "objperslab: Some(20), pagesperslab: Some(1), active_slabs: None, num_slabs: Some(65), bytes: Some(266240)";
        assert!(dentry.beside.contains(columns), "{}", dentry.beside);
        assert_eq!((class.objects, class.allocated, class.cache.as_deref()), (None, None, Some("kmalloc-1k")));
        assert!(class.beside.contains("objperslab: None, pagesperslab: Some(2)"));
    }

    #[test]
    fn old_versions_have_the_name_first() {
        let told = read(|| CrashSlabs::new(4096), OLD.as_bytes());
        assert_eq!((told.entries[0].cache.as_deref(), told.entries[0].objects), (Some("exampl drv"), Some(1234)));
        assert_eq!(read(|| CrashSlabs::new(4096), [TEXT, OLD].concat().as_bytes()).texts, 2);
    }

    /// The most that the lines of a text may tell.
    fn most(text: &[u8]) -> Sums {
        Sums::of_lines(text, |line| {
            let (objects, allocated) = largest(line);
            Sums { objects, allocated, ..Sums::default() }
        })
    }

    #[test]
    fn damage_does_no_harm() {
        damage(|| CrashSlabs::new(4096), TEXT.as_bytes(), most);
        damage(|| CrashSlabs::new(65536), OLD.as_bytes(), most);
    }
}
