"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("timeline"), context = canvas.getContext("2d");
  const ROW = 18, LABEL = 170, TOP = 20, SLOWEST = 50, COLOURS = ["#7fb3d5", "#82e0aa", "#f8c471", "#bb8fce", "#f1948a"];
  const used = [...new Set(data.slices.map((each) => each[0]))].sort((a, b) => order(a) - order(b) || a - b);
  const rows = new Map(used.map((track, row) => [track, row]));
  const last = data.slices.reduce((most, each) => Math.max(most, each[2] + each[3]), 1);
  let from = 0, to = last, scroll = 0, selected = null, drag = null;

  function order(track) { return data.tracks[track].device; }
  function name(slice) { return data.names[slice[1]] || "event " + slice[1]; }
  function trackName(track) {
    const of = data.tracks[track];
    return (of.device < 0 ? "" : "device " + of.device + ": ") + of.name;
  }
  function width() { return canvas.clientWidth - LABEL; }
  function x(time) { return LABEL + (time - from) / (to - from) * width(); }
  function time(at) { return from + (at - LABEL) / width() * (to - from); }
  function y(track) { return TOP + rows.get(track) * ROW - scroll; }

  function draw() {
    const scale = window.devicePixelRatio || 1;
    canvas.width = canvas.clientWidth * scale;
    canvas.height = canvas.clientHeight * scale;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const slice of data.slices) drawSlice(slice);
    context.fillStyle = "#fff";
    context.fillRect(0, 0, LABEL, canvas.clientHeight);
    context.fillRect(0, 0, canvas.clientWidth, TOP);
    context.fillStyle = "#1c1c1c";
    for (const track of used) {
      if (y(track) >= TOP - ROW) context.fillText(trackName(track).slice(0, 28), 4, y(track) + ROW / 2);
    }
    const ticks = Math.max(1, Math.floor(width() / 110));
    for (let tick = 0; tick < ticks; tick++) {
      const at = from + (to - from) * tick / ticks;
      context.fillText((at / 1000).toFixed(3) + " ms", x(at), TOP / 2);
    }
  }

  function drawSlice(slice) {
    const left = x(slice[2]), right = Math.max(x(slice[2] + slice[3]), left + 1), top = y(slice[0]);
    if (right < LABEL || left > canvas.clientWidth || top < TOP - ROW || top > canvas.clientHeight) return;
    context.fillStyle = slice === selected ? "#1c1c1c" : COLOURS[slice[1] % COLOURS.length];
    context.fillRect(left, top + 2, right - left, ROW - 4);
    if (right - left > 40 && slice !== selected) {
      context.fillStyle = "#1c1c1c";
      context.fillText(name(slice).slice(0, (right - left) / 6), Math.max(left, LABEL) + 3, top + ROW / 2);
    }
  }

  function show(slice) {
    selected = slice;
    const value = slice[4] ? ", " + data.values[slice[4]] + " " + slice[5] : "";
    document.getElementById("selected").textContent =
      name(slice) + " on " + trackName(slice[0]) + ": " + (slice[2] / 1000).toFixed(3) + " ms, for " +
      slice[3].toFixed(1) + " us" + value;
    draw();
  }

  function pick(at, height) {
    const row = Math.floor((height - TOP + scroll) / ROW), slack = (to - from) / width() * 3;
    const hits = data.slices.filter((each) => rows.get(each[0]) === row &&
      each[2] - slack <= time(at) && each[2] + each[3] + slack >= time(at));
    hits.sort((a, b) => a[3] - b[3]);
    if (hits.length) show(hits[0]);
  }

  function zoom(factor, at) {
    const centre = time(at), size = Math.min(Math.max((to - from) * factor, 1), last);
    from = Math.max(0, centre - (centre - from) * size / (to - from));
    to = from + size;
    draw();
  }

  function move(across, down) {
    const shift = across / width() * (to - from), size = to - from;
    from = Math.min(Math.max(0, from - shift), last);
    to = from + size;
    scroll = Math.min(Math.max(0, scroll - down), Math.max(0, used.length * ROW - ROW));
    draw();
  }

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX);
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    drag = { x: event.offsetX, y: event.offsetY, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    drag.moved = drag.moved || Math.abs(event.offsetX - drag.x) + Math.abs(event.offsetY - drag.y) > 3;
    if (!drag.moved) return;
    move(event.offsetX - drag.x, event.offsetY - drag.y);
    drag.x = event.offsetX;
    drag.y = event.offsetY;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) pick(event.offsetX, event.offsetY);
    drag = null;
  });
  canvas.addEventListener("keydown", (event) => {
    const keys = { "+": () => zoom(0.8, canvas.clientWidth / 2), "-": () => zoom(1.25, canvas.clientWidth / 2),
      ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0),
      ArrowUp: () => move(0, ROW), ArrowDown: () => move(0, -ROW) };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  window.addEventListener("resize", draw);

  document.getElementById("summary").textContent = data.summary;
  const awaits = data.slices.filter((each) => each[1] === data.await).sort((a, b) => b[3] - a[3]);
  for (const slice of awaits.slice(0, SLOWEST)) {
    const row = document.createElement("tr");
    const code = slice[4] && data.values[slice[4]] === "code" ? slice[5] : "unfinished";
    for (const text of [(slice[2] / 1000).toFixed(3), (slice[3] / 1000).toFixed(3), trackName(slice[0]), code]) {
      row.insertCell().textContent = text;
    }
    row.addEventListener("click", () => {
      const margin = Math.max(slice[3], 10);
      from = Math.max(0, slice[2] - margin);
      to = slice[2] + slice[3] + margin;
      scroll = Math.max(0, rows.get(slice[0]) * ROW - canvas.clientHeight / 2);
      show(slice);
    });
    document.getElementById("slowest").append(row);
  }
  draw();
})();
