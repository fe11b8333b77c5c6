import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import evenhand as eh
from evenhand import cli, report
from evenhand.cli import bound as bound_command
from evenhand.cli import solve as solve_command
from evenhand.cli.model import GENERATORS
from evenhand.exact import examples
from evenhand.welfare import KNOWN
from processes import running

README = Path(__file__).parents[2] / "README.md"
PROGRAM = [sys.executable, "-m", "evenhand.cli"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, on a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def run(here, capsys):
    """The program in this process: its exit code, standard output and standard error."""

    def run(*words):
        try:
            code = cli.main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def one(here):
    examples.one_state().save("one.npz")
    return examples.one_state()


def refused(answer):
    """The sentence of an error, which must be the only thing said."""
    code, out, err = answer
    assert code == 2
    assert out == ""
    assert "Traceback" not in err
    match = re.fullmatch(r"evenhand: error: (.+)\n", err)
    assert match, err
    return match[1]


# The program as such


def test_the_installed_program_and_the_module_say_their_version():
    script = Path(sysconfig.get_path("scripts")) / "evenhand"
    for program in ([str(script)], PROGRAM):
        done = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
        assert done.stdout == f"evenhand {eh.__version__}\n"


def test_starting_imports_neither_matplotlib_nor_jax():
    check = "import sys, evenhand.cli; sys.exit(bool({'matplotlib', 'jax'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", check], check=True)


KINDS = [name for name, _, _ in GENERATORS.values()]


@pytest.mark.parametrize("page", ["", "solve", "bound", "model", *(f"model {kind}" for kind in KINDS)])
def test_every_page_of_help_teaches_with_an_example(run, page):
    code, out, err = run(*page.split(), "--help")
    assert (code, err) == (0, "")
    assert "For example" in out
    assert f"    evenhand {page}" in out or f"  evenhand {page}" in out


def test_no_command_at_all_gets_the_help(run):
    assert run() == run("--help")


def test_the_help_of_solve_names_every_welfare(run):
    _, out, _ = run("solve", "--help")
    for spelling, _ in KNOWN:
        assert re.search(rf"^    {spelling.partition(':')[0]}\b", out, re.MULTILINE)


# solve


def test_solve_shows_who_gets_what(run, one):
    code, out, err = run("solve", "one.npz", "--gamma", "0.5", "--welfare", "ggf:2")
    assert (code, err) == (0, "")
    rows = dict(re.findall(r"^ (\w[\w ]*?)  +(.*?) *$", out, re.MULTILINE))
    # By hand: (3, 0) and (0, 2) in shares 2/5 and 3/5 give 1.2 each per step, over 1 − γ; utilitarian takes (3, 0).
    assert rows["1"].split() == ["2.40000", "6.00000", "-3.60000"]
    assert rows["2"].split() == ["2.40000", "0.00000", "+2.40000"]
    assert rows["total"].split() == ["4.80000", "6.00000", "-1.20000"]
    assert rows["welfare"].split() == ["2.40000", "2.00000", "+0.40000"]
    assert rows["CV"].split() == ["0.0000", "1.0000", "-1.0000"]
    assert rows["Gini"].split() == ["0.0000", "0.5000", "-0.5000"]
    assert rows["price of fairness"] == "20.00%"
    assert "Proven: no policy whatsoever has a welfare above 2.4 + " in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("criterion", [["--gamma", "0.9"], ["--average"]])
def test_json_is_what_the_library_says(run, here, criterion):
    examples.garnet(20, 3, 3, seed=1).save("m.npz")
    model = eh.MOMDP.load("m.npz")
    asked = {"criterion": "average"} if criterion == ["--average"] else {"gamma": 0.9}
    fair, best_sum = eh.solve(model, "ggf", **asked), eh.solve(model, "utilitarian", **asked)
    code, out, err = run("solve", "m.npz", *criterion, "--json")
    said = json.loads(out)
    assert (code, err) == (0, "")
    assert said["model"] == {"file": "m.npz", "states": 20, "actions": 3, "users": 3}
    assert (said["welfare"], said["gamma"]) == ("ggf:2", asked.get("gamma"))
    assert said["fair"]["returns"] == fair.returns.tolist()
    assert said["fair"]["weights"] == fair.weights.tolist()
    assert (said["fair"]["welfare"], said["fair"]["gap"]) == (fair.welfare, fair.gap)
    assert said["utilitarian"]["returns"] == best_sum.returns.tolist()
    assert said["utilitarian"]["welfare"] == eh.welfare("ggf", 3).value(best_sum.returns)
    assert said["price_of_fairness"] == eh.metrics.price_of_fairness(best_sum.returns, fair.returns)


def test_json_has_null_for_what_is_not_a_number(run, here):
    eh.MOMDP([[[1.0]]], [[[1, -1]]], [1]).save("zero-sum.npz")
    _, out, _ = run("solve", "zero-sum.npz", "--gamma", "0.5", "--json")
    fair = json.loads(out, parse_constant=pytest.fail)["fair"]
    assert fair["cv"] is None
    assert fair["gini"] is None
    code, out, _ = run("solve", "zero-sum.npz", "--gamma", "0.5")
    assert code == 0
    assert "Gini" not in out


def test_a_welfare_that_is_not_defined_for_the_utilitarian_returns_is_left_open(run, one):
    _, out, _ = run("solve", "one.npz", "--gamma", "0.5", "--welfare", "nash")
    assert re.search(r"^ welfare +[-\d.]+ +– *$", out, re.MULTILINE)
    _, out, _ = run("solve", "one.npz", "--gamma", "0.5", "--welfare", "nash", "--json")
    assert json.loads(out)["utilitarian"]["welfare"] is None


@pytest.mark.parametrize("options", [["--no-compare"], ["--welfare", "utilitarian"], ["--welfare", "alpha:0"]])
def test_the_comparison_can_be_left_out_and_is_where_it_would_be_with_itself(run, one, options):
    _, out, _ = run("solve", "one.npz", "--gamma", "0", *options)
    assert "difference" not in out
    assert "price of fairness" not in out
    _, out, _ = run("solve", "one.npz", "--gamma", "0", *options, "--json")
    assert json.loads(out)["utilitarian"] is None


@pytest.mark.parametrize("method", ["lp", "columns"])
def test_the_method_and_tolerance_are_passed_on(run, here, method):
    examples.garnet(20, 3, 3, seed=1).save("m.npz")
    _, out, _ = run("solve", "m.npz", "--gamma", "0.9", "--method", method, "--tol", "1e-3", "--json")
    said = json.loads(out)["fair"]
    assert said["method"] == method
    assert said["gap"] <= 1e-3 / (1 - 0.9)


def test_leximin_is_not_claimed_to_maximise_its_stand_in(run, here):
    # The stand-in of the second action is larger; the first is better for the worst-off user.
    eh.MOMDP(np.ones((2, 1, 1)), [[[1, 1], [0.99, 1000]]], [1]).save("m.npz")
    _, out, _ = run("solve", "m.npz", "--gamma", "0", "--welfare", "leximin")
    assert "welfare above" not in out
    assert "no policy whatsoever gives the worst-off user more" in out


def test_the_policy_is_written_for_numpy_to_load(run, here):
    examples.garnet(20, 3, 3, seed=1).save("m.npz")
    model = eh.MOMDP.load("m.npz")
    solution = eh.solve(model, "ggf", gamma=0.9)
    code, out, _ = run("solve", "m.npz", "--gamma", "0.9", "-o", "policy.npz")
    assert code == 0
    assert "Wrote policy.npz" in out
    with np.load("policy.npz", allow_pickle=False) as file:
        assert sorted(file.files) == ["gap", "policy", "returns", "weights", "welfare"]
        np.testing.assert_array_equal(file["policy"], solution.policy)
        np.testing.assert_array_equal(file["returns"], solution.returns)
        np.testing.assert_array_equal(file["weights"], solution.weights)
        assert (float(file["welfare"]), float(file["gap"])) == (solution.welfare, solution.gap)
        np.testing.assert_allclose(eh.evaluate(model, file["policy"], gamma=0.9), file["returns"])
    code, out, err = run("solve", "m.npz", "--gamma", "0.9", "--json", "--output", "policy.npz")
    assert json.loads(out)["output"] == "policy.npz"
    assert err == "evenhand: Replaced policy.npz (policy, returns, welfare, gap, weights).\n"
    assert sorted(os.listdir()) == ["m.npz", "policy.npz"]


def test_a_mixture_is_explained_and_written(run, here):
    examples.stay_or_leave().save("m.npz")
    code, out, _ = run("solve", "m.npz", "--average", "-o", "mixture.npz")
    assert code == 0
    assert "This is a mixture" in " ".join(out.split())
    with np.load("mixture.npz", allow_pickle=False) as file:
        assert {"shares", "policies"} < set(file.files)
        mixture = eh.Mixture(file["shares"], file["policies"])
        np.testing.assert_allclose(file["returns"], [0.5, 0.5])
    np.testing.assert_allclose(eh.evaluate(examples.stay_or_leave(), mixture, criterion="average"), [0.5, 0.5])
    _, out, _ = run("solve", "m.npz", "--average", "--json")
    assert json.loads(out)["fair"]["mixture_of"] == 2


def test_a_failed_write_leaves_the_old_file(run, one, monkeypatch):
    Path("policy.npz").write_text("old")

    def disk_full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", disk_full)
    assert "No space left" in refused(run("solve", "one.npz", "--gamma", "0.5", "-o", "policy.npz"))
    assert Path("policy.npz").read_text() == "old"
    assert sorted(os.listdir()) == ["one.npz", "policy.npz"]


def test_a_link_that_leads_to_itself_is_no_output(run, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    code, _, err = run("model", "stay-or-leave", "-o", str(loop))
    assert code == 2
    assert err.startswith("evenhand: error: ")
    assert "loop: Too many levels of symbolic links." in " ".join(err.split())
    assert loop.is_symlink()


def test_a_link_to_the_output_stays_a_link(run, one):
    Path("real.npz").touch()
    Path("link.npz").symlink_to("real.npz")
    assert run("solve", "one.npz", "--gamma", "0.5", "-o", "link.npz")[0] == 0
    assert Path("link.npz").is_symlink()
    assert "policy" in np.load("real.npz", allow_pickle=False)


def test_names_of_files_are_shown_as_they_are(run, one):
    name = "[red]" + "x" * 90 + ".npz"
    Path("one.npz").rename(name)
    _, out, _ = run("solve", name, "--gamma", "0.5", "-o", f"{name}.out")
    assert f"{name}: 1 state" in out
    assert f"Wrote {name}.out (" in out
    _, out, _ = run("model", "one-state", "-o", f"{name}.again")
    assert out.startswith(f"Wrote {name}.again: 1 state, 2 actions, 2 users, ")


@pytest.mark.parametrize("name", ["one.npz", "./one.npz", "soft.npz", "hard.npz"])
def test_the_model_is_never_overwritten(run, one, name):
    Path("soft.npz").symlink_to("one.npz")
    Path("hard.npz").hardlink_to("one.npz")
    before = Path("one.npz").read_bytes()
    assert "the model file itself" in refused(run("solve", "one.npz", "--gamma", "0.5", "-o", name))
    assert Path("one.npz").read_bytes() == before


# bound


def test_bound_shows_where_the_published_bound_fails(run, here):
    examples.chain().save("chain.npz")
    code, out, err = run("bound", "chain.npz", "--gammas", "0.9,0.99,0.9999")
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines() if re.match(r" 0\.9", line)]
    assert [row[:3] for row in rows] == [
        ["0.9", "0.401", "0.4✗"],
        ["0.99", "0.401", "0.0326✗"],
        ["0.9999", "0", "0.00032"],
    ]
    assert "✗ fails" in out
    assert "Kakade" not in out.partition("true loss:")[0]  # nowhere defined on this model
    assert "…" not in out


def test_bound_marks_what_lies_outside_the_theorem(run, here):
    eh.MOMDP([np.eye(2)], [[[1, 0]], [[0, 1]]], [0.5, 0.5]).save("apart.npz")
    _, out, _ = run("bound", "apart.npz", "--gammas", "0.5")
    assert "0†" in out
    assert "† outside the theorem" in out
    assert "✗" not in out


def test_bound_fits_80_columns_with_every_column(run, here):
    examples.garnet(30, 2, 1).save("m.npz")
    _, out, _ = run("bound", "m.npz", "--gammas", "0.9,0.99")
    assert "Kakade" in out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_bound_as_json_is_what_the_library_says(run, here):
    examples.chain().save("chain.npz")
    model = eh.MOMDP.load("chain.npz")
    code, out, err = run("bound", "chain.npz", "--gammas", " 0.5, 0.99", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert [row["gamma"] for row in said["bounds"]] == [0.5, 0.99]
    bound = eh.error_bound(model, "ggf", 0.99)
    for name, _ in report.BOUNDS:
        assert said["bounds"][1][name] == getattr(bound, name)
    assert said["bounds"][1]["applicable"] is True
    assert said["bounds"][1]["published_violated"] is True
    assert said["bounds"][0]["published"] is None
    assert said["bounds"][0]["published_violated"] is False
    assert said["average"]["welfare"] == bound.average.welfare


def test_no_failure_is_claimed_for_rounding(here):
    for gamma in (0.0, 0.5, 0.999):
        bound = eh.error_bound(examples.one_state(), "ggf", gamma)
        assert not report.violated(bound, "published")


# model


@pytest.mark.parametrize("options", GENERATORS)
def test_models_are_those_of_the_library(run, here, options):
    name, build, tried = GENERATORS[options]
    assert {field.name: field.default for field in fields(options)} == {
        parameter.name: parameter.default for parameter in inspect.signature(build).parameters.values()
    }
    code, out, err = run("model", name, "-o", "m.npz")
    model = build()
    assert (code, err) == (0, "")
    assert "Wrote m.npz: " in out
    for count, what in ((model.S, "state"), (model.A, "action"), (model.D, "user")):
        assert f"{count:,} {what}" in out
    written = eh.MOMDP.load("m.npz")
    assert abs(written.transitions - model.transitions).max() < 1e-15
    np.testing.assert_array_equal(written.rewards, model.rewards)
    np.testing.assert_allclose(written.initial, model.initial, rtol=1e-12)
    assert run("model", name, *tried.split(), "--output", "tried.npz")[0] == 0


def test_options_of_models_are_passed_on(run, here):
    assert run("model", "garnet", "--states", 7, "--actions", 2, "--objectives", 3, "--seed", 5, "-o", "m.npz")[0] == 0
    np.testing.assert_array_equal(eh.MOMDP.load("m.npz").rewards, examples.garnet(7, 2, 3, seed=5).rewards)
    assert run("model", "two-homes", "--with-refuge", "--start", 2, "-o", "t.npz")[0] == 0
    np.testing.assert_array_equal(eh.MOMDP.load("t.npz").initial, [0, 0, 1])


def test_an_existing_model_is_replaced_by_force_only(run, one):
    before = Path("one.npz").read_bytes()
    assert refused(run("model", "grid", "-o", "one.npz")) == "one.npz exists already: --force replaces it."
    assert Path("one.npz").read_bytes() == before
    assert run("model", "stay-or-leave", "-o", "one.npz", "--force")[0] == 0
    assert eh.MOMDP.load("one.npz").S == 2


# What can go wrong


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("solve one.npz", "discounted ones, as in --gamma 0.99, or --average"),
        ("solve one.npz --gamma 0.9 --average", "give one of them"),
        ("solve one.npz --gamma 1", "--gamma must lie in [0, 1), not 1"),
        ("solve one.npz --gamma -0.1", "--gamma must lie in [0, 1), not -0.1"),
        ("solve one.npz --gamma nan", "--gamma must lie in [0, 1), not nan"),
        ("solve one.npz --gamma 0.9 --tol 0", "--tol must be positive"),
        ("solve one.npz --gamma 0.9 --tol nan", "--tol must be positive"),
        ("solve one.npz --gamma 0.9 --welfare gff", "did you mean 'ggf'?"),
        ("solve one.npz --gamma 0.9 --welfare ggf:1,2", "must not increase"),
        ("solve one.npz --gamma 0.9 --welfare ggf:3,2,1", "3 weights, but there are 2 users"),
        ("solve one.npz --gamma 0.9 --welfare nash --method lp", "not one linear program"),
        ("solve none.npz --gamma 0.9", "there is no file none.npz"),
        ("solve . --gamma 0.9", "there is no file ."),
        ("solve text.npz --gamma 0.9", "cannot be read as an .npz file"),
        ("solve other.npz --gamma 0.9", "holds no initial"),
        ("solve losses.npz --gamma 0.9 --welfare nash", "needs positive returns"),
        ("solve one.npz --gamma 0.9 -o none/policy.npz", "there is no folder none"),
        ("solve one.npz --gamma 0.9 -o folder", "folder is not a file"),
        ("solve one.npz --gamma 0.9 -o /dev/null", "/dev/null is not a file"),
        ("bound one.npz --gammas 0.9,1", "must lie in [0, 1), not 1"),
        ("bound one.npz --gammas 0.9,,0.99", "but '' is none"),
        ("bound one.npz --gammas x", "but 'x' is none"),
        ("bound one.npz --gammas 0.9 --welfare nash", "not for nash"),
        ("bound none.npz --gammas 0.9", "there is no file none.npz"),
        ("model grid --side 0 -o m.npz", "side must be at least 1"),
        ("model grid --slip 2 -o m.npz", "slip is a probability"),
        ("model garnet --seed -1 -o m.npz", "seed must not be negative"),
        ("model garnet --states 99999999999999999999 -o m.npz", ""),
        ("model example --gamma 1 -o m.npz", "must lie in (0, 1)"),
        ("model two-homes --start 2 -o m.npz", "start must be a state from 0 to 1"),
        ("model grid -o none/m.npz", "there is no folder none"),
        ("model grid -o /dev/null --force", "/dev/null is not a file"),
    ],
)
def test_bad_input_gets_one_sentence_and_no_work(run, one, words, sentence):
    Path("text.npz").write_text("no archive")
    Path("folder").mkdir()
    np.savez("other.npz", transitions=np.ones((1, 1, 1)), rewards=np.ones((1, 1, 1)))
    eh.MOMDP([[[1.0]]], [[[1, -1]]], [1]).save("losses.npz")
    before = sorted(os.listdir())
    assert sentence in refused(run(*words.split()))
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
    "words", ["sole one.npz", "solve", "solve one.npz --gama 1", "solve one.npz --gamma x", "model", "model grid"]
)
def test_misspelt_options_are_explained(run, one, words):
    code, out, err = run(*words.split())
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert "help" in err


def test_arguments_are_checked_before_any_work(run, one, monkeypatch):
    for command in (solve_command, bound_command):
        monkeypatch.setattr(command, "solve", lambda *args, **options: pytest.fail("solved"))
    refused(run("solve", "one.npz", "--gamma", "0.9", "-o", "none/policy.npz"))
    refused(run("bound", "one.npz", "--gammas", "0.9", "--welfare", "nash"))
    monkeypatch.setattr(eh.MOMDP, "load", lambda path: pytest.fail("loaded"))
    refused(run("solve", "one.npz", "--gamma", "2"))
    refused(run("bound", "one.npz", "--gammas", "2"))


def test_too_little_memory_is_said(run, one, monkeypatch):
    def too_large(*args, **options):
        raise MemoryError

    monkeypatch.setattr(solve_command, "solve", too_large)
    assert "not enough memory" in refused(run("solve", "one.npz", "--gamma", "0.9"))


def test_a_reader_that_leaves_early_is_no_error(one):
    for words in (["--help"], ["solve", "one.npz", "--gamma", "0.9"], ["solve", "one.npz", "--gamma", "0.9", "--json"]):
        with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            process.stdout.close()
            assert process.stderr.read() == b""


@pytest.mark.skipif("CI" not in os.environ and not Path("/dev/full").exists(), reason="no /dev/full")
def test_output_that_cannot_be_written_is_said(one):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*PROGRAM, "solve", "one.npz", "--gamma", "0.9"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "evenhand: error: the output: No space left on device." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_terminal_that_knows_ascii_only_gets_question_marks(one):
    done = subprocess.run(
        [*PROGRAM, "solve", "one.npz", "--gamma", "0.9"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=True,
    )
    assert b"? = 0.9" in done.stdout


# Ctrl-C


def interrupting(function, at_call):
    """The function, in which Ctrl-C is pressed at the call of that number."""
    calls = 0

    def wrapped(*args, **options):
        nonlocal calls
        calls += 1
        if calls == at_call:
            raise KeyboardInterrupt
        return function(*args, **options)

    return wrapped


def test_an_interrupt_before_there_is_anything_to_show(run, one, monkeypatch):
    monkeypatch.setattr(solve_command, "solve", interrupting(solve_command.solve, 1))
    assert run("solve", "one.npz", "--gamma", "0.9", "-o", "policy.npz") == (130, "", "evenhand: interrupted\n")
    assert not Path("policy.npz").exists()


def test_an_interrupt_of_the_comparison_keeps_the_fair_optimum(run, one, monkeypatch):
    monkeypatch.setattr(solve_command, "solve", interrupting(solve_command.solve, 2))
    code, out, _ = run("solve", "one.npz", "--gamma", "0.9", "-o", "policy.npz")
    assert code == 0
    assert "the utilitarian optimum is left out" in out
    assert "12.0000" in out
    assert Path("policy.npz").exists()


@pytest.mark.parametrize("how", [[], ["--json"]])
def test_an_interrupt_of_bound_keeps_the_rows_that_are_finished(run, one, monkeypatch, how):
    monkeypatch.setattr(bound_command, "error_bound", interrupting(bound_command.error_bound, 2))
    code, out, err = run("bound", "one.npz", "--gammas", "0.5,0.6,0.7", *how)
    assert code == 130
    assert err == "evenhand: interrupted after 1 of 3 discounts\n"
    rows = [row["gamma"] for row in json.loads(out)["bounds"]] if how else re.findall(r"^ (0\.\d)", out, re.MULTILINE)
    assert list(map(float, rows)) == [0.5]


@pytest.mark.slow
def test_an_interrupt_of_a_long_solve_returns_the_best_so_far_with_its_gap(here):
    model = examples.garnet(100_000, 5, 6, seed=1)
    P = model.transitions
    arrays = {"data": P.data, "indices": P.indices, "indptr": P.indptr}
    np.savez("big.npz", **arrays, rewards=model.rewards, initial=model.initial)
    words = ["solve", "big.npz", "--gamma", "0.99", "--tol", "1e-13", "--json", "-o", "policy.npz"]
    with running(
        [*PROGRAM, *words],
        text=False,
        env={**os.environ, "FORCE_COLOR": "1"},  # shows the progress bar without a terminal
    ) as process:
        seen = b""
        while b"Ctrl-C: best so far" not in seen:
            assert process.poll() is None, seen
            seen += os.read(process.stderr.fileno(), 4096)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 0, err.decode()
    assert b"Traceback" not in err
    assert b"Interrupted: this is the best policy so far" in err
    fair = json.loads(out)["fair"]
    assert fair["status"] == "interrupted"
    assert json.loads(out)["utilitarian"] is None
    with np.load("policy.npz", allow_pickle=False) as file:
        np.testing.assert_allclose(eh.evaluate(model, file["policy"], gamma=0.99), fair["returns"], rtol=1e-9)
    reference = eh.solve(model, "ggf", gamma=0.99, tol=1e-3)
    assert reference.welfare <= fair["welfare"] + fair["gap"]
    assert fair["welfare"] <= reference.welfare + reference.gap


# The picture, the demo and the README


@pytest.fixture(scope="module")
def pair():
    model = examples.garnet(10, 3, 4, seed=1)
    return eh.solve(model, "ggf", gamma=0.9), eh.solve(model, "utilitarian", gamma=0.9)


def is_png(path):
    return Path(path).read_bytes().startswith(b"\x89PNG\r\n") and Path(path).stat().st_size > 10_000


def test_the_picture_is_drawn(here, pair):
    report.draw_comparison(*pair, "picture.png", name="fair (GGF)", title="Four users")
    assert is_png("picture.png")


def test_the_picture_takes_losses_many_users_and_one(here):
    losses = eh.MOMDP([[[1.0]], [[1.0]]], [[[1, -1], [-2, 3]]], [1])
    for k, model in enumerate((losses, examples.garnet(5, 2, 40), examples.chain(3))):
        pair = eh.solve(model, "ggf", gamma=0.5), eh.solve(model, "utilitarian", gamma=0.5)
        report.draw_comparison(*pair, f"{k}.png")
        assert is_png(f"{k}.png")


def test_a_missing_matplotlib_is_said(here, pair, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(eh.InputError, match="pip install matplotlib"):
        report.draw_comparison(*pair, "picture.png")


@pytest.mark.parametrize(
    ("scale", "first"), [(1, "3.00000"), (1e4, "30,000.0"), (1e-3, "0.00300000"), (1e12, "3.00000e+12"), (0, "0.0000")]
)
def test_numbers_of_any_size_are_readable(scale, first):
    model = eh.MOMDP([[[1.0]]], np.array([[[3.0, 1.0]]]) * scale, [1])
    ggf = eh.GGF.geometric(2)
    shown = io.StringIO()
    Console(file=shown, width=80).print(report.who_gets_what(ggf, eh.solve(model, ggf, gamma=0.0)))
    assert re.search(rf"^ 1 +{re.escape(first)} *$", shown.getvalue(), re.MULTILINE), shown.getvalue()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_python_of_the_readme_prints_what_it_says(here, capsys):
    [code] = [block for block in blocks("python") if "eh.MOMDP(" in block]
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == blocks("text")[0]


def test_the_commands_of_the_readme_print_what_it_says(run):
    shown = ""
    [commands] = [block for block in blocks("sh") if "evenhand solve" in block]
    for line in commands.splitlines():
        program, *words = line.partition("#")[0].split()
        assert program == "evenhand"
        code, shown, _ = run(*words)
        assert code == 0

    def lasting(text):  # gaps, methods and times may change
        lines = (line.rstrip() for line in text.splitlines())
        return [
            line
            for line in lines
            if line and not line.startswith((" certified", " method", " time", "Proven", "Wrote"))
        ]

    assert lasting(shown) == lasting(blocks("text")[1])


def test_the_readme_names_commands_and_options_that_exist(run):
    lines = [line.partition("#")[0].split() for block in blocks("sh") for line in block.splitlines()]
    for _, command, *words in (line for line in lines if line[0] == "evenhand"):
        _, help_of_it, _ = run(command, *(words[:1] if command == "model" else []), "--help")
        for option in (word for word in words if word.startswith("-")):
            assert re.search(rf"(?:^|[ ,│]){option}\b", help_of_it), (command, option)


@pytest.mark.parametrize("word", ["\ud800", "a\0b"])
def test_words_that_no_system_hands_over(capsys, word):
    """Only a program that calls `main` can; what is written about them must be possible to write."""
    assert cli.main(["train", word]) == 2
    err = capsys.readouterr().err
    assert err.startswith("evenhand: error: ")
    assert err.encode()
