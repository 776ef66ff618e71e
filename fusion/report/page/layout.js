"use strict";
// Layers by depth, ordered by the mean position of neighbours, all in time linear in nodes and edges.

const NODE = { width: 236, height: 46, gapX: 22, gapY: 30, frame: 12, dummy: 14 };
const FAR = 24; // an edge over more layers is one curve and takes no place in the layers between

// What is shown of a side: each copy of a closed stack is the first one.
function visible(side) {
  const rep = new Int32Array(side.size).map((_, i) => i);
  for (const stack of side.stacks) {
    if (stack.open) continue;
    const end = stack.start + stack.period * stack.count;
    for (let i = stack.start + stack.period; i < end; i++) rep[i] = stack.start + ((i - stack.start) % stack.period);
  }
  const nodes = [], index = new Int32Array(side.size).fill(-1);
  for (let i = 0; i < side.size; i++) if (rep[i] === i) { index[i] = nodes.length; nodes.push(i); }
  const parents = nodes.map(() => []), children = nodes.map(() => []), seen = new Set();
  for (let i = 0; i < side.size; i++) {
    const to = index[rep[i]];
    for (const source of side.columns.sources[i]) {
      const from = index[rep[source]];
      if (from >= to || seen.has(from * nodes.length + to)) continue; // from copy to copy
      seen.add(from * nodes.length + to);
      parents[to].push(from);
      children[from].push(to);
    }
  }
  return { nodes, index, rep, parents, children };
}

function layered(shown) {
  const n = shown.nodes.length, depth = new Int32Array(n);
  for (let i = 0; i < n; i++) for (const p of shown.parents[i]) depth[i] = Math.max(depth[i], depth[p] + 1);
  // What depends on nothing stands just above its first reader.
  for (let i = n - 1; i >= 0; i--) if (!shown.parents[i].length && shown.children[i].length) depth[i] = Math.min(...shown.children[i].map((c) => depth[c])) - 1;
  const low = n ? depth.reduce((a, b) => Math.min(a, b), depth[0]) : 0;
  for (let i = 0; i < n; i++) depth[i] -= low;
  return depth;
}

function layout(side) {
  const shown = visible(side), depth = layered(shown), n = shown.nodes.length;
  const layers = [], items = [], add = (node, layer) => {
    const item = { node, layer, up: [], down: [], x: 0, place: 0, width: node < 0 ? NODE.dummy : NODE.width };
    (layers[layer] ??= []).push(item);
    items.push(item);
    return item;
  };
  for (let i = 0; i < n; i++) add(i, depth[i]);
  for (let l = 0; l < layers.length; l++) layers[l] ??= [];
  const segments = layers.map(() => []), far = [];
  for (let to = 0; to < n; to++) for (const from of shown.parents[to]) {
    const span = depth[to] - depth[from];
    if (span > FAR) { far.push([items[from], items[to]]); continue; }
    let last = items[from];
    for (let l = depth[from] + 1; l <= depth[to]; l++) {
      const next = l === depth[to] ? items[to] : add(-1, l);
      last.down.push(next);
      next.up.push(last);
      segments[l - 1].push([last, next, from, to]);
      last = next;
    }
  }
  orderLayers(layers);
  placeLayers(layers);
  return finish(side, shown, depth, layers, items, segments, far);
}

function orderLayers(layers) {
  const mean = (list, fallback) => list.length ? list.reduce((a, b) => a + b.place, 0) / list.length : fallback;
  const settle = (layer, side) => {
    const keys = new Map(layer.map((item) => [item, mean(item[side], item.place)]));
    layer.sort((a, b) => keys.get(a) - keys.get(b) || a.place - b.place);
    layer.forEach((item, i) => (item.place = i - layer.length / 2));
  };
  layers.forEach((layer) => layer.forEach((item, i) => (item.place = i - layer.length / 2)));
  for (let sweep = 0; sweep < 4; sweep++) {
    for (let l = 1; l < layers.length; l++) if (layers[l].length > 1) settle(layers[l], "up");
    for (let l = layers.length - 2; l >= 0; l--) if (layers[l].length > 1) settle(layers[l], "down");
  }
}

function placeLayers(layers) {
  const wish = (item, sides) => {
    let sum = 0, weight = 0;
    for (const side of sides) for (const other of item[side]) {
      const w = item.node < 0 && other.node < 0 ? 4 : 1; // long edges stay straight
      sum += w * other.x;
      weight += w;
    }
    return weight ? sum / weight : item.x;
  };
  for (const layer of layers) pack(layer, layer.map((item) => item.place * 40));
  for (let sweep = 0; sweep < 7; sweep++) {
    const sides = sweep === 2 || sweep === 5 ? ["up", "down"] : sweep % 2 ? ["down"] : ["up"];
    const order = sweep % 2 ? layers.slice().reverse() : layers;
    for (const layer of order) pack(layer, layer.map((item) => wish(item, sides)));
  }
}

// The places closest to the wishes that keep order and distances (pooling of neighbours that collide).
function pack(layer, wishes) {
  const blocks = [];
  let offset = 0;
  layer.forEach((item, i) => {
    if (i) offset += (layer[i - 1].width + item.width) / 2 + NODE.gapX;
    let block = { sum: wishes[i] - offset, n: 1, items: [[item, offset]] };
    while (blocks.length && blocks[blocks.length - 1].sum / blocks[blocks.length - 1].n > block.sum / block.n) {
      const left = blocks.pop();
      left.sum += block.sum; left.n += block.n;
      for (const entry of block.items) left.items.push(entry);
      block = left;
    }
    blocks.push(block);
  });
  for (const block of blocks) for (const [item, at] of block.items) item.x = block.sum / block.n + at;
}

function finish(side, shown, depth, layers, items, segments, far) {
  const n = shown.nodes.length, pitch = NODE.height + NODE.gapY;
  let left = Infinity, right = -Infinity;
  for (const item of items) { left = Math.min(left, item.x - item.width / 2); right = Math.max(right, item.x + item.width / 2); }
  const x = new Float64Array(n), y = new Float64Array(n);
  for (let i = 0; i < n; i++) { x[i] = items[i].x; y[i] = depth[i] * pitch; }
  const rows = layers.map((layer) => layer.filter((item) => item.node >= 0).map((item) => item.node));
  const frames = [];
  for (const stack of side.stacks) {
    const copies = stack.open ? stack.count : 1;
    let box = null;
    for (let i = stack.start; i < stack.start + stack.period * copies; i++) {
      const at = shown.index[i];
      box ??= { stack, left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
      box.left = Math.min(box.left, x[at] - NODE.width / 2); box.right = Math.max(box.right, x[at] + NODE.width / 2);
      box.top = Math.min(box.top, y[at]); box.bottom = Math.max(box.bottom, y[at] + NODE.height);
    }
    if (box) frames.push(box);
  }
  for (const row of segments) for (const [a, b, from, to] of row) for (const frame of a.node < 0 || b.node < 0 ? frames : []) {
    const { start, period, count } = frame.stack, inside = (at) => shown.nodes[at] >= start && shown.nodes[at] < start + period * count;
    if (!inside(from) || !inside(to)) continue;
    frame.left = Math.min(frame.left, a.x, b.x);
    frame.right = Math.max(frame.right, a.x, b.x);
  }
  const box = n ? { left: left - 40, right: right + 40, top: -30, bottom: layers.length * pitch } : { left: 0, right: 100, top: 0, bottom: 100 };
  return { ...shown, x, y, depth, rows, segments, far, frames, box, pitch };
}
