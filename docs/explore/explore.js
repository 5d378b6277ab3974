/* The page that one can move. Data come as scripts (explore.index, explore.add), so that it works from the file
   system; d3 draws the curves and finds the dot under a pointer. */
"use strict";

const explore = (() => {
  const SIDES = ["left", "right"];
  const NEAREST = 3;
  /* Names of a curve at the lowest and at the upper layer, what it is called, its axis. */
  const CURVES = [
    [["loss", "loss"], "Loss", "linear"],
    [["perplexity", "perplexity"], "Perplexity, unseen text", "log"],
    [["tau0", "tau"], "τ, words found", "linear"],
    [["rho0", "rho"], "ρ, sentences found", "linear"],
    [["mu", "mu"], "µ, words and sentences, two layers", "linear"],
  ];
  /* What the axes of a view are. */
  const AXES = {
    plane: "Left to right is the way from the mean of one language to that of the other, up and down the direction in "
      + "which each spreads most; both are fitted at the end of training.",
    centred: "From every dot the mean of its language is subtracted, so what is left is where it lies within its "
      + "language. The axes are the two directions of most variance, fitted at the end of training.",
  };
  const byId = (id) => document.getElementById(id);
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const models = new Map(); // by row
  const waiting = new Map();
  const state = { left: "", right: "", at: 0, layer: "0", items: "words", view: "plane", picked: null };
  let listed = [];
  let timer = null;
  let colours = {};

  // ---- data

  function bytes(text) {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  }

  function index(entries) {
    listed = entries;
    for (const side of SIDES) {
      for (const entry of entries) byId(side).add(new Option(entry.title, entry.row));
      byId(side).addEventListener("change", () => choose(side, byId(side).value));
    }
    const second = entries[1] || entries[0];
    choose("left", entries[0].row);
    choose("right", second.row);
  }

  function choose(side, row) {
    state[side] = row;
    byId(side).value = row;
    if (models.has(row)) return refresh();
    if (waiting.has(row)) return;
    const script = document.createElement("script");
    script.src = `data/${listed.find((entry) => entry.row === row).file}`;
    script.onerror = () => { byId("summary").textContent = `${script.src} is missing.`; };
    waiting.set(row, script);
    document.body.append(script);
  }

  function add(model) {
    models.set(model.row, model);
    for (const items of ["words", "sentences"]) {
      for (const layer of Object.values((model[items] || { layers: {} }).layers)) {
        for (const view of [layer.plane, layer.centred]) {
          view.points = bytes(view.points);
          view.nearest = bytes(view.nearest);
        }
      }
    }
    refresh();
  }

  const ready = () => SIDES.every((side) => models.has(state[side]));
  const shown = (side) => models.get(state[side]);
  // an encoder from elsewhere has words alone, and other layers
  const itemsOf = (model) => (model[state.items] ? state.items : "words");
  const count = (model) => model[itemsOf(model)].texts.length;
  const layerOf = (model) => Object.keys(model.words.layers)[state.layer];
  const viewOf = (model) => model[itemsOf(model)].layers[layerOf(model)][state.view];
  const checkpoint = (model) => Math.min(Math.round(state.at), model.steps.length - 1);

  // ---- where a dot is, what is nearest to it

  /* Coordinates are bytes; between two checkpoints a dot moves in a straight line. */
  function point(model, view, language, number) {
    const n = count(model);
    const low = Math.min(Math.floor(state.at), model.steps.length - 1);
    const high = Math.min(low + 1, model.steps.length - 1);
    const share = state.at - low;
    const at = (step) => ((step * 2 + language) * n + number) * 2;
    const a = at(low);
    const b = at(high);
    return [
      (view.points[a] * (1 - share) + view.points[b] * share) / 255,
      1 - (view.points[a + 1] * (1 - share) + view.points[b + 1] * share) / 255,
    ];
  }

  function neighbours(model, view, language, number) {
    const start = ((checkpoint(model) * 2 + language) * count(model) + number) * NEAREST;
    return Array.from(view.nearest.subarray(start, start + NEAREST));
  }

  const isHit = (model, view, number) => neighbours(model, view, 0, number)[0] === number;

  // ---- panels

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["page", "first", "second", "hit", "miss", "ink"]) {
      colours[name] = style.getPropertyValue(`--${name}`).trim();
    }
  }

  function fit(canvas) {
    const size = Math.round(canvas.clientWidth * (window.devicePixelRatio || 1));
    if (canvas.width !== size) canvas.width = canvas.height = size;
    return size;
  }

  /* Draws words of both languages, at shares of the panel, and their lines; returns what draws on it. */
  function drawWords(canvas, points, hits) {
    const size = fit(canvas);
    const context = canvas.getContext("2d");
    const unit = size / canvas.clientWidth;
    const margin = 10 * unit;
    const scale = size - 2 * margin;
    const dots = points.map((side) => side.map((place) => place.map((share) => margin + share * scale)));
    const radius = unit * Math.max(2.2, Math.min(4, canvas.clientWidth / 90));
    context.clearRect(0, 0, size, size);
    for (const hit of [false, true]) {
      context.beginPath();
      for (const number of d3.range(hits.length)) {
        if (hits[number] !== hit) continue;
        context.moveTo(...dots[0][number]);
        context.lineTo(...dots[1][number]);
      }
      context.strokeStyle = hit ? colours.hit : colours.miss;
      context.lineWidth = (hit ? 0.35 : 0.22) * radius;
      context.stroke();
    }
    context.fillStyle = colours.first;
    context.beginPath();
    for (const [x, y] of dots[0]) {
      context.moveTo(x + radius, y);
      context.arc(x, y, radius, 0, 2 * Math.PI);
    }
    context.fill();
    context.fillStyle = colours.second;
    context.beginPath();
    for (const [x, y] of dots[1]) {
      context.moveTo(x, y - 1.25 * radius);
      context.lineTo(x + 1.15 * radius, y + 0.9 * radius);
      context.lineTo(x - 1.15 * radius, y + 0.9 * radius);
      context.closePath();
    }
    context.fill();
    return { context, dots, unit };
  }

  function drawPanel(side) {
    const model = shown(side);
    const view = viewOf(model);
    const numbers = d3.range(count(model));
    const points = [0, 1].map((language) => numbers.map((number) => point(model, view, language, number)));
    const hits = numbers.map((number) => isHit(model, view, number));
    const { context, dots, unit } = drawWords(byId(`panel-${side}`), points, hits);
    if (state.picked) drawPicked(context, model, view, dots, unit);
  }

  function drawPicked(context, model, view, dots, unit) {
    const { language, number } = state.picked;
    const other = 1 - language;
    const first = neighbours(model, view, language, number)[0];
    context.strokeStyle = colours.ink;
    context.lineWidth = 2.4 * unit;
    for (const [x, y] of [dots[language][number], dots[other][first]]) {
      context.beginPath();
      context.arc(x, y, 8 * unit, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  function describe(side) {
    const model = shown(side);
    const view = viewOf(model);
    const at = checkpoint(model);
    const items = itemsOf(model);
    const isCopy = model.steps.length > 1;
    const score = `${items === "words" ? "τ" : "ρ"} ${view.score[at].toFixed(2)}`;
    const percent = `${Math.round(100 * view.score[at])} %`;
    const found = `of ${items === "words" ? "" : `${count(model)} `}${items} find their ${isCopy ? "copy" : "translation"}`;
    byId(`title-${side}`).textContent = model.title;
    byId(`share-${side}`).style.width = `${100 * view.score[at]}%`;
    byId(`found-${side}`).innerHTML = `<b>${percent}</b> ${found}`;
    byId(`score-${side}`).innerHTML =
      `<b>${score}</b>, the share found in all dimensions; the plane shows ` +
      `${Math.round(100 * view.explained[at])} % of the variance`;
    byId(`panel-${side}`).setAttribute(
      "aria-label", `${model.title}: ${items} and their ${isCopy ? "copies" : "translations"} in the plane, ${score}`);
    return `${model.title}: ${percent} ${found}, ${score}`;
  }

  function when(model) {
    const at = checkpoint(model);
    const last = model.steps[model.steps.length - 1];
    if (!last) return "trained elsewhere";
    const share = Math.round((100 * model.steps[at]) / last);
    return `${share} % of training, step ${model.steps[at].toLocaleString("en")}`;
  }

  // ---- what is picked

  function say() {
    const place = byId("chosen");
    if (!state.picked) return;
    const { language, number } = state.picked;
    place.replaceChildren();
    for (const side of SIDES) {
      const model = shown(side);
      if (number >= count(model)) continue;
      const texts = model[itemsOf(model)].texts;
      const line = document.createElement("div");
      const own = texts[number][language];
      line.append(`${model.title}: ${itemsOf(model) === "sentences" ? `“${own}”` : own} → `);
      neighbours(model, viewOf(model), language, number).forEach((other, rank) => {
        const mark = document.createElement("span");
        mark.className = other === number ? "right" : "wrong";
        mark.textContent = texts[other][1 - language] + (other === number ? " ✓" : " ✗");
        line.append(rank ? ", " : "", mark);
      });
      place.append(line);
    }
  }

  function pick(side, event) {
    const model = shown(side);
    const view = viewOf(model);
    const box = byId(`panel-${side}`).getBoundingClientRect();
    const tree = d3.quadtree().x((d) => d.at[0]).y((d) => d.at[1]);
    for (const language of [0, 1]) {
      for (let number = 0; number < count(model); number++) {
        const [x, y] = point(model, view, language, number);
        tree.add({ language, number, at: [10 + x * (box.width - 20), 10 + y * (box.height - 20)] });
      }
    }
    const found = tree.find(event.clientX - box.left, event.clientY - box.top, 24);
    if (!found) return;
    const { language, number } = found;
    if (state.picked && state.picked.language === language && state.picked.number === number) return;
    state.picked = { language, number };
    say();
    draw();
  }

  function walk(side, event) {
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key === "Enter" || event.key === " ") {
      if (state.picked) state.picked.language = 1 - state.picked.language;
    } else if (event.key in moves) {
      const n = count(shown(side));
      const now = state.picked || { language: 0, number: -1 };
      state.picked = { language: now.language, number: (now.number + moves[event.key] + n) % n };
    } else return;
    event.preventDefault();
    say();
    draw();
  }

  // ---- curves

  /* Steps and values of a curve; the loss has steps of its own. */
  function series(model, name) {
    if (name === "loss") return model.loss ? d3.zip(model.loss.steps, model.loss.values) : [];
    return model.curves[name] ? d3.zip(model.steps, model.curves[name]) : [];
  }

  function curve([names, called, kind]) {
    const name = names[state.layer];
    const title = names[0] === names[1] ? called : `${called}, ${state.layer === "0" ? "layer 0" : "upper layer"}`;
    const [width, height, left, bottom, top] = [300, 170, 38, 22, 20];
    const svg = d3.create("svg").attr("viewBox", `0 0 ${width} ${height}`).attr("role", "img");
    const sides = SIDES.map((side) => ({ side, model: shown(side), values: series(shown(side), name) }))
      .filter(({ values }) => values.length);
    if (!sides.length) return "";
    const values = sides.flatMap((one) => one.values.map(([, value]) => value));
    const last = d3.max(sides, ({ model }) => model.steps[model.steps.length - 1]);
    const x = d3.scaleLinear([0, last], [left, width - 6]);
    const y = kind === "log"
      ? d3.scaleLog(d3.extent(values), [height - bottom, top]).nice()
      : d3.scaleLinear([0, Math.max(0.1, d3.max(values))], [height - bottom, top]).nice();
    svg.append("g").attr("transform", `translate(0,${height - bottom})`).call(d3.axisBottom(x).ticks(4));
    svg.append("g").attr("transform", `translate(${left},0)`).call(d3.axisLeft(y).ticks(4, kind === "log" ? "~s" : undefined));
    svg.append("text").attr("x", left).attr("y", 12).text(title);
    for (const { side, values } of sides) {
      const line = d3.line(([step]) => x(step), ([, value]) => y(value));
      svg.append("path").attr("class", `curve ${side}`).attr("d", line(values));
    }
    svg.append("line").attr("class", "cursor").attr("y1", top).attr("y2", height - bottom);
    const told = sides.map(({ model, values }) => `${model.title} ends at ${values.at(-1)[1]}`);
    svg.attr("aria-label", `${title} along training. ${told.join("; ")}`);
    svg.on("click", (event) => {
      const step = x.invert(d3.pointer(event)[0]);
      go(d3.leastIndex(sides[0].model.steps, (a, b) => Math.abs(a - step) - Math.abs(b - step)));
    });
    svg.node().scale = x;
    return svg.node();
  }

  function drawCurves() {
    byId("curves").replaceChildren(...CURVES.map(curve));
    moveCursor();
  }

  /* The model that has the longer training: an encoder from elsewhere has one checkpoint. */
  const longer = () => d3.greatest(SIDES.map(shown), (model) => model.steps.length);

  function moveCursor() {
    const steps = longer().steps;
    if (steps.length < 2) return;
    const low = Math.floor(state.at);
    const high = Math.min(low + 1, steps.length - 1);
    const step = steps[low] + (steps[high] - steps[low]) * (state.at - low);
    for (const svg of byId("curves").children) {
      d3.select(svg).select(".cursor").attr("x1", svg.scale(step)).attr("x2", svg.scale(step));
    }
  }

  // ---- what the models read

  /* A generator that gives the same order for the same sentence. */
  function shuffled(words, seed) {
    const order = d3.range(words.length);
    d3.shuffler(d3.randomLcg(seed))(order);
    return order.map((i) => words[i]);
  }

  function reading(row, words) {
    const copy = words.map((word) => `::${word}`);
    const has = (name) => row.split(/[ ;]/).includes(name);
    const length = words.length + 2;
    const specials = (own) => (own && has("shift-special") ? ["::[CLS]", "::[SEP]"] : ["[CLS]", "[SEP]"]);
    let [english, other] = [words, copy];
    let note = "";
    if (has("inv-order")) other = [...copy].reverse();
    if (has("permuted")) [english, other] = [shuffled(words, 0.1), shuffled(copy, 0.7)];
    if (has("unigram")) {
      const draw = d3.randomLcg(0.3);
      english = words.map(() => words[Math.floor(draw() * words.length)]);
      other = copy.map(() => copy[Math.floor(draw() * copy.length)]);
      note = "Words are drawn from the frequencies of the whole text; here, of your sentence.";
    }
    if (has("no-parallel")) note = "Each language has another half of the text, so the copy of this sentence is never read.";
    if (has("no-random")) note = "Masked words are never replaced by random words, which may come from the other language.";
    if (has("knn-replace")) note = "Some masked words are replaced by the nearest word of the other language's own vectors.";
    const side = (tokens, own) => {
      const [begin, end] = specials(own);
      const start = own && has("lang-pos") ? 64 : 0;
      return { tokens: [begin, ...tokens, end], positions: d3.range(start, start + length) };
    };
    return { english: side(english, false), copy: side(other, true), note };
  }

  function table(side, row) {
    const model = listed.find((entry) => entry.row === row);
    const words = byId("sentence").value.toLowerCase().split(/\s+/).filter(Boolean).slice(0, 30);
    const { english, copy, note } = reading(row, words);
    const box = document.createElement("div");
    box.className = "reading";
    box.id = `reading-${side}`;
    // it scrolls sideways on a narrow screen, by the keyboard, too
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", `What ${model.title} reads`);
    const grid = document.createElement("table");
    grid.createCaption().textContent = model.title;
    const line = (title, cells, kind) => {
      const tr = grid.insertRow();
      const th = document.createElement("th");
      th.scope = "row";
      th.textContent = title;
      tr.append(th);
      for (const cell of cells) {
        const td = tr.insertCell();
        td.textContent = cell;
        td.className = kind;
      }
    };
    line("English", english.tokens, "english");
    line("position", english.positions, "position");
    line("copy", copy.tokens, "copy");
    line("position", copy.positions, "position");
    box.append(grid);
    if (note) {
      const p = document.createElement("p");
      p.className = "small";
      p.textContent = note;
      box.append(p);
    }
    return box;
  }

  function drawReadings() {
    const own = SIDES.filter((side) => shown(side).steps.length > 1);
    const sides = own.filter((side, i) => own.findIndex((other) => state[other] === state[side]) === i);
    byId("readings").replaceChildren(...sides.map((side) => table(side, state[side])));
  }

  // ---- dials

  let dialMaps = {};
  let showDial = null;

  /* Words of a model of each setting that has one: bytes, as of the models above. */
  function dialWords(maps) {
    dialMaps = maps;
    if (showDial) showDial();
  }

  function drawDialMap(dial, setting) {
    const map = dialMaps[`${dial.name} | ${setting.name}`];
    byId("dial-maps").hidden = !map;
    if (!map) return;
    for (const name of ["plane", "centred"]) {
      const view = map[name];
      const points = bytes(view.points);
      const nearest = bytes(view.nearest);
      const n = nearest.length / (2 * NEAREST);
      const numbers = d3.range(n);
      const place = (language, number) => {
        const at = 2 * (language * n + number);
        return [points[at] / 255, 1 - points[at + 1] / 255];
      };
      const canvas = byId(`dial-${name}`);
      const hits = numbers.map((number) => nearest[number * NEAREST] === number);
      drawWords(canvas, [0, 1].map((language) => numbers.map((number) => place(language, number))), hits);
      const told = `τ ${view.score[0].toFixed(2)}, means ${name === "plane" ? "left in" : "taken off"}`;
      byId(`dial-score-${name}`).textContent = told;
      canvas.setAttribute("aria-label", `${dial.title}, ${setting.name}: words and their copies, ${told}`);
    }
    byId("dial-run").textContent = map.run;
  }

  function dials(data) {
    byId("dials-section").hidden = false;
    const select = byId("dial");
    for (const dial of data) select.add(new Option(dial.title, dial.title));
    const slider = byId("setting");
    const show = () => {
      drawDial(data.find((one) => one.title === select.value), Number(slider.value));
    };
    /* As English is, so that whoever moves the slider leaves it. */
    const begin = () => {
      const dial = data.find((one) => one.title === select.value);
      slider.max = dial.settings.length - 1;
      slider.value = Math.max(0, dial.settings.findIndex((one) => one.name === "SVO"));
      show();
    };
    select.addEventListener("change", begin);
    slider.addEventListener("input", show);
    showDial = show;
    new ResizeObserver(show).observe(byId("dial-plane"));
    begin();
  }

  /* A sentence in the order of English, and in that of the second language; its words are copies. */
  function spokenLines(dial, now) {
    const english = dial.settings.find((one) => one.name === "SVO");
    if (!english) return [];
    const copy = now.text.split(" ").map((word) => `::${word}`).join(" ");
    return [`English (SVO): ${english.text}`, `Second language (${now.name}): ${copy}`].map((text) => {
      const line = document.createElement("div");
      line.textContent = text;
      return line;
    });
  }

  function drawDial(dial, chosen) {
    const now = dial.settings[Math.min(chosen, dial.settings.length - 1)];
    byId("setting-name").textContent = now.name;
    byId("setting").setAttribute("aria-valuetext", now.name);
    byId("spoken").replaceChildren(...spokenLines(dial, now));
    drawDialMap(dial, now);
    const width = Math.min(640, byId("dials").clientWidth);
    const row = 26;
    const left = 70; // of the bars, for the names of the settings
    const svg = d3.create("svg").attr("viewBox", `0 0 ${width} ${row * dial.settings.length + 24}`).attr("role", "img");
    const top = d3.max(dial.settings, (one) => one.mu + one.sd);
    const x = d3.scaleLinear([0, top], [left, width - 60]).nice();
    dial.settings.forEach((one, i) => {
      const y = i * row + 4;
      const bar = svg.append("g").attr("opacity", one === now ? 1 : 0.45);
      bar.append("text").attr("x", left - 6).attr("y", y + 14).attr("text-anchor", "end").text(one.name);
      bar.append("rect").attr("x", left).attr("y", y).attr("height", row - 8)
        .attr("width", Math.max(1, x(one.mu) - left)).attr("fill", "var(--first)");
      bar.append("line").attr("x1", x(Math.max(0, one.mu - one.sd))).attr("x2", x(one.mu + one.sd))
        .attr("y1", y + row / 2 - 4).attr("y2", y + row / 2 - 4).attr("stroke", "var(--ink)");
      bar.append("text").attr("x", x(one.mu + one.sd) + 6).attr("y", y + 14).text(`µ ${one.mu.toFixed(2)}`);
      bar.on("click", () => { byId("setting").value = i; drawDial(dial, i); });
    });
    svg.append("g").attr("transform", `translate(0,${row * dial.settings.length})`).call(d3.axisBottom(x).ticks(5));
    svg.attr("aria-label", `${dial.title}, ${now.name}: µ ${now.mu.toFixed(2)}, ${now.n} models`);
    byId("dials").replaceChildren(svg.node());
  }

  // ---- everything

  let asked = false;

  function paint() {
    asked = false;
    if (!ready()) return;  // another model was chosen since, whose words are not here yet
    const said = SIDES.map((side) => { drawPanel(side); return describe(side); });
    const told = when(longer());
    byId("when").textContent = told;
    byId("step").setAttribute("aria-valuetext", told);
    byId("axes").textContent = AXES[state.view];
    moveCursor();
    if (!timer) byId("summary").textContent = `${told}. ${said.join(". ")}`;
  }

  /* Once a frame, however often something changes. */
  function draw() {
    if (asked || !ready()) return;
    asked = true;
    requestAnimationFrame(paint);
  }

  function layerChoices() {
    const names = SIDES.map((side) => Object.keys(shown(side).words.layers));
    const place = byId("layers");
    place.replaceChildren();
    for (const layer of ["0", "1"]) {
      const label = document.createElement("label");
      const input = Object.assign(document.createElement("input"),
        { type: "radio", name: "layer", value: layer, checked: layer === state.layer });
      const numbers = [...new Set(names.map((of) => of[layer]))].join(" and ");
      label.append(input, layer === "0" ? " 0 (embeddings) " : ` ${numbers} (upper) `);
      place.append(label);
    }
  }

  function refresh() {
    if (!ready()) return;
    layerChoices();
    readColours();
    byId("step").max = longer().steps.length - 1;
    byId("step").value = state.at;
    if (state.picked && state.picked.number >= count(shown("left"))) state.picked = null;
    byId("runs").textContent = [...new Set(SIDES.map((side) => `${shown(side).title} ${shown(side).run}`))].join(", ");
    drawCurves();
    drawReadings();
    say();
    draw();
  }

  function go(at) {
    state.at = at;
    byId("step").value = at;
    if (state.picked && ready()) say();
    draw();
  }

  function stop() {
    if (timer) cancelAnimationFrame(timer.frame);
    if (timer) clearTimeout(timer.wait);
    timer = null;
    byId("play").textContent = "Play";
    byId("play").setAttribute("aria-label", "Play the training");
    draw();
  }

  /* Eight tenths of a second from one checkpoint to the next; whoever wants no motion sees the checkpoints alone. */
  function play() {
    if (timer) return stop();
    if (!ready()) return;
    const last = longer().steps.length - 1;
    if (state.at >= last) go(0);
    byId("play").textContent = "Stop";
    byId("play").setAttribute("aria-label", "Stop");
    timer = {};
    const running = timer;
    if (calm.matches) {
      const jump = () => {
        if (timer !== running) return;
        if (state.at >= last) return stop();
        go(Math.floor(state.at) + 1);
        running.wait = setTimeout(jump, 1200);
      };
      running.wait = setTimeout(jump, 1200);
      return;
    }
    let before = performance.now();
    const frame = (now) => {
      if (timer !== running) return;
      go(Math.min(last, state.at + (now - before) / 800));
      before = now;
      if (state.at >= last) return stop();
      running.frame = requestAnimationFrame(frame);
    };
    running.frame = requestAnimationFrame(frame);
  }

  /* In a clone notebooks are files, on the site they are pages. */
  for (const link of document.querySelectorAll("[data-notebook]")) {
    const inClone = location.pathname.includes("/docs/explore/");
    const name = link.dataset.notebook;
    link.href = inClone ? `../../nbs/${name}.ipynb` : `../nbs/${name}.html`;
  }
  for (const link of document.querySelectorAll("[data-figure]")) {
    link.href = `${location.pathname.includes("/docs/explore/") ? "../.." : ".."}/figures/${link.dataset.figure}`;
  }

  state.at = Number(byId("step").value);
  byId("play").addEventListener("click", play);
  byId("step").addEventListener("input", (event) => {
    if (timer) stop();
    go(Number(event.target.value));
  });
  byId("step").addEventListener("keydown", (event) => {
    // a key moves by a whole checkpoint, a pointer by less
    const moves = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };
    if (!(event.key in moves) || !ready()) return;
    event.preventDefault();
    const last = longer().steps.length - 1;
    go(Math.max(0, Math.min(last, Math.round(state.at) + moves[event.key])));
  });
  byId("controls").addEventListener("change", (event) => {
    const { name, value } = event.target;
    if (!["layer", "items", "view"].includes(name)) return;
    state[name] = value;
    if (name === "items") {
      state.picked = null;
      byId("chosen").textContent = `Point at a dot: its nearest ${value} of the other language.`;
    }
    refresh();
  });
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("sentence").addEventListener("input", drawReadings);
  for (const side of SIDES) {
    const panel = byId(`panel-${side}`);
    panel.addEventListener("pointermove", (event) => ready() && pick(side, event));
    panel.addEventListener("pointerdown", (event) => ready() && pick(side, event));
    panel.addEventListener("keydown", (event) => ready() && walk(side, event));
  }
  new ResizeObserver(draw).observe(byId("panel-left"));
  dark.addEventListener("change", () => { readColours(); draw(); if (showDial) showDial(); });
  readColours();
  return { index, add, dials, dialWords, paint, state };
})();
