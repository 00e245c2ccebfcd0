"use strict";

// Pages are made by the server. This script sends what forms say to the API, and watches a run.

// not form.dataset: a field of that name would stand in its place
const told = (form, name) => form.getAttribute(`data-${name}`);

const show = (form, words) => {
  const line = form.querySelector(".refusal");
  if (!line) return;
  line.textContent = words;
  line.hidden = !words;
};

const send = async (method, address, body, type) => {
  const headers = type ? { "Content-Type": type } : {};
  const answer = await fetch(address, { method, headers, body, credentials: "same-origin" });
  const content = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(content.detail || `the studio answered ${answer.status}`);
  return content;
};

const go = (form, content) => {
  const then = told(form, "then") || "reload";
  if (then === "stay") return;
  if (then === "reload") location.reload();
  else location.assign(then.replace("{id}", content.id || ""));
};

const handle = (selector, act) => {
  for (const form of document.querySelectorAll(selector)) {
    // disabled until now: a form that the browser sent by itself would ask for nothing sensible
    for (const button of form.querySelectorAll("button:not([data-asked])")) button.disabled = false;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const button = form.querySelector("button");
      button.disabled = true;
      show(form, "");
      try {
        go(form, await act(form));
      } catch (error) {
        show(form, error.message);
        button.disabled = false;
      }
    });
  }
};

const read = (field) => {
  const text = field.value.trim();
  if (field.hasAttribute("data-list")) return text.split(/[\s,]+/).filter((part) => part);
  return field.hasAttribute("data-number") ? Number(text) : text;
};

handle("form[data-send]", (form) => {
  const [method, address] = told(form, "send").split(" ");
  const fields = [...form.elements].filter((field) => field.name);
  const body = Object.fromEntries(fields.map((field) => [field.name, read(field)]));
  if (/\/(?:cancel|finish)$/.test(address)) return send(method, address);
  return send(method, address, JSON.stringify(body), "application/json");
});

handle("form[data-upload]", (form) => {
  const file = form.elements.file.files[0];
  const ending = (file.name.toLowerCase().match(/\.(?:csv|tsv)\.gz$|\.[a-z]+$/) || [""])[0];
  const query = new URLSearchParams({ name: form.elements.name.value, ending });
    return send("POST", `${told(form, "upload")}?${query}`, file, "application/octet-stream");
});

for (const form of document.querySelectorAll("form[data-upload]")) {
  form.elements.file.addEventListener("change", () => {
    const name = form.elements.name;
    const stem = (form.elements.file.files[0]?.name || "").split(".")[0].replace(/[^A-Za-z0-9_-]+/g, "-");
    if (!name.value) name.value = stem.slice(0, 64);
  });
}

handle("form[data-text]", async (form) => {
  const text = await form.elements.file.files[0].text();
  return send("PUT", told(form, "text"), text, "text/plain");
});

const readNumber = (text, what) => {
  const number = Number(text);
  if (text.trim() === "" || !Number.isFinite(number)) throw new Error(`${what} must be a number`);
  return number;
};

const readColumn = (row) => {
  const value = (name) => row.querySelector(`[name="${name}"]`).value;
  const kind = value("kind");
  const column = { kind };
  const kept = kind === "numeric" ? ["bins", "center", "spread"] : ["scores"];
  const facts = JSON.parse(row.dataset.facts);
  for (const key of kept) if (key in facts) column[key] = facts[key];
  if (kind === "numeric") {
    const name = row.dataset.column;
    column.bounds = [readNumber(value("lowest"), `the lowest ${name}`), readNumber(value("highest"), `the highest ${name}`)];
  } else {
    if (kind !== "boolean") column.levels = value("levels").split("\n").map((level) => level.trim()).filter((level) => level);
    if (value("outside").trim()) column.outside = value("outside").trim();
  }
  const missing = value("missing").trim();
  if (missing) column.missing = kind === "numeric" && missing !== "own-level" ? readNumber(missing, "the place for missing") : missing;
  return column;
};

handle("form[data-schema]", async (form) => {
  const fields = form.elements;
  const rows = [...form.querySelectorAll("tr[data-column]")];
  const rowsDeclared = fields.nominal_rows.value.trim();
  const body = {
    name: fields.name.value,
    unit: fields.unit.value,
    relation: fields.relation.value,
    nominal_rows: rowsDeclared ? readNumber(rowsDeclared, "the nominal number of rows") : null,
    public: fields.public.checked,
    reviewed: fields.reviewed.checked,
    columns: Object.fromEntries(rows.map((row) => [row.dataset.column, readColumn(row)])),
  };
  return send("PUT", told(form, "schema"), JSON.stringify(body), "application/json");
});

const watch = async (section) => {
  const field = (name) => section.querySelector(`[data-field="${name}"]`);
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 700));
    let job;
    try {
      job = await send("GET", `${document.documentElement.dataset.base}/api/jobs/${section.dataset.job}`);
    } catch {
      field("stage").textContent = "the studio does not answer; the run goes on without it";
      continue;
    }
    if (!["queued", "running"].includes(job.state)) {
      location.reload();
      return;
    }
    const state = document.querySelector('h1 [data-field="state"]');
    state.textContent = job.cancelling ? "cancelling" : job.state;
    state.className = `badge ${job.state}`;
    field("stage").textContent = job.stage
      ? `${job.stage}: ${job.done} of ${job.total}`
      : job.state === "queued" ? "waiting for its turn" : "starting";
    field("progress").max = job.total || 1;
    field("progress").value = job.done;
    field("charge").textContent = job.charge.words;
  }
};

for (const section of document.querySelectorAll("[data-job]")) watch(section);
