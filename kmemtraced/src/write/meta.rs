//! `meta.out` of a recording: what names things in it, before the first event and after the last one.

use std::io;
use std::time::Duration;

use anyhow::Context;
use kmemtrace_abi::block::{End, NO_CPU, item, kind};
use zerocopy::IntoBytes;

use crate::output::trace_dir::TraceDir;
use crate::write::block_file::BlockFile;
use crate::write::compress::{Blocks, Compress};
use crate::write::header::Description;
use crate::write::host_texts::{self, HostTexts};

/// `meta.out` while it is written.
pub(crate) struct MetaFile {
    file: BlockFile,
    texts: HostTexts,
    compress: Option<Blocks>,
    sync: bool,
}

impl MetaFile {
    /// Makes the file, with what is known before the first event. An error names the file.
    pub(crate) fn begin(
        output: &TraceDir,
        description: &Description,
        compress: Compress,
        sync: Option<Duration>,
    ) -> anyhow::Result<MetaFile> {
        let file = BlockFile::new(output.file("meta.out")?, NO_CPU, description.recording);
        let compress = Blocks::new(compress);
        let mut meta = MetaFile { file, texts: HostTexts::open(), compress, sync: sync.is_some() };
        meta.put_start(description).with_context(|| output.unwritable("meta.out"))?;
        Ok(meta)
    }

    fn put_start(&mut self, description: &Description) -> io::Result<()> {
        self.file.put(kind::FILE_HEADER, &description.payload(true))?;
        let texts = self.texts.at_start(&description.facts.events);
        self.put(&texts)?;
        if self.sync { self.file.sync() } else { Ok(()) }
    }

    /// Adds the thread ids of the recorder.
    pub(crate) fn put_threads(&mut self, threads: &[i32]) -> io::Result<()> {
        let lines: Vec<String> = threads.iter().map(i32::to_string).collect();
        self.put(&[(item::OWN_THREADS, lines.join("\n").into_bytes())])
    }

    /// Adds what is known after the last event, `comms` (`PID COMM` lines of the kernel) among it, and the end.
    pub(crate) fn finish(mut self, comms: &[u8], reason: u32) -> io::Result<()> {
        let texts = self.texts.at_end(comms);
        self.put(&texts)?;
        let end = End { blocks: self.file.blocks().into(), reason: reason.into(), ..End::default() };
        self.file.put(kind::END, end.as_bytes())?;
        if self.sync { self.file.sync() } else { Ok(()) }
    }

    fn put(&mut self, texts: &[(u16, Vec<u8>)]) -> io::Result<()> {
        for payload in host_texts::payloads(texts) {
            match &mut self.compress {
                Some(blocks) => self.file.put_frame(kind::META, &payload, blocks)?,
                None => self.file.put(kind::META, &payload)?,
            }
        }
        Ok(())
    }
}
