"""A message as protoc generates it, without protoc."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


def order_class() -> Any:
    """`message Order { int64 order_id = 1; }`; once a process."""
    file = descriptor_pb2.FileDescriptorProto(name="holdfast_order.proto", package="holdfast.test", syntax="proto3")
    kind = file.message_type.add(name="Order")
    field = descriptor_pb2.FieldDescriptorProto
    kind.field.add(name="order_id", number=1, type=field.TYPE_INT64, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("holdfast.test.Order"))
