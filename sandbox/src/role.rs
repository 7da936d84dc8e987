//! What a program is, which decides the system calls that it may make.

/// What a program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads files and writes files and text.
    Reader,
    /// A reader that draws on a terminal and takes keys from it.
    Screen,
    /// A reader of a stream that opens no input and writes no file.
    Viewer,
}
