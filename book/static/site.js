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
