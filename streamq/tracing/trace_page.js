/* The script of the page of a trace. It writes texts, never HTML. */
(function (root) {
  const data = JSON.parse(root.querySelector(".links").textContent);
  const slider = root.querySelector("input[type=range]"), says = root.querySelector(".says");
  const now = root.querySelector(".now");
  const rows = Array.from(root.querySelectorAll("tr[data-op]"));
  const boxes = data.boxes.map(href => root.querySelector('svg a[href="' + href + '"]'));
  let chosen = null;
  const number = (row, name) => name in row.dataset ? Number(row.dataset[name]) : null;
  const causesOf = row => {
    const op = number(row, "op"), place = number(row, "row");
    if (place === null || !data.caused) return [];
    if (number(row, "event") !== null) return [number(row, "event")];
    return Object.keys(data.caused).map(Number).filter(e => ((data.caused[e] || {})[op] || []).includes(place));
  };
  const within = (few, many) => few.length > 0 && few.every(e => many.includes(e));
  const reads = (op, other) => data.reads[op].includes(other);
  const textOf = row => data.names[number(row, "op")] + " " +
    Array.from(row.cells).slice(3).map(cell => cell.textContent).join(" ");
  function show() {
    const at = Number(slider.value), changed = new Set();
    for (const row of rows) {
      const step = number(row, "step"), gone = number(row, "gone");
      row.hidden = step > at;
      row.classList.toggle("new", step === at);
      row.classList.toggle("gone", gone !== null && !(gone > at));
      if (step === at) changed.add(number(row, "op"));
    }
    boxes.forEach((box, op) => box && box.classList.toggle("here", changed.has(op)));
    for (const line of root.querySelectorAll("p[data-step]")) line.hidden = number(line, "step") !== at;
    now.textContent = data.steps[at];
    slider.setAttribute("aria-valuetext", data.steps[at]);
  }
  function clear() {
    chosen = null;
    root.classList.remove("marked");
    for (const row of rows) {
      row.classList.remove("chosen", "cause", "effect", "way");
      row.removeAttribute("aria-selected");
      row.cells[0].textContent = "";
    }
    boxes.forEach(box => box && box.classList.remove("cause", "effect"));
    says.textContent = data.hint;
  }
  function mark(row, kind, word) {
    row.classList.add(kind);
    row.cells[0].textContent = word;
    const box = boxes[number(row, "op")];
    if (box && kind !== "chosen") box.classList.add(kind === "effect" ? "effect" : "cause");
  }
  function choose(row) {
    const again = row === chosen;
    clear();
    if (again) return;
    markFor(row);
    for (const scroll of root.querySelectorAll(".scroll")) {
      const kinds = ["chosen", "cause", "effect", "way"].map(kind => "tr." + kind + ":not([hidden])");
      const first = scroll.querySelector(kinds.join());
      if (first && (first.offsetTop < scroll.scrollTop + 30 || first.offsetTop > scroll.scrollTop + scroll.clientHeight - 30))
        scroll.scrollTop = first.offsetTop - 60;
    }
  }
  function markFor(row) {
    chosen = row;
    row.setAttribute("aria-selected", "true");
    root.classList.add("marked");
    mark(row, "chosen", "chosen");
    const op = number(row, "op"), event = number(row, "event");
    if (!data.caused) { says.textContent = data.hint; return; }
    if (number(row, "row") === null) {
      const gone = number(row, "gone");
      for (const other of rows) {
        if (number(other, "step") === number(row, "step") && data.sources.includes(number(other, "op")) && other !== row)
          mark(other, "way", "arrived with it");
        if (gone !== null && number(other, "step") === gone && data.sources.includes(number(other, "op")))
          mark(other, "cause", "arrived when it went");
      }
      says.textContent = textOf(row) + " does not last: " + (gone === null
        ? "it takes back an earlier row." : "it is taken back in " + data.steps[gone] + ".");
      return;
    }
    const causes = causesOf(row);
    let above = 0, below = 0;
    for (const other of rows) {
      if (other === row || number(other, "row") === null) continue;
      const theirs = causesOf(other), their = number(other, "op");
      if (number(other, "event") !== null && causes.includes(number(other, "event"))) { mark(other, "cause", "cause"); above++; }
      else if (event !== null && theirs.includes(event)) { mark(other, "effect", "effect"); below++; }
      else if (event === null && their !== op &&
          (reads(their, op) && within(causes, theirs) || reads(op, their) && within(theirs, causes))) {
        mark(other, "way", "shares causes"); below++;
      }
    }
    const parts = [textOf(row) + ":"];
    const several = (count, one) => count + " " + one + (count === 1 ? "" : "s");
    if (event === null) parts.push(causes.length ? several(above, "cause") + "." : data.none);
    if (event !== null) parts.push(several(below, "effect") + ".");
    else if (below) parts.push(several(below, "row") + " of other operators with the same causes.");
    if (event !== null && data.failures[event])
      parts.push("Without it the query fails: " + data.failures[event]);
    if (event !== null && (data.prevented[event] || []).length)
      parts.push("Without it there would be: " + data.prevented[event].join("; ") + ".");
    says.textContent = parts.join(" ");
  }
  function move(row, by) {
    const own = Array.from(row.parentNode.rows).filter(other => !other.hidden), next = own[own.indexOf(row) + by];
    if (next) next.focus();
  }
  slider.addEventListener("input", show);
  root.addEventListener("click", event => {
    const row = event.target.closest("tr[data-op]"), link = event.target.closest("svg a");
    if (row) choose(row);
    if (link) {
      event.preventDefault();
      const panel = root.querySelector('section[data-op="' + boxes.indexOf(link) + '"]');
      if (panel) { panel.scrollIntoView({block: "nearest"}); panel.focus(); }
    }
  });
  root.addEventListener("keydown", event => {
    const row = event.target.closest("tr[data-op]"), onSlider = event.target === slider;
    const steps = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    let handled = true;
    if (row && (event.key === "ArrowUp" || event.key === "ArrowDown")) move(row, event.key === "ArrowUp" ? -1 : 1);
    else if (row && (event.key === "Enter" || event.key === " ")) choose(row);
    else if (event.key === "Escape") clear();
    else if (!onSlider && steps) { slider.value = Number(slider.value) + steps; show(); }
    else if (!onSlider && event.key === "Home") { slider.value = 0; show(); }
    else if (!onSlider && event.key === "End") { slider.value = slider.max; show(); }
    else handled = false;
    if (handled) { event.preventDefault(); event.stopPropagation(); }
  });
  clear();
  show();
})((document.currentScript && document.currentScript.closest(".trace")) || document.getElementById("THE_ID_OF_THE_TRACE"));
