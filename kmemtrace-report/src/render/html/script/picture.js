// The picture: treemap, rings or icicle of the tree below one node, with mouse and keyboard.

const SHAPES = { treemap, rings, icicle };

/** Elements of the cells that are drawn, by node. */
let drawn = new Map();
/** Node that the keyboard is at. */
let walker = null;

function drawPicture() {
  const svg = $("picture"), hadFocus = svg.contains(document.activeElement);
  const size = state.size, isDark = dark();
  const width = Math.max(280, Math.floor($("stage").clientWidth));
  const tall = Math.max(320, Math.min(680, Math.floor(window.innerHeight * 0.68)));
  const height = state.shape === "rings" ? Math.min(width, Math.max(tall, 480)) : tall;
  const layout = SHAPES[state.shape](state.at, size, width, height);
  svg.textContent = "";
  drawn = new Map();
  svg.setAttribute("viewBox", `0 0 ${width} ${Math.max(layout.height, 60)}`);
  svg.setAttribute("width", width);
  svg.setAttribute("height", Math.max(layout.height, 60));
  svg.setAttribute("role", "tree");
  svg.setAttribute("aria-label", `${textOf(state.at)} as ${state.shape}, sized by bytes ${size.title}`.replace("bytes allocations", "allocations"));
  const isEmpty = !(size.of(state.at) > 0);
  if (isEmpty) draw(svg, "text", { x: width / 2, y: 34, "text-anchor": "middle", class: "empty" }, `Nothing here is ${size.key === "allocs" ? "allocated" : size.title.split(":")[0].split(",")[0]}.`);
  else for (const cell of layout.cells) drawCell(svg, cell, layout, isDark);
  draw(svg, "path", { id: "ring", d: "" });
  if (!drawn.has(walker)) walker = layout.cells.map(cell => cell.node).find(node => drawn.has(node)) || null;
  const at = drawn.get(walker);
  if (at) at.element.setAttribute("tabindex", "0");
  if (hadFocus) focusPicture();
}

function drawCell(svg, cell, layout, isDark) {
  const { node } = cell, isRound = cell.outer !== undefined;
  const colours = cell.isTop ? null : node ? coloursOf(node, cell.depth, isDark) : coloursOf({ kind: "others" }, 0, isDark);
  const shape = isRound ? { d: wedge(cell, layout.x, layout.y) } : { d: `M${cell.x.toFixed(2)} ${cell.y.toFixed(2)}h${cell.width.toFixed(2)}v${cell.height.toFixed(2)}h${(-cell.width).toFixed(2)}z` };
  const hit = node ? node.isNear : cell.parent.hit;
  const element = draw(svg, "path", { ...shape, class: (cell.isTop ? "cell top" : "cell") + (hit ? "" : " dim"), fill: colours ? colours.fill : "none" });
  if (!node) {
    element.classList.add("rest");
    return;
  }
  element.node = node;
  element.setAttribute("role", "treeitem");
  element.setAttribute("tabindex", "-1");
  element.setAttribute("aria-level", node.depth + 1);
  element.setAttribute("aria-label", `${node.name}, ${node.kind}, ${state.size.format(state.size.of(node))}, ${percent(state.size.of(node), state.size.of(state.at))}`);
  drawn.set(node, { element, cell });
  const fill = cell.isTop || !hit ? null : colours.text;
  if (isRound) labelWedge(svg, cell, layout, fill);
  else labelBox(svg, cell, fill);
}

function labelBox(svg, { node, x, y, width, height, isBranch, isTop }, fill) {
  if (width < 26 || height < 15) return;
  const room = width - 8, value = state.size.format(state.size.of(node));
  const name = fitting(node.name, room);
  if (!name) return;
  const attributes = { x: (x + 4).toFixed(1), y: (y + 13.5).toFixed(1), class: "label" };
  if (fill) attributes.fill = fill;
  else attributes.class += isTop ? " plain" : " dim";
  const isRow = state.shape === "icicle" || isBranch || height < 32;
  const label = name + "  " + value;
  draw(svg, "text", attributes, isRow && name === node.name && widthOf(label) <= room ? label : name);
  if (!isRow && widthOf(value) <= room) draw(svg, "text", { ...attributes, y: (y + 28).toFixed(1) }, value);
}

function labelWedge(svg, { node, from, to, inner, outer, isTop }, { x, y }, fill) {
  if (isTop) {
    const room = 2 * outer - 16;
    draw(svg, "text", { x, y: y - 3, "text-anchor": "middle", class: "label plain strong" }, fitting(node.name, room));
    draw(svg, "text", { x, y: y + 14, "text-anchor": "middle", class: "label plain" }, fitting(state.size.format(state.size.of(node)), room));
    return;
  }
  // Under five degrees no name is readable.
  if (to - from < Math.PI / 36) return;
  const middle = (from + to) / 2, radius = (inner + outer) / 2;
  const arc = (to - from) * radius, depth = outer - inner;
  const isAlong = arc > depth * 1.15 && arc > 50 && to - from < 2 * Math.PI - 0.01 ? arc > 70 : false;
  const name = fitting(node.name, isAlong ? 2 * radius * Math.sin(Math.min(Math.PI, to - from) / 2) * 0.88 : depth - 8);
  if (!name || (!isAlong && arc < 13)) return;
  let turn = middle * 180 / Math.PI - (isAlong ? 0 : 90);
  turn = ((turn + 90) % 360 + 360) % 360 - 90;
  if (turn > 90) turn -= 180;
  const place = `translate(${(x + radius * Math.sin(middle)).toFixed(1)} ${(y - radius * Math.cos(middle)).toFixed(1)}) rotate(${turn.toFixed(1)})`;
  const attributes = { transform: place, "text-anchor": "middle", dy: "0.35em", class: "label" };
  if (fill) attributes.fill = fill;
  else attributes.class += " dim";
  draw(svg, "text", attributes, name);
}

/** Puts the keyboard on a node's cell. */
function walkTo(node) {
  const to = drawn.get(node);
  if (!to) return;
  drawn.get(walker)?.element.setAttribute("tabindex", "-1");
  walker = node;
  to.element.setAttribute("tabindex", "0");
  to.element.focus({ preventScroll: true });
}

function focusPicture() {
  const at = drawn.get(walker);
  if (at) at.element.focus({ preventScroll: true });
  else {
    $("picture").setAttribute("tabindex", "-1");
    $("picture").focus({ preventScroll: true });
  }
}

/** Goes to a node; a call-site has nothing below, so its function is shown. */
function enter(node) {
  if (!node) return;
  if (node === state.at) return leave();
  go(node.children.length ? node : node.parent);
}

/** Goes up, with the keyboard on the node that was left. */
function leave() {
  if (!state.at.parent) return;
  walker = state.at;
  go(state.at.parent);
}

function walkBy(key) {
  const siblings = walker && walker.parent ? sized(walker.parent, state.size).filter(node => drawn.has(node)) : [];
  const index = siblings.indexOf(walker);
  const to = {
    ArrowRight: () => siblings[index + 1],
    ArrowLeft: () => siblings[index - 1],
    ArrowDown: () => walker && sized(walker, state.size).find(node => drawn.has(node)),
    ArrowUp: () => walker && walker !== state.at ? walker.parent : null,
    Home: () => siblings[0],
    End: () => siblings[siblings.length - 1],
  }[key]();
  if (to) walkTo(to);
}

function listenToPicture() {
  const svg = $("picture"), nodeOfEvent = event => event.target.node || null;
  svg.addEventListener("click", event => {
    const node = nodeOfEvent(event);
    if (!node) return;
    walkTo(node);
    enter(node);
  });
  svg.addEventListener("keydown", event => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") enter(walker);
    else if (["ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) walkBy(event.key);
    else return;
    event.preventDefault();
  });
  svg.addEventListener("focusin", event => {
    const node = nodeOfEvent(event);
    if (!node) return;
    $("ring").setAttribute("d", event.target.getAttribute("d"));
    $("ring").classList.add("on");
    drawAbout(node);
  });
  svg.addEventListener("focusout", () => $("ring").classList.remove("on"));
  svg.addEventListener("mousemove", event => showTip(event, nodeOfEvent(event)));
  svg.addEventListener("mouseleave", () => { $("tip").hidden = true; drawAbout(svg.contains(document.activeElement) && walker || state.at); });
}

/** Name and size beside the pointer. */
function showTip(event, node) {
  const tip = $("tip");
  tip.hidden = !node;
  if (!node) return;
  drawAbout(node);
  tip.textContent = `${node.name}  ${state.size.format(state.size.of(node))}`;
  const left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8);
  tip.style.left = Math.max(4, left) + "px";
  tip.style.top = (event.clientY + 18 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18) + "px";
}
