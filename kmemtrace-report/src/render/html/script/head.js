// Top of the page: verdict, origin, and totals.

const SUMMARY = DATA.summary;
const TRACE = SUMMARY.trace;
const COMPLETENESS = SUMMARY.completeness;

/** True for a page of a saved document, which has rows of call-sites alone. */
const IS_SAVED = TRACE.input === "document";

/** Spaces that have an event, or an object. */
const HAS = (() => {
  const has = {};
  const figures = ["allocs", "frees", "free_events", "failed_allocs", "live_objects", "live_allocated", "live_pages"];
  for (const space in SPACES) has[space] = SPACES[space].kinds.some(kind => figures.some(figure => SUMMARY.kinds[kind]?.[figure] > 0));
  return has;
})();
const HAS_MEMORY = Object.values(HAS).some(Boolean);

/** A time of day as the reader's clock shows it, with its offset. */
function dateOf(text) {
  const date = new Date(text), two = n => String(n).padStart(2, "0");
  if (isNaN(date)) return text;
  const offset = -date.getTimezoneOffset(), minutes = Math.abs(offset);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())} ${offset < 0 ? "-" : "+"}${two(Math.floor(minutes / 60))}${two(minutes % 60)}`;
}

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
    TRACE.host,
    TRACE.begun ? "begun " + dateOf(TRACE.begun) : null,
    TRACE.kernel ? ("Linux " + TRACE.kernel + " " + (TRACE.arch || "")).trim() : null,
    counted(TRACE.cpus, "CPU"),
    span === null ? null : "recorded " + moment(span),
    namesInWords(),
  ];
  $("origin").textContent = origin.filter(Boolean).join("  \u00b7  ");
  document.title = "kmemtrace: " + DATA.title;
  $("heading").textContent = !HAS_MEMORY && DATA.waiting ? "Time that tasks waited for memory of the kernel"
    : TRACE.one_moment ? "Kernel memory in use at one moment"
    : "Kernel memory: allocated during the recording, and still live at its end";
  drawNotes();
}

/** Source of names, as the head of every document tells it. */
function namesInWords() {
  const names = SUMMARY.names;
  const words = { dwarf: "DWARF", objects: "objects of a built tree", map: "a map of another build", module: "paths of modules", symbols: "symbols of the trace" };
  const table = DATA.sites || { columns: [], rows: [] }, symbol = table.columns.indexOf("symbol");
  if (!table.rows.length) return null;
  if (!table.rows.some(row => row[symbol] !== null)) return "no names";
  if (!names) return null;
  const { from, checked } = names.kernel, modules = names.modules.dwarf;
  const checks = from === "dwarf" || from === "objects" ? checked ? ` (checked by ${checked})` : " (not checked)" : "";
  return "names: " + (words[from] || from || "symbols of the trace") + checks + (modules ? ", " + counted(modules, "module") : "");
}

/** Restrictions that a reader must know of. */
function drawNotes() {
  const notes = [...DATA.asked];
  if (TRACE.command) notes.push("recorded by: " + TRACE.command.join(" "));
  if (!HAS_MEMORY && !IS_SAVED) notes.push(DATA.waiting ? "allocations were not recorded: this page has the time that tasks waited for memory" : "no allocation is in this recording");
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
  const { total, kinds, pairs, findings } = SUMMARY, tiles = [];
  // What was not recorded, or is not told, has no tile.
  const put = (figure, words, ...more) => { if (figure !== null && figure !== undefined && figure !== "-") tiles.push(tile(figure, words, ...more)); };
  const size = n => n === null || n === undefined ? null : bytes(n);
  if (HAS.slab) {
    const bound = total.live_is_upper_bound ? "\u2264 " : "", share = percent(total.wasted, total.allocated);
    put(total.live_allocated === null ? null : bound + bytes(total.live_allocated), "live at the end", counted(total.live_objects, "object") + (bound ? ", at most" : ""));
    put(size(total.peak_live_allocated), "peak", IS_SAVED ? "not in a saved document" : total.peak_at === null ? null : "at " + moment(total.peak_at - TRACE.first));
    put(size(total.wasted), "wasted, over all allocations", share === "-" ? null : share + " of what was allocated");
    put(size(total.allocated), "allocated in total", counted(total.allocs, "allocation"));
  }
  const shared = DATA.trees.find(tree => tree.has_static);
  if (shared) put(bytes(shared.root[3 + shared.figures.indexOf("static")]), "static", "code and data of the image");
  const [crossed, freed] = IS_SAVED ? [total.cross_cpu, total.frees] : [pairs.cross_cpu, pairs.paired];
  if (crossed !== null) put(percent(crossed, freed), "freed on another CPU", count(crossed) + " of " + counted(freed, "free"));
  if (!IS_SAVED && HAS.slab && findings.kind_mismatch.count !== null) {
    const sum = of => ["kind_mismatch", "cache_mismatch"].reduce((sum, name) => sum + of(findings[name]), 0);
    const errors = sum(found => found.count - found.suspect - found.unseen), doubtful = sum(found => found.suspect);
    put(count(errors), errors === 1 ? "mismatch" : "mismatches", doubtful ? count(doubtful) + " more are suspect" : errors ? "nothing known explains " + (errors === 1 ? "it" : "them") : "that nothing explains");
    if (errors) tiles[tiles.length - 1].classList.add("bad");
  }
  for (const [space, { kinds: [kind], words }] of Object.entries(SPACES)) if (space !== "slab" && HAS[space]) put(size(kinds[kind].live_allocated), words + (TRACE.one_moment ? "" : " live at the end"), kinds[kind].allocs === null ? null : counted(kinds[kind].allocs, "allocation"));
  const leaks = leakGroups().filter(group => group.verdict === "leak");
  if (leaks.length) {
    put(count(leaks.length), leaks.length === 1 ? "leak" : "leaks", "memory that grows and is not freed");
    tiles[tiles.length - 1].classList.add("bad");
  }
  if (DATA.waiting?.stalls.length) put(lasting(stallTime()), "waited for memory", counted(stallCount(), "stall"));
  $("tiles").append(...tiles);
}

function drawFoot() {
  const lines = [];
  if (HAS_MEMORY) lines.push("Bytes are those that the allocator handed out. Pages are never added to the objects that they hold.");
  const isByPlace = DATA.trees.some(tree => ["folder", "area"].includes(tree.by[0]));
  if (HAS_MEMORY && !isByPlace) lines.push("Folders of the sources are not known: --vmlinux names the kernel's debug information, --names a map made from another build.");
  if (isByPlace && !DATA.trees.some(tree => tree.has_static)) lines.push("Static bytes are not here: no image or tree of this kernel was named.");
  if (SUMMARY.total.live_is_upper_bound) lines.push("\u2264 marks an upper bound: objects are also freed on paths without events, so some of them may be gone.");
  $("foot").append(...lines.map(line => make("p", {}, line)));
}
