"""Beginning runs on a cluster: new ones, ones from elsewhere, and failed ones again.

May import loom.core, loom.flows, loom.runtime, loom.store, temporalio and the modules beside it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDReusePolicy,
)

from loom.core.ticks import TickRetryRun
from loom.runtime.planners import flow_planner
from loom.store import codec
from loom.store.operations import Posted, Started
from loom.store.records import Snapshot, StoredRun
from loom.temporal.keywords import tag_keywords
from loom.temporal.names import ATTRIBUTE_TAGS, MEMO_RUN
from loom.temporal.payloads import Letter, Opening
from loom.temporal.rows import card_in_memo, card_of_row, card_of_start, row_of_card, start_digest
from loom.temporal.store_cluster import NotThere
from loom.temporal.store_telling import tick_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom.core.config import BrokerConfig
    from loom.store.operations import ImportRun, PostMail, StartRun
    from loom.temporal.entries import Documents
    from loom.temporal.payloads import Card, NewCode
    from loom.temporal.store_cluster import Cluster
    from loom.temporal.store_reading import Reading
    from loom.temporal.store_whole import Whole

_TAGS = SearchAttributeKey.for_keyword_list(ATTRIBUTE_TAGS)


class Starting:
    """Starts the workflows that are runs."""

    def __init__(
        self,
        cluster: Cluster,
        reading: Reading,
        whole: Whole,
        documents: Documents,
        code_of: Callable[[str], NewCode | None],
    ) -> None:
        self._cluster = cluster
        self._reading = reading
        self._whole = whole
        self._documents = documents
        self._code_of = code_of
        self.has_attributes = False
        """Whether the cluster has Loom's search attributes."""

    async def start(self, asked: StartRun) -> Started:
        """Accept a run; if there is one of this id already, say what it was started with."""
        card = card_of_start(asked, self.has_attributes)
        text: str | None = None
        if asked.document is not None:
            await self._documents.save(*asked.document)
            text = asked.document[1].decode()
        config = self._config(asked.workflow, asked.document[1] if asked.document is not None else None)
        opening = Opening(card, start=asked.start.decode(), config=config, document=text)
        letter = Letter(tick_of(asked.mail), began=(card.workflow, card.start)) if asked.mail is not None else None
        opened = await self._open(opening, letter=letter)
        if opened and letter is None:
            started = Started(True)
        else:
            started = await self._found(asked, card if opened else None)
        if started.created:
            self._reading.began(row_of_card(card))
        return started

    async def _found(self, asked: StartRun, sent: Card | None) -> Started:
        """The run that has the id. Its card tells whether its start was the same, its history what it was.

        With `sent` the mail of the start has reached it, and if that is its card, it is the run that was started.
        """
        try:
            description = await self._cluster.describe(asked.run_id, wrote=sent is not None)
            card = await card_in_memo(description)
            if card is not None and card == sent:
                return Started(True)
            if card is not None and card.start == start_digest(asked.start):
                workflow = description.workflow_type or ""
                return Started(False, workflow, asked.start, mailed=sent is not None and workflow == asked.workflow)
            origin = await self._whole.origin(asked.run_id)
        except NotThere:
            return await self.start(asked)  # it was deleted in this moment
        return Started(False, origin.workflow, origin.start)

    async def bring(self, asked: ImportRun) -> bool:
        """Go on with a run that was exported or forked; False if the id is taken."""
        stored = asked.run
        row = replace(stored.row, owner=None)
        if row.document is not None and stored.document is not None:
            await self._documents.save(row.document, stored.document)
        card = card_of_row(row, stored.start, self.has_attributes)
        config = self._config(row.workflow, stored.document)
        code = self._code_of(row.workflow) if stored.document is None else None
        keeps_timeout = code is not None and code.keeps_timeout
        opening = Opening(card, config=config, stored=replace(stored, row=row), keeps_timeout=keeps_timeout)
        brought = await self._open(opening)
        if brought:
            self._reading.began(row)
        return brought

    async def retry(self, asked: PostMail) -> Posted:
        """Let a failed run go on, in a new execution from the state that it had."""
        run_id, tick = asked.run_id, tick_of(asked)
        row = await self._reading.row(run_id)
        if row is None:
            return Posted("no_run")
        if row.head.status != "failed":
            return Posted("finished", status=row.head.status)
        description = await self._cluster.describe(run_id)
        origin = await self._whole.origin(run_id)
        data = await self._whole.state(run_id)
        snapshot = Snapshot(codec.decode_state(run_id, data).ticks, data)
        opening = Opening(
            card_of_row(row, origin.start, self.has_attributes),
            config=self._config(row.workflow, origin.document),
            stored=StoredRun(row, origin.start, snapshot, (), document=origin.document),
            retry=True,
            healing=tick if isinstance(tick, TickRetryRun) and tick.event is not None else None,
            previous=description.run_id,
        )
        if not await self._open(opening, WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY):
            return Posted("finished", status="running")  # somebody else was faster
        self._reading.forget(run_id)
        return Posted("posted")

    def _config(self, workflow: str, document: bytes | None) -> BrokerConfig | None:
        """The code that a run begins with: that of its own document, or what is at hand under its name."""
        if document is None:
            code = self._code_of(workflow)
            return code.config if code is not None else None
        from loom.flows.planner import flow_config  # a command that starts nothing must not wait for it

        return flow_config(flow_planner(document).program)

    async def _open(
        self,
        opening: Opening,
        reuse: WorkflowIDReusePolicy = WorkflowIDReusePolicy.REJECT_DUPLICATE,
        letter: Letter | None = None,
    ) -> bool:
        card = opening.card
        with suppress(NotThere):
            if await self._reading.is_deleted(card.run_id):
                reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE
        return await self._cluster.start(
            card.workflow,
            card.run_id,
            opening,
            memo={MEMO_RUN: card},
            attributes=_attributes(card),
            reuse=reuse,
            letter=letter,
        )


def _attributes(card: Card) -> TypedSearchAttributes | None:
    if not card.attributes:
        return None
    return TypedSearchAttributes([SearchAttributePair(_TAGS, tag_keywords(card.tags))])
