"""TLS: nobody is believed but who has the name and a certificate of the authorities named."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from authguard import AsyncGuard, ConfigurationError, StoreUnavailable
from authguard.stores.valkey import ValkeyStore
from authguard.stores.valkey_async import AsyncValkeyStore
from tests.conftest import PATIENT_MS, SECRET
from tests.servers import tls_server
from tests.stores.conftest import VERA
from tests.stores.wire import Wire, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from authguard import Guard
    from authguard.testing import EmbeddedValkey
    from tests.servers import TlsServer
    from tests.stores.wire import Step, Talk

    Guards = Callable[..., Guard]
    Tries = Callable[..., str]

HOST = "127.0.0.1:6379"


@pytest.fixture(scope="module")
def tls() -> Iterator[TlsServer]:
    """Run a server that speaks TLS alone, and asks nobody for a certificate."""
    with tls_server() as server:
        yield server


@pytest.fixture(scope="module")
def strict_tls() -> Iterator[TlsServer]:
    """Run one that wants to see its clients' certificates."""
    with tls_server(clients="yes") as server:
        yield server


def _blocking(url: str, **settings: Any) -> str:
    from authguard import Guard

    store = ValkeyStore(url, **({"deadline_ms": PATIENT_MS} | settings))
    with Guard(store, secret=SECRET) as guard:
        try:
            guard.attempt("login", **VERA)
        except StoreUnavailable as error:
            return error.reason
    return "admitted"


def _awaited(url: str, **settings: Any) -> str:
    async def story() -> str:
        store = AsyncValkeyStore(url, **({"deadline_ms": PATIENT_MS} | settings))
        async with AsyncGuard(store, secret=SECRET) as guard:
            try:
                await guard.attempt("login", **VERA)
            except StoreUnavailable as error:
                return error.reason
        return "admitted"

    return asyncio.run(story())


@pytest.fixture(params=["blocking", "awaited"])
def tries(request: pytest.FixtureRequest) -> Tries:
    """Attempt once on a store of its own, by either guard; tells the outcome in a word."""
    return _blocking if request.param == "blocking" else _awaited


def test_a_trusted_server_is_used(tls: TlsServer, tries: Tries) -> None:
    """With the authority that signed its certificate named, the server decides."""
    assert tries(tls.url, tls_ca=tls.ca_file) == "admitted"
    assert tries(tls.url.replace("valkeys", "rediss"), tls_ca=str(tls.ca_file)) == "admitted"
    assert tls.server.client.dbsize() > 0


@pytest.mark.parametrize("ca", ["stranger", "system"])
def test_an_untrusted_certificate_is_refused(tls: TlsServer, tries: Tries, ca: str) -> None:
    """Signed by nobody we trust: 503, and no key, password or name has been sent."""
    tls.server.client.flushall()
    trusted = {"tls_ca": tls.stranger_ca_file} if ca == "stranger" else {}
    assert tries(tls.url, **trusted) == "connection"
    assert tls.server.client.dbsize() == 0


def test_a_certificate_of_another_name_is_refused(tls: TlsServer, tries: Tries) -> None:
    """A trusted certificate that does not hold the name we asked for: 503."""
    by_name = tls.url.replace("127.0.0.1", "localhost")
    assert tries(by_name, tls_ca=tls.ca_file) == "admitted"
    elsewhere = tls.url.replace("127.0.0.1", "127.0.0.2")
    assert tries(elsewhere, tls_ca=tls.ca_file) == "connection"


def test_a_plain_server_behind_a_tls_address_is_refused(
    tls: TlsServer, valkey_server: EmbeddedValkey, tries: Tries
) -> None:
    """valkeys:// never falls back to plain text."""
    plain = f"valkeys://127.0.0.1:{valkey_server.port}/0"
    assert tries(plain, tls_ca=tls.ca_file, deadline_ms=600) in {"connection", "timeout"}


def test_a_tls_server_behind_a_plain_address_is_refused(tls: TlsServer, tries: Tries) -> None:
    """valkey:// at a port that speaks TLS is an outage, no admission."""
    outcome = tries(tls.url.replace("valkeys", "valkey"), deadline_ms=600)
    assert outcome in {"connection", "timeout", "malformed reply"}


def test_a_server_that_wants_to_see_a_certificate_is_shown_it(
    strict_tls: TlsServer, tries: Tries, tmp_path: Path
) -> None:
    """With certificate and key, in two files or one, it is used; without: 503."""
    trusting = {"tls_ca": strict_tls.ca_file}
    shown = {"tls_certificate": strict_tls.client_cert, "tls_key": strict_tls.client_key}
    both = tmp_path / "both.pem"
    both.write_text(strict_tls.client_cert.read_text() + strict_tls.client_key.read_text())
    assert tries(strict_tls.url, **trusting, **shown) == "admitted"
    assert tries(strict_tls.url, **trusting, tls_certificate=both) == "admitted"
    assert tries(strict_tls.url, **trusting) == "connection"


def silence(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Never answer; what a client says of TLS is no command, so this is not even asked."""
    yield 3600.0


class _Deaf(Wire):
    """Accepts, and never reads or says a thing."""

    def _accept(self) -> None:
        with suppress(OSError):
            while not self.ended.is_set():
                client, _ = self._listener.accept()
                self.kept = [*getattr(self, "kept", []), client]

    def __exit__(self, *how: object) -> None:
        super().__exit__(*how)
        for client in getattr(self, "kept", []):
            client.close()


def test_a_handshake_that_hangs_ends_by_the_deadline(tls: TlsServer, tries: Tries) -> None:
    """B057: a server that accepts and says nothing of TLS costs one deadline."""
    with _Deaf(silence) as wire:
        begun = time.monotonic()
        url = wire.url.replace("valkey:", "valkeys:")
        assert tries(url, tls_ca=tls.ca_file, deadline_ms=200) == "timeout"
        assert time.monotonic() - begun < 2


def test_nothing_listens(tls: TlsServer, tries: Tries) -> None:
    """A closed port under TLS is as any closed port."""
    assert tries(f"valkeys://127.0.0.1:{free_port()}", tls_ca=tls.ca_file) == "connection"


def test_the_whole_guard_counts_under_tls(tls: TlsServer, guard_factory: Guards) -> None:
    """Five tries, then refused; a success gives back; a login in the address is sent under TLS."""
    from authguard import Denied

    tls.server.client.flushall()
    tls.server.client.acl_setuser(
        "worker", enabled=True, passwords=["+pw"], keys=["*"], commands=["+@all"]
    )
    url = tls.url.replace("valkeys://", "valkeys://worker:pw@")
    guard = guard_factory(store=ValkeyStore(url, deadline_ms=PATIENT_MS, tls_ca=tls.ca_file))
    guard.attempt("login", **VERA).succeed()
    for _ in range(5):
        guard.attempt("login", **VERA)
    with pytest.raises(Denied):
        guard.attempt("login", **VERA)


def _files(folder: Path) -> dict[str, Path]:
    (folder / "empty.pem").touch()
    (folder / "text.pem").write_text("no certificate")
    return {
        "missing": folder / "missing.pem",
        "empty": folder / "empty.pem",
        "text": folder / "text.pem",
    }


@pytest.mark.parametrize("store", [ValkeyStore, AsyncValkeyStore])
@pytest.mark.parametrize("setting", ["tls_ca", "tls_certificate"])
@pytest.mark.parametrize("file", ["missing", "empty", "text", "folder"])
def test_a_file_that_cant_be_used_stops_the_start(
    tmp_path: Path, store: type, setting: str, file: str
) -> None:
    """AG058 names the setting and the mend, before anything is asked; no half-trust."""
    path = tmp_path if file == "folder" else _files(tmp_path)[file]
    with pytest.raises(ConfigurationError) as refused:
        store(f"valkeys://{HOST}", **{setting: path})
    assert refused.value.code == "AG058"
    assert str(refused.value).startswith(f"AG058 {setting}: can't be used (")
    assert "name a readable file in PEM form" in str(refused.value)


@pytest.mark.parametrize("value", [3, b"ca.pem", ["ca.pem"], "", "a\0b"])
@pytest.mark.parametrize("setting", ["tls_ca", "tls_certificate"])
def test_what_is_no_path_stops_the_start(setting: str, value: object) -> None:
    """AG058 for what names no file, of whatever type."""
    with pytest.raises(ConfigurationError, match=rf"^AG058 {setting}: "):
        ValkeyStore(f"valkeys://{HOST}", **{setting: value})  # type: ignore[arg-type]


def test_a_key_that_does_not_belong_stops_the_start(tls: TlsServer, tmp_path: Path) -> None:
    """AG058 for a key without a certificate, and for another's, and for a locked one."""
    with pytest.raises(ConfigurationError, match=r"^AG058 tls_key: stands alone; name tls_cert"):
        ValkeyStore(f"valkeys://{HOST}", tls_key=tls.client_key)
    with pytest.raises(ConfigurationError, match=r"^AG058 tls_certificate: can't be used"):
        ValkeyStore(
            f"valkeys://{HOST}", tls_certificate=tls.client_cert, tls_key=tls.stranger_ca_file
        )


@pytest.mark.parametrize("setting", ["tls_ca", "tls_certificate", "tls_key"])
@pytest.mark.parametrize(
    "address", [f"valkey://{HOST}", f"valkey+cluster://{HOST}", "valkey+unix:///run/v.sock"]
)
def test_files_without_tls_stop_the_start(address: str, setting: str) -> None:
    """AG058: who gives certificates and a plain address would be in the clear unknowingly."""
    with pytest.raises(ConfigurationError) as refused:
        ValkeyStore(address, **{setting: "ca.pem"})  # type: ignore[arg-type]
    text = str(refused.value)
    assert text.startswith(f"AG058 {setting}: the address is not under TLS")
    assert "valkeys" in text


@pytest.mark.parametrize("setting", ["sentinel_username", "sentinel_password"])
@pytest.mark.parametrize("address", [f"valkey://{HOST}", f"valkeys+cluster://{HOST}"])
def test_a_sentinels_login_without_sentinels_stops_the_start(address: str, setting: str) -> None:
    """AG058 for a login of sentinels where there are none; its text is not shown."""
    with pytest.raises(ConfigurationError) as refused:
        ValkeyStore(address, **{setting: "of-the-sentinels"})  # type: ignore[arg-type]
    assert str(refused.value).startswith(f"AG058 {setting}: the address names no sentinels")
    assert "of-the-sentinels" not in str(refused.value)
