"""Monoids: a set with an associative operator and an identity.

`core` is the first read: what a monoid is, sums, affine maps, and how to make a monoid of others.
`more` holds those that later chapters need, and `laws` tells whether an operator of yours is one.
"""

from mmrl.monoid.core import Affine, Monoid, Product, Resettable, Sum
from mmrl.monoid.laws import laws, products
from mmrl.monoid.more import (
    EWMA,
    Decay,
    LogSumExp,
    LongMoments,
    MatrixAffine,
    Max,
    Moments,
    TopK,
    Window,
)

__all__ = [
    "EWMA",
    "Affine",
    "Decay",
    "LogSumExp",
    "LongMoments",
    "MatrixAffine",
    "Max",
    "Moments",
    "Monoid",
    "Product",
    "Resettable",
    "Sum",
    "TopK",
    "Window",
    "laws",
    "products",
]
