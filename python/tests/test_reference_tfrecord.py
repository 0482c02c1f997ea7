"""The plain reader over files that TensorFlow's own writer made, and over cases from the field."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from athanor.errors import AthanorError
from athanor.reference import read_tfrecord
from athanor.reference.example import Feature, parse
from conftest import ROOT

FIXTURES = ROOT / "test/fixtures"


def case(number: str) -> tuple[str, dict[str, Any]]:
    (folder,) = (FIXTURES / "cases").glob(f"{number}-*")
    return str(folder), json.loads((folder / "expected.json").read_text())


def agrees(found: Feature | None, expected: Any) -> bool:
    if found is None or expected is None:
        return found is expected
    if not isinstance(expected, list):
        expected = [expected]
    if found.kind == "bytes":
        return found.size == len(expected)
    if found.kind == "int64":
        return found.values.tolist() == [int(value) for value in expected]
    floats = [float(value["float"]) if isinstance(value, dict) else value for value in expected]
    return np.array_equal(found.values, np.array(floats, np.float32), equal_nan=True)


def assert_records(payloads: list[bytes], expected: list[dict[str, Any]]) -> None:
    assert len(payloads) == len(expected)
    for payload, record in zip(payloads, expected):
        features = parse(payload)
        for name, value in record.items():
            assert agrees(features.get(name.encode()), value), (name, value)


def test_values_are_those_of_the_reference_writer() -> None:
    expected = json.loads((FIXTURES / "tfrecord/expected.json").read_text())
    assert_records(list(read_tfrecord(str(FIXTURES / "tfrecord/values.tfrecord"))), expected["records"])
    for number in ("05", "07"):
        folder, facts = case(number)
        for name in facts["input"]:
            assert_records(list(read_tfrecord(f"{folder}/{name}")), facts["records"])


@pytest.mark.parametrize("number", ["01", "03"])
def test_good_records_come_before_the_fault(number: str) -> None:
    folder, facts = case(number)
    payloads: list[bytes] = []
    with pytest.raises(AthanorError) as caught:
        for payload in read_tfrecord(f"{folder}/{facts['input'][0]}"):
            payloads.append(payload)
    assert_records(payloads, facts["readable_before"])
    expected = facts["error"] if isinstance(facts["error"], dict) else facts["error"][0]
    assert (caught.value.record, caught.value.byte_offset) == (expected["record"], expected["byte_offset"])
