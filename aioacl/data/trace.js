"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("timeline"), context = canvas.getContext("2d");
  const ROW = 18, TOP = 20, PAD = 4, BAR = 6, SLOWEST = 50, NARROW = 600;
  const COLOURS = ["#7fb3d5", "#82e0aa", "#f8c471", "#bb8fce", "#f1948a"];
  const INK = "#1c1c1c", FONT = "11px system-ui, sans-serif", HEADING = "bold " + FONT;
  const [BEGIN, LENGTH] = [2, 3];  // the places of a slice's time and duration, in us
  const rows = makeRows();
  const covered = coveredFrom();
  const rowOf = new Map(rows.map((row, place) => [row.track, place]));
  const last = data.slices.reduce((most, each) => Math.max(most, each[BEGIN] + each[LENGTH]), 1);
  let from = 0, to = last, scroll = 0, selected = null, drag = null;

  function device(number) { return number < 0 ? "threads" : "device " + number; }
  function name(slice) { return data.names[slice[1]] || "event " + slice[1]; }
  function trackName(track) {
    const of = data.tracks[track];
    return (of.device < 0 ? "" : device(of.device) + ": ") + of.name;
  }

  // A row for each device, and below it one for each of its tracks. The threads come last.
  function makeRows() {
    const place = (of) => [of.device < 0 ? 1 : 0, of.device, of.kind, of.number, of.lane];
    const before = (a, b) => {
      const differs = place(a).findIndex((each, index) => each !== place(b)[index]);
      return differs < 0 ? 0 : place(a)[differs] - place(b)[differs];
    };
    const used = [...new Set(data.slices.map((each) => each[0]))];
    used.sort((a, b) => before(data.tracks[a], data.tracks[b]));
    const made = [];
    let group = null;
    for (const track of used) {
      const of = data.tracks[track];
      if (!group || group.device !== of.device) made.push({ heading: device(of.device) });
      made.push({ track, label: group && group.device === of.device && group.name === of.name ? "" : of.name });
      group = of;
    }
    return made;
  }

  // The begin of the first slice within each slice, which would cover its text.
  function coveredFrom() {
    const found = new Map(), previous = new Map();
    for (const slice of data.slices) {
      const outer = previous.get(slice[0]);
      if (outer && outer[BEGIN] + outer[LENGTH] > slice[BEGIN]) found.set(outer, slice[BEGIN]);
      previous.set(slice[0], slice);
    }
    return found;
  }

  function labelWidth() { return canvas.clientWidth < NARROW ? 110 : 190; }
  function width() { return canvas.clientWidth - labelWidth() - BAR; }
  function x(time) { return labelWidth() + (time - from) / (to - from) * width(); }
  function time(at) { return from + (at - labelWidth()) / width() * (to - from); }
  function y(row) { return TOP + row * ROW - scroll; }
  function lowest() { return Math.max(0, TOP + rows.length * ROW - canvas.clientHeight); }

  // A text that fits, with "…" for what is left out.
  function fitted(text, room) {
    if (context.measureText(text).width <= room) return text;
    let length = Math.min(text.length, Math.floor(room / 3));
    while (length > 0 && context.measureText(text.slice(0, length) + "…").width > room) length--;
    return length > 0 ? text.slice(0, length) + "…" : "";
  }

  function draw() {
    const scale = window.devicePixelRatio || 1;
    canvas.style.height = Math.min(TOP + rows.length * ROW + PAD, Math.max(200, window.innerHeight * 0.6)) + "px";
    canvas.width = canvas.clientWidth * scale;
    canvas.height = canvas.clientHeight * scale;
    scroll = Math.min(scroll, lowest());
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.textBaseline = "middle";
    rows.forEach(drawBand);
    const ticks = drawLines();
    context.font = FONT;
    for (const slice of data.slices) drawSlice(slice);
    context.fillStyle = "#fff";
    context.fillRect(0, TOP, labelWidth(), canvas.clientHeight);
    rows.forEach(drawLabel);
    drawTimes(ticks);
    drawScrollBar();
  }

  function drawBand(row, place) {
    if (!row.heading) return;
    context.fillStyle = "#e8ebee";
    context.fillRect(0, y(place), canvas.clientWidth, ROW);
  }

  function drawLabel(row, place) {
    drawBand(row, place);
    context.fillStyle = INK;
    context.font = row.heading ? HEADING : FONT;
    const indent = row.heading ? PAD : 3 * PAD;
    context.fillText(fitted(row.heading || row.label, labelWidth() - indent - PAD), indent, y(place) + ROW / 2);
  }

  // Lines at round times. Returns the times and the step between them.
  function drawLines() {
    const least = (to - from) / Math.max(1, Math.floor(width() / 90)), power = 10 ** Math.floor(Math.log10(least));
    const step = power * [1, 2, 5, 10].find((each) => each * power >= least * 0.999), at = [];
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) at.push(tick);
    context.fillStyle = "#e8ebee";
    for (const tick of at) context.fillRect(x(tick), TOP, 1, canvas.clientHeight);
    return { at, step };
  }

  function drawTimes({ at, step }) {
    const digits = Math.min(Math.max(0, Math.ceil(3 - Math.log10(step))), 6);
    context.fillStyle = "#fff";
    context.fillRect(0, 0, canvas.clientWidth, TOP);
    context.fillStyle = INK;
    context.font = FONT;
    for (const tick of at) {
      const text = (tick / 1000).toFixed(digits) + " ms";
      if (x(tick) + context.measureText(text).width < canvas.clientWidth) context.fillText(text, x(tick), TOP / 2);
    }
  }

  function drawScrollBar() {
    const room = canvas.clientHeight - TOP, whole = rows.length * ROW;
    if (!lowest()) return;
    context.fillStyle = "#999";
    context.fillRect(canvas.clientWidth - BAR + 1, TOP + scroll / whole * room, BAR - 2, room / whole * room);
  }

  function drawSlice(slice) {
    const left = x(slice[BEGIN]), right = Math.max(x(slice[BEGIN] + slice[LENGTH]), left + 1);
    const top = y(rowOf.get(slice[0]));
    if (right < labelWidth() || left > canvas.clientWidth || top < TOP - ROW || top > canvas.clientHeight) return;
    const shown = Math.max(left, labelWidth()), free = covered.has(slice) ? x(covered.get(slice)) : right;
    const room = Math.min(free, canvas.clientWidth) - shown - 2 * PAD;
    context.fillStyle = slice === selected ? INK : COLOURS[slice[1] % COLOURS.length];
    context.fillRect(left, top + 2, right - left, ROW - 4);
    if (room > 20) {
      context.fillStyle = slice === selected ? "#fff" : INK;
      context.fillText(fitted(name(slice), room), shown + PAD, top + ROW / 2);
    }
  }

  function work(slice) {
    return slice[6] ? (data.names[slice[6]] || "event " + slice[6]) + " on " + data.tracks[slice[7]].name : "";
  }

  function show(slice) {
    selected = slice;
    const value = slice[4] ? ", " + data.values[slice[4]] + " " + slice[5] : "";
    document.getElementById("selected").textContent =
      name(slice) + (work(slice) && " of " + work(slice)) + ", " + trackName(slice[0]) + ": at " +
      (slice[BEGIN] / 1000).toFixed(3) + " ms, for " + slice[LENGTH].toFixed(1) + " us" + value;
    draw();
  }

  function pick(at, height) {
    const row = rows[Math.floor((height - TOP + scroll) / ROW)], slack = (to - from) / width() * 3;
    if (!row) return;
    const hits = data.slices.filter((each) => row.track === each[0] &&
      each[BEGIN] - slack <= time(at) && each[BEGIN] + each[LENGTH] + slack >= time(at));
    hits.sort((a, b) => a[LENGTH] - b[LENGTH]);
    if (hits.length) show(hits[0]);
  }

  function zoom(factor, at) {
    const centre = time(at), size = Math.min(Math.max((to - from) * factor, 1), last);
    from = Math.max(0, centre - (centre - from) * size / (to - from));
    to = from + size;
    draw();
  }

  function zoomMiddle(factor) { zoom(factor, labelWidth() + width() / 2); }

  function move(across, down) {
    const shift = across / width() * (to - from), size = to - from;
    from = Math.min(Math.max(0, from - shift), last);
    to = from + size;
    scroll = Math.min(Math.max(0, scroll - down), lowest());
    draw();
  }

  function showAll() {
    [from, to, scroll] = [0, last, 0];
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
    const keys = { "+": () => zoomMiddle(0.8), "-": () => zoomMiddle(1.25), "0": showAll,
      ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0),
      ArrowUp: () => move(0, ROW), ArrowDown: () => move(0, -ROW) };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  document.getElementById("closer").addEventListener("click", () => zoomMiddle(0.5));
  document.getElementById("wider").addEventListener("click", () => zoomMiddle(2));
  document.getElementById("whole").addEventListener("click", showAll);
  window.addEventListener("resize", draw);

  document.getElementById("summary").textContent = data.summary;
  const awaits = data.slices.filter((each) => each[1] === data.await).sort((a, b) => b[LENGTH] - a[LENGTH]);
  for (const slice of awaits.slice(0, SLOWEST)) {
    const row = document.createElement("tr"), place = data.tracks[slice[0]].device;
    const code = slice[4] && data.values[slice[4]] === "code" ? slice[5] : "unfinished";
    const cells = [(slice[BEGIN] / 1000).toFixed(3), (slice[LENGTH] / 1000).toFixed(3), place, work(slice), code];
    for (const text of cells) row.insertCell().textContent = text;
    row.addEventListener("click", () => {
      const margin = Math.max(slice[LENGTH], 10);
      from = Math.max(0, slice[BEGIN] - margin);
      to = slice[BEGIN] + slice[LENGTH] + margin;
      scroll = Math.min(Math.max(0, rowOf.get(slice[0]) * ROW - canvas.clientHeight / 2), lowest());
      show(slice);
    });
    document.getElementById("slowest").append(row);
  }
  draw();
})();
