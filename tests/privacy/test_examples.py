"""Small examples of what the functions of privacy/ return."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from dagveil.errors import DataError
from dagveil.privacy.budget import (
    Budget,
    Relation,
    epsilon_of_mu_squared,
    epsilon_of_rho,
    exact,
    log_gaussian_delta,
    mu_squared_of,
    rho_of,
    round_down,
    round_up,
)
from dagveil.privacy.events import (
    ApproximateZcdpFilter,
    DiscreteGaussian,
    GaussianFilter,
    HomeProcess,
    PureFilter,
    RandomisedResponse,
    SmoothLaplace,
    SparseVectorRound,
    SubsampledGaussian,
    Unbounded,
    ZcdpFilter,
    approximate_zcdp_cost,
    decode_event,
    encode_event,
    failure_probability,
    gaussian_cost,
    pure_cost,
    tightest_filter,
    zcdp_cost,
)
from dagveil.privacy.ledger.account import (
    Account,
    Allowance,
    Composition,
    Terms,
    admit,
    check_name,
    price_run,
    tidy_name,
)
from dagveil.privacy.ledger.accounts import Books, Head, verify_entries
from dagveil.privacy.ledger.entries import EntryKind, budget_body, follow, utc_now
from dagveil.privacy.ledger.ledger import MemoryLedger
from dagveil.privacy.mechanisms.exponential import choose
from dagveil.privacy.mechanisms.gaussian import deviation_for, lattice_for
from dagveil.privacy.mechanisms.laplace import filter_for, laplace_variance
from dagveil.privacy.mechanisms.smooth_median import (
    decay_for,
    dilation_bound,
    median,
    noise_scale,
    release_median,
    smooth_sensitivity,
)
from dagveil.privacy.mechanisms.sparse_vector import SparseVector
from dagveil.privacy.mechanisms.subsampling import Sampling, amplify, strengthen
from dagveil.privacy.noise.exact import BlockLaw, ExactNoise, SeededBits, SystemBits, exp_bounds
from dagveil.privacy.noise.kind import NoiseKind, noise_source
from dagveil.privacy.noise.opendp import OpendpNoise
from dagveil.privacy.noise.source import LaplaceBlocks, representable_scale, representable_variance
from dagveil.privacy.receipt import (
    Calibration,
    Receipt,
    bound_advantage,
    check_receipt,
    describe_guessing,
    filter_named,
    name_unit,
    write_accuracy,
)
from dagveil.privacy.renyi import (
    RenyiFilter,
    best_order,
    epsilon_of_renyi,
    renyi_cost,
    renyi_of,
    smallest_ratio,
    subsampled_cost,
)
from slow_twins import choose_by_loss


def test_exact() -> None:
    assert (exact(0.1), exact("1e-6")) == (Fraction(1, 10), Fraction(1, 1000000))


def test_round_up() -> None:
    assert (round_up(Fraction(1, 3), 3), round_up(1, 3), round_up("1e-6", 3)) == ("0.334", "1", "1e-6")


def test_round_down() -> None:
    assert round_down(Fraction(2, 3), 3) == "0.666"


def test_log_gaussian_delta() -> None:
    assert round(math.exp(log_gaussian_delta(1.0, 1.0)), 6) == 0.126937


def test_mu_squared_of() -> None:
    assert round(float(mu_squared_of(Budget.of(1, 1e-6))) / 2, 4) == 0.028


def test_epsilon_of_mu_squared() -> None:
    assert round(float(epsilon_of_mu_squared(Fraction(1), Fraction(1, 1_000_000))), 2) == 4.89


def test_rho_of() -> None:
    assert round(float(rho_of(Budget.of(1, 1e-6))), 4) == 0.0244


def test_epsilon_of_rho() -> None:
    assert round(float(epsilon_of_rho(Fraction(1, 2), Fraction(1, 1_000_000))), 2) == 5.22


def test_discrete_gaussian() -> None:
    assert DiscreteGaussian("counts", 4, Fraction(1), Fraction(10_000)).changed_draws == 4


def test_pure_cost() -> None:
    assert pure_cost(RandomisedResponse("answer", Fraction(1, 2))) == Fraction(1, 2)


def test_zcdp_cost() -> None:
    assert zcdp_cost(DiscreteGaussian("counts", 4, Fraction(1), Fraction(50))) == Fraction(1, 100)


def test_approximate_zcdp_cost() -> None:
    assert approximate_zcdp_cost(SmoothLaplace("median", Fraction(1, 2), Fraction(1, 10**7))) == Fraction(1, 8)


def test_failure_probability() -> None:
    assert failure_probability(SparseVectorRound("edge", Fraction(1, 10))) == Fraction(0, 1)


def test_gaussian_cost() -> None:
    assert gaussian_cost(DiscreteGaussian("counts", 4, Fraction(1), Fraction(102))) == Fraction(1, 100)


def test_encode_event() -> None:
    assert (
        encode_event(SparseVectorRound("edge", Fraction(1, 10)))
        == b'{"kind":"sparse-vector-round","label":"edge","epsilon":"1/10"}'
    )


def test_decode_event() -> None:
    assert decode_event('{"kind":"unbounded","label":"edge","reason":"as published"}') == Unbounded(
        label="edge", reason="as published"
    )


def test_home_process() -> None:
    HomeProcess().check("a filter")


def test_pure_filter() -> None:
    f = PureFilter(Budget.of(1, 0))
    f.charge(SparseVectorRound("edge", Fraction(1, 4)))
    assert f.remaining == Fraction(3, 4)


def test_zcdp_filter() -> None:
    assert round(float(ZcdpFilter(Budget.of(1, 1e-6)).total), 4) == 0.0244


def test_approximate_zcdp_filter() -> None:
    f = ApproximateZcdpFilter(Budget.of(1, 1e-6))
    f.charge(SmoothLaplace("median", Fraction(1, 10), Fraction(1, 10**7)))
    assert (f.spent, f.remaining_failure) == (Fraction(1, 200), Fraction(1, 2500000))


def test_gaussian_filter() -> None:
    assert round(float(GaussianFilter(Budget.of(1, 1e-6)).total), 4) == 0.056


def test_tightest_filter() -> None:
    assert tightest_filter(Budget.of(1, 1e-6), [DiscreteGaussian]).name == "Gaussian accounting"


def test_bound_advantage() -> None:
    assert round(bound_advantage(1.0, 0.0), 4) == 0.4621


def test_describe_guessing() -> None:
    assert (
        describe_guessing(Fraction(1), Fraction(0), Relation.REPLACE_ONE).partition(",")[0]
        == "someone who guesses which of two values one record has is right at most 73.2 % of the time"
    )


def test_write_accuracy() -> None:
    assert (write_accuracy(Fraction(1), Fraction(0)), round(50 * (1 + bound_advantage(1.0, 0.0)), 1)) == ("73.2", 73.1)


def test_name_unit() -> None:
    assert name_unit("one patient") == "patient"


def test_tidy_name() -> None:
    assert tidy_name(" Visits of  2024 ") == "visits of 2024"


def test_check_name() -> None:
    assert check_name("Clinic") == "clinic"


def test_terms_of() -> None:
    assert Terms.of(Relation.ADD_REMOVE, "one row").words == "add-remove, row"


def test_admit() -> None:
    budget, terms = Budget.of(1, 0), Terms(Relation.ADD_REMOVE, "row")
    lifetime = Allowance.of(budget, Composition.SUM)
    admit(Account("visits", lifetime), budget, price_run(budget, "pure accounting"), terms, "ann")


def test_books() -> None:
    body = budget_body(Allowance(Budget.of(3, 0), None))
    assert Books([follow(None, EntryKind.BUDGET, "visits", None, "ann", body)]).account("visits").left == Budget(
        epsilon=Fraction(3, 1), delta=Fraction(0, 1)
    )


def test_head() -> None:
    assert Head.read("7:" + "ab" * 32).seq == 7


def test_verify_entries() -> None:
    first = follow(None, EntryKind.BEGUN, "", None, "ann", "{}")
    assert verify_entries([first]).problem is None
    assert (
        verify_entries([first], Head(2, first.digest)).problem
        == "the history ends with entry 1, but entry 2 was there when the head was noted: its end was cut off"
    )


def test_price_run() -> None:
    run = price_run(Budget.of(1, "1e-6"), "Gaussian accounting")
    assert (round(float(run.rho), 4), run.failure) == (0.028, Fraction(0, 1))
    assert price_run(Budget.of(1, 0), "pure accounting").rho == Fraction(1, 2)


def test_allowance() -> None:
    assert Allowance.of(Budget.of(3, "1e-5"), Composition.SUM).admits(
        price_run(Budget.of(3, "1e-5"), "pure accounting")
    )


def test_entry_words() -> None:
    assert follow(None, EntryKind.BUDGET, "visits", None, "ann", "{}").words == "entry 1 (budget of visits)"


def test_follow() -> None:
    first = follow(None, EntryKind.BEGUN, "", None, "ann", "{}")
    second = follow(first, EntryKind.BUDGET, "visits", None, "ann", "{}")
    assert (second.seq, second.previous == first.digest == first.compute_digest()) == (2, True)


def test_budget_body() -> None:
    assert budget_body(Allowance(Budget.of("1/3", 0), None)) == '{"epsilon":"1/3","delta":"0"}'


def test_utc_now() -> None:
    assert utc_now()[-6:] == "+00:00"


def test_memory_ledger() -> None:
    assert (
        MemoryLedger().account("visits").words
        == "visits: spent epsilon 0, delta 0 in 0 runs; no lifetime budget is set"
    )


def test_choose_by_loss() -> None:
    assert choose_by_loss([Fraction(0), Fraction(1000)], noise_source(NoiseKind.EXACT)) == 0


def test_choose() -> None:
    paid = []
    assert (choose([0, 5000], Fraction(1), noise_source(NoiseKind.EXACT), paid.append), paid[0].epsilon) == (
        1,
        Fraction(1, 1),
    )


def test_deviation_for() -> None:
    assert deviation_for(ZcdpFilter(Budget.of(1, 1e-6)), Fraction(1), Fraction(1, 200)) == 10


def test_lattice_for() -> None:
    assert lattice_for(ZcdpFilter(Budget.of(1, 1e-6)), Fraction(1), Fraction(1, 200)) == 256


def test_filter_for() -> None:
    assert (filter_for(Budget.of(10, 1e-6), 10).name, filter_for(Budget.of(1, 1e-6), 100).name) == (
        "pure accounting",
        "zCDP accounting",
    )


def test_laplace_variance() -> None:
    assert round(float(laplace_variance(Fraction(10))), 3) == 199.833


def test_median() -> None:
    assert median([9, 1, 4, 5]) == 4


def test_smooth_sensitivity() -> None:
    assert round(float(smooth_sensitivity([4, 5, 5, 5, 6], 0, 10, 0.5)), 4) == 1.8394


def test_dilation_bound() -> None:
    assert round(float(dilation_bound(Fraction(1), Fraction(1, 10**6))), 4) == 1.0441


def test_decay_for() -> None:
    assert round(float(decay_for(Fraction(1), Fraction(1, 10**6))), 4) == 0.0431


def test_noise_scale() -> None:
    assert round(float(noise_scale([4] * 9, 0, 10, Fraction(1), Fraction(1, 10**6))), 2) == 13.57


def test_release_median() -> None:
    paid = []
    noise = noise_source(NoiseKind.EXACT)
    assert release_median([5] * 999, 0, 10, Fraction(4), Fraction(1, 10**6), noise, paid.append) == 5
    assert paid[0].delta == Fraction(1, 1000000)


def test_sparse_vector() -> None:
    paid = []
    asked = SparseVector(Fraction(1, 2), Fraction(1, 2), noise_source(NoiseKind.EXACT), paid.append)
    assert (asked.is_above(-(10**6), 0), asked.is_above(10**6, 0), len(paid)) == (False, True, 1)


def test_amplify() -> None:
    whole = amplify(Budget.of(1, 0), Fraction(1, 10), Sampling.POISSON, Relation.ADD_REMOVE)
    assert round(float(whole.epsilon), 4) == 0.1586


def test_strengthen() -> None:
    inner = strengthen(Fraction(1, 10), Fraction(1, 10), Sampling.POISSON, Relation.ADD_REMOVE)
    assert round(float(inner), 4) == 0.7187


def test_exp_bounds() -> None:
    assert (exp_bounds(1, 1, 10), exp_bounds(0, 1, 10)) == ((376, 377), (1024, 1024))


def test_system_bits() -> None:
    assert SystemBits().words(3).shape == (3,)


def test_seeded_bits() -> None:
    assert bool((SeededBits(1).words(5) == SeededBits(1).words(5)).all())


def test_block_law() -> None:
    assert BlockLaw.gaussian(Fraction(10_000)).width == 1


def test_exact_noise() -> None:
    noise = ExactNoise(SeededBits(1))
    assert repr((noise.private, noise.discrete_gaussian(Fraction(10_000), 3).dtype)) == "(False, dtype('int64'))"


def test_noise_source() -> None:
    assert not (noise_source(NoiseKind.SEEDED, 7).private)


def test_opendp_noise() -> None:
    assert OpendpNoise().private


def test_representable_scale() -> None:
    assert (representable_scale(Fraction(201, 2)), float(representable_scale(Fraction(1, 3)))) == (
        Fraction(201, 2),
        0.33333349227905273,
    )


def test_representable_variance() -> None:
    assert (representable_variance(Fraction(100)), float(representable_variance(Fraction(2)))) == (
        Fraction(100, 1),
        2.0000016174171833,
    )


def test_laplace_blocks() -> None:
    blocks = LaplaceBlocks(noise_source(NoiseKind.SEEDED, 1))
    assert isinstance(blocks.draw(Fraction(8)), int)


def test_filter_named() -> None:
    assert filter_named("pure accounting", Budget.of(1, 0)).total == Fraction(1, 1)


def test_check_receipt() -> None:
    receipt = Receipt(
        calibration=Calibration.SOUND,
        epsilon="1/1000",
        delta="0",
        spent="1",
        relation=Relation.ADD_REMOVE,
        unit="patient",
        nominal_rows=1000,
        accounting="pure accounting",
        accounting_total="1",
        accounting_spent="1",
        dataset="visits",
        software="dagveil 0",
        noise="OpenDP",
        events=(SparseVectorRound("edge", Fraction(1)),),
    )
    with pytest.raises(DataError, match="the receipt does not follow from its events: its events cost more"):
        check_receipt(receipt)


def test_relation() -> None:
    assert Relation("add-remove").words == "one record is added or removed"


def test_renyi_cost() -> None:
    assert renyi_cost(DiscreteGaussian("counts", 4, Fraction(1), Fraction(50)), 8) == Fraction(2, 25)
    assert renyi_cost(SparseVectorRound("edge", 1), 8) == Fraction(1, 1)


def test_subsampled_cost() -> None:
    assert round(float(subsampled_cost(Fraction(1, 10), Fraction(100), 8)), 6) == 0.000404
    assert subsampled_cost(Fraction(1), Fraction(100), 8) == Fraction(1, 25)


def test_renyi_of() -> None:
    assert round(float(renyi_of(Budget.of(1, 1e-6), 24)), 4) == 0.5801


def test_epsilon_of_renyi() -> None:
    assert round(float(epsilon_of_renyi(Fraction(58, 100), 24, Fraction(1, 10**6))), 3) == 1.0


def test_smallest_ratio() -> None:
    ratio = smallest_ratio(Budget.of(1, 1e-6), Fraction(1, 10), 100, 24)
    assert 100 * subsampled_cost(Fraction(1, 10), ratio, 24) <= renyi_of(Budget.of(1, 1e-6), 24)


def test_best_order() -> None:
    assert best_order(Budget.of(1, 1e-6), Fraction(1, 10), 100) == 21


def test_renyi_filter() -> None:
    f = RenyiFilter(Budget.of(1, 1e-6), 24)
    f.charge(SubsampledGaussian("pair", Fraction(1, 10), Fraction(1), Fraction(400)))
    assert (f.name, round(float(f.spent / f.total), 4)) == ("Renyi accounting at order 24", 0.0005)
