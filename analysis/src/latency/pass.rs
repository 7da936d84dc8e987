//! Pass over the events in order that measures the time tasks wait for memory: [`Query::latency`].

use std::cell::Cell;

use kmemtrace_abi::trace::Trace;

use crate::account::cgroups::{CgroupBuilder, Cgroups};
use crate::engine::observe::{has_late_loss, observe_in_order};
use crate::engine::read_in_order;
use crate::error::AnalysisError;
use crate::latency::{Latency, LatencyRequest, Pass, WaitBy};
use crate::memory::budget::Budget;
use crate::names::known::KnownNames;
use crate::order::ordered::Ordered;
use crate::progress::Progress;
use crate::query::Query;

impl Query {
    /// Time that tasks wait for memory. Of the query, the time window counts, and the filters by thread and command, which act on
    /// the spans that were made of all events. Those by call-site, module and source act on the stalls that are listed.
    ///
    /// # Errors
    /// Errors of [`Query::observe`].
    pub fn latency(
        &self,
        trace: &mut Trace,
        request: LatencyRequest,
        progress: &mut dyn Progress,
    ) -> Result<Latency, AnalysisError> {
        let plain = Query { select: Default::default(), ..self.clone() };
        let first_key = Cell::new(0);
        let tells_cgroups = request.lists_stalls || request.has_key(WaitBy::Cgroup) || !self.select.cgroup.is_empty();
        let cgroups = if tells_cgroups { cgroups_of_threads(trace, progress) } else { None };
        let (mut pass, index) = plain.open_pass(trace, &first_key, Budget::new(self.max_memory), progress)?;
        pass.names.find_sources(trace)?;
        trace.names.fields.set_kept(request.lists_events);
        let info = trace.info.clone();
        let gfp_names = trace.metadata.gfp_names.clone();
        let mut latency = Pass::new(&request, &self.select, &pass.names, &info).with_cgroups(cgroups.as_ref());
        let mut ordered = Ordered::new(latency.observer(), &pass.names.comms, None, None);
        let window = pass.window;
        let (order, completeness) = observe_in_order(trace, self.window_events, index, window, progress, &mut ordered)?;
        let rows = latency.finish(&trace.names, has_late_loss(trace, &order));
        let (observed, names) = pass.end_with_names(trace, &order, completeness);
        let trace_names = std::mem::take(&mut trace.names);
        let window = window.map(|window| window.resolve(first_key.get()));
        let names = KnownNames { trace_names, ..names };
        Ok(rows.answer((observed, info, names), (gfp_names, cgroups), request.clone(), self.given.clone(), window))
    }
}

/// Cgroups of the threads: by a pass of its own where events tell of changes, else as the recorder found them. An input that is read once
/// tells none.
fn cgroups_of_threads(trace: &Trace, progress: &mut dyn Progress) -> Option<Cgroups> {
    let text = &trace.metadata.cgroups;
    if trace.tells_tasks() {
        return Some(read_in_order::cgroups(&mut trace.reopen().ok()?, text, progress));
    }
    (!text.is_empty()).then(|| CgroupBuilder::new(text).finish())
}
