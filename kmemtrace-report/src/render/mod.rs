//! Renderers: text from values. Only this module decides how a figure or a name looks.

pub(crate) mod account;
pub(crate) mod csv;
mod cut;
pub(crate) mod event_output;
mod grid;
#[cfg(feature = "full")]
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod jsonl;
#[cfg(feature = "full")]
pub(crate) mod picture;
pub(crate) mod table;
#[cfg(feature = "top")]
pub(crate) mod top_screen;
mod wrap;
