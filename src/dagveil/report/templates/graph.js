
// The drawing is complete without this script. It lets readers move, enlarge and thin it out.
const stage = document.querySelector(".stage"), svg = stage.querySelector("svg"), sheet = svg.querySelector(".sheet");
const byId = (name) => document.getElementById(name);
const state = byId("graph-state"), putBack = byId("put-back");
const [, , fullWidth, fullHeight] = svg.getAttribute("viewBox").split(" ").map(Number);
const offset = sheet.transform.baseVal.getItem(0).matrix;
const boxes = [...sheet.querySelectorAll(".node")].map(readBox);
const titleOf = (group) => group.querySelector("title").textContent;
const edges = [...sheet.querySelectorAll(".edge")].map(readEdge);
// a phone shows the whole graph, which two fingers enlarge
const READABLE = window.innerWidth < 700 ? 0.3 : 0.6;
let view = { x: 0, y: 0, width: fullWidth, height: fullHeight };
let chosen = null;

function readEdge(group) {
  const ends = [boxes[group.dataset.source], boxes[group.dataset.target]];
  const share = group.dataset.confidence === undefined ? null : Number(group.dataset.confidence);
  return { group, ends, share, shape: copyShape(group), label: null };
}
function setView(next) {
  view = next;
  svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
  // the element keeps its proportions, so it may show more than the box that it was given
  const { width, height } = svg.getBoundingClientRect();
  const scale = Math.min(width / view.width, height / view.height) || 1;
  const all = boundAll();
  const cut = width / scale < 0.99 * all.width || height / scale < 0.99 * all.height;
  stage.classList.toggle("zoomed", cut);
  byId("graph-part").hidden = !cut;
}
function boundAll() {
  const sides = boxes.map((box) => {
    const at = centreOf(box);
    return [at.x - box.width / 2, at.y - box.height / 2, at.x + box.width / 2, at.y + box.height / 2];
  });
  const margin = 18;
  const left = Math.min(0, ...sides.map((side) => side[0] + offset.e - margin));
  const top = Math.min(0, ...sides.map((side) => side[1] + offset.f - margin));
  const right = Math.max(fullWidth, ...sides.map((side) => side[2] + offset.e + margin));
  const bottom = Math.max(fullHeight, ...sides.map((side) => side[3] + offset.f + margin));
  return { x: left, y: top, width: right - left, height: bottom - top };
}
function zoom(factor, at) {
  const all = boundAll();
  const width = Math.min(4 * all.width, Math.max(all.width / 40, 120, view.width / factor));
  const scale = width / view.width;
  at ??= { x: view.x + view.width / 2, y: view.y + view.height / 2 };
  setView({ x: at.x - (at.x - view.x) * scale, y: at.y - (at.y - view.y) * scale, width, height: view.height * scale });
}
function toDrawing(event) {
  return new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
}
function redraw(edge) {
  const moved = edge.ends.some((box) => box.dx || box.dy);
  if (moved || edge.shape === null) drawAgain(edge.group, ...edge.ends, boxes);
  else restoreShape(edge.shape);
  if (edge.label) placeLabel(edge);
}
function moveBox(box, dx, dy) {
  box.dx = dx;
  box.dy = dy;
  box.node.setAttribute("transform", `translate(${dx} ${dy})`);
  edges.filter((edge) => edge.ends.includes(box)).forEach(redraw);
  putBack.disabled = !boxes.some((other) => other.dx || other.dy);
}
function choose(box) {
  chosen = box;
  sheet.classList.toggle("choosing", box !== null);
  boxes.forEach((other) => {
    other.node.classList.toggle("chosen", other === box);
    other.node.setAttribute("tabindex", other === (box ?? boxes[0]) ? "0" : "-1");
  });
  edges.forEach((edge) => edge.group.classList.toggle("near", box !== null && edge.ends.includes(box)));
}
function placeLabel(edge) {
  const line = edge.group.querySelector(".line");
  const at = line.getPointAtLength(line.getTotalLength() / 2);
  edge.label.setAttribute("x", at.x);
  edge.label.setAttribute("y", at.y);
}
function showNumbers(wanted) {
  for (const edge of edges) {
    if (wanted && edge.share !== null) {
      edge.label = makeShape("text", { class: "share", dy: "0.35em", "text-anchor": "middle" });
      edge.label.textContent = `${Math.round(edge.share)}\u202f%`;
      edge.group.append(edge.label);
      placeLabel(edge);
    } else if (edge.label) {
      edge.label.remove();
      edge.label = null;
    }
  }
}
function addMisses() {
  for (const row of document.querySelectorAll("#doubtful tr[data-source], #misses tr[data-source]")) {
    const dashes = row.closest("#doubtful") ? { "stroke-dasharray": "6 5" } : { "stroke-dasharray": "0.1 6", "stroke-linecap": "round" };
    const group = makeShape("g", { class: "edge miss", hidden: "" });
    const title = makeShape("title", {});
    title.textContent = row.innerText.replace(/\s+/g, " ");
    group.append(title, makeShape("path", { class: "line", fill: "none", stroke: "#1b2a35", "stroke-width": 2.2, ...dashes }));
    sheet.prepend(group);
    const edge = { group, ends: [boxes[row.dataset.source], boxes[row.dataset.target]], share: Number(row.dataset.confidence), shape: null, label: null };
    edges.push(edge);
    redraw(edge);
  }
}
function thinOut() {
  const least = byId("least") ? Number(byId("least").value) : 0;
  const misses = byId("with-misses")?.checked ?? false;
  // an unknown confidence is not a low one
  for (const edge of edges) {
    const miss = edge.shape === null;
    edge.group.toggleAttribute("hidden", (miss && !misses) || (edge.share !== null && edge.share < least));
  }
  for (const row of document.querySelectorAll("#edges table.edges > tbody > tr")) {
    row.classList.toggle("thinned", row.dataset.confidence !== undefined && Number(row.dataset.confidence) < least);
  }
  const own = edges.filter((edge) => edge.shape !== null);
  const shown = own.filter((edge) => !edge.group.hasAttribute("hidden")).length;
  if (byId("least")) byId("least-words").value = `${least} %`;
  state.textContent = shown < own.length ? `${shown} of ${own.length} edges shown: those of at least ${least} % confidence.` : "";
}
function nextBox(box, key) {
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  const from = centreOf(box);
  let best = null, least = Infinity;
  for (const other of boxes) {
    const x = centreOf(other).x - from.x, y = centreOf(other).y - from.y;
    const ahead = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (other !== box && ahead > 1 && ahead + 2 * aside < least) [best, least] = [other, ahead + 2 * aside];
  }
  return best;
}
function keepInView(box) {
  const at = centreOf(box), x = at.x + offset.e, y = at.y + offset.f;
  const side = (low, size, value, half) => Math.min(value - half, Math.max(low, value + half - size));
  const next = { ...view, x: side(view.x, view.width, x, box.width / 2 + 10), y: side(view.y, view.height, y, box.height / 2 + 10) };
  if (next.x !== view.x || next.y !== view.y) setView(next);
}
function pressKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const box = boxes.find((other) => other.node === event.target.closest(".node"));
  if (event.key === "+" || event.key === "=") zoom(1.25);
  else if (event.key === "-") zoom(1 / 1.25);
  else if (event.key === "0") setView(boundAll());
  else if (event.key === "Escape") choose(null);
  else if (box && event.key.startsWith("Arrow") && event.shiftKey) {
    const [dx, dy] = { ArrowLeft: [-12, 0], ArrowRight: [12, 0], ArrowUp: [0, -12], ArrowDown: [0, 12] }[event.key];
    moveBox(box, box.dx + dx, box.dy + dy);
    keepInView(box);
  } else if (box && event.key.startsWith("Arrow")) nextBox(box, event.key)?.node.focus();
  else return;
  event.preventDefault();
}
function startDrag(event) {
  if (event.button !== 0) return;
  const box = boxes.find((other) => other.node === event.target.closest(".node")) ?? null;
  if (event.pointerType === "touch" && !box && !stage.classList.contains("zoomed")) return;
  const from = toDrawing(event), home = box ? { x: box.dx, y: box.dy } : { ...view };
  const drag = (moved) => {
    if (moved.pointerId !== event.pointerId) return;
    if (box) {
      const at = toDrawing(moved);
      moveBox(box, home.x + at.x - from.x, home.y + at.y - from.y);
    } else {
      const scale = svg.getScreenCTM().a;
      setView({ ...view, x: home.x - (moved.clientX - event.clientX) / scale, y: home.y - (moved.clientY - event.clientY) / scale });
    }
  };
  const stop = () => {
    svg.removeEventListener("pointermove", drag);
    stage.classList.remove("dragging");
  };
  if (!box) choose(null);
  svg.setPointerCapture(event.pointerId);
  stage.classList.add("dragging");
  svg.addEventListener("pointermove", drag);
  for (const end of ["pointerup", "pointercancel"]) svg.addEventListener(end, stop, { once: true });
}
let fitted = { width: window.innerWidth, height: window.innerHeight };
function fitStage() {
  // a frame that is made taller, so that it holds the words too, leaves the drawing as tall as it is
  if (window === window.top || window.innerWidth !== fitted.width) fitted = { width: window.innerWidth, height: window.innerHeight };
  const scale = Math.min(1, stage.clientWidth / fullWidth);
  stage.style.setProperty("--stage-height", `${Math.max(160, Math.min(fullHeight * scale, 0.52 * fitted.height))}px`);
}
function openView() {
  // names must be readable at first sight: a large graph opens at its causes, in the middle of the top
  const room = svg.getBoundingClientRect();
  const scale = Math.min(room.width / fullWidth, room.height / fullHeight);
  if (scale >= READABLE) return setView(boundAll());
  const width = room.width / READABLE, height = room.height / READABLE;
  setView({ x: (fullWidth - width) / 2, y: 0, width, height });
}

boxes.forEach((box) => {
  const near = edges.filter((edge) => edge.ends.includes(box)).map((edge) => titleOf(edge.group));
  box.node.setAttribute("role", "img");
  box.node.setAttribute("aria-label", `${titleOf(box.node)}. ${near.join(". ") || "No edges"}.`);
  box.node.addEventListener("focus", () => { choose(box); keepInView(box); });
});
addMisses();
choose(null);
stage.classList.replace("scroll", "live");
svg.setAttribute("role", "group");
svg.setAttribute("aria-roledescription", "graph");
if (byId("graph-keys")) byId("graph-keys").hidden = false;
byId("graph-tools").hidden = false;
svg.addEventListener("keydown", pressKey);
svg.addEventListener("pointerdown", startDrag);
svg.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.metaKey) return;  // a plain wheel scrolls the page
  event.preventDefault();
  zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, toDrawing(event));
}, { passive: false });
byId("zoom-in").addEventListener("click", () => zoom(1.25));
byId("zoom-out").addEventListener("click", () => zoom(1 / 1.25));
byId("zoom-all").addEventListener("click", () => setView(boundAll()));
putBack.addEventListener("click", () => {
  boxes.forEach((box) => moveBox(box, 0, 0));
  setView(boundAll());
});
byId("least")?.addEventListener("input", thinOut);
byId("with-misses")?.addEventListener("change", thinOut);
byId("numbers")?.addEventListener("change", (event) => showNumbers(event.target.checked));
window.addEventListener("resize", fitStage);
fitStage();
openView();
let onScreen = view;
window.addEventListener("beforeprint", () => { onScreen = view; setView(boundAll()); });
window.addEventListener("afterprint", () => setView(onScreen));
