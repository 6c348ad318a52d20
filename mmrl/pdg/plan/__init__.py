"""Plan: where every value is kept, and until when.  §6.2, §6.3

- `frees`: what is freed and donated, and when; `swap`: what waits on the host
- `code`: the loops that run the plan
- `account`: who reads what at numbers for the bounds, and which bytes are held
- `layout`: slots of rings, and which tensors share them
"""
