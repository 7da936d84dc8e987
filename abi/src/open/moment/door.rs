//! One door for all texts: finds the form of each line's text, and lets its reader take it.
//!
//! A text may have several forms behind each other, as a log has, and several texts of one form. Lines go to the reader that took the
//! line before; one that it does not take goes to the form that begins with it, else it counts as skipped.

use std::io;

use super::collect::Collector;
use super::dates;
use super::entry::{Fact, FormName, Out, Reader, Took, Trouble};
use super::form::{About, FORMS, Form, of_line};
use super::machine;
use super::noise::{self, Aside};
use super::places::frame;
use crate::memory::Meter;
use crate::open::lines::{Line, Lines, MAX_LINE};

/// Limit of texts of one file: each has tables of its own.
const MAX_TEXTS: u64 = 10_000;
/// Bytes that an empty text takes, about.
const TEXT_BYTES: u64 = 16 << 10;

/// A text that was read.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) name: FormName,
    pub(crate) collector: Collector,
    /// Number of its first line, from 1.
    pub(crate) line: u64,
}

/// A text that is read.
struct Open {
    /// Place of its form in [`FORMS`].
    form: usize,
    reader: Box<dyn Reader>,
    text: Text,
    /// Its first line is one that a text begins with, rather than one that it may begin with.
    has_head: bool,
}

/// Reader of the texts of one file.
struct Door<'a> {
    about: About<'a>,
    /// Texts that are read, one of a form at most.
    open: Vec<Open>,
    /// Place in `open` of the text that took the latest line.
    current: Option<usize>,
    ended: Vec<Text>,
    /// Form that the caller names, as a place in [`FORMS`].
    asked: Option<usize>,
    /// What was seen before a text: skipped lines, a mark of loss, a date, a release.
    before: Before,
    /// A command or a date follows the latest line that a reader took.
    is_apart: bool,
    /// A text has begun with its first line, or has had a block.
    has_begun: bool,
    /// Before that: the latest lines are frames.
    is_behind_frames: bool,
    /// The latest line stands behind a date and a time of day.
    is_stamped: bool,
    /// Number and offset of the line.
    at: (u64, u64),
}

/// What was seen before the first line of a text.
#[derive(Default)]
struct Before {
    skipped: u64,
    /// The latest of them is a line of `=`.
    has_rule: bool,
    has_dropped: bool,
    date: Option<i64>,
    kernel: Option<Box<[u8]>>,
    arch: Option<Box<[u8]>>,
}

impl Before {
    fn note_machine(&mut self, told: &machine::Told<'_>) {
        self.kernel = told.kernel.map(Box::from).or(self.kernel.take());
        self.arch = told.arch.map(Box::from).or(self.arch.take());
    }
}

/// Reads the texts of a file.
///
/// # Errors
/// Errors of the system before the first line; [`OverLimit`](crate::memory::OverLimit) inside where the texts take too much memory.
pub(super) fn read(lines: &mut Lines, about: About<'_>) -> io::Result<Vec<Text>> {
    let asked = about.options.form.as_deref().and_then(|word| FORMS.iter().position(|form| form.is(word)));
    let mut door = Door {
        about,
        open: Vec::new(),
        current: None,
        ended: Vec::new(),
        asked,
        before: Before::default(),
        is_apart: false,
        has_begun: false,
        is_behind_frames: false,
        is_stamped: false,
        at: (0, 0),
    };
    let mut scratch = Vec::new();
    let mut is_cut = false;
    let (mut meter, mut texts) = (Meter::default(), 0);
    loop {
        let line = match lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) if door.open.is_empty() => return Err(error),
            Err(_) => {
                door.trouble(Trouble::Cut("could not be read to its end"));
                break;
            }
        };
        door.at = (line.number, line.offset);
        // What is kept grows with what is read, and with each text.
        let begun = door.texts();
        let of_texts = begun.saturating_sub(texts).saturating_mul(TEXT_BYTES);
        meter.take(of_texts.saturating_add(line.bytes.len() as u64)).map_err(io::Error::other)?;
        texts = begun;
        // Before a text no form takes an empty line; a packed file of some kilobytes may have millions of them.
        if line.bytes.is_empty() && line.is_whole && door.current.is_none() {
            continue;
        }
        if line.is_long || line.bytes.len() > MAX_LINE {
            door.skip();
            is_cut = !line.is_whole && lines.has_ended();
            continue;
        }
        is_cut = !line.is_whole;
        if is_cut {
            is_cut = door.take_last(&line, &mut scratch);
        } else {
            door.take(&line, &mut scratch);
        }
    }
    Ok(door.end(is_cut))
}

impl Door<'_> {
    /// Number of texts that have begun.
    fn texts(&self) -> u64 {
        self.ended.len().saturating_add(self.open.len()) as u64
    }

    fn take(&mut self, line: &Line<'_>, scratch: &mut Vec<u8>) {
        let cleaned = self.unless_stamp(noise::clean(line.bytes, scratch), line.bytes);
        let is_taken = self.offer(cleaned);
        self.note_frame(cleaned, is_taken);
        if is_taken {
            self.note_time(line);
            return;
        }
        let date =
            if cleaned.is_empty() { None } else { dates::of_line(line.bytes).or_else(|| dates::of_line(cleaned)) };
        if let Some(date) = date {
            self.before.date = Some(date);
            self.is_apart = true;
            return;
        }
        match noise::what_is(cleaned) {
            Some(Aside::Prompt(rest)) => {
                self.is_apart |= !rest.is_empty();
                // The line may be one of the text, where the command and its newline were lost.
                self.offer(rest);
            }
            Some(Aside::ReadFailed) => self.trouble(Trouble::Cut("ends early: reading it failed")),
            Some(Aside::Dropped(rest)) => {
                self.before.has_dropped |= self.current.is_none();
                self.trouble(Trouble::Dropped);
                self.offer(noise::without_prefixes(rest));
            }
            None => self.skip_unless_known(cleaned),
        }
    }

    /// The line, or an empty one for the stamp of an empty line in a log. Where no line before it had a stamp, `date` has printed it.
    fn unless_stamp<'l>(&mut self, line: &'l [u8], stamped: &[u8]) -> &'l [u8] {
        if !noise::has_form(stamped, b"0000-00-00 00:00:00") {
            self.is_stamped = false;
        } else if dates::of_line(line).is_none() {
            self.is_stamped = true;
        } else if self.is_stamped {
            return b"";
        }
        line
    }

    /// Notes frames before the first block of all: they are of a block whose begin is missing, if no other line stands between.
    fn note_frame(&mut self, line: &[u8], is_taken: bool) {
        if self.has_begun || line.trim_ascii().is_empty() {
            return;
        }
        let current = self.current.and_then(|at| self.open.get(at)).filter(|_| is_taken);
        self.has_begun = current.is_some_and(|open| open.has_head || !open.text.collector.is_empty());
        let is_of_cut_block = !self.has_begun && (frame(line).is_some() || is_taken && self.is_behind_frames);
        self.is_behind_frames = is_of_cut_block;
    }

    /// Notes the time before the first line of an OOM report.
    fn note_time(&mut self, line: &Line<'_>) {
        let Some(open) = self.current.and_then(|at| self.open.get_mut(at)) else { return };
        if open.text.line == line.number
            && open.text.name.form == "oom"
            && let Some(at) = dates::of_stamp(line.bytes)
        {
            open.text.collector.fact(Fact::TakenAt(at));
        }
    }

    /// Takes a last line without newline; true if the text is cut there.
    fn take_last(&mut self, line: &Line<'_>, scratch: &mut Vec<u8>) -> bool {
        let cleaned = noise::clean(line.bytes, scratch);
        if matches!(noise::what_is(cleaned), Some(Aside::Prompt(rest)) if rest.is_empty()) {
            return false;
        }
        if let Some(Aside::ReadFailed) = noise::what_is(cleaned) {
            self.trouble(Trouble::Cut("ends early: reading it failed"));
            return false;
        }
        let Some(open) = self.current.and_then(|at| self.open.get_mut(at)) else { return true };
        if open.reader.begins_block(cleaned) {
            open.text.collector.at_line(self.at.0, self.at.1);
            open.text.collector.trouble(Trouble::Cut("ends inside a block"));
            return false;
        }
        true
    }

    /// Counts a line that no reader has taken, unless it tells the kernel's release.
    fn skip_unless_known(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let told = machine::told(line);
        match self.current.and_then(|at| self.open.get_mut(at)) {
            Some(open) => told.put(&mut open.text.collector),
            None => {
                self.before.note_machine(&told);
                self.note_rule(line);
            }
        }
        self.skip();
    }

    /// Notes a line of `=` before the first text: a report on a slab begins with it.
    fn note_rule(&mut self, line: &[u8]) {
        let line = line.trim_ascii();
        self.before.has_rule = line.len() > 8 && line.iter().all(|byte| *byte == b'=');
    }

    fn skip(&mut self) {
        match self.current.and_then(|at| self.open.get_mut(at)) {
            Some(open) => open.text.collector.skip_line(),
            None => self.before.skipped = self.before.skipped.saturating_add(1),
        }
    }

    fn trouble(&mut self, trouble: Trouble) {
        if let Some(open) = self.current.and_then(|at| self.open.get_mut(at)) {
            open.text.collector.at_line(self.at.0, self.at.1);
            open.text.collector.trouble(trouble);
        }
    }

    /// Offers a line to the reader that took the latest one, and to the form that begins with it; true if one of them took it.
    fn offer(&mut self, line: &[u8]) -> bool {
        if let Some(at) = self.current {
            let form = self.open.get(at).map_or(0, |open| open.form);
            let is_inside = self.open.get(at).is_some_and(|open| open.reader.is_inside());
            let begins = |form: &Form| (form.begins)(line) || !is_inside && (form.may_begin)(line);
            if self.is_apart && FORMS.get(form).is_some_and(begins) {
                self.end_text(at, false);
                return self.begin(form, line);
            }
            if self.take_by(at, line) {
                return true;
            }
        }
        if self.asked.is_some() {
            return self.current.is_none() && self.begin_asked(line);
        }
        match of_line(line) {
            Some(form) => self.switch(form, line),
            None if self.current.is_none() => {
                FORMS.iter().position(|form| (form.may_begin)(line)).is_some_and(|form| self.switch(form, line))
            }
            None => false,
        }
    }

    fn take_by(&mut self, at: usize, line: &[u8]) -> bool {
        let Some(open) = self.open.get_mut(at) else { return false };
        open.text.collector.at_line(self.at.0, self.at.1);
        match open.reader.take(line, &mut open.text.collector) {
            Took::Line => {
                self.current = Some(at);
                // An empty line belongs to what is before it.
                self.is_apart &= line.is_empty();
                true
            }
            Took::NoLine => false,
            Took::NextText => {
                let form = open.form;
                self.finish(at);
                self.begin(form, line)
            }
        }
    }

    /// The text of a form goes on with a line, or begins with it.
    fn switch(&mut self, form: usize, line: &[u8]) -> bool {
        match self.open.iter().position(|open| open.form == form) {
            Some(at) if Some(at) == self.current => false,
            Some(at) => self.take_by(at, line),
            None => self.begin(form, line),
        }
    }

    fn begin_asked(&mut self, line: &[u8]) -> bool {
        self.asked.is_some_and(|form| self.begin(form, line))
    }

    /// Begins a text with a line; false if its reader does not take it.
    fn begin(&mut self, form: usize, line: &[u8]) -> bool {
        let Some(found) = FORMS.get(form).filter(|_| self.texts() < MAX_TEXTS) else {
            return false;
        };
        let mut collector = Collector::new(self.about.options);
        let mut reader = (found.reader)(&self.about);
        collector.at_line(self.at.0, self.at.1);
        if reader.take(line, &mut collector) != Took::Line {
            return false;
        }
        let before = std::mem::take(&mut self.before);
        if self.is_behind_frames && found.has_frames_last {
            collector.trouble(Trouble::Cut("begins inside a block"));
        }
        let is_of_report = before.has_rule && found.name.input == "slab_report";
        (u64::from(is_of_report)..before.skipped).for_each(|_| collector.skip_line());
        if before.has_dropped {
            collector.trouble(Trouble::Dropped);
        }
        if let Some(date) = before.date {
            collector.fact(Fact::TakenAt(date));
        }
        machine::Told { kernel: before.kernel.as_deref(), arch: before.arch.as_deref() }.put(&mut collector);
        self.current = Some(self.open.len());
        self.is_apart = false;
        let text = Text { name: found.name, collector, line: self.at.0 };
        self.open.push(Open { form, reader, text, has_head: (found.begins)(line) });
        true
    }

    /// Ends a text that is read.
    fn end_text(&mut self, at: usize, is_cut: bool) {
        if let Some(open) = self.open.get_mut(at) {
            open.text.collector.at_line(self.at.0, self.at.1);
            open.reader.end(is_cut, &mut open.text.collector);
        }
        self.finish(at);
    }

    /// Puts a text whose reader has ended away.
    fn finish(&mut self, at: usize) {
        let Open { reader, text, .. } = self.open.remove(at);
        let name = reader.form().unwrap_or(text.name);
        self.ended.push(Text { name, ..text });
        self.current = None;
    }

    fn end(mut self, is_cut: bool) -> Vec<Text> {
        let current = self.current;
        for at in (0..self.open.len()).rev() {
            self.end_text(at, is_cut && current == Some(at));
        }
        self.ended.sort_by_key(|text| text.line);
        self.ended
    }
}

#[cfg(test)]
mod tests;
