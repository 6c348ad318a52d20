"""The course, which stands on top of the library: the library never imports it.

A folder for each notebook, such as `ch09_r2d2`, holds what only that chapter uses:

- `exercises`: its checks, which answer a known mistake with a hint
- `figures`: what it draws
- `experiment_<name>`: what was measured for it, as `mmrl experiment <name>` measures it again

Next to these folders is what chapters share:

- `exercises`: what a check is; `verdict`, which judges a training run and stops nothing
- `experiments`: how cells become rows, and the experiments that belong to no chapter or to several
- `results`: the published rows
- `figures`: what several chapters draw; `drawings`, pictures of episodes as SVG
- `widgets`: explorers that compute in the browser; `widgets.training`, which trains in the kernel
- `instruments`: how old recurrent states are, how much each observation matters
- `invariance`: what else must change when the batch does
- `continual`: tasks in turn, how much of them is kept, and what CLEAR is compared with
- `programs`: reinforcement learning as recurrence equations, compiled by `mmrl.pdg`
- `arms`, `plain`: arms of a comparison in one program; settings without later refinements
- `capstone`: the gates, budgets and entries of the leaderboard
- `app`, `demo`, `links`: what `mmrl explore` and `mmrl demo` show, and links with settings
- `moved`: earlier names of modules, which still lead to them
"""

from mmrl.course import moved

moved.install()
