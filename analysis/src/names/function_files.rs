//! Source files of functions by name, where addresses say nothing: from another build, or from objects.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::names::work::{Spent, Work};

/// Neighbours that are asked about a name of several files.
const MAX_NEIGHBOURS: usize = 256;
/// Steps of passing over symbols that are no neighbours.
const STEPS_OF_NEIGHBOURS: u64 = 1024;
/// Number of the kernel itself among the modules.
const KERNEL: u32 = 0;
/// Number that no module has.
const UNKNOWN: u32 = u32::MAX;

/// Source files of functions. A name may be that of functions in several files.
#[derive(Debug, Default)]
pub(crate) struct FunctionFiles {
    /// All names, one after the other.
    text: Vec<u8>,
    /// Ascending by name.
    entries: Vec<FunctionEntry>,
    files: Vec<Box<[u8]>>,
    modules: HashMap<Box<[u8]>, u32>,
    /// Work that is left for questions.
    work: Mutex<Work>,
}

/// Function of a file.
#[derive(Clone, Copy, Debug)]
struct FunctionEntry {
    /// Begin and end of its name.
    name: (u32, u32),
    file: u32,
    /// Number of its module; [`KERNEL`] for none.
    module: u32,
}

impl FunctionFiles {
    /// Begins a file, of a module if one is named: functions that are added next are in it.
    pub(crate) fn begin_file(&mut self, file: &[u8]) {
        self.files.push(file.into());
    }

    /// Number of a module, for [`FunctionFiles::add`]; 0 for the kernel itself.
    pub(crate) fn module(&mut self, module: Option<&[u8]>) -> u32 {
        let Some(name) = module else { return KERNEL };
        let next = u32::try_from(self.modules.len().saturating_add(1)).unwrap_or(KERNEL);
        *self.modules.entry(plain_module(name)).or_insert(next)
    }

    /// Adds a function of the last file. A table has at most 4 GiB of names.
    pub(crate) fn add(&mut self, function: &[u8], module: u32) {
        let place = (u32::try_from(self.text.len()), u32::try_from(self.text.len().saturating_add(function.len())));
        if let ((Ok(begin), Ok(end)), Some(file)) = (place, self.files.len().checked_sub(1)) {
            self.text.extend_from_slice(function);
            self.entries.push(FunctionEntry {
                name: (begin, end),
                file: u32::try_from(file).unwrap_or(u32::MAX),
                module,
            });
        }
    }

    /// Bytes of all names.
    pub(crate) fn text_len(&self) -> u64 {
        self.text.len() as u64
    }

    /// Memory that a line takes beside its text: an entry, or the path of a file.
    pub(crate) const BYTES_OF_LINE: usize = 48;

    /// A table that was left out for what its file takes.
    pub(crate) fn left_out(spent: Spent) -> FunctionFiles {
        FunctionFiles { work: Mutex::new(Work::done(spent)), ..FunctionFiles::default() }
    }

    /// Makes the table ready for questions, which may take this much work.
    pub(crate) fn finish(mut self, work: Work) -> FunctionFiles {
        let text = std::mem::take(&mut self.text);
        let key =
            |entry: &FunctionEntry| (text.get(entry.name.0 as usize..entry.name.1 as usize), entry.module, entry.file);
        self.entries.sort_unstable_by(|a, b| key(a).cmp(&key(b)));
        self.entries.dedup_by(|a, b| key(a) == key(b));
        FunctionFiles { text, work: Mutex::new(work), ..self }
    }

    /// Number of functions.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Source file of a function. A name of several files takes that of its nearest neighbour that is in one of them alone:
    /// `neighbours` are the names of functions around it, the nearest first, which are asked for only then.
    ///
    /// A function of a module is looked for in that module, and elsewhere only as far as its neighbours say the same: one build's
    /// module is part of another's kernel, but a module from elsewhere has names that others have, too.
    pub(crate) fn file_of<'n, I: Iterator<Item = &'n [u8]>>(
        &self,
        function: &[u8],
        module: Option<&[u8]>,
        neighbours: impl FnOnce() -> I,
    ) -> Option<&[u8]> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        self.find(function, module, neighbours, &mut work).ok()?
    }

    /// The reason for which questions have no answers any more.
    pub(crate) fn spent(&self) -> Option<Spent> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).spent()
    }

    fn find<'n, I: Iterator<Item = &'n [u8]>>(
        &self,
        function: &[u8],
        module: Option<&[u8]>,
        neighbours: impl FnOnce() -> I,
        work: &mut Work,
    ) -> Result<Option<&[u8]>, Spent> {
        // A module that the table does not have has no functions here.
        let module = module.map_or(KERNEL, |name| self.modules.get(&*plain_module(name)).copied().unwrap_or(UNKNOWN));
        let own = self.files_of(function, Some(module), work)?;
        let file = match own[..] {
            [only] => Some(only),
            [] => self.nearest(&self.files_of(function, None, work)?, None, neighbours(), work)?,
            _ => self.nearest(&own, Some(module), neighbours(), work)?,
        };
        Ok(file.and_then(|file| self.files.get(file as usize)).map(|file| &**file))
    }

    /// File, of these, of the first neighbour that is in one of them alone.
    fn nearest<'n>(
        &self,
        files: &[u32],
        module: Option<u32>,
        neighbours: impl Iterator<Item = &'n [u8]>,
        work: &mut Work,
    ) -> Result<Option<u32>, Spent> {
        if files.is_empty() {
            return Ok(None);
        }
        work.take(STEPS_OF_NEIGHBOURS)?;
        for name in neighbours.take(MAX_NEIGHBOURS) {
            // `files` are ascending.
            if let [only] = self.files_of(name, module, work)?[..]
                && files.binary_search(&only).is_ok()
            {
                return Ok(Some(only));
            }
        }
        Ok(None)
    }

    /// Files of a name, of a module or of all, each once.
    fn files_of(&self, function: &[u8], module: Option<u32>, work: &mut Work) -> Result<Vec<u32>, Spent> {
        let name = plain_function(function);
        let begin = self.entries.partition_point(|entry| self.name(entry) < name);
        let rest = self.entries.get(begin..).unwrap_or_default();
        let of_name = rest.get(..rest.partition_point(|entry| self.name(entry) == name)).unwrap_or_default();
        work.look_at(name.len().saturating_mul(32))?;
        work.take(of_name.len() as u64)?;
        let of_name = of_name.iter();
        let is_own = |entry: &&FunctionEntry| module.is_none_or(|module| entry.module == module);
        let mut files: Vec<u32> = of_name.filter(is_own).map(|entry| entry.file).collect();
        files.sort_unstable();
        files.dedup();
        Ok(files)
    }

    fn name(&self, entry: &FunctionEntry) -> &[u8] {
        self.text.get(entry.name.0 as usize..entry.name.1 as usize).unwrap_or_default()
    }
}

/// Name of a function without what a compiler adds to it: `.isra.0`, `.part.0`, `.constprop.0`, `.cold`. Other builds add other
/// ends.
pub(crate) fn plain_function(name: &[u8]) -> &[u8] {
    match memchr::memchr(b'.', name) {
        None | Some(0) => name,
        Some(end) => name.get(..end).unwrap_or(name),
    }
}

/// Name of a module as the kernel has it: `-` in the name of its file is `_`.
fn plain_module(name: &[u8]) -> Box<[u8]> {
    name.iter().map(|&byte| if byte == b'-' { b'_' } else { byte }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> FunctionFiles {
        let mut table = FunctionFiles::default();
        table.begin_file(b"fs/a.c");
        for name in [&b"init"[..], b"a_open", b"a_close"] {
            table.add(name, KERNEL);
        }
        table.begin_file(b"fs/b.c");
        for name in [&b"init"[..], b"b_open", b"b_close"] {
            table.add(name, KERNEL);
        }
        let module = table.module(Some(b"snd-hda"));
        table.begin_file(b"sound/hda.c");
        table.add(b"init", module);
        table.add(b"hda_open", module);
        table.add(b"hda_close", module);
        table.finish(Work::of(0))
    }

    #[test]
    fn a_name_of_several_files_takes_that_of_its_nearest_neighbour() {
        let table = table();
        let file = |name: &str, module: Option<&str>, around: &[&str]| {
            let neighbours = || around.iter().map(|name| name.as_bytes());
            let file = table.file_of(name.as_bytes(), module.map(str::as_bytes), neighbours);
            file.map(|file| String::from_utf8(file.to_vec()).unwrap())
        };
        assert_eq!(file("a_open.isra.0", None, &[]).as_deref(), Some("fs/a.c"));
        assert_eq!(file("init", None, &["unknown", "b_open", "a_open"]).as_deref(), Some("fs/b.c"));
        assert_eq!(file("init", None, &["init", "a_close.cold", "b_open"]).as_deref(), Some("fs/a.c"));
        assert_eq!(file("init", None, &["unknown"]), None, "none is better than a wrong one");
        assert_eq!(file("init", Some("snd_hda"), &[]).as_deref(), Some("sound/hda.c"));
        // Part of the kernel in one build, a module in the other: the neighbours must be there, too.
        assert_eq!(file("hda_open", None, &["a_open", "hda_close"]).as_deref(), Some("sound/hda.c"));
        assert_eq!(file("b_open", Some("b"), &["b_close"]).as_deref(), Some("fs/b.c"));
        assert_eq!(file("b_open", Some("from_elsewhere"), &["x_open", "a_open"]), None);
        assert_eq!(file("b_open", Some("snd-hda"), &["hda_open"]), None);
        assert_eq!((file("c_open", None, &[]), table.len()), (None, 9));
    }
}
