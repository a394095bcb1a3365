"""A cluster that speaks what YARN's ResourceManager, Kubernetes' API server and Livy speak over HTTP, on loopback.

It runs nothing: tests say how its applications are. ``spark-submit`` is a program that hands an application to it with
the properties it is given, and waits as the real one does.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from orchestration_queue.spark import SparkSubmit

__all__ = ["KINDS", "App", "Wire", "wire"]

KINDS = ("yarn", "kubernetes", "livy")

_YARN = {
    "running": ("RUNNING", "UNDEFINED"),
    "succeeded": ("FINISHED", "SUCCEEDED"),
    "failed": ("FINISHED", "FAILED"),
    "killed": ("KILLED", "KILLED"),
}
_PODS = {"running": "Running", "succeeded": "Succeeded", "failed": "Failed"}
_BATCHES = {"running": "running", "succeeded": "success", "failed": "dead"}
_LABEL = "orchestration-queue-submission"

_SUBMIT = """#!{python}
import json, sys, time, urllib.request
words = sys.argv[1:]
file = words[words.index("--properties-file") + 1]
properties = dict(line.rstrip("\\n").split("=", 1) for line in open(file))
request = urllib.request.Request("{url}/test/submit", json.dumps(properties).encode(), method="POST")
app = json.load(urllib.request.urlopen(request))
print("submitted", app["id"], flush=True)
while app["state"] == "running" and app["waits"]:
    time.sleep(0.05)
    app = json.load(urllib.request.urlopen("{url}/test/" + app["id"]))
sys.exit(app["code"])
"""


@dataclass
class App:
    """An application.

    Attributes:
        id: Its id.
        tag: What it carries.
        request: What it was submitted with.
        state: ``running``, ``succeeded``, ``failed`` or, on YARN alone, ``killed``: the others forget it.
        log: What its driver has printed.
        message: What the cluster says of its end.
        waits: Whether ``spark-submit`` waits for it.
        code: What ``spark-submit`` ends with.
    """

    id: str
    tag: str
    request: dict[str, Any]
    state: str = "running"
    log: list[str] = field(default_factory=list)
    message: str = ""
    waits: bool = True
    code: int = 0


class Wire(ThreadingHTTPServer):
    """The server.

    Attributes:
        kind: Whose words it speaks.
        apps: The applications that it has been given.
        asked: Method and path of each request.
        unheard: How many submissions stay without a reply.
        refuses: A status and words for every request; None to serve.
        template: How new applications are.
    """

    daemon_threads = True

    def __init__(self, kind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.kind = kind
        self.apps: dict[str, App] = {}
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.unheard = 0
        self.refuses: tuple[int, str] | None = None
        self.template: dict[str, Any] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def app(self) -> App:
        """The only one."""
        (found,) = self.apps.values()
        return found

    def options(self, home: Path, **more: Any) -> SparkSubmit:
        """How to submit to it."""
        if self.kind == "livy":
            return SparkSubmit.model_validate({"livy_url": self.url, **more})
        env = {"SPARK_HOME": str(home), "OQ_TEST_WIRE": self.url}
        where = {"master": "yarn", "rest_url": self.url} if self.kind == "yarn" else {"master": f"k8s://{self.url}"}
        return SparkSubmit.model_validate({**where, "deploy_mode": "cluster", "env": env, **more})

    def submit(self, tag: str, request: dict[str, Any]) -> App:
        number = len(self.apps) + 1
        known = {"yarn": f"application_1_{number:04}", "kubernetes": f"app-{number}-driver", "livy": str(number)}
        app = self.apps[known[self.kind]] = App(known[self.kind], tag, request, **self.template)
        return app

    def describe(self, app: App) -> dict[str, Any]:
        """Say how an application is, in the words of the kind."""
        if self.kind == "yarn":
            state, final = _YARN[app.state]
            said = {"id": app.id, "state": state, "finalStatus": final, "progress": 10.0, "startedTime": 1}
            return said | {"diagnostics": app.message, "trackingUrl": f"http://proxy/{app.id}"}
        if self.kind == "kubernetes":
            status: dict[str, Any] = {"phase": _PODS[app.state], "message": app.message}
            if app.state == "failed":
                status["containerStatuses"] = [{"state": {"terminated": {"exitCode": 7, "reason": "Error"}}}]
            labels = {_LABEL: app.tag, "spark-app-selector": "spark-1"}
            return {"metadata": {"name": app.id, "labels": labels, "creationTimestamp": "2026-01-01"}, "status": status}
        state = _BATCHES[app.state]
        return {"id": int(app.id), "name": app.request["name"], "state": state, "appId": "application_9", "appInfo": {}}


class _Handler(BaseHTTPRequestHandler):
    server: Wire

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _serve(self, method: str) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        given = json.loads(body) if body else {}
        path, query = unquote(parts.path), {name: values[0] for name, values in parse_qs(parts.query).items()}
        if path.startswith("/test/"):
            self._answer(200, self._test(path, given))
            return
        self.server.asked.append(f"{method} {self.path}")
        self.server.headers.append(dict(self.headers))
        if self.server.refuses:
            self._answer(self.server.refuses[0], {"message": self.server.refuses[1]})
            return
        status, said = {"yarn": self._yarn, "kubernetes": self._kubernetes, "livy": self._livy}[self.server.kind](
            method, path, query, given
        )
        if method == "POST" and self.server.unheard:
            self.server.unheard -= 1
            self.close_connection = True
            return
        self._answer(status, said)

    def _answer(self, status: int, said: Any) -> None:
        text = said.encode() if isinstance(said, str) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _test(self, path: str, given: dict[str, Any]) -> dict[str, Any]:
        server = self.server
        if path == "/test/submit":
            label = given.get(f"spark.kubernetes.driver.label.{_LABEL}")
            app = server.submit(str(given.get("spark.yarn.tags", label)), given)
        else:
            app = server.apps[path.removeprefix("/test/")]
        code = app.code or int(app.state in ("failed", "killed"))
        return {"id": app.id, "state": app.state, "waits": app.waits, "code": code}

    def _yarn(self, method: str, path: str, query: dict[str, str], given: dict[str, Any]) -> tuple[int, Any]:
        root = "/ws/v1/cluster/apps"
        if path == root:
            found = [self.server.describe(app) for app in self.server.apps.values() if _has(app, query)]
            return 200, {"apps": {"app": found} if found else None}
        app = self.server.apps.get(path.removeprefix(f"{root}/").removesuffix("/state"))
        if app is None:
            return 404, {"RemoteException": {"exception": "NotFoundException", "message": "app not found"}}
        if method == "PUT":
            if not query.get("user.name"):
                return 401, "Unable to obtain user name, user not authenticated"
            app.state, app.message = "killed", f"{given['state']} by {query['user.name']}"
            return 202, {"state": "RUNNING"}
        return 200, {"app": self.server.describe(app)}

    def _kubernetes(self, method: str, path: str, query: dict[str, str], given: dict[str, Any]) -> tuple[int, Any]:
        root = "/api/v1/namespaces/default/pods"
        if path == root:
            wanted = query["labelSelector"].removeprefix(f"{_LABEL}=")
            return 200, {"items": [self.server.describe(app) for app in self.server.apps.values() if app.tag == wanted]}
        name, _, rest = path.removeprefix(f"{root}/").partition("/")
        app = self.server.apps.get(name)
        if app is None:
            return 404, {"kind": "Status", "reason": "NotFound"}
        if rest == "log":
            return 200, "\n".join(app.log[-int(query["tailLines"]) :])
        if method == "DELETE":
            del self.server.apps[name]
        return 200, self.server.describe(app)

    def _livy(self, method: str, path: str, query: dict[str, str], given: dict[str, Any]) -> tuple[int, Any]:
        server = self.server
        if path == "/batches" and method == "POST":
            if clash := {"spark.master", "spark.submit.deployMode"} & given.get("conf", {}).keys():
                return 400, {"msg": f"Blacklisted configuration values in session config: {', '.join(clash)}"}
            app = server.submit(re.sub(r".*-", "", given["name"]), given)
            return 201, server.describe(app)
        if path == "/batches":
            first, size = int(query["from"]), int(query["size"])
            found = [server.describe(app) for app in server.apps.values()]
            return 200, {"from": first, "total": len(found), "sessions": found[first : first + size]}
        number, _, rest = path.removeprefix("/batches/").partition("/")
        known = server.apps.get(number)
        if known is None:
            return 404, {"msg": f"Session '{number}' not found."}
        if rest == "log":
            first, size = int(query["from"]), int(query["size"])
            lines = known.log[first : first + size]
            return 200, {"id": int(number), "from": first, "total": len(known.log), "log": lines}
        if method == "DELETE":
            del server.apps[number]
            return 200, {"msg": "deleted"}
        return 200, server.describe(known)


def _has(app: App, query: dict[str, str]) -> bool:
    return query["applicationTags"] in app.tag.split(",")


@contextmanager
def wire(kind: str, home: Path) -> Iterator[Wire]:
    """Serve one kind, and put a ``spark-submit`` for it below a directory."""
    server = Wire(kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    program = home / "bin" / "spark-submit"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(_SUBMIT.format(python=sys.executable, url=server.url))
    program.chmod(0o755)
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
