//! A recording as a stream: the blocks of its files, interleaved, with watermarks of the CPUs that wait.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;

use kmemtrace_abi::disk::block::{self, BlockInfo, End, FLAG_OPTIONAL, HEADER_BYTES, Header, NO_CPU, Watermark, kind};
use zerocopy::{FromBytes, IntoBytes};

/// File of a recording, as its blocks are taken off.
struct File {
    cpu: u32,
    blocks: VecDeque<(Header, Vec<u8>)>,
    /// Number of its next block in the stream.
    sequence: u64,
}

impl File {
    fn read(path: &Path) -> File {
        let bytes = fs::read(path).unwrap();
        let (mut rest, mut blocks) = (&bytes[..], VecDeque::new());
        while let Ok((header, payload)) = Header::read_from_prefix(rest) {
            let len = header.payload_len.get() as usize;
            blocks.push_back((header, payload[..len].to_vec()));
            rest = &rest[HEADER_BYTES + len..];
        }
        let cpu = blocks.front().map_or(NO_CPU, |(header, _)| header.cpu.get());
        File { cpu, blocks, sequence: 0 }
    }

    /// Time of the next event.
    fn next_time(&self) -> Option<u64> {
        self.blocks.iter().find(|(header, _)| header.kind == kind::DATA).map(|(header, _)| header.first.get())
    }

    /// Takes off the next block, with its number in the stream.
    fn next(&mut self) -> Option<Vec<u8>> {
        let (header, mut payload) = self.blocks.pop_front()?;
        if header.kind == kind::END
            && let Ok((end, _)) = End::mut_from_prefix(&mut payload)
        {
            end.blocks = self.sequence.into();
        }
        let info = BlockInfo {
            kind: header.kind,
            flags: header.flags,
            cpu: header.cpu.get(),
            recording: header.recording,
            sequence: self.sequence,
            events_before: header.events_before.get(),
            lost_before: header.lost_before.get(),
            first: header.first.get(),
            last: header.last.get(),
            events: header.events.get(),
            ..BlockInfo::default()
        };
        self.sequence += 1;
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend_from_slice(&payload);
        block::seal(&mut bytes, &info, Some(header.raw_len.get() as usize));
        Some(bytes)
    }

    /// A watermark: no event before `time` comes.
    fn watermark(&mut self, recording: [u8; 16], (events_before, lost_before): (u64, u64), time: u64) -> Vec<u8> {
        let info = BlockInfo {
            kind: kind::WATERMARK,
            flags: FLAG_OPTIONAL,
            cpu: self.cpu,
            recording,
            sequence: self.sequence,
            events_before,
            lost_before,
            ..BlockInfo::default()
        };
        self.sequence += 1;
        block::block(&info, Watermark::new(time, None).as_bytes())
    }
}

/// Blocks of the recording in `directory`, as `kmemtraced` would send them.
pub fn blocks(directory: &Path) -> Vec<Vec<u8>> {
    blocks_with(directory, &[])
}

/// As [`blocks`], with blocks of CPU 0, of these kinds and payloads, that stand behind its first one.
pub fn blocks_with(directory: &Path, more: &[(u8, Vec<u8>)]) -> Vec<Vec<u8>> {
    let mut meta = File::read(&directory.join("meta.out"));
    let mut cpus: Vec<File> = (0..)
        .map(|cpu| directory.join(format!("cpu{cpu}.out")))
        .take_while(|path| path.exists())
        .map(|path| File::read(&path))
        .collect();
    if let Some(first) = cpus.first_mut() {
        let Some((header, _)) = first.blocks.front().cloned() else { return Vec::new() };
        for (kind, payload) in more.iter().rev() {
            let len = u32::try_from(payload.len()).unwrap_or(0).into();
            let header = Header { kind: *kind, flags: 0, payload_len: len, raw_len: len, ..header };
            first.blocks.insert(1, (header, payload.clone()));
        }
    }
    let mut stream = Vec::new();
    while meta.blocks.len() > 1 {
        stream.extend(meta.next());
    }
    for cpu in &mut cpus {
        stream.extend(cpu.next());
    }
    while let Some(next) = (0..cpus.len())
        .filter(|&cpu| !cpus[cpu].blocks.is_empty())
        .min_by_key(|&cpu| cpus[cpu].next_time().unwrap_or(u64::MAX))
    {
        let Some((header, _)) = cpus[next].blocks.front().cloned() else { break };
        stream.extend(cpus[next].next());
        if header.kind != kind::DATA {
            continue;
        }
        for other in (0..cpus.len()).filter(|&other| other != next) {
            let file = &mut cpus[other];
            let Some((waits, _)) = file.blocks.front().cloned() else { continue };
            let time = file.next_time().unwrap_or(u64::MAX).min(header.last.get());
            let before = (waits.events_before.get(), waits.lost_before.get());
            stream.push(file.watermark(waits.recording, before, time));
        }
    }
    stream.extend(meta.next());
    stream
}
