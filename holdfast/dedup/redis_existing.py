"""RedisClaims for an existing namespace, with the settings of its members: for tools."""

from __future__ import annotations

from holdfast.dedup.redis_errors import asking
from holdfast.dedup.redis_layout import Layout, agreed, decode
from holdfast.dedup.redis_store import RedisClaims, client_of
from holdfast.errors import StoreRefused


def existing_claims(
    url: str, *, namespace: str = "holdfast", timeout_s: float = 2.0, positions_ttl_s: float = 90 * 86_400.0
) -> RedisClaims:
    """Make the store at a URL; `shards`, `hash_keys` and `keys_expected` are read from it. Connects.

    Args:
        url: as in `RedisClaims.from_url`, as are all others.
        namespace: of the members.
        timeout_s: for a connection, and for each reply.
        positions_ttl_s: for positions that are written through this store.

    Raises:
        SettingError: the URL or the namespace cannot be read. The URL's password is not in its text.
        StoreUnavailable: no answer.
        StoreRefused: credentials; or the namespace does not exist, or an unknown version of holdfast has made it.
    """
    client = client_of(url, timeout_s)
    where = client.where
    try:
        with asking(where):
            stored = client.get(Layout(namespace, 1, hash_keys=False).layout_key)
    finally:
        client.close_all()
    if not isinstance(stored, bytes):
        raise StoreRefused(
            f"the Redis at {where} has no namespace {namespace!r}: no app has used it there; check namespace, address "
            "and database"
        )
    found = agreed(decode(stored))
    if found is None:
        raise StoreRefused(
            f"the namespace {namespace!r} in the Redis at {where} is laid out as '{decode(stored)}', which this "
            "version of holdfast does not know: use the one that the app uses"
        )
    return RedisClaims.from_url(
        url,
        namespace=namespace,
        timeout_s=timeout_s,
        positions_ttl_s=positions_ttl_s,
        shards=found.shards,
        hash_keys=found.hash_keys,
        keys_expected=found.keys_expected,
    )


def place_of(claims: RedisClaims) -> tuple[str, str] | None:
    """The URL, with its password, and the namespace by which a tool reaches the same store; None: the program knows
    something that no URL says (a client of its own, a credential provider)."""
    return None if claims._url is None else (claims._url, claims._namespace)  # noqa: SLF001 - the same package
