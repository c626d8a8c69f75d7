"""Serves the page on this machine only: loopback, known host names, GET, and nothing but its own files."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, final

from ringlet import signals
from ringlet.errors import UsageError
from ringlet.libraries import require
from ringlet.watch import pages
from ringlet.watch.pages import Cursor
from ringlet.watch.run_files import read_picture
from ringlet.watch.run_view import RunView

ADDRESS = "127.0.0.1"
HOSTS = (ADDRESS, "localhost")
"""Names under which the page may be asked for: a foreign name that points here (DNS rebinding) is refused."""
POLL_SECONDS = 0.5
HEARTBEAT_SECONDS = 15.0
_FINAL_SECONDS = 1.0
"""How long pages may take to hear the last news before the server ends."""
_MAX_DIGITS = 9
_HEADERS = {
    "content-security-policy": pages.SERVED_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@final
class Hub:
    """Follows the runs, once for all pages, and wakes those who wait for news."""

    def __init__(self, runs: Sequence[RunView], *, until_finished: bool = False) -> None:
        self.runs = runs
        self.is_over = False
        self._until_finished = until_finished
        self._lock = asyncio.Lock()

    async def follow(self) -> None:
        """Look at the logs again and again; ends when all runs have or are lost, if that was asked for."""
        while not self.is_over:
            async with self._lock:
                is_behind = await asyncio.to_thread(self._look)
            if self._until_finished and not is_behind and all(run.has_ended or run.is_lost for run in self.runs):
                return
            await asyncio.sleep(0 if is_behind else POLL_SECONDS)

    def _look(self) -> bool:
        """Read on in all logs; whether any of them has more."""
        looks = [run.look() for run in self.runs]
        return any(looks)

    async def news(self, cursor: Cursor) -> str:
        """What a page lacks, as JSON; empty if nothing."""
        async with self._lock:
            found = await asyncio.to_thread(cursor.take, self.runs)
        return json.dumps(found, allow_nan=False, separators=(",", ":")) if found else ""

    async def stream(self) -> AsyncIterator[str]:
        """Server-sent events for one page."""
        cursor, quiet = Cursor(), 0.0
        yield "retry: 2000\nevent: hello\ndata: {}\n\n"
        while True:
            is_last = self.is_over
            text = await self.news(cursor)
            quiet = 0.0 if text else quiet + POLL_SECONDS
            if text:
                yield f"event: news\ndata: {text}\n\n"
            elif quiet >= HEARTBEAT_SECONDS:
                quiet = 0.0
                yield ": still here\n\n"
            if is_last:
                yield "event: over\ndata: {}\n\n"
                return
            await self._pause()

    async def _pause(self) -> None:
        """Wait for the next look, but not when all is over."""
        for _ in range(10):
            if self.is_over:
                return
            await asyncio.sleep(POLL_SECONDS / 10)


def make_app(hub: Hub) -> Any:
    """The web application: the page, its files, the stream of news and the pictures of runs."""
    applications, routing = require("starlette.applications"), require("starlette.routing")
    responses, middleware = require("starlette.responses"), require("starlette.middleware")
    trusted = require("starlette.middleware.trustedhost").TrustedHostMiddleware

    async def page(_: Any) -> Any:
        return responses.HTMLResponse(pages.served_page())

    async def static(request: Any) -> Any:
        name = request.path_params["name"]
        if name not in pages.STYLES + pages.SCRIPTS:
            return responses.PlainTextResponse("there is no such file", 404)
        return responses.Response(pages.read(name), media_type=pages.TYPES[name.rpartition(".")[2]])

    async def stream(_: Any) -> Any:
        return responses.StreamingResponse(hub.stream(), media_type="text/event-stream")

    async def picture(request: Any) -> Any:
        index, epoch = (_small_number(request.path_params[name]) for name in ("index", "epoch"))
        known = hub.runs[index : index + 1] if index >= 0 else []
        data = await asyncio.to_thread(read_picture, known[0].path, epoch) if known else None
        if data is None:
            return responses.PlainTextResponse("there is no such picture", 404)
        return responses.Response(data, media_type="image/png")

    async def sheet(request: Any) -> Any:
        index, name = _small_number(request.path_params["index"]), request.path_params["name"]
        known = hub.runs[index : index + 1] if index >= 0 else []
        data = await asyncio.to_thread(known[0].evaluation.sheet, name) if known else None
        if data is None:
            return responses.PlainTextResponse("there is no such picture", 404)
        return responses.Response(data, media_type="image/png")

    routes = [
        routing.Route("/", page),
        routing.Route("/static/{name:path}", static),
        routing.Route("/stream", stream),
        routing.Route("/runs/{index}/pictures/{epoch}.png", picture),
        routing.Route("/runs/{index}/evaluation/{name}.png", sheet),
    ]
    checks = [
        middleware.Middleware(_SafeHeaders),
        middleware.Middleware(trusted, allowed_hosts=list(HOSTS), www_redirect=False),
    ]
    return applications.Starlette(routes=routes, middleware=checks)


def _small_number(text: str) -> int:
    """A number of a few digits in an address, else -1; the framework itself stumbles over thousands of them."""
    return int(text) if len(text) <= _MAX_DIGITS and text.isascii() and text.isdigit() else -1


class _SafeHeaders:
    """Adds the headers that keep a browser from fetching, guessing or embedding anything."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


def serve(runs: Sequence[RunView], port: int, ready: Callable[[str], None], *, until_finished: bool = False) -> None:
    """Serve until a signal asks to leave or, if asked for, until all runs have ended.

    ``ready`` is told the address of the page.
    """
    listener = listen(port)
    with contextlib.closing(listener), contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(runs, listener, ready, until_finished))


async def _serve(
    runs: Sequence[RunView], listener: socket.socket, ready: Callable[[str], None], until_finished: bool
) -> None:
    uvicorn = require("uvicorn")
    hub = Hub(runs, until_finished=until_finished)
    config = uvicorn.Config(
        make_app(hub), log_config=None, access_log=False, lifespan="off", ws="none", server_header=False,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    following = asyncio.create_task(_follow(hub, server))

    def leave(_number: signal.Signals, _insists: bool) -> None:
        server.should_exit = True  # as uvicorn takes the other signals; a loop of ours wakes up soon

    try:
        with signals.handled(leave, (signal.SIGHUP,)):
            ready(f"http://{ADDRESS}:{listener.getsockname()[1]}/")
            await server.serve(sockets=[listener])
    finally:
        hub.is_over = True
        await following


async def _follow(hub: Hub, server: Any) -> None:
    """Follow the runs; when they have ended, or the server is to, let pages hear of it first."""
    following = asyncio.create_task(hub.follow())
    while not server.should_exit and not following.done():
        await asyncio.sleep(0.05)
    hub.is_over = True
    await following
    if not server.should_exit:
        await asyncio.sleep(_FINAL_SECONDS)
        server.should_exit = True


def listen(port: int) -> socket.socket:
    """A listening socket of this machine alone; port 0 takes a free one."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"port {port} cannot be used: {error.strerror}. Give another --port, or none for a free one"
        ) from None
    return listener
