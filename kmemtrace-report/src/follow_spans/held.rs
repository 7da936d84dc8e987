//! Spans that wait for the names of their threads: the kernel tells the name of a short-lived command a moment after its events.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kmemtrace::follow::Follower;
use kmemtrace::latency::EndedSpan;

/// Longest wait of a span for a name: the recorder asks for new names every 200 ms.
const WAIT: Duration = Duration::from_millis(350);
/// Most spans that wait.
const MAX: usize = 10_000;

/// Spans in the order of their ends, each with the time at which it came.
pub(super) struct Held {
    spans: VecDeque<(Instant, EndedSpan)>,
    wait: Duration,
}

impl Held {
    /// No spans. A recorder hands on names in a stream alone: with a directory no span waits.
    pub(super) fn new(is_stream: bool) -> Held {
        Held { spans: VecDeque::new(), wait: if is_stream { WAIT } else { Duration::ZERO } }
    }

    /// Adds spans that have ended, and takes off those that have waited enough or whose names are known. None overtakes another.
    pub(super) fn pass(&mut self, ended: Vec<EndedSpan>, follower: &Follower<'_>) -> Vec<EndedSpan> {
        let now = Instant::now();
        self.spans.extend(ended.into_iter().map(|span| (now, span)));
        let mut ready = Vec::new();
        while let Some((came, span)) = self.spans.front_mut() {
            follower.name(span);
            if span.lacks_name() && now - *came < self.wait && self.spans.len() <= MAX {
                break;
            }
            ready.extend(self.spans.pop_front().map(|(_, span)| span));
        }
        ready
    }

    /// Takes off all spans.
    pub(super) fn rest(self, follower: &Follower<'_>) -> Vec<EndedSpan> {
        let mut rest: Vec<EndedSpan> = self.spans.into_iter().map(|(_, span)| span).collect();
        rest.iter_mut().for_each(|span| follower.name(span));
        rest
    }
}
