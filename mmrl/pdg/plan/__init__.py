"""Memory plans: where each value is stored, and for how long.  §6.2, §6.3

- `frees`: when memory is freed (deallocated) or donated
- `swap`: values that are moved to the host between their uses
- `code`: loops that execute a plan
- `account`: reads and live bytes for given bounds
- `layout`: ring buffers, their slots, and tensors that share them
- `tails`: values that remain constant after data have ended a dimension
- `alive`: peak bytes alive
- `cost`: bytes, operations and floating-point operations of a run
"""
