// Progressive enhancement: every page works without this file.
"use strict";
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("oq-theme"); } catch { return null; } };
  if (stored()) root.dataset.theme = stored();
  root.classList.add("js");

  const isBusy = (region) =>
    region.querySelector("input:checked") || (region.contains(document.activeElement) && document.activeElement !== document.body);

  let loading = false;
  async function refresh() {
    if (loading || document.hidden) return;
    loading = true;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (!answer.ok || answer.redirected) return;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const region of document.querySelectorAll("[data-region]")) {
        const next = fresh.querySelector(`[data-region="${region.dataset.region}"]`);
        if (!next) continue;
        for (const fold of region.querySelectorAll("details[open]"))
          next.querySelector(`details[data-key="${CSS.escape(fold.dataset.key)}"]`)?.setAttribute("open", "");
        if (next.innerHTML !== region.innerHTML && !isBusy(region)) region.innerHTML = next.innerHTML;
      }
      localTimes();
      grids();
    } catch { /* the next change tries again */ } finally { loading = false; }
  }

  function localTimes() {
    for (const time of document.querySelectorAll("time[datetime]:not([data-local])")) {
      const at = new Date(time.dateTime);
      time.dataset.local = "";
      if (!isNaN(at)) time.title = at.toLocaleString(undefined, { timeZoneName: "short" });
    }
  }

  function listen() {
    const light = document.querySelector(".live");
    const source = document.body.dataset.live;
    if (source) {
      let soon = 0;
      const stream = new EventSource(source);
      stream.onopen = () => light?.classList.add("on");
      stream.onerror = () => light?.classList.remove("on");
      stream.onmessage = () => { clearTimeout(soon); soon = setTimeout(refresh, 150); };
      addEventListener("pagehide", () => stream.close());
    }
    if (document.body.dataset.every) {
      light?.classList.add("on");
      setInterval(refresh, 1000 * Number(document.body.dataset.every));
    }
  }

  document.addEventListener("change", (event) => {
    const all = event.target.closest?.("input[data-all]");
    if (all) for (const box of document.querySelectorAll("tbody input[type=checkbox]")) box.checked = all.checked;
    const count = document.querySelectorAll("tbody input[type=checkbox]:checked").length;
    for (const label of document.querySelectorAll("[data-count]")) label.textContent = count ? `${count} selected` : "";
    for (const form of document.querySelectorAll("[data-bulk]")) form.classList.toggle("some", count > 0);
  });

  document.addEventListener("click", (event) => {
    if (!event.target.closest?.("[data-theme-button]")) return;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    try { localStorage.setItem("oq-theme", root.dataset.theme); } catch { /* kept for this page only */ }
  });

  // Tab reaches one cell of a grid, and arrow keys reach the others.
  function grids() {
    for (const grid of document.querySelectorAll("table.grid"))
      grid.querySelectorAll("td a").forEach((link, place) => { link.tabIndex = place ? -1 : 0; });
  }

  const WAYS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  function step(event) {
    const cell = event.target.closest?.("table.grid td");
    if (!cell || !WAYS[event.key]) return;
    const [down, right] = WAYS[event.key];
    const lines = cell.closest("tbody").rows;
    let row = cell.parentElement.sectionRowIndex, column = cell.cellIndex, link = null;
    while (!link && lines[row += down]?.cells[column += right]) link = lines[row].cells[column].querySelector("a");
    event.preventDefault();
    if (!link) return;
    cell.querySelector("a").tabIndex = -1;
    link.tabIndex = 0;
    link.focus();
  }

  function say(event) {
    const shown = event.target.closest?.("table.grid td > *");
    const line = document.querySelector("[data-says]");
    if (!shown?.title || !line) return;
    const cell = shown.parentElement;
    const run = cell.closest("table").tHead.rows[0].cells[cell.cellIndex].textContent;
    line.textContent = `${cell.parentElement.cells[0].textContent}, ${run}: ${shown.title}`;
  }
  document.addEventListener("focusin", say);
  document.addEventListener("pointerover", say);
  document.addEventListener("keydown", step);

  // Dragging over a chart chooses a time for the list of jobs; the form's inputs do the same by keyboard.
  let from = null;
  function choose(event) {
    const slot = event.target.closest?.(".area[data-step] .hit");
    const form = document.querySelector("form.times");
    if (!slot || !form) return;
    const area = slot.closest(".area"), slots = [...area.querySelectorAll(".hit")];
    if (event.type === "pointerdown") { from = slot; event.preventDefault(); }
    if (!from || !area.contains(from)) return;
    const [first, last] = [slots.indexOf(from), slots.indexOf(slot)].sort((a, b) => a - b);
    document.querySelectorAll(".chosen").forEach((each) => each.classList.remove("chosen"));
    slots.slice(first, last + 1).forEach((each) => each.classList.add("chosen"));
    const begin = Number(area.dataset.begin), step = Number(area.dataset.step);
    const text = (slot) => new Date(1000 * (begin + slot * step)).toISOString().slice(0, 16);
    form.elements.from.value = text(first);
    form.elements.to.value = text(last + 1);
    if (event.type === "pointerup") form.querySelector("button").focus();
  }
  for (const type of ["pointerdown", "pointerover", "pointerup"]) document.addEventListener(type, choose);
  document.addEventListener("pointerup", () => { from = null; });

  const rows = () => [...document.querySelectorAll("tbody tr")].filter((row) => row.querySelector("a"));
  let first = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(input|textarea|select)$/i.test(event.target.tagName)) return;
    if (event.key === "/") {
      const search = document.querySelector("input[type=search]");
      if (search) { event.preventDefault(); search.focus(); }
    } else if (event.key === "j" || event.key === "k") {
      const all = rows();
      const at = all.findIndex((row) => row.contains(document.activeElement));
      all[Math.max(0, Math.min(all.length - 1, at + (event.key === "j" ? 1 : -1)))]?.querySelector("a").focus();
    } else if (event.key === "x") {
      rows().find((row) => row.contains(document.activeElement))?.querySelector("input[type=checkbox]")?.click();
    } else if (event.key === "Escape") {
      document.querySelector("[data-no]")?.click();
    } else if (first === "g") {
      document.querySelector(`nav a[data-key="${event.key}"]`)?.click();
    } else if (event.key === "p") {
      document.querySelector("[data-pause]")?.click();
    }
    first = event.key;
  });

  addEventListener("oq-rows", localTimes);
  addEventListener("DOMContentLoaded", () => { localTimes(); grids(); listen(); });
})();
