"""The fat-tree, its paths, and traffic matrices from patterns and files."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.envs.datacenter import FatTree, path_table
from evenhand.envs.datacenter.topology import LAYERS, NO_QUEUE
from evenhand.envs.datacenter.traffic import EXAMPLES, PATTERNS, Flows, Pattern, matrix
from evenhand.errors import InputError

TREE = FatTree(4)


def drawn(text: str, seed: int = 0, tree: FatTree = TREE) -> tuple[np.ndarray, np.ndarray]:
    pattern = matrix(text, tree)
    assert isinstance(pattern, Pattern)
    source, destination = pattern.draw(jax.random.key(seed))
    return np.asarray(source), np.asarray(destination)


class TestFatTree:
    @pytest.mark.parametrize(("k", "hosts", "edges", "cores", "queues"), [(4, 16, 8, 4, 80), (8, 128, 32, 16, 640)])
    def test_counts(self, k: int, hosts: int, edges: int, cores: int, queues: int) -> None:
        tree = FatTree(k)
        assert (tree.hosts, tree.edges, tree.cores, tree.queues) == (hosts, edges, cores, queues)
        links = {tree.ends(queue) for queue in range(queues)}
        assert len(links) == queues  # no two queues stand at the same link
        between_switches = [link for link in links if not link[1].startswith("host")]
        assert all((end, start) in links for start, end in between_switches)  # every cable has a queue at both ends

    @pytest.mark.parametrize("k", [2, 5, 0, -4])
    def test_other_sizes_are_refused(self, k: int) -> None:
        with pytest.raises(InputError, match="even number of ports"):
            FatTree(k)

    def test_how_many_links_lead_to_a_queue(self) -> None:
        """Counted over the paths of many routings; nobody sends back where it came from."""
        leading: dict[int, set[tuple[int, int]]] = {queue: set() for queue in range(TREE.queues)}
        for seed in range(30):
            for source, to in enumerate(path_table(TREE, seed)):
                for path in to:
                    before = (-1, source)
                    for layer, queue in enumerate(path):
                        if queue != NO_QUEUE:
                            leading[layer * TREE.hosts + queue].add(before)
                            before = (layer, int(queue))
        most = [max(len(leading[layer * 16 + queue]) for queue in range(16)) for layer in range(len(LAYERS))]
        assert tuple(most) == TREE.inputs()


class TestPaths:
    @settings(max_examples=30)
    @given(st.sampled_from([4, 6]), st.integers(0, 2**40), st.data())
    def test_a_path_leads_from_link_to_link(self, k: int, seed: int, data: st.DataObject) -> None:
        tree = FatTree(k)
        source, destination = data.draw(st.permutations(range(tree.hosts)))[:2]
        path = path_table(tree, seed)[source, destination]
        at = f"edge {source // tree.half}"
        passed = [layer for layer in range(len(LAYERS)) if path[layer] != NO_QUEUE]
        for layer in passed:
            assert 0 <= path[layer] < tree.hosts
            start, at_next = tree.ends(layer * tree.hosts + int(path[layer]))
            assert start == at
            at = at_next
        assert at == f"host {destination}"
        same_edge = source // tree.half == destination // tree.half
        same_pod = source // tree.hosts_of_pod == destination // tree.hosts_of_pod
        assert passed == ([4] if same_edge else [0, 3, 4] if same_pod else [0, 1, 2, 3, 4])

    def test_every_pair_has_a_path_and_no_host_one_to_itself(self) -> None:
        reached = (path_table(TREE, 0) != NO_QUEUE).any(axis=2)
        assert reached.sum() == 240
        assert not reached.diagonal().any()

    def test_the_seed_decides(self) -> None:
        np.testing.assert_array_equal(path_table(TREE, 3), path_table(TREE, 3))
        assert (path_table(TREE, 3) != path_table(TREE, 4)).any()

    def test_golden_values(self) -> None:
        """Up by aggregation switch 1, core 2, down in pod 3; the table must not change, since results depend on it."""
        paths = path_table(TREE, 0)
        assert paths[0, 1].tolist() == [-1, -1, -1, -1, 1]
        assert paths[0, 15].tolist() == [1, 2, 11, 15, 15]

    def test_flows_are_not_polarised(self) -> None:
        """All four cores carry a quarter, and so do those of the flows that one edge switch sends up by one port."""
        paths = np.concatenate([path_table(TREE, seed).reshape(-1, 5) for seed in range(20)])
        across = paths[paths[:, 1] != NO_QUEUE]
        cores = np.bincount(across[:, 2] // TREE.k) / len(across)
        np.testing.assert_allclose(cores, 0.25, atol=0.02)
        for first in range(TREE.hosts):
            ports = across[across[:, 0] == first, 1] % TREE.half
            assert 0.35 < ports.mean() < 0.65


class TestPatterns:
    def test_every_pattern_has_an_example(self) -> None:
        assert {example.partition(":")[0] for example in EXAMPLES} == set(PATTERNS)

    @pytest.mark.parametrize("text", EXAMPLES)
    @pytest.mark.parametrize("k", [4, 8])
    def test_nobody_sends_to_itself(self, text: str, k: int) -> None:
        tree = FatTree(k)
        for seed in range(5):
            source, destination = drawn(text, seed, tree)
            assert (source != destination).all()
            assert destination.min() >= 0
            assert destination.max() < tree.hosts
            assert sorted(set(source.tolist())) == list(range(tree.hosts))

    def test_stride(self) -> None:
        assert drawn("stride:4")[1].tolist() == [(i + 4) % 16 for i in range(16)]

    def test_staggered(self) -> None:
        """Of 0.5 to the edge switch all stay; of 0.3 to the pod 1 of 3 stays at the edge; of 0.2, 1 and 3 of 15."""
        near, pod = 0, 0
        for seed in range(200):
            source, destination = drawn("staggered:0.5,0.3", seed)
            near += int((source // 2 == destination // 2).sum())
            pod += int((source // 4 == destination // 4).sum())
        assert near / 3200 == pytest.approx(0.5 + 0.3 / 3 + 0.2 / 15, abs=0.03)
        assert pod / 3200 == pytest.approx(0.8 + 0.2 * 3 / 15, abs=0.03)

    def test_bijection(self) -> None:
        assert sorted(drawn("bijection", 5)[1].tolist()) == list(range(16))
        assert drawn("bijection", 5)[1].tolist() != drawn("bijection", 6)[1].tolist()

    @pytest.mark.parametrize(("text", "hot", "senders"), [("hotspot", 2, 3), ("hotspot:1,9", 1, 9)])
    def test_hotspot(self, text: str, hot: int, senders: int) -> None:
        counts = np.bincount(drawn(text, 2)[1], minlength=16)
        assert (counts == senders).sum() == hot
        assert np.delete(counts, np.flatnonzero(counts == senders)).max() == 1

    def test_flows(self) -> None:
        source, destination = drawn("flows:3")
        assert np.bincount(source).tolist() == [3] * 16
        assert len(set(zip(source.tolist(), destination.tolist(), strict=True))) == 48

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("stride", "one whole number is needed"),
            ("stride:16", "send to itself"),
            ("stride:x", "one whole number"),
            ("staggered:0.2", "two probabilities"),
            ("staggered:0.8,0.3", "exceed 1"),
            ("staggered:nan,0.3", "exceed 1"),
            ("random:3", "no numbers"),
            ("flows:16", "1 … 15"),
            ("hotspot:4,4", "too few"),
            ("hotspot:0,3", "too few"),
            ("nonsense", "there is no file 'nonsense'"),
        ],
    )
    def test_errors(self, text: str, message: str) -> None:
        with pytest.raises(InputError, match=message):
            matrix(text, TREE)


class TestFiles:
    HEAD = "src,dst,port,seed,start_time,stop_time\n"

    def write(self, folder: Path, *rows: str, head: str = HEAD) -> str:
        path = folder / "some_data"  # Iroko's files have no suffix
        path.write_text(head + "".join(row + "\n" for row in rows), "utf-8")
        return str(path)

    def test_hosts_by_their_addresses(self, tmp_path: Path) -> None:
        flows = matrix(self.write(tmp_path, "10.1.0.1,10.8.0.2,1,2,0,60", "10.2.0.2, 10.1.0.2,1,2,0,60"), TREE)
        assert isinstance(flows, Flows)
        assert (flows.source.tolist(), flows.destination.tolist()) == ([0, 3], [15, 1])

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ("10.1.0.1,10.9.0.1,1,2,0,60", "line 3: there is no dst '10.9.0.1'; .* E = 1 … 8"),
            ("10.0.0.1,10.2.0.1,1,2,0,60", "line 3: there is no src '10.0.0.1'"),
            ("10.1.0.3,10.2.0.1,1,2,0,60", "line 3: there is no src"),
            ("localhost,10.2.0.1,1,2,0,60", "line 3: there is no src 'localhost'"),
            ("10.1.0.1,10.1.0.1,1,2,0,60", "line 3: 10.1.0.1 sends to itself"),
            ("10.1.0.1,10.2.0.1", "line 3: there should be 6 values"),
            ("10.1.0.1,10.2.0.1,1,2,0,60,7", "line 3: there should be 6 values"),
            (",10.2.0.1,1,2,0,60", "line 3: there is no src ''"),
        ],
    )
    def test_a_wrong_row_is_named(self, tmp_path: Path, row: str, message: str) -> None:
        with pytest.raises(InputError, match=f"some_data, {message}"):
            matrix(self.write(tmp_path, "10.1.0.1,10.2.0.1,1,2,0,60", row), TREE)

    def test_files_that_are_none(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="line 1: there is no column 'dst'"):
            matrix(self.write(tmp_path, head="src,to\n"), TREE)
        with pytest.raises(InputError, match="line 1: there is no column 'src'"):
            matrix(self.write(tmp_path, head=""), TREE)
        with pytest.raises(InputError, match="no flows"):
            matrix(self.write(tmp_path), TREE)
        (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(InputError, match="UTF-8"):
            matrix(str(tmp_path / "binary"), TREE)
