import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import planner
from costmodel.base.errors import PlannerError
from costmodel.domain.workload import Workload
from planner.cli.open_command import free_name
from planner.decision.confidence import confidences
from planner.editing.edit_server import ADDRESS, EditHandler, EditServer
from planner.editing.edits import EDITED, EditSession
from planner.examples import example_workload
from planner.files.plans import load_plan_file
from planner.verbs.loading import load_plan


def planned_file(folder: Path, workload: Workload) -> Path:
    planned = planner.plan(
        workload, gpus=4, hardware="h100-sxm", sharder="naive", baseline="none", time_limit=0.05
    )
    planned.save(folder / "plan.json")
    return folder / "plan.json"


def session_of(path: Path) -> EditSession:
    return EditSession(
        file=load_plan_file(path), planned=load_plan(path), target=path.with_name("edited.json")
    )


@pytest.fixture
def session(tmp_path: Path) -> EditSession:
    types = ("table_wise",)
    tables = [replace(table, sharding_types=types) for table in example_workload(4).tables[:3]]
    replicated = replace(example_workload(4).tables[3], sharding_types=("data_parallel",))
    workload = replace(example_workload(4), tables=(*tables, replicated))
    return session_of(planned_file(tmp_path, workload))


@pytest.fixture
def server(session: EditSession) -> Iterator[EditServer]:
    with EditServer(session) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(server: EditServer, method: str, path: str, **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection(ADDRESS, server.server_port)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    body = given.pop("body", "{}") if method == "POST" else None
    connection.request(method, path, body=body, headers=given)
    answer = connection.getresponse()
    text = answer.read().decode()
    assert answer.getheader("Access-Control-Allow-Origin") is None
    connection.close()
    return answer.status, text


JSON = {"Content_Type": "application/json"}


def test_a_moved_table_has_the_step_that_a_report_says(session: EditSession) -> None:
    table = session.plan.tables[0]
    rank = (table.ranks[0] + 1) % 4
    session.move(table.table, 0, rank)
    assert session.plan.tables[0].ranks == (rank,)
    planned = session.planned
    (sure,) = confidences(planned.workload, planned.topology, (session.plan,))
    assert session.step_time() == sure.step_time
    assert session.state()["moves"] == 1
    assert session.state()["tables"][0]["blocks"] == [[rank]]
    session.move(table.table, 0, rank)  # where it is
    assert session.state()["moves"] == 1
    session.undo()
    session.undo()  # the first plan stays
    assert session.plan == session.planned.plan


def test_a_saved_plan_loads_with_the_step_that_was_shown(session: EditSession) -> None:
    original = session.target.with_name("plan.json").read_text()
    table = session.plan.tables[0]
    session.move(table.table, 0, (table.ranks[0] + 1) % 4)
    assert session.save() == session.target
    again = load_plan(session.target)
    assert again.plan == session.plan
    assert again.report.step_time == pytest.approx(session.step_time())
    assert again.report.search
    assert again.report.search.sharder == f"naive, {EDITED}"
    assert session.target.with_name("plan.json").read_text() == original


def test_ranks_look_up_for_as_long_as_the_report_says(session: EditSession) -> None:
    table = session.plan.tables[0]
    session.move(table.table, 0, (table.ranks[0] + 1) % 4)
    state, report = session.state(), session.edited().report
    assert [rank["lookups"] * state["step_time_s"] for rank in state["ranks"]] == pytest.approx([
        rank.lookup for rank in report.ranks
    ])


@pytest.mark.parametrize(
    ("table", "block", "rank", "message"),
    [
        ("table_0", 0, 4, "ranks? .*0 to 3"),
        ("table_0", 1, 0, "no block 1"),
        ("table_9", 0, 0, "no block 0 of a table `table_9`"),
        ("table_3", 0, 1, "all ranks have it"),
    ],
)
def test_a_refused_move_changes_nothing(
    session: EditSession, table: str, block: int, rank: int, message: str
) -> None:
    with pytest.raises(PlannerError, match=message):
        session.move(table, block, rank)
    assert session.state()["moves"] == 0


def test_a_move_for_which_there_is_no_memory_is_refused(tmp_path: Path) -> None:
    table = planner.EmbeddingTable(
        name="big", num_embeddings=10**8, embedding_dim=128, sharding_types=("table_wise",)
    )
    tables = (table, replace(table, name="large"))
    workload = Workload(tables=tables, local_batch_size=64, name="full")
    session = session_of(planned_file(tmp_path, workload))
    first, second = session.plan.tables
    with pytest.raises(PlannerError, match="GiB"):
        session.move(first.table, 0, second.ranks[0])
    assert session.plan == session.planned.plan


def test_who_has_the_token_moves_and_saves(server: EditServer) -> None:
    base = f"/{server.token}/"
    status, page = asked(server, "GET", base)
    assert (status, "<!DOCTYPE html>" in page) == (200, True)
    table = server.session.plan.tables[0]
    move = {"table": table.table, "block": 0, "rank": (table.ranks[0] + 1) % 4}
    status, text = asked(server, "POST", f"{base}move", body=json.dumps(move), **JSON)
    assert (status, json.loads(text)["moves"]) == (200, 1)
    status, text = asked(server, "POST", f"{base}save", **JSON)
    assert (status, json.loads(text)["saved"]) == (200, str(server.session.target))
    status, text = asked(
        server, "POST", f"{base}move", body='{"table": "x", "block": 0, "rank": 0}', **JSON
    )
    assert (status, "no block" in json.loads(text)["error"]) == (409, True)
    endless = json.dumps({**move, "block": float("inf")})
    for action, body in (
        ("move", "[]"), ("move", "{"), ("leave", "{}"), ("move", endless), ("move", "[" * 50_000),
        ("move", json.dumps({**move, "rank": 1.5})),
    ):  # fmt: skip
        assert asked(server, "POST", base + action, body=body, **JSON)[0] == 400


def test_others_get_nothing(server: EditServer) -> None:
    base, own = f"/{server.token}/", server.hosts[0]
    assert asked(server, "GET", "/")[0] == 404
    assert asked(server, "GET", f"/{'x' * len(server.token)}/")[0] == 404
    assert asked(server, "GET", base, Host="evil.example")[0] == 404  # a name bound to 127.0.0.1
    undo = f"{base}undo"
    assert asked(server, "POST", undo, **JSON)[0] == 200
    assert asked(server, "POST", undo, Content_Type="text/plain")[0] == 404
    assert asked(server, "POST", undo, Origin="http://evil.example", **JSON)[0] == 404
    assert asked(server, "POST", undo, Origin=f"http://{own}", **JSON)[0] == 200
    assert asked(server, "POST", undo, body=" " * (2**16 + 1), **JSON)[0] == 404
    assert server.server_address[0] == "127.0.0.1"


def test_a_name_that_is_free(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert free_name(plan).name == "plan-edited.json"
    free_name(plan).touch()
    assert free_name(plan).name == "plan-edited-2.json"


def test_who_sends_less_than_announced_is_not_waited_for(
    server: EditServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EditHandler, "timeout", 0.05)
    with socket.create_connection((ADDRESS, server.server_port), timeout=10) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc")
        assert connection.recv(100) == b""
    assert asked(server, "GET", f"/{server.token}/")[0] == 200


def test_who_hangs_up_is_not_told_of(
    server: EditServer, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, lines in ((ConnectionResetError(), 0), (ZeroDivisionError(), 1)):
        try:
            raise error
        except (ConnectionError, ArithmeticError):
            server.handle_error(None, (ADDRESS, 1))
        assert capsys.readouterr().err.count("Traceback") == lines
