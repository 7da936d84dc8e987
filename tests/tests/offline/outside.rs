//! Library as other projects use it: a crate outside of the workspace opens a trace, and adds an observer and an input
//! of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use kmemtrace_tests::recording::Directory;

const MAIN: &str = r#"
use std::{ops::ControlFlow, path::Path};

use kmemtrace::{
    Action, Code, Event, EventNames, EventSource, Fault, Kind, OrderedItem, Query, StreamItem, Trace,
};

/// Input of allocations of one size at rising addresses, then a damaged line.
#[derive(Debug)]
struct Made(u64);

impl EventSource for Made {
    fn cpu(&self) -> u32 {
        1
    }

    fn path(&self) -> &Path {
        Path::new("made")
    }

    fn read(&mut self, names: &mut EventNames, items: &mut Vec<StreamItem>) -> Result<(), Fault> {
        if self.0 == 10 {
            let message = "line 11 is no event".to_owned();
            return Err(Fault { code: Code::BadRecord, offset: 0, block: None, message });
        }
        self.0 += 1;
        let event = Event::new(self.0, 0, names.intern(b"kmalloc"));
        let action = Action::Alloc(Kind::Kmalloc);
        let (requested, allocated, address) = (5, 8, self.0 * 8);
        items.push(StreamItem::Event(Event { requested, allocated, address, call_site: 3, action, ..event }));
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("no trace")?;
    let mut events = 0u64;
    let mut observer = |item: &OrderedItem<'_>| {
        events += u64::from(matches!(item, OrderedItem::Event { .. }));
        ControlFlow::Continue(())
    };
    let observed = Query::by_kind().observe(&mut Trace::open(&[path.clone().into()])?, &mut observer)?;
    let analysis = Query::by_site().run(&mut Trace::open(&[path.into()])?)?;
    println!("{events} {} {} {}", observed.events, analysis.events(), analysis.total().allocs);
    let mut made = Trace::of_sources("made", Some("mono"), vec![Box::new(Made(0))])?;
    let analysis = Query::by_site().run(&mut made)?;
    println!("{} {} {}", analysis.total().allocs, analysis.total().wasted, analysis.completeness().verdict_name());
    Ok(())
}
"#;

#[test]
fn a_crate_of_another_project_adds_an_observer_and_an_input() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let dir = Directory::new(&[]);
    // With the workspace's profiles most of what the library needs is compiled already.
    let workspace = fs::read_to_string(root.join("Cargo.toml")).expect("Cargo.toml");
    let profiles = workspace.find("[profile.dev]").map(|at| &workspace[at..]).expect("profiles");
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\nkmemtrace = {{ path = {:?} }}\n\n[workspace]\n\n{profiles}",
        root.join("analysis")
    );
    dir.write("Cargo.toml", manifest.as_bytes());
    dir.write("src/main.rs", MAIN.as_bytes());
    // The workspace's versions are there already: the test needs no network.
    fs::copy(root.join("Cargo.lock"), dir.file("Cargo.lock")).expect("Cargo.lock");
    let trace = root.join("tests/data/amd64-6.1");
    let run = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--offline", "--"])
        .arg(&trace)
        .current_dir(dir.path())
        .env("CARGO_TARGET_DIR", root.join("target"))
        .output()
        .expect("cargo");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let printed = String::from_utf8_lossy(&run.stdout);
    let [of_sample, of_made] = printed.lines().collect::<Vec<_>>()[..] else { panic!("{printed}") };
    let numbers: Vec<u64> = of_sample.split(' ').map(|word| word.parse().expect("a number")).collect();
    assert!(numbers[0] > 100 && numbers[0] == numbers[1] && numbers[1] == numbers[2], "{of_sample}");
    assert!(numbers[3] > 0 && numbers[3] < numbers[2], "{of_sample}");
    assert_eq!(of_made, "10 30 corrupt");
}
