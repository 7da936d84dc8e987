// Beside the picture: figures of a node, call-sites below it; in place of the picture: the tree as a table.

/** Source lines of call-sites, by symbol; an empty text where rows of one symbol differ. */
const LINES = (() => {
  const lines = new Map();
  const { columns, rows } = DATA.sites || { columns: [], rows: [] };
  const symbol = columns.indexOf("symbol"), source = columns.indexOf("source");
  if (source >= 0) for (const row of rows) {
    const line = row[source] ?? "";
    if (row[symbol] !== null) lines.set(row[symbol], lines.has(row[symbol]) && lines.get(row[symbol]) !== line ? "" : line);
  }
  return lines;
})();

const KIND_WORDS = { folder: "folder", file: "source file", function: "function", site: "call-site", module: "module", area: "area of the kernel", frame: "frame of a call stack", task: "task", cgroup: "cgroup", use: "use of pages", root: "all", unknown: "folder not known", others: "folded" };

let aboutNode = null;
function drawAbout(node) {
  if (aboutNode === node) return;
  aboutNode = node;
  const share = figure => SIZES.find(size => size.key === figure);
  const row = (name, value, part, whole) => make("div", {}, make("dt", {}, name), make("dd", {}, value, part === undefined ? "" : make("span", {}, percent(part, whole))));
  const list = make("dl", {},
    row("live at the end", (node.isBound ? "\u2264 " : "") + bytes(node.live), node.live, ROOT.live),
    row("live objects", count(node.objects), node.objects, ROOT.objects),
    row("of that wasted", bytes(node.liveWasted), node.liveWasted, node.live),
    row("wasted, over all", bytes(node.wasted), node.wasted, ROOT.wasted),
    row("allocated in total", bytes(node.total), node.total, ROOT.total),
    row("allocations", count(node.allocs), node.allocs, ROOT.allocs),
    row("frees", count(node.frees), node.frees, ROOT.frees),
  );
  if (HAS_STATIC) list.append(row("static", bytes(node.static), node.static, ROOT.static), row("static and live", bytes(share("current").of(node)), share("current").of(node), share("current").of(ROOT)));
  const line = LINES.get(node.name);
  $("about").replaceChildren(
    make("p", { class: "kind" }, KIND_WORDS[node.kind] || node.kind, line ? "  " + line : ""),
    make("p", { class: "name" }, node === ROOT ? ROOT.name : pathOf(node).join("/\u200b")),
    list,
  );
}

/** Name that may be broken before its offset. */
function breakable(name) {
  const at = name.lastIndexOf("+");
  return at > 0 ? [name.slice(0, at), make("wbr"), name.slice(at)] : [name];
}

const LISTED = 100;

function drawBranch() {
  const size = state.size;
  const all = sitesBelow(state.at, size);
  const found = all.filter(node => node.hit);
  const noun = all.every(node => ["site", "frame"].includes(node.kind)) ? "call-site" : "leaf", some = found.length < all.length ? `${count(found.length)} of ` : "";
  $("branch-title").textContent = some + counted(all.length, noun).replace("leafs", "leaves") + " in " + state.at.name;
  const callers = node => node.parent && node.parent !== ROOT ? "< " + node.parent.name + (node.parent.parent !== ROOT ? " < \u2026" : "") : "";
  const place = node => node.kind === "frame" ? callers(node) : LINES.get(node.name) || (node.kind === "site" || !node.parent ? "" : pathOf(node.parent).join("/"));
  const rows = found.slice(0, LISTED).map(node => make("tr", {},
    make("td", { class: "number" }, (size.key === "live" && node.isBound ? "\u2264 " : "") + size.format(size.of(node))),
    make("td", { class: "number" }, percent(size.of(node), size.of(state.at))),
    make("td", {}, make("button", { type: "button", class: "link", onclick: () => { walker = node; go(node.parent || ROOT); } }, ...breakable(node.name)), place(node) ? make("span", { class: "line" }, " " + place(node)) : ""),
  ));
  if (found.length > LISTED) rows.push(make("tr", {}, make("td", { colspan: 3, class: "more" }, `${count(found.length - LISTED)} smaller ones`)));
  $("branch").replaceChildren(make("table", {}, make("tbody", {}, ...rows)));
}

/** Nodes of the table whose children are shown, beside the node at its top. */
const unfolded = new Set();
const CHILDREN = 200;

function drawOutline() {
  const box = $("outline"), focused = document.activeElement;
  const wasRow = Boolean(focused.closest("#outline tbody tr")), wasHead = focused.closest("#outline th")?.cellIndex;
  const columns = [
    ...SIZES.filter(size => HAS_STATIC || !["static", "current"].includes(size.key)),
  ];
  const header = make("tr", {}, make("th", { scope: "col", class: "text" }, "Name"), ...columns.map(size => make("th", { scope: "col", class: size === state.size ? "chosen" : null, "aria-sort": size === state.size ? "descending" : null },
    make("button", { type: "button", onclick: () => resize(size) }, size.title.split(":")[0].split(",")[0], make("span", { "aria-hidden": "true" }, size === state.size ? " \u25bc" : "")))),
    make("th", { scope: "col" }, "share"));
  const body = make("tbody", {});
  (function put(node, level) {
    body.append(outlineRow(node, level, columns));
    if (node !== state.at && !unfolded.has(node)) return;
    const children = sized(node, state.size).filter(child => child.isNear);
    children.slice(0, CHILDREN).forEach(child => put(child, level + 1));
    if (children.length > CHILDREN) body.append(make("tr", {}, make("td", { class: "more", colspan: columns.length + 2 }, `${count(children.length - CHILDREN)} smaller ones`)));
  })(state.at, 0);
  box.replaceChildren(make("table", { role: "treegrid", "aria-label": "Tree" }, make("thead", {}, header), body));
  const rows = [...body.rows].filter(row => row.node);
  (rows.find(row => row.node === walker) || rows[0]).tabIndex = 0;
  if (wasRow) focusOutline(walker);
  if (wasHead !== undefined) box.querySelectorAll("th")[wasHead].querySelector("button").focus({ preventScroll: true });
}

function outlineRow(node, level, columns) {
  const isOpen = node === state.at || unfolded.has(node);
  const twist = node.children.length ? isOpen ? "\u25be" : "\u25b8" : "";
  const name = make("td", { class: "text" }, make("span", { class: "indent" }), make("span", { class: "twist", "aria-hidden": "true" }, twist), make("span", { class: "kind-" + node.kind }, node.name), LINES.get(node.name) ? make("span", { class: "line" }, " " + LINES.get(node.name)) : "");
  name.firstChild.style.width = level * 1.1 + "em";
  const row = make("tr", { tabindex: -1, "aria-level": level + 1, "aria-expanded": node.children.length ? String(isOpen) : null, class: node.isNear ? null : "dim" }, name,
    ...columns.map(size => make("td", { class: "number" + (size === state.size ? " chosen" : "") }, (size.key === "live" && node.isBound ? "\u2264 " : "") + size.format(size.of(node)))),
    make("td", { class: "number" }, percent(state.size.of(node), state.size.of(state.at))));
  row.node = node;
  return row;
}

function focusOutline(node) {
  const rows = [...$("outline").querySelectorAll("tbody tr")].filter(row => row.node);
  const row = rows.find(row => row.node === node) || rows[0];
  rows.forEach(each => each.tabIndex = each === row ? 0 : -1);
  walker = row.node;
  row.focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

function listenToOutline() {
  const box = $("outline"), rowOf = event => event.target.closest("tbody tr");
  const turn = (node, open) => {
    if (node === state.at || !node.children.length) return;
    if (open) unfolded.add(node); else unfolded.delete(node);
    drawOutline();
    focusOutline(node);
  };
  box.addEventListener("click", event => {
    const row = rowOf(event);
    if (!row?.node) return;
    focusOutline(row.node);
    turn(row.node, !unfolded.has(row.node));
  });
  box.addEventListener("dblclick", event => { if (rowOf(event)?.node) enter(rowOf(event).node); });
  box.addEventListener("focusin", event => { if (rowOf(event)?.node) drawAbout(rowOf(event).node); });
  box.addEventListener("keydown", event => {
    const row = rowOf(event);
    if (!row?.node || event.ctrlKey || event.altKey || event.metaKey) return;
    const { node } = row, isOpen = node === state.at || unfolded.has(node);
    const rows = [...row.parentNode.rows].filter(each => each.node), index = rows.indexOf(row);
    const at = Math.max(0, Math.min(rows.length - 1, { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: rows.length - 1 }[event.key] ?? index));
    if (event.key === "ArrowRight" && node.children.length && !isOpen) turn(node, true);
    else if (event.key === "ArrowLeft" && isOpen && node !== state.at) turn(node, false);
    else if (event.key === "ArrowLeft" && node !== state.at) focusOutline(node.parent);
    else if (event.key === "Enter") enter(node);
    else if (at !== index || ["ArrowRight", "ArrowLeft"].includes(event.key)) focusOutline(rows[at].node);
    else if (!["ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
  });
}
