//! The user's settings of options, which hold where the command line says nothing else.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory};

use super::{commands, nearest};
use crate::args::Args;
use crate::views::{VIEWS, View};

/// Options of one run alone: a file that set them would surprise.
const OF_ONE_RUN: [&str; 8] =
    ["input", "output", "force", "explain", "memstrack", "follow", "no-config", "window-events"];

/// A value of an option.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    /// View that it is for; `None` for all.
    pub(crate) view: Option<String>,
    /// Long name of the option.
    pub(crate) key: String,
    /// Its values; none for an option without a value.
    pub(crate) values: Vec<String>,
}

/// Settings of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// File that they are of, for messages.
    pub(crate) path: PathBuf,
    /// The settings.
    pub(crate) list: Vec<Setting>,
}

impl Settings {
    /// Options of `words`, a command line that was parsed to `given`, with the settings; `None` if no setting counts.
    ///
    /// # Errors
    /// A line about a setting that makes no sense.
    pub(super) fn applied(
        &self,
        view: &'static View,
        is_named: bool,
        words: &[OsString],
        given: &ArgMatches,
    ) -> Result<Option<ArgMatches>, String> {
        let command = Args::command();
        let args = self.list.iter().map(|setting| self.option(&command, setting).map(|arg| (setting, arg)));
        let args: Vec<(&Setting, &Arg)> = args.collect::<Result<_, String>>()?;
        let (of_view, of_all): (Vec<_>, Vec<_>) = args.into_iter().partition(|(setting, _)| setting.view.is_some());
        let is_for = |setting: &Setting| setting.view.as_deref().is_none_or(|name| name == view.name);
        let (mut set, mut words, mut applied) = (Vec::new(), words.to_vec(), None);
        for (setting, arg) in of_view.into_iter().chain(of_all).filter(|(setting, _)| is_for(setting)) {
            let is_given = given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
            if is_given || set.contains(&&setting.key) || !commands::has(view, is_named, arg) {
                continue;
            }
            let mut with = words.clone();
            let start = if is_named { 2 } else { 1 };
            with.splice(start..start, setting.words());
            match commands::program().try_get_matches_from(&with) {
                Ok(matches) => {
                    applied = Some(matches);
                    words = with;
                    set.push(&setting.key);
                }
                // An option of the command line excludes it.
                Err(error) if error.kind() == ErrorKind::ArgumentConflict => {}
                Err(error) => return Err(self.refused(setting, view, &error)),
            }
        }
        let of_view = |matches: ArgMatches| matches.subcommand().map(|(_, below)| below.clone()).unwrap_or(matches);
        Ok(applied.map(of_view))
    }

    /// Option that a setting names.
    fn option<'a>(&self, command: &'a clap::Command, setting: &Setting) -> Result<&'a Arg, String> {
        let key = &setting.key;
        if let Some(view) = setting.view.as_ref().filter(|view| View::named(view).is_none()) {
            return Err(self.line(view, "no view has this name", nearest::nearest(view, VIEWS.iter().map(|v| v.name))));
        }
        if OF_ONE_RUN.contains(&key.as_str()) {
            return Err(self.line(key, "it can be given on the command line alone", Vec::new()));
        }
        let long = |arg: &&'a Arg| arg.get_long() == Some(key.as_str());
        let Some(arg) = command.get_arguments().find(long) else {
            let names = command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long);
            return Err(self.line(key, "no option has this name", nearest::nearest(key, names)));
        };
        // A directory of the command line is checked where it is used; that message would not name this file.
        let missing = |folder: &&String| key == "debug-dir" && !Path::new(folder).is_dir();
        if let Some(folder) = setting.values.iter().find(missing) {
            return Err(self.line(key, &format!("{folder} is not a directory"), Vec::new()));
        }
        match (arg.get_action(), setting.values.is_empty()) {
            (ArgAction::SetTrue, false) => Err(self.line(key, "it takes true or false", Vec::new())),
            (ArgAction::Set | ArgAction::Append, true) => Err(self.line(key, "it takes a value", Vec::new())),
            _ => Ok(arg),
        }
    }

    /// Line about a value that the parser refuses.
    fn refused(&self, setting: &Setting, view: &View, error: &clap::Error) -> String {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let first = first.strip_prefix("error: ").unwrap_or(first);
        let remedy = match setting.view {
            Some(_) => String::new(),
            None => format!("; a value for some views alone belongs into their tables, not for {}", view.name),
        };
        self.line(&setting.key, &format!("{first}{remedy}"), Vec::new())
    }

    fn line(&self, key: &str, what: &str, like: Vec<&str>) -> String {
        let like = like.first().map_or(String::new(), |name| format!("; did you mean {name}?"));
        format!("{}: {key}: {what}{like} (--no-config does without the file)", self.path.display())
    }
}

impl Setting {
    /// Words of the command line.
    fn words(&self) -> Vec<OsString> {
        if self.values.is_empty() {
            return vec![format!("--{}", self.key).into()];
        }
        self.values.iter().map(|value| format!("--{}={value}", self.key).into()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(list: &[(Option<&str>, &str, &[&str])]) -> Settings {
        let setting = |(view, key, values): &(Option<&str>, &str, &[&str])| Setting {
            view: view.map(str::to_owned),
            key: (*key).to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        Settings { path: "report.toml".into(), list: list.iter().map(setting).collect() }
    }

    /// Words of the options that a line has with settings, by the view's own options.
    fn with(settings: &Settings, line: &str) -> Result<super::super::Request, String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        match super::super::parse(words, || Ok(settings.clone())) {
            Ok(super::super::CommandLine::Request(request)) => Ok(*request),
            Ok(_) => panic!("{line}: no request"),
            Err(super::super::Refusal::Line(line)) => Err(line),
            Err(super::super::Refusal::Clap(error)) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_command_line_wins_and_tables_go_before_the_rest() {
        let settings = settings(&[
            (None, "top", &["7"]),
            (Some("live"), "top", &["9"]),
            (None, "bytes", &[]),
            (None, "by", &["comm"]),
        ]);
        let top = |line: &str| with(&settings, line).unwrap().args.top;
        assert_eq!([top("r sites"), top("r live"), top("r sites -n 3"), top("r live -n 3")], [7, 9, 3, 3].map(Some));
        assert_eq!(top("r sites --no-config"), None);
        assert_eq!(top("r"), None, "summary has no --top");
        assert!(with(&settings, "r sites").unwrap().args.bytes && with(&settings, "r").unwrap().args.bytes);
        let objects = with(&settings, "r live --objects").unwrap().args;
        assert!(objects.by.is_empty() && objects.objects, "an option of the command line excludes --by");
        assert_eq!(with(&settings, "r pack x").unwrap().args.top, None);
    }

    #[test]
    fn a_setting_that_makes_no_sense_is_told() {
        for (view, key, values, said) in [
            (None, "topp", &["3"][..], "report.toml: topp: no option has this name; did you mean top?"),
            (Some("site"), "top", &["3"], "report.toml: site: no view has this name; did you mean sites?"),
            (None, "top", &["many"], "report.toml: top: invalid value 'many'"),
            (None, "top", &[], "report.toml: top: it takes a value"),
            (None, "bytes", &["3"], "report.toml: bytes: it takes true or false"),
            (None, "output", &["x"], "report.toml: output: it can be given on the command line alone"),
        ] {
            let line = with(&settings(&[(view, key, values)]), "r sites").map(|_| ()).unwrap_err();
            assert!(line.starts_with(said) && line.lines().count() == 1, "{line}");
        }
    }
}
