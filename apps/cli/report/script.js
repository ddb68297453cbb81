// Sorting and filtering; the page is complete without.
"use strict";
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  // A key that could not be read spans several columns.
  const cellAt = (row, column) => {
    let at = 0;
    for (const cell of row.cells) {
      at += cell.colSpan;
      if (at > column) return cell;
    }
    return null;
  };
  const valueAt = (row, column) => {
    const cell = cellAt(row, column);
    if (!cell) return "";
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const now = heading.getAttribute("aria-sort");
      const falling = now ? now === "ascending" : heading.classList.contains("n");
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", falling ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [valueAt(row, column), row]);
      rows.sort(([a], [b]) => {
        const order = typeof a === "number" && typeof b === "number"
            ? a - b : String(a).localeCompare(String(b), "en", {numeric: true});
        return falling ? -order : order;
      });
      body.append(...rows.map(([, row]) => row));
    });
  });

  const all = body.rows.length;
  const filter = document.createElement("p");
  filter.className = "filter";
  const label = document.createElement("label");
  label.append("Filter ");
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = "compose bf16 4096";
  label.append(input);
  const shown = document.createElement("span");
  shown.setAttribute("role", "status");
  filter.append(label, shown);
  table.parentElement.before(filter);
  const texts = [...body.rows].map((row) => [row, row.innerText.toLowerCase()]);
  const update = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const [row, text] of texts) {
      row.hidden = !words.every((word) => text.includes(word));
      if (!row.hidden) ++count;
    }
    shown.textContent = count === all ? `${all} problems` : `${count} of ${all} problems`;
  };
  input.addEventListener("input", update);
  update();
}
document.documentElement.dataset.ready = "1";
