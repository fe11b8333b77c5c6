"""The errors a person may meet: one sentence that says what was wrong and what was expected."""


class InputError(ValueError):
    """Something handed to evenhand cannot be used; the message says what, where and what to do about it."""


class IllConditioned(InputError):
    """Floating-point numbers cannot hold the answer: some transitions are too rare, or the chain mixes too slowly."""


class Infeasible(InputError):
    """The question has no answer: for example a welfare that needs positive returns where no policy gives them."""
