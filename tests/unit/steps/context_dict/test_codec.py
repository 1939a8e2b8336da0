from __future__ import annotations

import pytest

from loom.core.body_effects import wait_key
from loom.steps.context_dict.codec import current_waiter_id, default_waiter_id, waiter_id_of


def test_the_default_id_names_type_requirements_and_work_item() -> None:
    found = default_waiter_id("app.Reply", {"b": 1, "a": "x"}, 7)
    assert found == 'waiter_app.Reply_{"a":"x","b":1}_work_item_7'


@pytest.mark.parametrize(
    ("saved", "saved_item"),
    [
        ('waiter_app.Reply_{"user":"ann"}_work_item_3', "work_item_3"),
        (
            'waiter_app.Reply_{"user":"ann"}_work_item_collect_stream-0a:x->y:T:All:nearest',
            "work_item_collect_stream-0a:x->y:T:All:nearest",
        ),
        ('waiter_app.Reply_{"user":"ann"}', None),
        ("waiter_app.Reply_{'user': 'ann'}", None),
    ],
)
def test_ids_of_every_age_become_the_one_that_the_body_will_ask_for(saved: str, saved_item: str | None) -> None:
    assert current_waiter_id(saved, "app.Reply", saved_item, 7) == default_waiter_id("app.Reply", {"user": "ann"}, 7)


@pytest.mark.parametrize("own", ["approval", "waiter_app.Reply_mine", "waiter_other.Type_{}", "waiter_app.Reply_[]"])
def test_an_authors_own_id_stays(own: str) -> None:
    assert current_waiter_id(own, "app.Reply", "work_item_3", 7) == own


@pytest.mark.parametrize("own", ["approval", "a:b:c", ""])
def test_the_id_is_found_in_the_key_of_its_wait(own: str) -> None:
    assert waiter_id_of(wait_key(own, 3)) == own
