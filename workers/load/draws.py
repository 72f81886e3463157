"""Random draws that come out the same for the same seed, on every machine and in every version of Python. Pure.

The bits are BLAKE2b of the seed and a counter; the distributions are the textbook ones, named at each method. (`random.Random`
promises the same numbers between versions for `random()` alone, and a plan must be the same load wherever it is made.)
"""

from __future__ import annotations

import hashlib
import math
import struct

_FRACTION = 2.0**-53
_EIGHT = struct.Struct("<8Q")


class Draws:
    """One sequence of draws. What is drawn for its own sake gets a seed of its own, so that one does not shift another."""

    def __init__(self, seed: str) -> None:
        self._seed = seed.encode()
        self._block = 0
        self._ready: list[float] = []

    def uniform(self) -> float:
        """From 0 up to, not including, 1; 53 random bits."""
        if not self._ready:
            digest = hashlib.blake2b(self._seed, salt=self._block.to_bytes(8, "little"), digest_size=64).digest()
            self._ready = [(bits >> 11) * _FRACTION for bits in _EIGHT.unpack(digest)]
            self._block += 1
        return self._ready.pop()

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.uniform()

    def whole(self, low: int, high: int) -> int:
        """Both ends included."""
        return low + int(self.uniform() * (high - low + 1))

    def exponential(self) -> float:
        """Mean 1; by inversion."""
        return -math.log1p(-self.uniform())

    def normal(self) -> float:
        """Mean 0, deviation 1; Box and Muller's."""
        radius = math.sqrt(-2.0 * math.log1p(-self.uniform()))
        return radius * math.cos(2.0 * math.pi * self.uniform())

    def gamma(self, shape: float) -> float:
        """Mean `shape`, scale 1; Marsaglia and Tsang (2000), below a shape of 1 with their boost."""
        if shape < 1.0:
            return self.gamma(shape + 1.0) * math.pow(1.0 - self.uniform(), 1.0 / shape)
        d = shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self.normal()
            v = (1.0 + c * x) ** 3
            if v > 0.0 and math.log1p(-self.uniform()) < 0.5 * x * x + d - d * v + d * math.log(v):
                return d * v
