"""mmrl: recurrent reinforcement learning through one idea, a memory is a monoid.

Import what you need by module, `from mmrl.scan import scan`: `import mmrl` loads no modules.
"""

from mmrl._xla import avoid_cpu_deadlock

__version__ = "0.1.0"

avoid_cpu_deadlock()
