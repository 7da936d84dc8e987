//! Events about threads and their cgroups: new threads, moves, and cgroups that come, get another name, and go.
//!
//! Fields: `include/trace/events/task.h` and `include/trace/events/cgroup.h`, Linux 4.12 to 7.3. `root` is the number of the hierarchy, 0
//! for that of version 2, as in the first field of a line of `/proc/PID/cgroup`.

use super::format::EventFormat;
use super::slot::{NamePlace, Slot, name_place};
use crate::event::{Event, EventSink, TaskEvent};
use crate::target::TargetOrder;

/// Meaning of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    New,
    Attach,
    Make,
    Rename,
    Remove,
}

/// Names of the events, by system, with the fields of the hierarchy, of the cgroup's number, and of its path.
const EVENTS: [(&str, &str, What, [&str; 3]); 5] = [
    ("task", "task_newtask", What::New, ["", "clone_flags", ""]),
    ("cgroup", "cgroup_attach_task", What::Attach, ["dst_root", "dst_id", "dst_path"]),
    ("cgroup", "cgroup_mkdir", What::Make, ["root", "id", "path"]),
    ("cgroup", "cgroup_rename", What::Rename, ["root", "id", "path"]),
    ("cgroup", "cgroup_rmdir", What::Remove, ["root", "id", "path"]),
];

/// Places of the fields of one such event.
#[derive(Clone, Debug)]
pub(super) struct TaskPlan {
    what: What,
    pid: Option<Slot>,
    root: Option<Slot>,
    /// Number of the cgroup; of a new thread its `clone_flags`.
    id: Option<Slot>,
    path: Option<NamePlace>,
}

impl TaskPlan {
    /// Plan of an event of this system; `None` for any other event, and for one that lacks a field.
    pub(super) fn new(system: &str, format: &EventFormat) -> Option<TaskPlan> {
        let (.., what, [root, id, path]) =
            EVENTS.into_iter().find(|(of, name, ..)| *of == system && *name == format.name)?;
        let slot = |name: &str| format.field(name).and_then(Slot::of);
        let plan = TaskPlan { what, pid: slot("pid"), root: slot(root), id: slot(id), path: name_place(format, path) };
        let has_all = match what {
            What::New => plan.pid.is_some() && plan.id.is_some(),
            What::Attach => plan.pid.is_some() && plan.root.is_some() && plan.path.is_some(),
            What::Make | What::Rename | What::Remove => plan.root.is_some() && plan.path.is_some(),
        };
        has_all.then_some(plan)
    }

    /// Hands the event on; one whose record is too short is left out.
    #[cold]
    pub(super) fn tell<O: TargetOrder>(&self, record: &[u8], event: &Event, items: &mut impl EventSink) {
        if let Some(found) = self.read::<O>(record, event) {
            items.task(found);
        }
    }

    fn read<'r, O: TargetOrder>(&self, record: &'r [u8], event: &Event) -> Option<TaskEvent<'r>> {
        let number = |slot: Option<Slot>| Some(slot.filter(|slot| slot.end() <= record.len())?.read::<O>(record));
        let at = event.at;
        let pid = || number(self.pid).map(|pid| pid as u32 as i32);
        let path = || {
            let name = self.path?.read::<O>(record)?.split(|byte| *byte == 0).next()?;
            Some(name).filter(|name| !name.is_empty())
        };
        let root = || number(self.root).map(|root| root as u32 as i32);
        let id = number(self.id).unwrap_or(0);
        Some(match self.what {
            What::New => TaskEvent::New { at, parent: event.pid?, pid: pid()?, clone_flags: number(self.id)? },
            What::Attach => TaskEvent::Attach { at, pid: pid()?, root: root()?, id, path: path()? },
            What::Make => TaskEvent::Make { at, root: root()?, id, path: path()? },
            What::Rename => TaskEvent::Rename { at, root: root()?, id, path: path()? },
            What::Remove => TaskEvent::Remove { at, root: root()?, id },
        })
    }
}
