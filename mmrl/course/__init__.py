"""The course, which stands on top of the library: the library never imports it.

A folder for each notebook, such as `ch09_r2d2`, holds what only that chapter uses:

- `exercises`: checks of its exercises, with a hint for each known mistake
- `figures`: its drawings
- `experiment_<name>`: its measurements, which `mmrl experiment <name>` repeats

Chapters share the modules next to these folders:

- `exercises`: the classes of the checks; `verdict`, which judges a training run without failing
- `experiments`: the code that measures cells, and experiments of several chapters or of none
- `results`: the published rows
- `figures`: drawings of several chapters; `drawings`, pictures of episodes as SVG
- `widgets`: explorers that compute in the browser; `widgets.training`, which trains in the kernel
- `instruments`: measures of the age of recurrent states and of the effect of each observation
- `invariance`: the settings that must change when the batch size changes
- `continual`: tasks in turn, measures of forgetting, and the rivals of CLEAR
- `programs`: reinforcement learning as recurrence equations, compiled by `mmrl.pdg`
- `arms`, `plain`: arms of a comparison in one program; settings without later refinements
- `capstone`: the gates, budgets and entries of the leaderboard
- `app`, `demo`, `links`: `mmrl explore`, `mmrl demo`, and links that contain settings
- `moved`: earlier names of modules, which still work
"""

from mmrl.course import moved

moved.install()
