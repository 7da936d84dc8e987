//! What a program or a thread is, which decides the system calls that it may make.

/// What a program or a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Reads files and writes files and text.
    Reader,
    /// A reader that draws on a terminal and takes keys from it.
    Screen,
    /// A reader of a stream that opens no input and writes no file.
    Viewer,
    /// Thread of the recorder that changes control files, and ends the recording.
    Recorder,
    /// Thread of the recorder that takes bytes out of the kernel's buffer of a CPU.
    Drain,
    /// Thread of the recorder that writes blocks into a file that is open.
    Writer,
    /// Thread of the recorder that reads names from the kernel, and writes them into a file that is open.
    Names,
    /// Thread of the recorder that removes an earlier recording.
    Remover,
    /// Thread of the recorder that writes messages.
    Messages,
}
