// Linked zoom: both images show the same part at the same size. Levels: the whole image, one screen pixel per image pixel, 2x, 4x.
import { $ } from "./dom.js";

const views = () => [$("source"), $("edit"), $("flicker")];
let levels = [{ scale: 1, words: "Fit" }];
let level = 0;
let point = { x: 0.5, y: 0.5 };

// Scale at which the whole image fits.
function fitted(image) {
  const box = image.parentElement;
  return Math.min(box.clientWidth / (image.naturalWidth || 1), box.clientHeight / (image.naturalHeight || 1));
}

export function refresh() {
  const fit = fitted($("source"));
  const native = 1 / (fit * window.devicePixelRatio);
  levels = [{ scale: 1, words: "Fit" }];
  if (native > 1.05) levels.push({ scale: native, words: "100 %" });
  for (const scale of [2, 4]) if (Math.abs(scale - native) > 0.2) levels.push({ scale, words: `Fit × ${scale}` });
  levels.sort((a, b) => a.scale - b.scale);
  level = Math.min(level, levels.length - 1);
  const { scale, words } = levels[level];
  $("zoom").textContent = words;
  document.body.classList.toggle("zoomed", scale > 1);
  align();
  for (const image of views()) {
    image.style.transformOrigin = `${100 * point.x}% ${100 * point.y}%`;
    image.style.transform = scale === 1 ? "" : `scale(${scale})`;
    image.classList.toggle("pixels", fitted(image) * scale * window.devicePixelRatio >= 2);
  }
}

const ALMOST_EQUAL = 0.05;

// The source in place of the edit covers the edit's rectangle, so that the same thing is at the same place where an editor has changed the
// size. With another shape (beyond rounding) nothing can be aligned; then the title says so.
function align() {
  const [source, edit, flicker] = views();
  const shapes = [source, edit].map((image) => image.naturalWidth / (image.naturalHeight || 1));
  const alike = !shapes[0] || !shapes[1] || Math.abs(shapes[0] / shapes[1] - 1) <= ALMOST_EQUAL; // 0: not loaded yet
  const { clientWidth, clientHeight } = edit.parentElement;
  const margins = [clientHeight - edit.naturalHeight * fitted(edit), clientWidth - edit.naturalWidth * fitted(edit)];
  flicker.style.objectFit = alike ? "fill" : "contain";
  flicker.style.padding = alike ? margins.map((margin) => `${Math.max(0, margin / 2)}px`).join(" ") : "";
  $("flicker-title").textContent = alike ? "Source" : "Source (its shape differs from the edit's)";
}

export function next() {
  level = (level + 1) % levels.length;
  refresh();
}

export function reset() {
  level = 0;
  point = { x: 0.5, y: 0.5 };
  refresh();
}

// Move the visible part, in shares of the image.
export function move(x, y) {
  point = { x: Math.min(1, Math.max(0, point.x + x)), y: Math.min(1, Math.max(0, point.y + y)) };
  refresh();
}

export const zoomed = () => levels[level].scale > 1;

export function listen() {
  for (const box of document.querySelectorAll("main .box")) {
    box.addEventListener("mousemove", (event) => {
      const at = box.getBoundingClientRect();
      point = { x: (event.clientX - at.left) / at.width, y: (event.clientY - at.top) / at.height };
      if (zoomed()) refresh();
    });
    box.addEventListener("dblclick", next);
  }
  for (const image of views()) image.addEventListener("load", refresh);
  window.addEventListener("resize", refresh);
}
