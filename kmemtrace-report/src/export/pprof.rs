//! `pprof`: call stacks, or call-sites, and their sums as gzip'd `profile.proto`, which `go tool pprof` and profile stores read.
//!
//! Messages are written as rows come: strings, functions and locations before the first sample that needs them, mappings at the end.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use kmemtrace::documents::group::{GroupMember, KeyValue};
use kmemtrace::documents::naming::CallSite;
use kmemtrace::documents::sums::PrintedStats;
use kmemtrace::documents::{self, Body, Document, Head};
use kmemtrace::{
    Analysis, Frame, GroupKey, Kind, ModuleInfo, Query, Shape, SiteOwner, SortKey, Space, Trace, build_id_of_notes,
};
use kmemtrace_abi::clock::Unit;
use kmemtrace_abi::text::escape::escape;

use super::about;
use super::frames;
use super::job::Job;
use super::protobuf::Message;

/// Types of samples and their units.
const SAMPLE_TYPES: [(&str, &str); 5] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("wasted_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];
/// Type of samples that viewers show first: pages waste nothing.
const DEFAULT_SAMPLE_TYPE: &str = "wasted_space";
const DEFAULT_WITHOUT_WASTE: &str = "inuse_space";
/// Name of the kernel's own mapping, which no viewer takes for a file that it could open.
const KERNEL: &str = "[kernel.kallsyms]";

/// Fields of `Profile`.
mod profile {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const MAPPING: u32 = 3;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
    pub(super) const COMMENT: u32 = 13;
    pub(super) const DEFAULT_SAMPLE_TYPE: u32 = 14;
}

/// Writes the profile of a trace.
pub(super) fn pprof(job: &Job<'_>) -> anyhow::Result<u8> {
    let trace = job.open()?;
    let (facts, has_stacks, has_cgroups) = (TraceFacts::of(&trace), trace.may_have_stacks(), trace.tells_tasks());
    drop(trace);
    let mut out = job.binary_output()?;
    let stack = has_stacks.then_some(GroupKey::Stack);
    let cgroup = has_cgroups.then_some(GroupKey::Cgroup);
    let keys: Vec<GroupKey> = [GroupKey::Site, GroupKey::Cache].into_iter().chain(stack).chain(cgroup).collect();
    let analysis = job.analyse(Query::by(&keys))?;
    frames::find_places(&analysis)?;
    let document = documents::sites(&analysis, &Shape { sort: vec![SortKey::Site], top: None });
    let written = write(&analysis, &document, &facts, job, &mut out);
    out.finish(written)?;
    Ok(job.end(&analysis))
}

/// Facts of a trace that its analysis does not keep.
struct TraceFacts {
    /// Build-id of the kernel, in hexadecimal digits.
    kernel_id: Option<String>,
    /// Build-ids of modules, by name.
    module_ids: HashMap<Vec<u8>, String>,
    /// Time of day and `CLOCK_MONOTONIC` at the recording's begin, in nanoseconds.
    started: Option<(u64, u64)>,
}

impl TraceFacts {
    fn of(trace: &Trace) -> TraceFacts {
        let digits = |id: Vec<u8>| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let notes = &trace.metadata.notes;
        let modules = ModuleInfo::parse(&trace.metadata.module_info).into_iter();
        TraceFacts {
            kernel_id: trace.info.endian.and_then(|endian| build_id_of_notes(notes, endian)).map(digits),
            module_ids: modules.filter_map(|module| Some((module.name, digits(module.build_id?)))).collect(),
            started: trace.metadata.started,
        }
    }
}

fn write(
    analysis: &Analysis,
    document: &Document<'_>,
    facts: &TraceFacts,
    job: &Job<'_>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Body::Groups(rows) = &document.body else { return Err(io::Error::other("rows have another form")) };
    let mut profile = Profile::new(analysis, facts, GzEncoder::new(out, Compression::default()));
    let space = analysis.shown_space();
    profile.begin(&document.head, if space == Space::Slab { DEFAULT_SAMPLE_TYPE } else { DEFAULT_WITHOUT_WASTE })?;
    for line in about::lines(&document.head, job.host(), &job.asked) {
        profile.comment(&line)?;
    }
    let mut upper_bounds = 0u64;
    for row in rows.rows.iter().filter(|row| row.kind.space() == space) {
        upper_bounds += u64::from(row.stats.live_is_upper_bound && row.stats.live_objects.unwrap_or(0) > 0);
        profile.sample(&row.names.0, row.kind, &row.stats)?;
    }
    if upper_bounds > 0 {
        profile.comment(&format!(
            "inuse of {upper_bounds} samples is an upper bound: their objects are also freed on paths without events"
        ))?;
    }
    profile.finish()
}

/// Mapping of a location: the kernel or a module, and its addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct MappingKey {
    module: Option<Vec<u8>>,
    range: Option<(u64, u64)>,
}

/// Names that the locations of a mapping have.
#[derive(Clone, Copy, Debug, Default)]
struct Resolution {
    has_files: bool,
    has_lines: bool,
    has_inlined: bool,
}

/// Profile that is being written.
struct Profile<'a, W: Write> {
    analysis: &'a Analysis,
    facts: &'a TraceFacts,
    out: GzEncoder<W>,
    /// Numbers of strings.
    strings: HashMap<String, i64>,
    /// Ids of functions, by the numbers of name and file.
    functions: HashMap<(i64, i64), u64>,
    /// Ids of locations, by call-site.
    locations: HashMap<u64, u64>,
    /// Mappings in the order of their ids; the kernel's is the first.
    mappings: Vec<(MappingKey, Resolution)>,
    /// Memory of one field.
    field: Message,
}

impl<'a, W: Write> Profile<'a, W> {
    fn new(analysis: &'a Analysis, facts: &'a TraceFacts, out: GzEncoder<W>) -> Profile<'a, W> {
        let kernel = MappingKey { module: None, range: analysis.symbolizer().kernel_range() };
        Profile {
            analysis,
            facts,
            out,
            strings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            mappings: vec![(kernel, Resolution::default())],
            field: Message::default(),
        }
    }

    /// Writes types of samples, time and duration.
    fn begin(&mut self, head: &Head<'_>, default: &str) -> io::Result<()> {
        // String 0 is empty by definition.
        self.string("")?;
        for (name, unit) in SAMPLE_TYPES {
            let sample_type = self.value_type(name, unit)?;
            self.put(profile::SAMPLE_TYPE, &sample_type)?;
        }
        let name = self.string(default)?;
        self.number(profile::DEFAULT_SAMPLE_TYPE, name)?;
        // Every allocation is recorded.
        let period = self.value_type("space", "bytes")?;
        self.put(profile::PERIOD_TYPE, &period)?;
        self.number(profile::PERIOD, 1)?;
        let trace = &head.trace;
        if let Some((day, monotonic)) = self.facts.started {
            let since = if trace.clock == Some("mono") { trace.first.saturating_sub(monotonic) } else { 0 };
            self.number(profile::TIME_NANOS, number(day.saturating_add(since)))?;
        }
        if trace.keys().unit == Unit::Nanoseconds {
            self.number(profile::DURATION_NANOS, number(trace.last.saturating_sub(trace.first)))?;
        }
        Ok(())
    }

    fn comment(&mut self, line: &str) -> io::Result<()> {
        let line = self.string(line)?;
        self.number(profile::COMMENT, line)
    }

    /// Writes the figures of a row; none for a row of failed allocations alone.
    fn sample(&mut self, names: &[GroupMember<'_>], kind: Kind, stats: &PrintedStats) -> io::Result<()> {
        let figures = [stats.allocs, stats.allocated, stats.wasted, stats.live_objects, stats.live_allocated];
        if figures.iter().all(|figure| figure.unwrap_or(0) == 0) {
            return Ok(());
        }
        // The first location is the innermost one.
        let mut locations = Vec::new();
        for site in frames::frames(self.analysis, names) {
            locations.push(self.location(&site)?);
        }
        let mut sample = Message::default();
        sample.packed(1, locations);
        sample.packed(2, figures.map(|figure| number(figure.unwrap_or(0)).cast_unsigned()));
        let label = self.label("kind", kind.name())?;
        sample.message(3, &label);
        for name in names {
            let (key, value) = match &name.value {
                KeyValue::Cache { cache: Some(cache), .. } => ("cache", cache),
                KeyValue::Name(Some(cgroup)) if name.key == GroupKey::Cgroup => ("cgroup", cgroup),
                _ => continue,
            };
            let label = self.label(key, &escape(value))?;
            sample.message(3, &label);
        }
        self.put(profile::SAMPLE, &sample)
    }

    /// Id of the location of a call-site. Its address is the return address, as in all views.
    fn location(&mut self, site: &CallSite<'_>) -> io::Result<u64> {
        let address = site.call_site.0;
        if let Some(&id) = self.locations.get(&address) {
            return Ok(id);
        }
        let id = self.locations.len() as u64 + 1;
        self.locations.insert(address, id);
        let frames = &site.place.0.frames;
        let mapping = self.mapping(site, frames);
        let mut location = Message::default();
        location.uint(1, id).uint(2, mapping).uint(3, address);
        if frames.is_empty() {
            // Viewers leave out locations without a function.
            let name = match site.owner {
                _ if address == 0 => "(no call-site)".to_owned(),
                SiteOwner::Init { .. } => escape(&site.text()).into_owned(),
                _ => site.call_site.to_string(),
            };
            let line = self.line(&name, "", 0)?;
            location.message(4, &line);
        }
        for frame in frames {
            let file = frame.file.as_deref().map_or("".into(), escape);
            let line = self.line(&escape(&frame.function), &file, frame.line.unwrap_or(0))?;
            location.message(4, &line);
        }
        self.put(profile::LOCATION, &location)?;
        Ok(id)
    }

    fn line(&mut self, function: &str, file: &str, line: u32) -> io::Result<Message> {
        let (name, file) = (self.string(function)?, self.string(file)?);
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((name, file)).or_insert(next);
        if id == next {
            let mut function = Message::default();
            function.uint(1, id).int(2, name).int(3, name).int(4, file);
            self.put(profile::FUNCTION, &function)?;
        }
        let mut message = Message::default();
        message.uint(1, id).uint(2, line.into());
        Ok(message)
    }

    /// Id of the mapping of a call-site with these frames; 0, which is none, for code that is not known.
    fn mapping(&mut self, site: &CallSite<'_>, frames: &[Frame]) -> u64 {
        let index = match &site.module {
            None if site.owner == SiteOwner::Unknown && frames.is_empty() => return 0,
            None => 0,
            Some(module) => {
                let range = self.analysis.symbolizer().module_range(site.call_site.0);
                let key = MappingKey { module: Some(module.to_vec()), range };
                let known = self.mappings.iter().position(|(other, _)| *other == key);
                known.unwrap_or_else(|| {
                    self.mappings.push((key, Resolution::default()));
                    self.mappings.len() - 1
                })
            }
        };
        let resolution = &mut self.mappings[index].1;
        resolution.has_files |= frames.iter().any(|frame| frame.file.is_some());
        resolution.has_lines |= frames.iter().any(|frame| frame.line.is_some());
        resolution.has_inlined |= frames.iter().any(|frame| frame.inlined);
        index as u64 + 1
    }

    /// Writes the mappings and the end.
    fn finish(mut self) -> io::Result<()> {
        for (index, (key, resolution)) in std::mem::take(&mut self.mappings).into_iter().enumerate() {
            let (name, build_id) = match &key.module {
                None => (KERNEL.to_owned(), self.facts.kernel_id.as_deref()),
                Some(module) => {
                    (format!("[{}]", escape(module)), self.facts.module_ids.get(module).map(String::as_str))
                }
            };
            let (name, build_id) = (self.string(&name)?, self.string(build_id.unwrap_or(""))?);
            let (start, limit) = key.range.unwrap_or((0, 0));
            let mut mapping = Message::default();
            mapping.uint(1, index as u64 + 1).uint(2, start).uint(3, limit).int(5, name).int(6, build_id);
            mapping.uint(7, 1).uint(8, resolution.has_files.into());
            mapping.uint(9, resolution.has_lines.into()).uint(10, resolution.has_inlined.into());
            self.put(profile::MAPPING, &mapping)?;
        }
        self.out.finish()?.flush()
    }

    fn value_type(&mut self, name: &str, unit: &str) -> io::Result<Message> {
        let (name, unit) = (self.string(name)?, self.string(unit)?);
        let mut value_type = Message::default();
        value_type.int(1, name).int(2, unit);
        Ok(value_type)
    }

    fn label(&mut self, key: &str, value: &str) -> io::Result<Message> {
        let (key, value) = (self.string(key)?, self.string(value)?);
        let mut label = Message::default();
        label.int(1, key).int(2, value);
        Ok(label)
    }

    /// Number of a string, which is written where it is new.
    fn string(&mut self, text: &str) -> io::Result<i64> {
        if let Some(&number) = self.strings.get(text) {
            return Ok(number);
        }
        let number = self.strings.len() as i64;
        self.strings.insert(text.to_owned(), number);
        self.field.clear();
        self.field.text(profile::STRING_TABLE, text);
        self.out.write_all(self.field.bytes())?;
        Ok(number)
    }

    fn number(&mut self, field: u32, value: i64) -> io::Result<()> {
        self.field.clear();
        self.field.int(field, value);
        self.out.write_all(self.field.bytes())
    }

    fn put(&mut self, field: u32, message: &Message) -> io::Result<()> {
        self.field.clear();
        self.field.message(field, message);
        self.out.write_all(self.field.bytes())
    }
}

/// A sum as the signed 64 bits of the format.
fn number(sum: u64) -> i64 {
    i64::try_from(sum).unwrap_or(i64::MAX)
}
