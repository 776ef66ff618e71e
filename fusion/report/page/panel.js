"use strict";
// The text beside the graph. Everything from the model goes in as text, never as markup.

function el(tag, attrs, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attrs ?? {})) {
    if (key === "onclick") node.addEventListener("click", value);
    else if (key === "class") node.className = value;
    else if (key === "style") node.style.cssText = value;
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== ""));
  return node;
}
const link = (text, go) => el("a", { role: "button", tabindex: "0", onclick: go }, text);
const fact = (value, label) => el("div", { class: "fact" }, el("b", {}, value), el("span", {}, label));
const section = (title, ...content) => (content.length ? [el("h2", {}, title), ...content] : []);
const items = (list, make, most = 60) => list.length ? [el("ul", {}, ...list.slice(0, most).map(make), ...(list.length > most ? [el("li", { class: "dim" }, `and ${list.length - most} more`)] : []))] : [];

function callPanel(app, call) {
  const { form } = app, { after, before } = form.sides, name = after.text("op", call), kernel = form.kernels[name];
  const out = [el("h1", {}, after.title[call]), el("div", { class: "sub" }, name === after.title[call] ? after.text("value", call) : `${name} \u2192 ${after.text("value", call)}`)];
  if (kernel) out.push(...kernelFacts(form, kernel, after.columns.saved[call]));
  const operators = after.operators[call].filter((o) => before.text("op", o) !== "input");
  out.push(...section("Operators", ...items(operators, (o) => el("li", {}, el("span", { class: "right" }, before.text("value", o)), link(plainOp(before.text("op", o)), () => app.go("before", o)), before.text("how", o) === "inferred" ? el("span", { class: "dim" }, " inferred") : "", el("div", { class: "sub" }, before.columns.name[o])))));
  const kept = form.keptBy.get(call) ?? [];
  out.push(...section("Not fused", ...items(kept, (edge) => keptItem(app, edge, call))));
  out.push(...section("By published figures, not run", ...(kernel?.devices ?? []).map(deviceFacts)));
  if (kernel?.loops) out.push(...section("Loops", el("pre", { tabindex: "0" }, kernel.loops)));
  if (kernel?.note) out.push(...section("Template", el("div", { class: "reason" }, kernel.note)));
  const reads = after.columns.sources[call].map((s, i) => [s, after.columns.bytes[call][i]]);
  const near = ([node, size]) => el("li", {}, el("span", { class: "right" }, size ? bytesText(size) : ""), link(after.title[node], () => app.go("after", node)));
  out.push(...section("Reads", ...items(reads, near), ...(after.columns.weights[call] ? [el("div", { class: "dim" }, `weights: ${bytesText(after.columns.weights[call])}`)] : [])));
  out.push(...section("Read by", ...items(after.consumers[call], near)));
  return out;
}

function kernelFacts(form, kernel, saved) {
  const share = kernel.time / (form.sum_us || 1);
  const facts = [fact(timeText(kernel.time), form.measured && kernel.us !== undefined ? "measured, one call" : "estimated, one call"), fact(percent(share), "of all kernels, a call")];
  if (kernel.roofline !== undefined && kernel.roofline !== null) facts.push(fact(percent(kernel.roofline), `of the roofline (${kernel.bound})`));
  else facts.push(fact(String(kernel.calls), kernel.calls === 1 ? "call" : "calls"));
  if (kernel.flops) facts.push(fact(countText(kernel.flops, "FLOP"), "a call"));
  if (kernel.gflops) facts.push(fact(`${kernel.gflops.toFixed(0)}`, "GFLOP/s"));
  if (kernel.bytes) facts.push(fact(bytesText(kernel.read), "read"), fact(bytesText(kernel.written), "written"));
  facts.push(fact(bytesText(saved), "saved by fusion"));
  if (kernel.us !== undefined) facts.push(fact(timeText(kernel.estimate_us), "estimate"));
  const chips = [kernel.template, kernel.tile, kernel.roofline !== undefined ? `${kernel.calls} call${kernel.calls === 1 ? "" : "s"}` : ""].filter(Boolean);
  return [el("div", { class: "chips" }, ...chips.map((c) => el("span", { class: "chip" }, c))), el("div", { class: "grid" }, ...facts)];
}

function deviceFacts(work) {
  const facts = [fact(timeText(work.roofline_us), `roofline (${work.bound})`), fact(bytesText(work.l2_bytes), "through L2"), fact(bytesText(work.thread_bytes), "asked by threads, at most")];
  if (work.registers !== null) facts.push(fact(String(work.registers), "registers"), fact(bytesText(work.shared_bytes), "shared, a block"), fact(bytesText(work.local_bytes), "spilled, a thread"), fact(percent(work.occupancy), "occupancy"));
  return el("div", {}, el("div", { class: "sub" }, `${work.device} (${work.arch}): ${work.launches} x ${work.blocks} blocks of ${work.threads} threads`), el("div", { class: "grid" }, ...facts));
}

function keptItem(app, edge, call) {
  const [source, target, producer, consumer, reason, size] = edge, { texts, sides } = app.form;
  const other = source === call ? target : source;
  const where = other >= 0 ? link(sides.after.title[other], () => app.go("after", other)) : "";
  return el("li", {}, el("span", { class: "right" }, size ? bytesText(size) : ""), source === call ? "with what follows: " : "with what precedes: ", where, el("div", { class: "reason" }, texts[reason]), el("div", { class: "sub" }, `${texts[producer]} \u2192 ${texts[consumer]}`));
}

const HOW = {
  mapped: "", inferred: "A rewrite replaced it; its kernel is inferred from its neighbours.",
  folded: "Computed while compiling: it depends on no input.", unknown: "Where it went is not known.",
};

function operatorPanel(app, node) {
  const { before, after } = app.form.sides, op = before.text("op", node);
  const out = [el("h1", {}, before.title[node]), el("div", { class: "sub" }, before.columns.name[node]), el("div", { class: "chips" }, el("span", { class: "chip" }, before.text("value", node)), op === "input" ? "" : el("span", { class: "chip" }, op))];
  const how = HOW[before.text("how", node)];
  if (op !== "input") {
    out.push(...section("Part of", ...items(before.columns.calls[node], (call) => el("li", {}, el("span", { class: "right" }, after.us[call] ? timeText(after.us[call]) : ""), link(after.title[call], () => app.go("after", call)), el("div", { class: "sub" }, after.text("op", call)))), ...(how ? [el("div", { class: "dim" }, how)] : [])));
  }
  const near = ([other, size]) => el("li", {}, el("span", { class: "right" }, size ? bytesText(size) : ""), link(before.title[other], () => app.go("before", other)), el("div", { class: "sub" }, before.columns.name[other]));
  out.push(...section("Reads", ...items(before.columns.sources[node].map((s, i) => [s, before.columns.bytes[node][i]]), near)));
  out.push(...section("Read by", ...items(before.consumers[node], near)));
  return out;
}

function summaryPanel(app) {
  const { form } = app, { before, after } = form.sides;
  const operators = before.columns.op.filter((op) => form.texts[op] !== "input").length, calls = after.columns.kind.filter((k) => form.texts[k] === "kernel").length;
  const reasons = new Map();
  for (const edge of form.kept) {
    // "matmul12 is a complex operator" is the same reason for every matmul.
    const consumer = form.texts[edge[3]], text = form.texts[edge[4]], base = consumer.replace(/(\D)\d+$/, "$1");
    const reason = text.startsWith(`${consumer} `) ? base + text.slice(consumer.length) : text;
    const entry = reasons.get(reason) ?? { n: 0, bytes: 0 };
    entry.n++; entry.bytes += edge[5]; reasons.set(reason, entry);
  }
  const top = [...reasons].sort((a, b) => b[1].bytes - a[1].bytes);
  const out = [el("h1", {}, "The whole model"), el("div", { class: "sub" }, `${form.label} \u2192 ${form.outputs}`), el("div", { class: "grid" },
    fact(String(operators), "operators before"), fact(String(calls), "kernel calls after"), fact(String(Object.keys(form.kernels).length), "kernels"),
    fact(timeText(form.measured ? form.total_us : form.sum_us), form.measured ? "measured, whole run" : "estimated, all kernels"), fact(bytesText(form.saved), "saved by fusion"), fact(bytesText(form.kept.reduce((a, e) => a + e[5], 0)), "between kernels"))];
  out.push(el("p", { class: "dim" }, form.placement));
  if (form.limits) out.push(el("p", { class: "dim" }, form.limits));
  out.push(...section("Why edges were not fused", ...items(top, ([reason, entry]) => el("li", {}, el("span", { class: "right" }, `${entry.n}\u00d7 \u00b7 ${bytesText(entry.bytes)}`), reason), 30)));
  out.push(...section("On ONNX Runtime", ...items(form.fallbacks, (f) => el("li", {}, `${f.op} ${f.node}`, el("div", { class: "reason" }, f.reason)))));
  out.push(...section("Notes", ...items(form.notes, (note) => el("li", {}, note))));
  out.push(...section("Keys", el("p", { class: "dim" }, "/ search, Enter next match, Esc back, a after, b before, f fit, r repeated blocks, + and - zoom, arrows move")));
  return out;
}

function listRows(app) {
  const { form } = app, { after } = form.sides, first = new Map();
  for (let call = 0; call < after.size; call++) { const name = after.text("op", call); if (form.kernels[name] && !first.has(name)) first.set(name, call); }
  const rows = [...first].map(([name, call]) => ({ call, kernel: form.kernels[name], us: form.kernels[name].time * form.kernels[name].calls })).sort((a, b) => b.us - a.us);
  const most = rows[0]?.us || 1;
  return [el("h2", {}, form.measured ? "Kernels by time, measured" : "Kernels by time, estimated"), ...rows.slice(0, 400).map(({ call, kernel, us }) => {
    const color = app.painter.colors.heat[Math.round(32 * Math.sqrt(kernel.time / (form.top_us || 1)))];
    return el("button", { class: "row", "data-kernel": after.text("op", call), onclick: () => app.go("after", call) },
      el("div", { class: "top" }, el("span", { class: "what" }, after.title[call]), el("span", { class: "num" }, `${timeText(us)}${kernel.calls > 1 ? ` \u00b7 ${kernel.calls}x` : ""}`)),
      el("div", { class: "bar" }, el("i", { style: `width:${Math.max(1, (100 * us) / most)}%;background:${app.painter.colors.dark ? "#e0793f" : "#d9622b"}` })));
  })];
}
