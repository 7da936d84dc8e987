// Shapes: cells of the tree under a node, in pixels. No drawing here.

/** Rows of a treemap, as square as they get (Bruls, Huizing and van Wijk). */
function squarified(items, value, x, y, width, height) {
  const cells = [];
  let rest = items.reduce((sum, item) => sum + value(item), 0), at = 0;
  while (at < items.length && rest > 0 && width > 0 && height > 0) {
    const side = Math.min(width, height), scale = width * height / rest;
    let sum = 0, best = Infinity, end = at;
    const first = value(items[at]);
    for (; end < items.length; end++) {
      const next = sum + value(items[end]), length = next * scale / side;
      // The first item of a row is its greatest, the newest its smallest.
      const long = first * scale / length / length, short = value(items[end]) * scale / length / length;
      const worst = Math.max(long, 1 / long, short, 1 / short);
      if (worst > best) break;
      best = worst;
      sum = next;
    }
    const length = sum * scale / side;
    let offset = 0;
    for (; at < end; at++) {
      const part = value(items[at]) / sum * side;
      cells.push(width <= height ? { node: items[at], x: x + offset, y, width: part, height: length } : { node: items[at], x, y: y + offset, width: length, height: part });
      offset += part;
    }
    if (width <= height) { y += length; height -= length; } else { x += length; width -= length; }
    rest -= sum;
  }
  return cells;
}

const HEADER = 18;

/** Children of a node, and as much room as its own bytes need: a file has static bytes beside those of its functions. */
function withOwn(node, size) {
  const children = sized(node, size);
  const own = size.of(node) - children.reduce((sum, child) => sum + size.of(child), 0);
  return children.length && own > 0 ? [...children, { own }].sort((a, b) => (b.own ?? size.of(b)) - (a.own ?? size.of(a))) : children;
}

/** True for a call-site, and for a function with one call-site: a box in a box of its size says nothing. */
const isLeaf = node => !node.children.length || node.kind === "function" && node.children.length === 1;

/** Boxes within boxes; areas of siblings are in proportion. */
function treemap(root, size, width, height) {
  const cells = [];
  (function place(node, x, y, width, height, depth) {
    for (const cell of squarified(withOwn(node, size), item => item.own ?? size.of(item), x, y, width, height)) {
      if (cell.node.own || cell.width < 2 || cell.height < 2) continue;
      const hasRoom = cell.width > 30 && cell.height > HEADER + 12;
      const hasBoxes = !isLeaf(cell.node);
      cells.push({ ...cell, depth, isBranch: hasBoxes });
      if (hasBoxes && hasRoom && depth < 12) place(cell.node, cell.x + 3, cell.y + HEADER, cell.width - 6, cell.height - HEADER - 3, depth + 1);
    }
  })(root, 0, 0, width, height, 0);
  return { cells, height };
}

/** Rows of levels; widths are in proportion. */
function icicle(root, size, width, height) {
  const cells = [];
  let deepest = 0;
  (function place(node, x, width, level) {
    cells.push({ node, x, width, level, depth: level - 1, isBranch: node.children.length > 0, isTop: level === 0 });
    deepest = Math.max(deepest, level);
    const whole = size.of(node);
    for (const child of sized(node, size)) {
      const part = width * size.of(child) / whole;
      if (part >= 1) place(child, x, part, level + 1);
      x += part;
    }
  })(root, 0, width, 0);
  const row = Math.max(24, Math.min(44, Math.floor(height / (deepest + 1))));
  for (const cell of cells) Object.assign(cell, { y: cell.level * row, height: row });
  return { cells, height: (deepest + 1) * row };
}

/** Rings around the node; angles are in proportion. Wedges under a degree of one parent are one, without a name. */
function rings(root, size, width, height) {
  const radius = Math.min(width, height) / 2 - 2;
  const angles = [];
  (function measure(node, angle, level) {
    for (const child of sized(node, size)) {
      const part = angle * size.of(child) / size.of(node);
      if (part <= Math.PI / 180) break;
      angles[level] = (angles[level] || 0) + part;
      measure(child, part, level + 1);
    }
  })(root, 2 * Math.PI, 0);
  // Rings that are nearly empty would make the others thin; they show once a wedge is entered.
  const empty = angles.findIndex((angle, level) => level > 6 || level > 1 && angle < 0.6);
  const deepest = Math.max(1, empty < 0 ? angles.length : empty);
  const inner = radius * (deepest > 3 ? 0.16 : 0.24), ring = (radius - inner) / deepest;
  const cells = [{ node: root, from: 0, to: 2 * Math.PI, inner: 0, outer: inner, depth: -1, isBranch: true, isTop: true }];
  (function place(node, from, to, level) {
    if (level >= deepest) return;
    const whole = size.of(node);
    let start = from;
    for (const child of sized(node, size)) {
      const end = start + (to - from) * size.of(child) / whole;
      if (end - start > Math.PI / 180) {
        cells.push({ node: child, from: start, to: end, inner: inner + level * ring, outer: inner + (level + 1) * ring, depth: level, isBranch: child.children.length > 0 });
        place(child, start, end, level + 1);
      } else if (to - start > Math.PI / 360) {
        cells.push({ node: null, parent: node, from: start, to, inner: inner + level * ring, outer: inner + (level + 1) * ring, depth: level });
        break;
      }
      start = end;
    }
  })(root, 0, 2 * Math.PI, 0);
  return { cells, height, x: width / 2, y: height / 2 };
}

/** Outline of a wedge around the centre. */
function wedge({ from, to, inner, outer }, x, y) {
  const point = (radius, angle) => (x + radius * Math.sin(angle)).toFixed(2) + " " + (y - radius * Math.cos(angle)).toFixed(2);
  if (to - from > 2 * Math.PI - 1e-6) {
    const circle = (radius, turn) => `M${point(radius, 0)}A${radius} ${radius} 0 1 ${turn} ${point(radius, Math.PI)}A${radius} ${radius} 0 1 ${turn} ${point(radius, 0)}Z`;
    return circle(outer, 1) + (inner > 0 ? circle(inner, 0) : "");
  }
  const large = to - from > Math.PI ? 1 : 0;
  return `M${point(outer, from)}A${outer.toFixed(2)} ${outer.toFixed(2)} 0 ${large} 1 ${point(outer, to)}L${point(inner, to)}A${inner.toFixed(2)} ${inner.toFixed(2)} 0 ${large} 0 ${point(inner, from)}Z`;
}
