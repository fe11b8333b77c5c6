"""A planning demo, `python -m evenhand.demo`: who is served by a vehicle that may look after anyone, or everyone."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from evenhand.errors import InputError
from evenhand.exact import examples
from evenhand.exact.solve import solve
from evenhand.metrics import price_of_fairness
from evenhand.report import draw_comparison, remarks, who_gets_what
from evenhand.welfare import welfare

SIDE, USERS, SEED, GAMMA = 20, 4, 3, 0.99
PICTURE = Path("demo") / "who-gets-what.png"


def main() -> int:
    """Solve, print the table, draw the picture, and say in words what they show."""
    console = Console(highlight=False)
    model = examples.grid(side=SIDE, objectives=USERS, seed=SEED)
    ggf = welfare("ggf", USERS)
    console.print("[bold]One vehicle, four users: where should it go?")
    console.print(
        f"A {SIDE} × {SIDE} grid, a user in each of {USERS} places, and better service the nearer the vehicle is. "
        "The utilitarian optimum maximises the sum of what they get, the fair one the generalized Gini welfare.\n"
    )
    fair = solve(model, ggf, gamma=GAMMA)
    utilitarian = solve(model, "utilitarian", gamma=GAMMA)
    console.print(who_gets_what(ggf, fair, utilitarian))
    best, worst = utilitarian.returns.argmax(), utilitarian.returns.argmin()
    console.print(
        f"The sum is largest if the vehicle stays with user {best + 1}; user {worst + 1} then gets next to nothing. "
        f"The fair policy gives everyone at least {fair.returns.min():.1f}, which costs "
        f"{price_of_fairness(utilitarian.returns, fair.returns):.1%} of the sum."
    )
    for sentence in remarks(ggf, fair):
        console.print(sentence)
    try:
        PICTURE.parent.mkdir(exist_ok=True)
        draw_comparison(
            fair,
            utilitarian,
            PICTURE,
            name="fair (GGF)",
            measure=f"expected discounted return (γ = {GAMMA})",
        )
    except (InputError, OSError) as error:
        print(f"evenhand: error: no picture, {error}", file=sys.stderr)
        return 2
    console.print(f"\nThe picture: {PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
