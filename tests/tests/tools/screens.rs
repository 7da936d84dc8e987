//! What a terminal shows: a screen that is not exceeded, and the pager of what is longer. Tests that need tmux, or root, are listed as
//! skipped at the end where these are missing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use kmemtrace_tests::generate::{Options, Shape, trace_dir, workload};
use kmemtrace_tests::programs::{data, program};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::terminal::Terminal;

kmemtrace_tests::tests![
    summaries_and_tables_fit_the_screen,
    a_pager_gets_what_is_longer,
    the_recorders_help_is_paged_as_the_reports,
    the_exit_status_is_the_reports,
    under_sudo_the_pager_is_a_secure_less,
];

/// Size of most screens.
const USUAL: (u16, u16) = (80, 24);

/// Line of the shell that runs the report and tells the exit status on the same line; variables stand before it.
fn line(variables: &str, words: &str, trace: &Path) -> String {
    let report = program("kmemtrace-report");
    format!(
        "{variables} '{}' {words} --no-index '{}'; printf 'done %s' $?; sleep 100",
        report.display(),
        trace.display()
    )
}

/// Screen once the report has ended.
fn screen(variables: &str, words: &str, trace: &Path, size: (u16, u16)) -> Result<String, Skip> {
    let terminal = Terminal::start(&line(variables, words, trace), size)?;
    Ok(terminal.wait_for("done "))
}

fn summaries_and_tables_fit_the_screen() -> Result<(), Skip> {
    let generated = Directory::new(&trace_dir(&workload(5, &Options::plain(Shape::plain(), 2, 20_000)), 5));
    for trace in [&data("amd64-6.18"), generated.path()] {
        for words in
            ["summary", "sites", "live", "live --by comm,site", "caches", "mismatch", "tasks", "cross", "growth"]
        {
            for size in [USUAL, (100, 30), (80, 50)] {
                let screen = screen("KMEMTRACE_PAGER='echo paged'", words, trace, size)?;
                let first = screen.lines().next().unwrap_or_default();
                let begins = ["COMPLETE", "LOSSY", "TRUNCATED"].iter().any(|verdict| first.starts_with(verdict));
                assert!(
                    begins && screen.contains("done 0") && !screen.contains("paged"),
                    "{words} {size:?}:\n{screen}"
                );
            }
        }
    }
    // What has no room is named with the command that shows it.
    let small = screen("KMEMTRACE_PAGER=", "summary", &data("amd64-6.18"), USUAL)?;
    let large = screen("KMEMTRACE_PAGER=", "summary", &data("amd64-6.18"), (120, 60))?;
    assert!(small.contains("Not shown; views with more: ") && small.contains("sites (churn)"), "{small}");
    assert!(large.contains("Churn") && !large.contains("Not shown"), "{large}");
    // More room, more rows.
    let rows = |size| {
        let screen = screen("KMEMTRACE_PAGER=", "sites", &data("amd64-6.18"), size)?;
        Ok(screen.lines().filter(|line| !line.trim().is_empty()).count())
    };
    assert!(rows((80, 50))? > rows(USUAL)?);
    Ok(())
}

/// A pager that keeps what it gets in the file `paged` of a directory.
fn pager(place: &Directory, name: &str, script: &str) -> String {
    let path = place.file(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

fn a_pager_gets_what_is_longer() -> Result<(), Skip> {
    let (place, trace) = (Directory::new(&[]), data("amd64-6.18"));
    let pager = pager(&place, "pager", &format!("cat >'{}'", place.file("paged").display()));
    let own = format!("KMEMTRACE_PAGER='{pager}'");
    for (variables, words, is_paged) in [
        (own.clone(), "sites -n 100", true),
        (format!("PAGER='{pager}'"), "sites -n 100", true),
        (format!("PAGER='{pager} -with words'"), "--format json", true),
        (own.clone(), "sites -n 2", false),
        (own.clone(), "sites -n 100 --no-pager", false),
        (own.clone(), "events -n 100", false),
        (own.clone(), "export --to csv", false),
        (format!("{own} SUDO_UID=1 PATH=/nowhere"), "-h", false),
        (own.clone(), "--help", true),
        (format!("KMEMTRACE_PAGER= PAGER='{pager}'"), "sites -n 100", false),
        (format!("KMEMTRACE_PAGER=cat PAGER='{pager}'"), "sites -n 100", false),
        (format!("KMEMTRACE_PAGER='{pager}' PAGER=/nowhere"), "sites -n 100", true),
    ] {
        let _ = fs::remove_file(place.file("paged"));
        let screen = screen(&variables, words, &trace, USUAL)?;
        let paged = fs::read_to_string(place.file("paged")).ok();
        assert_eq!(paged.is_some(), is_paged, "{variables} {words}: {screen}");
        assert!(screen.contains("done 0"), "{variables} {words}: {screen}");
        if let Some(paged) = paged {
            assert!(paged.lines().count() > 24 && !screen.contains("CALL SITE"), "{words}: {screen}\n{paged}");
        }
    }
    // A pager that is not there: the text comes all the same.
    let screen = screen("KMEMTRACE_PAGER=/nowhere", "sites -n 100", &trace, USUAL)?;
    assert!(screen.contains("done 0") && screen.contains("+0x"), "{screen}");
    Ok(())
}

/// Screen once the recorder has printed its help.
fn help(variables: &str, words: &str) -> Result<String, Skip> {
    let recorder = program("kmemtraced");
    let line = format!("{variables} '{}' {words}; printf 'done %s' $?; sleep 100", recorder.display());
    Ok(Terminal::start(&line, USUAL)?.wait_for("done "))
}

fn the_recorders_help_is_paged_as_the_reports() -> Result<(), Skip> {
    let place = Directory::new(&[]);
    let own =
        format!("KMEMTRACE_PAGER='{}'", pager(&place, "pager", &format!("cat >'{}'", place.file("paged").display())));
    for (variables, words, is_paged) in [
        (&*own, "--help", true),
        (&*own, "help watch", true),
        (&*own, "top --help", true),
        (&*own, "completions --help", false),
        (&*own, "-h", false),
        (&*own, "--version", false),
        ("KMEMTRACE_PAGER=", "--help", false),
        ("KMEMTRACE_PAGER=/nowhere", "--help", false),
    ] {
        let _ = fs::remove_file(place.file("paged"));
        let screen = help(variables, words)?;
        let paged = fs::read_to_string(place.file("paged")).ok();
        assert_eq!(paged.is_some(), is_paged, "{variables} {words}: {screen}");
        assert!(screen.contains("done 0"), "{variables} {words}: {screen}");
        assert!(paged.is_none_or(|text| text.contains("Exit status") && !screen.contains("Options")), "{screen}");
    }
    Ok(())
}

fn the_exit_status_is_the_reports() -> Result<(), Skip> {
    let (place, trace) =
        (Directory::new(&[]), Directory::new(&trace_dir(&workload(3, &Options::plain(Shape::plain(), 2, 20_000)), 3)));
    fs::remove_file(trace.file("cpu1.out")).unwrap();
    let early = pager(&place, "early", "exit 7");
    for (words, status) in [("sites -n 100000 --format json", 0), ("sites -n 100000 --strict", 3)] {
        let screen = screen(&format!("KMEMTRACE_PAGER='{early}'"), words, trace.path(), USUAL)?;
        assert!(screen.contains(&format!("done {status}")), "{words}: {screen}");
        assert!(!screen.contains("pipe") && !screen.contains("written"), "{words}: {screen}");
    }
    Ok(())
}

fn under_sudo_the_pager_is_a_secure_less() -> Result<(), Skip> {
    if !rustix::process::geteuid().is_root() {
        return Err(Skip("needs root, whose less is trusted".to_owned()));
    }
    let (place, trace) = (Directory::new(&[]), data("amd64-6.18"));
    let own = pager(&place, "pager", &format!("cat >/dev/null; touch '{}'", place.file("own").display()));
    pager(&place, "less", &format!("env >'{}'; cat >/dev/null", place.file("environment").display()));
    for caller in ["SUDO_UID=1000", "PKEXEC_UID=1000"] {
        let path = place.path().display();
        let variables = format!(
            "{caller} KMEMTRACE_PAGER='{own}' PAGER='{own}' LESS=K LESSOPEN='|{own} %s' LESSSECURE_ALLOW=shell PATH='{path}':$PATH"
        );
        let screen = screen(&variables, "sites -n 100", &trace, USUAL)?;
        let environment = fs::read_to_string(place.file("environment")).unwrap_or_default();
        assert!(environment.lines().any(|line| line == "LESSSECURE=1"), "{environment}\n{screen}");
        assert!(!environment.contains("LESSOPEN") && !environment.contains("LESSSECURE_ALLOW"), "{environment}");
        assert!(!place.file("own").exists() && screen.contains("done 0"), "{screen}");
        fs::remove_file(place.file("environment")).unwrap();
        let screen = help(&variables, "--help")?;
        let environment = fs::read_to_string(place.file("environment")).unwrap_or_default();
        assert!(environment.lines().any(|line| line == "LESSSECURE=1"), "{environment}\n{screen}");
        assert!(!environment.contains("LESSOPEN") && !place.file("own").exists(), "{environment}\n{screen}");
        // A less that others can replace is not run.
        fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
        fs::remove_file(place.file("environment")).unwrap();
        let terminal = Terminal::start(&line(&variables, "sites -n 100", &trace), USUAL)?;
        terminal.wait_for("+0x");
        terminal.press(&["q"]);
        terminal.wait_for("done 0");
        assert!(!place.file("environment").exists());
        fs::set_permissions(place.path(), Permissions::from_mode(0o700)).unwrap();
    }
    Ok(())
}
