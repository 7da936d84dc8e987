//! The encoder of a recording's records, for a program that stores it again.

use super::header::FileHeader;
use crate::codec::{Encoder, EventLayouts, Limits};
use crate::kernel::format::PageShape;
use crate::stream::report::Source;

/// Encoder and shape of the sub-buffers of a file, by the payload of its first block; `None` where the file has none, or does not
/// describe them.
pub fn of_file_header(payload: &[u8]) -> Option<(Encoder, PageShape)> {
    let header = FileHeader::parse(payload).ok()?;
    let shape = header.page_shape().ok().filter(|_| header.source == Some(Source::Tracefs))?;
    let (formats, _) = header.event_formats();
    let formats = formats.iter().map(|(system, format)| (&**system, format));
    Some((Encoder::new(shape, EventLayouts::new(formats), Limits::USUAL), shape))
}
