// Trees, sizes of their nodes, colours, and the search.

/** Sizes of nodes: word of the command line, words for people, figure of a node, its format. */
const SIZES = [
  { key: "live", title: "live at the end", of: node => node.live, format: bytes },
  { key: "wasted", title: "wasted, over all", of: node => node.wasted, format: bytes },
  { key: "total", title: "allocated in total", of: node => node.total, format: bytes },
  { key: "allocs", title: "allocations", of: node => node.allocs, format: count },
  { key: "static", title: "static: code and data", of: node => node.static, format: bytes },
  { key: "current", title: "static and live", of: node => node.static + node.live, format: bytes },
];

/** Members of a node, in the order of the data block's figures. */
const MEMBERS = { live_allocated: "live", wasted: "wasted", allocated: "total", allocs: "allocs", static: "static", frees: "frees", live_objects: "objects", live_wasted: "liveWasted" };

/** Words for what the nodes at the top of a tree are. */
const GROUPS = { folder: "folder of the sources", area: "area of the kernel", module: "module", task: "task", cgroup: "cgroup", stack: "call stack", site: "call site", use: "use of pages" };
/** Memory by space, in the order of reports: its kinds; words for it in a sentence; what a tree of it counts; title of its chart over time. */
const SPACES = {
  slab: { kinds: ["kmalloc", "cache"], words: "slab objects", hint: "Slab objects: kmalloc and cache.", chart: "Slab objects: kmalloc and cache" },
  pages: { kinds: ["pages"], words: "pages", hint: "Whole pages.", chart: "Pages" },
  percpu: { kinds: ["percpu"], words: "per-CPU memory", hint: "Memory of each CPU.", chart: "Per-CPU memory" },
  vmalloc: { kinds: ["vmalloc"], words: "address space of vmalloc", hint: "Address space of vmalloc, not memory.", chart: "Address space of vmalloc" },
  // Of texts of one moment alone.
  tag: { kinds: ["tag"], words: "tagged memory", hint: null, chart: null },
};

/** Space of a kind. */
function spaceOf(kind) {
  return Object.keys(SPACES).find(space => SPACES[space].kinds.includes(kind)) ?? "slab";
}

/** Title of a tree: its keys, and its memory where trees of several kinds are there. */
function titleOf(tree) {
  const keys = tree.by.length > 1 ? tree.by.filter((key, at) => at === 0 || key !== "site") : tree.by;
  const words = keys.map(key => GROUPS[key] || key).join(", ");
  return DATA.trees.some(other => other.space !== tree.space) ? words + ": " + (SPACES[tree.space]?.words ?? tree.space) : words;
}

/** The tree that is shown, its root, and the number of its nodes. */
let TREE, ROOT, HAS_STATIC, nodeCount;
function nodeOf([name, kind, bound, ...rest], parent) {
  nodeCount++;
  const node = { name, kind: TREE.kinds[kind], isBound: bound === 1, parent, depth: parent ? parent.depth + 1 : 0, children: [], hit: true, isNear: true };
  TREE.figures.forEach((figure, at) => node[MEMBERS[figure]] = rest[at]);
  node.children = (rest[TREE.figures.length] || []).map(child => nodeOf(child, node));
  return node;
}

/** Names from below the root to a node. */
function pathOf(node) {
  const path = [];
  for (; node.parent; node = node.parent) path.unshift(node.name);
  return path;
}
const textOf = node => node === ROOT ? ROOT.name : pathOf(node).join("/");

/** Node of a path, or the last one on the way that there is. */
function nodeAt(path) {
  let node = ROOT;
  for (const name of path) {
    const child = node.children.find(child => child.name === name);
    if (!child) break;
    node = child;
  }
  return node;
}

/** Children that have a size, greatest first; folded ones last. */
function sized(node, size) {
  const order = child => child.kind === "others" ? 1 : 0;
  return node.children.filter(child => size.of(child) > 0)
    .sort((a, b) => order(a) - order(b) || size.of(b) - size.of(a) || (a.name < b.name ? -1 : 1));
}

/** Call-sites below a node, greatest first. */
function sitesBelow(node, size) {
  const sites = [], open = [node];
  while (open.length) {
    const next = open.pop();
    if (!next.children.length && size.of(next) > 0) sites.push(next);
    open.push(...next.children);
  }
  return sites.sort((a, b) => size.of(b) - size.of(a) || (a.name < b.name ? -1 : 1));
}

// Okabe and Ito's colours, which colour-blind people tell apart; a border and a name say the same.
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];

/** Node whose children have a colour each: below a root that is nearly one child. */
function stem() {
  let node = ROOT;
  for (;;) {
    const most = [...node.children].sort((a, b) => b.live - a.live)[0];
    if (!most || most.children.length < 2 || most.live < 0.9 * node.live || node.depth > 3) return node;
    node = most;
  }
}
const HUES = new Map();

/** Makes the tree of this number the one that is shown. */
function useTree(at) {
  TREE = DATA.trees[at];
  HAS_STATIC = TREE.has_static;
  nodeCount = 0;
  ROOT = nodeOf(TREE.root, null);
  HUES.clear();
  for (const branch of [...stem().children].sort((a, b) => b.live + b.total / 8 - a.live - a.total / 8)) HUES.set(branch, PALETTE[HUES.size % PALETTE.length]);
}
useTree(0);

function hueOf(node) {
  for (let up = node; up; up = up.parent) if (HUES.has(up)) return HUES.get(up);
  return "#999999";
}

const channels = hex => [1, 3, 5].map(at => parseInt(hex.slice(at, at + 2), 16));
const mixed = (colour, other, share) => colour.map((channel, at) => Math.round(channel + (other[at] - channel) * share));
const luminance = colour => {
  const [r, g, b] = colour.map(channel => channel / 255).map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);

/** Colours of a cell: paler with each level, and text in black or white, the one that is easier to read. */
function coloursOf(node, depth, isDark) {
  if (node.kind === "others") return isDark ? { fill: "#3a424b", text: "#ffffff" } : { fill: "#dde2e7", text: "#000000" };
  const base = channels(hueOf(node));
  const fill = isDark ? mixed(base, [20, 24, 29], Math.min(0.6, 0.18 + 0.1 * depth)) : mixed(base, [255, 255, 255], Math.min(0.66, 0.13 * depth));
  const light = luminance(fill);
  return { fill: `rgb(${fill.join(" ")})`, text: contrast(light, 0) >= contrast(light, 1) ? "#000000" : "#ffffff" };
}

/** Test of a text, from what was typed: a text, or an expression between slashes. */
function matcher(typed) {
  if (typed.length > 1 && typed[0] === "/") {
    const end = /\/(i?)$/.exec(typed.slice(1));
    const expression = new RegExp(end ? typed.slice(1, -end[0].length) : typed.slice(1), end ? end[1] : "");
    return text => expression.test(text);
  }
  const lower = typed.toLowerCase();
  return text => text.toLowerCase().includes(lower);
}

/** Marks nodes: `hit` where the node or one above it matches, `isNear` where one below does. Returns the topmost that match. */
function search(matches) {
  const found = [];
  (function visit(node, path, isBelow) {
    const hit = isBelow || (matches !== null && node !== ROOT && matches(path));
    if (hit && !isBelow) found.push(node);
    node.hit = matches === null || hit;
    node.isNear = node.hit;
    for (const child of node.children) {
      visit(child, node === ROOT ? child.name : path + "/" + child.name, hit);
      node.isNear ||= child.isNear;
    }
  })(ROOT, "", false);
  return found;
}
