"""mmrl: recurrent reinforcement learning in which every memory is a monoid.

Importing `mmrl` does not start JAX. Import what you need from the submodules, for example `from
mmrl.scan import scan`.
"""

from mmrl._xla import avoid_cpu_deadlock

__version__ = "0.1.0"

avoid_cpu_deadlock()
