// Charts: live bytes over time, frees by CPU, requested sizes against slots.

/** Steps of an axis from 0 to a greatest value: at most five, round in binary units. */
function stepsTo(most) {
  if (!(most > 0)) return [0];
  const unit = 1024 ** Math.floor(Math.log2(Math.max(most, 1)) / 10);
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].map(n => n * unit).find(step => most / step <= 5) || unit * 1000;
  const small = [0.05, 0.1, 0.2, 0.5].map(n => n * unit).find(step => unit > 1 && most / step <= 5);
  const by = small || step, steps = [];
  for (let at = 0; at <= most * 1.0001; at += by) steps.push(at);
  return steps;
}

/** Steps of a time axis. */
function timesTo(span) {
  const raw = span / 6, power = 10 ** Math.floor(Math.log10(Math.max(raw, 1)));
  const by = [1, 2, 5, 10].map(n => n * power).find(step => step >= raw) || 10 * power, times = [];
  for (let at = 0; at <= span * 1.0001; at += by) times.push(at);
  return times;
}

function shortMoment(keys) {
  if (DATA.unit !== "ns") return moment(Math.round(keys));
  const seconds = keys / 1e9;
  return (seconds === 0 || seconds >= 1 ? +seconds.toFixed(2) + " s" : +(keys / 1e6).toFixed(3) + " ms");
}

function drawTime() {
  const section = $("time"), growth = DATA.growth;
  if (!growth || !growth.slices.length || !HAS_MEMORY) return missing(section, growth);
  const box = section.querySelector(".body");
  const span = Math.max(1, TRACE.last - TRACE.first);
  const peak = SUMMARY.total.peak_at === null ? null : { at: SUMMARY.total.peak_at - TRACE.first, live: SUMMARY.total.peak_live_allocated };
  const charts = HAS.slab ? [[SPACES.slab.chart, growth.total, peak]] : [];
  for (const [space, { chart }] of Object.entries(SPACES)) {
    const total = growth["total_" + space];
    if (chart && total?.allocs.some(Boolean)) charts.push([chart, total, null]);
  }
  box.replaceChildren(
    ...lossInWords(span),
    make("p", { class: "hint" }, "Line: live bytes of what was allocated in the recording. Bars below: allocations in each slice of time."),
    ...charts.map(([title, figures, peak]) => timeChart(title, figures, growth.slices, span, peak, box.clientWidth)),
    ...grownTable(growth),
    slicesTable(growth, charts),
  );
}

function lossInWords(span) {
  if (!DATA.loss) return [];
  const lost = DATA.loss.reduce((sum, [from, to]) => sum + to - from, 0);
  if (!DATA.loss.length) return COMPLETENESS.verdict === "complete" ? [] : [make("p", { class: "hint" }, "Loss has no place in time here: any part may lack events.")];
  const swatch = make("span", { class: "swatch" });
  const svg = draw(swatch, "svg", { width: 28, height: 14, "aria-hidden": "true" });
  hatch(svg, "swatch");
  draw(svg, "rect", { width: 28, height: 14, fill: "url(#swatch)", class: "lossy" });
  return [make("p", { class: "hint" }, swatch, ` hatched: events may be missing, in ${counted(DATA.loss.length, "interval")}, ${percent(lost, span)} of the time.`)];
}

/** Pattern of stripes. */
function hatch(svg, id) {
  const pattern = draw(draw(svg, "defs", {}), "pattern", { id, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
  draw(pattern, "rect", { width: 6, height: 6, class: "hatch-back" });
  draw(pattern, "rect", { width: 2.2, height: 6, class: "hatch" });
}

let chartNumber = 0;
function timeChart(title, figures, slices, span, peak, width) {
  const wide = Math.max(300, Math.floor(width)), left = 74, right = 14, top = 12, tall = 190, bars = 46, gap = 8;
  const plot = wide - left - right, bottom = top + tall;
  const most = Math.max(1, ...figures.live_allocated, peak ? peak.live : 0), mostAllocs = Math.max(1, ...figures.allocs);
  const x = at => left + plot * Math.min(1, at / span), y = live => bottom - tall * live / (most * 1.06);
  const figure = make("figure", {}, make("figcaption", {}, title));
  const svg = draw(figure, "svg", { width: wide, height: bottom + gap + bars + 26, viewBox: `0 0 ${wide} ${bottom + gap + bars + 26}`, role: "img", tabindex: "0" });
  const last = figures.live_allocated.length - 1;
  svg.setAttribute("aria-label", `${title}: ${bytes(figures.live_allocated[0])} after the first slice, ${bytes(figures.live_allocated[last])} at the end, at most ${bytes(most)}. Arrow keys walk over the slices.`);
  const pattern = "loss" + chartNumber++;
  hatch(svg, pattern);
  for (const [from, to] of DATA.loss || []) draw(svg, "rect", { x: x(from).toFixed(2), y: top, width: Math.max(2, x(to) - x(from)).toFixed(2), height: tall + gap + bars, fill: `url(#${pattern})`, class: "lossy" });
  for (const step of stepsTo(most)) {
    draw(svg, "line", { x1: left, x2: wide - right, y1: y(step), y2: y(step), class: "grid" });
    draw(svg, "text", { x: left - 8, y: y(step) + 4, "text-anchor": "end", class: "axis" }, bytes(step));
  }
  for (const at of timesTo(span)) draw(svg, "text", { x: x(at), y: bottom + gap + bars + 18, "text-anchor": at === 0 ? "start" : at > span * 0.94 ? "end" : "middle", class: "axis" }, shortMoment(at));
  const points = [[left, bottom], ...figures.live_allocated.map((live, at) => [x(slices[at]), y(live)])];
  const line = points.map(point => point.map(n => n.toFixed(2)).join(" ")).join("L");
  draw(svg, "path", { d: `M${line}L${points[points.length - 1][0].toFixed(2)} ${bottom}Z`, class: "area" });
  draw(svg, "path", { d: "M" + line, class: "curve" });
  const begin = bottom + gap;
  draw(svg, "text", { x: left - 8, y: begin + bars / 2 + 4, "text-anchor": "end", class: "axis" }, "allocs");
  figures.allocs.forEach((allocs, at) => {
    const from = x(at ? slices[at - 1] : 0), height = bars * allocs / mostAllocs;
    if (allocs) draw(svg, "rect", { x: (from + 0.5).toFixed(2), y: (begin + bars - height).toFixed(2), width: Math.max(1, x(slices[at]) - from - 1).toFixed(2), height: height.toFixed(2), class: "bar-fill" });
  });
  draw(svg, "line", { x1: left, x2: wide - right, y1: begin + bars, y2: begin + bars, class: "grid" });
  if (peak && peak.live > 0) {
    const at = x(peak.at), near = at > wide - 170;
    draw(svg, "circle", { cx: at, cy: y(peak.live), r: 4, class: "peak" });
    draw(svg, "text", { x: at + (near ? -8 : 8), y: Math.max(top + 10, y(peak.live) + 4), "text-anchor": near ? "end" : "start", class: "axis halo" }, "peak " + bytes(peak.live));
  }
  const cross = draw(svg, "line", { y1: top, y2: begin + bars, class: "cross", visibility: "hidden" });
  const said = make("output", { class: "hint" });
  figure.append(said);
  let at = -1;
  const show = index => {
    at = Math.max(0, Math.min(last, index));
    cross.setAttribute("x1", x(slices[at]));
    cross.setAttribute("x2", x(slices[at]));
    cross.setAttribute("visibility", "visible");
    said.textContent = `at ${moment(Math.min(slices[at], span))}: ${bytes(figures.live_allocated[at])} live, ${counted(figures.allocs[at], "allocation")} in the slice before`;
  };
  svg.addEventListener("mousemove", event => {
    const place = (event.clientX - svg.getBoundingClientRect().left - left) / plot * span;
    show(slices.findIndex(end => end >= place) === -1 ? last : slices.findIndex(end => end >= place));
  });
  svg.addEventListener("keydown", event => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    show(to);
    event.preventDefault();
  });
  return figure;
}

/** Rows that grew most, with a line each. */
function grownTable(growth) {
  const last = row => row.live_allocated[row.live_allocated.length - 1], grown = row => last(row) - row.live_allocated[0];
  const rows = growth.rows.filter(row => grown(row) > 0).slice(0, 10);
  if (!rows.length) return [];
  return plainTable([
    { title: "grew by", show: row => bytes(grown(row)), help: "Live bytes at the end less those after the first slice of time" },
    { title: "at the end", show: row => bytes(last(row)), help: "Live bytes at the end" },
    { title: "over time", show: row => sparkline(row.live_allocated), isText: true, help: "Live bytes over the recording, each row on a scale of its own" },
    { title: "call-site that grew most", isText: true, help: "Return address of the allocating call", show: row => [...siteCell(row.names.symbol ?? row.names.call_site ?? "-", row.names.module, row.names.source), row.kind === "pages" ? " (pages)" : ""] },
  ], rows);
}

function sparkline(values) {
  const holder = make("span", {}), most = Math.max(1, ...values);
  const svg = draw(holder, "svg", { width: 130, height: 20, viewBox: "0 0 130 20", "aria-hidden": "true" });
  draw(svg, "path", { class: "curve thin", d: "M" + values.map((value, at) => `${(1 + 128 * at / Math.max(1, values.length - 1)).toFixed(1)} ${(19 - 18 * value / most).toFixed(1)}`).join("L") });
  return holder;
}

/** The same figures as text. */
function slicesTable(growth, charts) {
  return make("details", {}, make("summary", {}, "The same as a table"), make("div", { class: "scroll" }, make("table", { class: "narrow" },
    make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "to"), ...charts.flatMap(([title]) => [make("th", { scope: "col" }, title.split(":")[0] + ", live"), make("th", { scope: "col" }, "allocs")]))),
    make("tbody", {}, ...growth.slices.map((end, at) => make("tr", {}, make("td", { class: "number" }, moment(end)),
      ...charts.flatMap(([, figures]) => [make("td", { class: "number" }, bytes(figures.live_allocated[at])), make("td", { class: "number" }, count(figures.allocs[at]))])))))));
}

function drawCpus() {
  const section = $("cpus"), cross = DATA.cross;
  const has = HAS.slab || HAS.pages;
  if (!cross || !cross.matrix) return missing(section, cross, has && !TRACE.one_moment ? "The clock of this trace puts events of different CPUs in no order." : null);
  if (!cross.matrix.length) return missing(section, cross, has && !TRACE.one_moment ? "No object was allocated and freed." : null);
  const box = section.querySelector(".body"), { cpus, matrix } = cross;
  const most = Math.max(1, ...matrix.flat()), isSmall = cpus.length > 12, isDark = dark();
  const paint = (cell, pairs, isOwn) => {
    const share = pairs > 0 ? 0.12 + 0.88 * Math.log1p(pairs) / Math.log1p(most) : 0;
    const fill = mixed(isDark ? [20, 24, 29] : [255, 255, 255], isOwn ? [153, 153, 153] : [213, 94, 0], share);
    cell.style.backgroundColor = `rgb(${fill.join(",")})`;
    cell.style.color = contrast(luminance(fill), 0) >= contrast(luminance(fill), 1) ? "#000" : "#fff";
  };
  const rows = matrix.map((row, from) => make("tr", {}, make("th", { scope: "row" }, String(cpus[from])), ...row.map((pairs, to) => {
    const cell = make("td", { class: "number" + (from === to ? " own" : ""), title: `allocated on CPU ${cpus[from]}, freed on CPU ${cpus[to]}: ${count(pairs)}` }, isSmall ? "" : count(pairs));
    paint(cell, pairs, from === to);
    return cell;
  })));
  const table = make("table", { class: "matrix" + (isSmall ? " small" : "") }, make("thead", {}, make("tr", {}, make("th", {}, "CPU"), ...cpus.map(cpu => make("th", { scope: "col" }, String(cpu))))), make("tbody", {}, ...rows));
  const { paired, cross_cpu, cross_cpu_bytes } = SUMMARY.pairs;
  const words = `${count(cross_cpu)} of ${counted(paired, "free")} (${percent(cross_cpu, paired)}) ran on another CPU than the allocation: ${bytes(cross_cpu_bytes)}. Rows: CPU of the allocation; columns: CPU of the free; grey and framed: the same CPU.`;
  const left = cross.left_out ? ` ${counted(cross.left_out, "CPU")} with fewer frees are left out.` : "";
  box.replaceChildren(make("p", { class: "hint" }, words + left), make("div", { class: "scroll" }, table), ...crossTable(cross));
}

function crossTable({ rows }) {
  const of = readerOf(rows), crossing = rows.rows.filter(row => of("cross_cpu")(row) > 0).slice(0, 8);
  if (!crossing.length) return [];
  return plainTable([
    { title: "bytes", show: row => bytes(of("cross_cpu_bytes")(row)), help: "Bytes of the objects that were freed on another CPU" },
    { title: "crossed", show: row => count(of("cross_cpu")(row)), help: "Number of these objects" },
    { title: "of frees", show: row => percent(of("cross_cpu")(row), of("frees")(row)), help: "Their share of all objects of the call-site whose free was seen" },
    { title: "call-site of the allocation", isText: true, help: "Return address of the allocating call", show: row => siteCell(of("symbol")(row) ?? of("call_site")(row), of("module")(row), of("source")(row)) },
  ], crossing);
}

function drawSlots() {
  const section = $("slots"), table = DATA.sizes;
  if (!table) return missing(section, table);
  const of = readerOf(table);
  const rows = table.rows.filter(row => of("kind")(row) !== "pages" && of("allocs")(row) > 0 && of("size")(row) > 0)
    .map(row => ({ size: of("size")(row), kind: of("kind")(row), allocs: of("allocs")(row), total: of("allocated")(row), wasted: of("wasted")(row), live: of("live_allocated")(row), slot: of("allocated")(row) / of("allocs")(row) }));
  if (!rows.length) return missing(section, table);
  const box = section.querySelector(".body");
  box.replaceChildren(
    make("p", { class: "hint" }, "Each mark is a requested size: circles are kmalloc, squares are caches. The slot is what the allocator hands out for it, because it has memory in fixed sizes. The area of a mark is what was wasted, its distance to the line what one object wastes."),
    slotsChart(rows, box.clientWidth),
  );
  const list = make("div", { id: "slot-rows" }, make("h2", { hidden: true }, "Requested sizes"), make("div", { class: "body" }));
  box.append(list);
  sortable(list, {
    columns: [
      { key: "size", title: "requested", of: row => row.size, show: row => bytes(row.size), help: "Bytes asked for" },
      { key: "slot", title: "slot", of: row => row.slot, show: row => bytes(Math.round(row.slot)), help: "Bytes handed out for it, on average" },
      { key: "wasted", title: "wasted", of: row => row.wasted, show: row => bytes(row.wasted), help: "Bytes handed out and not asked for, over all allocations" },
      { key: "waste", title: "waste%", of: row => row.wasted / row.total, show: row => percent(row.wasted, row.total), help: "Share of the slot that was not asked for" },
      { key: "total", title: "total", of: row => row.total, show: row => bytes(row.total), help: "Bytes handed out, over all allocations" },
      { key: "live", title: "live", of: row => row.live, show: row => bytes(row.live), help: "Bytes live at the end" },
      { key: "allocs", title: "allocs", of: row => row.allocs, show: row => count(row.allocs), help: "Successful allocations" },
      { key: "kind", title: "kind", of: row => row.kind, show: row => row.kind, isText: true, help: "Allocator" },
    ], rows, sort: "wasted", others: table.others_count, first: 8,
  });
}

function slotsChart(rows, width) {
  const wide = Math.max(280, Math.floor(width)), tall = 300, left = 64, right = 12, top = 12, bottom = tall - 40;
  const least = Math.floor(Math.log2(Math.min(...rows.map(row => row.size)))), most = Math.max(least + 1, Math.ceil(Math.log2(Math.max(...rows.map(row => Math.max(row.slot, row.size))))));
  const x = size => left + (wide - left - right) * (Math.log2(size) - least) / (most - least), y = size => bottom - (bottom - top) * (Math.log2(size) - least) / (most - least);
  const holder = make("div", {}), tick = n => bytes(n).replace(/\.0+ /, " ");
  const svg = draw(holder, "svg", { width: wide, height: tall, viewBox: `0 0 ${wide} ${tall}`, role: "img", "aria-label": "Requested sizes against slots, on scales of powers of two; the table below has the same figures" });
  const every = Math.max(1, Math.ceil((most - least) / (wide < 420 ? 4 : 7)));
  for (let power = least; power <= most; power += every) {
    draw(svg, "line", { x1: left, x2: wide - right, y1: y(2 ** power), y2: y(2 ** power), class: "grid" });
    draw(svg, "text", { x: left - 6, y: y(2 ** power) + 4, "text-anchor": "end", class: "axis" }, tick(2 ** power));
    draw(svg, "text", { x: x(2 ** power), y: bottom + 16, "text-anchor": x(2 ** power) > wide - 40 ? "end" : "middle", class: "axis" }, tick(2 ** power));
  }
  draw(svg, "text", { x: (left + wide - right) / 2, y: tall - 6, "text-anchor": "middle", class: "axis" }, "requested");
  draw(svg, "text", { x: left + 4, y: top + 8, class: "axis" }, "slot");
  draw(svg, "line", { x1: x(2 ** least), y1: y(2 ** least), x2: x(2 ** most), y2: y(2 ** most), class: "diagonal" });
  const greatest = Math.max(1, ...rows.map(row => row.wasted));
  const marks = [...rows].sort((a, b) => b.wasted - a.wasted);
  for (const row of marks) {
    const radius = Math.max(2, 20 * Math.sqrt(row.wasted / greatest)), side = radius * Math.sqrt(Math.PI);
    const mark = row.kind === "kmalloc" ? draw(svg, "circle", { cx: x(row.size), cy: y(row.slot), r: radius, class: "mark-kmalloc" })
      : draw(svg, "rect", { x: x(row.size) - side / 2, y: y(row.slot) - side / 2, width: side, height: side, class: "mark-cache" });
    draw(mark, "title", {}, `${bytes(row.size)} requested, ${bytes(Math.round(row.slot))} handed out, ${count(row.allocs)} times: ${bytes(row.wasted)} wasted (${row.kind})`);
  }
  const places = [];
  for (const row of marks.slice(0, 8).filter(row => row.wasted > 0)) {
    if (places.length === 3 || places.some(place => Math.abs(place - y(row.slot)) < 18)) continue;
    places.push(y(row.slot));
    const near = x(row.size) > wide - 150;
    draw(svg, "text", { x: x(row.size) + (near ? -1 : 1) * (Math.max(2, 20 * Math.sqrt(row.wasted / greatest)) + 4), y: y(row.slot) + 4, "text-anchor": near ? "end" : "start", class: "axis halo strong" }, `${bytes(row.size)} \u2192 ${bytes(Math.round(row.slot))}`);
  }
  return holder;
}
