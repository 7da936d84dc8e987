//! A workload as a captured tree: the files of a tracefs instance, copied with `cat`.

use super::Random;
use super::layout::{header_event, header_page, layouts};
use super::pages::Encoder;
use super::probes::probe_layouts;
use super::workload::Workload;
use kmemtrace_abi::kernel::probes::CAPTURE_GROUP;

/// The files of the tree, by their paths in it. What only a recorder of ours keeps (gap blocks, nodes) is not in it, and a CPU
/// without a file has its directory.
pub fn tree(workload: &Workload, seed: u64) -> Vec<(String, Vec<u8>)> {
    let mut random = Random::new(seed);
    let shape = &workload.shape;
    let encoder = Encoder::new(shape, &workload.names);
    let size = shape.page().size;
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut put = |path: String, bytes: Vec<u8>| files.push((path, bytes));
    for cpu in &workload.cpus {
        let dir = format!("per_cpu/cpu{}", cpu.cpu);
        let mut bytes = Vec::new();
        let mut events = 0u64;
        for page in encoder.pages(cpu, &mut random) {
            bytes.extend_from_slice(&page.bytes[..page.trimmed]);
            bytes.resize(bytes.len().next_multiple_of(size), 0);
            events += u64::from(page.events);
            // A reader that is handed an empty buffer may leave zeros.
            if random.chance(5) {
                bytes.resize(bytes.len() + size, 0);
            }
        }
        let stats = format!(
            "entries: 0\noverrun: {}\ncommit overrun: 0\nbytes: 0\noldest event ts:     0.000000\nnow ts:  1234.567890\n\
             dropped events: {}\nread events: {}\n",
            cpu.overrun,
            cpu.dropped,
            events + cpu.taken
        );
        if !cpu.missing {
            put(format!("{dir}/trace_pipe_raw"), bytes);
        }
        put(format!("{dir}/stats"), stats.into_bytes());
    }
    put("events/header_page".to_owned(), header_page(shape).into_bytes());
    put("events/header_event".to_owned(), header_event().as_bytes().to_vec());
    for layout in layouts(shape) {
        put(format!("events/{}/{}/format", layout.system, layout.name), layout.text().into_bytes());
    }
    if workload.probes.is_some() {
        for layout in probe_layouts(shape) {
            put(format!("events/{CAPTURE_GROUP}/{}/format", layout.name), layout.text().into_bytes());
        }
    }
    if let Some(clock) = workload.clock {
        let of = |name: &str| if name == clock { format!("[{name}]") } else { name.to_owned() };
        let clocks = ["local", "global", "counter", "uptime", "perf", "mono", "mono_raw", "boot", "tai", "x86-tsc"];
        put("trace_clock".to_owned(), clocks.map(of).join(" ").into_bytes());
    }
    put("page_size".to_owned(), format!("{}\n", shape.page_bytes).into_bytes());
    let kernel = workload.kernel.unwrap_or("0");
    put("uname".to_owned(), format!("Linux box {kernel} #1 SMP {} GNU/Linux\n", shape.arch()).into_bytes());
    let comms: String = workload.comms.iter().map(|(pid, comm)| format!("{pid} {comm}\n")).collect();
    put("saved_cmdlines".to_owned(), comms.into_bytes());
    files
}
