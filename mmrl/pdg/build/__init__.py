"""Build: a program as recurrent tensors, and the graph that they form.  §4, §5.1

- `expr`: index expressions, as in `x[t + 1]` or `x[t:T]`
- `graph`: domains, operations, and the edges between them
- `sets`: the same as integer sets, where all calls of isl are made that expressions need
- `indexing`, `ops`, `tensor`, `program`: how a program is written
- `autodiff`: gradients, which are tensors of the program
"""
