// Lower-triangular matrices [step, observation], flattened row by row.

/** The complete rows, of 1, 2, 3, … numbers; row n contains i = 0 … n. */
export function triangle(values) {
  const rows = [];
  for (let start = 0; start + rows.length < values.length; start += rows.length) {
    rows.push(values.slice(start, start + rows.length + 1));
  }
  return rows;
}
