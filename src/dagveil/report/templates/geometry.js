
// Edges of boxes that a reader has moved: from rim to rim, straight unless another box is in the way. All others keep
// the route of the layout.
const BOWS = [0, 36, -36, 72, -72, 120, -120];
function readBox(node) {
  const rect = node.querySelector("rect");
  const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => Number(rect.getAttribute(name)));
  return { node, home: { x: x + width / 2, y: y + height / 2 }, dx: 0, dy: 0, width, height };
}
function centreOf(box) {
  return { x: box.home.x + box.dx, y: box.home.y + box.dy };
}
function rimOf(box, goal) {
  const at = centreOf(box);
  const dx = goal.x - at.x, dy = goal.y - at.y;
  const share = Math.min(box.width / 2 / Math.abs(dx || 1e-9), box.height / 2 / Math.abs(dy || 1e-9), 1);
  return { x: at.x + dx * share, y: at.y + dy * share };
}
function step(from, to, distance) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  return { x: from.x + (to.x - from.x) * distance / length, y: from.y + (to.y - from.y) * distance / length };
}
function bowBetween(source, target, boxes) {
  const from = centreOf(source), to = centreOf(target);
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const others = boxes.filter((box) => box !== source && box !== target).map((box) => ({ box, at: centreOf(box) }));
  let best = null, fewest = Infinity;
  for (const bow of BOWS) {
    // the curve comes half as far as its control point
    const bend = {
      x: (from.x + to.x) / 2 + 2 * bow * (to.y - from.y) / length,
      y: (from.y + to.y) / 2 - 2 * bow * (to.x - from.x) / length,
    };
    let hits = 0;
    for (let t = 0.05; t < 1; t += 0.05) {
      const [a, b, c] = [(1 - t) * (1 - t), 2 * t * (1 - t), t * t];
      const x = a * from.x + b * bend.x + c * to.x, y = a * from.y + b * bend.y + c * to.y;
      hits += others.some(({ box, at }) => Math.abs(x - at.x) < box.width / 2 + 4 && Math.abs(y - at.y) < box.height / 2 + 4);
    }
    if (hits < fewest) [best, fewest] = [bend, hits];
    if (hits === 0) break;
  }
  return best;
}
function drawAgain(edge, source, target, boxes) {
  const bend = bowBetween(source, target, boxes);
  let start = rimOf(source, bend), end = rimOf(target, bend);
  const line = edge.querySelector(".line"), head = edge.querySelector("polygon");
  const circles = edge.querySelectorAll("circle");
  if (head) {
    const size = 7 + 1.6 * Number(line.getAttribute("stroke-width"));
    const tip = step(end, bend, 1), base = step(end, bend, size);
    const side = { x: (tip.y - base.y) / (size - 1), y: (base.x - tip.x) / (size - 1) };
    const corner = (sign) => `${base.x + sign * 0.42 * size * side.x},${base.y + sign * 0.42 * size * side.y}`;
    head.setAttribute("points", `${tip.x},${tip.y} ${corner(1)} ${corner(-1)}`);
    end = step(end, bend, size - 1);
  }
  if (circles.length) {
    const radius = Number(circles[0].getAttribute("r"));
    const dots = [step(start, bend, radius), step(end, bend, radius)];
    dots.forEach((dot, i) => { circles[i].setAttribute("cx", dot.x); circles[i].setAttribute("cy", dot.y); });
    [start, end] = dots;
  }
  line.setAttribute("d", `M${start.x} ${start.y}Q${bend.x} ${bend.y} ${end.x} ${end.y}`);
}
function copyShape(edge) {
  return [...edge.querySelectorAll(".line, polygon, circle")].map((shape) => [
    shape, ["d", "points", "cx", "cy"].filter((name) => shape.hasAttribute(name)).map((name) => [name, shape.getAttribute(name)]),
  ]);
}
function restoreShape(copy) {
  for (const [shape, attributes] of copy) for (const [name, value] of attributes) shape.setAttribute(name, value);
}
function makeShape(name, attributes) {
  const shape = document.createElementNS(sheet.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
  return shape;
}
