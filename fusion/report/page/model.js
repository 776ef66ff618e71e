"use strict";
// What the data says, as the views need it: nodes of both sides, their titles, times and links.

const FORMS = JSON.parse(document.getElementById("data").textContent);

const bytesText = (n) => {
  if (n < 1000) return `${n} B`;
  const unit = n < 1e6 ? ["kB", 1e3] : n < 1e9 ? ["MB", 1e6] : ["GB", 1e9];
  return `${(n / unit[1]).toPrecision(3).replace(/\.?0+$/, (z) => (z.includes(".") ? "" : z))} ${unit[0]}`;
};
const timeText = (us) => (us >= 1000 ? `${(us / 1000).toFixed(2)} ms` : us >= 10 ? `${us.toFixed(0)} us` : `${us.toFixed(1)} us`);
const countText = (n, unit) => (n >= 1e9 ? `${(n / 1e9).toFixed(2)} G` : n >= 1e6 ? `${(n / 1e6).toFixed(2)} M` : n >= 1e3 ? `${(n / 1e3).toFixed(1)} k` : `${n} `) + unit;
const percent = (x) => (x >= 0.0995 ? `${(100 * x).toFixed(0)}%` : `${(100 * x).toFixed(1)}%`);
const plainOp = (op) => op.replace(/^(nn|image|memory)\./, "");

// "a + b + b + b" -> "a + b x3"
function joined(words) {
  const out = [];
  for (const word of words) {
    const last = out[out.length - 1];
    if (last && last.word === word) last.n++;
    else out.push({ word, n: 1 });
  }
  return out.map((o) => (o.n > 1 ? `${o.word} x${o.n}` : o.word)).join(" + ");
}

class Side {
  constructor(form, columns) {
    this.form = form;
    this.columns = columns;
    this.size = columns.name.length;
    this.consumers = Array.from({ length: this.size }, () => []);
    columns.sources.forEach((list, node) => list.forEach((s, i) => this.consumers[s].push([node, columns.bytes[node][i]])));
    this.stacks = columns.stacks.map(([start, period, count]) => ({ start, period, count, open: false }));
    this.title = new Array(this.size);
    this.detail = new Array(this.size);
    this.us = new Float64Array(this.size);
  }
  text(column, node) { return this.form.texts[this.columns[column][node]]; }
  searchable(node) {
    this.lower ??= new Array(this.size);
    return (this.lower[node] ??= `${this.columns.name[node]} ${this.text("op", node)} ${this.text("value", node)} ${this.title[node]} ${this.detail[node]}`.toLowerCase());
  }
}

function readForm(form) {
  const after = new Side(form, form.after), before = new Side(form, form.before);
  form.measured = form.total_us !== null;
  for (const kernel of Object.values(form.kernels)) kernel.time = kernel.us ?? kernel.estimate_us ?? 0;
  after.operators = Array.from({ length: after.size }, () => []);
  form.before.calls.forEach((calls, node) => calls.forEach((call) => after.operators[call].push(node)));
  for (let node = 0; node < after.size; node++) {
    const kernel = form.kernels[after.text("op", node)];
    after.us[node] = kernel ? kernel.time : 0;
    const ops = after.operators[node].filter((o) => before.text("op", o) !== "input").map((o) => plainOp(before.text("op", o)));
    const kind = after.text("kind", node);
    after.title[node] = kind === "input" ? after.columns.name[node] : joined(ops) || (kernel?.ops ?? []).join(" + ") || after.text("op", node);
  }
  form.sum_us = after.us.reduce((a, b) => a + b, 0);
  form.top_us = after.us.reduce((a, b) => Math.max(a, b), 0);
  for (let node = 0; node < after.size; node++) {
    const kernel = form.kernels[after.text("op", node)];
    const kind = after.text("kind", node);
    after.detail[node] = kernel ? `${timeText(after.us[node])} \u00b7 ${percent(after.us[node] / (form.sum_us || 1))} \u00b7 ${kernel.template ?? ""}` : kind === "fallback" ? after.text("backend", node) : after.text("value", node);
  }
  for (let node = 0; node < before.size; node++) {
    const op = before.text("op", node);
    before.title[node] = op === "input" ? before.columns.name[node] : plainOp(op);
    before.detail[node] = before.text("value", node);
  }
  form.sides = { before, after };
  // Positions of backends by name, ours first: where there are several, nodes have the colour of theirs.
  form.backends = new Map([[form.generator, 0]]);
  for (let node = 0; node < after.size; node++) { const name = after.text("backend", node); if (after.text("kind", node) !== "input" && !form.backends.has(name)) form.backends.set(name, form.backends.size); }
  form.keptBy = new Map();
  form.kept.forEach((edge) => {
    for (const end of [edge[0], edge[1]]) if (end >= 0) (form.keptBy.get(end) ?? form.keptBy.set(end, []).get(end)).push(edge);
  });
  form.saved = form.after.saved.reduce((a, b) => a + b, 0);
  return form;
}
