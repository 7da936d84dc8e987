//! Guests whose kernel has fprobe events: the recorder's probe events are recorded and removed, however it ends. Tests that cannot run
//! on this machine are listed as skipped.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use kmemtrace_abi::disk::block::{Header, item, kind};
use kmemtrace_abi::trace::Trace;
use kmemtrace_tests::guest::{Guest, checked};
use kmemtrace_tests::recording::Directory;
use kmemtrace_tests::runner::Skip;
use kmemtrace_tests::views;
use zerocopy::FromBytes;

const LINUX_6_12: &str = r"linux-image-6\.12\.[0-9.+a-z-]+-cloud-amd64";
const NAMES: [&str; 3] = ["kvfree_rcu", "free_bulk", "alloc_bulk"];
/// Group of a recorder without options.
const GROUP: &str = "kmemtrace_kmemtrace";

/// Prelude of the scripts: what a recorder must leave as it was, a definition of another program among it.
const PRELUDE: &str = "
    t=/sys/kernel/tracing
    echo 'p:mine/kvfree_rcu kvfree_call_rcu ptr' >>$t/dynamic_events
    state() { cat $t/dynamic_events $t/kprobe_events; ls $t/instances; }
    state >/out/before
    same() { state >/tmp/now; cmp /out/before /tmp/now || { echo $1; cat /tmp/now; exit 1; } }
";

kmemtrace_tests::tests![
    probe_events_are_counted_as_the_kernel_does,
    a_recorder_killed_at_any_time_leaves_nothing_behind,
    what_the_kernel_refuses_is_told_once,
    buffers_of_the_boot_have_probes_from_the_takeover_on,
];

fn guest() -> Result<Guest, Skip> {
    Ok(Guest::new("amd64")?.option("-k", LINUX_6_12))
}

/// Definitions, as the kernel shows those of the recorder.
fn defined(group: &str) -> String {
    [
        "kvfree_rcu kvfree_call_rcu ptr=ptr call_site=$stack0:x64",
        "alloc_bulk kmem_cache_alloc_bulk_noprof%return name=s->name:string bytes_req=s->object_size:u32 \
         bytes_alloc=s->size:u32 gfp_flags=flags size=size ret=$retval p=+0(p):x64[64]",
        "free_bulk kmem_cache_free_bulk s=s size=size name=s->name:string call_site=$stack0:x64 p=+0(p):x64[64]",
    ]
    .map(|line| format!("f:{group}/{line}\n"))
    .concat()
}

/// Counts the recorder's events and those of an instance with the same probes, of the processes of one load.
const COUNTED: &str = "
    count=$t/instances/count
    mkdir $count
    echo 32768 >$count/buffer_size_kb
    echo 'f:count/kvfree_rcu kvfree_call_rcu ptr' >>$t/dynamic_events
    echo 'f:count/free_bulk kmem_cache_free_bulk size' >>$t/dynamic_events
    echo 'f:count/alloc_bulk kmem_cache_alloc_bulk_noprof%return size' >>$t/dynamic_events
    echo 1 >$count/events/count/enable
    state >/out/before
    cat >/tmp/load <<'END'
        kmemload rounds 300
        for i in $(seq 100); do ls / >/dev/null; done
END
    kmemtraced --compress none -o /out/trace 2>/out/messages -- \
        sh -c \"echo \\$\\$ >/out/shell; cat $t/dynamic_events >/out/during; sh /tmp/load; echo 0 >$count/tracing_on\"
    same recorded
    cat $count/trace >/out/counted
    kmemtraced --no-probes -o /out/without -- true 2>/out/without_messages
    kmemtraced doctor --quick >/out/offer";

fn probe_events_are_counted_as_the_kernel_does() -> Result<(), Skip> {
    let out = guest()?.run(&[PRELUDE, COUNTED].concat())?;
    let trace = out.file("trace");
    assert_eq!(checked(&trace).0, "ok");
    assert!(out.text("messages").contains("\nRCU and bulk frees: seen\n"), "{}", out.text("messages"));
    assert!(out.text("during").ends_with(&defined(GROUP)), "{}", out.text("during"));

    // Threads that began later than the shell of the load are all of the load.
    let shell: i64 = out.text("shell").trim().parse().unwrap_or(i64::MAX);
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for line in out.text("counted").lines().filter(|line| !line.starts_with('#')) {
        // `COMM-PID [CPU] FLAGS TIME: EVENT: ...`
        let pid = line.split(" [").next().and_then(|task| task.rsplit('-').next()?.trim().parse::<i64>().ok());
        let event = line.split(": ").nth(1).unwrap_or_default();
        if pid.is_some_and(|pid| pid > shell) {
            *counted.entry(event.to_owned()).or_default() += 1;
        }
    }
    let mut recorded: BTreeMap<String, usize> = BTreeMap::new();
    for line in views::events(&trace) {
        let event = line["event"].as_str().unwrap_or_default().to_owned();
        if NAMES.contains(&&*event) && line["pid"].as_i64().is_some_and(|pid| pid > shell) {
            *recorded.entry(event).or_default() += 1;
        }
    }
    assert!(counted["kvfree_rcu"] > 200, "{counted:?}");
    assert_eq!(recorded, counted);

    assert_kept(&out);
    let without = out.text("without_messages");
    assert!(without.contains("\nRCU and bulk frees: not seen (--no-probes)\n"), "{without}");
    let without = Trace::open(&[out.file("without")]).unwrap();
    assert_eq!(without.metadata.probes, None);
    let offer = out.text("offer");
    for line in ["caches     not named in", "RCU frees  seen, by fprobe events", "bulk frees seen, by fprobe events"] {
        assert!(offer.contains(&format!("\n{line}")), "{offer}");
    }
    Ok(())
}

/// Checks definitions, time, group and formats in the files of the recording.
fn assert_kept(out: &Directory) {
    let trace = Trace::open(&[out.file("trace")]).unwrap();
    let probes = trace.metadata.probes.unwrap_or_default();
    let definitions = defined(GROUP).replace("ptr=ptr", "ptr").replace("size=size", "size").replace("s=s ", "s ");
    assert_eq!(probes, format!("0\n{}", definitions.trim_end()));
    for file in ["meta.out", "cpu0.out", "cpu1.out"] {
        let items = items(&out.file("trace").join(file));
        let of = |tag: u16| items.iter().filter(move |found| found.0 == tag).map(|(_, text)| text.as_str());
        assert_eq!(of(item::PROBE_GROUP).collect::<Vec<_>>(), [GROUP], "{file}");
        for name in NAMES {
            let start = format!("{GROUP}/{name}\nname: {name}\n");
            assert!(of(item::EVENT_FORMAT).any(|format| format.starts_with(&start)), "{file}: {name}");
            let is_listed =
                of(item::EVENTS).any(|events| events.lines().any(|event| event == format!("{GROUP}/{name}")));
            assert_eq!(is_listed, file == "meta.out", "{file}: {name}");
        }
    }
}

/// Tags and texts of the items in an uncompressed file's blocks of texts.
fn items(path: &Path) -> Vec<(u16, String)> {
    let bytes = fs::read(path).unwrap();
    let (mut items, mut rest) = (Vec::new(), &bytes[..]);
    while let Ok((header, after)) = Header::read_from_prefix(rest) {
        let (payload, next) = after.split_at(header.payload_len.get() as usize);
        if matches!(header.kind, kind::FILE_HEADER | kind::META) {
            let texts = item::walk(payload).flatten();
            items.extend(texts.map(|(tag, _, text)| (tag, String::from_utf8_lossy(text).into_owned())));
        }
        rest = next;
    }
    items
}

/// Kills recorders at all stages, beside another one and after a stop signal, and counts the states that they leave.
const KILLED: &str = "
    kmemtraced -B other -o /out/other 2>/tmp/other &
    other=$!
    recording /tmp/other
    state >/out/before
    defined=0 stopping=0
    for i in $(seq 24); do
        kmemtraced -o /tmp/killed -f >/dev/null 2>/tmp/messages &
        recorder=$!
        if [ $((i % 4)) = 0 ]; then
            recording /tmp/messages
            kill -TERM $recorder
            usleep $((i * 8000))
        else
            usleep $((i * 30000))
        fi
        kill -KILL $recorder 2>/dev/null || true
        wait $recorder || true
        if grep -q kmemtrace_kmemtrace $t/dynamic_events; then defined=$((defined + 1)); fi
        # The next recorder does it, too.
        if [ $((i % 3)) = 0 ]; then kmemtraced -o /tmp/next -f -- true 2>/tmp/messages; else kmemtraced recover >/tmp/messages; fi
        cat /tmp/messages
        same \"round $i\"
    done
    echo $defined >/out/defined
    kmemload rounds 100
    kill -TERM $other
    wait $other
    [ \"$(ls $t/instances)\" = '' ]
    cat $t/dynamic_events";

fn a_recorder_killed_at_any_time_leaves_nothing_behind() -> Result<(), Skip> {
    // One CPU: emulated, others now and then run the instructions that the kernel is changing for the events, and it panics.
    // Two dozen recorders begin on it, which takes a busy machine more than the usual time.
    let out = guest()?.option("-c", "nr_cpus=1").option("-t", "600").run(&[PRELUDE, KILLED].concat())?;
    let defined: u32 = out.text("defined").trim().parse().unwrap_or(0);
    assert!(defined >= 2, "only {defined} of 24 left their definitions: {}", out.text("log"));
    assert_eq!(checked(&out.file("other")).0, "ok", "the other recorder was disturbed");
    let lines = views::events(&out.file("other"));
    let kept = lines.iter().filter(|line| line["event"] == "kvfree_rcu").count();
    assert!(kept > 60, "{kept} events of the other recorder");
    assert!(out.text("log").trim_end().ends_with("p:mine/kvfree_rcu kvfree_call_rcu ptr=ptr"), "{}", out.text("log"));
    Ok(())
}

const REFUSED: &str = "
    long=$(printf 'a%.0s' $(seq 60))
    kmemtraced -B $long -o /out/long -- true 2>/out/long_messages
    same long
    echo 'f:kmemtrace_kmemtrace/free_bulk kfree object' >>$t/dynamic_events
    state >/out/before
    kmemtraced --filter 'bytes_req >= 4096' -o /out/foreign -- true 2>/out/foreign_messages
    kmemtraced recover
    same foreign
    kmemtraced -B f --filter 'call_site != 0' -o /out/filter -- true 2>/out/filter_messages
    kmemtraced -B s --stack -o /out/stack -- kmemload rounds 10 2>/out/stack_messages
    kmemtraced -B a-b -o /out/clash 2>/tmp/clash &
    recorder=$!
    recording /tmp/clash
    status=0
    kmemtraced -B a_b -o /tmp/x -- true 2>/out/clash_messages || status=$?
    echo $status >/out/clash_status
    kmemtraced --no-probes -B a_b -o /out/beside -- true
    kill -TERM $recorder
    wait $recorder
    same clash

    kmemtraced -B hand -o /out/hand 2>/tmp/hand &
    recorder=$!
    recording /tmp/hand
    echo 0 >$t/instances/hand/events/kmemtrace_hand/kvfree_rcu/enable
    sleep 2
    kill -TERM $recorder
    status=0
    wait $recorder || status=$?
    echo $status >/out/hand_status
    cp /tmp/hand /out/hand_messages
    same hand

    PROBES=1 sh /bin/capture.sh /out/tree sh -c 'kmemload rounds 100; cat /sys/kernel/tracing/dynamic_events >/out/captured'
    same captured
    PROBES=1 sh /bin/capture.sh /tmp/tree sleep 60 &
    script=$!
    while ! grep -q kmemtrace_capture/free_bulk $t/dynamic_events; do sleep 0.1; done
    kill -KILL $script
    kmemtraced recover
    grep -q kmemtrace_capture/free_bulk $t/dynamic_events
    rmdir $t/instances/kmemtrace-capture
    kmemtraced recover
    same killed_capture

    mount -o remount,ro $t
    kmemtraced doctor --quick | grep '^RCU frees'
    mount -o remount,rw $t";

fn what_the_kernel_refuses_is_told_once() -> Result<(), Skip> {
    let out = guest()?.run(&[PRELUDE, REFUSED].concat())?;
    let told = |messages: &str, line: &str| {
        let text = out.text(messages);
        let frees: Vec<&str> = text.lines().filter(|line| line.contains("frees: ")).collect();
        assert_eq!(frees, [line], "{messages}: {text}");
    };
    let long = "not seen (the kernel refuses kvfree_rcu: Group name is too long)";
    let bulk = "not seen (the kernel refuses alloc_bulk: Group name is too long)";
    told("long_messages", &format!("RCU frees: {long}; bulk frees: {bulk}"));
    let foreign = "not seen (kmemtrace_kmemtrace/free_bulk is defined by another program)";
    told("foreign_messages", &format!("RCU frees: seen; bulk frees: {foreign}"));
    let filter = "not seen (alloc_bulk cannot have the filter: Field not found)";
    told("filter_messages", &format!("RCU frees: seen; bulk frees: {filter}"));
    told("stack_messages", "RCU and bulk frees: seen");
    let clash = "kmemtraced: /sys/kernel/tracing/instances/a-b: has the same group of probe events (kmemtrace_a_b): \
                 use another name (-B), or --no-probes\n";
    assert_eq!((out.text("clash_messages").as_str(), out.text("clash_status").trim()), (clash, "2"));
    let hand = out.text("hand_messages");
    assert!(hand.contains("events/kmemtrace_hand/kvfree_rcu/enable is 0 instead of 1"), "{hand}");
    assert_eq!(out.text("hand_status").trim(), "1");
    for name in ["long", "foreign", "filter", "stack", "clash", "beside", "tree"] {
        assert_eq!(checked(&out.file(name)).0, "ok", "{name}");
    }
    assert!(out.text("captured").ends_with(&defined("kmemtrace_capture")), "{}", out.text("captured"));
    let lines = views::events(&out.file("tree"));
    let kept = lines.iter().filter(|line| line["event"] == "kvfree_rcu").count();
    assert!(kept > 60, "{kept} events in the tree");
    Ok(())
}

/// Takes over the top-level buffer, an instance of the command line, and one made by hand; each after a start that fails, and the
/// last two after a recorder that is killed.
const BOOT: &str = "
    hand=$t/instances/hand
    mkdir $hand
    for event in kmalloc kfree kmem_cache_alloc kmem_cache_free; do echo 1 >$hand/events/kmem/$event/enable; done
    dynamic() { cat $t/dynamic_events $t/kprobe_events; }
    dynamic >/out/before
    unchanged() { dynamic >/tmp/now; cmp /out/before /tmp/now; }
    entries() { sed -n 's/^entries: //p' $1/per_cpu/cpu0/stats; }
    for name in top boot hand; do
        case $name in top) dir=$t ;; *) dir=$t/instances/$name ;; esac
        before=$(entries $dir)
        kmemtraced --boot -B $name -o /tmp/failed -- /nonexistent && exit 1
        unchanged
        [ $(entries $dir) -ge $before ] && [ $before -gt 100 ]
        if [ $name = hand ]; then
            kmemtraced --boot -B hand -o /out/killed 2>/tmp/killed &
            recorder=$!
            recording /tmp/killed
            sleep 0.5
            kill -KILL $recorder
            wait $recorder || true
            kmemtraced recover
            unchanged
        fi
        kmemtraced --boot -B $name -o /out/$name 2>/out/${name}_messages -- \
            sh -c \"kmemload rounds 100; cat $t/dynamic_events >/out/${name}_during\"
        unchanged
    done
    ls $t/instances";

fn buffers_of_the_boot_have_probes_from_the_takeover_on() -> Result<(), Skip> {
    let events = "kmem:kmalloc,kmem:kfree,kmem:kmem_cache_alloc,kmem:kmem_cache_free";
    let append = format!("trace_event={events} trace_buf_size=8M trace_instance=boot,{events}");
    let out = guest()?.option("-c", append).run(&[PRELUDE, BOOT].concat())?;
    for (name, group) in [("top", "kmemtrace_"), ("boot", "kmemtrace_boot"), ("hand", "kmemtrace_hand")] {
        let messages = out.text(&format!("{name}_messages"));
        assert!(!messages.contains("cannot be"), "{name}: {messages}");
        let during = out.text(&format!("{name}_during"));
        assert!(during.ends_with(&defined(group)), "{name}: {during}");
        let trace = Trace::open(&[out.file(name)]).unwrap();
        let probes = trace.metadata.probes.unwrap_or_default();
        let from: u64 = probes.lines().next().and_then(|line| line.parse().ok()).unwrap_or(0);
        let lines = views::events(&out.file(name));
        let keys = |event: &str| {
            let lines = lines.iter().filter(|line| line["event"] == event);
            lines.filter_map(|line| line["at"].as_u64()).collect::<Vec<_>>()
        };
        let (others, deferred) = (keys("kmalloc"), keys("kvfree_rcu"));
        assert!(deferred.len() > 60, "{name}: {}", deferred.len());
        assert!(others[0] < from && from < others[others.len() - 1], "{name}: {others:?} {from}");
        let early = deferred.iter().filter(|&&at| at < from).count();
        assert!(early < deferred.len() / 2, "{name}: {early} of {} before {from}", deferred.len());
    }
    let left = out.text("log");
    assert!(left.trim_end().ends_with("hand"), "{left}");
    Ok(())
}
