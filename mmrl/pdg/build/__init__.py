"""Build a program from recurrent tensors, and the graph of its operations.  §4, §5.1

- `expr`: index expressions, as in `x[t + 1]` or `x[t:T]`
- `graph`: domains, operations, and the edges between them
- `sets`: domains and reads as sets and relations of isl, the integer set library
- `indexing`, `ops`, `tensor`, `program`: the language for writing programs
- `derivative`, `autodiff`: gradients, which are also tensors of the program
- `nn`: layers and optimizers
"""
