# SPDX-License-Identifier: GPL-3.0-or-later
"""Server-sent events (HTML Living Standard, 9.2): the server sends the changing part of a page once
a period.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

from fastapi.responses import PlainTextResponse, StreamingResponse
from fastapi.sse import format_sse_event
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

PERIOD_S = 1.0
"""Between two events, s."""
MAX_LISTENERS = 50
"""Largest number of streams, a quarter of the connections; further pages poll."""

Content = Callable[[], tuple[str, bool] | None]
"""Returns the current part of the page, and whether it is final; None if it may no longer be shown.
"""


class Listeners:
    """The number of streams, at most `most`. A server that ends closes them first."""

    def __init__(self, most: int = MAX_LISTENERS, period_s: float = PERIOD_S) -> None:
        self.count, self.most, self.period_s = 0, most, period_s
        self.closed = False

    def close(self) -> None:
        """End every stream at its next event."""
        self.closed = True


async def messages(content: Content, listeners: Listeners) -> AsyncIterator[bytes]:
    """Yield an event once a period, up to the final one."""
    while not listeners.closed and (part := await run_in_threadpool(content)) is not None:
        text, is_final = part
        yield format_sse_event(data_str=text)
        if is_final:
            return
        # There is nothing to wait for: files and the queue are polled.
        await asyncio.sleep(listeners.period_s)


class Events(StreamingResponse):
    """A stream of events; 503 if there are too many listeners. The page then polls."""

    def __init__(self, content: Content, listeners: Listeners) -> None:
        super().__init__(messages(content, listeners), media_type="text/event-stream")
        self._listeners = listeners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._listeners.count >= self._listeners.most:
            refusal = PlainTextResponse(
                "Too many listeners; poll.\n", HTTPStatus.SERVICE_UNAVAILABLE
            )
            await refusal(scope, receive, send)
            return
        self._listeners.count += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._listeners.count -= 1
