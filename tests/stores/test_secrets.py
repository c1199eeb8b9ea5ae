"""No password, secret, identifier or key gets out through an error, its causes, or a log."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

import pytest

from authguard import StoreUnavailable
from authguard.testing import embedded_valkey

from .conftest import keys_of, stopped, warm
from .wire import CLOSE, Wire, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import valkey

    from authguard import Guard
    from authguard.testing import EmbeddedValkey

    from .conftest import Guards
    from .wire import Step, Talk

PASSWORD = "pw-hunter2-of-the-store"
SECRET = "key-of-all-pseudonyms-0123456789abcdef"
ACCOUNT = "vera.lindqvist@example.test"
CLIENT = "203.0.113.77"


def _assert_nothing_leaks(error: BaseException, guard: Guard, logged: str) -> None:
    """Look through the error, its whole chain as a log would print it, and what was logged."""
    chain, texts = [error], [logged, repr(guard), repr(guard._engine.store)]
    while (older := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(older)
    for one in chain:
        texts += [str(one), repr(one), repr(one.args)]
    texts.append("".join(traceback.format_exception(error)))
    keys = keys_of(guard, ACCOUNT, CLIENT)
    digests = [key.removeprefix("rl:v1:").rstrip("!") for key in keys]
    for text in texts:
        for secret in (PASSWORD, SECRET, ACCOUNT, "lindqvist", CLIENT, "203.0.113", *digests):
            assert secret not in text


def _fail(guard: Guard) -> StoreUnavailable:
    with pytest.raises(StoreUnavailable) as caught:
        guard.attempt("login", account=ACCOUNT, client=CLIENT)
    return caught.value


@pytest.fixture
def secretive(guard_factory: Guards, caplog: pytest.LogCaptureFixture) -> Callable[[int], Guard]:
    """Make guards that log in to the store as a user of its own."""
    caplog.set_level(logging.DEBUG)

    def make(port: int) -> Guard:
        address = f"valkey://worker:{PASSWORD}@127.0.0.1:{port}/0"
        return guard_factory(store=address, secret=SECRET, deadline_ms=1_000)

    return make


def _echo(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Know no command, and say it the way servers do: with its arguments."""
    told = " ".join(f"'{argument.decode('latin-1')}'" for argument in command[1:5])
    verb = command[0].decode()
    yield f"-ERR unknown command '{verb}', with args beginning with: {told} \r\n".encode()


def _echo_after_login(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Let everyone in, but know no script calls."""
    if command[0] == b"AUTH":
        yield b"+OK\r\n"
    else:
        yield from _echo(talk, command)


def _hang_up(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Close at once."""
    yield CLOSE


def _mirror(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Send the very command back, as an echo service would."""
    yield b"*%d\r\n" % len(command)
    for argument in command:
        yield b"$%d\r\n%s\r\n" % (len(argument), argument)


def _error_in_latin_1(talk: Talk, command: list[bytes]) -> Iterator[Step]:
    """Complain in bytes that are no UTF-8."""
    yield b"-WRONGPASS \xe9\xff\r\n"


@pytest.mark.parametrize("answer", [_echo, _echo_after_login, _hang_up, _mirror, _error_in_latin_1])
def test_no_answer_of_a_server_gets_a_secret_into_an_error(
    secretive: Callable[[int], Guard],
    caplog: pytest.LogCaptureFixture,
    answer: Callable[[Talk, list[bytes]], Iterator[Step]],
) -> None:
    """Even a server that repeats what it was sent puts no password or key into error or log."""
    with Wire(answer) as wire:
        guard = secretive(wire.port)
        error = _fail(guard)
    _assert_nothing_leaks(error, guard, caplog.text)


def test_no_outage_of_a_real_server_gets_a_secret_out(
    own_valkey: EmbeddedValkey,
    own_client: valkey.Valkey,
    secretive: Callable[[int], Guard],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Refused, silent, full, forbidden or foreign: the errors hold none of what was sent."""
    guard = secretive(own_valkey.port)
    errors = [_fail(guard)]  # no such user
    own_client.acl_setuser(
        "worker", enabled=True, passwords=[f"+{PASSWORD}"], keys=["*"], categories=["+@all"]
    )
    warm(guard)
    own_client.config_set("maxmemory", 1)
    errors.append(_fail(guard))
    own_client.config_set("maxmemory", 0)
    attempt = guard.attempt("login", account=ACCOUNT, client=CLIENT)
    key = next(own_client.scan_iter())
    own_client.delete(key)
    own_client.rpush(key, "foreign")
    errors.append(_fail(guard))
    own_client.execute_command("ACL", "SETUSER", "worker", "-get")
    errors.append(_fail(guard))
    own_client.execute_command("ACL", "SETUSER", "worker", "resetkeys")
    errors.append(_fail(guard))
    with stopped(own_valkey):
        errors.append(_fail(guard))
        attempt.succeed()
    assert "settle failed" in caplog.text
    errors.append(_fail(secretive(free_port())))
    for error in errors:
        _assert_nothing_leaks(error, guard, caplog.text)
    reasons = [error.reason for error in errors]
    assert reasons[:3] == ["authentication", "out of memory", "error reply"]
    assert reasons[-2:] == ["timeout", "connection"]


@pytest.mark.parametrize("renamed", ["AUTH", "EVALSHA"])
def test_a_server_with_renamed_commands_tells_no_secret(
    secretive: Callable[[int], Guard], caplog: pytest.LogCaptureFixture, renamed: str
) -> None:
    """A real server that doesn't know AUTH or EVALSHA echoes their arguments; the error doesn't."""
    with embedded_valkey(**{"rename-command": f'{renamed} ""'}) as server:
        guard = secretive(server.port)
        error = _fail(guard)
    assert error.reason in {"error reply", "authentication"}
    _assert_nothing_leaks(error, guard, caplog.text)
