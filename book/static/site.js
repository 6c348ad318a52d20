// html-manager typesets widgets with MathJax 2, but the pages load MathJax 3.
(() => {
  let mathjax;
  const hub = { Queue: ([, , node]) => mathjax.typesetPromise?.([node]) };
  Object.defineProperty(window, "MathJax", {
    get: () => mathjax,
    set(value) {
      mathjax = value;
      mathjax.Hub ??= hub;
    },
  });
})();

// Break an inline equation where TeX does: after a comma, or after a relation or operator outside
// of braces. MathJax marks elements with space on their left by `space`.
const breaks = (operator) => {
  const next = operator.nextElementSibling?.getAttribute("space");
  return next && (next === "2" || operator.hasAttribute("space"));
};
// Keep the punctuation after an equation on its line: U+2060 joins words.
const joined = (text) => text?.nodeType === Node.TEXT_NODE && /^[,.;:!?)”’-]/.test(text.data);

// If a phone's screen is too narrow for a table, CSS shows each row as a block, with the header
// of a column before each of its cells. Roles preserve the table for screen readers.
const ROLES = { THEAD: "rowgroup", TBODY: "rowgroup", TR: "row", TD: "cell", TH: "columnheader" };
const label = (table) => {
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
  for (const row of table.tBodies[0].rows) {
    for (const cell of row.cells) cell.dataset.label = heads[cell.cellIndex] ?? "";
  }
  table.setAttribute("role", "table");
  for (const part of table.querySelectorAll("thead, tbody, tr, th, td")) {
    part.setAttribute("role", ROLES[part.tagName]);
  }
};
const narrow = matchMedia("screen and (max-width: 600px)");
const stack = () => {
  for (const table of document.querySelectorAll(".bd-article table.table:has(thead)")) {
    table.classList.remove("stacked");
    const { clientWidth, scrollWidth } = table.parentElement;
    if (!narrow.matches || scrollWidth <= clientWidth) continue;
    if (!table.role) label(table);
    table.classList.add("stacked");
  }
};
addEventListener("resize", stack);

addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  const operators = document.querySelectorAll("span.math mjx-math > mjx-mo");
  for (const operator of [...operators].filter(breaks)) {
    operator.after(document.createElement("wbr"));
  }
  for (const math of document.querySelectorAll("span.math")) {
    if (joined(math.nextSibling)) math.after("\u2060");
  }
  stack();
});
