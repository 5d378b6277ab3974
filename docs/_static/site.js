// The filter of tables of claims, and the page that shows what is behind a number. No library, no request to another host.
"use strict";

const xlingual = { parts: {}, waiting: {} };

// ---- tables with a filter

xlingual.filterTable = (box) => {
  const table = box.querySelector("table");
  const rows = [...table.tBodies[0].rows];
  const controls = document.createElement("div");
  controls.className = "xl-controls";
  const chosen = {};

  for (const name of box.dataset.filters.split(",")) {
    const values = [...new Set(rows.map((row) => row.dataset[name]))].filter(Boolean);
    if (values.length < 2) continue;
    const select = xlingual.field(controls, name, "select");
    select.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
    chosen[name] = select;
  }
  const search = xlingual.field(controls, "search", "input");
  search.type = "search";
  const count = document.createElement("p");
  count.setAttribute("role", "status");
  count.className = "xl-note";
  box.prepend(controls, count);

  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits = Object.entries(chosen).every(([name, s]) => !s.value || row.dataset[name] === s.value);
      const text = row.textContent.toLowerCase();
      row.hidden = !(fits && words.every((word) => text.includes(word)));
      shown += !row.hidden;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  const fromAddress = () => {
    const asked = new URLSearchParams(location.hash.slice(1));
    for (const [name, select] of Object.entries(chosen)) if (asked.has(name)) select.value = asked.get(name);
    if (asked.has("search")) search.value = asked.get("search");
    show();
  };
  for (const field of [...Object.values(chosen), search]) {
    field.addEventListener("input", () => {
      const set = Object.entries(chosen).filter(([, s]) => s.value).map(([name, s]) => [name, s.value]);
      if (search.value) set.push(["search", search.value]);
      history.replaceState(null, "", `#${new URLSearchParams(set)}`);
      show();
    });
  }
  window.addEventListener("hashchange", fromAddress);
  xlingual.sortable(table, rows);
  fromAddress();
};

xlingual.field = (box, name, kind) => {
  const label = document.createElement("label");
  const field = document.createElement(kind);
  field.name = name;
  label.append(name, field);
  box.append(label);
  return field;
};

xlingual.sortable = (table, rows) => {
  const value = (row, at) => {
    const cell = row.cells[at];
    const number = Number.parseFloat(cell.dataset.value ?? cell.textContent.replace("−", "-"));
    return Number.isNaN(number) ? cell.textContent.trim() : number;
  };
  const order = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b);
  };
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      rows.sort((a, b) => order(value(a, at), value(b, at)) * (down ? -1 : 1));
      table.tBodies[0].append(...rows);
    });
  });
};

// ---- what is behind a number: runs.html#TABLE/LINE and runs.html#RUN

xlingual.load = (name, content) => {
  xlingual.parts[name] = content;
  (xlingual.waiting[name] ?? []).forEach((show) => show(content));
  delete xlingual.waiting[name];
};

xlingual.part = (name) =>
  new Promise((resolve) => {
    if (name in xlingual.parts) return resolve(xlingual.parts[name]);
    (xlingual.waiting[name] ??= []).push(resolve);
    const script = document.createElement("script");
    script.src = `runs/${name}.js`;
    script.onerror = () => resolve(null);
    document.head.append(script);
  });

xlingual.element = (kind, ...content) => {
  const made = document.createElement(kind);
  made.append(...content);
  return made;
};

xlingual.runLink = (id) => {
  const made = xlingual.element("a", id);
  made.href = `#${id}`;
  return made;
};

// JSON with the runs that it names as links
xlingual.linked = (value) => {
  const code = xlingual.element("pre");
  const text = JSON.stringify(value, null, 1).replace(/\{\s*"run": ("[0-9a-f]{12}")\s*\}/g, "$1");
  for (const part of text.split(/("[0-9a-f]{12}")/)) {
    code.append(/^"[0-9a-f]{12}"$/.test(part) ? xlingual.runLink(part.slice(1, -1)) : part);
  }
  code.tabIndex = 0;
  return code;
};

xlingual.table = (caption, head, rows) => {
  const table = xlingual.element("table", xlingual.element("caption", caption));
  table.className = "xl-table";
  const titles = head.map((title) => Object.assign(xlingual.element("th", title), { scope: "col" }));
  table.append(xlingual.element("thead", xlingual.element("tr", ...titles)));
  const lines = rows.map((row) => xlingual.element("tr", ...row.map((cell) => xlingual.element("td", cell))));
  table.append(xlingual.element("tbody", ...lines));
  const box = xlingual.element("div", table);
  box.className = "xl-scroll";
  box.tabIndex = 0;
  return box;
};

xlingual.command = (text) => xlingual.element("p", xlingual.element("code", text));

xlingual.showNumber = async (target, key, line) => {
  const part = await xlingual.part(key);
  const found = part?.lines[line];
  if (!found) return target.replaceChildren(xlingual.element("p", `There is no line ${line} of ${key} here.`));
  target.replaceChildren(
    xlingual.element("h2", found.what),
    xlingual.element("p", `Mean ${found.value} of ${found.n} seeds.`),
  );
  if (found.seeds.length) {
    const rows = found.seeds.map(([seed, value, run]) => [String(seed), String(value), xlingual.runLink(run)]);
    target.append(xlingual.table("Values by seed", ["seed", "value", "run"], rows));
  } else {
    target.append(xlingual.element("p", "Runs: ", ...found.runs.flatMap((run) => [xlingual.runLink(run), " "])));
  }
  target.append(xlingual.command(`xlingual why ${part.file}:${line}`));
};

xlingual.showRun = async (target, start) => {
  const part = await xlingual.part(start.slice(0, 2));
  const ids = Object.keys(part ?? {}).filter((id) => id.startsWith(start.slice(0, 12)));
  if (ids.length !== 1) {
    const text = ids.length ? `${ids.length} runs begin with ${start}.` : `No run of the reference results begins with ${start}.`;
    return target.replaceChildren(xlingual.element("p", text), xlingual.command(`xlingual runs show ${start}`));
  }
  const { spec, data, cited } = part[ids[0]];
  target.replaceChildren(xlingual.element("h2", `Run ${ids[0]}: ${spec.is}`), xlingual.linked(spec));
  if (data) target.append(xlingual.element("h3", "Digests of its data"), xlingual.linked(data));
  if (cited.length) {
    const list = xlingual.element("ul", ...cited.map((place) => xlingual.element("li", place)));
    target.append(xlingual.element("h3", "Numbers that it is behind"), list);
  }
  target.append(xlingual.element("h3", "Make it again"), xlingual.command(`xlingual runs make ${ids[0]}`));
};

xlingual.showAddress = () => {
  const target = document.getElementById("xl-run");
  const asked = decodeURIComponent(location.hash.slice(1));
  const number = asked.match(/^([\w.-]+)\/(\d+)$/);
  if (number) xlingual.showNumber(target, number[1], number[2]);
  else if (/^[0-9a-f]{2,64}$/.test(asked)) xlingual.showRun(target, asked);
};

// the theme's buttons that open a part of the list at the side have no name
xlingual.nameToggles = () => {
  for (const toggle of document.querySelectorAll("summary > .toctree-toggle")) {
    toggle.parentElement.setAttribute("aria-label", "Pages of this part");
  }
};

// a button that copies a block of code, of a session what was typed
xlingual.typed = (text) => {
  const lines = text.trimEnd().split("\n");
  const isSession = lines.some((line) => line.startsWith(">>> "));
  const kept = isSession ? lines.filter((line) => /^(>>>|\.\.\.)/.test(line)) : lines;
  return kept.map((line) => (isSession ? line.replace(/^(>>>|\.\.\.) ?/, "") : line)).join("\n");
};

xlingual.copyButtons = () => {
  if (!navigator.clipboard) return;
  for (const code of document.querySelectorAll("main div.highlight > pre")) {
    const text = code.textContent;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "xl-copy";
    button.textContent = "copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(xlingual.typed(text));
      button.textContent = "copied";
      setTimeout(() => { button.textContent = "copy"; }, 2000);
    });
    code.parentElement.append(button);
  }
};

// boxes that scroll sideways: reached by the keyboard, and faded where there is more to the right
xlingual.markWide = () => {
  for (const box of document.querySelectorAll(".xl-scroll, div.cell_output")) {
    if (box.scrollWidth <= box.clientWidth + 1) continue;
    if (!box.hasAttribute("tabindex")) {
      box.tabIndex = 0;
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", "Output, wider than the page");
    }
    const mark = () => box.classList.toggle("xl-more", box.scrollLeft + box.clientWidth < box.scrollWidth - 2);
    box.addEventListener("scroll", mark, { passive: true });
    mark();
  }
};

document.addEventListener("DOMContentLoaded", () => {
  xlingual.nameToggles();
  document.querySelectorAll(".xl-filter").forEach(xlingual.filterTable);
  xlingual.markWide();
  xlingual.copyButtons();
  if (!document.getElementById("xl-run")) return;
  document.querySelector(".xl-run-form").addEventListener("submit", (event) => {
    event.preventDefault();
    location.hash = event.target.elements.id.value.trim().toLowerCase();
  });
  window.addEventListener("hashchange", xlingual.showAddress);
  xlingual.showAddress();
});
