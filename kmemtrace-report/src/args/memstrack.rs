//! Values of `--memstrack`.

use std::ffi::OsStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command};
use kmemtrace_abi::text::escape::escape;
use kmemtrace_abi::text::memstrack::{NAMES, Report};

/// Parser of a report of memstrack. A name that is none is told with all names, and with one that is like it.
#[derive(Clone)]
pub(crate) struct ReportParser;

impl TypedValueParser for ReportParser {
    type Value = Report;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Report, clap::Error> {
        let text = value.to_str().unwrap_or_default();
        let name = text.split(':').next().unwrap_or_default();
        if !NAMES.contains(&name) {
            let name = if name.is_empty() { value } else { OsStr::new(name) };
            PossibleValuesParser::new(NAMES).parse_ref(command, arg, name)?;
        }
        Report::parse(text).map_err(|reason| {
            let option = arg.and_then(Arg::get_long).unwrap_or_default();
            let line = format!("--{option}: {}\n", escape(reason.as_bytes()));
            clap::Error::raw(ErrorKind::ValueValidation, line).with_cmd(command)
        })
    }
}
