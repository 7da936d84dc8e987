//! An input of another format: lines `TIME + ADDRESS BYTES` of allocations and `TIME - ADDRESS` of frees, on standard input.
//! `printf '1 + 4096 40\n2 - 4096\n3 + 8192 60\n' | cargo run --example input`

use std::io::{BufRead, BufReader, Lines, Stdin};
use std::path::Path;

use kmemtrace::{Action, Code, Event, EventNames, EventSource, Fault, Kind, Query, StreamItem, Trace};

/// Lines that are read at once.
const LINES: usize = 1024;

/// The lines, as events of CPU 0.
#[derive(Debug)]
struct Input {
    lines: Lines<BufReader<Stdin>>,
    number: u64,
}

impl EventSource for Input {
    fn cpu(&self) -> u32 {
        0
    }

    fn path(&self) -> &Path {
        Path::new("-")
    }

    fn read(&mut self, names: &mut EventNames, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
        for line in self.lines.by_ref().take(LINES) {
            self.number += 1;
            let event = line.ok().and_then(|line| event(&line, names));
            // What comes after a bad line counts as lost.
            let bad = || {
                let message = format!("line {}: TIME + ADDRESS BYTES, or TIME - ADDRESS", self.number);
                Fault { code: Code::BadRecord, offset: 0, block: None, message }
            };
            items.push(StreamItem::Event(event.ok_or_else(bad)?));
        }
        Ok(())
    }
}

/// Event of a line; `None` for a line that makes no sense.
fn event(line: &str, names: &mut EventNames) -> Option<Event> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let (at, address) = (number(0)?, number(2)?);
    let is_allocation = match *words.get(1)? {
        "+" => true,
        "-" => false,
        _ => return None,
    };
    let event = Event::new(at, 0, names.intern(if is_allocation { b"kmalloc" } else { b"kfree" }));
    Some(if is_allocation {
        let bytes = number(3)?;
        let action = Action::Alloc(Kind::Kmalloc);
        Event { address, requested: bytes, allocated: bytes.next_power_of_two(), action, ..event }
    } else {
        Event { address, action: Action::Free(Kind::Kmalloc), ..event }
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let input = Input { lines: BufReader::new(std::io::stdin()).lines(), number: 0 };
    let mut trace = Trace::of_sources("-", Some("mono"), vec![Box::new(input)])?;
    let analysis = Query::by_kind().run(&mut trace)?;
    let total = analysis.total();
    println!("{} allocations, {} bytes live, {} wasted", total.allocs, total.live_allocated, total.wasted);
    println!("the trace is {}", analysis.completeness().verdict_name());
    Ok(())
}
