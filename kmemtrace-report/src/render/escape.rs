//! The one way for a name of a trace to reach an output.

pub(crate) use kmemtrace_abi::escape::escape;
