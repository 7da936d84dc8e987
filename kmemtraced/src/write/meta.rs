//! `meta.out`: texts that name things in a trace, written before the first event and after the last one; those of a
//! new module or thread at once, by the thread of `names`.

use std::io;

use kmemtrace_abi::disk::block::{End, Major, NO_CPU, item, kind};
use zerocopy::IntoBytes;

use crate::output::destination::Destination;
use crate::write::block_file::BlockFile;
use crate::write::compress::{BlockCompressor, Compression};
use crate::write::header::Description;
use crate::write::host_texts::{self, HostTexts};

const NAME: &str = "meta.out";
/// Bytes of command names that are worth a compressor.
const MANY_NAMES: usize = 4096;

/// Options of a recording for its names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MetaOptions {
    pub(crate) compression: Compression,
    /// Version of the file's format.
    pub(crate) major: Major,
    /// True if what is written must survive a power cut at once.
    pub(crate) sync: bool,
    /// True if the symbols are read after the last event only.
    pub(crate) late_symbols: bool,
}

/// `meta.out` while it is written.
pub(crate) struct MetaFile {
    file: BlockFile,
    texts: HostTexts,
    options: MetaOptions,
}

impl MetaFile {
    /// Makes the file and writes the texts that are known before the first event. An error names the file.
    pub(crate) fn begin(
        output: &Destination,
        description: &Description,
        options: &MetaOptions,
    ) -> anyhow::Result<MetaFile> {
        let file = BlockFile::new(output.file(NAME)?, NO_CPU, description.recording).in_major(options.major);
        let mut meta = MetaFile { file, texts: HostTexts::open(), options: *options };
        meta.put_start(description).map_err(|error| output.unwritable(NAME, &error))?;
        Ok(meta)
    }

    fn put_start(&mut self, description: &Description) -> io::Result<()> {
        self.file.put(kind::FILE_HEADER, &description.payload(true))?;
        if !self.options.late_symbols {
            self.put_symbols()?;
        }
        let texts = self.texts.at_start(&description.facts, description.host.is_some());
        self.put(&texts)?;
        if self.options.sync { self.file.sync() } else { Ok(()) }
    }

    /// Adds the symbols.
    fn put_symbols(&mut self) -> io::Result<()> {
        let mut compressor = BlockCompressor::new(self.options.compression);
        let MetaFile { file, texts, options, .. } = self;
        let put = |payload: &[u8]| put(file, &mut compressor, payload);
        if options.late_symbols { texts.symbols_at_end(put) } else { texts.symbols(put) }
    }

    /// Bytes of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    /// Adds the recorder's thread ids.
    pub(crate) fn put_threads(&mut self, threads: &[i32]) -> io::Result<()> {
        let lines: Vec<String> = threads.iter().map(i32::to_string).collect();
        self.put(&[(item::OWN_THREADS, lines.join("\n").into_bytes())])
    }

    /// Adds the recorder's probe events.
    pub(crate) fn put_probes(&mut self, text: String) -> io::Result<()> {
        self.put(&[(item::PROBES, text.into_bytes())])
    }

    /// Adds texts of the machine's memory, by item tag.
    pub(crate) fn put_memory(&mut self, texts: Vec<(u16, Vec<u8>)>) -> io::Result<()> {
        self.put(&texts)
    }

    /// Adds command names of threads, as `PID COMM` lines.
    pub(crate) fn put_comms(&mut self, lines: Vec<u8>) -> io::Result<()> {
        if lines.len() >= MANY_NAMES {
            return self.put(&[(item::COMMS, lines)]);
        }
        for payload in host_texts::payloads(&[(item::COMMS, lines)]) {
            put(&mut self.file, &mut None, &payload)?;
        }
        Ok(())
    }

    /// Adds the cgroups of these processes, which may have changed.
    pub(crate) fn put_cgroups_again(&mut self, processes: &[u32]) -> io::Result<()> {
        self.texts.look_again(processes);
        self.put_new_cgroups()
    }

    /// Looks for processes that are new, and adds their cgroups.
    pub(crate) fn put_new_cgroups(&mut self) -> io::Result<()> {
        let texts = self.texts.new_cgroups();
        if texts.iter().all(|(_, text)| text.is_empty()) { Ok(()) } else { self.put(&texts) }
    }

    /// Looks for modules that are new, and adds their symbols.
    pub(crate) fn put_new_modules(&mut self) -> io::Result<()> {
        let texts = self.texts.new_modules();
        if texts.is_empty() {
            return Ok(());
        }
        self.put(&texts)?;
        if self.options.sync { self.file.sync() } else { Ok(()) }
    }

    /// Adds the texts that are known after the last event, with `comms` (`PID COMM` lines of the kernel) and `texts` by item tag, and
    /// the end block.
    pub(crate) fn finish(mut self, comms: &[u8], mut texts: Vec<(u16, Vec<u8>)>, reason: u32) -> io::Result<()> {
        let late_symbols = self.options.late_symbols;
        texts.extend(self.texts.at_end(comms, !late_symbols));
        self.put(&texts)?;
        if late_symbols {
            self.put_symbols()?;
        }
        let end = End { blocks: self.file.blocks().into(), reason: reason.into(), ..End::default() };
        self.file.put(kind::END, end.as_bytes())?;
        if self.options.sync { self.file.sync() } else { self.file.close() }
    }

    fn put(&mut self, texts: &[(u16, Vec<u8>)]) -> io::Result<()> {
        // The compressor takes a megabyte, which is not held during the recording.
        let mut compressor = BlockCompressor::new(self.options.compression);
        for payload in host_texts::payloads(texts) {
            put(&mut self.file, &mut compressor, &payload)?;
        }
        Ok(())
    }
}

/// Writes a block of names.
fn put(file: &mut BlockFile, compressor: &mut Option<BlockCompressor>, payload: &[u8]) -> io::Result<()> {
    match compressor {
        Some(compressor) => file.put_compressed(kind::META, payload, compressor),
        None => file.put(kind::META, payload),
    }
}
