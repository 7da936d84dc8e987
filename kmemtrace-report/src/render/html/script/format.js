// Figures as the tables of the report print them, and elements made of text alone.

const UNITS = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** Quotient, rounded half up. */
const rounded = (part, whole) => Math.floor(part / whole + 0.5);

/** Bytes with three significant digits. */
function bytes(n) {
  if (n === null || n === undefined) return "-";
  if (n < 0) return "-" + bytes(-n);
  if (n < 1024) return n + " B";
  let power = 1;
  while (power < UNITS.length && n >= 1024 ** (power + 1)) power++;
  if (rounded(n, 1024 ** power) === 1024 && power < UNITS.length) power++;
  const scale = 1024 ** power;
  const hundredths = rounded(n * 100, scale), tenths = rounded(n * 10, scale);
  const number = hundredths < 1000 ? (hundredths / 100).toFixed(2) : tenths < 1000 ? (tenths / 10).toFixed(1) : rounded(n, scale);
  return number + " " + UNITS[power - 1];
}

/** A count with its digits in groups. */
const count = n => n === null || n === undefined ? "-" : String(n).replace(/\B(?=(\d{3})+(?!\d))/g, ",");

/** A count with its noun. */
const counted = (n, noun) => count(n) + " " + noun + (n === 1 ? "" : "s");

/** Share of a whole; `-` where there is no whole. */
function percent(part, whole) {
  if (part === null || part === undefined || !whole) return "-";
  const tenths = rounded(part * 1000, whole);
  return Math.floor(tenths / 10) + "." + tenths % 10 + "%";
}

/** A time, counted from the first event, in the unit of the trace's clock; records have numbers of their own. */
function moment(keys) {
  if (keys === null || keys === undefined) return "-";
  if (DATA.unit === "records") return "#" + count(TRACE.first + keys);
  if (DATA.unit === "ticks") return count(keys) + " ticks";
  const seconds = keys / 1e9;
  return seconds >= 100 ? seconds.toFixed(1) + " s" : seconds >= 1 ? seconds.toFixed(3) + " s" : (keys / 1e6).toFixed(3) + " ms";
}

/** A duration in nanoseconds. */
function lasting(ns) {
  if (ns === null || ns === undefined) return "-";
  if (ns < 1e3) return ns + " ns";
  if (ns < 1e6) return (ns / 1e3).toFixed(ns < 1e5 ? 1 : 0) + " \u00b5s";
  if (ns < 1e9) return (ns / 1e6).toFixed(ns < 1e8 ? 1 : 0) + " ms";
  return (ns / 1e9).toFixed(2) + " s";
}

/** Element of HTML with attributes and children; a string becomes text, never markup. */
function make(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined && child !== ""));
  return element;
}

/** Element of SVG. */
function draw(parent, name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

const $ = id => document.getElementById(id);

const DATA = JSON.parse($("data").textContent);

/** Text in the font of the pictures: its width in pixels. */
const FONT = "12px system-ui, -apple-system, \"Segoe UI\", Roboto, \"DejaVu Sans\", sans-serif";
const ruler = document.createElement("canvas").getContext("2d");
ruler.font = FONT;
const widths = new Map();
function widthOf(text) {
  let width = widths.get(text);
  if (width === undefined) {
    width = ruler.measureText(text).width;
    if (widths.size > 50000) widths.clear();
    widths.set(text, width);
  }
  return width;
}

/** The longest begin of a text that fits, with an ellipsis; empty where less than three characters do. */
function fitting(text, width) {
  if (widthOf(text) <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (widthOf(text.slice(0, middle) + "\u2026") <= width) low = middle;
    else high = middle - 1;
  }
  return low < 3 ? "" : text.slice(0, low) + "\u2026";
}
