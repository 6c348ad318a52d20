"""Plan the place and the lifetime of every value.  §6.2, §6.3

- `frees`: what is freed and donated, and when; `swap`: what waits on the host
- `code`: the loops that run the plan
- `account`: readers and live bytes, once the bounds are numbers
- `layout`: slots of rings, and which tensors share them
- `alive`: the most bytes alive at once, which `cost` reports
"""
