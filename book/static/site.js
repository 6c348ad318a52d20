// html-manager asks MathJax 2 to typeset what widgets show; the pages load MathJax 3.
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

// Break an equation within a line where TeX does: after a comma, or a relation or operator outside
// of braces. MathJax marks what stands apart from its neighbor on the left by `space`.
const breaks = (operator) => {
  const next = operator.nextElementSibling?.getAttribute("space");
  return next && (next === "2" || operator.hasAttribute("space"));
};
// Keep the punctuation after an equation on its line: U+2060 joins words.
const joined = (text) => text?.nodeType === Node.TEXT_NODE && /^[,.;:!?)”’-]/.test(text.data);

addEventListener("load", async () => {
  await window.MathJax?.startup?.promise;
  const operators = document.querySelectorAll("span.math mjx-math > mjx-mo");
  for (const operator of [...operators].filter(breaks)) {
    operator.after(document.createElement("wbr"));
  }
  for (const math of document.querySelectorAll("span.math")) {
    if (joined(math.nextSibling)) math.after("\u2060");
  }
});
