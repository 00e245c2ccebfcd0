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
  if (then === "told") return tell(form, `Wrote ${content.files.join(", ")} to ${content.folder}`);
  if (then === "reload") location.reload();
  else location.assign(then.replace("{id}", content.id || ""));
};

const tell = (form, words) => {
  const line = form.querySelector(".told");
  line.textContent = words;
  line.hidden = false;
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
        const content = await act(form);
        if (form.hasAttribute("data-tour")) tour.keep("0");
        go(form, content);
        if (told(form, "then")?.endsWith(".zip")) button.disabled = false; // a download leaves the page as it is
      } catch (error) {
        show(form, error.message);
        button.disabled = false;
      }
    });
  }
};

const read = (field) => {
  if (field.type === "checkbox") return field.checked;
  const text = field.value.trim();
  if (field.hasAttribute("data-list")) return text.split(/[\s,]+/).filter((part) => part);
  return field.hasAttribute("data-number") ? Number(text) : text;
};

handle("form[data-send]", (form) => {
  const [method, address] = told(form, "send").split(" ");
  const fields = [...form.elements].filter((field) => field.name);
  const body = {};
  for (const field of fields) {
    const [first, second] = field.name.split(".");
    // what is left blank is left to the studio, unless it is asked for
    if (!field.value.trim() && !field.required) continue;
    if (second) (body[first] ??= {})[second] = read(field);
    else body[first] = read(field);
  }
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

const readNumbers = (field, what) =>
  field.value.split(",").filter((part) => part.trim()).map((part) => readNumber(part, what));

const readAnswer = (part, person) => {
  const field = (name) => part.querySelector(`[name="${name}"]`);
  const name = JSON.parse(part.dataset.column);
  const kind = name === person ? "skip" : field("kind").value;
  if (!kind) throw new Error(`say what ${name} is`);
  const answer = { kind, other: field("other").checked };
  if (kind === "categories" || kind === "ordered") {
    answer.levels = field("levels").value.split(",").map((level) => level.trim()).filter((level) => level);
  } else if (kind === "number") {
    answer.bounds = ["lowest", "highest"].map((end) => readNumber(field(end).value, `the ${end} ${name}`));
    answer.usual = readNumbers(field("usual"), `the mean and the standard deviation of ${name}`);
    answer.cuts = readNumbers(field("cuts"), `each cut of ${name}`);
  }
  return [name, answer];
};

handle("form[data-begin]", async (form) => {
  const [method, address] = told(form, "begin").split(" ");
  const fields = form.elements;
  const body = {
    dataset: fields.dataset.value.trim(),
    unit: fields.unit.value.trim(),
    rows: readNumber(fields.rows.value, "the number of records"),
    fixed: fields.fixed.value === "true",
    comma: Boolean(fields.comma?.checked),
    reviewed: fields.reviewed.checked,
  };
  if (Number(fields.most.value) > 1 && fields.person.value) body.person = fields.person.value;
  const parts = [...form.querySelectorAll("fieldset[data-column]")];
  body.columns = Object.fromEntries(parts.map((part) => readAnswer(part, body.person)));
  if (fields.table) body.table = fields.table.value;
  const { page } = await send(method, address, JSON.stringify(body), "application/json");
  location.assign(`${document.documentElement.dataset.base}/${page}`);
});

for (const button of document.querySelectorAll("[data-same]")) {
  button.addEventListener("click", () => {
    const part = button.closest("fieldset");
    for (const from of part.previousElementSibling.querySelectorAll("select, input")) {
      const to = part.querySelector(`[name="${from.name}"]`);
      [to.value, to.checked] = [from.value, from.checked];
    }
  });
}

for (const form of document.querySelectorAll("form[data-begin]")) {
  const { most, person } = form.elements;
  const words = form.querySelector("#m-most");
  const say = () => {
    const several = Number(most.value) > 1;
    words.hidden = !several || Boolean(person.value);
    form.querySelector("#m-person").hidden = !several || !person.value;
    person.closest("label").hidden = !several;
    for (const part of form.querySelectorAll("fieldset[data-column]")) {
      const named = several && JSON.parse(part.dataset.column) === person.value;
      part.hidden = named;
      part.querySelector('[name="kind"]').required = !named;
    }
    words.textContent = words.dataset.words.replaceAll(/\bk\b/g, most.value);
  };
  most.addEventListener("input", say);
  person.addEventListener("input", say);
  say();
}

handle("form[data-text]", async (form) => {
  try {
    return await send("PUT", told(form, "text"), form.elements.text.value, "text/plain");
  } catch (error) {
    const line = (error.message.match(/line (\d+)/) || [])[1];
    if (line) choose(form.elements.text, Number(line));
    throw error;
  }
});

const choose = (field, line) => {
  const lines = field.value.split("\n");
  const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  field.focus();
  field.setSelectionRange(start, start + (lines[line - 1] || "").length);
};

for (const form of document.querySelectorAll("form[data-text]")) {
  const { text, file } = form.elements;
  if (form.hasAttribute("data-load")) {
    const button = form.querySelector("button");
    button.disabled = true;
    fetch(told(form, "text"), { credentials: "same-origin" })
      .then((answer) => (answer.ok ? answer.text() : ""))
      .then((content) => {
        text.value = content;
        button.disabled = false;
      });
  }
  file.addEventListener("change", async () => {
    if (file.files[0]) text.value = await file.files[0].text();
  });
}

const readNumber = (text, what) => {
  const number = Number(text);
  if (text.trim() === "" || !Number.isFinite(number)) throw new Error(`${what} must be a number`);
  return number;
};

const readLine = (field) => (field.value === field.defaultValue ? JSON.parse(field.dataset.said) : field.value);

const shape = (kind) => (kind === "ordinal" ? "categorical" : kind);

// a field that nobody touched says what the schema said, whatever the page could show of it
const readColumn = (row) => {
  const facts = JSON.parse(row.dataset.facts);
  const field = (name) => row.querySelector(`[name="${name}"]`);
  const kind = field("kind").value;
  const same = shape(kind) === shape(row.dataset.kind);
  const column = same ? { ...facts, kind } : { kind };
  const touched = (name) => !same || field(name).value !== field(name).defaultValue;
  const name = JSON.parse(row.dataset.column);
  const change = (key, parse) => {
    if (!touched(key)) return;
    const text = field(key).value.trim();
    if (text) column[key] = parse(text);
    else delete column[key];
  };
  if (kind === "numeric") {
    if (touched("lowest") || touched("highest") || !("bounds" in column)) {
      column.bounds = ["lowest", "highest"].map((end) => readNumber(field(end).value, `the ${end} ${name}`));
    }
    change("bins", (text) => {
      const edges = text.match(/^\[(.*)\]$/);
      const read = (part) => readNumber(part, `bins of ${name}`);
      return edges ? edges[1].split(",").map(read) : read(text);
    });
    change("missing", (text) => (text === "own-level" ? text : readNumber(text, `the place for missing ${name}`)));
    return column;
  }
  if (kind !== "boolean" && (touched("levels") || !("levels" in column))) {
    const shown = field("levels").defaultValue.split("\n");
    const before = facts.levels || [];
    // a level that stood there stays as it was, blanks around it included
    const read = (line) => (shown.includes(line) && before.length ? before[shown.indexOf(line)] : line.trim());
    column.levels = field("levels").value.split("\n").map(read).filter((level) => level);
    if (!column.levels.length) throw new Error(`declare the levels of ${name}`);
  }
  change("outside", (text) => text);
  change("missing", (text) => text);
  return column;
};

handle("form[data-schema]", async (form) => {
  const fields = form.elements;
  const every = [...form.querySelectorAll("tr[data-column]")];
  const isUsed = (row) => row.querySelector('[name="used"]').checked;
  const rows = every.filter(isUsed);
  const rowsDeclared = fields.nominal_rows.value.trim();
  const body = {
    name: readLine(fields.name),
    unit: readLine(fields.unit),
    relation: fields.relation.value,
    nominal_rows: rowsDeclared ? readNumber(rowsDeclared, "the nominal number of rows") : null,
    public: fields.public.checked,
    reviewed: fields.reviewed.checked,
    columns: Object.fromEntries(rows.map((row) => [JSON.parse(row.dataset.column), readColumn(row)])),
    ignore: every.filter((row) => !isUsed(row)).map((row) => JSON.parse(row.dataset.column)),
  };
  return send("PUT", told(form, "schema"), JSON.stringify(body), "application/json");
});

// this page names the result already, so the report begins with its graph
const showGraph = (frame) => {
  const inner = frame.contentDocument;
  const drawing = inner?.querySelector("#graph .stage");
  if (!drawing) return;
  inner.querySelector("body > header").hidden = true;
  inner.body.style.paddingTop = ".8rem";
  // where nothing was found the words come first, and an alarm always does
  const wordsFirst = inner.querySelector("#summary").compareDocumentPosition(drawing) & Node.DOCUMENT_POSITION_FOLLOWING;
  const place = drawing.getBoundingClientRect();
  if (!inner.querySelector("body > .banner") && !wordsFirst) {
    // not by the address: that would scroll this page as well
    if (place.bottom > innerHeight - frame.getBoundingClientRect().top) frame.contentWindow.scrollBy(0, place.top - 8);
  }
  // the frame ends below a whole sentence, and holds all that is said up to whom it is private for
  const spoken = [...inner.querySelectorAll("#summary dd")];
  const wanted = spoken[2] ?? drawing;
  const last = Math.max(...[drawing, wanted].map((part) => part.getBoundingClientRect().bottom));
  frame.style.height = `${Math.ceil(last) + 12}px`;
};

for (const frame of document.querySelectorAll("iframe")) {
  frame.addEventListener("load", () => showGraph(frame));
  showGraph(frame);
}

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

// on narrow screens a table's rows are blocks, and each cell says the heading of its column
for (const table of document.querySelectorAll("table:not(.plain)")) {
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.replace(/[_-]/g, "$&\u200b"));
  for (const [selector, role] of [["tbody", "rowgroup"], ["tr", "row"], ["td", "cell"], ["th", "columnheader"]]) {
    for (const part of table.querySelectorAll(selector)) part.setAttribute("role", role);
  }
  table.setAttribute("role", "table");
  for (const row of table.querySelectorAll("tbody tr")) {
    [...row.cells].forEach((cell, place) => (cell.dataset.label = heads[place] || ""));
  }
}

// a short tour of the sample: what to press next, on whichever page has it
const tour = {
  steps: [
    ["form[data-send$=budget]", "A data set has a budget for its whole life. Set ε 3 here: no run can go beyond it."],
    ["#plan", "The schema says what is public. The sample's is reviewed already, so a run can be planned."],
    ["#start", "The page above says what will be asked, and how noisy the answers are; nothing is read yet. This reads the rows and spends ε 1."],
    ["iframe", "The graph, how much of it is solid, and for whom it is private. Thick edges came back in nearly all redraws of the noise."],
    ["#effect", "What was released may be asked for more, at no cost: what changing smoke does to lung, for example."],
    ["#tables", "Counts with the standard error of their noise, also of two columns together."],
    ["nav a[href$='/history']", "The ledger has every run and what it spent, for good. That is all: your own table begins at Start."],
  ],
  keep: (step) => sessionStorage.setItem("tour", step),
  show() {
    document.querySelector(".tour")?.remove();
    document.querySelector(".toured")?.classList.remove("toured");
    const kept = sessionStorage.getItem("tour");
    if (kept === null) return;
    const step = Number(kept);
    const [selector, words] = this.steps[step];
    const target = document.querySelector(selector);
    const [box, say] = [document.createElement("section"), document.createElement("p")];
    box.className = "tour";
    box.setAttribute("aria-label", "Tour");
    say.textContent = `${step + 1} of ${this.steps.length}. ${target ? words : "The next stop of the tour comes when this page is done, or on the one that it leads to."}`;
    const row = document.createElement("div");
    row.className = "row";
    const add = (label, act, loud) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      if (!loud) button.className = "quiet-button";
      button.addEventListener("click", act);
      row.append(button);
      return button;
    };
    const turn = (next) => {
      this.keep(String(next));
      this.show();
      document.querySelector(".tour button").focus();
    };
    if (target) {
      target.classList.add("toured");
      add("Show me", () => {
        target.scrollIntoView({ block: "center" });
        (target.matches("form") ? target.querySelector("input") : target).focus({ preventScroll: true });
      }, true);
    }
    if (step > 0) add("Back", () => turn(step - 1));
    if (step + 1 < this.steps.length) add("Next", () => turn(step + 1));
    add("End the tour", () => {
      sessionStorage.removeItem("tour");
      this.show();
    });
    box.append(say, row);
    document.querySelector("main").prepend(box);
  },
};
tour.show();
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || sessionStorage.getItem("tour") === null) return;
  sessionStorage.removeItem("tour");
  tour.show();
});
