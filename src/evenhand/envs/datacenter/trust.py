"""Whether an episode on the emulated network is to be trusted: what is measured of the machine, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

SENT, BEHIND = "sent / requested", "steps behind"
STILL, UNEVEN, LATE = "senders still", "rates uneven", "seconds late"
"""In summaries: what the senders sent of what they were asked for, steps in which that was too little, and the share of
the time in which they stood still; by how much the moments at which rates came differ (standard deviation, of a step),
and the seconds by which steps were begun anew because they came too late."""
DOUBTFUL = "not to be trusted"
"""In summaries, of an episode: 1 if it is not, else 0."""


class Limit(NamedTuple):
    """How a fact about an episode must be, and what is wrong where it is not."""

    bound: float
    least: bool
    reason: str
    """With the fact as a number to be formatted."""

    def kept(self, value: float) -> bool:
        """What is not a number is not kept."""
        return value >= self.bound if self.least else value <= self.bound


ENOUGH = 0.97
"""Of what they were asked to send, what the senders must send at least for a step to be what it should be."""
LIMITS: Mapping[str, Limit] = {
    SENT: Limit(ENOUGH, True, "only {:.1%} was sent of what was requested"),
    STILL: Limit(0.05, False, "the senders stood still for {:.0%} of the time"),
    UNEVEN: Limit(0.05, False, "the times at which rates came differ by {:.0%} of a step"),
    LATE: Limit(0.0, False, "rates came so late that steps were begun anew, {:.2g} s in all"),
}
"""Of the facts in the summary of an episode; `benchmarks/datacenter_load.py` shows what they tell apart."""


def reasons(facts: Mapping[str, float]) -> list[str]:
    """Why an episode is not to be trusted; nothing if it is, or if none of this is known of it."""
    return [
        limit.reason.format(facts[name])
        for name, limit in LIMITS.items()
        if name in facts and not limit.kept(facts[name])
    ]


def verdict(why: Sequence[str]) -> str:
    """In a sentence, for one episode."""
    return (
        f"not to be trusted: {', '.join(why)}. The machine is too busy or too slow for this network; repeat it when "
        "it has less to do."
    )


def doubts(facts: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What is to be said of test episodes for which the machine was too busy or too slow. facts: means, by policy."""
    said = []
    for name, known in facts.items():
        if (share := known.get(DOUBTFUL, 0.0)) > 0:
            which = "" if share == 1 else f" in {share:.0%} of the episodes"
            why = f" ({', '.join(reasons(known))})" if reasons(known) else ""
            said.append(f"{name}: {DOUBTFUL}{which}{why}.")
    if said:
        said.append("The machine was too busy or too slow for the network: repeat these when it has less to do.")
    return said
