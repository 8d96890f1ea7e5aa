"""Addresses in settings: what the URL of a Redis may say, and how an address is shown without its secrets."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_plus, urlsplit

MASK: Final = "********"
_USER_INFO: Final = re.compile(r"^([A-Za-z][\w+.-]*://)?([^:@/?#]*:)?.*@", re.DOTALL)
"""All up to the last @: a password that is not escaped may hold any sign."""
_SECRET_NAME: Final = re.compile(r"pass|pwd|secret|token|auth|signature|api.?key|credential", re.IGNORECASE)
_URL: Final = re.compile(r"\b[A-Za-z][\w+.-]*://[^\s\"'<>]+")
_WORD: Final = re.compile(r"[\w.+-]+", re.ASCII)


def masked(address: str) -> str:
    """Return an address without its secrets: the password of its user, and query parts that are named like one.

    >>> masked("redis://worker:hunter2@example:6379/0"), masked("redis://h/0?db=1&password=hunter2")
    ('redis://worker:********@example:6379/0', 'redis://h/0?db=1&password=********')
    >>> masked("http://hunter2@example:9090"), masked("127.0.0.1:9092")
    ('http://********@example:9090', '127.0.0.1:9092')
    """
    shown = _USER_INFO.sub(lambda found: f"{found[1] or ''}{found[2] or ''}{MASK}@", address)
    head, mark, query = shown.partition("?")
    return head + mark + "&".join(map(_masked_part, query.split("&")))


def _masked_part(part: str) -> str:
    name, equals, _ = part.partition("=")
    return f"{name}={MASK}" if equals and _SECRET_NAME.search(unquote_plus(name)) else part


def without_secrets(text: str) -> str:
    """Return a text, such as a message or a log line, with every URL in it masked.

    >>> without_secrets("cannot read http://u:hunter2@h:9090/api; check it")
    'cannot read http://u:********@h:9090/api; check it'
    """
    return _URL.sub(lambda found: masked(found[0]), text) if "://" in text else text


def has_secret(address: str) -> bool:
    """Tell whether an address names a user, with or without a password, or has a secret in its query."""
    return masked(address) != address


def is_web_address(url: str) -> bool:
    """Tell whether a URL can have a path appended: http or https, a host, no query and no fragment."""
    parts = _split(url)
    return (
        parts is not None
        and parts.scheme in ("http", "https")
        and is_host(parts.hostname or "")
        and not parts.query
        and not parts.fragment
    )


def is_host(name: str) -> bool:
    """Tell whether a name can be looked up: the resolver refuses labels that are empty or too long in its own way."""
    if not name or any(sign in name for sign in "@/?# \t\r\n\0"):
        return False
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def is_loopback(address: str) -> bool:
    """Tell whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def is_broker_list(text: str) -> bool:
    """Tell whether a text lists brokers as host:port, separated by commas."""
    places = (server.strip().rpartition(":") for server in text.split(","))
    return all(is_host(host) and _is_port(port) for host, _, port in places)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6 and 0 < int(text) < 65_536


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL, None if it cannot be read as one."""
    try:
        parts = urlsplit(url)
        return parts if parts.port != 0 else None
    except ValueError:
        return None


def _one_of(*words: str) -> Callable[[str], bool]:
    return lambda text: text in words


_ANY: Final[Mapping[str, Callable[[str], bool]]] = {
    "db": lambda text: text.isascii() and text.isdigit(),
    "username": bool,
    "password": bool,
}
_TLS: Final[Mapping[str, Callable[[str], bool]]] = {
    "ssl_certfile": bool,
    "ssl_keyfile": bool,
    "ssl_cert_reqs": _one_of("none", "optional", "required"),
    "ssl_check_hostname": _one_of("true", "false"),
}


def cluster_nodes(url: str) -> list[str]:
    """Return the URL of each node that the URL of a cluster names; none if it is that of one server.

    >>> cluster_nodes("rediss+cluster://worker:hunter2@one:7000,two:7000/0?db=0")
    ['rediss://worker:hunter2@one:7000/0?db=0', 'rediss://worker:hunter2@two:7000/0?db=0']
    """
    scheme, _, rest = url.partition("://")
    if scheme not in ("redis+cluster", "rediss+cluster"):
        return []
    found = re.fullmatch(r"(?P<user>.*@)?(?P<hosts>[^/?#]*)(?P<more>.*)", rest, flags=re.DOTALL)
    assert found is not None
    start = scheme.removesuffix("+cluster") + "://" + (found["user"] or "")
    return [f"{start}{host.strip()}{found['more']}" for host in found["hosts"].split(",")]


def redis_url_fault(url: str) -> str | None:
    """Return what the URL of a Redis must be and is not; None if it is fine."""
    nodes = cluster_nodes(url)
    if nodes:
        if any(not urlsplit(node).hostname for node in nodes if _split(node) is not None):
            return "must name a host for every node, such as redis+cluster://HOST:PORT,HOST:PORT"
        if any(_database(node) for node in nodes if _split(node) is not None):
            return "must not name a database: a cluster has only number 0"
        return next(filter(None, map(redis_url_fault, nodes)), None)
    parts = _split(url)
    if parts is None or parts.scheme not in ("redis", "rediss", "unix") or parts.fragment or not _has_place(parts):
        return (
            "must be a URL such as redis://127.0.0.1:6379/0, rediss://HOST:PORT/0, redis+cluster://HOST:PORT,HOST:PORT "
            "or unix:///PATH"
        )
    allowed = {**_ANY, **_TLS} if parts.scheme == "rediss" else _ANY
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "ssl_ca_certs":
            return "must not name ssl_ca_certs, which THAW_REDIS_CA is for"
        if name not in allowed:
            told = repr(name) if _WORD.fullmatch(name) else "that"
            return f"must not have the parameter {told}; a {parts.scheme}:// URL may have {', '.join(allowed)}"
        if not allowed[name](value):
            return f"must have another value for its parameter {name}"
    return None


def _database(url: str) -> bool:
    """Tell whether the URL of a Redis names a database that is not number 0."""
    parts = urlsplit(url)
    return any(
        number not in ("", "0") for number in (parts.path.strip("/"), dict(parse_qsl(parts.query)).get("db", ""))
    )


def _has_place(parts: SplitResult) -> bool:
    if parts.scheme == "unix":
        return bool(parts.path) and not parts.hostname and "\0" not in unquote(parts.path)
    database = parts.path.strip("/")
    return (not parts.hostname or is_host(unquote(parts.hostname))) and _ANY["db"](database or "0")


def redis_files(url: str) -> dict[str, str]:
    """Return the files that the URL of a Redis names, by parameter: a client's certificate and its key."""
    return {name: path for name, path in parse_qsl(urlsplit(url).query) if name in ("ssl_certfile", "ssl_keyfile")}
