"""The course, which lives on top of the library: the library never imports it.

- `exercises`: the checks of every chapter, which answer a known mistake with a hint
- `experiments`: what was measured for the book; `results` reads the rows
- `figures`: what the chapters draw
- `drawings`: pictures of episodes, as SVG
- `widgets`: explorers that compute in the browser; `widgets.training`, which trains in the kernel
"""
