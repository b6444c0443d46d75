# SPDX-License-Identifier: GPL-3.0-or-later
"""Server-sent events (HTML Living Standard, 9.2): the moving part of a page is pushed while somebody looks at it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

from fastapi.responses import PlainTextResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

PERIOD_S = 1.0
"""Between two looks."""
MOST_LISTENERS = 50
"""At once, a quarter of the connections that the server takes; those beyond poll."""

Look = Callable[[], tuple[str, bool] | None]
"""Gives the part of the page now, and whether it was the last time; None: it may no longer be shown."""


class Listeners:
    """How many are listening, up to `most`; and whether the server is about to end, which they shall not hold up."""

    def __init__(self, most: int = MOST_LISTENERS, period_s: float = PERIOD_S) -> None:
        self.count, self.most, self.period_s = 0, most, period_s
        self.closed = False

    def close(self) -> None:
        """End every stream at its next look."""
        self.closed = True


def event(text: str) -> str:
    """Return one message; whatever the text holds, its lines are data."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "".join(f"data: {line}\n" for line in lines) + "\n"


async def messages(look: Look, listeners: Listeners) -> AsyncIterator[str]:
    """Look once a period and give a message of each look, up to the last."""
    while not listeners.closed and (seen := await run_in_threadpool(look)) is not None:
        text, is_last = seen
        yield event(text)
        if is_last:
            return
        await asyncio.sleep(listeners.period_s)  # files and the queue can only be looked at


class Events(StreamingResponse):
    """A stream of looks; 503 where there are too many listeners, upon which a page polls."""

    def __init__(self, look: Look, listeners: Listeners) -> None:
        super().__init__(messages(look, listeners), media_type="text/event-stream")
        self._listeners = listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and count the listener in and out."""
        if self._listeners.count >= self._listeners.most:
            refusal = PlainTextResponse("Too many are listening; poll.\n", HTTPStatus.SERVICE_UNAVAILABLE)
            await refusal(scope, receive, send)
            return
        self._listeners.count += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._listeners.count -= 1
