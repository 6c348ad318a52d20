"""The course, which lives on top of the library: the library never imports it.

- `exercises`: the checks of every chapter, which answer a known mistake with a hint
- `experiments`: what was measured for the book; `results` reads the rows
- `instruments`: how old recurrent states are, how much each observation matters
- `invariance`: what else must change when the batch does
- `collectives`: what the devices of a compiled program say to one another
- `scaling`: what a scan over several devices costs, computed from bytes and latencies
- `pair`: two processes of one run, one of which is killed
- `continual`: tasks in turn, how much of them is kept, and what CLEAR is compared with
- `figures`: what the chapters draw
- `drawings`: pictures of episodes, as SVG
- `demo`: what `mmrl demo` trains
- `widgets`: explorers that compute in the browser; `widgets.training`, which trains in the kernel
"""
