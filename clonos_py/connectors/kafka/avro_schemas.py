"""Properties of Avro schemas, and the Avro schema of rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from clonos_py.model.errors import GraphError

_BY_ARROW: Mapping[pa.DataType, str] = {
    pa.int8(): "int", pa.int16(): "int", pa.int32(): "int", pa.int64(): "long", pa.float32(): "float",
    pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes", pa.bool_(): "boolean",
}  # fmt: skip
_LOGICAL: Mapping[pa.DataType, tuple[str, str]] = {
    pa.timestamp("us", "UTC"): ("long", "timestamp-micros"), pa.date32(): ("int", "date")
}  # fmt: skip
_PLAIN = {"boolean", "int", "long", "float", "double", "string"}
_BY_COLUMNS = {"timestamp-millis", "timestamp-micros", "date"}
TIMES: Mapping[str, pa.DataType] = {
    "timestamp-millis": pa.timestamp("ms"),
    "timestamp-micros": pa.timestamp("us"),
    "timestamp-nanos": pa.timestamp("ns"),
}


def schema_of(rows: pa.Schema) -> str:
    """The schema of a record with these fields, as JSON. Raises GraphError naming a field without an Avro type."""
    return json.dumps(_record("row", rows))


def _record(name: str, fields: Any) -> dict[str, Any]:
    converted = []
    for field in fields:
        kind = _type(f"{name}_{field.name}", field.type)
        converted.append({"name": field.name, "type": ["null", kind], "default": None} if field.nullable else
                         {"name": field.name, "type": kind})  # fmt: skip
    return {"type": "record", "name": name, "fields": converted}


def _type(name: str, kind: pa.DataType) -> Any:
    if kind in _BY_ARROW:
        return _BY_ARROW[kind]
    if kind in _LOGICAL:
        stored, logical = _LOGICAL[kind]
        return {"type": stored, "logicalType": logical}
    if isinstance(kind, pa.Decimal128Type):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, pa.ListType):
        items = _type(name, kind.value_type)
        return {"type": "array", "items": ["null", items] if kind.value_field.nullable else items}
    if isinstance(kind, pa.StructType):
        return _record(name, [kind.field(number) for number in range(kind.num_fields)])
    raise GraphError(f"the format avro has no type for {kind} ({name})")


def converts_by_column(schema: Any) -> bool:
    """Whether pyruhvro can convert the schema by column. It panics at other types, and hangs at arrays of nulls."""
    match schema:
        case str():
            return schema in _PLAIN
        case ["null", other] | [other, "null"]:
            return other != "null" and converts_by_column(other)
        case {"type": "record", "fields": fields}:
            return all(converts_by_column(field["type"]) for field in fields)
        case {"type": "array", "items": items}:
            return converts_by_column(items)
        case {"type": "enum"}:
            return True
        case {"type": kind, **more}:
            logical = more.get("logicalType")
            return (logical is None or logical in _BY_COLUMNS) and converts_by_column(kind)
        case _:
            return False


def without_logical_types(schema: Any) -> Any:
    """The schema without logical types except decimals, so that fastavro returns times as numbers."""
    match schema:
        case list():
            return list(map(without_logical_types, schema))
        case {"logicalType": logical, **more} if logical != "decimal":
            return without_logical_types(more)
        case dict():
            return {name: _part_without_logical_types(name, part) for name, part in schema.items()}
        case _:
            return schema


def _part_without_logical_types(name: str, part: Any) -> Any:
    if name == "fields":
        return [{**field, "type": without_logical_types(field["type"])} for field in part]
    return without_logical_types(part) if name in ("type", "items", "values") else part


def times(schema: Any) -> dict[str, pa.DataType]:
    """The types of the record's fields that hold timestamps."""
    found = {}
    for field in schema["fields"]:
        kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
        for kind in kinds:
            logical = kind.get("logicalType", "") if isinstance(kind, dict) else ""
            if (time := TIMES.get(logical.removeprefix("local-"))) is not None:
                found[field["name"]] = time
    return found


def needs_value(field: Any) -> bool:
    """Whether a row must have this field."""
    return "default" not in field and field["type"] != "null" and "null" not in field["type"]
