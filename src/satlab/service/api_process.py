# SPDX-License-Identifier: GPL-3.0-or-later
"""The API process: `python -m satlab.service.api_process PLAN`, started without privilege by the
root process.

PLAN is an `ApiPlan` as JSON. The root process passes the plan and keeps open the files whose numbers
it names.
"""

import logging
import sys
from types import FrameType

import uvicorn

from satlab.service.api.database import Store
from satlab.service.api.limits import (
    MAX_ARRIVALS,
    MAX_CONNECTIONS,
    MAX_HEADERS,
    LimitedProtocol,
    Listener,
)
from satlab.service.api.settings import ApiPlan
from satlab.service.app import create_app
from satlab.service.pages.server_sent_events import Listeners
from satlab.service.root_helper.protocol import HelperClient


class _Server(uvicorn.Server):
    """Ends the event streams at the first signal, since it waits for open answers."""

    def __init__(self, config: uvicorn.Config, listeners: Listeners) -> None:
        super().__init__(config)
        self._listeners = listeners

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._listeners.close()
        super().handle_exit(sig, frame)


def serve(plan: ApiPlan) -> None:
    """Serve until SIGTERM or SIGINT."""
    app = create_app(Store(plan.settings.database), HelperClient(plan.helper), plan.settings)
    config = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        loop="asyncio",
        backlog=MAX_ARRIVALS,  # asyncio accepts as many at once, before it looks at any of them
        http=LimitedProtocol,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEADERS,
        timeout_graceful_shutdown=3,
        ssl_certfile=f"/proc/self/fd/{plan.certificate}" if plan.settings.secure else None,
        ssl_keyfile=f"/proc/self/fd/{plan.key}" if plan.settings.secure else None,
    )
    _Server(config, app.state.listeners).run(sockets=[Listener(fileno=plan.listener)])


def main() -> None:
    logging.basicConfig(stream=sys.stderr, format="satlab serve: %(message)s")
    serve(ApiPlan.model_validate_json(sys.argv[1]))


if __name__ == "__main__":
    main()
