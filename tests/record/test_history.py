import json
import math

import pytest

from ablate.record.history import HistoryFile, last_values, read_history, value_at
from ablate.workloads.contract import Row


def row(step, **metrics):
    return Row(step, 1000.0 + step, metrics)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trials" / "abc" / "history.jsonl"


def test_rows_come_back_as_they_were_appended(path):
    rows = [row(1, a=0.1), row(2, a=1e-300, b=2.0)]
    history = HistoryFile(path)
    history.append(rows)
    history.close()
    assert read_history(path) == rows


def test_non_finite_values_are_strict_json_and_come_back(path):
    history = HistoryFile(path)
    history.append([row(1, a=math.nan, b=math.inf, c=-math.inf)])
    history.close()
    line = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert line["metrics"] == {"a": "nan", "b": "inf", "c": "-inf"}
    [back] = read_history(path)
    assert math.isnan(back.metrics["a"])
    assert (back.metrics["b"], back.metrics["c"]) == (math.inf, -math.inf)


def test_a_step_that_is_reported_again_is_kept_once(path):
    first = HistoryFile(path)
    first.append([row(1, a=1.0), row(2, a=2.0)])
    first.close()
    resumed = HistoryFile(path)
    assert resumed.append([row(2, a=2.0, b=5.0), row(3, a=3.0)]) == [row(2, b=5.0), row(3, a=3.0)]
    resumed.close()
    assert [(r.step, r.metrics) for r in read_history(path)] == [
        (1, {"a": 1.0}),
        (2, {"a": 2.0}),
        (2, {"b": 5.0}),
        (3, {"a": 3.0}),
    ]


@pytest.mark.parametrize("cut", range(1, 40, 6))
def test_a_torn_last_line_is_dropped_and_written_again(path, cut):
    history = HistoryFile(path)
    history.append([row(1, a=1.0), row(2, a=2.0)])
    history.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    assert read_history(path) == [row(1, a=1.0)]
    resumed = HistoryFile(path)
    resumed.append([row(2, a=2.0)])
    resumed.close()
    assert path.read_bytes() == whole


def test_a_missing_history_has_no_rows(path):
    assert read_history(path) == []


def test_value_at_the_end_and_at_a_step():
    rows = [row(10, loss=3.0), row(20, loss=2.0, other=9.0), row(30, other=8.0)]
    assert value_at(rows, "loss", "last") == 2.0
    assert value_at(rows, "loss", "step:10") == 3.0
    assert value_at(rows, "loss", "step:15") is None
    assert value_at(rows, "nothing", "last") is None
    assert last_values(rows) == {"loss": 2.0, "other": 8.0}
