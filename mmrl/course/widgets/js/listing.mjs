// The text of a generated program, with the current line, and marks for acting and learning.
import { html } from "./core.mjs";

const EDGES = { acting: "solid var(--blue)", learning: "double var(--orange)", memory: "dotted var(--purple)", other: "solid transparent" };
const LINE = 18;

/** The kind of a line of code; `sides` maps each operation to acting or learning. */
export function kindOf(line, sides) {
  if (/^\s*del /.test(line)) return "memory";
  const op = line.match(/^\s*(\w+)\(.*\)$/)?.[1];
  return sides[op] ?? "other";
}

/** The program in a box of height `height` that shows line `at`; a click calls `go(line)`. */
export function listing(code, { at, height, sides, go }) {
  const box = `margin:0;padding:4px 0;border:1px solid var(--line);border-radius:6px;background:var(--paper);color:var(--ink);font:12px/${LINE}px monospace;overflow:auto;height:${height}px`;
  const rows = code.split("\n").map((line, j) => {
    const here = j === at ? "var(--fill);font-weight:700;box-shadow:inset 0 0 0 1px var(--ink)" : "none";
    const style = `display:block;min-width:max-content;height:${LINE}px;padding:0 8px 0 4px;white-space:pre;cursor:pointer;color:inherit;font:inherit;border-left:5px ${EDGES[kindOf(line, sides)]};background:${here}`;
    const row = html("code", { style, "aria-current": j === at ? "step" : null }, `${j === at ? "▶" : " "} ${line}`);
    row.addEventListener("click", () => go(j));
    return row;
  });
  const node = html("pre", { style: box, tabindex: "0", role: "group", "aria-label": "the program" }, rows);
  // The box has no height until it is on the page; the frame adds it right after this.
  queueMicrotask(() => (node.scrollTop = at * LINE - height / 2 + LINE));
  return node;
}
