"""Settings: the order of places, origins, and everything that is refused."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.job.events import AutoInterval
from clonos_py.model.errors import SettingError
from clonos_py.model.record_limits import RecordLimit
from clonos_py.model.retention import Spill
from clonos_py.runtime.run_settings import policy
from clonos_py.settings.definitions import DEFINITIONS, Guarantee, Runtime, Settings
from clonos_py.settings.kinds import DURATION, SIZE, Kill
from clonos_py.settings.resolution import check_run, read_file, resolve


def test_each_place_overrides_the_ones_below_it() -> None:
    settings = resolve(
        {"parallelism": 1, "standbys": 1, "key_groups": 64, "linger": "1ms"},
        file={"parallelism": 2, "standbys": 2, "key_groups": 65},
        environment={"CLONOS_PARALLELISM": "3", "CLONOS_STANDBYS": "3", "PATH": "/bin"},
        command_line={"parallelism": "4"},
    )
    values = (settings.parallelism, settings.standbys, settings.key_groups, settings.linger_us, settings.seed)
    assert values == (4, 3, 65, 1_000, 0)
    keys = ("parallelism", "standbys", "key_groups", "linger", "seed")
    assert [settings.origin(key) for key in keys] == [
        "--parallelism",
        "CLONOS_STANDBYS",
        "clonos.toml",
        "Job(...)",
        "default",
    ]


def test_without_any_place_all_settings_are_defaults() -> None:
    assert resolve() == Settings()
    assert {origin for _, _, origin in Settings().shown()} == {"default"}


def test_settings_can_be_pickled() -> None:
    settings = resolve({"kills": ["join[0]@3s"], "runtime": "local"})
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_every_setting_can_be_read_back_from_its_text() -> None:
    settings = Settings()
    for key, shown, _ in settings.shown():
        if shown != "none":
            assert DEFINITIONS[key].kind.parse(shown) == getattr(settings, DEFINITIONS[key].attribute)


@given(st.integers(1, 10**15))
def test_durations_and_sizes_are_shown_exactly(value: int) -> None:
    assert DURATION.parse(DURATION.show(value)) == value
    assert SIZE.parse(SIZE.show(value)) == value


@pytest.mark.parametrize(
    ("places", "hint"),
    [
        ({"file": {"paralelism": 2}}, "clonos.toml: unknown setting paralelism: did you mean parallelism?"),
        ({"environment": {"CLONOS_STANDBY": "2"}}, "CLONOS_STANDBY: unknown setting standby: did you mean standbys?"),
        ({"job": {"zzz": 2}}, r"Job\(\.\.\.\): unknown setting zzz; there are parallelism, "),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_valid_one(places: dict[str, dict[str, str]], hint: str) -> None:
    with pytest.raises(SettingError, match=hint):
        resolve(**places)


def test_the_switch_for_tracebacks_is_no_setting() -> None:
    assert resolve(environment={"CLONOS_DEBUG": "1"}) == Settings()


def test_native_kernels_are_on_or_off() -> None:
    for value in ("on", "off"):
        assert resolve(environment={"CLONOS_KERNELS": value}) == Settings()
    with pytest.raises(SettingError, match="CLONOS_KERNELS is 'of': set it to on or off"):
        resolve(environment={"CLONOS_KERNELS": "of"})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("parallelism", 0, "0 is not a whole number of at least 1"),
        ("parallelism", "two", "'two' is not a whole number"),
        ("parallelism", True, "True is not a whole number"),
        ("guarantee", "exactly_once", "'exactly_once' is not one of exactly-once, at-least-once, at-most-once"),
        ("protocol", "chandy-lamport", "'chandy-lamport' is not one of aligned"),
        ("protocol", ["aligned"], r"\['aligned'\] is not one of aligned"),
        ("chaining", "no", "'no' is neither on nor off"),
        ("beyond_sharing_depth", "both", "'both' is not one of consistency, availability"),
        ("sharing_depth", "deep", "'deep' is neither 'full' nor a number of hops"),
        ("checkpoint_interval", 5, "5 is not a duration: write it with its unit"),
        ("checkpoint_interval", "-5s", "'-5s' must be more than 0, or 'auto'"),
        ("checkpoint_interval", "0s", "'0s' must be more than 0, or 'auto'"),
        ("checkpoint_interval", "automatic", "'automatic' is not a duration"),
        ("checkpoint_interval", True, "True is not a duration"),
        ("checkpoint_interval_min", "auto", "'auto' is not a duration"),
        ("checkpoint_interval_min", "0s", "'0s' must be more than 0"),
        ("checkpoint_interval_max", "-1min", "'-1min' must be more than 0"),
        ("checkpoint_interval_max", "inf", "'inf' is not a duration"),
        ("checkpoint_interval_max", 600, "600 is not a duration: write it with its unit"),
        ("mtbf", "0h", "'0h' must be more than 0"),
        ("mtbf", "never", "'never' is not a duration"),
        ("in_flight_budget", "1 gigabyte", "'1 gigabyte' is not a size"),
        ("fresh", "maybe", "'maybe' is neither true nor false"),
        ("kills", "join@3s", "'join@3s' is not a kill: write OPERATOR"),
        ("kills", 3, "3 is not a list such as"),
        ("address", 6379, "6379 is not text"),
    ],
)
def test_an_impossible_value_is_refused_with_its_place(key: str, value: object, message: str) -> None:
    with pytest.raises(SettingError, match=rf"{key} \(clonos.toml\): {message}"):
        resolve(file={key: value})


def test_a_wrong_value_is_refused_even_if_a_higher_place_overrides_it() -> None:
    with pytest.raises(SettingError, match="CLONOS_SEED"):
        resolve(environment={"CLONOS_SEED": "x"}, command_line={"seed": 1})


def test_kills_may_be_a_list_or_separated_by_commas() -> None:
    expected = (Kill("join", 0, 3_000_000), Kill("bids", 1, 500_000))
    assert resolve(command_line={"kills": ("join[0]@3s", "bids[1]@500ms")}).kills == expected
    assert resolve(environment={"CLONOS_KILLS": "join[0]@3s, bids[1]@500ms"}).kills == expected


def test_guarantee_and_sharing_depth_follow_from_each_other() -> None:
    without_logging = resolve({"sharing_depth": 0})
    assert without_logging.guarantee is Guarantee.AT_LEAST_ONCE
    assert without_logging.origin("guarantee") == "follows from sharing_depth (Job(...))"
    assert resolve({"guarantee": "at-least-once"}).sharing_depth == 0
    assert resolve({"guarantee": "at-most-once"}).sharing_depth == 0
    assert resolve({"guarantee": "exactly-once"}).sharing_depth == -1
    assert resolve({"guarantee": "at-least-once", "sharing_depth": "full"}).sharing_depth == -1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"checkpoint_interval_min": "2s"}, "only checkpoint_interval = auto has bounds"),
        (
            {"checkpoint_interval_max": "1h", "checkpoint_interval": "30s"},
            r"checkpoint_interval_max = 1h \(Job\(...\)\) contradicts checkpoint_interval = 30s",
        ),
        (
            {"checkpoint_interval": "auto", "checkpoint_interval_min": "11min"},
            r"checkpoint_interval_min = 11min \(Job\(...\)\) contradicts checkpoint_interval_max = 10min \(default\)",
        ),
    ],
)
def test_bounds_of_the_interval_that_cannot_be_followed_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        resolve(given)


def test_the_coordinator_gets_the_bounds_of_an_interval_that_the_job_finds() -> None:
    assert policy(resolve()).auto_interval is None
    found = policy(resolve({"checkpoint_interval": "auto", "mtbf": "1h", "checkpoint_interval_max": "1min"}))
    assert found.checkpoint_interval_us == 5_000_000
    assert found.auto_interval == AutoInterval(1_000_000, 60_000_000, 3_600_000_000, 2**30)
    first = policy(resolve({"checkpoint_interval": "auto", "checkpoint_interval_max": "2s", "spill": "spill-buffer"}))
    assert first.checkpoint_interval_us == 2_000_000
    assert first.auto_interval is not None
    assert first.auto_interval.budget_bytes is None
    assert (
        dict(entry[:2] for entry in resolve({"checkpoint_interval": "auto"}).shown())["checkpoint_interval"] == "auto"
    )


def test_exactly_once_without_determinants_is_rollback_recovery_if_both_are_stated() -> None:
    both = resolve({"guarantee": "exactly-once"}, command_line={"sharing_depth": "0"})
    assert both.guarantee is Guarantee.EXACTLY_ONCE
    assert both.rollback
    assert not resolve({"sharing_depth": 0}).rollback
    assert not resolve({"guarantee": "exactly-once"}).rollback


def test_chaining_is_on_or_off_in_any_place() -> None:
    assert resolve().chaining
    assert not resolve(environment={"CLONOS_CHAINING": "off"}).chaining
    assert not resolve(file={"chaining": False}).chaining


@pytest.mark.parametrize(
    ("given_values", "message"),
    [
        (
            {"guarantee": "exactly-once", "sharing_depth": 0, "beyond_sharing_depth": "availability"},
            "without determinants exactly-once has to roll back",
        ),
        ({"guarantee": "exactly-once", "sharing_depth": 0, "spill": "regenerate"}, "depth 0 keeps none"),
        ({"guarantee": "at-most-once", "sharing_depth": 1}, "at-most-once replays nothing"),
        ({"guarantee": "at-least-once", "beyond_sharing_depth": "availability"}, "below exactly-once nothing is ever"),
        ({"sharing_depth": 0, "beyond_sharing_depth": "consistency"}, "below exactly-once nothing is ever"),
        ({"parallelism": 200}, "every task needs a key group"),
        ({"address": "host:6379", "runtime": "local"}, "only the ray runtime joins a cluster"),
        ({"fresh": True}, "without a checkpoint folder every run is fresh"),
        ({"standbys": 0, "standbys_per_process": 3}, "there are no standbys that could share a process"),
        ({"standby_feed": "100ms", "standbys": 0}, "standby_feed .* contradicts standbys = 0"),
        ({"standby_feed": "100ms", "guarantee": "at-least-once"}, "standby_feed .* contradicts guarantee"),
        ({"standby_feed": "100ms", "sharing_depth": 1}, "standby_feed .* contradicts sharing_depth"),
        (
            {"record": "24h", "checkpoints": "here", "guarantee": "at-most-once"},
            "record .* contradicts guarantee .*what at-most-once leaves out cannot be replayed",
        ),
        ({"take_over": True}, "without a checkpoint folder there is nothing to continue from"),
        (
            {"take_over": True, "fresh": True, "checkpoints": "here"},
            "one continues from the last checkpoint, the other",
        ),
        (
            {"take_over": True, "checkpoints": "here", "runtime": "local"},
            "running jobs have names only on a Ray cluster",
        ),
        (
            {"tls_key": "/k"},
            r"tls_key = /k \(Job\(\.\.\.\)\) contradicts tls_certificate = none \(default\): TLS needs",
        ),
        ({"tls_certificate": "/c", "tls_key": "/k"}, "contradicts tls_ca = none"),
        ({"spill_threshold": "1MiB"}, "a threshold needs spill = spill-threshold"),
        ({"spill": "spill-threshold", "spill_threshold": "2GiB"}, "the budget would be spent before the threshold"),
        ({"protocol": "uncoordinated", "sharing_depth": 1}, "protocol .* contradicts sharing_depth"),
        ({"protocol": "uncoordinated", "sharing_depth": 0}, "by none with guarantee = exactly-once"),
        ({"protocol": "uncoordinated", "guarantee": "at-least-once"}, "fit together by all determinants"),
        ({"protocol": "uncoordinated", "spill": "regenerate"}, "what is made again is not kept"),
        ({"protocol": "communication-induced", "sharing_depth": 1}, "protocol .* contradicts sharing_depth"),
        (
            {"protocol": "continuous", "sharing_depth": 1},
            "protocol .* contradicts sharing_depth.*need all determinants",
        ),
        (
            {"protocol": "continuous", "guarantee": "at-least-once"},
            "protocol .* contradicts sharing_depth.*need all determinants",
        ),
        (
            {"protocol": "continuous", "sharing_depth": 0, "guarantee": "exactly-once"},
            "windows saved at several times need all determinants",
        ),
        ({"extent_max": 1_000}, "only protocol = continuous saves windows one by one"),
        (
            {"protocol": "continuous", "check_time": "1s", "check_period": "100ms"},
            "check_time .* contradicts check_period .*a part of the period",
        ),
        ({"protocol": "communication-induced", "spill": "regenerate"}, "what is made again is not kept"),
    ],
)
def test_a_contradiction_names_both_sides(given_values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        resolve(given_values)


def test_a_settings_file_is_read_and_a_missing_one_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "clonos.toml"
    assert read_file(path) == {}
    path.write_text('runtime = "local"\nspill = "spill-threshold"\nkills = ["map[1]@2s"]\n')
    settings = resolve(file=read_file(path))
    assert (settings.runtime, settings.spill) == (Runtime.LOCAL, Spill.THRESHOLD)
    assert settings.kills == (Kill("map", 1, 2_000_000),)


def test_a_broken_settings_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "clonos.toml"
    path.write_text("runtime = local\n")
    with pytest.raises(SettingError, match=r"clonos\.toml cannot be read"):
        read_file(path)


@pytest.mark.parametrize("key", ["checkpoints", "trace", "address", "tls_key"])
@pytest.mark.parametrize("value", ["", "  ", "a\0b"])
def test_a_text_that_no_one_can_mean_is_refused(key: str, value: str) -> None:
    """Such as ``--checkpoints "$FOLDER"`` of a shell without FOLDER: the run would have left no checkpoints."""
    with pytest.raises(
        SettingError, match=rf"{key} \(--{key.replace('_', '-')}\): .* is empty or has a NUL: give a value"
    ):
        resolve({}, command_line={key: value})


@pytest.mark.parametrize("value", ["0s", "-1s", "inf", "nan", 100, "100", "", True, None])
def test_a_feed_interval_is_a_duration_or_off(value: object) -> None:
    with pytest.raises(SettingError, match=r"standby_feed .*, or turn it off with 'off'"):
        resolve({}, command_line={"standby_feed": value})


def test_a_feed_is_off_or_has_an_interval() -> None:
    assert resolve({}).standby_feed_us == 0
    assert resolve({}, command_line={"standby_feed": "off"}).standby_feed_us == 0
    fed = resolve({}, command_line={"standby_feed": "50ms"})
    assert fed.standby_feed_us == 50_000
    assert ("standby_feed", "50ms") in [(key, value) for key, value, _ in fed.shown()]


@pytest.mark.parametrize(
    ("value", "shown", "here"),
    [
        ("localhost:8080", "localhost:8080", True),
        (":8080", "localhost:8080", True),
        ("8080", "localhost:8080", True),
        ("127.0.0.9:1", "127.0.0.9:1", True),
        ("[::1]:8080", "[::1]:8080", True),
        ("0.0.0.0:8080", "0.0.0.0:8080", False),
        ("[::]:8080", "[::]:8080", False),
        ("driver.example:65535", "driver.example:65535", False),
    ],
)
def test_a_web_address_that_others_reach_needs_a_token(value: str, shown: str, here: bool) -> None:
    given = {"web": value, "web_token_file": "token"}
    assert {key: value for key, value, _ in resolve({}, command_line=given).shown()}["web"] == shown
    if here:
        assert resolve({}, command_line={"web": value}).web is not None
    else:
        with pytest.raises(SettingError, match=r"web = .* contradicts web_token_file = none"):
            resolve({}, command_line={"web": value})


@pytest.mark.parametrize("value", ["", "localhost", "localhost:0", "localhost:65536", "::1:80", "a:b", 8080, True])
def test_what_is_no_web_address_is_refused(value: object) -> None:
    with pytest.raises(SettingError, match=r"web \(--web\): .* is not an address: write HOST:PORT"):
        resolve({}, command_line={"web": value})


def test_a_token_without_an_address_is_refused() -> None:
    with pytest.raises(SettingError, match=r"web_token_file = token .* contradicts web = none"):
        resolve({}, command_line={"web_token_file": "token"})


@pytest.mark.parametrize(
    "value", ["0s", "-1s", "inf", "nan", 100, "24", "", True, None, "0GB", "-1GB", "2gb", "2 G", "0.1B", "infGB"]
)
def test_a_record_is_a_duration_a_size_or_off(value: object) -> None:
    with pytest.raises(SettingError, match=r"record .*, or turn it off with 'off'"):
        resolve({}, command_line={"record": value, "checkpoints": "here"})


def test_a_run_that_records_needs_a_checkpoint_folder() -> None:
    """A job that names a record can be planned and tested without one."""
    settings = resolve({"record": "24h"})
    with pytest.raises(SettingError, match=r"record = 24h \(Job\(\.\.\.\)\) contradicts checkpoints = none"):
        check_run(settings)
    check_run(resolve({"record": "24h", "checkpoints": "here"}))
    check_run(resolve({}))


def test_a_record_is_off_or_has_a_duration() -> None:
    assert not resolve({}).record
    assert not resolve({}, command_line={"record": "off"}).record
    recorded = resolve({}, command_line={"record": "24h", "checkpoints": "here"})
    assert recorded.record == RecordLimit(24 * 3_600_000_000)
    assert ("record", "24h") in [(key, value) for key, value, _ in recorded.shown()]


def test_a_record_may_have_a_size() -> None:
    recorded = resolve({}, command_line={"record": "2GB", "checkpoints": "here"})
    assert recorded.record == RecordLimit(size_bytes=2 * 10**9)
    assert ("record", "2GB") in [(key, value) for key, value, _ in recorded.shown()]
    assert resolve(arguments=dict(recorded.written())).record == recorded.record


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"record": "24h", "checkpoints": "here"},
        {"guarantee": "exactly-once", "sharing_depth": 0},
        {"guarantee": "at-least-once"},
        {"sharing_depth": 0},
        {"protocol": "continuous", "extent_max": 3},
        {"kills": ["join[0]@3s", "a[1]@5ms"], "renames": ["a=b"], "checkpoints": "here", "in_flight_budget": "3MiB"},
        {"spill": "spill-threshold", "spill_threshold": "1KiB", "chaining": False, "checkpoint_interval": "auto"},
    ],
)
def test_written_settings_resolve_to_the_same_settings(given: dict[str, object]) -> None:
    settings = resolve({}, command_line=given)
    written = resolve({}, file=dict(settings.written()))
    assert replace(written, origins={}) == replace(settings, origins={})
