// Leaks: rows of live objects that were born evenly, in groups of those that grow together.

/** Groups of the rows, each with its row of most bytes first. */
function leakGroups() {
  const leaks = DATA.leaks;
  if (!leaks) return [];
  const of = readerOf(leaks), groups = new Map();
  for (const row of leaks.rows) {
    const number = of("group")(row);
    if (number === null) continue;
    if (!groups.has(number)) groups.set(number, { verdict: of("verdict")(row), rows: [] });
    groups.get(number).rows.push(row);
  }
  const sum = (rows, name) => rows.reduce((sum, row) => of(name)(row) === null ? sum : (sum ?? 0) + of(name)(row), null);
  return [...groups.values()].map(({ verdict, rows }) => {
    const most = [...rows].sort((a, b) => of("live_allocated")(b) - of("live_allocated")(a))[0];
    const row = Object.fromEntries(leaks.columns.map((name, at) => [name, most[at]]));
    const rate = row.bytes_rate === null ? null : sum(rows, "bytes_rate");
    const site = row => ({ symbol: of("symbol")(row), call_site: of("call_site")(row), module: of("module")(row), source: of("source")(row), live: of("live_allocated")(row) });
    return { verdict, row, others: rows.filter(row => row !== most).map(site), live: sum(rows, "live_allocated"), objects: sum(rows, "live_objects"), allocs: sum(rows, "allocs"), rate };
  });
}

/** Frames from a call-site outwards, of its stack that holds most; none where no stack is known. */
function stackOf({ kind, symbol, module }) {
  const tree = DATA.trees.find(tree => tree.by[0] === "stack" && tree.space === spaceOf(kind));
  if (!tree || symbol === null || symbol === undefined) return [];
  const names = [symbol, `${symbol} [${module}]`], live = 3 + tree.figures.indexOf("live_allocated"), below = 3 + tree.figures.length;
  const open = [[tree.root, []]];
  let most = null;
  while (open.length) {
    const [node, path] = open.pop(), children = node[below] || [];
    if (names.includes(node[0]) && (!most || node[live] > most.live)) most = { live: node[live], path };
    for (const child of children) open.push([child, node === tree.root ? path : [node[0], ...path]]);
  }
  return most ? most.path : [];
}

/** What opens below a group: its other call-sites, and the callers of the one with most bytes. */
function leakDetails(group) {
  const site = row => row.symbol ?? row.call_site ?? "-", callers = stackOf(group.row), parts = [];
  const words = [group.others.length ? `and ${counted(group.others.length, "more call-site")}` : null, callers.length ? "stack" : null].filter(word => word);
  if (!words.length) return "";
  if (group.others.length) parts.push(make("ul", {}, ...group.others.map(row => make("li", {}, ...siteCell(site(row), row.module, row.source), "  " + bytes(row.live)))));
  if (callers.length) parts.push(make("p", {}, "Called from, the nearest first; of several stacks the one that holds most:"), make("ol", {}, ...callers.map(name => make("li", {}, name))));
  return make("details", { class: "below" }, make("summary", { class: "line" }, words.join(", ")), ...parts);
}

const UNJUDGED = {
  short_window: "the recording is shorter than two seconds",
  sequence: "its events have numbers and no times",
  no_frees: "frees of some kind were not recorded",
};

function drawLeaks() {
  const section = $("leaks"), groups = leakGroups();
  if (!DATA.leaks || !HAS_MEMORY) { section.hidden = true; return; }
  const reasons = DATA.leaks.unjudged.map(reason => UNJUDGED[reason] || reason);
  const judged = reasons.length ? `There is no verdict on them: ${reasons.join(", and ")}. ` : "";
  const rule = judged + "A program that grows on purpose looks the same. A leak that begins late, or of fewer than ten objects, is not found.";
  if (!groups.length) {
    section.querySelector(".body").replaceChildren(make("p", { class: "hint" }, "No memory was allocated evenly over the recording and kept to its end. " + rule));
    return;
  }
  const order = ["leak", "maybe", "cache"], rank = group => order.indexOf(group.verdict);
  const who = ({ row }) => row.pid !== null && row.pid !== undefined ? `${row.comm ?? "(no name)"} (${row.pid})` : row.comm !== null && row.comm !== undefined ? `${row.comm}, short processes` : "any task";
  const site = ({ row }) => row.symbol ?? (row.call_site === "0x0" ? "(no call-site)" : row.call_site) ?? "-";
  const alive = { true: "runs", false: "ended", 1: "runs", 0: "ended" };
  const kinds = new Set(groups.map(group => group.row.kind));
  const columns = [
    { key: "verdict", title: "verdict", isText: true, of: group => rank(group) < 0 ? 9 : rank(group), show: group => make("span", { class: "severity " + ({ leak: "error", maybe: "suspect" }[group.verdict] || "normal") }, group.verdict ?? "-"), help: "leak: nothing known explains it; maybe: some of the objects may be gone, their cache is not known, or events were lost; cache: the kernel takes the memory back by itself when it is short of it" },
    { key: "live", title: "live", of: group => group.live, show: group => (group.row.live_is_upper_bound ? "\u2264 " : "") + bytes(group.live), help: "Bytes of the objects that are live at the end" },
    { key: "rate", title: "per second", of: group => group.rate, show: group => group.rate === null ? "-" : bytes(Math.round(group.rate)) + "/s", help: "Live bytes that came each second, on average" },
    { key: "objects", title: "objects", of: group => group.objects, show: group => count(group.objects), help: "Number of live objects" },
    { key: "kept", title: "kept", of: group => group.objects / group.allocs, show: group => percent(group.objects, group.allocs), help: "Live objects as a share of all that were allocated there" },
    { key: "born", title: "born", isText: true, of: group => group.objects, show: group => sparkline(group.row.born), help: "Live objects by the tenth of the recording in which they were allocated: a leak is even" },
    ...[...kinds].some(kind => spaceOf(kind) !== "slab") ? [{ key: "kind", title: "kind", isText: true, of: group => group.row.kind, show: group => group.row.kind, help: "Allocator" }] : [],
    { key: "task", title: "task", isText: true, of: who, show: group => [who(group), alive[group.row.task_alive] ? make("span", { class: "line" }, "  " + alive[group.row.task_alive]) : ""], help: "Thread that allocated, and whether it lived at the end; short processes are one row by their command" },
    { key: "site", title: "call-site", isText: true, of: site, show: group => [...siteCell(site(group), group.row.module, group.row.source), leakDetails(group)], help: "Call-site with most bytes; others that grow together with it, and its callers, open below" },
  ];
  sortable(section, { columns, rows: groups, sort: "verdict", others: DATA.leaks.others_count, note: "memory that was allocated evenly over the recording and is still held. " + rule.replace(/\.$/, "") });
}
