//! Parts that all formats share: input, query, output, verdict and exit status.

use std::io::{self, IsTerminal};

use kmemtrace::{Analysis, Observer, Query, Trace};

use crate::cli::Request;
use crate::render::table::options::TableOptions;
use crate::report;
use crate::terminal::messages::say;
use crate::terminal::output::Output;
use crate::terminal::progress::ProgressLine;
use crate::told;

/// Export of one file.
pub(super) struct Job<'a> {
    pub(super) request: &'a Request,
    /// Filters and window as the user gave them.
    pub(super) asked: TableOptions,
}

impl<'a> Job<'a> {
    pub(super) fn new(request: &'a Request) -> Job<'a> {
        Job { request, asked: report::table_options(request, &request.inputs()[0]) }
    }

    /// Name of the host that the command line gives.
    pub(super) fn host(&self) -> Option<&str> {
        self.request.args.host.as_deref()
    }

    pub(super) fn open(&self) -> anyhow::Result<Trace> {
        report::open(self.request, &self.request.inputs())
    }

    pub(super) fn output(&self) -> anyhow::Result<Output> {
        Output::open(self.request.args.output.as_deref(), self.request.args.force)
    }

    /// Output of a format that is no text.
    pub(super) fn binary_output(&self) -> anyhow::Result<Output> {
        if self.request.args.output.is_none() && io::stdout().is_terminal() {
            anyhow::bail!("export: this format is binary: name a file with -o FILE");
        }
        self.output()
    }

    /// Answer to a query, with the options of the command line.
    pub(super) fn analyse(&self, query: Query) -> anyhow::Result<Analysis> {
        let (analysis, suggestions) = report::analyse(self.request, query)?;
        report::check_branches(&self.request.args, &analysis.source_paths())?;
        suggestions.iter().for_each(|line| say(line));
        Ok(analysis)
    }

    /// Hands events and gaps to an observer, with the options of the command line.
    pub(super) fn observe(&self, observer: &mut dyn Observer) -> anyhow::Result<()> {
        let mut trace = self.open()?;
        let query = report::with_options(self.request, Query::by_kind())?;
        query.observe_with(&mut trace, observer, &mut ProgressLine::new(self.request.args.quiet))?;
        Ok(())
    }

    /// Tells of files of names that are left out and the verdict, and finds the exit status.
    pub(super) fn end(&self, analysis: &Analysis) -> u8 {
        told::rejected(&analysis.names_report());
        told::counts(analysis.completeness(), analysis.events());
        report::status(&self.request.args, analysis.completeness())
    }
}
