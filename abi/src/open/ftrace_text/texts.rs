//! Texts of one trace after the first pass, and what each says about loss.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::buffers::{self, Buffers};
use super::scan::{self, Extent, Facts, Shared};
use super::sites::Known;
use crate::event::{Gap, GapCause};
use crate::fault::{Code, Fault};
use crate::kernel::release::Release;
use crate::open::lines::Lines;
use crate::open::listing::{io_error, no_trace};
use crate::open::options::OpenOptions;
use crate::stream::source::Lost;
use crate::trace::OpenError;

/// Bytes of a page where no option tells.
const USUAL_PAGE_BYTES: u64 = 4096;

/// Texts of one trace, after the first pass.
#[derive(Debug)]
pub(crate) struct Texts {
    pub(super) texts: Vec<Text>,
    pub(super) known: Known,
    pub(super) kallsyms: Vec<u8>,
    pub(super) comms: HashMap<i32, Box<[u8]>>,
    /// Names of events that may be of pairs which have no name here.
    pub(super) paired: HashSet<Box<[u8]>>,
    pub(super) release: Option<Release>,
    pub(super) kernel: Option<String>,
    pub(super) page_bytes: u64,
    /// CPUs that the kernel may have.
    pub(super) possible: Option<u32>,
}

/// A text.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    pub(super) bytes: u64,
    pub(super) facts: Facts,
    /// Ring buffers, and the one that is read.
    pub(super) buffers: Buffers,
    pub(super) gaps: Vec<Gap>,
    pub(super) lost: Lost,
    /// Findings for the end of the text.
    pub(super) faults: Vec<Fault>,
    pub(super) cut: Option<Fault>,
}

/// Reads the files a first time; `None` if the first of them is no text of events.
pub(crate) fn read(files: Vec<(PathBuf, Arc<File>)>, options: &OpenOptions) -> Result<Option<Texts>, OpenError> {
    let release = options.release.as_deref().and_then(Release::parse);
    let (mut shared, mut texts) = (Shared::default(), Vec::new());
    let count = files.len();
    for (path, file) in files {
        let (facts, buffers) = facts_of(&path, &file, (release, options), &mut shared)?;
        if facts.events == 0 {
            match facts.refusal {
                Some(refusal) => return Err(no_trace(&path, &refusal.text())),
                None if !facts.has_header && texts.is_empty() => return Ok(None),
                None => {}
            }
        }
        if count > 1 && facts.cpus.len() > 1 {
            let what = "has events of several CPUs: name it alone";
            return Err(io_error(&path)(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let bytes = file.metadata().map_err(io_error(&path))?.len();
        // A CPU without events has no number.
        if facts.events > 0 || count == 1 {
            let (gaps, lost, faults) = (Vec::new(), Lost::OfGaps, Vec::new());
            texts.push(Text { path, file, bytes, facts, buffers, gaps, lost, faults, cut: None });
        }
    }
    let whole = count > 1 && texts.iter().all(|text| text.facts.possible == Some(count as u32));
    let most = texts.iter().map(|text| text.facts.overwritten()).max().unwrap_or(0);
    for (index, text) in texts.iter_mut().enumerate() {
        text.judge(whole.then_some(if index == 0 { most } else { 0 }), most > 0);
    }
    let kernel = options.release.clone().or_else(|| texts.iter().find_map(|text| text.facts.kernel.clone()));
    let possible = texts.iter().find_map(|text| text.facts.possible);
    let Shared { sites, comms, paired } = shared;
    Ok(Some(Texts {
        texts,
        known: sites.known,
        kallsyms: sites.symbols.into_kallsyms(),
        comms,
        paired,
        release: kernel.as_deref().and_then(Release::parse),
        kernel,
        page_bytes: options.page_bytes.unwrap_or(USUAL_PAGE_BYTES),
        possible,
    }))
}

/// Facts of a text, or of the one of its buffers that is read.
fn facts_of(
    path: &Path,
    file: &Arc<File>,
    (release, options): (Option<Release>, &OpenOptions),
    shared: &mut Shared,
) -> Result<(Facts, Buffers), OpenError> {
    let mut scan =
        |buffers| scan::scan(&mut Lines::new(Arc::clone(file)), release, buffers, shared).map_err(io_error(path));
    let facts = scan(Buffers::default())?;
    if facts.events == 0 {
        return Ok((facts, Buffers::default()));
    }
    let chosen = buffers::choose(&facts.buffers, options.buffer.as_deref(), options.wanted);
    let chosen = chosen.map_err(|reason| OpenError::Choose { path: path.to_owned(), reason })?;
    match chosen.filter(|_| facts.buffers.len() > 1) {
        Some(name) => {
            let buffers = Buffers::only(name);
            Ok((scan(buffers.clone())?, buffers))
        }
        None => Ok((facts, Buffers::default())),
    }
}

impl Texts {
    /// Takes the number of CPUs that the kernel may have, where the text itself does not tell it.
    pub(crate) fn tell_cpus(&mut self, cpus: Option<u32>) {
        self.possible = self.possible.or(cpus.filter(|&cpus| cpus > 0));
    }
}

impl Text {
    /// Finds out what the text tells of loss, and what else there is to say. `of_all`: the part of this text in the events that were
    /// overwritten, where the texts of all CPUs are there.
    fn judge(&mut self, of_all: Option<u64>, has_overwritten: bool) {
        let facts = &mut self.facts;
        let (mut faults, overwritten) = (std::mem::take(&mut facts.faults), facts.overwritten());
        let mut add = |code: Code, message: String| faults.push(Fault { code, offset: 0, block: None, message });
        let untold = if facts.is_dump {
            Some("a dump on a console does not tell of lost events".to_owned())
        } else if facts.is_of_perf && !facts.has_loss_lines {
            Some(
                "perf script prints lost events only with --show-lost-events, and this text has none: loss is unknown"
                    .to_owned(),
            )
        } else if facts.has_header && facts.told.is_none() {
            Some("its header does not count entries, so lost events are not told".to_owned())
        } else if of_all.is_none() && facts.is_of_one_of_several() && overwritten > 0 {
            Some("its header counts the entries of all CPUs, so lost events of this one are not told".to_owned())
        } else {
            None
        };
        let has_begun_late = untold.is_none() && if of_all.is_some() { has_overwritten } else { overwritten > 0 };
        let lost = facts.lost.saturating_add(of_all.unwrap_or(overwritten));
        let is_told = untold.is_none() && !facts.has_uncounted;
        if is_told && lost > 0 {
            add(Code::Overrun, format!("{lost} events were lost"));
        } else if facts.has_uncounted {
            add(Code::Overrun, "events were lost, and the text does not say how many".to_owned());
        }
        if let Some(message) = untold {
            add(Code::Untold, message);
        }
        if facts.hidden > 0 {
            let hidden = facts.hidden;
            add(
                Code::NoAddress,
                format!("{hidden} events have (ptrval) in place of an address, and count only as events"),
            );
        }
        self.lost = Lost::Told(is_told.then_some(lost));
        self.cut = facts.cut.take().or_else(|| facts.shortfall());
        let cause = GapCause::Overrun;
        let before =
            |(&cpu, extent): (&u32, &Extent)| Gap { from: None, to: Some(extent.first), cpu, lost: None, cause };
        let before_first = facts.cpus.iter().filter(|_| has_begun_late).map(before);
        self.gaps = before_first.chain(std::mem::take(&mut facts.gaps)).collect();
        self.faults = faults;
    }
}
