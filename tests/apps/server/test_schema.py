"""Requests made from the page's own OpenAPI schema: whatever is sent, the server has an answer."""

import contextlib
import os
import warnings

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import booleans

from choicegp.apps.server.security import Limits

from .conftest import INVITE, URL, Site, laptops_like

with warnings.catch_warnings():
    # Schemathesis brings modules that announce their own changes.
    warnings.simplefilter("ignore")
    schemathesis = pytest.importorskip("schemathesis", reason="needs schemathesis: install choicegp[test]")

N_CASES = int(os.environ.get("CHOICEGP_PAGE_CASES", "100"))
SECURE = {"Origin": URL, "Sec-Fetch-Site": "same-origin"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Return a page without limits on rates, someone who has answered, and the owner's browser."""
    folder = tmp_path_factory.mktemp("schema")
    site = Site(laptops_like(), folder, sets=200, limits=Limits(rate=1e9, burst=1e9, misses=1e9, misses_burst=1e9))
    anna = site.join()
    anna.send()
    owner = site.client()
    owner.get(f"/owner/enter/{site.store.owner_token}")
    yield site, anna, owner
    site.store.close()


def test_every_operation_is_in_the_schema(world):
    paths = set(world[0].app.openapi()["paths"])
    assert {"/p/{token}/answer", "/p/{token}/undo", "/join/{invite}", "/owner/state", "/owner/people/{number}"} <= paths


def test_no_request_breaks_the_server(world):
    site, anna, owner = world
    schema = schemathesis.openapi.from_dict(site.app.openapi())
    operations = [found.ok() for found in schema.get_all_operations()]
    # What ends the study or deletes a participant comes last.
    operations.sort(key=lambda one: (one.path.startswith("/owner"), one.method))
    known = {"token": anna.path[3:], "invite": INVITE, "number": 1, "name": "effects"}
    seen, each = [], -(-N_CASES // len(operations))

    def send(case, real):
        """Send a request as it is, or with parts of the path that exist."""
        if real:
            case.path_parameters = {**case.path_parameters, **{k: known[k] for k in case.path_parameters if k in known}}
        parts = case.as_transport_kwargs(base_url=URL)
        body = parts.pop("data", None)
        sent = {"data": body} if isinstance(body, dict) else {"content": body}
        headers = {k: v for k, v in dict(parts.pop("headers")).items() if isinstance(v, str) and v.isascii()}
        options = {k: parts[k] for k in ("params", "files", "json") if parts.get(k)}
        reply = owner.request(parts["method"], parts["url"], headers={**headers, **SECURE}, **sent, **options)
        seen.append((reply.status_code, parts["method"], parts["url"], body))

    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
        for operation in operations:
            run = settings(
                max_examples=each, database=None, deadline=None, derandomize=True,
                phases=[Phase.generate], suppress_health_check=list(HealthCheck),
            )(given(operation.as_strategy(generation_mode=mode), booleans())(send))  # fmt: skip
            with contextlib.suppress(Unsatisfiable):  # nothing can be wrong about a request without parts
                run()
    assert len(seen) >= N_CASES
    assert [one for one in seen if one[0] >= 500] == []
