//! Prints the pages of a recording as the kernel's tracer function_graph does (`kernel/trace/trace_functions_graph.c` of Linux 6.12).

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::Path;

use kmemtrace_abi::event::{Event, EventSink, Gap, Names};
use kmemtrace_abi::fields::{FieldValue, RecordFields};
use kmemtrace_abi::trace::Trace;

/// Options of the tracer.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub proc: bool,
    pub abstime: bool,
    pub tail: bool,
    /// Calls that took less are left out, and so are the begins of all.
    pub thresh: Option<u64>,
    pub latency_format: bool,
    pub switches: bool,
}

impl Shape {
    pub const FULL: Shape =
        Shape { proc: true, abstime: true, tail: false, thresh: None, latency_format: false, switches: true };
}

/// Calls of a function as the text has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub count: u64,
    /// Sum of the durations, each cut to the digits of the text, in nanoseconds.
    pub total: u64,
}

/// A text, and what it says about each function.
#[derive(Debug, Default)]
pub struct GraphText {
    pub text: String,
    pub functions: BTreeMap<String, Calls>,
}

/// An event with its fields.
struct Kept {
    event: Event,
    name: String,
    numbers: HashMap<String, u64>,
    stack: Vec<u64>,
}

#[derive(Default)]
struct Keep(Vec<Event>);

impl EventSink for Keep {
    const FIELDS: bool = true;

    fn event(&mut self, event: Event, _: &Names) {
        self.0.push(event);
    }

    fn gap(&mut self, gap: Gap) {
        panic!("{gap:?}");
    }
}

/// All events, in order.
fn events(trace: &mut Trace) -> Vec<Kept> {
    trace.names.fields.set_kept(true);
    let mut all = Vec::new();
    for stream in &mut trace.streams {
        let mut keep = Keep::default();
        while stream.decode(&mut trace.names, &mut keep, 1024) {}
        for event in keep.0 {
            let fields = event.fields.and_then(|id| trace.names.fields.get(id));
            let numbers = fields.into_iter().flat_map(RecordFields::iter).filter_map(|(name, value)| {
                let number = match value {
                    FieldValue::Unsigned(number) | FieldValue::Address(number) => number,
                    FieldValue::Signed(number) => number.cast_unsigned(),
                    FieldValue::Text(_) => return None,
                };
                Some((name.to_owned(), number))
            });
            let name = String::from_utf8(trace.names.get(event.name).to_vec()).unwrap();
            let stack = event.stack.map_or(Vec::new(), |stack| trace.names.stacks.get(stack).to_vec());
            all.push(Kept { numbers: numbers.collect(), name, stack, event });
        }
    }
    // Stable: events of one CPU keep their order.
    all.sort_by_key(|kept| (kept.event.at, kept.event.cpu));
    all
}

/// Symbols by address.
struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    fn of(trace: &Trace) -> Symbols {
        let text = String::from_utf8_lossy(&trace.metadata.kallsyms).into_owned();
        let symbol = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let name = words.nth(1)?;
            Some((address, words.next().map_or(name.to_owned(), |module| format!("{name} {module}"))))
        };
        Symbols(text.lines().filter_map(symbol).collect())
    }

    fn name(&self, address: u64) -> (String, u64) {
        let (begin, name) = self.0.range(..=address).next_back().unwrap();
        (name.clone(), address - begin)
    }

    fn place(&self, address: u64) -> String {
        let (name, offset) = self.name(address);
        match name.split_once(' ') {
            Some((name, module)) => format!("{name}+{offset:#x}/0x1000 {module}"),
            None => format!("{name}+{offset:#x}/0x1000"),
        }
    }
}

/// A duration as the kernel prints it, with its mark, and what is left of it.
fn duration(nanos: u64) -> (String, u64) {
    let (micros, rest) = (nanos / 1000, nanos % 1000);
    let mut text = micros.to_string();
    let digits = 7usize.saturating_sub(text.len()).min(3);
    let unit = 10u64.pow(3 - digits as u32);
    if digits > 0 {
        let _ = write!(text, ".{}", &format!("{rest:03}")[..digits]);
    }
    let left = micros * 1000 + rest / unit * unit;
    let mark = match nanos {
        1_000_000_000.. => '$',
        100_000_000.. => '@',
        10_000_000.. => '*',
        1_000_000.. => '#',
        100_000.. => '!',
        10_001.. => '+',
        _ => ' ',
    };
    (format!("{mark} {:<12}", format!("{text} us")), left)
}

struct Printer<'a> {
    shape: Shape,
    symbols: &'a Symbols,
    comms: &'a HashMap<i32, Box<[u8]>>,
    out: GraphText,
    /// Function at each depth of a CPU.
    entered: HashMap<(u32, u64), u64>,
    running: HashMap<u32, i32>,
}

impl Printer<'_> {
    fn task(&self, pid: i32) -> String {
        let comm = match pid {
            0 => "<idle>".into(),
            pid => self.comms.get(&pid).map_or("<...>".into(), |comm| String::from_utf8_lossy(comm)),
        };
        let text = format!("{comm:.7}-{pid}");
        format!("{text:^14}")
    }

    fn prologue(&mut self, event: &Event) {
        let pid = event.pid.unwrap();
        let before = self.running.insert(event.cpu, pid);
        if let Some(before) = before.filter(|&before| before != pid && self.shape.switches) {
            let (line, cpu) = ("-".repeat(42), event.cpu);
            let [before, after] = [before, pid].map(|pid| self.task(pid));
            let _ = write!(self.out.text, " {line}\n {cpu}) {before} => {after}\n {line}\n\n");
        }
        if self.shape.abstime {
            let micros = event.at / 1000;
            let _ = write!(self.out.text, "{:5}.{:06} |  ", micros / 1_000_000, micros % 1_000_000);
        }
        let _ = write!(self.out.text, " {}) ", event.cpu);
        if self.shape.proc {
            let task = self.task(pid);
            let _ = write!(self.out.text, "{task} | ");
        }
        if self.shape.latency_format {
            self.out.text.push_str(" ..... | ");
        }
    }

    /// Counts a call of a function, and returns the column of its duration.
    fn count(&mut self, function: u64, nanos: u64) -> String {
        let (column, left) = duration(nanos);
        let calls = self.out.functions.entry(self.symbols.name(function).0).or_default();
        calls.count += 1;
        calls.total += left;
        column
    }

    fn line(&mut self, event: &Event, column: &str, depth: u64, text: &str) {
        self.prologue(event);
        let _ = writeln!(self.out.text, "{column}|  {}{text}", " ".repeat(2 * depth as usize));
    }

    fn exit(&mut self, kept: &Kept) {
        let number = |name: &str| kept.numbers[name];
        let (function, depth) = (number("func"), number("depth"));
        let nanos = number("rettime") - number("calltime");
        if self.shape.thresh.is_some_and(|least| nanos < least) {
            return;
        }
        let column = self.count(function, nanos);
        let is_known = self.entered.insert((kept.event.cpu, depth), 0) == Some(function);
        let brace = match is_known && !self.shape.tail {
            true => "}".to_owned(),
            false => format!("}} /* {} */", self.symbols.name(function).0),
        };
        self.line(&kept.event, &column, depth, &brace);
    }

    fn comment(&mut self, kept: &Kept, stacks: &mut HashMap<(u32, i32), Vec<u64>>) {
        let number = |name: &str| kept.numbers.get(name).copied().unwrap_or(0);
        let task = (kept.event.cpu, kept.event.pid.unwrap());
        let hash = |pointer: u64| (pointer ^ 0x1234_5678).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let mut text = match &*kept.name {
            "mm_vmscan_memcg_reclaim_begin" => {
                format!("order={} gfp_flags=GFP_KERNEL|__GFP_COMP", number("order"))
            }
            "mm_vmscan_memcg_reclaim_end" => format!("nr_reclaimed={}", number("nr_reclaimed")),
            "mm_shrink_slab_start" => format!(
                "{} {:016x}: nid: {} objects to shrink {} gfp_flags GFP_KERNEL|__GFP_COMP cache items {} delta {} total_scan {} \
                 priority {}",
                self.symbols.place(number("shrink")),
                hash(number("shr")),
                number("nid"),
                number("nr_objects_to_shrink"),
                number("cache_items"),
                number("delta"),
                number("total_scan"),
                number("priority"),
            ),
            "mm_shrink_slab_end" => format!(
                "{} {:016x}: nid: {} unused scan count {} new scan count {} total_scan {} last shrinker return val {}",
                self.symbols.place(number("shrink")),
                hash(number("shr")),
                number("nid"),
                number("unused_scan"),
                number("new_scan"),
                number("total_scan"),
                number("retval").cast_signed(),
            ),
            "kernel_stack" => {
                let frames = stacks.remove(&task).unwrap_or_default();
                let frames = frames.iter().map(|&frame| format!("\n => {}", self.symbols.name(frame).0));
                format!("<stack trace>{}", frames.collect::<String>())
            }
            _ => format!("nid={} order={}", number("nid"), number("order")),
        };
        if kept.name != "kernel_stack" {
            text.insert_str(0, &format!("{}: ", kept.name));
        }
        if !kept.stack.is_empty() {
            stacks.insert(task, kept.stack.clone());
        }
        self.line(&kept.event, &" ".repeat(14), 1, &format!("/* {text} */"));
    }
}

/// The text of a recording of calls and events.
pub fn print(recording: &Path, shape: Shape) -> GraphText {
    let mut trace = Trace::open(&[recording.to_owned()]).unwrap();
    let events = events(&mut trace);
    let symbols = Symbols::of(&trace);
    let header = "# tracer: function_graph\n#\n# CPU  DURATION                  FUNCTION CALLS\n# |     |   |                     |   |   |   |\n";
    let out = GraphText { text: header.to_owned(), ..GraphText::default() };
    let comms = &trace.metadata.comms;
    let (entered, running) = (HashMap::new(), HashMap::new());
    let mut printer = Printer { shape, symbols: &symbols, comms, out, entered, running };
    // The next event of each one's CPU.
    let mut next = vec![None; events.len()];
    let mut last: HashMap<u32, usize> = HashMap::new();
    for (index, kept) in events.iter().enumerate() {
        if let Some(before) = last.insert(kept.event.cpu, index) {
            next[before] = Some(index);
        }
    }
    let mut stacks = HashMap::new();
    let mut is_printed = vec![false; events.len()];
    for (index, kept) in events.iter().enumerate() {
        match &*kept.name {
            _ if is_printed[index] => {}
            "funcgraph_entry" if shape.thresh.is_some() => {}
            "funcgraph_entry" => {
                let (function, depth) = (kept.numbers["func"], kept.numbers["depth"]);
                let symbol = symbols.name(function).0;
                let is_end = |end: &&usize| {
                    let end = &events[**end];
                    end.name == "funcgraph_exit" && end.event.pid == kept.event.pid && end.numbers["func"] == function
                };
                match next[index].as_ref().filter(is_end) {
                    Some(&end) => {
                        is_printed[end] = true;
                        let numbers = &events[end].numbers;
                        let column = printer.count(function, numbers["rettime"] - numbers["calltime"]);
                        printer.line(&kept.event, &column, depth, &format!("{symbol}();"));
                    }
                    None => {
                        printer.entered.insert((kept.event.cpu, depth), function);
                        printer.line(&kept.event, &" ".repeat(14), depth, &format!("{symbol}() {{"));
                    }
                }
            }
            "funcgraph_exit" => printer.exit(kept),
            _ => printer.comment(kept, &mut stacks),
        }
    }
    printer.out
}
