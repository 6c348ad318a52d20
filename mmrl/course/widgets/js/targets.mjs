// The targets of mmrl.returns, computed by one affine recurrence that runs backward.

/** y_t = x_t + g_t y_{t+1}, or x_t where `last` is true, as in mmrl.returns. */
export function backward(gains, xs, last) {
  const ys = new Array(xs.length);
  for (let t = xs.length - 1; t >= 0; t--) {
    ys[t] = last[t] || t === xs.length - 1 ? xs[t] : xs[t] + gains[t] * ys[t + 1];
  }
  return ys;
}

const ended = ({ last, rewards }, t) => last[t] || t === rewards.length - 1;

/** The targets of mmrl.returns, with the same names. A tape is {rewards, discount, values, nextValues, last, ratio}. */
export const TARGETS = {
  discounted(tape) {
    const { rewards: r, discount: g, nextValues: v } = tape;
    return backward(g, r.map((x, t) => x + (ended(tape, t) ? g[t] * v[t] : 0)), tape.last);
  },
  n_step(tape, { n }) {
    const { rewards: r, discount: g, nextValues: v } = tape;
    return r.map((_, t) => {
      let [total, gain, k] = [r[t], g[t], t];
      for (; k < t + n - 1 && !ended(tape, k); k++) {
        total += gain * r[k + 1];
        gain *= g[k + 1];
      }
      return total + gain * v[k];
    });
  },
  lambda_return(tape, { lam }) {
    const { rewards: r, discount: g, nextValues: v } = tape;
    const xs = r.map((x, t) => x + g[t] * (ended(tape, t) ? 1 : 1 - lam) * v[t]);
    return backward(g.map((x) => x * lam), xs, tape.last);
  },
  gae(tape, { lam }) {
    const { rewards: r, discount: g, values, nextValues: v } = tape;
    return backward(g.map((x) => x * lam), r.map((x, t) => x + g[t] * v[t] - values[t]), tape.last);
  },
  vtrace(tape, { lam, rho_max: rhoMax, c_max: cMax }) {
    const { rewards: r, discount: g, values, nextValues: v, ratio } = tape;
    const deltas = r.map((x, t) => Math.min(rhoMax, ratio[t]) * (x + g[t] * v[t] - values[t]));
    const gains = g.map((x, t) => x * lam * Math.min(cMax, ratio[t]));
    return backward(gains, deltas, tape.last).map((x, t) => x + values[t]);
  },
};
