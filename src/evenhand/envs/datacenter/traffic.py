"""Traffic matrices: who sends to whom, by the patterns that are usual for data centres or from a file of Iroko's.

A pattern is drawn with a JAX key and always has the same number of flows, so that it can be drawn in compiled code.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from evenhand.disk import read_text
from evenhand.envs.datacenter.topology import FatTree
from evenhand.errors import InputError
from evenhand.types import PRNGKey


class Flows(NamedTuple):
    """The source and the destination of each flow."""

    source: Int[Array | np.ndarray, " F"]
    destination: Int[Array | np.ndarray, " F"]


class Pattern(NamedTuple):
    """How to draw a matrix."""

    draw: Callable[[PRNGKey], Flows]
    random: bool
    """Whether another key gives another matrix."""


def matrix(text: str, tree: FatTree) -> Pattern | Flows:
    """What a text stands for: a pattern of `PATTERNS`, with its numbers after a colon, or else the name of a file."""
    name, _, numbers = text.partition(":")
    if name in PATTERNS:
        words = [word.strip() for word in numbers.split(",")] if numbers else []
        return PATTERNS[name](tree, text, words)
    if not Path(text).is_file():
        raise InputError(
            f"traffic must be {', '.join(EXAMPLES)}, or a file with the columns src and dst; there is no file {text!r}."
        )
    return read(text, tree)


# Patterns


def _stride(tree: FatTree, text: str, words: list[str]) -> Pattern:
    """Host i sends to host i + n."""
    (step,) = _whole(text, words, 1, "stride:4")
    if step % tree.hosts == 0:
        raise InputError(f"{text}: every host would send to itself.")
    source = np.arange(tree.hosts)
    return Pattern(lambda key: Flows(source, (source + step) % tree.hosts), random=False)


def _staggered(tree: FatTree, text: str, words: list[str]) -> Pattern:
    """To another host of the edge switch or of the pod with given probabilities, and else to any other host."""
    try:
        edge, pod = map(float, words)
    except ValueError:
        raise InputError(f"{text}: two probabilities are needed, as in staggered:0.2,0.3.") from None
    if not (edge >= 0 and pod >= 0 and edge + pod <= 1):
        raise InputError(f"{text}: the two probabilities must not be negative, nor exceed 1 together.")
    source = np.arange(tree.hosts)

    def draw(key: PRNGKey) -> Flows:
        near, who = jax.random.split(key)
        u = jax.random.uniform(near, (tree.hosts,))
        group = jnp.where(u < edge, tree.half, jnp.where(u < edge + pod, tree.hosts_of_pod, tree.hosts))
        first = source // group * group
        return Flows(source, first + (source - first + jax.random.randint(who, (tree.hosts,), 1, group)) % group)

    return Pattern(draw, random=True)


def _random(tree: FatTree, text: str, words: list[str]) -> Pattern:
    """Every host to any other one."""
    _whole(text, words, 0, "random")
    return _flows(tree, text, ["1"])


def _flows(tree: FatTree, text: str, words: list[str]) -> Pattern:
    """Every host to n different other ones."""
    (n,) = _whole(text, words, 1, "flows:2")
    if not 1 <= n < tree.hosts:
        raise InputError(f"{text}: a host can send to 1 … {tree.hosts - 1} others.")
    source = np.repeat(np.arange(tree.hosts), n)

    def draw(key: PRNGKey) -> Flows:
        luck = jax.random.uniform(key, (tree.hosts, tree.hosts - 1))
        further = 1 + jnp.argsort(luck, axis=1)[:, :n].reshape(-1)
        return Flows(source, (source + further) % tree.hosts)

    return Pattern(draw, random=True)


def _bijection(tree: FatTree, text: str, words: list[str]) -> Pattern:
    """Every host sends to one other and receives from one: each to the next in a random circle."""
    _whole(text, words, 0, "bijection")
    return _hotspot(tree, text, ["1", "1"])


def _hotspot(tree: FatTree, text: str, words: list[str]) -> Pattern:
    """A random circle, but to each of some hot hosts, equally spaced in it, those that come next send as well."""
    hot, senders = _whole(text, words or ["2", "3"], 2, "hotspot:2,3")
    if not (hot >= 1 and 1 <= senders < tree.hosts // hot):
        raise InputError(f"{text}: {tree.hosts} hosts are too few for {hot} hot ones with {senders} senders each.")
    place = np.arange(tree.hosts)
    block, within = np.divmod(place, tree.hosts // hot)
    towards = np.where((block < hot) & (within >= 1) & (within < senders), place - within, (place + 1) % tree.hosts)

    def draw(key: PRNGKey) -> Flows:
        circle = jax.random.permutation(key, tree.hosts)
        return Flows(place, jnp.zeros_like(circle).at[circle].set(circle[towards]))

    return Pattern(draw, random=True)


PATTERNS: Mapping[str, Callable[[FatTree, str, list[str]], Pattern]] = {
    "staggered": _staggered,
    "stride": _stride,
    "random": _random,
    "bijection": _bijection,
    "hotspot": _hotspot,
    "flows": _flows,
}
EXAMPLES = ("staggered:0.2,0.3", "stride:4", "random", "bijection", "hotspot:2,3", "flows:2")
"""One text for each pattern."""


def _whole(text: str, words: list[str], count: int, example: str) -> list[int]:
    if len(words) != count or not all(re.fullmatch(r"-?\d+", word) for word in words):
        needed = ("no numbers are", "one whole number is", "two whole numbers are")[count]
        raise InputError(f"{text}: {needed} needed, as in {example}.")
    return [int(word) for word in words]


# Files


def read(path: str, tree: FatTree) -> Flows:
    """A file of Iroko's: CSV with the columns src and dst; others are ignored.

    Addresses are 10.E.0.H: the host H = 1 … k/2 of the edge switch E = 1 … k²/2.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise InputError(f"the traffic matrix {path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise InputError(f"the traffic matrix {path} is not a text file in UTF-8.") from None
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    headings = reader.fieldnames = [name.strip() for name in reader.fieldnames or []]
    for name in ("src", "dst"):
        if name not in headings:
            raise InputError(f"{path}, line 1: there is no column {name!r}; a traffic matrix has src,dst and others.")
    pairs = []
    for row in reader:
        where = f"{path}, line {reader.line_num}"
        if None in row or None in row.values():
            raise InputError(f"{where}: there should be {len(headings)} values, one for each heading.")
        source, destination = (_host(where, name, row[name].strip(), tree) for name in ("src", "dst"))
        if source == destination:
            raise InputError(f"{where}: {row['src'].strip()} sends to itself.")
        pairs.append((source, destination))
    if not pairs:
        raise InputError(f"{path}: there are no flows, only headings.")
    return Flows(*np.array(pairs).T)


def _host(where: str, name: str, address: str, tree: FatTree) -> int:
    found = re.fullmatch(r"10\.(\d{1,3})\.0\.(\d{1,3})", address)
    edge, host = (int(part) for part in found.groups()) if found else (0, 0)
    if not (1 <= edge <= tree.edges and 1 <= host <= tree.half):
        raise InputError(
            f"{where}: there is no {name} {address!r}; hosts are 10.E.0.H with E = 1 … {tree.edges} and "
            f"H = 1 … {tree.half}."
        )
    return (edge - 1) * tree.half + host - 1
