"use strict";
(() => {
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

  // Numbers stand before texts, cells without a value last in either direction.
  function compare(one, other, sign) {
    const kinds = [one, other].map((cell) =>
      "sort" in cell.dataset ? 0 : ["", "-"].includes(cell.textContent) ? 2 : 1);
    if (kinds[0] !== kinds[1]) return kinds[0] - kinds[1];
    if (kinds[0] === 0) return sign * (one.dataset.sort - other.dataset.sort);
    return sign * one.textContent.localeCompare(other.textContent, "en", { numeric: true });
  }

  function sort(table, head) {
    const direction = NEXT[head.getAttribute("aria-sort")];
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", direction);
    table.toggleAttribute("data-sorted", direction !== "none");
    const rows = [...table.tBodies[0].rows].sort((a, b) => a.dataset.place - b.dataset.place);
    const sign = direction === "descending" ? -1 : 1;
    if (direction !== "none") {
      rows.sort((a, b) => compare(a.cells[head.cellIndex], b.cells[head.cellIndex], sign));
    }
    table.tBodies[0].append(...rows);
  }

  function filter(block) {
    const words = block.querySelector("input").value.toLowerCase().split(/\s+/);
    const chosen = [...block.querySelectorAll("select")].filter((select) => select.value);
    const rows = [...block.querySelectorAll("tbody tr")];
    for (const row of rows) {
      const text = [...row.cells].map((cell) => cell.textContent.toLowerCase()).join(" ");
      const isShown = words.every((word) => text.includes(word)) && chosen.every(
        (select) => row.cells[select.dataset.column].textContent === select.value);
      row.hidden = !isShown;
    }
    const shown = rows.filter((row) => !row.hidden).length;
    const all = `${rows.length} ${rows.length === 1 ? "row" : "rows"}`;
    block.querySelector("output").textContent = shown === rows.length ? all : `${shown} of ${all}`;
  }

  for (const block of document.querySelectorAll(".table")) {
    const table = block.querySelector("table");
    [...table.tBodies[0].rows].forEach((row, place) => { row.dataset.place = place; });
    for (const head of table.tHead.rows[0].cells) {
      head.querySelector("button").addEventListener("click", () => sort(table, head));
    }
    const controls = block.querySelector(".controls");
    controls.hidden = false;
    // Not everything that chooses from a list for its user says "input".
    for (const kind of ["input", "change"]) controls.addEventListener(kind, () => filter(block));
    filter(block);
  }

  // What goes on beyond an edge is not seen otherwise where bars to scroll by are hidden.
  function cue(edges) {
    const box = edges.firstElementChild;
    edges.toggleAttribute("data-left", box.scrollLeft > 1);
    edges.toggleAttribute("data-right", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  }

  const sizes = new ResizeObserver((entries) => entries.forEach((entry) => cue(entry.target)));
  for (const edges of document.querySelectorAll(".edges")) {
    edges.firstElementChild.addEventListener("scroll", () => cue(edges), { passive: true });
    sizes.observe(edges);
    cue(edges);
  }
})();
