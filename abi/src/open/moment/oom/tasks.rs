//! The table of tasks: a line a process, in pages.

use super::super::entry::{Fact, Out};
use super::super::numbers::{self, number, product, signed, trimmed, words};
use crate::open::symbols::find;
use crate::text::split::split_once;

/// Numbers before the name where the head of the table was lost: `uid tgid total_vm rss pgtables_bytes swapents oom_score_adj`.
const USUAL_COLUMNS: usize = 7;
/// Place of `rss` where the head was lost; all kernels have it there.
const USUAL_RSS: usize = 3;

/// True for the table's head: `[  pid  ]   uid  tgid total_vm      rss …`.
pub(super) fn is_head(line: &[u8]) -> bool {
    let line = trimmed(line);
    line.starts_with(b"[") && find(line, b"pid").is_some() && find(line, b" uid ").is_some() && line.ends_with(b" name")
}

/// What was read.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// Columns between the pid and the name, and the place of `rss` among them.
    columns: Option<(usize, usize)>,
    /// Id, command and resident pages.
    tasks: Vec<(i32, Box<[u8]>, u64)>,
    skipped: usize,
}

impl Tasks {
    /// Takes a line; false for one of another form.
    pub(super) fn take(&mut self, line: &[u8]) -> bool {
        let line = trimmed(line);
        if line.starts_with(b"Tasks state (") {
            return true;
        }
        if is_head(line) {
            let behind = split_once(line, b']').map_or(line, |(_, behind)| behind);
            let columns = words(behind).count().saturating_sub(1);
            let rss = words(behind).position(|word| word == b"rss").unwrap_or(USUAL_RSS);
            self.columns = Some((columns, rss));
            return true;
        }
        self.take_task(line)
    }

    /// `[     77]     0    77     1234      567    45056        0             0 example`.
    fn take_task(&mut self, line: &[u8]) -> bool {
        let Some((pid, rest)) = line.strip_prefix(b"[").and_then(|line| split_once(line, b']')) else { return false };
        let pid = trimmed(pid);
        let (columns, rss) = self.columns.unwrap_or((USUAL_COLUMNS, USUAL_RSS));
        let numbers: Vec<&[u8]> = words(rest).take(columns).collect();
        let is_row = numbers::is_digits(pid) && numbers.len() == columns && numbers.iter().all(|word| is_number(word));
        let (Some(pages), Some(last)) = (numbers.get(rss).filter(|_| is_row), numbers.last()) else { return false };
        // The name is what follows the numbers: it may have blanks.
        let behind = (last.as_ptr_range().end as usize).saturating_sub(rest.as_ptr() as usize);
        let name = trimmed(rest.get(behind..).unwrap_or_default());
        match (numbers::pid(pid), number(pages)) {
            (Ok(pid), Ok(pages)) => self.tasks.push((pid, name.into(), pages)),
            _ => self.skipped = self.skipped.saturating_add(1),
        }
        true
    }

    /// Hands the tasks over; the number of those that are out of range.
    pub(super) fn put(&self, page_bytes: u64, out: &mut dyn Out) -> usize {
        let mut skipped = self.skipped;
        if !self.tasks.is_empty() {
            out.fact(Fact::CountsPages);
        }
        for (pid, comm, pages) in &self.tasks {
            match product(*pages, page_bytes) {
                Ok(bytes) => out.fact(Fact::Process(*pid, comm, bytes)),
                Err(_) => skipped = skipped.saturating_add(1),
            }
        }
        skipped
    }
}

fn is_number(word: &[u8]) -> bool {
    signed(word) != Err(numbers::NO_NUMBER)
}
