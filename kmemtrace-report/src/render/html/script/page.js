// State of the page, in the fragment of its address; listeners; the first drawing.

const state = { tree: 0, shape: "treemap", size: SIZES[0], at: ROOT, find: "", matches: null, sorts: {} };
const SHAPE_NAMES = ["treemap", "rings", "icicle", "table"];

const scheme = window.matchMedia("(prefers-color-scheme: dark)");
const THEMES = ["auto", "light", "dark"];
let theme = "auto", isPrinting = false;
const dark = () => !isPrinting && (theme === "auto" ? scheme.matches : theme === "dark");

/** Order of a table: key of its column, and true for ascending. */
function sortOf(id, key) {
  const [chosen, direction] = (state.sorts[id] || "").split(".");
  return chosen ? [chosen, direction === "up"] : [key, ["severity", "verdict"].includes(key)];
}
function setSort(id, key, isUp) {
  state.sorts[id] = key + (isUp ? ".up" : ".down");
  keep();
}

/** Word of a tree in the address. */
const treeWord = at => DATA.trees[at].by.join("-") + "." + DATA.trees[at].space;

/** Puts the state into the address. */
function keep(isStep) {
  const parts = [["shape", state.shape], ["size", state.size.key]];
  if (state.tree > 0) parts.unshift(["tree", treeWord(state.tree)]);
  if (state.find) parts.push(["find", encodeURIComponent(state.find)]);
  parts.push(...Object.entries(state.sorts));
  if (state.at !== ROOT) parts.push(["at", pathOf(state.at).map(encodeURIComponent).join("/")]);
  const fragment = "#" + parts.map(part => part.join("=")).join("&");
  if (fragment === location.hash) return;
  try {
    history[isStep ? "pushState" : "replaceState"](null, "", fragment);
  } catch {
    // A browser that keeps no history of files shows the page all the same.
  }
}

/** Takes the state from the address; parts that mean nothing are left as they were. */
function restore() {
  const decoded = text => { try { return decodeURIComponent(text); } catch { return text; } };
  const parts = new Map(location.hash.slice(1).split("&").map(part => [part.slice(0, part.indexOf("=")), part.slice(part.indexOf("=") + 1)]));
  const tree = Math.max(0, DATA.trees.findIndex((_, at) => treeWord(at) === parts.get("tree")));
  if (tree !== state.tree) openTree(tree);
  state.shape = SHAPE_NAMES.includes(parts.get("shape")) ? parts.get("shape") : "treemap";
  state.size = usable().find(size => size.key === parts.get("size")) || SIZES[0];
  state.at = parts.has("at") ? nodeAt(parts.get("at").split("/").map(decoded)) : ROOT;
  if (!state.at.children.length && state.at.parent) state.at = state.at.parent;
  state.find = decoded(parts.get("find") || "");
  state.sorts = {};
  for (const id of ["sites", "caches", "mismatches", "slot-rows", "leaks", "tasks", "stall-rows"]) if (parts.has(id)) state.sorts[id] = parts.get(id);
  $("find").value = state.find;
  $("size").value = state.size.key;
}

const usable = () => SIZES.filter(size => HAS_STATIC || !["static", "current"].includes(size.key));

/** Opens a tree at its root. */
function openTree(at) {
  useTree(at);
  Object.assign(state, { tree: at, at: ROOT });
  unfolded.clear();
  walker = null;
  if (!usable().includes(state.size)) state.size = SIZES[0];
  $("group").value = String(at);
  fillSizes();
}

function chooseTree(at) {
  if (at === state.tree) return;
  openTree(at);
  keep(true);
  drawTree();
}

function go(node) {
  if (node === state.at) return drawTree();
  state.at = node;
  keep(true);
  drawTree();
}

function resize(size) {
  state.size = size;
  $("size").value = size.key;
  keep();
  drawTree();
}

function reshape(shape) {
  state.shape = shape;
  keep();
  drawTree();
}

/** Searches for what was typed, and says the share of it. */
function find() {
  const typed = state.find.trim();
  let words = "";
  try {
    state.matches = typed ? matcher(typed) : null;
  } catch (error) {
    state.matches = null;
    words = "no regular expression: " + error.message.replace(/^.*: /, "");
  }
  const found = search(state.matches);
  if (state.matches) {
    const sum = found.reduce((sum, node) => sum + state.size.of(node), 0);
    words = found.length ? `${state.size.format(sum)}, ${percent(sum, state.size.of(ROOT))} of all` : "no match";
  }
  $("share").textContent = words;
}

let sitesAgain = null;
function drawTree() {
  find();
  const isTable = state.shape === "table";
  $("picture").toggleAttribute("hidden", isTable);
  $("outline").hidden = !isTable;
  if (isTable) drawOutline();
  else drawPicture();
  aboutNode = null;
  drawAbout(document.activeElement.node || state.at);
  drawBranch();
  drawPath();
  drawTreeHint();
  for (const button of $("shapes").children) button.setAttribute("aria-pressed", button.dataset.shape === state.shape);
}

/** What the tree counts, and what is folded in it. */
function drawTreeHint() {
  const more = { cgroup: "A cgroup is that of the thread that ran; work done for others counts for it. (unknown): the recording does not tell it.", stack: "Outermost caller at the top, the call-site below.", task: "Work in an interrupt counts for the thread that it interrupted." };
  const folded = TREE.folded ? `The tree has ${count(nodeCount)} nodes here; ${count(TREE.folded)} smaller ones are folded into \u201c(n others)\u201d.` : "";
  $("shows").textContent = [SPACES[TREE.space]?.hint, more[TREE.by[0]], folded].filter(Boolean).join(" ");
}

function drawPath() {
  const chain = [];
  for (let node = state.at; node; node = node.parent) chain.unshift(node);
  const links = chain.flatMap((node, at) => [at ? make("span", { "aria-hidden": "true" }, "/") : "",
    make("button", { type: "button", class: "link", "aria-current": node === state.at ? "location" : null, onclick: () => { walker = chain[at + 1] || walker; go(node); } }, node.name)]);
  const value = state.size.format(state.size.of(state.at));
  $("path").replaceChildren(...links.filter(Boolean), make("span", { class: "sum" }, `${value} ${state.size.title}`, state.at === ROOT ? "" : `, ${percent(state.size.of(state.at), state.size.of(ROOT))} of all`));
}

function drawAll() {
  $("theme").textContent = "Theme: " + theme;
  drawTree();
  drawCharts();
}

function drawCharts() {
  drawTime();
  drawCpus();
  drawSlots();
  drawWaiting();
}

function fillSizes() {
  $("size").replaceChildren(...SIZES.map(size => {
    const isThere = usable().includes(size);
    return make("option", { value: size.key, disabled: !isThere }, size.title + (isThere ? "" : " (not in this tree)"));
  }));
  $("size").value = state.size.key;
}

function fillToolbar() {
  $("group").append(...DATA.trees.map((tree, at) => make("option", { value: String(at) }, titleOf(tree))));
  fillSizes();
  $("shapes").append(...SHAPE_NAMES.map(shape => make("button", { type: "button", "data-shape": shape, onclick: () => reshape(shape) }, shape)));
  $("keys").textContent = "Click or Enter goes into a box, Escape goes out; arrows walk: right and left to neighbours, down and up to children and parents.";
}

/** Links to the sections that are there. */
function fillParts() {
  const parts = [["leaks", "Leaks"], ["waiting", "Stalls"], ["explore", "Tree"], ["time", "Over time"], ["tasks", "Tasks"], ["cpus", "CPUs"], ["slots", "Sizes"], ["sites", "Call-sites"], ["caches", "Caches"], ["mismatches", "Mismatches"]];
  const shown = parts.filter(([id]) => !$(id).hidden);
  $("parts").replaceChildren(...shown.map(([id, title]) => make("button", { type: "button", class: "link", onclick: () => $(id).scrollIntoView() }, title)));
}

function listen() {
  $("group").addEventListener("change", event => chooseTree(Number(event.target.value)));
  $("size").addEventListener("change", event => resize(SIZES.find(size => size.key === event.target.value)));
  let waits = 0;
  $("find").addEventListener("input", event => {
    clearTimeout(waits);
    waits = setTimeout(() => { state.find = event.target.value; keep(); drawTree(); sitesAgain?.(); }, 120);
  });
  document.addEventListener("keydown", event => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    if (event.target === $("find") && $("find").value) {
      $("find").value = state.find = "";
      keep();
      drawTree();
      sitesAgain?.();
    } else leave();
    event.preventDefault();
  });
  $("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    drawAll();
  });
  scheme.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => { isPrinting = true; drawAll(); });
  window.addEventListener("afterprint", () => { isPrinting = false; drawAll(); });
  window.addEventListener("popstate", () => { restore(); drawTree(); sitesAgain?.(); });
  let wide = window.innerWidth, again = 0;
  window.addEventListener("resize", () => {
    if (isPrinting || window.innerWidth === wide) return;
    wide = window.innerWidth;
    cancelAnimationFrame(again);
    again = requestAnimationFrame(drawAll);
  });
  listenToPicture();
  listenToOutline();
}

drawVerdict();
drawTiles();
drawFoot();
fillToolbar();
restore();
listen();
$("theme").textContent = "Theme: " + theme;
$("explore").hidden = !HAS_MEMORY && !HAS_STATIC;
drawLeaks();
fillParts();
drawTree();
// The rest stands below, so that the tree answers first.
setTimeout(() => {
  drawCharts();
  sitesAgain = drawSites();
  drawCaches();
  drawMismatches();
  drawTasks();
  fillParts();
  document.documentElement.dataset.drawn = "all";
});
