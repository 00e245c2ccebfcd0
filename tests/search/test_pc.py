"""PC's questions one at a time: the truth from d-separation, the order of questions, knowledge, and an early end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, permutations

import pytest

from dagveil.errors import BudgetExceededError
from dagveil.graphs.cpdag import Dag
from dagveil.graphs.knowledge import Knowledge
from dagveil.search.constraint.pc import Pruning, Question, Sweep, Traversal, prune
from dagveil.search.constraint.skeleton import Skeleton
from separation import is_separated

NOTHING = Knowledge.none()
BOTH = pytest.mark.parametrize("traversal", Traversal)
NODES = ("a", "b", "c", "d")
COMPLETE = Dag(NODES, frozenset(combinations(NODES, 2)))
CHAIN = Dag(NODES, frozenset([("a", "b"), ("b", "c"), ("c", "d")]))


def reads(dag: Dag, log: list[Question] | None = None) -> Callable[[Question], bool]:
    """Return an oracle that notes what it is asked."""

    def is_independent(question: Question) -> bool:
        if log is not None:
            log.append(question)
        return is_separated(dag, question[0], question[1], question[2])

    return is_independent


def by_names(skeleton: Skeleton) -> frozenset[frozenset[str]]:
    return frozenset(frozenset((NODES[x], NODES[y])) for x, y in skeleton.edges())


def alike(question: Question) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(question[:2]), frozenset(question[2])


def slow_twin(dag: Dag, traversal: Traversal, largest_order: int) -> list[Question]:
    """Return the questions in order, from sets of edges and nothing else."""
    joined = {frozenset(pair) for pair in combinations(NODES, 2)}
    asked: list[Question] = []

    def around(x: str, without: str) -> list[str]:
        return [z for z in NODES if frozenset((x, z)) in joined and z != without]

    for order in range(largest_order + 1):
        for x, y in permutations(NODES, 2) if traversal is Traversal.PUBLISHED else combinations(NODES, 2):
            if frozenset((x, y)) not in joined:
                continue
            pools = [around(x, y)] if traversal is Traversal.PUBLISHED else [around(x, y), around(y, x)]
            sets: list[tuple[str, ...]] = []
            for pool in pools:
                sets += [given for given in combinations(pool, order) if given not in sets]
            for given in sets:
                asked.append((x, y, given))
                if is_separated(dag, x, y, given):
                    joined.remove(frozenset((x, y)))
                    break
    return asked


@BOTH
def test_all_skeletons_of_four_nodes(all_dags: tuple[Dag, ...], traversal: Traversal) -> None:
    assert len(all_dags) == 543
    wrong = []
    for dag in all_dags:
        sweep = prune(NODES, reads(dag), 2, NOTHING, traversal)
        if by_names(sweep.skeleton) != dag.skeleton():
            wrong.append(dag)
        gone = {(x, y) for x, y in combinations(range(4), 2) if not sweep.skeleton.adjacency[x, y]}
        assert set(sweep.skeleton.separators) == gone
        for (x, y), given in sweep.skeleton.separators.items():
            assert is_separated(dag, NODES[x], NODES[y], [NODES[z] for z in given])
        assert sweep.unanswered == ()
    assert wrong == []


@BOTH
def test_questions_come_in_the_order_of_the_slow_twin(all_dags: tuple[Dag, ...], traversal: Traversal) -> None:
    for dag in all_dags[::3]:
        log: list[Question] = []
        sweep = prune(NODES, reads(dag, log), 2, NOTHING, traversal)
        assert log == slow_twin(dag, traversal, 2)
        assert sweep.questions == len(log)
        counted = [sum(len(question[2]) == order for question in log) for order in range(len(sweep.asked))]
        assert list(sweep.asked) == counted
        assert sum(counted) == len(log)


def test_no_question_comes_twice(all_dags: tuple[Dag, ...]) -> None:
    repeated = 0
    for dag in all_dags:
        for traversal in Traversal:
            log: list[Question] = []
            prune(NODES, reads(dag, log), 2, NOTHING, traversal)
            again = len(log) - len({alike(question) for question in log})
            assert traversal is Traversal.PUBLISHED or again == 0
            repeated += again
    assert repeated > 0


@pytest.mark.parametrize(
    ("dag", "traversal", "asked"),
    [
        (COMPLETE, Traversal.PUBLISHED, (12, 24, 12)),
        (COMPLETE, Traversal.ONCE, (6, 12, 6)),
        (Dag(NODES, frozenset()), Traversal.PUBLISHED, (6,)),
        (Dag(NODES, frozenset()), Traversal.ONCE, (6,)),
    ],
)
def test_counts_known_by_hand(dag: Dag, traversal: Traversal, asked: tuple[int, ...]) -> None:
    sweep = prune(NODES, reads(dag), 2, NOTHING, traversal)
    assert sweep.asked == asked
    assert sweep.questions == sum(asked)


@BOTH
@pytest.mark.parametrize("largest_order", [0, 1])
def test_no_larger_sets_than_asked_for(traversal: Traversal, largest_order: int) -> None:
    log: list[Question] = []
    prune(NODES, reads(COMPLETE, log), largest_order, NOTHING, traversal)
    assert {len(given) for _, _, given in log} == set(range(largest_order + 1))


@BOTH
def test_knowledge_is_not_asked_about(all_dags: tuple[Dag, ...], traversal: Traversal) -> None:
    excluded = frozenset([("a", "b"), ("b", "a")])
    knowledge = Knowledge((), excluded, frozenset([("c", "d")]))
    for dag in all_dags[::7]:
        log: list[Question] = []
        skeleton = prune(NODES, reads(dag, log), 2, knowledge, traversal).skeleton
        pairs = {frozenset(question[:2]) for question in log}
        assert frozenset("ab") not in pairs
        assert frozenset("cd") not in pairs
        assert frozenset("ab") not in by_names(skeleton)
        assert frozenset("cd") in by_names(skeleton)
        assert (0, 1) not in skeleton.separators
        # an excluded neighbour separates nothing: it stands beside no end of the pair
        for x, y, given in log:
            assert not any(knowledge.excludes(x, z) and knowledge.excludes(y, z) for z in given)


def stopping(dag: Dag, after: int) -> Callable[[Question], bool]:
    """Return an oracle whose budget is spent after so many questions."""
    oracle, log = reads(dag), []

    def is_independent(question: Question) -> bool:
        if len(log) == after:
            raise BudgetExceededError("nothing is left")
        log.append(question)
        return oracle(question)

    return is_independent


@BOTH
@pytest.mark.parametrize("dag", [CHAIN, COMPLETE], ids=["chain", "complete"])
def test_a_spent_budget_ends_the_search_where_it_is(dag: Dag, traversal: Traversal) -> None:
    log: list[Question] = []
    whole = prune(NODES, reads(dag, log), 2, NOTHING, traversal)
    for after in range(whole.questions):
        sweep = prune(NODES, stopping(dag, after), 2, NOTHING, traversal)
        assert sweep.questions == after
        # the question that was refused names the first edge, and nothing that was settled is in the list
        x, y, given = log[after]
        assert sweep.unanswered[0] == (x, y, len(given))
        # edges that were done with this order wait for the next one
        assert {order for _, _, order in sweep.unanswered} <= {len(given), len(given) + 1} - {3}
        assert len(set(sweep.unanswered)) == len(sweep.unanswered)
        kept = by_names(sweep.skeleton)
        assert all(frozenset((a, b)) in kept for a, b, _ in sweep.unanswered)
        removed = {frozenset(q[:2]) for q in log[:after] if is_separated(dag, *q)}
        assert kept == {frozenset(pair) for pair in combinations(NODES, 2)} - removed
        # every edge that the whole search asked about at this order from here on is in the list
        later = {frozenset(q[:2]) for q in log[after:] if len(q[2]) == len(given)}
        assert later <= {frozenset((a, b)) for a, b, order in sweep.unanswered if order == len(given)}
        # and no edge that the whole search would still have asked about is missing
        assert {frozenset(q[:2]) for q in log[after:]} <= {frozenset((a, b)) for a, b, _ in sweep.unanswered}


def test_a_whole_budget_leaves_nothing_unanswered() -> None:
    sweep = prune(NODES, stopping(CHAIN, 10**6), 2, NOTHING, Traversal.ONCE)
    assert sweep.unanswered == ()


@BOTH
def test_orders_are_announced_and_may_be_declined(traversal: Traversal) -> None:
    seen: list[tuple[int, int]] = []

    def start(order: int, graph: Pruning) -> bool:
        seen.append((order, graph.edges()))
        return order < 1

    sweep = prune(NODES, reads(CHAIN), 2, NOTHING, traversal, start)
    assert seen == [(0, 6), (1, 6)]
    assert len(sweep.asked) == 1
    assert isinstance(sweep, Sweep)
    seen.clear()
    # two edges of different pairs: nobody has a neighbour to condition on, so order 1 is not announced
    apart = Dag(NODES, frozenset([("a", "b"), ("c", "d")]))
    prune(NODES, reads(apart), 2, NOTHING, traversal, lambda order, graph: not seen.append((order, graph.edges())))
    assert seen == [(0, 6)]


def test_a_graph_that_loses_edges() -> None:
    graph = Pruning("abcd", Knowledge((), frozenset([("a", "d"), ("d", "a")]), frozenset([("a", "b")])))
    assert graph.edges() == 5
    assert graph.neighbours("a") == ("b", "c")
    assert graph.removable("a") == ("c",)
    assert graph.sets("b", "c", 1, Traversal.PUBLISHED) == [("a",), ("d",)]
    graph.remove("c", "b", ("a", "d"))
    assert graph.edges() == 4
    assert graph.neighbours("b") == ("a", "d")
    assert graph.skeleton().separators == {(1, 2): (0, 3)}
    assert graph.sets("a", "c", 1, Traversal.PUBLISHED) == [("b",)]
    assert graph.sets("a", "c", 1, Traversal.ONCE) == [("b",), ("d",)]
