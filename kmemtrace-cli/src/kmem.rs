//! `perf kmem …`: the line to type in its place.

use std::fmt::Write as _;

/// Sort keys of `perf kmem stat`, with those of the views `sites` and `live`.
const SORT_KEYS: [(&str, &str, &str); 4] = [
    ("frag", "wasted", "live_wasted"),
    ("hit", "allocs", "live"),
    ("bytes", "total", "live"),
    ("pingpong", "cross", "live"),
];

/// Options of `perf kmem stat` that choose a view, the strongest first, with the view.
const VIEWS: [(&str, &str); 4] =
    [("--alloc", "live --objects"), ("--live", "live"), ("--caller", "sites"), ("--page", "sites")];

/// Options of `perf kmem` that need no twin: the view is chosen by them, or they change nothing here.
const LEFT_OUT: [&str; 9] = ["--alloc", "--live", "--caller", "--page", "--slab", "--raw-ip", "-f", "--force", "-v"];

/// The line for the words behind `perf kmem`.
pub(crate) fn twin(words: &[&str]) -> String {
    match words.split_first() {
        Some((&"record", options)) => record(options),
        Some((&"stat", options)) => stat(options),
        _ => "kmemtrace record, then kmemtrace sites (perf kmem stat --caller), caches, or live".to_owned(),
    }
}

/// True if one of the options of `perf stat` is one of `perf kmem stat`.
pub(crate) fn is_meant(options: &[&str]) -> bool {
    VIEWS.iter().any(|(option, _)| options.contains(option)) || options.contains(&"--slab")
}

fn record(options: &[&str]) -> String {
    let events = match (options.contains(&"--slab"), options.contains(&"--page")) {
        (true, true) => " -e slab,page",
        (false, true) => " -e page",
        (_, false) => "",
    };
    let mut line = format!("kmemtrace record{events}");
    options.iter().filter(|word| !LEFT_OUT.contains(word)).for_each(|word| add(&mut line, word));
    line
}

fn stat(options: &[&str]) -> String {
    let view = VIEWS.iter().find(|(option, _)| options.contains(option)).map(|(_, view)| *view);
    let is_sorted = options.iter().any(|word| word.starts_with("-s") || word.starts_with("--sort"));
    let view = view.unwrap_or(if is_sorted { "sites" } else { "summary" });
    let kinds = match (options.contains(&"--slab"), options.contains(&"--page")) {
        (true, false) => " --kind kmalloc,cache",
        (false, true) => " --kind pages",
        _ => "",
    };
    let mut line = format!("kmemtrace {view}{kinds}");
    let mut words = options.iter().flat_map(|word| match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => vec![option, value],
        _ => vec![*word],
    });
    while let Some(word) = words.next() {
        match word {
            "-l" | "--line" => add(&mut line, &format!("-n {}", words.next().unwrap_or("N"))),
            "-s" | "--sort" => {
                let keys = words.next().unwrap_or("KEY");
                // Single objects are in the order of their allocation.
                if view != "live --objects" {
                    add(&mut line, &format!("--sort {}", sort_keys(keys, view)));
                }
            }
            word if LEFT_OUT.contains(&word) => {}
            word => add(&mut line, word),
        }
    }
    line
}

/// Sort keys of a view for those of perf; others stay, and the report has a line about them.
fn sort_keys(keys: &str, view: &str) -> String {
    let mut ours: Vec<&str> = Vec::new();
    for key in keys.split(',') {
        let twin = SORT_KEYS.iter().find(|(perf, ..)| *perf == key);
        let key = twin.map_or(key, |(_, of_sites, of_live)| if view == "live" { of_live } else { of_sites });
        if !ours.contains(&key) {
            ours.push(key);
        }
    }
    ours.join(",")
}

/// Adds a word, without characters that a terminal acts on.
fn add(line: &mut String, word: &str) {
    let _ = write!(line, " {}", word.escape_debug());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_perf_kmem_have_twins() {
        for (typed, line) in [
            ("record", "record"),
            ("record --slab", "record"),
            ("record --page -a -g", "record -e page -a -g"),
            ("record --slab --page -- make", "record -e slab,page -- make"),
            ("stat", "summary"),
            ("stat -i x.data", "summary -i x.data"),
            ("stat --caller --slab", "sites --kind kmalloc,cache"),
            ("stat --caller -s frag,hit -l 5", "sites --sort wasted,allocs -n 5"),
            ("stat --sort=bytes", "sites --sort total"),
            ("stat --alloc -s hit -l 3", "live --objects -n 3"),
            ("stat --page --live --sort frag -l 10", "live --kind pages --sort live_wasted -n 10"),
            ("stat --page --sort order", "sites --kind pages --sort order"),
            ("", "record, then kmemtrace sites (perf kmem stat --caller), caches, or live"),
        ] {
            let words: Vec<&str> = typed.split_whitespace().collect();
            assert_eq!(twin(&words), format!("kmemtrace {line}"), "{typed}");
        }
    }

    #[test]
    fn options_tell_which_stat_is_meant() {
        assert!(is_meant(&["--caller"]) && is_meant(&["-l", "3", "--slab"]));
        assert!(!is_meant(&["-e", "kmem:*", "--", "sleep", "1"]) && !is_meant(&[]));
    }
}
