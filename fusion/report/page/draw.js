"use strict";
// Draws what is in the window; far out, nodes are dots of their colour and layers closer than half a pixel are skipped.

const palette = () => {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(name).trim();
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const stops = dark ? [[38, 50, 64], [120, 84, 28], [176, 52, 38]] : [[232, 239, 248], [255, 205, 125], [240, 122, 96]];
  const heat = Array.from({ length: 33 }, (_, i) => {
    const t = (i / 32) * 2, a = stops[Math.min(1, Math.floor(t))], b = stops[Math.min(2, Math.floor(t) + 1)], f = t - Math.min(1, Math.floor(t));
    return `rgb(${a.map((v, k) => Math.round(v + (b[k] - v) * f)).join(",")})`;
  });
  const hues = Array.from({ length: 24 }, (_, i) => { const h = (i * 137.5) % 360; return dark ? `hsl(${h} 32% 25%)` : `hsl(${h} 62% 89%)`; });
  const backend = (place) => place === 0 ? (dark ? "hsl(210 14% 24%)" : "hsl(210 30% 92%)") : hues[(place * 7 + 8) % 24];
  const marks = Array.from({ length: 24 }, (_, i) => { const h = (i * 137.5) % 360; return dark ? `hsl(${h} 55% 55%)` : `hsl(${h} 55% 45%)`; });
  return { dark, heat, hues, marks, backend, text: get("--text"), dim: get("--dim"), line: get("--line"), edge: get("--edge"), surface: get("--surface"), page: get("--page"), raised: get("--raised"), select: get("--select"), accent: get("--accent"), soft: get("--accent-soft") };
};

class Painter {
  constructor(canvas, overview) {
    this.canvas = canvas; this.overview = overview;
    this.ctx = canvas.getContext("2d");
    this.view = { x: 0, y: 0, scale: 1 };
    this.colors = palette();
    this.short = new Map();
  }
  show(form, side, plan) {
    this.form = form; this.side = side; this.plan = plan; this.strip = null;
    this.selected = -1; this.related = new Set(); this.matches = null;
    this.fills = plan.nodes.map((node) => this.fill(node));
  }
  fill(node) {
    const { form, side, colors } = this;
    if (side === form.sides.before) {
      const calls = side.columns.calls[node];
      if (side.text("op", node) === "input" || !calls.length) return colors.raised;
      if (form.backends.size > 1) return colors.backend(form.backends.get(form.sides.after.text("backend", calls[calls.length - 1])));
      return colors.hues[calls[0] % 24];
    }
    const kind = side.text("kind", node), place = kind === "input" ? 0 : form.backends.get(side.text("backend", node));
    if (place) return colors.backend(place);
    if (kind !== "kernel") return colors.raised;
    return colors.heat[Math.round(32 * Math.sqrt(side.us[node] / (form.top_us || 1)))];
  }
  resize() {
    const ratio = devicePixelRatio || 1;
    for (const c of [this.canvas, this.overview]) {
      c.width = Math.max(1, Math.round(c.clientWidth * ratio)); c.height = Math.max(1, Math.round(c.clientHeight * ratio));
    }
    this.ratio = ratio; this.strip = null;
  }
  fit() {
    const { box } = this.plan, w = this.canvas.clientWidth, h = this.canvas.clientHeight;
    const scale = Math.min(1.1, w / (box.right - box.left), h / (box.bottom - box.top));
    this.view = { scale, x: w / 2 - scale * (box.left + box.right) / 2, y: (h - scale * (box.bottom - box.top)) / 2 - scale * box.top };
  }
  // The whole if it can be read so, otherwise its beginning.
  open() {
    this.fit();
    if (this.view.scale >= 0.5) return;
    const { box } = this.plan, w = this.canvas.clientWidth;
    const scale = Math.max(0.35, Math.min(0.85, w / (box.right - box.left)));
    const first = this.plan.rows[0]?.[0] ?? 0, center = scale * (box.right - box.left) > w ? this.plan.x[first] : (box.left + box.right) / 2;
    this.view = { scale, x: w / 2 - scale * center, y: 20 - scale * box.top };
  }
  center(at, scale) {
    const s = scale ?? Math.max(this.view.scale, 0.75);
    this.view = { scale: s, x: this.canvas.clientWidth / 2 - s * this.plan.x[at], y: this.canvas.clientHeight / 2 - s * (this.plan.y[at] + NODE.height / 2) };
  }
  toGraph(px, py) { return [(px - this.view.x) / this.view.scale, (py - this.view.y) / this.view.scale]; }
  hit(px, py) {
    const [gx, gy] = this.toGraph(px, py), { plan } = this, row = Math.floor(gy / plan.pitch);
    for (const r of [row]) for (const at of plan.rows[r] ?? []) {
      if (Math.abs(gx - plan.x[at]) <= NODE.width / 2 && gy >= plan.y[at] && gy <= plan.y[at] + NODE.height) return at;
    }
    return -1;
  }
  hitFrame(px, py) {
    const [gx, gy] = this.toGraph(px, py);
    return this.plan.frames.find((f) => gx >= f.left - NODE.frame && gx <= f.left + 190 && gy >= f.top - NODE.frame - 20 && gy <= f.top - NODE.frame + 2);
  }
  paint() {
    const { ctx, view, ratio, plan, colors } = this;
    const w = this.canvas.width, h = this.canvas.height;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.fillStyle = colors.page;
    ctx.fillRect(0, 0, w, h);
    ctx.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, ratio * view.x, ratio * view.y);
    const top = -view.y / view.scale, bottom = top + h / ratio / view.scale, left = -view.x / view.scale, right = left + w / ratio / view.scale;
    const first = Math.max(0, Math.floor(top / plan.pitch) - 1), last = Math.min(plan.rows.length - 1, Math.ceil(bottom / plan.pitch));
    const step = Math.max(1, Math.floor(0.5 / (plan.pitch * view.scale)));
    const win = { top, bottom, left, right, first, last, step };
    this.paintFrames(win);
    this.paintEdges(win);
    if (view.scale < 0.22) this.paintDots(win); else this.paintNodes(win);
    this.paintOverview(top, bottom);
  }
  paintFrames(win) {
    const { ctx, plan, colors, view } = this;
    for (const f of plan.frames) {
      if (f.bottom < win.top - 40 || f.top > win.bottom + 40) continue;
      const m = NODE.frame, x = f.left - m, y = f.top - m, w = f.right - f.left + 2 * m, h = f.bottom - f.top + 2 * m;
      ctx.lineWidth = 1.2;
      ctx.strokeStyle = colors.edge;
      if (!f.stack.open) for (const shift of [8, 4]) { ctx.fillStyle = colors.raised; ctx.beginPath(); ctx.roundRect(x + shift, y + shift, w, h, 10); ctx.fill(); ctx.stroke(); }
      ctx.fillStyle = colors.surface;
      ctx.beginPath(); ctx.roundRect(x, y, w, h, 10); ctx.fill(); ctx.stroke();
      if (view.scale > 0.22) {
        ctx.font = "600 13px system-ui, 'DejaVu Sans', sans-serif"; ctx.fillStyle = colors.accent; ctx.textBaseline = "alphabetic";
        ctx.fillText(`\u00d7${f.stack.count}  ${f.stack.open ? "\u25be stack" : "\u25b8 show all copies"}`, x + 4, y - 6);
      }
    }
  }
  paintEdges(win) {
    const { ctx, plan, colors, view } = this, curve = view.scale > 0.12, hot = [];
    ctx.strokeStyle = colors.edge;
    ctx.lineWidth = Math.max(1.1, 0.7 / view.scale);
    ctx.beginPath();
    for (let l = Math.max(0, win.first - 1); l <= win.last; l += win.step) for (const segment of plan.segments[l] ?? []) {
      const [a, b, from, to] = segment;
      if ((a.x < win.left - 150 && b.x < win.left - 150) || (a.x > win.right + 150 && b.x > win.right + 150)) continue;
      if (this.selected >= 0 && (from === this.selected || to === this.selected)) hot.push(segment); else this.trace(a, b, curve);
    }
    ctx.stroke();
    if (plan.far.length) this.paintFar(win, curve, hot);
    if (!hot.length) return;
    ctx.strokeStyle = colors.select; ctx.lineWidth = Math.max(2.4, 1.6 / view.scale); ctx.beginPath();
    for (const [a, b] of hot) this.trace(a, b, curve);
    ctx.stroke();
  }
  trace(a, b, curve) {
    const { ctx, plan } = this;
    const y0 = a.layer * plan.pitch + NODE.height, y1 = b.layer * plan.pitch;
    ctx.moveTo(a.x, a.node < 0 ? y0 - NODE.height : y0);
    if (a.node < 0) ctx.lineTo(a.x, y0);
    if (!curve) { ctx.lineTo(b.x, y1); return; }
    if (a.x === b.x) ctx.lineTo(b.x, y1);
    else { const c = (y1 - y0) * 0.55; ctx.bezierCurveTo(a.x, y0 + c, b.x, y1 - c, b.x, y1); }
  }
  paintFar(win, curve, hot) {
    const { ctx, plan, colors, view } = this;
    ctx.globalAlpha = 0.35; ctx.beginPath();
    let drawn = 0;
    for (const [a, b] of plan.far) {
      if (b.layer < win.first || a.layer > win.last) continue;
      const mine = a.node === this.selected || b.node === this.selected;
      if (!mine && ++drawn > 400) continue;
      if (mine) { hot.push([a, b]); continue; }
      const y0 = a.layer * plan.pitch + NODE.height, y1 = b.layer * plan.pitch, out = Math.max(a.x, b.x) + NODE.width;
      ctx.moveTo(a.x, y0); ctx.bezierCurveTo(out, y0 + 60, out, y1 - 60, b.x, y1);
    }
    ctx.stroke(); ctx.globalAlpha = 1;
  }
  paintDots(win) {
    const { ctx, plan, colors, view } = this, height = Math.max(NODE.height, 1.2 / view.scale), groups = new Map();
    for (let l = win.first; l <= win.last; l += win.step) for (const at of plan.rows[l]) {
      const key = this.matches && !this.matches.has(at) ? colors.raised : this.related.has(at) || at === this.selected ? colors.select : this.matches ? colors.accent : this.fills[at];
      (groups.get(key) ?? groups.set(key, []).get(key)).push(at);
    }
    for (const [color, list] of groups) {
      ctx.fillStyle = color; ctx.beginPath();
      for (const at of list) ctx.rect(plan.x[at] - NODE.width / 2, plan.y[at], NODE.width, height);
      ctx.fill();
      if (view.scale > 0.08) { ctx.strokeStyle = colors.edge; ctx.lineWidth = 0.8 / view.scale; ctx.stroke(); }
    }
  }
  paintNodes(win) {
    const { ctx, plan, view } = this, words = view.scale > 0.3;
    ctx.textBaseline = "alphabetic";
    for (let l = win.first; l <= win.last; l++) for (const at of plan.rows[l] ?? []) {
      const x = plan.x[at] - NODE.width / 2;
      if (x > win.right || x + NODE.width < win.left) continue;
      this.paintNode(at, x, plan.y[at], words);
    }
  }
  paintNode(at, x, y, words) {
    const { ctx, plan, side, form, colors } = this, node = plan.nodes[at], chosen = at === this.selected;
    ctx.globalAlpha = this.matches && !this.matches.has(at) && !chosen ? 0.28 : 1;
    ctx.fillStyle = this.fills[at];
    ctx.beginPath(); ctx.roundRect(x, y, NODE.width, NODE.height, 8); ctx.fill();
    const mark = chosen || this.related.has(at);
    ctx.strokeStyle = mark ? colors.select : colors.edge; ctx.lineWidth = chosen ? 3 : mark ? 2.2 : 1;
    ctx.stroke();
    if (side === form.sides.before && side.columns.calls[node].length && side.text("op", node) !== "input") {
      ctx.fillStyle = colors.marks[side.columns.calls[node][0] % 24];
      ctx.beginPath(); ctx.roundRect(x + 3, y + 6, 4, NODE.height - 12, 2); ctx.fill();
    }
    if (words) {
      ctx.fillStyle = colors.text; ctx.font = "600 13px system-ui, 'DejaVu Sans', sans-serif";
      ctx.fillText(this.clip(side.title[node], NODE.width - 24, "t"), x + 13, y + 20);
      ctx.fillStyle = colors.dark ? "#e2e8ee" : "#26313d"; ctx.font = "11.5px system-ui, 'DejaVu Sans', sans-serif";
      ctx.fillText(this.clip(side.detail[node], NODE.width - 24, "d"), x + 13, y + 37);
    }
    ctx.globalAlpha = 1;
  }
  clip(text, width, kind) {
    const key = kind + text;
    let found = this.short.get(key);
    if (found === undefined) {
      found = text;
      const { ctx } = this;
      if (ctx.measureText(text).width > width) {
        let low = 0, high = text.length;
        while (low < high) { const mid = (low + high + 1) >> 1; if (ctx.measureText(text.slice(0, mid) + "\u2026").width <= width) low = mid; else high = mid - 1; }
        found = text.slice(0, low) + "\u2026";
      }
      this.short.set(key, found);
    }
    return found;
  }
  // The whole height at the right edge: how hot each stretch is, and where the window is.
  paintOverview(top, bottom) {
    const { overview, plan, colors, ratio } = this, ctx = overview.getContext("2d"), w = overview.width, h = overview.height;
    const { box } = plan, toY = (y) => ((y - box.top) / (box.bottom - box.top)) * h;
    if (!this.strip) {
      const strip = document.createElement("canvas");
      strip.width = w; strip.height = h;
      const s = strip.getContext("2d");
      s.fillStyle = colors.surface; s.fillRect(0, 0, w, h);
      const line = Math.max(1, (NODE.height / (box.bottom - box.top)) * h);
      for (let at = 0; at < plan.nodes.length; at++) { s.fillStyle = this.fills[at]; s.fillRect(3 * ratio, toY(plan.y[at]), w - 6 * ratio, line); }
      this.strip = strip;
    }
    ctx.drawImage(this.strip, 0, 0);
    if (this.matches) { ctx.fillStyle = colors.accent; for (const at of this.matches) ctx.fillRect(0, toY(plan.y[at]), w, 2 * ratio); }
    ctx.strokeStyle = colors.select; ctx.lineWidth = 2 * ratio;
    const a = Math.max(0, toY(top)), b = Math.min(h, toY(bottom));
    ctx.strokeRect(ratio, a + ratio, w - 2 * ratio, Math.max(4 * ratio, b - a - 2 * ratio));
  }
}
