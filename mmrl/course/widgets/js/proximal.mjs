// Behavior, proximal and current policy: averages, objectives, and rules for the batch size. Pure functions.
import { clamp } from "./core.mjs";

/** β = 1 - 1 / (1 + COM): the decay of a moving average whose mean age is COM steps. */
export const decayOf = (center) => center / (1 + center);
/** COM = 1 / (1 - β) - 1, in steps. */
export const centerOf = (decay) => decay / (1 - decay);
/** 2 / (1 - β) - 1, the number of equal weights with the same variance of the mean. */
export const spanOf = (decay) => (1 + decay) / (1 - decay);
const decayOfSpan = (span) => (span - 1) / (span + 1);

/**
 * Hyperparameters that compensate for a batch divided by c.  Hilton et al. 2022, Sections 3.2 and 4.
 * `on` lists the adjusted ones. A value that would fall below its limit is set to the limit.
 */
export function adjusted(base, c, { optimizer, on }) {
  const { learning_rate: rate, center, advantage_decay: fade, phases, beta1, beta2 } = base;
  return {
    batch: base.batch / c,
    learning_rate: on.learning_rate ? rate / (optimizer === "adam" ? Math.sqrt(c) : c) : rate,
    center: on.center ? center * c : center,
    advantage_decay: on.advantages ? Math.max(0, decayOfSpan(c * spanOf(fade))) : fade,
    phases: on.phases ? Math.max(1, Math.round(phases * c)) : phases,
    beta1: on.betas ? beta1 ** (1 / c) : beta1,
    beta2: on.betas ? beta2 ** (1 / c) : beta2,
  };
}

/** One step of θ̄ ← θ̄ + (θ - θ̄) / w, w ← 1 + β w, in place.  Hilton et al. 2022, Appendix A. */
export function trail(mean, theta, decay) {
  mean.weight = 1 + decay * mean.weight;
  mean.at.forEach((x, i) => (mean.at[i] = x + (theta[i] - x) / mean.weight));
}

/** max(μ, π / c) in logarithms, which limits importance weights to c; no limit if c is 0 or ∞. */
const anchor = (log, { behavior, most }) => Math.max(behavior, most > 0 ? log - Math.log(most) : -Infinity);

/**
 * (π_p/μ) min(r A, clip(r, 1-ε, 1+ε) A), r = π/π_p, and its gradient, in log π.
 * Hilton et al. 2022, Section 2, as in `mmrl.losses.clip_loss`.
 */
export function clipped(log, settings) {
  const { proximal, advantage, epsilon } = settings;
  const [low, high] = [Math.log1p(-Math.min(epsilon, 1)), Math.log1p(epsilon)];
  const [off, from] = [log - proximal, anchor(log, settings)];
  const free = advantage * Math.exp(log - from);
  const held = advantage * Math.exp(proximal + clamp(off, low, high) - from);
  const stopped = (off < low || off > high) && held < free;
  return { value: stopped ? held : free, gradient: stopped ? 0 : free, stopped };
}

/** (π/μ) A - β (log π - log π_p)² / 2, as in `mmrl.losses.kl_loss`, and its gradient, in log π. */
export function penalized(log, settings) {
  const { proximal, advantage, weight } = settings;
  const free = advantage * Math.exp(log - anchor(log, settings));
  const off = log - proximal;
  return { value: free - (weight * off * off) / 2, gradient: free - weight * off, stopped: false };
}
