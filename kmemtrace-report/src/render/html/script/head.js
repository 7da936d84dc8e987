// Top of the page: verdict, origin, and totals.

const SUMMARY = DATA.summary;
const TRACE = SUMMARY.trace;
const COMPLETENESS = SUMMARY.completeness;

/** True for a page of a saved document, which has rows of call-sites alone. */
const IS_SAVED = TRACE.input === "document";

/** Mark and words of each verdict; the colour says the same. */
const VERDICTS = {
  complete: { mark: "\u2713", says: "" },
  lossy: { mark: "\u26a0", says: "Events were lost, or may have been: figures are estimates." },
  truncated: { mark: "\u26a0", says: "A file ends early or is missing: figures are estimates." },
  corrupt: { mark: "\u2715", says: "Bytes of the trace make no sense: figures are estimates." },
};

function drawVerdict() {
  const verdict = VERDICTS[COMPLETENESS.verdict] || VERDICTS.corrupt;
  $("verdict").className = COMPLETENESS.verdict;
  const lost = COMPLETENESS.lost_events, gaps = COMPLETENESS.gaps;
  const loss = (lost === null ? "lost: unknown" : count(lost) + " lost") + (gaps > 0 ? (lost > 0 ? " in " : ", ") + counted(gaps, "gap") : "");
  $("word").append(
    make("span", { class: "mark", "aria-hidden": "true" }, verdict.mark),
    make("b", {}, COMPLETENESS.verdict.toUpperCase()),
    make("span", {}, IS_SAVED ? loss : counted(SUMMARY.events.total, "event") + ", " + loss),
  );
  if (verdict.says) $("word").append(make("span", {}, verdict.says));
  const span = TRACE.order === "sequence" ? null : TRACE.last - TRACE.first;
  const origin = [
    DATA.title,
    TRACE.kernel ? ("Linux " + TRACE.kernel + " " + (TRACE.arch || "")).trim() : null,
    counted(TRACE.cpus, "CPU"),
    span === null ? null : "recorded " + moment(span),
    namesInWords(),
  ];
  $("origin").textContent = origin.filter(Boolean).join("  \u00b7  ");
  document.title = "kmemtrace: " + DATA.title;
  drawNotes();
}

/** Source of names, as the head of every document tells it. */
function namesInWords() {
  const names = SUMMARY.names;
  const words = { dwarf: "DWARF", objects: "objects of a built tree", map: "a map of another build", module: "paths of modules", symbols: "symbols of the trace" };
  const table = DATA.sites || { columns: [], rows: [] }, symbol = table.columns.indexOf("symbol");
  if (!table.rows.some(row => row[symbol] !== null)) return "no names";
  if (!names) return null;
  const { from, checked } = names.kernel, modules = names.modules.dwarf;
  const checks = from === "dwarf" || from === "objects" ? checked ? ` (checked by ${checked})` : " (not checked)" : "";
  return "names: " + (words[from] || from || "symbols of the trace") + checks + (modules ? ", " + counted(modules, "module") : "");
}

/** Restrictions that a reader must know of. */
function drawNotes() {
  const notes = [...DATA.asked];
  if (IS_SAVED) notes.push("from a saved document: it has call-sites, but neither times, caches, sizes, pairs of CPUs nor mismatches");
  if (DATA.branch) notes.push("the tree is that of " + DATA.branch);
  if (DATA.wrapped_live) notes.push(`~ ${bytes(DATA.wrapped_live)} live known by wrapper only: a function that allocates on behalf of its callers`);
  if (COMPLETENESS.truncated_files.length) notes.push("cut: " + COMPLETENESS.truncated_files.join(", "));
  if (COMPLETENESS.missing_cpus.length) notes.push("no file for CPU: " + COMPLETENESS.missing_cpus.join(", "));
  if (COMPLETENESS.saturated) notes.push("a sum is greater than 64 bits, and shown as the greatest number");
  if (TRACE.scope === "tasks") notes.push("some tasks alone were recorded: frees by others are unseen, live figures are upper bounds");
  if (TRACE.filtered) notes.push("only allocations were recorded with " + TRACE.filtered);
  if (TRACE.since_boot) {
    const lost = TRACE.since_boot.lost_before_first;
    notes.push("recorded from boot on, " + (lost === null ? "an unknown number of events" : counted(lost, "event")) + " lost before the first");
  }
  for (const rejected of (SUMMARY.names || {}).rejected || []) notes.push(`names of ${rejected.file} not used: ${rejected.why}`);
  $("notes").append(...notes.map(note => make("p", { class: "note" }, note)));
}

function tile(figure, words, ...more) {
  return make("div", { class: "tile" }, make("b", {}, figure), make("span", {}, words), ...more.filter(Boolean).map(line => make("span", {}, line)));
}

function drawTiles() {
  const { total, kinds, pairs, findings } = SUMMARY;
  const bound = total.live_is_upper_bound ? "\u2264 " : "";
  const share = percent(total.wasted, total.allocated);
  const errors = ["kind_mismatch", "cache_mismatch"].reduce((sum, name) => sum + findings[name].count - findings[name].suspect - findings[name].unseen, 0);
  const doubtful = ["kind_mismatch", "cache_mismatch"].reduce((sum, name) => sum + findings[name].suspect, 0);
  const tiles = [
    tile(bound + bytes(total.live_allocated), "live at the end", counted(total.live_objects, "object") + (bound ? ", at most" : "")),
    tile(bytes(total.peak_live_allocated), "peak", IS_SAVED ? "not in a saved document" : total.peak_at === null ? null : "at " + moment(total.peak_at - TRACE.first)),
    tile(bytes(total.wasted), "wasted, over all", share === "-" ? null : share + " of what was allocated"),
    tile(bytes(total.allocated), "allocated in total", counted(total.allocs, "allocation")),
    IS_SAVED ? tile(percent(total.cross_cpu, total.frees), "freed on another CPU", total.cross_cpu === null ? null : count(total.cross_cpu) + " of " + counted(total.frees, "free"))
      : tile(percent(pairs.cross_cpu, pairs.paired), "freed on another CPU", pairs.cross_cpu === null ? null : count(pairs.cross_cpu) + " of " + counted(pairs.paired, "free")),
    IS_SAVED ? tile("-", "mismatches", "not in a saved document") : findings.kind_mismatch.count === null ? tile("-", "mismatches") : tile(count(errors), errors === 1 ? "mismatch" : "mismatches", doubtful ? count(doubtful) + " more are suspect" : errors ? "nothing known explains " + (errors === 1 ? "it" : "them") : "that nothing explains"),
  ];
  if (HAS_STATIC) tiles.splice(4, 0, tile(bytes(ROOT.static), "static", "code and data of the image"));
  if (kinds.pages.allocs) tiles.push(tile(bytes(kinds.pages.live_allocated), "pages live at the end", counted(kinds.pages.allocs, "allocation")));
  if (errors) tiles[tiles.findIndex(each => each.textContent.includes("mismatch"))].classList.add("bad");
  $("tiles").append(...tiles);
}

function drawFoot() {
  const lines = [ROOT_IS_PAGES ? "The tree counts pages." : "The tree counts slab objects: kmalloc and cache. Pages are never added to the objects that they hold."];
  lines.push("Bytes are those that the allocator handed out.");
  if (DATA.tree.folded) lines.push(`The tree has ${count(nodeCount)} nodes here; ${count(DATA.tree.folded)} smaller ones are folded into \u201c(n others)\u201d.`);
  const unknown = ROOT.children.filter(node => ["unknown", "module"].includes(node.kind)).reduce((sum, node) => sum + node.total, 0);
  if (unknown > ROOT.total / 2) lines.push("Folders of the sources are not known: --vmlinux names the kernel's debug information, --names a map made from another build.");
  if (!HAS_STATIC) lines.push("Static bytes are not here: no image or tree of this kernel was named.");
  if (SUMMARY.total.live_is_upper_bound) lines.push("\u2264 marks an upper bound: objects are also freed on paths without events, so some of them may be gone.");
  $("foot").append(...lines.map(line => make("p", {}, line)));
}
const ROOT_IS_PAGES = !SUMMARY.total.allocs && SUMMARY.kinds.pages.allocs > 0;
