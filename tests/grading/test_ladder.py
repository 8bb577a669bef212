"""From a graded ladder to thresholds: which steps must reach a tier, and where it lies between them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tiers import LADDER, THREE, TWO, expecting, graded, measured, speedup, step, with_tiers

from pytest_gpulab import concepts
from pytest_gpulab.exercise import SpeedTier, UsesCheck, Variant
from pytest_gpulab.grading.calibration.fit import Proposal, Step, proposals, reached_tiers, step_of
from pytest_gpulab.grading.expected import Expectation, ExpectedFailures
from pytest_gpulab.grading.grade import CheckResult, Finding

pytestmark = pytest.mark.unit

EIGHT = Variant("eight-way")
UNSETTLED = "its expected verdict and its graded checks leave open which speed tiers it must reach"
TOO_SLOW = Finding("too-slow", "A speedup of 1.60x over naive.cu.")


def by_tier(proposed: tuple[Proposal, ...]) -> dict[str, Proposal]:
    return {proposal.tier.name: proposal for proposal in proposed}


class TestWhatASolutionMustReach:
    def test_points_tell_the_bonuses(self) -> None:
        assert reached_tiers(TWO, expecting(70)) == {"1.4x"}
        assert reached_tiers(TWO, expecting(100)) == {"1.4x", "4.3x"}

    def test_a_required_tier_must_be_reached_unless_its_failure_is_expected(self) -> None:
        assert reached_tiers(TWO, expecting(60, **{"1.4x": "too-slow"})) == set()
        assert reached_tiers(with_tiers(SpeedTier(1.4, 40, 1024, required=True)), expecting()) == {"1.4x"}

    def test_a_higher_tier_is_reached_with_all_lower_ones(self) -> None:
        assert reached_tiers(THREE, expecting(80)) == {"1.4x", "2x"}
        assert reached_tiers(THREE, expecting(90)) is None, "4.3x without 2x"

    def test_points_that_leave_tiers_open_are_no_step(self) -> None:
        twins = with_tiers(SpeedTier(1.4, 20, 1024), SpeedTier(3, 20, 1024, variant=EIGHT))
        assert reached_tiers(twins, expecting(80)) is None
        assert reached_tiers(twins, expecting(80, **{"1.4x": "too-slow"})) == {"3x eight-way"}
        assert reached_tiers(TWO, expecting()) is None

    def test_a_file_with_wrong_results_is_no_step(self) -> None:
        fails = ExpectedFailures({"correct[n=4]": "wrong-result"})
        assert reached_tiers(TWO, Expectation(fails, 100)) is None

    def test_points_of_other_bonuses_are_taken_from_the_grade(self) -> None:
        uses = UsesCheck("coalesced", (concepts.global_traffic(1.1),), 10, 1024, required=False)
        exercise = replace(TWO, cases=(replace(TWO.cases[0], points=15), *TWO.cases[1:]), uses=(uses,))
        exercise = replace(exercise, speed=(TWO.speed[0], replace(TWO.speed[1], points=10), SpeedTier(9, 20, 1024)))
        assert reached_tiers(exercise, expecting(70)) is None, "either of two bonuses"
        for verdict, tiers in (("passed", {"1.4x"}), ("missed", {"1.4x", "4.3x"})):
            check = CheckResult("uses[coalesced]", "uses", verdict, 0, 10)
            assert reached_tiers(exercise, expecting(70), graded("a.cu", check)) == tiers
        unknown = CheckResult("uses[coalesced]", "uses", "not gradable", 0, 10)
        assert reached_tiers(exercise, expecting(70), graded("a.cu", unknown)) is None


class TestWhereATierLies:
    def test_at_a_fraction_of_the_slowest_that_must_reach_it(self) -> None:
        found = by_tier(proposals(TWO, LADDER, 0.85))
        assert (found["1.4x"].threshold, found["4.3x"].threshold) == (1.35, 6.79)
        references = {name: proposal.reference and proposal.reference.name for name, proposal in found.items()}
        assert references == {"1.4x": "2_strided.cu", "4.3x": "4_loads.cu"}
        assert {name: proposal.below and proposal.below.name for name, proposal in found.items()} == {
            "1.4x": "1_naive.cu",
            "4.3x": "3_sequential.cu",
        }

    def test_tiers_that_the_same_solutions_reach_keep_their_distance(self) -> None:
        three = with_tiers(SpeedTier(1.5, 10, 1024), SpeedTier(3, 10, 1024), SpeedTier(2, 20, 1024, variant=EIGHT))
        reaches = ("1.5x", "3x", "2x eight-way")
        found = by_tier(proposals(three, [step("a.cu", 4.01, *reaches, exercise=three)], 0.75))
        assert {name: proposal.threshold for name, proposal in found.items()} == {
            "1.5x": 1.5,
            "3x": 3.0,
            "2x eight-way": 3.0,
        }

    def test_a_fraction_that_would_let_the_step_below_pass_is_reported(self) -> None:
        found = by_tier(proposals(TWO, LADDER, 0.5))
        assert found["4.3x"].threshold == 4.0
        assert found["1.4x"].threshold is None
        assert found["1.4x"].problem == (
            "2_strided.cu reaches 1.59x, and 1_naive.cu, which must not reach it, 1.01x; "
            "--gpulab-calibrate-fraction=0.65 would separate them"
        )
        assert by_tier(proposals(TWO, LADDER, 0.65))["1.4x"].threshold == 1.03

    def test_steps_that_the_device_does_not_tell_apart(self) -> None:
        alike = (*LADDER[:3], step("4_loads.cu", 2.11, "1.4x", "4.3x"))
        found = by_tier(proposals(TWO, alike, 0.99))["4.3x"]
        assert found.problem == (
            "no threshold separates these steps on this device: 4_loads.cu reaches 2.1x, and 3_sequential.cu, which "
            "must not reach it, 2.11x"
        )

    def test_a_tier_that_no_solution_was_measured_for(self) -> None:
        found = by_tier(proposals(TWO, LADDER[:3], 0.85))["4.3x"]
        assert (found.threshold, found.problem) == (None, "no solution that must reach it was measured")

    def test_a_proposal_says_if_the_own_threshold_holds_on_this_device(self) -> None:
        found = by_tier(proposals(TWO, LADDER, 0.85))
        assert found["1.4x"].own_holds and found["4.3x"].own_holds
        halves = {one.name: measured(one.measured["1.4x"].speedup / 2) for one in LADDER}
        slower = [replace(one, measured=dict.fromkeys(one.measured, halves[one.name])) for one in LADDER]
        found = by_tier(proposals(TWO, slower, 0.85))
        assert not found["1.4x"].own_holds and not found["4.3x"].own_holds
        assert (found["1.4x"].threshold, found["4.3x"].threshold) == (0.671, 3.39)


class TestWhichFilesAreSteps:
    def test_one_that_misses_a_tier_is(self) -> None:
        strided = measured(1.6)
        checks = speedup("1.4x", measurement=strided), speedup("4.3x", "missed", TOO_SLOW, measurement=strided)
        found = step_of(TWO, graded("2_strided.cu", *checks), expecting(70))
        assert found == Step("2_strided.cu", frozenset({"1.4x"}), {"1.4x": strided, "4.3x": strided})

    @pytest.mark.parametrize(
        ("check", "expectation", "why"),
        [
            (speedup("1.4x"), None, "it has no expected verdict"),
            (speedup("1.4x"), expecting(), UNSETTLED),
            (speedup("1.4x"), expecting(70), "speedup[1.4x] was not measured"),
            (
                speedup("1.4x", "not gradable", Finding("not-timed", "The GPU was busy.")),
                expecting(70),
                "speedup[1.4x] was not measured: The GPU was busy.",
            ),
            (
                speedup("1.4x", "failed", Finding("wrong-result", "`out` is wrong."), measurement=measured(1.6)),
                expecting(70),
                "speedup[1.4x] was not measured: `out` is wrong.",
            ),
        ],
    )
    def test_others_are_left_out_with_the_reason(
        self, check: CheckResult, expectation: Expectation | None, why: str
    ) -> None:
        assert step_of(TWO, graded("2_strided.cu", check), expectation) == why
