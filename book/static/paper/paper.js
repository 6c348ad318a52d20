// Before printing, reveal widgets that wait for an answer, and name equations.
const ready = new MutationObserver(() => {
  for (const node of document.querySelectorAll(".mmrl > [hidden]")) node.hidden = false;
  for (const node of document.querySelectorAll(".mmrl :is(input, button)")) node.tabIndex = -1;
});
ready.observe(document.body, { subtree: true, childList: true });

MathJax.startup.promise.then(() => {
  for (const { typesetRoot: root, math } of MathJax.startup.document.math) {
    root.querySelector("mjx-assistive-mml")?.remove(); // the drawing has a separate name
    const drawn = root.querySelector("svg");
    drawn.removeAttribute("aria-hidden");
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", math.trim());
  }
});
