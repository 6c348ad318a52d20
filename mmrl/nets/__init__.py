"""Neural networks with memory.

`base` defines `Net`, which consists of an encoder, a memory and a head, and `policy` defines
actor-critics and distributions over actions. `pictures` has convolutional encoders for images,
`inputs` normalizes observations, and `legal` masks illegal actions. For example, this Q-network
processes a tape of ten observations:

    >>> import jax, jax.numpy as jnp
    >>> from mmrl.nets import Net
    >>> net = Net.make("lru", obs_size=3, outputs=2, key=jax.random.key(0))
    >>> state, q = net(net.init(), jnp.zeros((10, 3)), begin=jnp.arange(10) == 0)
    >>> q.shape
    (10, 2)
"""

from typing import TYPE_CHECKING

from mmrl._lazy import on_demand

if TYPE_CHECKING:
    from mmrl.nets.base import Dense as Dense
    from mmrl.nets.base import DuelingHead as DuelingHead
    from mmrl.nets.base import LinearHead as LinearHead
    from mmrl.nets.base import Net as Net
    from mmrl.nets.base import Stack as Stack
    from mmrl.nets.legal import MaskedNet as MaskedNet
    from mmrl.nets.pictures import Conv as Conv
    from mmrl.nets.pictures import Picture as Picture
    from mmrl.nets.policy import ActorCritic as ActorCritic
    from mmrl.nets.policy import Categorical as Categorical
    from mmrl.nets.policy import Distribution as Distribution
    from mmrl.nets.policy import Gaussian as Gaussian
    from mmrl.nets.policy import Outputs as Outputs
    from mmrl.nets.policy import Tanh as Tanh
    from mmrl.nets.policy import body as body
    from mmrl.nets.policy import mlp as mlp

__all__, __getattr__, __dir__ = on_demand(__name__)
