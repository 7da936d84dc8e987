//! `trace.dat` version 6: items in one order from the first byte on.

use std::fs::File;
use std::io::{BufReader, Read};

use super::container::{Buffer, Container, TextPart, option, parts, text};
use super::items::{Items, Stop};
use crate::open::spool::ReadAt;
use crate::target::Endian;

/// Reads all that stands before the sub-buffers. `items` follows the head.
pub(super) fn read(
    container: &mut Container,
    items: &mut Items<impl Read>,
    file: &File,
    endian: Endian,
) -> Result<(), Stop> {
    container.take_descriptions(items)?;
    container.kallsyms = items.short_text("kallsyms")?;
    items.short_text("printk_formats")?;
    container.cmdlines = items.text("saved_cmdlines")?;
    let cpus = items.u32("the number of CPUs")?;
    let mut instances = Vec::new();
    let main = buffer(container, items, endian, cpus, &mut instances)?;
    container.add_buffer(main)?;
    for (offset, name, cpus_then) in instances {
        let mut items = Items::new(BufReader::new(ReadAt::from(file, offset)), offset, endian);
        let mut more = Vec::new();
        let count = container.cpus.or(cpus_then).unwrap_or(cpus);
        let instance = buffer(container, &mut items, endian, count, &mut more)?;
        container.add_buffer(Buffer { name, ..instance })?;
    }
    Ok(())
}

/// Offset and name of an instance's buffer, and the number of CPUs that the options before it tell.
type Instance = (u64, String, Option<u32>);

/// Reads options, and the table of a buffer's parts.
fn buffer(
    container: &mut Container,
    items: &mut Items<impl Read>,
    endian: Endian,
    mut cpus: u32,
    instances: &mut Vec<Instance>,
) -> Result<Buffer, Stop> {
    let what = "the kind of the data";
    let mut has_clock = false;
    loop {
        match &items.array::<10>(what)? {
            b"options  \0" => loop {
                let id = items.u16("the options")?;
                if id == option::DONE {
                    break;
                }
                let data = items.short_text("the options")?;
                match id {
                    option::BUFFER => {
                        let mut option = Items::new(&data[..], 0, endian);
                        let offset = option.u64("the option BUFFER")?;
                        let name = text(data.get(8..).unwrap_or_default());
                        instances.push((offset, name, container.cpus));
                    }
                    _ => {
                        has_clock |= id == option::TRACECLOCK;
                        container.take_option(id, data, endian)?;
                    }
                }
            },
            b"flyrecord\0" => break,
            b"latency  \0" => {
                // The rest of the file, whatever its length.
                container.text = Some(TextPart { offset: items.at(), len: u64::MAX, compression: None });
                container.cpus.get_or_insert(cpus);
                return Ok(Buffer::default());
            }
            _ => return Err(Stop::Odd(what)),
        }
    }
    cpus = container.cpus.unwrap_or(cpus);
    let parts = parts(items, cpus, false)?;
    // Its length stands behind the table where an option told of the clock.
    let clock = if has_clock || container.clock.is_some() { clock(items) } else { None };
    Ok(Buffer { clock, parts, ..Buffer::default() })
}

/// The text of the buffer's clock behind the table; older versions of trace-cmd do not write it.
fn clock(items: &mut Items<impl Read>) -> Option<String> {
    let len = items.u64("the clock").ok().filter(|&len| len < 4096)?;
    Some(text(&items.bytes(len, "the clock").ok()?)).filter(|clock| !clock.is_empty())
}
