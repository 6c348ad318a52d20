// Starts the slides, in the colors that the system wants; every slide fits its frame.
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = (theme) => { document.documentElement.dataset.theme = theme; };
paint(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => paint(dark.matches ? "dark" : "light"));

const WIDTH = 1280, HEIGHT = 720, ROOM = HEIGHT - 50; // the numbers of the slides are below
const SIZES = [1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5];

/** Makes what is on a slide smaller, until all of it is seen. */
function fit(slide) {
  for (const size of SIZES) {
    slide.style.zoom = size;
    const { width, height } = slide.getBoundingClientRect();
    const scale = Reveal.getScale();
    if (height <= ROOM * scale + 1 && slide.scrollWidth <= slide.clientWidth + 1) break;
    // A high widget puts its pictures beside each other, if it is given all of the width.
    if (size < 0.75) slide.classList.add("wide");
  }
}

Reveal.initialize({
  width: WIDTH, height: HEIGHT, margin: 0, center: false, hash: true, slideNumber: "c/t",
  transition: "none", plugins: [RevealNotes],
  // In a widget, what presses a button does not turn the page.
  keyboardCondition: ({ key, target }) => !(["Enter", " "].includes(key) && target.closest?.("button, summary")),
  keyboard: { 68: () => paint(document.documentElement.dataset.theme === "dark" ? "light" : "dark") },
}).then(() => {
  const watch = new ResizeObserver((entries) => requestAnimationFrame(() => {
    for (const { target } of entries) if (target.clientHeight) fit(target);
  }));
  for (const slide of document.querySelectorAll(".slides section section")) watch.observe(slide);
});
