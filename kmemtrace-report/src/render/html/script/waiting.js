// Time that tasks waited for memory: stalls, kinds of spans, tasks.

const stallCount = () => DATA.waiting.stalls.length + (DATA.waiting.others_count || 0);
const stallTime = () => DATA.waiting.tasks.reduce((sum, task) => task.total === null ? sum : (sum ?? 0) + task.total, null);

/** Kinds of spans in words. */
const SPANS = {
  direct: "direct reclaim: a task frees pages itself before it gets some",
  memcg: "reclaim for the limit of a memory cgroup",
  softlimit: "reclaim for the soft limit of a memory cgroup",
  node: "reclaim on a NUMA node",
  compaction: "pages are moved to make a large free block",
  shrinker: "a cache of the kernel is asked to free objects",
  throttled: "a task sleeps until others have freed pages",
  kswapd: "the daemon that frees pages in the background",
  kcompactd: "the daemon that moves pages in the background",
};

function drawWaiting() {
  const section = $("waiting"), waiting = DATA.waiting;
  if (!waiting || (!waiting.spans.length && TRACE.input !== "kmemtrace")) { section.hidden = true; return; }
  const box = section.querySelector(".body");
  if (!waiting.spans.length) {
    box.replaceChildren(make("p", { class: "hint" }, "Reclaim and compaction were recorded, and no task had to wait for memory."));
    return;
  }
  const { stalls } = waiting, time = stallTime(), parts = [];
  const longest = stalls.length ? `; the longest took ${lasting(stalls[0].total)}` : "";
  parts.push(make("p", { class: "hint" }, stalls.length ? `Tasks had to wait ${counted(stallCount(), "time")} for memory, ${lasting(time)} in all${longest}.` : "No task had to wait for memory: what follows is work in the background, or was asked for."));
  if (stalls.length && DATA.unit === "ns") parts.push(stallChart(stalls, box.clientWidth));
  const list = make("div", { id: "stall-rows" }, make("h2", {}, "Stalls"), make("div", { class: "body" }));
  if (stalls.length) parts.push(list);
  const task = row => row.pid === null ? "-" : `${row.comm ?? "(no name)"} (${row.pid})`;
  if (waiting.tasks.length) parts.push(make("h3", {}, "Tasks that waited"), ...plainTable([
    { title: "waited", show: row => lasting(row.total), help: "Sum of the task's stalls" },
    { title: "stalls", show: row => count(row.count), help: "Number of its stalls" },
    { title: "longest", show: row => lasting(row.max), help: "Longest of them" },
    { title: "task", isText: true, show: task, help: "Command and id of the thread" },
  ], waiting.tasks.slice(0, 20)));
  parts.push(make("h3", {}, "Kinds of work"), ...plainTable([
    { title: "total", show: row => lasting(row.total), help: "Sum of the durations; spans lie within each other, so the rows do not add up" },
    { title: "self", show: row => lasting(row.self), help: "The same, without what ran inside" },
    { title: "count", show: row => count(row.count), help: "Number of spans" },
    { title: "median", show: row => lasting(row.p50), help: "Half of them are shorter" },
    { title: "99%", show: row => lasting(row.p99), help: "99 in 100 are shorter" },
    { title: "longest", show: row => lasting(row.max), help: "Longest one" },
    { title: "stalls", show: row => count(row.classes?.stall ?? 0), help: "Those that an allocation or a charge waited for; the others are work of daemons, or parts of other spans" },
    { title: "kind", isText: true, show: row => [row.span ?? "-", SPANS[row.span] ? make("span", { class: "line" }, "  " + SPANS[row.span]) : ""], help: "What the kernel did" },
  ], waiting.spans));
  box.replaceChildren(...parts);
  if (!stalls.length) return;
  const plain = (key, title, show, help) => ({ key, title, of: row => row[key], show: row => show(row[key]), help });
  const columns = [
    plain("total", "waited", lasting, "Time from the begin of the wait to its end"),
    { key: "at", title: "at", of: row => row.at, show: row => moment(row.at - TRACE.first), help: "Begin of the wait, counted from the first event of the recording" },
    plain("reclaimed", "reclaimed", count, "Pages that the task freed meanwhile"),
    { key: "order", title: "order", of: row => row.order, show: row => count(row.order), help: "Binary logarithm of the number of pages that were asked for: 0 is one page, 4 is 16 in a row" },
    { key: "span", title: "kind", isText: true, of: row => row.span ?? "", show: row => row.span ?? "-", help: "What the task waited in; see the kinds below" },
    { key: "inside", title: "inside", isText: true, of: row => row.inside?.length ?? 0, show: row => (row.inside || []).slice(0, 3).map(part => `${part.symbol ?? part.span ?? "-"} ${lasting(part.total)}`).join(", ") || "-", help: "Work inside that took most of the time" },
    { key: "task", title: "task", isText: true, of: task, show: task, help: "Command and id of the thread that waited" },
  ];
  if (stalls.some(row => row.memcg)) columns.push({ key: "memcg", title: "cgroup", isText: true, of: row => row.memcg ?? "", show: row => row.memcg ?? "-", help: "Memory cgroup whose limit was reached" });
  if (stalls.some(row => row.symbol || row.call_site)) columns.push({ key: "site", title: "call-site", isText: true, of: row => row.symbol ?? row.call_site ?? "", show: row => make("span", { title: (row.stack || []).join("\n") }, row.symbol ?? row.call_site ?? "-"), help: "Function that asked for the memory; the pointer tells its callers" });
  sortable(list, { columns, rows: stalls, sort: "total", others: waiting.others_count });
}

/** Stalls over time: a line each, as high as it is long, on a scale of powers of ten. */
function stallChart(stalls, width) {
  const span = Math.max(1, TRACE.last - TRACE.first), wide = Math.max(300, Math.floor(width)), left = 74, right = 14, top = 12, tall = 150, bottom = top + tall;
  const longest = Math.max(...stalls.map(stall => stall.total ?? 0), 1), least = 3, most = Math.max(least + 1, Math.ceil(Math.log10(longest)));
  const x = at => left + (wide - left - right) * Math.min(1, Math.max(0, (at - TRACE.first) / span)), y = ns => bottom - tall * Math.max(0.02, (Math.log10(Math.max(1, ns)) - least) / (most - least));
  const figure = make("figure", {}, make("figcaption", {}, "Stalls over time"));
  const svg = draw(figure, "svg", { width: wide, height: bottom + 26, viewBox: `0 0 ${wide} ${bottom + 26}`, role: "img", "aria-label": `${counted(stalls.length, "stall")} over time, the longest ${lasting(longest)}; the table below has the same` });
  for (let power = least; power <= most; power++) {
    draw(svg, "line", { x1: left, x2: wide - right, y1: y(10 ** power), y2: y(10 ** power), class: "grid" });
    draw(svg, "text", { x: left - 8, y: y(10 ** power) + 4, "text-anchor": "end", class: "axis" }, lasting(10 ** power).replace(/\.0+ /, " "));
  }
  for (const at of timesTo(span)) draw(svg, "text", { x: x(at + TRACE.first), y: bottom + 18, "text-anchor": at === 0 ? "start" : at > span * 0.94 ? "end" : "middle", class: "axis" }, shortMoment(at));
  for (const stall of stalls) {
    const line = draw(svg, "line", { x1: x(stall.at).toFixed(2), x2: x(stall.at).toFixed(2), y1: bottom, y2: y(stall.total ?? 0).toFixed(2), class: "stall" });
    draw(line, "title", {}, `${lasting(stall.total)} ${stall.span ?? ""} ${stall.comm ?? ""}`);
  }
  return figure;
}
