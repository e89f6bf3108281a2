"""Message classes as protoc makes them, of a file that imports another."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

_FIELD = descriptor_pb2.FieldDescriptorProto
_POOL = descriptor_pool.DescriptorPool()


def _field(message: Any, name: str, number: int, kind: int, **more: Any) -> Any:
    return message.field.add(name=name, number=number, type=kind, label=more.pop("label", 1), **more)


def _add_files() -> None:
    units = descriptor_pb2.FileDescriptorProto(name="shop/units.proto", package="shop", syntax="proto3")
    size = units.message_type.add(name="Size")
    _field(size, "width", 1, _FIELD.TYPE_INT64)

    orders = descriptor_pb2.FileDescriptorProto(name="shop/orders.proto", package="shop", syntax="proto3")
    orders.dependency.extend(["shop/units.proto", "google/protobuf/timestamp.proto"])
    kinds = orders.enum_type.add(name="Kind")
    for number, name in enumerate(("UNKNOWN", "NEW", "USED")):
        kinds.value.add(name=name, number=number)
    other = orders.message_type.add(name="Other")
    _field(other, "id", 1, _FIELD.TYPE_INT64)
    order = orders.message_type.add(name="Order")
    _field(order, "id", 1, _FIELD.TYPE_INT64)
    _field(order, "item", 2, _FIELD.TYPE_STRING)
    _field(order, "price", 3, _FIELD.TYPE_DOUBLE)
    order.oneof_decl.add(name="_note")
    _field(order, "note", 4, _FIELD.TYPE_STRING, proto3_optional=True, oneof_index=0)
    _field(order, "tags", 5, _FIELD.TYPE_STRING, label=3)
    _field(order, "at", 6, _FIELD.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    _field(order, "kind", 7, _FIELD.TYPE_ENUM, type_name=".shop.Kind")
    _field(order, "size", 8, _FIELD.TYPE_MESSAGE, type_name=".shop.Size")
    line = order.nested_type.add(name="Line")
    _field(line, "id", 1, _FIELD.TYPE_INT64)
    _POOL.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for file in (units, orders):
        _POOL.Add(file)


_add_files()


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


Order, Other, Line, Size = map(_class, ("shop.Order", "shop.Other", "shop.Order.Line", "shop.Size"))
