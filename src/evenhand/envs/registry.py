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
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from evenhand.envs.gym.conversions import Registered
from evenhand.envs.gym.failures import blamed
from evenhand.errors import InputError

if TYPE_CHECKING:
    import evenhand.envs.core
    import evenhand.envs.gym.host_env

NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Domain:
    """One of our environments, and what is to be known of it before it is made."""

    target: str
    """`module:name` of a class or function that makes a pure environment, a `HostEnv` or a `gymnasium.Env`."""
    about: str
    settings: tuple[str, ...] = ()
    """`module:name` of the dataclasses that hold its settings, if not the target itself."""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Other names of it, each with some of its settings."""
    backends: tuple[str, ...] = ()
    """What it can run on, by its setting `backend`; the usual one first."""
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Steps of a compiled training per core-second, by algorithm, as seen with both threads of a core busy."""
    calibration: str | None = None
    """`module:name` of a function that compares its simulator with the real thing (see `evenhand calibrate`)."""
    doubts: str | None = None
    """`module:name` of a function that says which test episodes are not to be trusted, from facts by policy."""
    revision: int = 1
    """Raised when the same settings lead to other numbers: studies then do not take old results for new ones."""

    def backend(self, arguments: Mapping[str, Any]) -> str | None:
        """What it runs on with these settings; None if there is no choice."""
        return str(arguments.get("backend", self.backends[0])) if self.backends else None


DOMAINS: dict[str, Domain] = {
    "species": Domain(
        target="evenhand.envs.species:Species",
        about="sea otters and the abalone they eat: protect both",
        settings=("evenhand.envs.species.env:Species",),
        speeds={"ppo": 75_000.0, "a2c": 160_000.0, "dqn": 20_000.0},
    ),
    "traffic": Domain(
        target="evenhand.envs.traffic.env:TrafficEnv",
        about="the lights of a junction with four arms, in SUMO",
        variants={
            "traffic-day": {"demand": "day"},
            "traffic-literal": {"timing": "literal"},
            "traffic-authors": {"timing": "authors"},
            "traffic-standin": {"backend": "standin"},
        },
        backends=("sumo", "standin"),
        speeds={"ppo": 20_000.0, "a2c": 21_000.0, "dqn": 6_500.0},
        calibration="evenhand.envs.traffic.calibration:calibrate",
    ),
    "datacenter": Domain(
        target="evenhand.envs.datacenter.backends:datacenter",
        about="how fast each host of a data centre may send",
        settings=("evenhand.envs.datacenter.env:Datacenter", "evenhand.envs.datacenter.backends:Backend"),
        variants={"datacenter-emulated": {"backend": "emulated"}},
        backends=("simulated", "emulated"),
        speeds={"ppo": 28_000.0, "a2c": 60_000.0},
        calibration="evenhand.envs.datacenter.calibration:calibrate",
        doubts="evenhand.envs.datacenter.trust:doubts",
    ),
}
ARGUMENTS_OF_MAKE = ("max_episode_steps",)
"""Understood by Gymnasium for every environment."""
OLD_GYM = ("GymV21Environment-v0", "GymV26Environment-v0")
"""Make any environment of the library before Gymnasium, by the name in their settings."""


def register_domain(name: str, domain: Domain) -> None:
    """Add an environment of your own under a short name, for this process and those that it starts."""
    if DOMAINS.get(name) == domain:
        return
    if _domain_and_settings(name) is not None:
        raise InputError(f"there is an environment {name!r} already: choose another name.")
    DOMAINS[name] = domain


def domain_of(env: str | None) -> Domain | None:
    """What is declared of one of ours, by any of its names; None for other people's."""
    found = None if env is None else _domain_and_settings(env)
    return None if found is None else DOMAINS[found[0]]


def doubts_of(env: str | None, facts: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Why test episodes of an environment are not to be trusted, in sentences. facts: means, by policy."""
    domain = domain_of(env)
    return loaded(domain.doubts)(facts) if domain is not None and domain.doubts is not None else []


def loaded(target: str) -> Any:
    """What `module:name` stands for."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _domain_and_settings(env: str) -> tuple[str, Mapping[str, Any]] | None:
    """The short name of one of ours, from any of its names, and the settings that this name stands for.

    After `module:`, a name that Gymnasium knows is meant: the module may have registered another one there.
    """
    import gymnasium

    module, _, name = env.rpartition(":")
    if module and name in gymnasium.registry:
        return None
    name = name.removeprefix("evenhand/").removesuffix("-v0") if name.startswith("evenhand/") else name
    for own, domain in DOMAINS.items():
        if name == own or name in domain.variants:
            return own, domain.variants.get(name, NONE)
    return None


def known() -> list[tuple[str, str]]:
    """Our environments and their variants: names and one-line descriptions."""
    variants = [
        (variant, f"the same as {name} with {', '.join(f'{key}={value}' for key, value in settings.items())}")
        for name, domain in DOMAINS.items()
        for variant, settings in domain.variants.items()
    ]
    return [(name, domain.about) for name, domain in DOMAINS.items()] + variants


def resolve(
    env: Any, arguments: Mapping[str, Any] = NONE
) -> evenhand.envs.core.PureEnv | evenhand.envs.gym.host_env.HostEnv:
    """An environment from its name, from a function that makes it, or as it is.

    env: one of ours ("species", also as "evenhand/species-v0", or a variant such as "traffic-day"); any name registered
        with Gymnasium or MO-Gymnasium; "module:name", any of these after importing the module, which may register it; a
        function or class that gives a `gymnasium.Env`; a pure environment; a `HostEnv`.
    arguments: handed to the environment when it is made.
    """
    import gymnasium

    from evenhand.envs.gym.host_env import HostEnv

    name, make = factory(env, arguments)
    made = call(name, make)
    # A Gymnasium environment with `objectives` looks like a pure one, so that this is asked first.
    return HostEnv.from_example(made, make, name) if isinstance(made, gymnasium.Env) else made


def factory(env: Any, arguments: Mapping[str, Any] = NONE) -> tuple[str, Callable[[], Any]]:
    """The name of an environment, and what makes it; nothing is made yet."""
    if isinstance(env, str):
        import_named(env)
        own = _domain_and_settings(env)
        if own is None:
            return _registered(env, arguments)
        name, settings = own
        return name, _with_arguments(name, loaded(DOMAINS[name].target), {**settings, **arguments})
    if "gymnasium" in sys.modules and isinstance(env, sys.modules["gymnasium"].Env):
        raise InputError(
            f"give a function or class that makes the environment, not a {type(env).__name__} already made: "
            "several of them are run at once."
        )
    from evenhand.envs.core import PureEnv
    from evenhand.envs.gym.host_env import HostEnv

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
    from evenhand.envs.gym.host_env import HostEnv

    with blamed(f"{name} could not be made"):
        made = make()
    if not isinstance(made, gymnasium.Env | HostEnv | PureEnv) or isinstance(made, type):
        raise InputError(f"{name} should make a gymnasium.Env or a pure environment, but made {_a(made)}.")
    pure = made.as_pure() if hasattr(made, "as_pure") else None  # some of ours are both
    return made if pure is None else pure


def _with_arguments(name: str, make: Callable[..., Any], arguments: Mapping[str, Any]) -> Callable[[], Any]:
    _check_arguments(name, make, arguments)
    return functools.partial(make, **arguments) if arguments else make


def _registered(name: str, arguments: Mapping[str, Any]) -> tuple[str, Callable[[], Any]]:
    import gymnasium
    from gymnasium.envs.registration import load_env_creator

    name = name.rpartition(":")[2]
    spec = gymnasium.registry.get(name)
    if spec is None and _mo_gymnasium():
        spec = gymnasium.registry.get(name)
    if spec is None:
        ours = [alias for own, _ in known() for alias in (own, f"evenhand/{own}-v0")]
        raise InputError(
            f"no environment is called {name!r}{_nearest(name, [*ours, *gymnasium.registry])}; ours are "
            f"{_listed(DOMAINS)}, and others may need the module that registers them, as in `module:name`."
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


def import_named(env: str) -> None:
    """Import the module of `module:name`, which a person has said; it may register more than environments."""
    module, _, name = env.rpartition(":")
    if module:
        import_module(module, name)


def import_module(module: str, name: str) -> None:
    """Import what a person says registers an environment; an empty name stands for one that is not known yet."""
    duty = f", which should register {name!r}" if name else ""
    if not all(part.isidentifier() for part in module.split(".")):
        raise InputError(
            f"{module!r} is no name of a module{duty}: give it as Python imports it, as in my_package.my_module."
        )
    with blamed(f"the module {module!r}{duty and f'{duty},'} cannot be imported"):
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
    except Exception as error:
        raise InputError(f"MO-Gymnasium is installed, but cannot be imported: {error}.") from error
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
