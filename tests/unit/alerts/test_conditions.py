"""What each kind finds in a state, with answers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from scheduler_api.alerts.conditions import Finding, find, observe, observer_lost
from scheduler_api.alerts.kinds import Kind
from scheduler_api.alerts.progress import Progress
from tests.unit.alerts.states import NOW, Json, slot, state

type Made = Callable[[float], Json]


def over(kind: Kind, made: Made, seconds: Iterable[float], threshold_s: float) -> list[Finding] | None:
    """What is found at the last of the seconds, after a look at each of them."""
    progress, found = Progress(), None
    for second in seconds:
        now = NOW + second
        observe(made(now), progress, now)
        found = find(kind, made(now), progress, now, threshold_s)
    return found


def only(found: list[Finding] | None) -> Finding:
    assert found is not None
    assert len(found) == 1
    return found[0]


class TestDown:
    def test_a_refused_connection(self) -> None:
        shown = state(health="down", text="Down: connection refused", since=NOW - 12)
        finding = only(find(Kind.DOWN, shown, Progress(), NOW, 300))
        assert finding.over
        assert (finding.value_s, finding.text) == (12.0, "Down: connection refused.")

    def test_silence_counts_once_it_is_longer_than_the_threshold(self) -> None:
        shown = state(health="silent", told={"seen_at": NOW - 299})
        assert find(Kind.DOWN, shown, Progress(), NOW, 300) == []
        shown = state(health="silent", told={"seen_at": NOW - 301})
        assert only(find(Kind.DOWN, shown, Progress(), NOW, 300)).text == "No answer for 5 min."

    @pytest.mark.parametrize("health", ["up", "loading", "sleeping", "unauthorised", "not_serving"])
    def test_whoever_answers_is_not_down(self, health: str) -> None:
        assert find(Kind.DOWN, state(health=health), Progress(), NOW, 300) == []


class TestNotServing:
    def test_the_state_of_that_name(self) -> None:
        shown = state(health="not_serving", text="Up but not serving, no token for 61 s", since=NOW - 1)
        assert only(find(Kind.NOT_SERVING, shown, Progress(), NOW, 0)).over
        assert find(Kind.NOT_SERVING, state(), Progress(), NOW, 0) == []


class TestStuckSlot:
    def test_a_slot_whose_counts_stand_still(self) -> None:
        finding = only(over(Kind.STUCK_SLOT, lambda t: state(t, slots=[slot(3, made=7, client="chat")]), range(122), 120))
        assert finding.over
        assert (finding.slot, finding.client, finding.value_s) == (3, "chat", 121.0)
        assert finding.text == "Slot 3 (chat) is generating and has not moved for 2 min."

    def test_one_token_in_a_minute_is_progress(self) -> None:
        assert over(Kind.STUCK_SLOT, lambda t: state(t, slots=[slot(3, made=int(t - NOW) // 60)]), range(600), 120) == []

    def test_another_task_begins_anew(self) -> None:
        made = lambda t: state(t, slots=[slot(3, made=7, task=1 if t < NOW + 100 else 2)])  # noqa: E731
        assert over(Kind.STUCK_SLOT, made, range(150), 120) == []

    @pytest.mark.parametrize("waits", ["held", "waiting", "queued"])
    def test_a_slot_that_waits_for_others_is_not_stuck(self, waits: str) -> None:
        assert over(Kind.STUCK_SLOT, lambda t: state(t, slots=[slot(3, waits)]), range(300), 120) == []

    def test_a_server_that_does_not_count_the_prompts_tokens_tells_nothing_of_them(self) -> None:
        silent = slot(3, "prompt") | {"n_processed": None}
        assert over(Kind.STUCK_SLOT, lambda t: state(t, slots=[silent]), range(300), 120) == []


def served(t: float, **more: object) -> Json:
    """Slot 0 gets a hundred tokens a second."""
    return slot(0, "prompt", done=int((t - NOW) * 100), client="doc")


class TestStarving:
    def test_a_client_gets_nothing_while_another_is_served(self) -> None:
        waits = slot(1, "waiting", client="chat", waiting_for="batch full, slot 0 took 2048 of 2048")
        finding = only(over(Kind.STARVING, lambda t: state(t, slots=[served(t), waits]), range(34), 30))
        assert finding.over
        assert (finding.key, finding.slot, finding.value_s) == ("client chat", 1, 33.0)
        assert finding.text == "chat in slot 1 got no token for 33 s while others did: batch full, slot 0 took 2048 of 2048."

    def test_nobody_starves_when_nobody_is_served(self) -> None:
        both = [slot(0, "waiting", client="doc"), slot(1, "waiting", client="chat")]
        assert over(Kind.STARVING, lambda t: state(t, slots=both), range(90), 30) == []

    def test_a_client_that_is_served_in_another_slot_does_not_starve(self) -> None:
        waits = slot(1, "waiting", client="doc")
        assert over(Kind.STARVING, lambda t: state(t, slots=[served(t), waits]), range(90), 30) == []

    def test_slots_without_a_name_count_each_for_itself(self) -> None:
        made = lambda t: state(t, slots=[served(t) | {"client": ""}, slot(1, "waiting"), slot(2, "waiting")])  # noqa: E731
        found = over(Kind.STARVING, made, range(34), 30)
        assert [finding.key for finding in found or []] == ["slot 1", "slot 2"]

    def test_a_held_slot_does_not_starve_and_begins_anew_afterwards(self) -> None:
        def made(t: float) -> Json:
            return state(t, slots=[served(t), slot(1, "held" if t < NOW + 60 else "queued", client="chat")])

        assert over(Kind.STARVING, made, range(75), 30) == []
        assert only(over(Kind.STARVING, made, range(92), 30)).over

    def test_it_is_over_with_the_first_token(self) -> None:
        made = lambda t: state(t, slots=[served(t), slot(1, "prompt", done=int(t > NOW + 50), client="chat")])  # noqa: E731
        assert over(Kind.STARVING, made, range(60), 30) == []


class TestQueueAge:
    def test_the_oldest_is_older_than_the_threshold(self) -> None:
        finding = only(find(Kind.QUEUE_AGE, state(queue={"depth": 3, "oldest_s": 61.0}), Progress(), NOW, 60))
        assert finding.over
        assert finding.text == "3 tasks queue, the oldest for 61 s."

    def test_near_the_threshold_it_is_not_over_but_not_gone(self) -> None:
        finding = only(find(Kind.QUEUE_AGE, state(queue={"depth": 1, "oldest_s": 50.0}), Progress(), NOW, 60))
        assert not finding.over
        assert find(Kind.QUEUE_AGE, state(queue={"depth": 1, "oldest_s": 47.0}), Progress(), NOW, 60) == []

    def test_a_queue_without_ages_tells_nothing_unless_it_is_empty(self) -> None:
        assert find(Kind.QUEUE_AGE, state(queue={"depth": 3, "oldest_s": None}), Progress(), NOW, 60) is None
        assert find(Kind.QUEUE_AGE, state(queue={"depth": 0, "oldest_s": None}), Progress(), NOW, 60) == []
        assert find(Kind.QUEUE_AGE, state(queue=None), Progress(), NOW, 60) is None


class TestCohortHold:
    def held(self, t: float, cap_ms: int | None) -> Json:
        slots = [slot(0, "prompt"), slot(1, "held", client="chat", waiting_for="held: cohort 17 waits for slot 2 (63 %)")]
        return state(t, slots=slots, policy={"effective": {"barrier_max_hold_ms": cap_ms}})

    def test_over_the_policys_cap(self) -> None:
        finding = only(over(Kind.COHORT_HOLD, lambda t: self.held(t, 4000), range(6), 60))
        assert finding.over
        assert finding.limit_s == 4.0
        assert finding.text == "Slot 1 (chat) is held for 5 s, over its cap of 4 s: cohort 17 waits for slot 2 (63 %)."

    def test_without_a_cap_the_threshold_is_one(self) -> None:
        assert over(Kind.COHORT_HOLD, lambda t: self.held(t, None), range(40), 60) == []
        finding = only(over(Kind.COHORT_HOLD, lambda t: self.held(t, None), range(62), 60))
        assert finding.over
        assert "without a cap in the policy" in finding.text

    def test_two_holds_with_a_batch_between_them_are_two(self) -> None:
        def made(t: float) -> Json:
            shown = self.held(t, 4000)
            if int(t - NOW) == 3:
                shown["slots"][1]["state"] = "generating"
            return shown

        assert not any(finding.over for finding in over(Kind.COHORT_HOLD, made, range(8), 60) or [])


class TestWhatIsNotKnown:
    """Nothing opens and nothing closes on what nobody knows."""

    @pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.OBSERVER_LOST])
    def test_no_state_or_an_old_one_tells_nothing(self, kind: Kind) -> None:
        assert find(kind, None, Progress(), NOW, 30) is None
        assert find(kind, state(NOW - 31, health="down"), Progress(), NOW, 30) is None
        assert find(kind, state(health="unknown"), Progress(), NOW, 30) is None

    @pytest.mark.parametrize("kind", [Kind.STUCK_SLOT, Kind.STARVING, Kind.COHORT_HOLD, Kind.QUEUE_AGE, Kind.NOT_SERVING])
    def test_a_silent_server_tells_nothing_of_its_work_and_a_dead_one_has_none(self, kind: Kind) -> None:
        assert find(kind, state(health="silent"), Progress(), NOW, 30) is None
        assert find(kind, state(health="down"), Progress(), NOW, 30) == []

    def test_an_observer_that_begins_knows_no_past(self) -> None:
        standing = state(slots=[slot(3, made=7)])
        assert over(Kind.STUCK_SLOT, lambda t: standing | {"t": t}, [0.0, 1.0], 120) == []

    def test_what_an_earlier_observer_knew_is_gone_on_from(self) -> None:
        progress = Progress()
        progress.adopt(3, 103, NOW - 200)
        shown = state(slots=[slot(3, made=7)])
        observe(shown, progress, NOW)
        assert only(find(Kind.STUCK_SLOT, shown, progress, NOW, 120)).value_s == 200.0

    def test_a_slot_at_another_task_does_not_go_on(self) -> None:
        progress = Progress()
        progress.adopt(3, 99, NOW - 200)
        shown = state(slots=[slot(3, made=7)])
        observe(shown, progress, NOW)
        assert find(Kind.STUCK_SLOT, shown, progress, NOW, 120) == []


class TestObserverLost:
    def test_only_what_is_known_counts(self) -> None:
        assert observer_lost(None, 20) is None
        assert observer_lost(2.0, 20) == []
        assert only(observer_lost(21.0, 20)).over
