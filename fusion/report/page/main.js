"use strict";
// State and events.

const $ = (id) => document.getElementById(id);

const app = {
  painter: new Painter($("canvas"), $("overview")),
  name: "after", form: null, plans: {}, views: {}, found: [], cursor: -1, pending: false,

  get side() { return this.form.sides[this.name]; },
  get plan() { return this.plans[this.name]; },

  load(index) {
    this.form = FORMS[index].sides ? FORMS[index] : readForm(FORMS[index]);
    this.plans = {}; this.views = {};
    const count = (side, skip) => side.columns[skip].filter((t) => this.form.texts[t] !== "input").length;
    $("tab-before").querySelector(".count").textContent = count(this.form.sides.before, "op");
    $("tab-after").querySelector(".count").textContent = count(this.form.sides.after, "kind");
    $("list").replaceChildren(...listRows(this));
    this.turn("after");
  },
  turn(name) {
    if (this.plans[this.name]) this.views[this.name] = this.painter.view;
    this.name = name;
    this.plans[name] ??= layout(this.side);
    this.painter.show(this.form, this.side, this.plan);
    for (const tab of ["before", "after"]) $(`tab-${tab}`).setAttribute("aria-selected", String(tab === name));
    this.views[name] ? (this.painter.view = this.views[name]) : this.painter.open();
    $("stacks").hidden = !this.side.stacks.length;
    $("stacks").textContent = this.side.stacks.some((s) => s.open) ? "Stack repeats" : "Unstack";
    this.legend();
    this.search($("search").value, false);
    this.select(-1);
  },
  relayout() {
    this.plans[this.name] = layout(this.side);
    delete this.views[this.name];
    const selected = this.painter.selected >= 0 ? this.painter.plan.nodes[this.painter.selected] : -1;
    this.turn(this.name);
    if (selected >= 0) this.go(this.name, selected);
  },
  legend() {
    const { heat } = this.painter.colors, after = this.name === "after";
    const { backends } = this.form, several = backends.size > 1;
    const keys = several ? [...backends].filter(([, place]) => place || !after).map(([name, place]) => el("span", {}, el("span", { class: "key", style: `background:${this.painter.colors.backend(place)}` }), name)) : [];
    $("legend").replaceChildren(...keys, ...(several && !after ? [] : after ? ["cool", el("span", { class: "scale", style: `background:linear-gradient(90deg,${[0, 8, 16, 24, 32].map((i) => heat[i]).join(",")})` }), `hot: time of a call, ${this.form.measured ? "measured" : "estimated"}`] : ["Operators of one kernel that stand together have one colour"]));
  },
  go(name, node) {
    if (name !== this.name) this.turn(name);
    const at = this.plan.index[this.plan.rep[node]];
    this.painter.center(at);
    this.select(at, node);
    this.draw();
  },
  select(at, node) {
    const { painter, form } = this;
    painter.selected = at;
    painter.related = new Set();
    const which = at < 0 ? -1 : node ?? this.plan.nodes[at];
    if (at >= 0 && this.name === "before") {
      const calls = new Set(this.side.columns.calls[which]);
      for (const call of calls) for (const other of form.sides.after.operators[call]) if (this.side.text("op", other) !== "input") painter.related.add(this.plan.index[this.plan.rep[other]]);
    }
    $("panel").replaceChildren(...(at < 0 ? summaryPanel(this) : this.name === "after" ? callPanel(this, which) : operatorPanel(this, which)));
    $("panel").scrollTop = 0;
    const kernel = at >= 0 && this.name === "after" ? this.side.text("op", which) : null;
    for (const row of $("list").querySelectorAll(".row")) row.setAttribute("aria-current", String(row.dataset.kernel === kernel));
    this.draw();
  },
  search(text, jump = true) {
    const wanted = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
    document.querySelector(".search").classList.toggle("busy", wanted.length > 0);
    if (!wanted.length) { this.painter.matches = null; this.found = []; $("matches").textContent = ""; this.draw(); return; }
    this.found = [];
    const places = new Set();
    for (let node = 0; node < this.side.size; node++) {
      const where = this.side.searchable(node);
      if (wanted.every((word) => where.includes(word))) { this.found.push(node); places.add(this.plan.index[this.plan.rep[node]]); }
    }
    this.painter.matches = places;
    this.cursor = -1;
    $("matches").textContent = `${this.found.length} found`;
    if (jump && this.found.length) this.next(0); else this.draw();
  },
  next(by) {
    if (!this.found.length) return;
    this.cursor = (this.cursor + (by || 1) + this.found.length) % this.found.length;
    $("matches").textContent = `${this.cursor + 1} of ${this.found.length}`;
    this.go(this.name, this.found[this.cursor]);
  },
  unstack(stack) {
    const open = stack ? !stack.open : !this.side.stacks.some((s) => s.open);
    for (const s of stack ? [stack] : this.side.stacks) s.open = open;
    this.relayout();
  },
  zoom(factor, px, py) {
    const { view } = this.painter, scale = Math.min(3, Math.max(0.0005, view.scale * factor)), f = scale / view.scale;
    this.painter.view = { scale, x: px - (px - view.x) * f, y: py - (py - view.y) * f };
    this.draw();
  },
  pan(dx, dy) { this.painter.view.x += dx; this.painter.view.y += dy; this.draw(); },
  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.painter.paint(); });
  },
};

function listen() {
  const canvas = $("canvas");
  let drag = null;
  canvas.addEventListener("pointerdown", (e) => { drag = { x: e.clientX, y: e.clientY, moved: false }; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointermove", (e) => {
    if (!drag) return hover(e);
    const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag = { x: e.clientX, y: e.clientY, moved: true };
    canvas.classList.add("drag");
    app.pan(dx, dy);
  });
  canvas.addEventListener("pointerup", (e) => {
    canvas.classList.remove("drag");
    if (drag && !drag.moved) {
      const frame = app.painter.hitFrame(e.offsetX, e.offsetY);
      if (frame) app.unstack(frame.stack); else app.select(app.painter.hit(e.offsetX, e.offsetY));
    }
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => ($("tip").hidden = true));
  canvas.addEventListener("wheel", (e) => {
    e.preventDefault();
    if (e.shiftKey) app.pan(-e.deltaY, 0); else app.zoom(Math.exp(-e.deltaY * (e.deltaMode ? 0.05 : 0.0016)), e.offsetX, e.offsetY);
  }, { passive: false });
  canvas.addEventListener("dblclick", (e) => { const at = app.painter.hit(e.offsetX, e.offsetY); if (at >= 0) { app.painter.center(at, 1); app.draw(); } });
  const strip = $("overview"), scroll = (e) => {
    const { box } = app.plan, y = box.top + ((e.offsetY / strip.clientHeight) * (box.bottom - box.top));
    app.painter.view.y = canvas.clientHeight / 2 - app.painter.view.scale * y;
    app.draw();
  };
  strip.addEventListener("pointerdown", (e) => { strip.setPointerCapture(e.pointerId); scroll(e); });
  strip.addEventListener("pointermove", (e) => { if (e.buttons) scroll(e); });
  $("tab-before").onclick = () => app.turn("before");
  $("tab-after").onclick = () => app.turn("after");
  $("fit").onclick = () => { app.painter.fit(); app.draw(); };
  $("stacks").onclick = () => app.unstack(null);
  $("search").addEventListener("input", (e) => app.search(e.target.value));
  $("form").addEventListener("change", (e) => app.load(Number(e.target.value)));
  document.addEventListener("keydown", onKey);
  new ResizeObserver(() => { app.painter.resize(); app.draw(); }).observe($("stage"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { app.painter.colors = palette(); app.load(FORMS.indexOf(app.form)); });
}

function hover(e) {
  const at = app.painter.hit(e.offsetX, e.offsetY), frame = app.painter.hitFrame(e.offsetX, e.offsetY), tip = $("tip");
  e.target.classList.toggle("over", at >= 0 || Boolean(frame));
  tip.hidden = at < 0;
  if (at < 0) return;
  const node = app.plan.nodes[at];
  tip.textContent = `${app.side.title[node]} \u2014 ${app.side.detail[node]}`;
  tip.style.left = `${Math.min(e.offsetX + 14, $("stage").clientWidth - 390)}px`;
  tip.style.top = `${e.offsetY + 16}px`;
}

function onKey(e) {
  const box = $("search"), typing = document.activeElement === box;
  if (e.key === "/" && !typing) { e.preventDefault(); box.focus(); box.select(); return; }
  if (e.key === "Escape") { if (typing || box.value) { box.value = ""; box.blur(); app.search(""); } else app.select(-1); return; }
  if (e.key === "Enter" && typing) { e.preventDefault(); app.next(e.shiftKey ? -1 : 1); return; }
  if (e.key === "Enter" && document.activeElement?.getAttribute("role") === "button") { document.activeElement.click(); return; }
  if (typing || e.ctrlKey || e.metaKey || e.altKey) return;
  const w = $("canvas").clientWidth / 2, h = $("canvas").clientHeight / 2;
  const keys = {
    a: () => app.turn("after"), b: () => app.turn("before"), f: () => $("fit").click(), r: () => app.unstack(null),
    "+": () => app.zoom(1.25, w, h), "=": () => app.zoom(1.25, w, h), "-": () => app.zoom(0.8, w, h),
    ArrowUp: () => app.pan(0, 60), ArrowDown: () => app.pan(0, -60), ArrowLeft: () => app.pan(60, 0), ArrowRight: () => app.pan(-60, 0),
  };
  if (keys[e.key] && (e.key.length === 1 || document.activeElement === $("canvas"))) { e.preventDefault(); keys[e.key](); }
}

if (FORMS.length > 1) {
  $("form").hidden = false;
  $("form").append(...FORMS.map((form, i) => el("option", { value: String(i) }, form.label)));
}
app.painter.resize();
listen();
if (FORMS.length) app.load(FORMS.length - 1);
if (FORMS.length > 1) $("form").value = String(FORMS.length - 1);
