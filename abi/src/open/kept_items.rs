//! Facts of a captured tree or a `trace.dat` as items of a recording, for a writer of another container.

use crate::disk::block::item;
use crate::target::Endian;
use crate::trace::TraceInfo;

/// Items of facts that a file header has in a recording of ours.
pub(super) fn header_items(info: &TraceInfo, page_bytes_from: Option<&str>) -> Vec<u8> {
    let mut items = Vec::new();
    let endian = if info.endian == Some(Endian::Big) { 2 } else { 1 };
    let page_bytes = info.page_bytes.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(0);
    let target = [&[endian, info.word_bytes.unwrap_or(8), 0, 0][..], &page_bytes.to_le_bytes()].concat();
    let cpus: Vec<u8> = info.cpus.iter().flat_map(|cpu| cpu.to_le_bytes()).collect();
    item::put(&mut items, item::INPUT, 0, info.input.name().as_bytes());
    item::put(&mut items, item::TARGET, 0, &target);
    item::put(&mut items, item::SOURCE, 0, b"tracefs");
    item::put(&mut items, item::CPUS, 0, &cpus);
    let texts = [
        (item::CLOCK, &info.clock),
        (item::KERNEL, &info.kernel),
        (item::ARCH, &info.arch),
        (item::HOST, &info.host),
        (item::BOOT, &info.boot),
    ];
    for (tag, text) in texts {
        if let Some(text) = text {
            item::put(&mut items, tag, 0, text.as_bytes());
        }
    }
    if let Some(from) = page_bytes_from {
        item::put(&mut items, item::PAGE_BYTES_FROM, 0, from.as_bytes());
    }
    items
}
