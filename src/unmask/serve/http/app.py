"""The application: routes of the JSON API, of the views and of the page."""

from __future__ import annotations

import base64
import os
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from unmask.errors import UnmaskError, nearest
from unmask.serve import views
from unmask.serve.http import forms, openapi, prometheus, verbs
from unmask.serve.http.aside import in_time, while_there
from unmask.serve.http.forms import Schema
from unmask.serve.http.guard import Guard, refused
from unmask.serve.http.pool import Pool
from unmask.serve.http.refusals import Refusal, too_busy
from unmask.serve.http.service import Service
from unmask.serve.http.settings import Access, Settings
from unmask.serve.http.verbs import Body
from unmask.serve.http.wire import answered, is_short, read_json, reply, written
from unmask.tasks import TASKS

PAGE = Path(__file__).parents[2] / "page"
SHOWN = ("", ".html", ".css", ".js", ".json", ".svg", ".png", ".ico", ".woff2", ".txt")  # "": a folder
Endpoint = Callable[[Request], Awaitable[Response]]


def build(pool: Pool, settings: Settings | None = None, access: Access | None = None) -> Starlette:
    """The service of a pool as an ASGI application; `app.state.service` is its `Service`."""
    service = Service(pool, settings or Settings())
    access = access or Access()
    api = Api(service)
    routes: list[BaseRoute] = [
        Route(operation.path, api.endpoint(operation.path), methods=[operation.method.upper()])
        for operation in openapi.OPERATIONS
    ]
    routes += views.routes(pool, data=access.data)
    middleware = [Middleware(Guard, service=service, access=access, public=_files(PAGE))]
    if access.origins:
        headers = ["authorization", "content-type"]
        cors = Middleware(
            CORSMiddleware, allow_origins=access.origins, allow_methods=["GET", "POST"], allow_headers=headers
        )
        middleware.insert(0, cors)
    handlers: dict[Any, Any] = dict.fromkeys((HTTPException, UnmaskError, Refusal), _refuse)
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)
    page = Page(directory=PAGE, html=True)
    page.paths = {route.path for route in routes if isinstance(route, Route)}
    app.router.default = page  # a mount would hide the status 405
    app.state.service = service
    return app


def kinds(*, vectors: bool = False) -> list[str]:
    """The kinds of models that compute vectors of texts, or of those that answer otherwise (`vectors` False)."""
    found = [task.name for task in TASKS.values() if task.gives_vectors == vectors]
    return found if vectors else ["fill-mask", "next-sentence", "replaced-tokens", *found]


async def _refuse(request: Request, error: Exception) -> Response:
    return refused(request, error)


class Page(StaticFiles):
    """The files of the page, without Python files in the same folder; every other path is refused with the nearest
    one of `paths`."""

    paths: Collection[str] = ()

    async def get_response(self, path: str, scope: Scope) -> Response:
        try:
            return await super().get_response(path, scope)
        except HTTPException as error:
            found = error.status_code == 405 and self.lookup_path(path)[1] is not None
            meant = nearest(scope["path"], self.paths)
            if found or meant is None:
                raise HTTPException(error.status_code if found else 404) from None
            raise Refusal(404, f"There is no path {scope['path']}; the nearest one is {meant}.") from None

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        return super().lookup_path(path) if Path(path).suffix in SHOWN else ("", None)


def _files(folder: Path) -> frozenset[str]:
    """The paths of the page, which need no key: a browser loads them before it can send one."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix in SHOWN]
    return frozenset({"/", *(f"/{path.relative_to(folder).as_posix()}" for path in files)})


class Api:
    """The endpoints; `service` is their shared state."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.document = openapi.document([*openapi.OPERATIONS, *map(openapi.view, views.VIEWS)], version("unmask"))

    def endpoint(self, path: str) -> Endpoint:
        """The method for a path, with the time limit of the service."""
        answer: Endpoint = getattr(self, path.strip("/").removesuffix(".json").replace("/", "_"))
        seconds = self.service.settings.seconds

        async def limited(request: Request) -> Response:
            async with in_time(seconds):
                return await answer(request)

        return limited

    # -- asking

    async def predict(self, request: Request) -> Response:
        body = await _body(request, forms.PREDICT)
        served = await self.service.model(body.get("model"), *kinds())
        _, found = await self.service.answer(request, served, verbs.predict, body)
        return await _written(request, {"model": served.name, "answers": found})

    async def translate(self, request: Request) -> Response:
        body = await _body(request, forms.TRANSLATE)
        served = await self.service.model(body.get("model"), "translation")
        _, found = await self.service.answer(request, served, verbs.translate, body)
        return await _written(request, {"model": served.name, "answers": found})

    async def generate(self, request: Request) -> Response:
        body = await _body(request, forms.GENERATE)
        served = await self.service.model(body.get("model"), "generation")
        _, found = await self.service.answer(request, served, verbs.generate, body)
        return await _written(request, {"model": served.name, "answers": found})

    async def embed(self, request: Request) -> Response:
        body = await _body(request, forms.EMBED, inputs=forms.EMBED_INFERENCE)
        served = await self.service.model(body.get("model"), *kinds(vectors=True))
        ask, found = await self.service.answer(request, served, verbs.embed, body)
        vectors = verbs.vectors_of(found)
        if "inputs" in body:
            return await _written(request, vectors, verbs.units if body.get("normalize", True) else None)
        cut = [i for i, answer in enumerate(found) if answer.get("cut")]
        return await _written(request, {"model": served.name, "embeddings": vectors, "tokens": ask.read, "cut": cut})

    async def v1_embeddings(self, request: Request) -> Response:
        body = await _body(request, forms.EMBEDDINGS)
        served = await self.service.model(body.get("model"), *kinds(vectors=True))
        ask, found = await self.service.answer(request, served, verbs.embed, body)
        shown = _base64 if body.get("encoding_format") == "base64" else list
        usage = {"prompt_tokens": ask.read, "total_tokens": ask.read}

        def listed(answers: list[Any]) -> dict[str, Any]:
            data = [
                {"object": "embedding", "index": i, "embedding": shown(answer["embedding"])}
                for i, answer in enumerate(answers)
            ]
            return {"object": "list", "data": data, "model": served.name, "usage": usage}

        return await _written(request, found, listed)

    async def tokenize(self, request: Request) -> Response:
        body = await _body(request, forms.TOKENIZE)
        served = await self.service.model(body.get("model"))
        tokens = await self.service.prepare(request, verbs.tokenize, served, body)
        return await _written(request, {"model": served.name, "tokens": tokens})

    # -- looking

    async def models(self, request: Request) -> Response:
        pool, loaded = self.service.pool, self.service.pool.loaded()
        tasks = {task.name: task for task in reversed(TASKS.values())}
        shown = {kind: {"panel": task.panel, "gives": task.gives} for kind, task in tasks.items() if task.panel}
        found = [
            {"name": name, "kind": pool.kinds[name], "loaded": name in loaded, **shown.get(pool.kinds[name], {})}
            | {key: of[name] for key, of in (("task", pool.tasks), ("features", pool.features)) if name in of}
            for name in pool.names()
        ]
        return reply({"models": found})

    async def v1_models(self, request: Request) -> Response:
        names = self.service.pool.names()
        data = [{"id": name, "object": "model", "created": 0, "owned_by": "unmask"} for name in names]
        return reply({"object": "list", "data": data})

    async def health(self, request: Request) -> Response:
        return reply({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        if self.service.ready:
            return reply({"status": "ready"})
        raise too_busy(503, "The service is ending." if self.service.ends_at else "No model is loaded yet.", 1)

    async def metrics(self, request: Request) -> Response:
        return Response(self.service.exposition(), headers={"content-type": prometheus.CONTENT_TYPE})

    async def openapi(self, request: Request) -> Response:
        return reply(self.document)


async def _body(request: Request, schema: Schema, **others: Schema) -> Body:
    """The JSON of a request, checked against `schema`, or against the schema in `others` of a field that it has.

    Raises Refusal for a body that does not fit.
    """
    body = await read_json(request)
    verbs.check_count(body, request.app.state.service.settings)
    for field, other in others.items():
        if isinstance(body, dict) and field in body:
            schema = other
    forms.check(body, schema)
    assert isinstance(body, dict)
    return body


async def _written(request: Request, value: Any, form: Callable[[Any], Any] | None = None) -> Response:
    """The response with a value, or with `form(value)`; a thread writes long ones."""
    make = partial(form, value) if form else lambda: value
    return written(request, make()) if is_short(value) else await while_there(request, answered(request, make))


def _base64(vector: list[float]) -> str:
    return base64.b64encode(np.array(vector, dtype="<f4").tobytes()).decode("ascii")
