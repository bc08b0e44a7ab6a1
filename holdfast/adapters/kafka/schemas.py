"""Values that have a schema at a registry: confluent-kafka's own deserialisers behind a handler's `value=`."""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from holdfast.adapters.kafka._client import MessageField, SerializationContext
from holdfast.errors import MissingExtraError, RegistryUnavailable, SettingError
from holdfast.plugin.handling.values import unreadable
from holdfast.plugin.secret_names import MASK, masked
from holdfast.records import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.records import Record

T = TypeVar("T")
M = TypeVar("M")

#: The timeout of a client that is made here. The client's own default is to wait for ever.
_TIMEOUT_S = 10
#: The header that may name the schema, in place of the value's first bytes.
_HEADER = "__value_schema_id"
#: The client uses one of these for HTTP, depending on its version. Their errors have no common base.
_HTTP = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "requests", "authlib"})


class _FromRegistry(Generic[T]):
    """A `holdfast.Deserializer`. The first record of a schema asks the registry for it; the client keeps schemas."""

    waits = True
    reads_json = False

    def __init__(self, shown: str, decode: Callable[[bytes | None, SerializationContext], Any]) -> None:
        self._shown, self._decode = shown, decode

    def deserialize(self, record: Record) -> T:
        """Decode the record's value.

        Raises:
            RecordUnreadable: the value has another form, or the registry does not know its schema.
            RegistryUnavailable: the registry does not answer, or refuses this client: tried again by `retry=`.
        """
        context = SerializationContext(record.topic, MessageField.VALUE, list(record.headers))
        try:
            found: T = self._decode(record.value, context)
        except Exception as error:
            if _says_nothing_of_the_record(error):
                raise RegistryUnavailable(
                    f"the schema registry of {self._shown} does not answer, or refuses this client, for the record at "
                    f"{place_of(record)}: look at its address and credentials, and whether it runs "
                    f"({type(error).__name__}: {_masked(str(error))})"
                ) from error
            raise unreadable(record, self._shown, error, schema_id=schema_id(record)) from error
        return found

    def __repr__(self) -> str:
        return self._shown


class Avro(_FromRegistry[T]):
    """`value=Avro("http://localhost:8081")`: records that confluent's AvroSerializer has written, as dictionaries.

    Args:
        registry: the registry's URL; or the configuration of confluent's SchemaRegistryClient, as `{"url": ...,
            "basic.auth.user.info": "name:password"}`; or such a client of yours. A client that is made here waits 10 s
            for an answer, unless the configuration says otherwise. Credentials appear in no repr and no error.
        schema: the reader's schema, in JSON. None: each record's own.
        from_dict: makes the value from the dictionary: `Order.model_validate`, `lambda found: Order(**found)`.
        conf: for confluent's AvroDeserializer.

    Raises:
        MissingExtraError: `pip install 'holdfast-mq[schema-registry]'`.
        SettingError: the configuration cannot work.
    """

    @overload
    def __init__(
        self: Avro[dict[str, Any]],
        registry: str | Mapping[str, Any] | object,
        *,
        schema: str | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        registry: str | Mapping[str, Any] | object,
        *,
        schema: str | None = None,
        from_dict: Callable[[dict[str, Any]], T],
        conf: Mapping[str, Any] | None = None,
    ) -> None: ...

    def __init__(
        self,
        registry: str | Mapping[str, Any] | object,
        *,
        schema: str | None = None,
        from_dict: Callable[[dict[str, Any]], Any] | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        client = _client(registry)
        make = _loaded("avro").AvroDeserializer
        decode = _made(conf, lambda: make(client, schema, _by(from_dict), conf=dict(conf or {})))
        super().__init__(f"Avro({_shown(registry)})", decode)


class JsonSchema(_FromRegistry[T]):
    """`value=JsonSchema("http://localhost:8081")`: records of confluent's JSONSerializer, checked against their schema.

    Args:
        registry: as in `Avro`.
        schema: a JSON schema in place of each record's own.
        from_dict: makes the value from the decoded JSON.
        conf: for confluent's JSONDeserializer.

    Raises:
        MissingExtraError, SettingError: as `Avro`.
    """

    @overload
    def __init__(
        self: JsonSchema[dict[str, Any]],
        registry: str | Mapping[str, Any] | object,
        *,
        schema: str | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        registry: str | Mapping[str, Any] | object,
        *,
        schema: str | None = None,
        from_dict: Callable[[dict[str, Any]], T],
        conf: Mapping[str, Any] | None = None,
    ) -> None: ...

    def __init__(
        self,
        registry: str | Mapping[str, Any] | object,
        *,
        schema: str | None = None,
        from_dict: Callable[[dict[str, Any]], Any] | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        client = _client(registry)
        make = _loaded("json_schema").JSONDeserializer
        decode = _made(conf, lambda: make(schema, _by(from_dict), client, conf=dict(conf or {})))
        super().__init__(f"JsonSchema({_shown(registry)})", decode)


class Protobuf(_FromRegistry[M]):
    """`value=Protobuf(Order)`: records that confluent's ProtobufSerializer has written, as that generated class.

    For bytes without the registry's frame, `value=Order.FromString` is enough.

    Args:
        message: the class that protoc has generated.
        registry: as in `Avro`; needed only for rules of the registry.
        conf: for confluent's ProtobufDeserializer.

    Raises:
        MissingExtraError, SettingError: as `Avro`.
    """

    def __init__(
        self,
        message: type[M],
        registry: str | Mapping[str, Any] | object | None = None,
        *,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        client = None if registry is None else _client(registry)
        make = _loaded("protobuf").ProtobufDeserializer
        own = {"use.deprecated.format": False, **(conf or {})}
        decode = _made(conf, lambda: make(message, own, client))
        super().__init__(f"Protobuf({message.__name__}{'' if registry is None else f', {_shown(registry)}'})", decode)


def schema_id(record: Record) -> str | None:
    """The schema that the record names: a number, or a GUID in hex digits; None = it names none."""
    framed = record.header(_HEADER) or record.value or b""
    if framed[:1] == b"\0" and len(framed) >= 5:
        return str(int.from_bytes(framed[1:5], "big"))
    if framed[:1] == b"\1" and len(framed) >= 17:
        return framed[1:17].hex()
    return None


def _client(registry: str | Mapping[str, Any] | object) -> Any:  # noqa: ANN401 - confluent's, or one with its methods
    if isinstance(registry, str):
        registry = {"url": registry}
    if not hasattr(registry, "keys"):
        return registry
    conf = {"timeout": _TIMEOUT_S, **registry}  # type: ignore[dict-item]  # it has keys
    made = _loaded("schema_registry_client").SchemaRegistryClient
    try:
        return getattr(made, "new_client", made)(conf)
    except (TypeError, ValueError) as error:
        raise SettingError("registry", _shown(registry), _masked(str(error))) from None


def _made(conf: Mapping[str, Any] | None, make: Callable[[], Any]) -> Any:  # noqa: ANN401 - a deserialiser
    try:
        return make()
    except (TypeError, ValueError) as error:
        raise SettingError("conf", masked(conf or {}), f"the client refuses it: {error}") from error


def _loaded(module: str) -> Any:  # noqa: ANN401 - of an extra that may not be installed
    try:
        return importlib.import_module(f"confluent_kafka.schema_registry.{module}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or module, "schema-registry") from error


def _by(from_dict: Callable[[dict[str, Any]], Any] | None) -> Callable[[dict[str, Any], object], Any] | None:
    return None if from_dict is None else lambda found, _: from_dict(found)


def _shown(registry: str | Mapping[str, Any] | object) -> str:
    if isinstance(registry, str):
        return _masked(registry)
    if hasattr(registry, "keys"):
        return _masked(str(dict(registry).get("url")))  # type: ignore[call-overload]  # it has keys
    return type(registry).__name__


def _masked(text: str) -> str:
    """Hide the credentials of URLs."""
    return re.sub(r"(\w+://)?[^,\s]*@", rf"\g<1>{MASK}@", text)


def _says_nothing_of_the_record(error: Exception) -> bool:
    """Whether the error is about the connection to the registry, or about this client. A registry that does not know
    the schema answers 404 with a code of its own that begins with 404; a proxy's 404 has no such code."""
    errors = _loaded("error")
    if isinstance(error, errors.SchemaRegistryError):
        code = error.error_code
        return not (error.http_status_code == 404 and isinstance(code, int) and code // 100 == 404)
    if isinstance(error, (OSError, getattr(errors, "OAuthTokenError", ()))):
        return True
    return any(each.__module__.split(".")[0] in _HTTP for each in type(error).__mro__)
