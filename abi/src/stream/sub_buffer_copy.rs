//! Sub-buffers of a stream as the kernel wrote them, for a writer of another container.

use super::cpu_stream::{Backing, CpuStream};
use super::file_loss::{FileLoss, LossLog};
use super::payload::PayloadFormat;
use crate::disk::block::kind;
use crate::kernel::format::PageShape;
use crate::kernel::subbuffer::trimmed_len;

impl CpuStream {
    /// Layout of the stream's sub-buffers; `None` where it has none.
    pub fn page_shape(&self) -> Option<PageShape> {
        match &*self.format {
            PayloadFormat::SubBuffers(format) => Some(format.shape),
            PayloadFormat::Relay(_) | PayloadFormat::Unknown => None,
        }
    }

    /// Notes from now on the loss that no sub-buffer tells of; to be called before the first item is taken.
    pub fn note_loss(&mut self) {
        self.state.log = Some(Box::new(LossLog::default()));
    }

    /// Loss of the stream beside its sub-buffers, once it has been read; `None` where it was not noted.
    pub fn file_loss(&self) -> Option<FileLoss> {
        self.state.file_loss()
    }

    /// Replaces `page` by the next sub-buffer that has entries or a mark, filled up with zeros to its whole size; false at the end.
    ///
    /// For a stream of which no item is taken. Bytes that are no sub-buffer are passed over, as [`CpuStream::decode`] does.
    pub fn next_sub_buffer(&mut self, page: &mut Vec<u8>) -> bool {
        let Some(shape) = self.page_shape() else { return false };
        loop {
            match &mut self.backing {
                Backing::Blocks(reader) => {
                    let Some((block, from)) = self.block.take() else {
                        let Ok(block) = reader.next(&mut |_| {}) else { return false };
                        reader.rebuild();
                        self.block = (block.header.kind == kind::DATA).then_some((block, 0));
                        continue;
                    };
                    let rest = reader.payload().get(from..).unwrap_or_default();
                    // An empty sub-buffer takes its header.
                    let Ok(stored) = trimmed_len(&shape, rest) else { continue };
                    let taken = stored.max(shape.data_offset);
                    self.block = Some((block, from.saturating_add(taken)));
                    let Some(sub_buffer) = rest.get(..stored).filter(|bytes| !bytes.is_empty()) else { continue };
                    page.clear();
                    page.extend_from_slice(sub_buffer);
                    page.resize(shape.size, 0);
                    return true;
                }
                Backing::Raw(window) => {
                    let Some(whole) = window.fill(shape.size).get(..shape.size) else { return false };
                    let has_content = trimmed_len(&shape, whole).is_ok_and(|stored| stored > 0);
                    if has_content {
                        page.clear();
                        page.extend_from_slice(whole);
                    }
                    window.advance(shape.size);
                    if has_content {
                        return true;
                    }
                }
                Backing::Source(..) | Backing::Missing | Backing::Done => return false,
            }
        }
    }
}
