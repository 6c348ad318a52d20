// Matrices [step, observation] that are written row after row up to their diagonals.

/** The complete rows of 1, 2, 3, … numbers that follow one another: row n holds i = 0 … n. */
export function triangle(values) {
  const rows = [];
  for (let start = 0; start + rows.length < values.length; start += rows.length) {
    rows.push(values.slice(start, start + rows.length + 1));
  }
  return rows;
}
