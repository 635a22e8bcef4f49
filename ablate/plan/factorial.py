"""Two-level designs: full factorials, regular fractions, Plackett-Burman designs.

+1 keeps a factor at its baseline value, -1 takes it out. Signs are chosen so that no fraction holds the row with
everything out, which is no loss at all, and, where that can be had too, not the one with everything in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import xor

LETTERS = "ABCDEFGHJKLMNOPQRSTUVWXYZ"
ROMAN = {3: "III", 4: "IV", 5: "V", 6: "VI", 7: "VII", 8: "VIII", 9: "IX", 10: "X", 11: "XI", 12: "XII"}

GENERATORS: dict[tuple[int, int], str] = {
    (5, 2): "D=AB E=AC",
    (6, 2): "E=ABC F=BCD",
    (6, 3): "D=AB E=AC F=BC",
    (7, 2): "F=ABCD G=ABDE",
    (7, 3): "E=ABC F=BCD G=ACD",
    (7, 4): "D=AB E=AC F=BC G=ABC",
    (8, 2): "G=ABCD H=ABEF",
    (8, 3): "F=ABC G=ABD H=BCDE",
    (8, 4): "E=BCD F=ACD G=ABC H=ABD",
    (9, 2): "H=ACDFG J=BCEFG",
    (9, 3): "G=ABCD H=ACEF J=CDEF",
    (9, 4): "F=BCDE G=ACDE H=ABDE J=ABCE",
    (9, 5): "E=ABC F=BCD G=ACD H=ABD J=ABCD",
    (10, 3): "H=ABCG J=BCDE K=ACDF",
    (10, 4): "G=BCDF H=ACDF J=ABDE K=ABCE",
    (10, 5): "F=ABCD G=ABCE H=ABDE J=ACDE K=BCDE",
    (10, 6): "E=ABC F=BCD G=ACD H=ABD J=ABCD K=AB",
    (11, 4): "H=ABCG J=BCDE K=ACDF L=ABCDEFG",
    (11, 5): "G=CDE H=ABCD J=ABF K=BDEF L=ADEF",
    (11, 6): "F=ABC G=BCD H=CDE J=ACD K=ADE L=BDE",
    (11, 7): "E=ABC F=BCD G=ACD H=ABD J=ABCD K=AB L=AC",
}
"""Generators of the 2^(k-p) fraction, by (k, p). Box, Hunter and Hunter, Statistics for Experimenters (1978), table
12.15; Montgomery, Design and Analysis of Experiments, table 8.14. The half fraction, p = 1, is the product of all."""

FIRST_ROWS = {
    4: "++-",
    8: "+++-+--",
    12: "++-+++---+-",
    16: "++++-+-++--+---",
    20: "++--++++-+-+----++-",
    24: "+++++-+-++--++--+-+----",
    32: "----+-+-+++-++---+++++--++-+--+",
    36: "-+-+++---+++++-+++--+----+-+-++--+-",
}
"""First rows of the cyclic designs by number of arms. Plackett and Burman, Biometrika 33 (1946) 305-325."""

LEAST_SCREENED = 3
"""With fewer factors a screening design is the full factorial."""

Signs = tuple[int, ...]


@dataclass(frozen=True)
class Word:
    """A signed product of factors; bit i of `factors` is factor i."""

    factors: int
    sign: int = 1

    def __mul__(self, other: Word) -> Word:
        """The product; a factor times itself is 1."""
        return Word(self.factors ^ other.factors, self.sign * other.sign)

    def __len__(self) -> int:
        return self.factors.bit_count()

    def __str__(self) -> str:
        letters = "".join(letter for index, letter in enumerate(LETTERS) if self.factors >> index & 1)
        return f"{'-' if self.sign < 0 else ''}{letters}"

    def value(self, row: Sequence[int]) -> int:
        """Its value in a row of signs."""
        minus = sum(sign < 0 for index, sign in enumerate(row) if self.factors >> index & 1)
        return -self.sign if minus % 2 else self.sign


@dataclass(frozen=True)
class Fraction:
    """A regular two-level design of `size` factors: the last ones are products of the first.

    Attributes:
        products: for each of the last factors the signed word that it equals; none for a full factorial.
    """

    size: int
    products: tuple[Word, ...] = ()

    @property
    def base(self) -> int:
        """How many factors vary freely."""
        return self.size - len(self.products)

    def rows(self) -> Iterator[Signs]:
        """Every row, the first factor changing fastest."""
        for signs in itertools.product((1, -1), repeat=self.base):
            free = signs[::-1]
            yield free + tuple(word.value(free) for word in self.products)

    @cached_property
    def defining(self) -> tuple[Word, ...]:
        """The words that are 1 in every row: all products of generators."""
        generators = [
            Word(word.factors ^ 1 << self.base + index, word.sign) for index, word in enumerate(self.products)
        ]
        subsets = itertools.chain.from_iterable(
            itertools.combinations(generators, count) for count in range(1, len(generators) + 1)
        )
        return tuple(reduce(Word.__mul__, subset) for subset in subsets)

    @property
    def resolution(self) -> int:
        """Length of the shortest defining word; one more than there are factors for a full factorial."""
        return min(map(len, self.defining), default=self.size + 1)

    def generators(self) -> str:
        """The generators as they are written: `E = -ABC, F = BCD`."""
        return ", ".join(f"{LETTERS[self.base + index]} = {word}" for index, word in enumerate(self.products))

    def aliases(self, order: int = 2) -> list[str]:
        """Effects of up to `order` factors that cannot be told apart: `AB = -CE`."""
        effects = sorted(
            (Word(sum(1 << index for index in chosen)) for count in range(1, order + 1)
             for chosen in itertools.combinations(range(self.size), count)),
            key=lambda word: (len(word), str(word)),
        )  # fmt: skip
        told: set[int] = set()
        found = []
        for effect in effects:
            others = [effect * word for word in self.defining]
            short = sorted(
                (word for word in others if 0 < len(word) <= order), key=lambda word: (len(word), word.factors)
            )
            if short and effect.factors not in told:
                told |= {effect.factors, *(word.factors for word in short)}
                found.append(" = ".join(map(str, (effect, *short))))
        return found


def _signed(size: int, products: Sequence[int]) -> Fraction:
    """The fraction with those signs of its products that leave out all -, and all + where that can be had."""
    fractions = [
        Fraction(size, tuple(map(Word, products, signs)))
        for minus in range(len(products) + 1)
        for chosen in itertools.combinations(range(len(products)), minus)
        for signs in [[-1 if index in chosen else 1 for index in range(len(products))]]
    ]

    def holds(fraction: Fraction, sign: int) -> bool:
        return all(word.value([sign] * size) == sign for word in fraction.products)

    return min(fractions, key=lambda fraction: (holds(fraction, -1), holds(fraction, 1)))


def fractions(size: int) -> list[Fraction]:
    """The regular fractions of so many factors that there are, the smallest first."""
    found = []
    for (factors, _), text in sorted(GENERATORS.items(), key=lambda item: -item[0][1]):
        if factors == size:
            words = [part.partition("=")[2] for part in text.split()]
            products = [reduce(xor, (1 << LETTERS.index(letter) for letter in word)) for word in words]
            found.append(_signed(size, products))
    if size >= 3:
        found.append(_signed(size, [(1 << size - 1) - 1]))
    return found


def plackett_burman(size: int) -> list[Signs] | None:
    """A Plackett-Burman design for so many factors in the fewest arms; None where there is none."""
    arms = next((count for count in FIRST_ROWS if count > size), None)
    if arms is None or size < LEAST_SCREENED:
        return None
    first = [1 if sign == "+" else -1 for sign in FIRST_ROWS[arms]]
    square = [(first[-shift:] + first[:-shift])[:size] for shift in range(arms - 1)]
    square.append([-1] * size if sum(first) > 0 else [1] * size)
    chosen = itertools.chain.from_iterable(itertools.combinations(range(size), count) for count in range(size + 1))
    second = None
    for flipped in chosen:
        rows = [tuple(-sign if index in flipped else sign for index, sign in enumerate(row)) for row in square]
        sums = {sum(row) for row in rows}
        if not sums & {-size, size}:
            return rows
        if second is None and -size not in sums:
            second = rows
    return second
