// Sortable tables of call-sites, caches and mismatches.

const PAGE_ROWS = 50;

/** Reader of a member of a table's rows. */
function readerOf(table) {
  const index = new Map(table.columns.map((name, at) => [name, at]));
  return name => row => index.has(name) ? row[index.get(name)] : null;
}

/**
 * Fills a section with a table. A column has `key`, `title`, `of` (value that sorts), and `show` (text or element);
 * `help` explains it. Rows are shown from the first one on, more of them on demand.
 */
function sortable(section, { columns, rows, sort, filter, note, others }) {
  const box = section.querySelector(".body"), id = section.id;
  let shown = PAGE_ROWS;
  const render = refocus => {
    const [key, isUp] = sortOf(id, sort);
    const chosen = columns.find(column => column.key === key) || columns[0];
    const found = filter ? rows.filter(filter) : rows;
    const sorted = [...found].sort(orderBy(chosen, isUp));
    const head = columns.map(column => {
      const isChosen = column === chosen;
      const button = make("button", { type: "button", title: column.help, onclick: () => {
        const isText = column.isText || false;
        setSort(id, column.key, isChosen ? !isUp : isText);
        render(column.key);
      } }, column.title, make("span", { "aria-hidden": "true" }, isChosen ? isUp ? " \u25b2" : " \u25bc" : ""));
      return make("th", { scope: "col", class: column.isText ? "text" : null, "aria-sort": isChosen ? isUp ? "ascending" : "descending" : null, "data-key": column.key }, button);
    });
    const cell = (column, row) => make("td", { class: (column.isText ? "text" : "number") + (column === chosen ? " chosen" : "") }, ...[column.show(row)].flat());
    const body = sorted.slice(0, shown).map(row => make("tr", {}, ...columns.map(column => cell(column, row))));
    const table = make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...body));
    const left = sorted.length - Math.min(shown, sorted.length);
    const words = [filter && found.length < rows.length ? `${count(found.length)} of ${counted(rows.length, "row")} match the search` : counted(rows.length, "row")];
    if (others > 0) words.push(`${count(others)} smaller ones are not in this page`);
    if (note) words.push(note);
    const more = left > 0 ? make("p", { class: "pager" },
      make("button", { type: "button", onclick: () => { shown += 10 * PAGE_ROWS; render(); } }, `Show ${count(Math.min(left, 10 * PAGE_ROWS))} more`),
      left > 10 * PAGE_ROWS ? make("button", { type: "button", onclick: () => { shown = Infinity; render(); } }, `Show all ${count(sorted.length)}`) : null,
      make("span", {}, `${counted(left, "row")} not shown`)) : null;
    box.replaceChildren(make("p", { class: "hint" }, words.join("; ") + "."), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": section.querySelector("h2").textContent }, table), more || "", legend(columns));
    if (refocus) box.querySelector(`th[data-key="${refocus}"] button`)?.focus({ preventScroll: true });
  };
  render();
  return render;
}

/** What the headings of a table mean, for readers without a pointer that tells it. */
function legend(columns) {
  const told = columns.filter(column => column.help);
  return make("details", { class: "legend" }, make("summary", {}, "What the columns mean"),
    make("dl", {}, ...told.map(({ title, help }) => make("div", {}, make("dt", {}, title), make("dd", {}, help)))));
}

/** Table in the order of its rows. A column has `title`, `help` and `show`. */
function plainTable(columns, rows) {
  const head = columns.map(({ title, help, isText }) => make("th", { scope: "col", class: isText ? "text" : null, title: help }, title));
  const cells = row => columns.map(({ show, isText }) => make("td", { class: isText ? "text" : "number" }, ...[show(row)].flat()));
  return [make("div", { class: "scroll" }, make("table", { class: "narrow" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows.map(row => make("tr", {}, ...cells(row)))))), legend(columns)];
}

/** Order by a column: unknown values last, ties as they stand in the data. */
function orderBy(column, isUp) {
  return (a, b) => {
    const [x, y] = [column.of(a), column.of(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    const order = typeof x === "string" ? (x < y ? -1 : x > y ? 1 : 0) : x - y;
    return isUp ? order : -order;
  };
}

/** Columns of figures that rows of call-sites and caches have. */
function figureColumns(of) {
  const bound = of("live_is_upper_bound");
  const column = (key, title, name, format, help) => ({ key, title, of: of(name), show: row => format(of(name)(row)), help });
  return [
    { key: "live", title: "live", of: of("live_allocated"), show: row => (bound(row) ? "\u2264 " : "") + bytes(of("live_allocated")(row)), help: "Bytes of the objects live at the end" },
    column("objects", "objects", "live_objects", count, "Objects live at the end"),
    column("live_wasted", "live wasted", "live_wasted", bytes, "Bytes of the live objects that were handed out and not asked for"),
    column("total", "total", "allocated", bytes, "Bytes handed out, over all allocations"),
    column("wasted", "wasted", "wasted", bytes, "Bytes handed out and not asked for, over all allocations"),
    { key: "waste", title: "waste%", of: row => of("allocated")(row) ? of("wasted")(row) / of("allocated")(row) : null, show: row => percent(of("wasted")(row), of("allocated")(row)), help: "Share of the total that was not asked for" },
    column("peak", "peak", "peak_live_allocated", bytes, "Greatest number of live bytes"),
    column("allocs", "allocs", "allocs", count, "Successful allocations"),
    column("frees", "frees", "frees", count, "Objects whose free was seen"),
    { key: "cross", title: "xcpu", of: row => of("frees")(row) && of("cross_cpu")(row) !== null ? of("cross_cpu")(row) / of("frees")(row) : null, show: row => percent(of("cross_cpu")(row), of("frees")(row)), help: "Share of the frees that ran on another CPU than the allocation" },
    { key: "kind", title: "kind", of: of("kind"), show: row => of("kind")(row), isText: true, help: "Allocator" },
  ];
}

/** Call-site of a row: symbol, module, line of source. */
function siteCell(symbol, module, line, wrapper) {
  return [wrapper ? "~ " : "", symbol, module ? make("span", { class: "line" }, ` [${module}]`) : "", line ? make("span", { class: "line" }, "  " + line) : ""];
}

function drawSites() {
  const section = $("sites"), table = DATA.sites;
  if (!table || !table.rows.length) return missing(section, table);
  const of = readerOf(table);
  const symbol = row => of("symbol")(row) ?? (of("call_site")(row) === "0x0" ? "(no call-site)" : of("call_site")(row));
  const path = row => {
    const source = of("source")(row), module = of("module")(row);
    return (source ? source.replace(/:\d+$/, "") + "/" : module ? `[${module}]/` : "") + symbol(row);
  };
  const columns = figureColumns(of);
  columns.push({ key: "site", title: "call-site", of: symbol, isText: true, help: "Return address of the allocating call", show: row => siteCell(symbol(row), of("module")(row), of("source")(row), of("wrapper")(row)) });
  return sortable(section, {
    columns, rows: table.rows, sort: "live", others: table.others_count,
    filter: row => state.matches === null || state.matches(path(row)),
  });
}

function drawCaches() {
  const section = $("caches"), table = DATA.caches;
  if (!table || !table.rows.length) return missing(section, table);
  const of = readerOf(table);
  const columns = figureColumns(of);
  if (table.rows.some(row => of("slabinfo_change")(row) !== null)) {
    columns.splice(-1, 0,
      { key: "slabinfo", title: "slabinfo", of: of("slabinfo_change"), show: row => { const n = of("slabinfo_change")(row); return n === null ? "-" : (n > 0 ? "+" : n < 0 ? "-" : "") + count(Math.abs(n)); }, help: "Change of the objects in use over the recording, by the kernel's own statistics" },
      { key: "seen", title: "seen", of: of("visibility_percent"), show: row => of("visibility_percent")(row) === null ? "-" : of("visibility_percent")(row) + "%", help: "Share of that change that the events explain" });
  }
  columns.push({ key: "cache", title: "cache", of: row => of("cache")(row) ?? "", isText: true, help: "Slab cache, or size class of kmalloc", show: row => of("cache")(row) ?? "(no name)" });
  sortable(section, { columns, rows: table.rows, sort: "live", others: table.others_count });
}

/** Weight of a finding, as the report's own table has it. */
function severityOf(of, row) {
  const isError = ["kind_mismatch", "cache_mismatch"].includes(of("class")(row));
  const errors = isError ? of("count")(row) - of("suspect")(row) - (of("unseen")(row) ?? 0) : 0;
  if (errors > 0) return { rank: 2, mark: "\u2715", word: "error", errors };
  if (isError && of("suspect")(row) > 0) return { rank: 1, mark: "\u26a0", word: "suspect", errors };
  return { rank: 0, mark: "\u00b7", word: "normal", errors };
}

function drawMismatches() {
  const section = $("mismatches"), table = DATA.mismatch;
  if (!table || !table.rows.length) return missing(section, table, HAS.slab || HAS.pages ? "No finding." : null);
  const of = readerOf(table), severity = row => severityOf(of, row);
  const plain = (key, title, help) => ({ key, title, of: of(key), show: row => count(of(key)(row)), help });
  const side = (key, title, name) => {
    const symbol = row => of(name + "_symbol")(row) ?? of(name + "_site")(row);
    const help = name === "alloc" ? "Call site that allocated the object" : "Call site that freed it";
    return { key, title, help, of: row => symbol(row) ?? "", isText: true, show: row => siteCell(symbol(row) ?? "-", null, of(name + "_source")(row)) };
  };
  sortable(section, {
    columns: [
      { key: "severity", title: "severity", isText: true, of: row => -severity(row).rank, help: "Error, suspect (events were lost in between) or normal", show: row => make("span", { class: "severity " + severity(row).word }, severity(row).mark + " " + severity(row).word) },
      { key: "class", title: "class", of: of("class"), isText: true, show: row => of("class")(row), help: "Class of the findings" },
      { key: "errors", title: "errors", of: row => severity(row).errors, show: row => count(severity(row).errors), help: "Findings that nothing known explains" },
      plain("count", "count", "Findings of this class between these two call-sites"),
      plain("suspect", "suspect", "Findings that lost events or clocks may explain"),
      plain("unseen", "unseen", "Findings that frees without events explain"),
      { key: "first", title: "first", of: row => of("first")(row).at, show: row => moment(of("first")(row).at - TRACE.first), help: "Time of the first one" },
      { key: "kind", title: "kind", of: of("kind"), isText: true, show: row => of("kind")(row), help: "Allocator of the object" },
      side("alloc", "allocated by", "alloc"),
      side("free", "freed by", "free"),
    ],
    rows: table.rows, sort: "severity", isUp: true, others: table.others_count,
    note: "error: nothing known explains it; suspect: lost events may; normal: the kernel has paths without events",
  });
}

/** Leaves out a part that was not recorded; says of one that was what `words` say, and of a saved document that it lacks the part. */
function missing(section, part, words) {
  const text = part ? words : IS_SAVED ? "Not in this input: a saved document does not have it." : null;
  if (text) section.querySelector(".body").replaceChildren(make("p", { class: "hint" }, text));
  else section.hidden = true;
}

/** Threads, from the trees of tasks. */
function drawTasks() {
  const section = $("tasks"), rows = [];
  DATA.trees.forEach((tree, at) => {
    if (tree.by[0] !== "task") return;
    const place = name => 3 + tree.figures.indexOf(name), kind = tree.kinds.indexOf("others");
    for (const child of tree.root[3 + tree.figures.length] || []) {
      const of = name => child[place(name)];
      rows.push({ name: child[0], isFolded: child[1] === kind, isBound: child[2] === 1, tree: at, space: tree.space, live: of("live_allocated"), objects: of("live_objects"), wasted: of("live_wasted"), total: of("allocated"), allocs: of("allocs"), frees: of("frees") });
    }
  });
  if (!rows.length) { section.hidden = true; return; }
  const column = (key, title, show, help) => ({ key, title, of: row => row[key], show: row => show(row[key]), help });
  const columns = [
    { key: "live", title: "live", of: row => row.live, show: row => (row.isBound ? "\u2264 " : "") + bytes(row.live), help: "Bytes of the objects that the task allocated and that are live at the end" },
    column("objects", "objects", count, "Number of these objects; of pages: of blocks"),
    column("total", "total", bytes, "Bytes handed out to the task, over all allocations"),
    column("allocs", "allocs", count, "Successful allocations of the task"),
    column("frees", "frees", count, "Objects of the task whose free was seen, whoever freed them"),
    { key: "space", title: "memory", of: row => row.space, show: row => SPACES[row.space]?.words ?? row.space, isText: true, help: "What is counted: objects of slabs, pages, ..." },
    { key: "task", title: "task", of: row => row.name, isText: true, help: "Command and id of the thread that allocated; work that the kernel does in an interrupt counts for the thread that it interrupted",
      show: row => row.isFolded ? row.name : make("button", { type: "button", class: "link", onclick: () => { chooseTree(row.tree); go(ROOT.children.find(node => node.name === row.name) || ROOT); $("explore").scrollIntoView(); } }, row.name) },
  ];
  sortable(section, { columns, rows, sort: "live", others: 0 });
}
