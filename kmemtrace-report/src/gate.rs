//! `--fail-on`: the exit status 1 where a recording has what the user does not want.

use kmemtrace::documents::leaks::LeaksBody;
use kmemtrace::{Analysis, Finding};

use crate::args::{Args, FailOn};
use crate::cli::Request;
use crate::exit;
use crate::terminal::messages::say;
use crate::told;

/// Status of `--fail-on`: the gate fires on errors, and for classes without errors on findings that loss does not explain.
pub(crate) fn findings(args: &Args, analysis: &Analysis) -> u8 {
    let errors = |class: Finding| {
        let of_class = analysis.findings().filter(|finding| finding.class == class);
        of_class.fold(0u64, |sum, finding| {
            let unseen = if class.is_error() { finding.unseen } else { 0 };
            sum.saturating_add(finding.count.saturating_sub(finding.suspect).saturating_sub(unseen))
        })
    };
    let classes = args.fail_on.iter().filter_map(|fail_on| match fail_on {
        FailOn::Class(class) => Some(*class),
        FailOn::Leak => None,
    });
    let fired: Vec<String> = classes
        .map(|class| (class, errors(class)))
        .filter(|(_, errors)| *errors > 0)
        .map(|(class, errors)| format!("{errors} {}", class.name()))
        .collect();
    if fired.is_empty() {
        if let Some(missing) = told::not_recorded(analysis, &args.filters.kind).filter(|_| !args.fail_on.is_empty()) {
            say(&format!("--fail-on: there is nothing to judge: {missing}"));
        }
        return exit::OK;
    }
    say(&format!("--fail-on: {}", fired.join(", ")));
    exit::GATE
}

/// Status of `--fail-on leak`: the gate fires on groups that nothing known explains, and says so where it could see none.
pub(crate) fn leaks(args: &Args, view: &LeaksBody<'_>, missing: Option<String>) -> u8 {
    let leaks = view.leaks();
    if args.fail_on.is_empty() {
        return exit::OK;
    }
    if let Some(missing) = missing {
        say(&format!("--fail-on: no leak could be found: {missing}"));
    } else if !view.is_judged() {
        say("--fail-on: no leak could be found: the events are too few seconds, or have no times; record for a minute");
    }
    if leaks == 0 {
        return exit::OK;
    }
    say(&format!("--fail-on: {leaks} leak{}", if leaks == 1 { "" } else { "s" }));
    exit::GATE
}

/// Tells where `--fail-over` has nothing to compare.
pub(crate) fn tell_blind_growth(args: &Args, sides: [&Analysis; 2]) {
    let missing = sides.into_iter().find_map(|side| told::not_recorded(side, &args.filters.kind));
    if let (Some(_), Some(missing)) = (args.fail_over, missing) {
        say(&format!("--fail-over: there is nothing to compare: {missing}"));
    }
}

/// Refuses a reason for the exit status 1 that the view does not have.
pub(crate) fn check(request: &Request) -> anyhow::Result<()> {
    let is_of_leaks = request.view.name == "leaks";
    match request.args.fail_on.iter().find(|fail_on| (**fail_on == FailOn::Leak) != is_of_leaks) {
        Some(FailOn::Leak) => {
            anyhow::bail!("--fail-on leak: {} does not look for leaks; use leaks --fail-on leak", request.view.name)
        }
        Some(FailOn::Class(class)) => {
            anyhow::bail!("--fail-on {}: leaks has no findings; use mismatch --fail-on {0}", class.name())
        }
        None => Ok(()),
    }
}
