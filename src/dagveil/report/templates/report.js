"use strict";
// The page is complete without this script; it only lets readers sort tables, filter the edges and copy texts.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (head.querySelector(".unseen")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const numeric = body.rows[0].cells[column].dataset.value !== undefined;
      const now = head.getAttribute("aria-sort");
      const descending = now ? now === "ascending" : numeric;
      const value = (row) => numeric ? Number(row.cells[column].dataset.value) : row.cells[column].textContent;
      const compare = (a, b) => numeric ? value(a) - value(b) : value(a).localeCompare(value(b));
      const rows = [...body.rows].sort((a, b) => descending ? compare(b, a) : compare(a, b));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      body.append(...rows);
    });
  });
}
const filter = document.querySelector(".filter");
if (filter) {
  const input = filter.querySelector("input");
  const count = filter.querySelector("span");
  const rows = [...document.querySelector("#edges table.edges").tBodies[0].rows];
  filter.hidden = false;
  input.addEventListener("input", () => {
    const wanted = input.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows) {
      const names = [...row.querySelectorAll(".name")].map((cell) => cell.textContent.toLowerCase());
      row.hidden = !names.some((name) => name.includes(wanted));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = wanted ? `${shown} of ${rows.length}` : "";
  });
}
for (const button of document.querySelectorAll("[data-copy]")) {
  const code = document.getElementById(button.dataset.copy);
  const told = document.getElementById("copy-state");
  button.hidden = false;
  button.addEventListener("click", async () => {
    let copied = true;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      // not every browser lets a page from the disk use the clipboard: select the text, and try the old way
      code.closest("details").open = true;
      getSelection().selectAllChildren(code);
      copied = document.execCommand("copy");
    }
    const name = button.textContent.replace("Copy ", "");
    told.textContent = copied ? `Copied ${name}.` : "The browser forbids copying; the text is selected, copy it by hand.";
  });
}
let opened = [];
window.addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open])")];
  for (const part of opened) part.open = true;
});
window.addEventListener("afterprint", () => {
  for (const part of opened) part.open = false;
});
