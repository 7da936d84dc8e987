// Finds texts whose contrast with what is behind them is under 4.5: returns the number of texts, and the bad ones.
const rgb = text => (text.match(/[\d.]+/g) || []).map(Number);
const part = c => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
const light = c => 0.2126 * part(c[0]) + 0.7152 * part(c[1]) + 0.0722 * part(c[2]);
const behind = element => {
  for (let e = element; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c;
  }
  return [255, 255, 255];
};
const bad = [];
let tested = 0;
const test = (colour, back, text) => {
  tested++;
  const [a, b] = [light(colour), light(back)];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < 4.5) bad.push([text, colour.join(), back.join(), contrast.toFixed(2)]);
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
  if (!text || ['SCRIPT', 'STYLE', 'NOSCRIPT', 'TITLE', 'OPTION'].includes(element.tagName) || !element.getClientRects().length) continue;
  if (element.namespaceURI.endsWith('svg')) {
    let cell = element.previousElementSibling;
    while (cell && !cell.classList.contains('cell')) cell = cell.previousElementSibling;
    const isLabel = element.classList.contains('label');
    test(rgb(getComputedStyle(element).fill), isLabel ? rgb(getComputedStyle(cell).fill) : behind(element), text);
  } else test(rgb(getComputedStyle(element).color), behind(element), text);
}
return [tested, bad];
