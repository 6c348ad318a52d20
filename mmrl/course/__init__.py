"""The course, which is built on the library. The library never imports it.

Each notebook has a folder, such as `ch09_r2d2`, with the code that only that chapter uses:

- `exercises`: checks of its exercises, with a hint for each common mistake
- `figures`: its plots
- `experiment_<name>`: its experiments, which `mmrl experiment <name>` runs

The other modules are shared by several chapters:

- `exercises`: classes that implement these checks, and `verdict` for results of training runs
- `experiments`: the code that runs experiments, and experiments that belong to no single chapter
- `results`: the published rows of the experiments
- `figures`, `drawings`: plots for several chapters; drawings of episodes as SVG
- `widgets`: explorers that compute in the browser; `widgets.training` trains in the kernel
- `instruments`: the staleness of recurrent states and the effect of each observation
- `invariance`: hyperparameters that must change when the batch size changes
- `continual`: training on a sequence of tasks, measures of forgetting, and alternatives to CLEAR
- `programs`: reinforcement learning as recurrence equations, compiled by `mmrl.pdg`
- `arms`: variants of an agent that a comparison trains in one compiled program
- `plain`: base configs, which are simpler than the agents' defaults
- `capstone`: gates, budgets and entries of the leaderboard
- `app`, `demo`, `links`: `mmrl explore`, `mmrl demo`, and links that contain settings
- `moved`: former names of modules, which still work
"""

from mmrl.course import moved

moved.install()
