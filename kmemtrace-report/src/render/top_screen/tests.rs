//! Screens of made-up snapshots, cell by cell.

use std::sync::Arc;

use kmemtrace::live::{
    Ages, Detail, LiveGroup, LiveKey, LiveName, LiveRow, LiveSymbol, ObjectNames, Selection, Shares, SizeShare,
    Snapshot, Totals,
};
use kmemtrace::{BySpace, Kind, Space};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::Value;

use super::filter::RowFilter;
use super::keys::{Command, Key, press};
use super::state::{ScreenState, Sort};
use super::{Look, Memory, Recording, ScreenView, Subject, draw, text};

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

fn site(address: u64, name: &[u8], offset: u64, module: Option<&[u8]>) -> Arc<LiveName> {
    let symbol = LiveSymbol {
        name: name.into(),
        offset: Some(offset).filter(|&offset| offset > 0),
        module: module.map(Into::into),
    };
    Arc::new(LiveName::Site(address, Some(symbol)))
}

fn task(pid: i32, comm: &[u8]) -> Arc<LiveName> {
    Arc::new(LiveName::Task(Some(pid), Some(comm.into())))
}

fn row(name: Arc<LiveName>, kind: Kind, growth: i64, live: u64) -> LiveRow {
    let LiveName::Site(address, _) = *name else { panic!("no site") };
    LiveRow {
        key: LiveKey::Site(address),
        kind,
        name,
        cache: None,
        live,
        peak: live,
        growth,
        since_mark: None,
        growth_now: 0,
        objects: 8,
        pages: (kind == Kind::Pages).then_some(live / 4096),
        wasted: live / 8,
        allocs: 20,
        allocs_now: 3,
        frees_now: 2,
        frees: 10,
        cross_cpu: 4,
        median_age: Some(12 * SECOND),
        path: Arc::default(),
    }
}

/// Row of a stack of pages.
fn stack(number: u32, module: u32, path: &[u32], frames: &[&[u8]], live: u64) -> LiveRow {
    let symbol = |name: &[u8]| Some(LiveSymbol { name: name.into(), offset: Some(16), module: None });
    let name = LiveName::Stack(frames.iter().map(|name| (1, symbol(name))).collect());
    let row = row(site(1, b"x", 0, None), Kind::Pages, live as i64, live);
    LiveRow { key: LiveKey::Stack(number, module), name: Arc::new(name), path: Arc::from(path), ..row }
}

/// Snapshot after the mock-up.
fn snapshot() -> Snapshot {
    let ring = site(1, b"foo_ring_alloc", 0x58, Some(b"foo"));
    let context = site(2, b"foo_ctx_new", 0x8e, Some(b"foo"));
    let cache = Arc::new(LiveName::Cache(Some(b"kmalloc-2k"[..].into())));
    let rows = vec![
        LiveRow { growth_now: 512 << 10, ..row(ring, Kind::Pages, 31 << 20, 402 * MIB) },
        LiveRow { cache: Some(cache), ..row(context, Kind::Kmalloc, 411 << 10, 1_447_034) },
        row(site(3, b"evil\x1b[2J\xe2\x80\xae", 0, None), Kind::Cache, -98_304, 58 * MIB),
    ];
    let pages = Totals { live: 1239 * MIB, peak: 1372 * MIB, peak_after: 161 * SECOND, growth: 38 << 20, allocs: 9 };
    let slab = Totals { live: 96 * MIB, peak: 97 * MIB, peak_after: 190 * SECOND, growth: 411 << 10, allocs: 9 };
    Snapshot {
        elapsed: 192 * SECOND,
        events: 1,
        events_now: 412_118,
        lost: Some(0),
        lag: Some(400_000_000),
        cpus: vec![0, 1],
        totals: BySpace::from_fn(|space| match space {
            Space::Pages => pages,
            Space::Slab => slab,
            Space::Percpu | Space::Vmalloc | Space::Tag => Totals::default(),
        }),
        curve: (0..200).map(|n| BySpace::from_fn(|space| if space == Space::Pages { n } else { 0 })).collect(),
        rows,
        detail: Some(Detail {
            ages: Ages { counts: [1, 2, 3, 2], beyond_window: 2, oldest: 182 * SECOND },
            requested: 8000,
            stack: None,
            freed_by: vec![(site(9, b"foo_put", 0x31, Some(b"foo")), 9)],
            shares: Some(Shares {
                sizes: vec![SizeShare { allocated: 65536, order: Some(4), objects: 6432, live: 402 * MIB }],
                threads: vec![(task(812, b"ringd"), 398 * MIB), (task(790, b"insmod"), 4 * MIB)],
            }),
            times: Some((118 * SECOND, 192 * SECOND)),
        }),
        groups: vec![LiveGroup::Sites, LiveGroup::Modules, LiveGroup::Tasks, LiveGroup::Caches],
        ..Snapshot::default()
    }
}

fn subject() -> Subject {
    let machine = "imx8-evk   Linux 6.12.9 aarch64".to_owned();
    Subject {
        name: "kmemtrace.data".to_owned(),
        machine,
        state: Recording::Runs,
        memory: None,
        head: Value::Null,
        bytes_now: Some(25_585_254),
    }
}

fn shown_as(snapshot: &Snapshot, subject: &Subject, state: &ScreenState, width: u16, height: u16) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, width, height));
    draw(ScreenView { snapshot, subject, state, look: Look::default() }, &mut buffer);
    text(&buffer)
}

fn shown(snapshot: &Snapshot, width: u16, height: u16) -> String {
    shown_as(snapshot, &subject(), &ScreenState::default(), width, height)
}

/// Lines of the table from a column on, without the kind of memory.
fn table_lines(snapshot: &Snapshot, state: &ScreenState, from: usize) -> Vec<String> {
    let screen = shown_as(snapshot, &subject(), state, 80, 24);
    let table = screen.lines().skip(5).take_while(|line| !line.is_empty() && !line.starts_with('-'));
    let lines = table.map(|line| line.chars().skip(from).collect::<String>().replace("pages", ""));
    lines.map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn the_small_screen_is_that_of_the_mock_up() {
    let expected = "\
kmemtrace  kmemtrace.data  REC +00:03:12  412k ev/s  0 lost  lag 0.4 s
pages 1.21 GiB live +38.0 MiB/60s  peak 1.34 GiB  slab 96.0 MiB +411 KiB/60s
live, 60 s  .......::::::-------======+++++++******######%
[sites] modules  tasks  caches   sort +60s v  window 60 s
 +60 sv     LIVE     PEAK   NOW/s  WHO
   +31M    402 M    402 M   +512K >foo_ring_alloc+0x58 [foo]       pages
  +411K   1.38 M   1.38 M       0  foo_ctx_new+0x8e [foo]          kmalloc-2k
   -96K   58.0 M   58.0 M       0  evil\\x1b[2J\\u{202e}










--------------------------------------------------------------------------------
foo_rin~loc+0x58 [foo]  8 objects  asks 1000 B, gets 52690944 B  wasted 50.3 MiB
 allocs 3/s  frees 2/s  older than 60 s: 2  oldest 3 min 2 s
 freed by  foo_put+0x31 [foo] 90%; other CPU 40%
 first +00:01:58, last +00:03:12  by ringd (812) 99%, insmod (790) 1%
? help  / filter  s sort  m group  t tree  p freeze  0 mark  [ ] window q quit
";
    let screen = shown(&snapshot(), 80, 24);
    let cut = |text: &str| text.lines().map(|line| line.chars().take(60).collect::<String>()).collect::<Vec<_>>();
    assert_eq!(cut(&screen), cut(expected));
    assert_eq!(screen.lines().count(), 24);
    assert!(screen.is_ascii() && screen.lines().all(|line| line.len() <= 80), "{screen}");
}

#[test]
fn the_large_screen_has_all_columns_and_two_panes() {
    let screen = shown(&Snapshot { mark: Some(118 * SECOND), ..snapshot() }, 160, 45);
    for text in [
        "imx8-evk   Linux 6.12.9 aarch64",
        "412k ev/s   24.4 MiB/s   0 lost   lag 0.4 s   symbols 100%",
        "peak 1.34 GiB   at +00:02:41",
        "mark +00:01:58",
        "SINCE MARK     LIVE     PEAK    PAGES    OBJS   WASTED  ALLOC/s  FREE/s  XCPU  AGE50",
        "| size, order     OBJS   live now  age of live objects    <1 s            1",
        "| order 4        6,432    402 MiB                        <10 s            2",
        " first +00:01:58, last +00:03:12  by ringd (812) 99%, insmod (790) 1%",
        "w save",
    ] {
        assert!(screen.contains(text), "{text}: {screen}");
    }
    let ring = screen.lines().find(|line| line.contains("foo_ring_alloc")).unwrap();
    assert!(ring.contains("102,912") && ring.contains("12 s") && ring.contains("40%"), "{ring}");
    let later = snapshot().detail.map(|detail| Detail { shares: None, ..detail });
    let screen = shown(&Snapshot { detail: later, ..snapshot() }, 160, 45);
    assert!(screen.contains("| not counted yet ") && !screen.contains("ringd (812) 99%"), "{screen}");
}

#[test]
fn states_of_the_recording_are_words_in_the_first_line() {
    let first = |snapshot: &Snapshot, subject: &Subject, state: &ScreenState| {
        shown_as(snapshot, subject, state, 80, 24).lines().next().unwrap().to_owned()
    };
    let frozen = ScreenState { is_frozen: true, ..ScreenState::default() };
    let (plain, running) = (ScreenState::default(), subject());
    assert!(first(&snapshot(), &running, &frozen).contains("FROZEN +00:03:12 (recording goes on)"));
    let skipped = Snapshot { skipped: 2_100_000_000, ..snapshot() };
    let line = first(&skipped, &running, &plain);
    assert!(line.contains("SKIPPED 2.1 s, live figures are estimates") && line.contains("REC"), "{line}");
    let lossy = Snapshot { lost: Some(1204), lossy_cpus: vec![1], ..snapshot() };
    assert!(first(&lossy, &running, &plain).contains("lost 1,204 cpu1!"));
    let unmatched = Snapshot { stacks_unmatched: 1200, ..snapshot() };
    assert!(shown_as(&unmatched, &running, &plain, 160, 45).contains("1,200 stacks unmatched"));
    let killed = Subject { state: Recording::Ended("the recorder was killed".to_owned()), ..subject() };
    let line = first(&snapshot(), &killed, &plain);
    assert!(line.contains("ENDED +00:03:12 (the recorder was killed)") && !line.contains("lag"), "{line}");
    let empty = Snapshot { rows: Vec::new(), elapsed: 4 * SECOND, ..snapshot() };
    let words = "nothing allocated in the first 00:00:04; what was there before is not seen";
    assert!(shown(&empty, 100, 24).contains(words));
}

#[test]
fn buffers_stand_beside_the_curve() {
    let third = |filled: &[(u32, u32)], width| {
        let snapshot = Snapshot { filled: filled.to_vec(), lossy_cpus: vec![1], ..snapshot() };
        shown(&snapshot, width, 24).lines().nth(2).unwrap().trim_end().to_owned()
    };
    assert!(!third(&[], 80).contains("buffers"));
    assert!(third(&[(0, 15), (1, 1000)], 80).ends_with("#%  buffers 2% 100%!"), "{}", third(&[(0, 15), (1, 1000)], 80));
    let many: Vec<(u32, u32)> = (0..8).map(|cpu| (cpu, 10 * cpu)).collect();
    assert!(third(&many, 160).contains("buffers up to 7%!"));
}

#[test]
fn memory_of_the_machine_stands_beside_its_curve() {
    let memory = Some(Memory { available: 2160 * MIB, taken: Some(1408 * MIB) });
    let subject = Subject { memory, ..subject() };
    let third = |width| {
        let screen = shown_as(&snapshot(), &subject, &ScreenState::default(), width, 24);
        screen.lines().nth(2).unwrap().to_owned()
    };
    assert!(third(80).ends_with("MemAvailable 2.11 GiB"), "{}", third(80));
    assert!(third(160).ends_with("MemAvailable 2.11 GiB, traced explains 88%"), "{}", third(160));
    assert!(third(60).len() <= 60 && third(60).contains("live, 60 s"));
}

#[test]
fn a_screen_that_is_too_small_says_the_least_size() {
    for (width, height) in [(59, 24), (80, 9)] {
        let screen = shown(&snapshot(), width, height);
        assert!(screen.starts_with("needs 60 columns and 10 lines"), "{screen}");
    }
    for (width, height) in [(60, 10), (119, 17), (120, 18), (1000, 200)] {
        assert!(shown(&snapshot(), width, height).contains("+0x58 [foo]"), "{width}x{height}");
    }
    shown(&snapshot(), 1, 1);
}

/// A filter by what rows lack is one of allocations: the screen asks for their figures, and says since when changes count.
#[test]
fn a_filter_by_other_keys_selects_allocations() {
    let mut state = ScreenState { group: LiveGroup::Sites, ..ScreenState::default() };
    let selection = |state: &ScreenState| state.request(&snapshot()).selection.map(|of| of.text().to_owned());
    state.filter = RowFilter::parse("module=foo kind!=cache").unwrap();
    assert_eq!(selection(&state), None, "call-sites tell it themselves");
    state.filter = RowFilter::parse("comm=foo* use != user").unwrap();
    assert_eq!(selection(&state).as_deref(), Some("comm=foo* use != user"));
    assert!(state.listed(&snapshot()).is_empty(), "the snapshot is one of all allocations");
    let selected = Snapshot { selected: Some(("comm=foo* use != user".into(), 118 * SECOND)), ..snapshot() };
    let screen = shown_as(&selected, &subject(), &state, 160, 45);
    assert!(screen.contains("filter comm=foo* use != user   peaks, changes since +00:01:58"), "{screen}");
    assert!(screen.contains("foo_ring_alloc"), "{screen}");
    // Other parts of line 4 make room for the filter, and for the time from which on its figures count.
    let selected = Snapshot { mark: Some(120 * SECOND), ..selected };
    let settings = |state: &ScreenState, width| {
        let snapshot = Snapshot { group: state.group, groups: LiveGroup::ALL.to_vec(), ..selected.clone() };
        shown_as(&snapshot, &subject(), state, width, 24).lines().nth(3).unwrap().to_owned()
    };
    for (width, line) in [
        (
            140,
            "[sites]   sort +60s v   window 60 s   filter comm=foo* use != user   peaks, changes since +00:01:58   mark +00:02:00",
        ),
        (
            119,
            "[sites]  sort +60s v  window 60 s  filter comm=foo* use != user  peaks, changes since +00:01:58  mark +00:02:00",
        ),
        (100, "[sites]  sort +60s v  filter comm=foo* use != user  peaks, changes since +00:01:58  mark +00:02:00"),
        (90, "[sites]  sort +60s v  filter comm=foo* use != user  since +00:01:58  mark +00:02:00"),
        (80, "[sites]  sort +60s v  filter comm=foo* use != user  since +00:01:58"),
        (60, "[sites]  sort +60s v  filter comm=foo* use~  since +00:01:58"),
    ] {
        assert_eq!(settings(&state, width), line);
    }
    let long = RowFilter::parse(&"comm=a*日 ".repeat(30)).unwrap();
    for width in [60, 80, 119, 120, 200] {
        let state =
            ScreenState { filter: long.clone(), sort: Sort::SinceMark, group: LiveGroup::Modules, ..state.clone() };
        let line = settings(&state, width);
        assert!(line.contains("filter comm=") && line.contains('~') && line.contains("  since +00:01:58"), "{line}");
    }

    let of = state.request(&selected).selection.unwrap();
    let [user, slab] = [LiveName::Use(Some(b"user"[..].into())), LiveName::Use(None)];
    let (module, cache) = (LiveName::Module(None), LiveName::Cache(None));
    let ring = site(1, b"foo_ring_alloc", 0, None);
    let names = |module, usage| ObjectNames { site: &ring, module, cache: &cache, usage };
    assert!(!of.takes_objects(Kind::Pages, &names(&module, &user)));
    assert!(of.takes_objects(Kind::Kmalloc, &names(&module, &slab)));
    assert!(of.takes_thread(&task(1, b"food")) && !of.takes_thread(&task(1, b"bar")));
    assert!(!of.takes_thread(&LiveName::Task(None, None)), "a name that is not known is not foo");
    let of_module = RowFilter::parse("module=foo pid!=7").unwrap();
    let foo = LiveName::Module(Some(b"foo"[..].into()));
    assert!(of_module.takes_objects(Kind::Pages, &names(&foo, &user)), "the module of the stack");
    assert!(!of_module.takes_objects(Kind::Pages, &names(&module, &user)));
    // Rows of modules have one kind for all slab objects.
    for (text, is_of_objects) in [("kind=cache", true), ("kind!=pages", false), ("kind=pages", false)] {
        let filter = RowFilter::parse(text).unwrap();
        assert_eq!(filter.selection(LiveGroup::Modules).is_some(), is_of_objects, "{text}");
        assert!(filter.selection(LiveGroup::Caches).is_none());
    }
}

#[test]
fn keys_sort_filter_choose_and_freeze() {
    let (snapshot, mut state) = (snapshot(), ScreenState::default());
    let first = |state: &ScreenState| state.rows(&snapshot).first().map(|row| row.key);
    let keys = |state: &mut ScreenState, keys: &str| {
        keys.chars().map(|key| press(state, &snapshot, 10, Key::Char(key))).last().unwrap_or(Command::None)
    };
    assert_eq!(first(&state), Some(LiveKey::Site(1)));
    let marks = |state: &ScreenState, column: &str| {
        let screen = shown_as(&snapshot, &subject(), state, 80, 24);
        let [settings, heading] = [3, 4].map(|line| screen.lines().nth(line).unwrap());
        ["v", "^"].map(|mark| (settings.contains(&format!(" {mark}  ")), heading.contains(&format!("{column}{mark}"))))
    };
    keys(&mut state, "n");
    assert_eq!(first(&state), Some(LiveKey::Site(3)));
    assert_eq!(marks(&state, "WHO "), [(true, true), (false, false)]);
    keys(&mut state, "n");
    assert_eq!(first(&state), Some(LiveKey::Site(1)));
    assert_eq!(marks(&state, "WHO "), [(false, false), (true, true)], "line 4 and the heading agree");
    keys(&mut state, "PP");
    assert_eq!(marks(&state, "PEAK"), [(false, false), (true, true)]);
    keys(&mut state, "ljj");
    assert_eq!(state.chosen, Some((LiveKey::Site(2), Kind::Kmalloc)), "by live bytes it is the last one");
    keys(&mut state, "gk");
    assert_eq!(state.chosen, Some((LiveKey::Site(1), Kind::Pages)));
    keys(&mut state, "/module=f?? kind!=pages");
    press(&mut state, &snapshot, 10, Key::Enter);
    assert_eq!(state.rows(&snapshot).len(), 1);
    assert_eq!(first(&state), Some(LiveKey::Site(2)));
    keys(&mut state, "/ colour=red");
    press(&mut state, &snapshot, 10, Key::Enter);
    assert_eq!(
        state.message.as_deref(),
        Some("colour: no key of a filter; there are site, module, comm, pid, cgroup, cache, kind, use")
    );
    press(&mut state, &snapshot, 10, Key::Escape);
    assert_eq!(state.rows(&snapshot).len(), 3);
    keys(&mut state, "p]]");
    assert!(state.is_frozen && state.window() == 600);
    keys(&mut state, "p[[[");
    assert!(!state.is_frozen && state.window() == 10);
    keys(&mut state, "m");
    assert_eq!(
        (state.group, state.rows(&snapshot).len()),
        (LiveGroup::Modules, 0),
        "rows of call-sites are none of modules"
    );
    assert_eq!(
        ["0", "w", "r", "q"].map(|key| keys(&mut state, key)),
        [Command::Mark, Command::Save, Command::RenewNames, Command::Quit]
    );
    keys(&mut state, "?");
    assert!(state.shows_help);
    assert_eq!(keys(&mut state, "q"), Command::None, "any key goes back");
}

#[test]
fn stacks_are_a_tree_that_opens_where_it_is_asked_to() {
    let rows = vec![
        stack(1, 0, &[0, 1, 2], &[b"alloc_a", b"ioctl", b"entry"], 4 * MIB),
        stack(2, 0, &[0, 1, 3], &[b"alloc_b", b"ioctl", b"entry"], 2 * MIB),
        stack(3, 0, &[4], &[b"ret_from_fork"], MIB),
    ];
    let snapshot = Snapshot { rows, group: LiveGroup::Stacks, node_peaks: vec![9 * MIB, 0, 0, 0, 0], ..snapshot() };
    let mut state = ScreenState { group: LiveGroup::Stacks, ..ScreenState::default() };
    let lines = |state: &ScreenState| table_lines(&snapshot, state, 0);
    let closed = ["    +6M   6.00 M   9.00 M >+ entry+0x10", "    +1M   1.00 M   1.00 M    ret_from_fork+0x10"];
    assert_eq!(lines(&state), closed);
    press(&mut state, &snapshot, 10, Key::Right);
    let open = [
        "    +6M   6.00 M   9.00 M >- entry+0x10",
        "    +6M   6.00 M   6.00 M    - ioctl+0x10",
        "    +4M   4.00 M   4.00 M        alloc_a+0x10",
        "    +2M   2.00 M   2.00 M        alloc_b+0x10",
        "    +1M   1.00 M   1.00 M    ret_from_fork+0x10",
    ];
    assert_eq!(lines(&state), open, "the only way is opened on");
    press(&mut state, &snapshot, 10, Key::Char('/'));
    "site=alloc_b".chars().chain(['\n']).for_each(|char| {
        press(&mut state, &snapshot, 10, if char == '\n' { Key::Enter } else { Key::Char(char) });
    });
    assert_eq!(lines(&state).len(), 3, "nodes are those of rows that the filter takes");
    press(&mut state, &snapshot, 10, Key::Escape);
    for _ in 0..2 {
        press(&mut state, &snapshot, 10, Key::Char('j'));
    }
    press(&mut state, &snapshot, 10, Key::Left);
    assert_eq!(state.chosen, Some((LiveKey::Node(1), Kind::Pages)), "left of a leaf goes to the node above");
    press(&mut state, &snapshot, 10, Key::Char('g'));
    press(&mut state, &snapshot, 10, Key::Char(' '));
    assert_eq!(lines(&state), closed);
    assert!(!state.is_frozen);
}

#[test]
fn stacks_of_a_module_open_below_it() {
    let module = |number: u32, name: Option<&[u8]>, live: u64| {
        let row = row(site(1, b"x", 0, None), Kind::Pages, live as i64, live);
        LiveRow { key: LiveKey::Module(number), name: Arc::new(LiveName::Module(name.map(Into::into))), ..row }
    };
    let below = vec![
        stack(1, 1, &[0, 1, 2], &[b"ring", b"ioctl", b"entry"], 4 * MIB),
        stack(2, 1, &[0, 3, 4], &[b"open", b"openat", b"entry"], 2 * MIB),
        stack(3, 1, &[0, 3, 5], &[b"more", b"openat", b"entry"], MIB),
        stack(4, 2, &[6, 7, 8], &[b"probe", b"ioctl", b"entry"], MIB),
    ];
    let rows = vec![module(0, None, 9 * MIB), module(1, Some(b"foo"), 7 * MIB), module(2, Some(b"bar"), MIB)];
    let groups = vec![LiveGroup::Sites, LiveGroup::Stacks, LiveGroup::Modules];
    let snapshot = Snapshot { rows, below, group: LiveGroup::Modules, groups, ..snapshot() };
    let mut state = ScreenState { group: LiveGroup::Modules, ..ScreenState::default() };
    let lines = |state: &ScreenState| table_lines(&snapshot, state, 33);
    let press_all = |state: &mut ScreenState, keys: &[&str]| {
        keys.iter().for_each(|key| _ = press(state, &snapshot, 10, Key::named(key).unwrap()));
    };
    assert_eq!(lines(&state), [" >  (kernel)", "  + foo", "  + bar"]);
    press_all(&mut state, &["down", "space"]);
    let open = ["    (kernel)", " >- foo", "    - entry+0x10", "      + ioctl+0x10", "      + openat+0x10", "  + bar"];
    assert_eq!(lines(&state), open);
    press_all(&mut state, &["down", "down", "down", "right"]);
    assert_eq!(lines(&state)[4..7], [" >    - openat+0x10", "          open+0x10", "          more+0x10"]);
    press_all(&mut state, &["down", "down"]);
    assert_eq!(state.request(&snapshot).detail, Some((LiveGroup::Stacks, LiveKey::Stack(3, 1), Kind::Pages)));
    press_all(&mut state, &["down", "space"]);
    let joined = lines(&state);
    assert_eq!(joined[joined.len() - 3..], [" >- bar", "    - ioctl+0x10 < entry+0x10", "        probe+0x10"]);
}
