//! Options of opening a trace.

/// Wishes of the caller that some inputs can fulfil.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// Memory that was given back is read, too, where the input tells of it ([`InputKind::is_of_one_moment`](crate::trace::InputKind)).
    pub released: bool,
}
