// Start the slides in the system's color scheme, and fit every slide to its frame.
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = (theme) => { document.documentElement.dataset.theme = theme; };
paint(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => paint(dark.matches ? "dark" : "light"));

const WIDTH = 1280, HEIGHT = 720, MARGIN = 56, ROOM = HEIGHT - 50; // leaves room for slide numbers below
const SIZES = [1, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5];
const SMALL = 0.75; // below this scale, a widget shows its controls next to its picture

/** Shrink the contents of a slide until they fit. */
function fit(slide) {
  const fits = (size) => {
    slide.style.zoom = size;
    const scale = Reveal.getScale(), { right, height } = slide.getBoundingClientRect();
    const within = (part) => part.getBoundingClientRect().right <= right - MARGIN * size * scale + 1;
    return height <= ROOM * scale + 1 && slide.scrollWidth <= slide.clientWidth + 1
      && [...slide.querySelectorAll("mjx-container[display]")].every(within);
  };
  const wide = slide.classList.contains("wide");
  if (SIZES.some((size) => (wide || size >= SMALL) && fits(size)) || wide) return;
  if (slide.querySelector(".mmrl")) slide.classList.add("wide");
  SIZES.some(fits);
}

Reveal.initialize({
  width: WIDTH, height: HEIGHT, margin: 0, center: false, hash: true, slideNumber: "c/t",
  transition: "none", plugins: [RevealNotes],
  // Keys that press a button in a widget do not change the slide.
  keyboardCondition: ({ key, target }) => !(["Enter", " "].includes(key) && target.closest?.("button, summary")),
  keyboard: { 68: () => paint(document.documentElement.dataset.theme === "dark" ? "light" : "dark") },
}).then(() => {
  const watch = new ResizeObserver((entries) => requestAnimationFrame(() => {
    for (const { target } of entries) if (target.clientHeight) fit(target);
  }));
  for (const slide of document.querySelectorAll(".slides section section")) watch.observe(slide);
});
