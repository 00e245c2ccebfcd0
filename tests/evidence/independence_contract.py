"""What everything that answers questions of independence keeps; each implementation inherits these tests."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from dagveil.evidence.questions import Independence, Questions


class IndependenceContract:
    """Give at least five columns.

    `constant` is the position of a column that never changes, or None. `tolerance` is for rounding alone: tables that
    hold nothing but noise have covariance matrices that floating point can hardly invert.
    """

    constant: int | None = None
    tolerance: float = 1e-7

    def make(self) -> Independence:
        raise NotImplementedError

    def questions(self, order: int) -> Questions:
        d = len(self.make().columns)
        asked = [
            (x, y, given)
            for x, y in combinations(range(d), 2)
            for given in combinations([z for z in range(d) if z not in (x, y)], order)
        ]
        return Questions.of(asked)

    def test_shapes_and_ranges(self) -> None:
        evidence = self.make()
        for order in range(4):
            questions = self.questions(order)
            answers = evidence.test(questions)
            for values in (answers.statistic, answers.freedom, answers.p_value, evidence.strength(questions)):
                assert values.shape == (len(questions),)
                assert np.isfinite(values).all()
                assert (values >= 0).all()
            assert (answers.p_value <= 1).all()
            for flags in (evidence.answers(questions), evidence.joint(questions)):
                assert flags.shape == (len(questions),)
                assert flags.dtype == bool

    def test_x_and_y_may_change_places(self) -> None:
        evidence = self.make()
        for order in range(3):
            questions = self.questions(order)
            turned = Questions(questions.y, questions.x, questions.given)
            one, other = evidence.test(questions), evidence.test(turned)
            np.testing.assert_allclose(one.statistic, other.statistic, rtol=self.tolerance, atol=1e-9)
            np.testing.assert_array_equal(one.freedom, other.freedom)
            np.testing.assert_allclose(one.p_value, other.p_value, rtol=10 * self.tolerance, atol=1e-12)
            np.testing.assert_allclose(evidence.strength(questions), evidence.strength(turned), rtol=1e-7, atol=1e-12)
            np.testing.assert_array_equal(evidence.joint(questions), evidence.joint(turned))

    def test_the_order_of_the_set_does_not_matter(self) -> None:
        evidence = self.make()
        questions = self.questions(2)
        turned = Questions(questions.x, questions.y, questions.given[:, ::-1])
        one, other = evidence.test(questions), evidence.test(turned)
        np.testing.assert_allclose(one.statistic, other.statistic, rtol=self.tolerance, atol=1e-9)

    def test_a_batch_is_the_sum_of_its_questions(self) -> None:
        evidence = self.make()
        for order in (0, 1, 2):
            questions = self.questions(order)
            together = evidence.test(questions).statistic
            for row in range(0, len(questions), 7):
                alone = evidence.test(questions.select(np.array([row]))).statistic
                np.testing.assert_allclose(alone, together[[row]], rtol=self.tolerance, atol=1e-9)

    def test_odds_are_numbers_that_do_not_depend_on_the_direction(self) -> None:
        evidence = self.make()
        for order in range(3):
            questions = self.questions(order)
            turned = Questions(questions.y, questions.x, questions.given)
            one, other = evidence.odds(questions), evidence.odds(turned)
            assert one.shape == (len(questions),)
            assert not np.isnan(one).any()
            np.testing.assert_allclose(one, other, rtol=10 * self.tolerance, atol=1e-6)

    def test_p_values_without_dependence_keep_their_level(self) -> None:
        evidence = self.make()
        questions = self.questions(0)
        if self.constant is not None:
            questions = questions.select((questions.x != self.constant) & (questions.y != self.constant))
        p_value = evidence.null_p_values(questions, 400, np.random.default_rng(5))
        assert p_value.shape == (400, len(questions))
        assert ((p_value >= 0) & (p_value <= 1)).all()
        rejected = (p_value < 0.1).mean(axis=1)
        assert rejected.mean() < 0.1 + 4 * rejected.std() / np.sqrt(400)

    def test_associations_are_symmetric(self) -> None:
        evidence = self.make()
        matrix = evidence.association()
        assert matrix.shape == (len(evidence.columns),) * 2
        assert np.isfinite(matrix).all()
        np.testing.assert_allclose(matrix, matrix.T, rtol=1e-9, atol=1e-12)

    def test_no_question_is_a_question_too(self) -> None:
        evidence = self.make()
        nothing = self.questions(1).select(np.array([], dtype=np.intp))
        assert evidence.test(nothing).p_value.shape == (0,)
        assert evidence.strength(nothing).shape == (0,)
        assert evidence.answers(nothing).shape == (0,)

    def test_a_constant_column_depends_on_nothing(self) -> None:
        if self.constant is None:
            return
        evidence = self.make()
        for order in range(3):
            questions = self.questions(order)
            touched = (questions.x == self.constant) | (questions.y == self.constant)
            np.testing.assert_allclose(evidence.test(questions).p_value[touched], 1.0)

    def test_conditioning_on_a_constant_column_changes_nothing(self) -> None:
        if self.constant is None:
            return
        evidence = self.make()
        plain = [(x, y) for x, y in combinations(range(len(evidence.columns)), 2) if self.constant not in (x, y)]
        marginal = evidence.strength(Questions.of([(x, y, ()) for x, y in plain]))
        conditional = evidence.strength(Questions.of([(x, y, (self.constant,)) for x, y in plain]))
        np.testing.assert_allclose(conditional, marginal, rtol=1e-6, atol=1e-9)

    def test_a_redraw_answers_the_same_questions(self) -> None:
        evidence = self.make()
        again = evidence.redraw(np.random.default_rng(1))
        assert again.columns == evidence.columns
        for order in range(3):
            questions = self.questions(order)
            np.testing.assert_array_equal(again.answers(questions), evidence.answers(questions))
            np.testing.assert_array_equal(again.joint(questions), evidence.joint(questions))
            p_value = again.test(questions).p_value
            assert ((p_value >= 0) & (p_value <= 1)).all()

    def test_redraws_leave_the_evidence_alone_and_repeat(self) -> None:
        evidence = self.make()
        questions = self.questions(1)
        before = evidence.test(questions).statistic
        one = evidence.redraw(np.random.default_rng(4)).test(questions).statistic
        two = evidence.redraw(np.random.default_rng(4)).test(questions).statistic
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(evidence.test(questions).statistic, before)
