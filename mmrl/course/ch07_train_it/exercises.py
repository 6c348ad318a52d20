"""Exercises for chapter 07: DQN on a tape."""

import numpy as np

from mmrl.course.exercises.answers import Arguments, Exercise, Mistake


def _take(q, actions):
    return np.take_along_axis(np.asarray(q), np.asarray(actions)[:, None], axis=1)[:, 0]


def _target(reward, terminated, gamma, next_q, next_q_target):
    best = _take(next_q_target, np.argmax(next_q, axis=1))
    return reward + gamma * (1 - terminated) * best


def _target_cases(rng: np.random.Generator) -> list[Arguments]:
    cases = []
    for steps, actions, gamma in ((6, 3, 0.9), (9, 4, 0.5), (20, 2, 0.99), (12, 5, 0.7)):
        reward = rng.normal(size=steps).astype(np.float32)
        terminated = np.arange(steps) % 4 == 3
        q, judge = rng.normal(size=(2, steps, actions)).astype(np.float32)
        cases.append((reward, terminated, gamma, q, judge))
    return cases


target = Exercise(
    "7.1",
    solution=_target,
    cases=_target_cases,
    mistakes=(
        Mistake(
            lambda r, d, gamma, q, judge: r + gamma * (1 - d) * np.max(judge, axis=1),
            "That is plain DQN, in which the target network both selects and evaluates the action. "
            "In double DQN the online network selects it, so take the argmax over `next_q`.",
        ),
        Mistake(
            lambda r, d, gamma, q, judge: r + gamma * (1 - d) * np.argmax(q, axis=1),
            "You bootstrap with the index of the best action. Use the entry of `next_q_target` at "
            "that index.",
        ),
        Mistake(
            lambda r, d, gamma, q, judge: r + gamma * (1 - d) * _take(q, np.argmax(judge, axis=1)),
            "The roles are swapped. The online network selects the action, by the argmax over "
            "`next_q`. The target network evaluates it, so the value is an entry of "
            "`next_q_target`.",
        ),
        Mistake(
            lambda r, d, gamma, q, judge: r + gamma * (1 - d) * np.max(q, axis=1),
            "Your online network both selects and evaluates the action. It overestimates its own "
            "choice, so take the value from `next_q_target`.",
        ),
        Mistake(
            lambda r, d, gamma, q, judge: (1 - d) * _target(r, d, gamma, q, judge),
            "You lose the reward of the last step. Multiply only the bootstrap value by 1 - "
            "terminated, not the reward.",
        ),
        Mistake(
            lambda r, d, gamma, q, judge: r + gamma * _take(judge, np.argmax(q, axis=1)),
            "Your target bootstraps at terminated steps too. The episode ends there, so multiply "
            "the next value by 1 - terminated.",
        ),
    ),
)


def _scan(xs, begin, decay):
    h, hs = np.zeros_like(xs[0]), []
    for x, b in zip(xs, begin, strict=True):
        h = x if b else decay * h + x
        hs.append(h)
    return np.array(hs)


def _lookahead(xs, begin, next_xs, decay):
    return decay * _scan(xs, begin, decay) + next_xs


def _carry(xs, begin, next_xs, decay):
    h, hs = np.zeros_like(xs[0]), []
    for x, b, next_x in zip(xs, begin, next_xs, strict=True):
        h = decay * (x if b else decay * h + x) + next_x
        hs.append(h)
    return np.array(hs)


def _lookahead_cases(rng: np.random.Generator) -> list[Arguments]:
    cases = []
    for lengths, decay in (((5,), 0.9), ((3, 4), 0.5), ((1, 6, 2), 0.8), ((4, 4, 4), 0.99)):
        begin = np.concatenate([np.arange(n) == 0 for n in lengths])
        # An episode of n steps has n + 1 observations, because the last one is only a next
        # observation.
        full = [rng.normal(size=(n + 1, 2)).astype(np.float32) for n in lengths]
        xs = np.concatenate([x[:-1] for x in full])
        next_xs = np.concatenate([x[1:] for x in full])
        cases.append((xs, begin, next_xs, decay))
    return cases


lookahead = Exercise(
    "7.2",
    solution=_lookahead,
    cases=_lookahead_cases,
    mistakes=(
        Mistake(
            lambda xs, begin, next_xs, decay: _scan(next_xs, begin, decay),
            "That is the shortcut of Eq. 7.5. A scan over the next observations skips the first "
            "observation of an episode, so scan `xs`, and then take one more step.",
        ),
        Mistake(
            lambda xs, begin, next_xs, decay: np.append(
                _scan(xs, begin, decay)[1:], decay * _scan(xs, begin, decay)[-1:] + next_xs[-1:], 0
            ),
            "You shift the states by one step. At the end of an episode, that gives the first "
            "state of the next episode. Take one step with `next_xs[t]` instead.",
        ),
        Mistake(
            lambda xs, begin, next_xs, decay: decay * _scan(xs, begin & False, decay) + next_xs,
            "Your memory is not reset, so it carries over from one episode to the next. Where "
            "`begin` is true, forget everything earlier.",
        ),
        Mistake(
            lambda xs, begin, next_xs, decay: _scan(xs, begin, decay),
            "That is the state at step t. The exercise asks for the state one step later, so take "
            "one more step with `next_xs[t]`.",
        ),
        Mistake(
            _carry,
            "You carry the look-ahead state into the next step, so observations count twice. Carry "
            "the state at t, and only return the look-ahead state.",
        ),
        Mistake(
            lambda xs, begin, next_xs, decay: (
                decay * np.where(begin[:, None], 0, _scan(xs, begin, decay)) + next_xs
            ),
            "Where `begin` is true, you forget `xs[t]` as well. Forget only earlier observations, "
            "because `xs[t]` is the first observation of the new episode.",
        ),
        Mistake(
            lambda xs, begin, next_xs, decay: np.where(
                np.append(begin[1:], True)[:, None],
                next_xs,
                decay * _scan(xs, begin, decay) + next_xs,
            ),
            "You reset at the last step of an episode. The next observation is still part of that "
            "episode, so reset only where `begin` is true.",
        ),
        Mistake(
            lambda xs, begin, next_xs, decay: np.where(
                np.append(begin[1:], False)[:, None],
                next_xs,
                decay * _scan(xs, begin, decay) + next_xs,
            ),
            "You reset where `begin[t + 1]` is true. That flag marks the next episode, but "
            "`next_xs[t]` is still part of this one, so use only `begin[t]`.",
        ),
        Mistake(
            lambda xs, begin, next_xs, decay: (
                decay * _scan(xs, np.append(begin[1:], False), decay) + next_xs
            ),
            "Your memory is reset one step too early, at `begin[t + 1]`. It must forget everything "
            "before `xs[t]` where `begin[t]` is true.",
        ),
    ),
)


def _gradient(errors, mask):
    mean = np.abs(errors[mask]).mean()
    return np.where(mask, min(mean, 1.0) * np.sign(errors) / mask.sum(), 0.0)


def _gradient_cases(rng: np.random.Generator) -> list[Arguments]:
    cases = []
    for size, scale in ((5, 0.3), (20, 1.0), (8, 5.0), (50, 0.1), (12, 20.0)):
        mask = np.arange(size) < max(size - 3, 1)
        cases.append((scale * rng.normal(size=size), mask))
    return cases


gradient = Exercise(
    "7.3",
    solution=_gradient,
    cases=_gradient_cases,
    mistakes=(
        Mistake(
            lambda e, m: np.where(m, np.clip(e, -1, 1) / m.sum(), 0.0),
            "That is the gradient of the mean of Huber losses, which the tape uses. Here, take the "
            "mean of |δ| first, and then its Huber loss.",
        ),
        Mistake(
            lambda e, m: np.where(m, min(np.abs(e[m]).mean(), 1.0) * np.sign(e), 0.0),
            "A factor is missing. The mean over the real steps divides by their number Σ m, so the "
            "gradient must also be divided by Σ m.",
        ),
        Mistake(
            lambda e, m: np.where(m, min(np.abs(e[m]).mean(), 1.0) / m.sum(), 0.0),
            "The sign is missing. The slope of |δ| is 1 where δ is positive and -1 where it is "
            "negative.",
        ),
        Mistake(
            lambda e, m: np.where(m, np.clip(e[m].mean(), -1, 1) / m.sum(), 0.0),
            "That is the gradient of huber(mean δ), in which errors of opposite signs cancel. Take "
            "absolute values first, and then the mean.",
        ),
        Mistake(
            lambda e, m: np.where(m, min(abs(e[m].mean()), 1.0) * np.sign(e) / m.sum(), 0.0),
            "You use |mean δ| as the slope of the Huber loss. The slope is the mean of |δ|, in "
            "which errors of opposite signs do not cancel.",
        ),
        Mistake(
            lambda e, m: np.where(m, np.sign(e) / m.sum(), 0.0),
            "That is the gradient of the mean of |δ|. By the chain rule, multiply it by the slope "
            "of the Huber loss, which is the smaller of the mean and 1.",
        ),
        Mistake(
            lambda e, m: np.where(m, np.abs(e[m]).mean() * np.sign(e) / m.sum(), 0.0),
            "Your gradient is not bounded. The Huber loss is linear beyond 1, so its slope is 1 "
            "there.",
        ),
        Mistake(
            lambda e, m: min(np.abs(e[m]).mean(), 1.0) * np.sign(e) / m.sum(),
            "Padding gets a gradient. Where `mask` is false there is no real step, so return 0.",
        ),
        Mistake(
            lambda e, m: np.where(m, _gradient(e, m) * m.sum() / len(e), 0.0),
            "You divide by the number of slots. The mean is over the real steps only, so divide by "
            "Σ m.",
        ),
        Mistake(
            lambda e, m: np.where(m, min((np.abs(e) * m).mean(), 1.0) * np.sign(e) / len(e), 0.0),
            "You divide by the number of slots, in the mean and in its gradient. Only real steps "
            "count, so divide by Σ m in both.",
        ),
        Mistake(
            lambda e, m: min(np.abs(e).mean(), 1.0) * np.sign(e) / len(e),
            "Your mean includes padding. Take the mean over the real steps, where `mask` is true, "
            "and return a gradient of 0 for padding.",
        ),
    ),
)
