// Monoids as in mmrl.monoid, and the formatting of their elements.
import { num } from "./core.mjs";

/** `lift` converts an input to an element, and `show` converts an element to text. */
export const MONOIDS = {
  words: {
    name: "joining words",
    lift: (x, t) => [t, t],
    combine: (a, b) => [a[0], b[1]],
    show: ([from, to]) => (from === to ? `${from}` : `${from}–${to}`),
  },
  sum: {
    name: "sum",
    identity: 0,
    lift: (x) => x,
    combine: (a, b) => a + b,
    show: (a, digits) => num(a, digits),
  },
  affine: {
    name: "affine",
    identity: [1, 0],
    lift: (x, t, gain) => [gain, x],
    combine: ([a, x], [b, y]) => [b * a, b * x + y],
    show: ([, x], digits) => num(x, digits),
  },
  max: {
    name: "max with decay",
    identity: [0, -Infinity],
    lift: (x, t, gain) => [Math.log(gain), x],
    combine: ([w, m], [v, n]) => [w + v, Math.max(m + v, n)],
    show: ([, m], digits) => num(m, digits),
  },
};

/** Like mmrl.monoid.Resettable: elements [element, begin]; a `begin` discards all earlier elements. */
export const resettable = ({ identity, combine }) => ({
  identity: [identity, false],
  combine: ([a, before], [b, begin]) => [combine(begin ? identity : a, b), before || begin],
});

/** The width of a short text, as a multiple of its font size. */
export const wide = (text) => [...text].reduce((sum, c) => sum + (c === "." ? 0.32 : c === "−" ? 0.84 : 0.62), 0);
