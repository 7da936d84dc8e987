//! The command `kmemtrace`: words, programs and exit statuses; words and options of perf; the user's settings.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use kmemtrace_tests::programs::{data, program, run, stderr, text};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;

const COMMAND: &str = "kmemtrace";
const REPORT: &str = "kmemtrace-report";
const PROGRAMS: [&str; 4] = [COMMAND, "kmemtraced", "kmemtrace-check", REPORT];
/// A user that no machine has.
const STRANGER: u32 = 64_242;

kmemtrace_tests::tests![
    each_word_prints_and_ends_as_its_program,
    each_view_is_a_word,
    programs_are_found_beside_the_command_and_then_in_path,
    what_people_of_perf_type_finds_its_twin,
    completions_are_those_of_the_programs,
    settings_hold_where_the_command_line_says_nothing,
    settings_are_read_as_nobody_else_s,
];

fn sample() -> String {
    data("amd64-6.18").display().to_string()
}

fn each_word_prints_and_ends_as_its_program() -> Result<(), Skip> {
    let sample = sample();
    let no_trace = Directory::new(&[]);
    let absent = no_trace.file("absent").display().to_string();
    for (words, name, same) in [
        ("leaks --help", REPORT, "leaks --help"),
        ("help leaks", REPORT, "help leaks"),
        ("sites -n 2 @", REPORT, "sites -n 2 @"),
        ("report -n 2 @", REPORT, "-n 2 @"),
        ("report sites -n 2 @", REPORT, "sites -n 2 @"),
        ("@", REPORT, "@"),
        ("leaks !", REPORT, "leaks !"),
        ("check @", "kmemtrace-check", "@"),
        ("check !", "kmemtrace-check", "!"),
        ("record --help", "kmemtraced", "--help"),
        ("record -d nonsense", "kmemtraced", "-d nonsense"),
        ("top --help", "kmemtraced", "top --help"),
        ("doctor --help", "kmemtraced", "doctor --help"),
        ("probe --help", "kmemtraced", "doctor --help"),
    ] {
        let full = |words: &str| words.replace('@', &sample).replace('!', &absent);
        let output = |name: &str, words: &str| {
            let words = full(words);
            run(name, &words.split(' ').collect::<Vec<_>>(), &[])
        };
        let (ours, theirs) = (output(COMMAND, words), output(name, same));
        assert_eq!(ours.status, theirs.status, "{words}");
        assert_eq!(text(&ours.stdout), text(&theirs.stdout), "{words}");
        assert_eq!(text(&ours.stderr), text(&theirs.stderr), "{words}");
    }
    let alone = run(COMMAND, &[], &[]);
    let wanted = text(&alone.stdout);
    assert_eq!(
        (stderr(0, &alone), wanted.lines().filter(|line| line.contains("   kmemtrace ")).count()),
        (String::new(), 6)
    );
    // Each of the six begins with a word that is one.
    for line in wanted.lines().filter_map(|line| line.split_once("   kmemtrace ")) {
        let word = line.1.split(' ').next().unwrap_or_default();
        let help = run(COMMAND, &[word, "--help"], &[]);
        assert_eq!(stderr(0, &help), "", "{word}");
    }
    Ok(())
}

fn each_view_is_a_word() -> Result<(), Skip> {
    let help = text(&run(REPORT, &["--help"], &[]).stdout);
    let views = help.lines().skip_while(|line| !line.starts_with("Views ")).skip(1).take_while(|line| !line.is_empty());
    let views: Vec<&str> = views.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(views.contains(&"export") && views.len() > 20, "{views:?}");
    // The command has these itself.
    for view in views.into_iter().filter(|view| !["top", "completions", "help"].contains(view)) {
        let (ours, theirs) = (run(COMMAND, &[view, "--help"], &[]), run(REPORT, &[view, "--help"], &[]));
        assert_eq!((stderr(0, &ours), text(&ours.stdout)), (String::new(), text(&theirs.stdout)), "{view}");
    }
    Ok(())
}

/// Runs a copy of the command with a PATH of its own.
fn run_copy(copy: &Path, path: &OsStr) -> Output {
    Command::new(copy).args(["leaks", "--help"]).env("PATH", path).output().unwrap()
}

fn programs_are_found_beside_the_command_and_then_in_path() -> Result<(), Skip> {
    let place = Directory::new(&[]);
    let copy = place.file("kmemtrace");
    fs::copy(program(COMMAND), &copy).unwrap();
    let none = run_copy(&copy, place.path().as_os_str());
    assert_eq!(
        stderr(2, &none),
        "kmemtrace: kmemtrace-report: neither beside kmemtrace nor in PATH: install it: cargo install kmemtrace-report\n"
    );
    let built = program(REPORT);
    let of_built = run_copy(&copy, built.parent().unwrap().as_os_str());
    assert!(stderr(0, &of_built).is_empty() && text(&of_built.stdout).contains("kmemtrace-report leaks"));
    // The one beside the command goes before PATH.
    fs::write(place.file(REPORT), "#!/bin/sh\nexit 42\n").unwrap();
    fs::set_permissions(place.file(REPORT), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(run_copy(&copy, built.parent().unwrap().as_os_str()).status.code(), Some(42));
    Ok(())
}

fn what_people_of_perf_type_finds_its_twin() -> Result<(), Skip> {
    let sample = sample();
    // Accepted as it stands.
    for words in ["report --stdio -i @", "sites --stdio -i @", "summary -i @", "report -i @ --stdio"] {
        let words = words.replace('@', &sample);
        let output = run(COMMAND, &words.split(' ').collect::<Vec<_>>(), &[]);
        assert_eq!(stderr(0, &output), "", "{words}");
    }
    // Understood as far as the machine allows: the message is about something else than an option.
    let place = Directory::new(&[]);
    for words in ["record -a -g -e kmem:kmalloc", "record -p 1", "record -ag"] {
        let mut command = Command::new(program(COMMAND));
        command.args(words.split(' ')).args(["--tracefs", "/absent"]).current_dir(place.path());
        let said = stderr(2, &command.output().unwrap());
        assert!(said.contains("/absent"), "{words}: {said}");
    }
    for (words, said) in [
        ("record -F 99 -a", "-F is an option of perf: every event is recorded"),
        ("record --call-graph fp", "--call-graph is an option of perf: use -g (--stack)"),
        ("record -C 0", "-C is an option of perf"),
        ("record sleep 1", "kmemtraced -- sleep 1"),
        ("report --sort comm,dso", "--sort comm,dso: keys of other tools: use the view sites with --by comm,module"),
        ("sites --sort comm", "with --by comm"),
        ("report -g", "use tree --by stack"),
        ("record -a -p 1", "-a records the whole machine, and another option some tasks alone: leave one out"),
        ("record --page", "--page is an option of perf: use -e page"),
        ("live --page", "--page is an option of perf: use --kind pages"),
        ("kmem stat --caller --slab", "type kmemtrace sites --kind kmalloc,cache"),
        ("kmem stat --page --live --sort frag -l 10", "type kmemtrace live --kind pages --sort live_wasted -n 10"),
        ("stat -e kmem:*", "type kmemtrace record -- COMMAND, then kmemtrace summary"),
        ("script", "type kmemtrace events"),
        ("diff", "type kmemtrace compare BEFORE AFTER"),
        ("list", "kmemtrace doctor"),
        ("annotate", "kmemtrace sites --by source"),
    ] {
        let mut command = Command::new(program(COMMAND));
        let line = stderr(2, &command.args(words.split(' ')).current_dir(place.path()).output().unwrap());
        assert!(line.contains(said) && line.lines().count() == 1, "{words}: {line}");
    }
    Ok(())
}

fn completions_are_those_of_the_programs() -> Result<(), Skip> {
    let place = Directory::new(&[]);
    fs::write(place.file("script"), run(COMMAND, &["completions", "bash"], &[]).stdout).unwrap();
    for name in PROGRAMS {
        symlink(program(name), place.file(name)).unwrap();
    }
    const COMPLETE: &str = r#"
        PATH="$1:$PATH"; source "$1/script"; shift
        COMP_WORDS=(kmemtrace "$@"); COMP_CWORD=$#
        _kmemtrace kmemtrace "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    for (words, found, missing) in [
        (&["re"][..], "record", "leaks"),
        (&["lea"], "leaks", "record"),
        (&["record", "--dur"], "--duration", "--sort"),
        (&["top", "--ke"], "--keep", "--sort"),
        (&["live", "--so"], "--sort", "--duration"),
        (&["report", "live", "--so"], "--sort", "--duration"),
        (&["check", "--str"], "--strict", "--sort"),
        (&["help", "gro"], "growth", "live"),
    ] {
        let output = Command::new("bash").args(["-c", COMPLETE, "bash"]).arg(place.path()).args(words).output();
        let output = output.map_err(|error| Skip(format!("bash cannot be run: {error}")))?;
        let said = text(&output.stdout);
        let replies: Vec<&str> = said.lines().collect();
        assert!(replies.contains(&found) && !replies.contains(&missing), "{words:?}: {replies:?} {output:?}");
    }
    Ok(())
}

/// Report with the folder of settings `home`, and no SUDO_UID unless the words of `env` have one.
fn report(home: &Path, env: &[(&str, &str)], words: &[&str]) -> Output {
    let mut command = Command::new(program(REPORT));
    command.env_remove("SUDO_UID").env_remove("XDG_CONFIG_HOME").env("HOME", home).current_dir(home);
    command.envs(env.iter().copied()).args(words).arg(sample()).output().unwrap()
}

/// Home with these settings.
fn home(settings: &str) -> Directory {
    let home = Directory::new(&[]);
    home.write(".config/kmemtrace/report.toml", settings.as_bytes());
    home
}

/// Number of rows of a JSON document.
fn rows(output: &Output) -> usize {
    assert_eq!(stderr(0, output), "");
    kmemtrace_tests::programs::json(&output.stdout)["rows"].as_array().map_or(0, Vec::len)
}

fn settings_hold_where_the_command_line_says_nothing() -> Result<(), Skip> {
    let home = home("format = 'json'\n[sites]\ntop = 3\n");
    let sites = |words: &[&str]| report(home.path(), &[], &[&["sites"], words].concat());
    assert_eq!(rows(&sites(&[])), 3);
    assert_eq!(rows(&sites(&["-n", "2"])), 2);
    assert!(rows(&report(home.path(), &[], &["live"])) > 3, "a table [sites] is for sites");
    let table = sites(&["--no-config"]);
    assert!(stderr(0, &table).is_empty() && !text(&table.stdout).starts_with('{'));
    for (settings, said) in [
        ("topp = 3\n", "report.toml: topp: no option has this name; did you mean top?"),
        ("top = \n", "report.toml: line 1: "),
        ("output = 'x'\n", "report.toml: output: it can be given on the command line alone"),
    ] {
        home.write(".config/kmemtrace/report.toml", settings.as_bytes());
        let line = stderr(2, &sites(&[]));
        assert!(line.contains(said) && line.lines().count() == 1, "{line}");
        assert_eq!(stderr(0, &sites(&["--no-config"])), "");
    }
    Ok(())
}

fn settings_are_read_as_nobody_else_s() -> Result<(), Skip> {
    const THREE: &str = "format = 'json'\n[sites]\ntop = 3\n";
    let is_read = |home: &Directory, env: &[(&str, &str)]| {
        let output = report(home.path(), env, &["sites"]);
        (text(&output.stdout).starts_with('{'), stderr(0, &output))
    };
    let own = home(THREE);
    let file = own.file(".config/kmemtrace/report.toml");
    let user = rustix::process::geteuid().as_raw().to_string();
    assert_eq!(is_read(&own, &[]), (true, String::new()));
    assert_eq!(is_read(&own, &[("SUDO_UID", &user)]), (true, String::new()));
    let empty = Directory::new(&[]);
    let config = own.file(".config").display().to_string();
    assert_eq!(is_read(&empty, &[("XDG_CONFIG_HOME", &config)]), (true, String::new()));
    // Under sudo for somebody else.
    assert_eq!(is_read(&own, &[("SUDO_UID", "64242")]), (false, String::new()));
    // The working directory is not looked at, whatever names it.
    for relative in [".config", ""] {
        assert_eq!(is_read(&own, &[("HOME", ""), ("XDG_CONFIG_HOME", relative)]), (false, String::new()));
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let (read, said) = is_read(&own, &[]);
    assert!(!read && said.contains("report.toml: not read: everybody may write it"), "{said}");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&file, Some(STRANGER), None).map_err(|error| Skip(format!("needs root to give a file away: {error}")))?;
    let (read, said) = is_read(&own, &[]);
    assert!(!read && said.contains(&format!("report.toml: not read: it belongs to user {STRANGER}")), "{said}");
    Ok(())
}
