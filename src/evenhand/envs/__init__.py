"""Environments: our own, which can be compiled, and those of other people, by name.

Importing this package does not import JAX; looking an environment up does.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from evenhand.errors import InputError

if TYPE_CHECKING:
    import evenhand.envs.core
    import evenhand.envs.host

__all__ = ["known", "resolve"]


class Own(NamedTuple):
    """One of our environments."""

    target: str
    """`module:name` of a class or function that makes a pure environment, a `HostEnv` or a `gymnasium.Env`."""
    about: str
    settings: tuple[str, ...] = ()
    """`module:name` of the dataclasses that hold its settings, if not the target itself."""


OWN = {
    "species": Own("evenhand.envs.species:Species", "sea otters and the abalone they eat: protect both"),
    "traffic": Own("evenhand.envs.traffic.env:TrafficEnv", "the lights of a junction with four arms, in SUMO"),
    "datacenter": Own(
        "evenhand.envs.datacenter.backends:datacenter",
        "how fast each host of a data centre may send",
        ("evenhand.envs.datacenter.env:Datacenter", "evenhand.envs.datacenter.backends:Backend"),
    ),
}
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "traffic-day": ("traffic", {"demand": "day"}),
    "traffic-literal": ("traffic", {"timing": "literal"}),
    "traffic-authors": ("traffic", {"timing": "authors"}),
    "traffic-standin": ("traffic", {"backend": "standin"}),
    "datacenter-emulated": ("datacenter", {"backend": "emulated"}),
}
"""Other names of our environments, with some of their settings."""
ARGUMENTS_OF_MAKE = ("max_episode_steps",)
"""Understood by Gymnasium for every environment."""
OLD_GYM = ("GymV21Environment-v0", "GymV26Environment-v0")
"""Make any environment of the library before Gymnasium, by the name in their settings."""
NONE: Mapping[str, Any] = MappingProxyType({})


def known() -> list[tuple[str, str]]:
    """Our environments and their variants: names and one-line descriptions."""
    variants = [
        (name, f"the same as {own} with {', '.join(f'{key}={value}' for key, value in settings.items())}")
        for name, (own, settings) in VARIANTS.items()
    ]
    return [(name, own.about) for name, own in OWN.items()] + variants


def resolve(env: Any, arguments: Mapping[str, Any] = NONE) -> evenhand.envs.core.PureEnv | evenhand.envs.host.HostEnv:
    """An environment from its name, from a function that makes it, or as it is.

    env: one of ours ("species", also as "evenhand/species-v0", or a variant such as "traffic-day"); any name registered
        with Gymnasium or MO-Gymnasium; "module:name", to import the module that registers it first; a function or
        class that gives a `gymnasium.Env`; a pure environment; a `HostEnv`.
    arguments: handed to the environment when it is made.
    """
    import gymnasium

    from evenhand.envs.host import HostEnv

    name, make = factory(env, arguments)
    made = call(name, make)
    # A Gymnasium environment with `objectives` looks like a pure one, so that this is asked first.
    if not isinstance(made, gymnasium.Env):
        return made
    pure = made.as_pure() if hasattr(made, "as_pure") else None  # some of ours are both
    return HostEnv.from_example(made, make, name) if pure is None else pure


def factory(env: Any, arguments: Mapping[str, Any] = NONE) -> tuple[str, Callable[[], Any]]:
    """The name of an environment, and what makes it; nothing is made yet."""
    if isinstance(env, str):
        name = env.removeprefix("evenhand/").removesuffix("-v0") if env.startswith("evenhand/") else env
        if name in VARIANTS:
            name, settings = VARIANTS[name]
            arguments = {**settings, **arguments}
        if name not in OWN:
            return _registered(env, arguments)
        module, _, attribute = OWN[name].target.partition(":")
        return name, _with_arguments(name, getattr(importlib.import_module(module), attribute), arguments)
    if "gymnasium" in sys.modules and isinstance(env, sys.modules["gymnasium"].Env):
        raise InputError(
            f"give a function or class that makes the environment, not a {type(env).__name__} already made: "
            "several of them are run at once."
        )
    from evenhand.envs.core import PureEnv
    from evenhand.envs.host import HostEnv

    if isinstance(env, HostEnv) or (isinstance(env, PureEnv) and not isinstance(env, type)):
        if arguments:
            raise InputError(f"the environment is already made: the arguments {_listed(arguments)} come too late.")
        return getattr(env, "name", type(env).__name__), lambda: env
    if callable(env):
        name = getattr(env, "__name__", type(env).__name__)
        return name, _with_arguments(name, env, arguments)
    raise InputError(
        f"an environment must be a name, a function that makes a gymnasium.Env, or a pure environment, not {env!r}."
    )


def call(name: str, make: Callable[[], Any]) -> Any:
    """A pure environment, a `HostEnv` or a `gymnasium.Env`, from what should make one."""
    import gymnasium

    from evenhand.envs.core import PureEnv
    from evenhand.envs.host import HostEnv
    from evenhand.envs.stepping import blamed

    with blamed(f"{name} could not be made"):
        made = make()
    if not isinstance(made, gymnasium.Env | HostEnv | PureEnv) or isinstance(made, type):
        raise InputError(f"{name} should make a gymnasium.Env or a pure environment, but made {_a(made)}.")
    return made


def _with_arguments(name: str, make: Callable[..., Any], arguments: Mapping[str, Any]) -> Callable[[], Any]:
    _check_arguments(name, make, arguments)
    return functools.partial(make, **arguments) if arguments else make


def _registered(name: str, arguments: Mapping[str, Any]) -> tuple[str, Callable[[], Any]]:
    import gymnasium
    from gymnasium.envs.registration import load_env_creator

    from evenhand.envs.stepping import Registered

    module, _, name = name.rpartition(":")
    if module:
        import_module(module, name)
    spec = gymnasium.registry.get(name)
    if spec is None and _mo_gymnasium():
        spec = gymnasium.registry.get(name)
    if spec is None:
        ours = [alias for own in (*OWN, *VARIANTS) for alias in (own, f"evenhand/{own}-v0")]
        raise InputError(
            f"no environment is called {name!r}{_nearest(name, [*ours, *gymnasium.registry])}; ours are "
            f"{_listed(OWN)}, and others may need the module that registers them, as in `module:name`."
        )
    try:
        entry = spec.entry_point
        creator = load_env_creator(entry) if isinstance(entry, str) else entry
    except Exception as error:
        raise InputError(f"{name} needs something that is not installed: {error}") from error
    if creator is None:
        raise InputError(f"{name} exists only as a vector environment, and evenhand runs single ones.")
    _check_arguments(name, creator, arguments, ARGUMENTS_OF_MAKE)
    return name, Registered(spec, dict(arguments))


def import_module(module: str, name: str) -> None:
    """Import what a person says registers an environment."""
    from evenhand.envs.stepping import blamed

    if not all(part.isidentifier() for part in module.split(".")):
        raise InputError(
            f"{module!r} is no name of a module, which should register {name!r}: give it as Python imports it, as in "
            "my_package.my_module."
        )
    with blamed(f"the module {module!r}, which should register {name!r}, cannot be imported"):
        importlib.import_module(module)


def module_to_import(env: str, arguments: Mapping[str, Any] = NONE) -> str | None:
    """The module that an environment's name asks to import, unless it is imported already."""
    names = (env, str(arguments.get("env_id", ""))) if env in OLD_GYM else (env,)
    modules = (name.rpartition(":")[0] for name in names)
    return next((module for module in modules if module and module not in sys.modules), None)


@contextmanager
def installed_only() -> Iterator[None]:
    """While open, nothing is imported from the current folder: it may have come with what is being read.

    An environment that is registered may still import what it needs, and a module of that name may lie there.
    """
    here, before = os.path.realpath("."), list(sys.path)
    sys.path[:] = [entry for entry in before if os.path.realpath(entry or ".") != here]
    try:
        yield
    finally:
        sys.path[:] = before + [entry for entry in sys.path if entry not in before]


def _mo_gymnasium() -> bool:
    """Fill the registry with MO-Gymnasium's environments, if it is installed."""
    try:
        importlib.import_module("mo_gymnasium")
    except ImportError:
        return False
    return True


def _check_arguments(
    name: str, make: Callable[..., Any], arguments: Mapping[str, Any], always: tuple[str, ...] = ()
) -> None:
    if not arguments:
        return
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # no signature to be had: the call itself will tell
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    accepted = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for argument in arguments:
        if argument not in accepted and argument not in always:
            raise InputError(
                f"{name} has no argument {argument!r}{_nearest(argument, accepted)}; "
                f"it accepts {_listed([*accepted, *always]) or 'none'}."
            )


def _a(thing: Any) -> str:
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"


def _nearest(word: str, words: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(words), n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
