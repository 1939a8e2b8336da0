"""Three services on the loopback, each with an OpenAPI document of another make.

Mail is as connectors of Logic Apps are written (2.0, a path that begins with the connection, subscriptions). Tickets is
a service of today (3.0, tokens, pages). Files is 3.1 in YAML, with keys in the query and names in its paths.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

MAIL: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Mail", "version": "1.0"},
    "host": "mail.example.com",
    "basePath": "/apim/mail",
    "schemes": ["https"],
    "consumes": ["application/json"],
    "parameters": {"Tenant": {"name": "X-Tenant", "in": "header", "type": "string"}},
    "paths": {
        "/{connectionId}/v2/Mail": {
            "post": {
                "operationId": "SendEmailV2",
                "parameters": [
                    {"name": "connectionId", "in": "path", "required": True, "type": "string"},
                    {"$ref": "#/parameters/Tenant"},
                    {
                        "name": "emailMessage",
                        "in": "body",
                        "required": True,
                        "schema": {"$ref": "#/definitions/Message"},
                    },
                ],
            }
        },
        "/{connectionId}/folders/{folder}/messages/{id}": {
            "get": {
                "operationId": "GetMessage",
                "parameters": [
                    {"name": "connectionId", "in": "path", "required": True, "type": "string"},
                    {
                        "name": "folder",
                        "in": "path",
                        "required": True,
                        "type": "string",
                        "x-ms-url-encoding": "double",
                    },
                    {"name": "id", "in": "path", "required": True, "type": "string"},
                    {"name": "fields", "in": "query", "type": "array", "collectionFormat": "pipes"},
                    {"name": "view", "in": "query", "type": "string", "required": True, "default": "full"},
                ],
            }
        },
        "/{connectionId}/approvalmail/$subscriptions": {
            "x-ms-notification-content": {"schema": {"type": "object"}},
            "post": {
                "operationId": "SendApprovalMail",
                "parameters": [
                    {"name": "connectionId", "in": "path", "required": True, "type": "string"},
                    {
                        "name": "approval",
                        "in": "body",
                        "required": True,
                        "schema": {
                            "type": "object",
                            "properties": {
                                "NotificationUrl": {"type": "string", "x-ms-notification-url": True},
                                "Message": {"$ref": "#/definitions/Message"},
                            },
                        },
                    },
                ],
            },
        },
    },
    "definitions": {
        "Message": {
            "type": "object",
            "required": ["To", "Subject"],
            "properties": {
                "To": {"type": "string"},
                "Subject": {"type": "string"},
                "Reply": {"$ref": "#/definitions/Message"},
            },
        }
    },
}

TICKETS: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "Tickets", "version": "7"},
    "servers": [{"url": "https://{region}.tickets.example.com/api", "variables": {"region": {"default": "eu"}}}],
    "paths": {
        "/tickets": {
            "parameters": [{"$ref": "#/components/parameters/Project"}],
            "get": {
                "operationId": "ListTickets",
                "x-ms-pageable": {"nextLinkName": "@odata.nextLink"},
                "parameters": [{"name": "state", "in": "query", "schema": {"type": "array"}}],
            },
            "post": {
                "operationId": "CreateTicket",
                "requestBody": {"$ref": "#/components/requestBodies/Ticket"},
            },
        },
        "/tickets/{number}": {
            "get": {
                "operationId": "GetTicket",
                "parameters": [{"name": "number", "in": "path", "required": True, "schema": {"type": "integer"}}],
            }
        },
    },
    "components": {
        "parameters": {
            "Project": {"name": "project", "in": "query", "required": True, "schema": {"type": "string"}},
        },
        "requestBodies": {
            "Ticket": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Ticket"}}},
            },
        },
        "schemas": {
            "Ticket": {"type": "object", "properties": {"title": {"type": "string"}, "meta": {"type": "object"}}},
        },
    },
}

FILES = """
openapi: 3.1.0
info: {title: Files, version: "2"}
servers:
  - url: /relative
paths:
  /datasets/{dataset}/files/{name}:
    get:
      operationId: ReadFile
      parameters:
        - {name: dataset, in: path, required: true, schema: {type: string}}
        - {name: name, in: path, required: true, schema: {type: string}}
    put:
      operationId: WriteFile
      parameters:
        - {name: dataset, in: path, required: true, schema: {type: string}}
        - {name: name, in: path, required: true, schema: {type: string}}
        - {name: code, in: query, required: true, schema: {type: string}}
      requestBody:
        content:
          text/plain: {schema: {type: string}}
  /datasets/default/files/latest:
    get: {operationId: ReadLatest}
"""

MAIL_PASSWORD = "mail-Passw0rd!"
TICKETS_SECRET = "tickets-s3cret/+"
FILES_KEY = "files-k3y&more"
SECRETS = (MAIL_PASSWORD, TICKETS_SECRET, FILES_KEY)


class Service:
    """What all three have: they remember what they were asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.was_asked = asyncio.Event()
        self.answers: dict[str, list[Response]] = {}
        """Answers by path that come before the usual ones, in turn."""
        self.app = Starlette(
            routes=[Route("/{path:path}", self._take, methods=["GET", "POST", "PUT", "PATCH", "DELETE"])]
        )
        self.url = ""

    async def _take(self, request: Request) -> Response:
        content = await request.body()
        asked = {
            "method": request.method,
            "path": request.scope["raw_path"].decode().partition("?")[0],
            "query": request.url.query,
            "headers": dict(request.headers),
            "body": content.decode(),
        }
        self.asked.append(asked)
        self.was_asked.set()
        waiting = self.answers.get(asked["path"])
        return waiting.pop(0) if waiting else self.answer(asked)

    def answer(self, asked: dict[str, Any]) -> Response:
        return JSONResponse({"asked": asked["path"], "body": json.loads(asked["body"] or "null")})

    def paths(self) -> list[str]:
        return [f"{asked['method']} {asked['path']}" for asked in self.asked]


class Mail(Service):
    """Takes mail, and subscriptions to approvals."""

    def answer(self, asked: dict[str, Any]) -> Response:
        if asked["path"].endswith("$subscriptions"):
            return JSONResponse({"id": 1}, 201, headers={"Location": f"{asked['path']}/1"})
        return super().answer(asked)


class Tickets(Service):
    """Gives out tokens, which expire, and lists in pages."""

    total = 7
    page = 2

    def __init__(self) -> None:
        super().__init__()
        self.tokens = 0
        self.lives = 3600
        self.refuses: set[str] = set()

    def answer(self, asked: dict[str, Any]) -> Response:
        if asked["path"] == "/token":
            return self.token(parse_qs(asked["body"]))
        token = asked["headers"].get("authorization", "").removeprefix("Bearer ")
        if not token.startswith("token-number-") or token in self.refuses:
            return JSONResponse({"error": "unauthorized"}, 401)
        if asked["path"] == "/api/tickets" and asked["method"] == "GET":
            return self.list(parse_qs(asked["query"]))
        if asked["path"] == "/api/tickets":
            return JSONResponse({"created": json.loads(asked["body"]), "you_sent": asked["headers"]}, 201)
        return super().answer(asked)

    def token(self, form: dict[str, list[str]]) -> Response:
        if form.get("client_secret") != [TICKETS_SECRET]:
            return JSONResponse({"error": "invalid_client"}, 401)
        self.tokens += 1
        return JSONResponse({"access_token": f"token-number-{self.tokens}", "expires_in": self.lives})

    def list(self, query: dict[str, list[str]]) -> Response:
        skip = int(query.get("skip", ["0"])[0])
        answer: dict[str, Any] = {"value": [{"number": n} for n in range(skip, min(skip + self.page, self.total))]}
        if skip + self.page < self.total:
            answer["@odata.nextLink"] = f"{self.url}/api/tickets?project=p&skip={skip + self.page}"
        return JSONResponse(answer)


@asynccontextmanager
async def serving(*services: Service) -> AsyncIterator[None]:
    """Serve each on a port of its own."""
    servers, tasks = [], []
    for service in services:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        service.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(service.app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        servers.append(server)
        tasks.append(asyncio.create_task(server.serve(sockets=[listener])))
    try:
        yield
    finally:
        for server in servers:
            server.should_exit = True
        await asyncio.gather(*tasks)
