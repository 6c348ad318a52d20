"""Monoids: sets with an associative operator and an identity.

Start with `core`, which defines the interface, sums and affine maps, and combinators that build one
monoid from others. `more` contains the monoids of later chapters. `testing` checks whether an
operator is a monoid.
"""

from typing import TYPE_CHECKING

from mmrl._lazy import on_demand

if TYPE_CHECKING:
    from mmrl.monoid.core import Affine as Affine
    from mmrl.monoid.core import Monoid as Monoid
    from mmrl.monoid.core import Product as Product
    from mmrl.monoid.core import Resettable as Resettable
    from mmrl.monoid.core import Sum as Sum
    from mmrl.monoid.more import EWMA as EWMA
    from mmrl.monoid.more import Decay as Decay
    from mmrl.monoid.more import LogAffine as LogAffine
    from mmrl.monoid.more import LogSumExp as LogSumExp
    from mmrl.monoid.more import LongMoments as LongMoments
    from mmrl.monoid.more import MatrixAffine as MatrixAffine
    from mmrl.monoid.more import Max as Max
    from mmrl.monoid.more import Moments as Moments
    from mmrl.monoid.more import TopK as TopK
    from mmrl.monoid.more import Window as Window
    from mmrl.monoid.testing import laws as laws
    from mmrl.monoid.testing import products as products

__all__, __getattr__, __dir__ = on_demand(__name__)
