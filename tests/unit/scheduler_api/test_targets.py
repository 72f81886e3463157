from __future__ import annotations

import ipaddress
import logging
from typing import Any

import pytest

from scheduler_api.sealing import Credential, seal, unseal
from scheduler_api.targets import AddressRefused, AllowList, Target, bad_entries, check_host, is_blocked, judge, origin_of

ALLOW = AllowList(("gpu.example.org", "*.lab.example.org", "10.20.0.0/16", "fd12::/16"), "SLOTBOARD_TARGET_ALLOW")


@pytest.mark.parametrize(
    ("address", "blocked"),
    [
        ("127.0.0.1", False),
        ("::1", False),
        ("10.0.0.7", False),
        ("fd12::7", False),
        ("169.254.169.254", True),
        ("::ffff:169.254.169.254", True),
        ("::169.254.169.254", True),
        ("64:ff9b::a9fe:a9fe", True),  # through a NAT64 gateway
        ("2002:a9fe:a9fe::1", True),  # through 6to4
        ("fe80::1", True),
        ("fd00:ec2::254", True),
        ("168.63.129.16", True),
        ("0.0.0.0", True),
        ("::", True),
        ("224.0.0.1", True),
        ("255.255.255.255", True),
    ],
)
def test_which_addresses_are_never_connected_to(address: str, blocked: bool) -> None:
    assert is_blocked(ipaddress.ip_address(address)) is blocked


def answers(*addresses: str) -> list[Any]:
    return [(0, 0, 0, "", (address, 80)) for address in addresses]


@pytest.mark.parametrize(
    ("host", "addresses", "allowed"),
    [
        ("gpu.example.org", ["192.0.2.1"], True),
        ("GPU.example.org.", ["192.0.2.1"], True),
        ("gpu.example.org.evil.net", ["192.0.2.1"], False),
        ("a.lab.example.org", ["192.0.2.1"], True),
        ("lab.example.org", ["192.0.2.1"], False),
        ("evillab.example.org", ["192.0.2.1"], False),
        ("10.20.3.4", ["10.20.3.4"], True),
        ("::ffff:10.20.3.4", ["::ffff:10.20.3.4"], True),
        ("two", ["10.20.3.4", "192.0.2.1"], False),  # one address within the list does not let the others in
        ("six", ["fd12::1"], True),
        ("nowhere", [], False),
    ],
)
def test_an_allow_list_goes_by_name_or_by_all_addresses(host: str, addresses: list[str], allowed: bool) -> None:
    if allowed:
        assert judge(host, answers(*addresses), ALLOW) == addresses
    else:
        with pytest.raises(AddressRefused, match="SLOTBOARD_TARGET_ALLOW"):
            judge(host, answers(*addresses), ALLOW)


def test_a_listed_name_that_leads_to_a_metadata_address_is_refused_all_the_same() -> None:
    with pytest.raises(AddressRefused, match="metadata"):
        judge("gpu.example.org", answers("192.0.2.1", "169.254.169.254"), ALLOW)


def test_entries_that_are_no_host_and_no_network_are_found() -> None:
    assert bad_entries(["a.example.org", "*.example.org", "10.0.0.0/8", "fd12::/16", "::1"]) == []
    wrong = ["http://a.example.org", "a:80", "10.0.0.0/33", "a*b", "**.x"]
    assert bad_entries(wrong) == wrong


def test_an_allow_list_is_asked_at_registration(settings: Any) -> None:
    settings.TARGET_ALLOW = ["10.20.0.0/16"]
    check_host("http://10.20.0.1:8080")
    with pytest.raises(Exception, match=r"10\.21\.0\.1 is not among the allowed addresses"):
        check_host("http://10.21.0.1:8080")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://A.example.org./x", "http://a.example.org:80"),
        ("https://[::1]/", "https://[::1]:443"),
        ("http://h:8080/p", "http://h:8080"),
    ],
)
def test_origins(url: str, origin: str) -> None:
    assert origin_of(url) == origin


KEYS = ["a first key that is long enough, really", "another key that is long enough, really"]


def test_a_sealed_secret_comes_back_with_its_origin_and_tells_nothing_in_logs() -> None:
    stored = seal("sk-1", "http://h:80", KEYS)
    assert "sk-1" not in stored
    assert stored != seal("sk-1", "http://h:80", KEYS)
    back = unseal(stored, KEYS)
    assert (back, back.origin) == ("sk-1", "http://h:80")
    assert "sk-1" not in f"{back!r} {[back]} {Target('http://h', back)!r}"


def test_keys_rotate() -> None:
    old = seal("sk-1", "", KEYS[1:])
    assert unseal(old, KEYS) == "sk-1"
    assert unseal(seal(unseal(old, KEYS), "", KEYS), KEYS[:1]) == "sk-1"


def test_what_no_key_opens_is_empty_told_in_the_log_and_not_thrown_away(caplog: pytest.LogCaptureFixture) -> None:
    stored = seal("sk-1", "", KEYS[:1])
    with caplog.at_level(logging.ERROR):
        lost = unseal(stored, KEYS[1:])
    assert lost == ""
    assert "none of the credential keys" in caplog.text
    assert seal(lost, "", KEYS[1:]) == stored


def test_a_key_goes_to_the_origin_that_it_was_kept_for_alone() -> None:
    key = Credential("sk-1", "http://h:80")
    assert Target("http://h/prefix", key).api_key == "sk-1"
    assert Target("http://other", key).api_key == ""
    assert Target("https://h", key).api_key == ""
