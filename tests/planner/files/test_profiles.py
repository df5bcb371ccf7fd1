import re
from dataclasses import MISSING, fields, replace
from pathlib import Path
from statistics import median

import pytest
import yaml

from costmodel.base.errors import InputError, UnknownNameError
from costmodel.base.units import GB, GIB, MIB, US
from costmodel.domain.hardware import CollectiveOp, Source, Spine, UnalignedRows
from costmodel.domain.time_correction import TimeCorrection
from costmodel.domain.workload import DataType
from costmodel.kernels.collectives import RankGroup, collective_estimate, collective_time
from costmodel.kernels.gemm import gemm_time
from planner.files.profile_units import SIZE, parse_quantity, quantity_text, units_of
from planner.files.profiles import dump_profile, load_profile, parse_profile, profile_names

NAMES = (
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "b200-sxm",
    "gb200-nvl72",
    "h100-hbm2e",
    "h100-sxm",
    "h200-sxm",
    "l40s-pcie",
    "mi300x",
    "v100-nvlink",
)
NO_COLLECTIVES = ("mi300x",)
"""Profiles whose collectives rest on the datasheet's links."""


def text_of(name: str) -> str:
    path = Path(__file__).parents[3] / "planner" / "profiles" / f"{name}.yaml"
    return path.read_text(encoding="utf-8")


def test_all_profiles_are_there() -> None:
    assert set(NAMES) <= set(profile_names())


@pytest.mark.parametrize("name", NAMES)
def test_a_profile_is_whole(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert {"fp32", "tf32", "fp16", "bf16"} <= set(profile.gpu.gemm)
    measured = set() if name in NO_COLLECTIVES else set(CollectiveOp)
    assert {curve.op for curve in profile.curves} == measured
    if measured:
        errors = [curve.error for curve in profile.curves if curve.error is not None]
        assert 0 < median(errors) < 0.1


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_source(name: str) -> None:
    profile = load_profile(name)
    for section in ("gpu", "host", "intra_node", "inter_node"):
        known = fields(getattr(profile, section))
        named = {item.name for item in known if item.default is item.default_factory is MISSING}
        wanted = {f"{section}.{field}" for field in named - {"name", "gemm"}}
        assert wanted <= profile.sources.keys()
    assert all(curve.origin for curve in profile.curves)


@pytest.mark.parametrize("name", NAMES)
def test_dumps_and_reads_back_the_same(name: str) -> None:
    profile = load_profile(name)
    text = dump_profile(profile)
    assert parse_profile(text, "dumped") == profile
    begin = text.index("\nfamilies:")  # from here on files have what the fit wrote
    assert text_of(name).endswith(text[begin:])


TRACED = """\
traced:
  operators:
    - {name: "aten::mm", count: 3, t1_us: 1.5, t2_us: 2, t3_us: 2.5, t4_us: 3, t5_us: 3.5}
  kernels:
    - {name: "void gemm", count: 4, us: 5.5}
"""


def test_times_of_a_trace_are_microseconds() -> None:
    profile = parse_profile(text_of("l40s-pcie") + TRACED, "l40s.yaml")
    (operator,), (kernel,) = profile.traced.operators.values(), profile.traced.kernels.values()
    times = (operator.before, operator.lead, operator.tail, operator.call, operator.between)
    assert times == pytest.approx((1.5e-6, 2e-6, 2.5e-6, 3e-6, 3.5e-6))
    assert (operator.count, kernel.count) == (3, 4)
    assert kernel.median == pytest.approx(5.5e-6)
    assert dump_profile(profile).endswith(TRACED)


def test_what_a_profile_does_not_say_of_a_fit_is_nothing() -> None:
    profile = load_profile("l40s-pcie")
    assert profile.gpu.gemm["bf16"].vector_time == 0.0
    assert {curve.num_nodes for curve in profile.curves if curve.num_ranks == 2} == {1}


def test_corrections_are_read_back_and_must_rise() -> None:
    profile = load_profile("a100-sxm-80gb")
    knots = TimeCorrection(((10 * US, 12 * US), (250 * US, 200 * US)))
    gemm = {**profile.gpu.gemm, "bf16": replace(profile.gpu.gemm["bf16"], correction=knots)}
    gpu = replace(
        profile.gpu, forward_correction=knots, backward_correction=knots, stream_correction=knots,
        gemm=gemm,
    )  # fmt: skip
    sources = {
        **profile.sources,
        "gpu.forward_correction": "learned",
        "gpu.backward_correction": "learned",
        "gpu.stream_correction": "learned",
    }
    text = dump_profile(replace(profile, gpu=gpu, sources=sources))
    assert parse_profile(text, "dumped") == replace(profile, gpu=gpu, sources=sources)
    for wrong in ("[[10, 12], [250, 11]]", "[[10, 12], [250]]", "[[0, 1]]", "[[10, 12], 3]"):
        made = text.replace("[[10, 12], [250, 200]]", wrong, 1)
        lines = {line for _, line in broken(made)}
        assert any("stream_correction" in made.splitlines()[(at or 0) - 1] for at in lines)


def test_a_slower_network_beyond_some_nodes_is_read_back() -> None:
    plain = load_profile("h100-sxm")
    assert plain.spine is None
    text = dump_profile(replace(plain, spine=Spine(nodes=32, oversubscription=4.0)))
    assert "spine:\n  nodes: 32\n  oversubscription: 4\n" in text
    assert parse_profile(text, "h").spine == Spine(nodes=32, oversubscription=4.0)
    said = text.replace("tion: 4\n", 'tion: {value: 4, source: "a switch"}\n')
    assert parse_profile(said, "h").sources["spine.oversubscription"] == "a switch"
    with pytest.raises(InputError, match=r"oversubscription"):
        parse_profile(text.replace("oversubscription: 4", "oversubscription: 0.5"), "h")


def test_unaligned_rows_are_read_back_in_order() -> None:
    profile = load_profile("a100-sxm-80gb")  # which has none of its own
    four = UnalignedRows(
        alignment_bytes=4, efficiency=0.3, bandwidth_efficiency=0.5, latency=2 * US
    )
    two = UnalignedRows(alignment_bytes=2, efficiency=0.1, bandwidth_efficiency=0.4)
    fp16 = replace(profile.gpu.gemm["fp16"], unaligned=(four, two))
    made = replace(profile, gpu=replace(profile.gpu, gemm={**profile.gpu.gemm, "fp16": fp16}))
    text = dump_profile(made)
    assert parse_profile(text, "dumped") == made
    first = "{alignment_bytes: 4 B, efficiency: 0.3, bandwidth_efficiency: 0.5, latency: 2 us}"
    second = "{alignment_bytes: 2 B, efficiency: 0.1, bandwidth_efficiency: 0.4}"
    assert f"    unaligned:\n      - {first}\n      - {second}\n" in text
    (problem,) = broken(text.replace("alignment_bytes: 2 B", "alignment_bytes: 4 B"))
    assert "needs entries of ever fewer `alignment_bytes`, got 4 and 4" in problem[0]


def test_one_number_reads_as_written() -> None:
    profile = load_profile("a100-sxm-80gb")
    assert profile.gpu.memory_bytes == 81251 * MIB
    assert profile.inter_node.bandwidth == 25 * GB
    assert profile.gpu.num_sms == 108
    assert isinstance(profile.gpu.num_sms, int)


def test_a_measured_point_is_reproduced() -> None:
    # nccl-tests on 8 x A100-SXM4-80GB, 64 MiB all_to_all: 347.6 and 348.5 us
    group = RankGroup(num_ranks=8, ranks_per_node=8)
    time = collective_time(CollectiveOp.ALL_TO_ALL, 64 * MIB, group, load_profile("a100-sxm-80gb"))
    assert time == pytest.approx(348 * US, rel=0.02)


def test_two_h100_nodes_come_near_what_was_measured() -> None:
    # 16 x H100 over two nodes of cluster01, 4 GiB all_to_all: 43.95 ms
    group = RankGroup(num_ranks=16, ranks_per_node=8)
    time = collective_time(CollectiveOp.ALL_TO_ALL, 4 * GIB, group, load_profile("h100-sxm"))
    assert time == pytest.approx(43.95e-3, rel=0.05)


def test_fewer_v100_than_measured_are_extrapolated() -> None:
    pair = RankGroup(num_ranks=2, ranks_per_node=2)
    estimate = collective_estimate(CollectiveOp.ALL_REDUCE, MIB, pair, load_profile("v100-nvlink"))
    assert estimate.extrapolated


def test_tensor_cores_are_faster() -> None:
    gpu = load_profile("h100-sxm").gpu
    times = [
        float(gemm_time(8192, 4096, 4096, data_type, gpu))
        for data_type in (DataType.FP32, DataType.TF32, DataType.BF16)
    ]
    assert times == sorted(times, reverse=True)


def test_is_parsed_once_and_in_c(parsers: list[type]) -> None:
    parse_profile(text_of("h100-sxm"), "h100-sxm")
    (parser,) = parsers
    assert issubclass(parser, yaml.CSafeLoader)


def test_unknown_name_suggests_one() -> None:
    with pytest.raises(UnknownNameError) as error:
        load_profile("h100-smx")
    assert error.value.hint == "did you mean `h100-sxm`?"


def test_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text_of("h100-sxm"), encoding="utf-8")
    assert load_profile(path) == load_profile("h100-sxm")


@pytest.mark.parametrize("field", ["forward_turn_time", "overlap", "l1_bytes"])
def test_an_optional_number_that_is_null_has_its_default(field: str) -> None:
    lines = text_of("h100-sxm").splitlines(keepends=True)
    (at,) = (i for i, line in enumerate(lines) if line.startswith(f"  {field}: "))
    null = parse_profile("".join([*lines[:at], f"  {field}: null\n", *lines[at + 1 :]]), "n.yaml")
    left_out = parse_profile("".join([*lines[:at], *lines[at + 1 :]]), "n.yaml")
    assert null == left_out


def test_no_name_is_no_profile_s() -> None:
    with pytest.raises(UnknownNameError):
        load_profile("")


def test_a_file_of_any_name_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text(text_of("l40s-pcie"), encoding="utf-8")
    assert load_profile(tmp_path / "mine").name == "l40s-pcie"


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_profile(tmp_path / "nothing.yaml")


def broken(text: str) -> list[tuple[str, int | None]]:
    with pytest.raises(InputError) as error:
        parse_profile(text, "broken.yaml")
    return [
        (f"{problem.message}; {problem.hint}" if problem.hint else problem.message, problem.line)
        for problem in error.value.problems
    ]


def test_reports_every_problem_with_its_line() -> None:
    text = text_of("h100-sxm")
    text = text.replace("  num_sms: {value: 132,", "  num_sm: {value: 132,")
    text = text.replace("value: 50 GB/s", "value: 50 Gb/s")
    problems = dict(broken(text))
    lines = text.splitlines()
    gpu = lines.index("gpu:")
    where = {
        "unknown field `num_sm`; did you mean `num_sms`?": "num_sm:",
        "missing field `num_sms`": lines[gpu + 1],
        "`pcie_bandwidth` needs a number with one of MB/s, GB/s, TB/s, got `50 Gb/s`": "50 Gb/s",
    }
    assert problems == {
        message: next(i for i, line in enumerate(lines, 1) if part in line)
        for message, part in where.items()
    }


def test_points_at_the_number_beside_its_source() -> None:
    text = text_of("h100-sxm").replace("value: 132,", "value: 132.5,")
    with pytest.raises(InputError) as error:
        parse_profile(text, "broken.yaml")
    (problem,) = error.value.problems
    line = text.splitlines()[(problem.line or 0) - 1]
    assert line[(problem.column or 0) - 1 :].startswith("132.5, source")
    assert problem.message == "`num_sms` must be a whole number, got the number 132.5"
    assert problem.hint == "write 132"


MAY_BE_ZERO = {
    "latency", "launch_latency", "launch_time", "sync_time", "op_time", "backward_op_time",
    "listed_op_time", "listed_backward_op_time",
    "overlap", "lookup_time", "row_read_time", "row_update_time", "forward_latency",
    "bag_row_time", "bag_time", "forward_turn_time", "backward_turn_time", "split_time",
    "prologue_depth",
    "l1_bytes", "gradient_time", "backward_latency", "sort_latency", "vector_time", "error",
    "error_p90", "num_points",
    *load_profile("h100-sxm").gpu.element_times, *load_profile("cpu-gloo").gpu.element_times,
}  # fmt: skip
ONE_NUMBER = re.compile(r"( *(\w+): (?:\{value: )?)([0-9.]+(?:e-?[0-9]+)?)(.*)", re.DOTALL)


def lines_with_a_number(name: str) -> list[tuple[str, int]]:
    """Return the first line of every field that is one number."""
    lines = text_of(name).splitlines()
    found = ((match[2], i) for i, line in enumerate(lines) if (match := ONE_NUMBER.match(line)))
    return [(name, i) for i in dict(reversed(list(found))).values()]


@pytest.mark.parametrize(
    ("name", "at"), [*lines_with_a_number("h100-sxm"), *lines_with_a_number("cpu-gloo")]
)
def test_refuses_numbers_that_make_no_sense(name: str, at: int) -> None:
    lines = text_of(name).splitlines(keepends=True)
    start, field, _, end = ONE_NUMBER.fullmatch(lines[at]).groups()  # type: ignore[union-attr]
    lines[at] = start + ("-1" if field in MAY_BE_ZERO else "0") + end
    ((message, line),) = broken("".join(lines))
    assert message.startswith(f"`{field}` must be ")
    assert line == at + 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("op: all_reduce", "op: all_redo", "unknown op `all_redo`; did you mean `all_reduce`?"),
        ("source: fitted", "source: guessed", "unknown source `guessed`; one of: measured, fitted"),
        ("us: [", "us: [1.0, ", "equally long"),
        ("gpus_per_node:", "gpus:", "missing field `gpus_per_node`"),
        ("  fp32:", "  fp33:", "unknown field `fp33`; did you mean `fp32`?"),
        ("tile_efficiency: [", "tile_efficiency: [1, ", "`tile_efficiency` needs 4 items, got 5"),
        ("lookup_efficiency: {value: 0", "lookup_efficiency: {value: 80", "at most 10"),
        ("num_ranks: 4", "num_ranks: 2.5", "`num_ranks` must be a whole number"),
        ("num_ranks: 4", "num_ranks: 2", "a second all_to_all curve for as many ranks and nodes"),
        ("  inter_node:\n    source", "  inter_mode:\n    source", "did you mean `inter_node`?"),
        ("families:", "errors: {host: 0.3}\nfamilies:", "unknown field `errors`"),
        ("{value: 108, source:", "{value: 108, sorce:", "did you mean `source`?"),
        ("{value: 108,", "{value: 1e22,", "`num_sms` must be a whole number"),
        ("{value: 30 us", "{value: 1e22 s", "at least 0 and at most 1e+21, got `1e22 s`"),
        (
            "  latency: {value: 30 us",
            "  latency: {value: -30 us",
            "`latency` must be at least 0, got `-30 us`",
        ),
    ],
)
def test_names_what_is_wrong(old: str, new: str, message: str) -> None:
    text = text_of("a100-sxm-80gb").replace(old, new, 1)
    assert any(message in problem for problem, _ in broken(text))


def test_products_of_no_type_that_can_stand_in_are_a_problem() -> None:
    whole = text_of("a100-sxm-80gb")
    begin, end = whole.index("gemm:"), whole.index("collectives:")
    ((message, _),) = broken(f"{whole[:begin]}gemm: {{}}\n{whole[end:]}")
    assert message.startswith("`gemm` needs one of bf16, fp16, fp32")


@pytest.mark.parametrize("text", ["[]", "42", "name: x", "gpu: [1, 2", "a: 1\na: 2"])
def test_what_is_no_profile_is_an_input_error(text: str) -> None:
    assert broken(text)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("7 B", "memory_bytes", 7.0),
        ("80 GiB", "memory_bytes", 80 * GIB),
        ("3 TiB", "memory_bytes", 3 * 2**40),
        ("7 ns", "split_time", 7e-9),
        ("1.5us", "latency", 1.5e-6),
        ("3 s", "latency", 3.0),
        (0.9, "lookup_efficiency", 0.9),
        ("1e10", "sort_rate", 1e10),
        ("312 TFLOP/s", "peak", 312e12),
    ],
)
def test_units(text: object, field: str, value: float) -> None:
    assert parse_quantity(text, units_of(field)) == pytest.approx(value)


@pytest.mark.parametrize("text", ["80", "80 GB/s", "many GiB", "", True, None, "-"])
def test_wrong_units(text: object) -> None:
    with pytest.raises(ValueError, match="needs a number with one of"):
        parse_quantity(text, SIZE)


def test_quantities_are_written_short() -> None:
    assert quantity_text(50 * MIB, "l2_bytes") == "50 MiB"
    assert quantity_text(25e9, "bandwidth") == "25 GB/s"


@pytest.mark.parametrize("name", NAMES)
def test_families_say_what_they_rest_on(name: str) -> None:
    profile = load_profile(name)
    assert set(profile.families) >= {"embedding_forward", "embedding_backward", "inter_node"}
    fitted = [*profile.curves, *profile.gpu.gemm.values()]
    assert all((fit.error is None) == (fit.num_points == 0) for fit in fitted)
    assert all(len(fit.shapes) == (3 if fit.num_points else 0) for fit in profile.gpu.gemm.values())


def test_curves_end_where_measurements_do() -> None:
    curve = load_profile("a100-sxm-80gb").curves[0]
    last = curve.knots[-1][0]
    assert curve.covers(512)
    assert curve.covers(curve.last_measured or 0)
    assert not curve.covers(256)
    assert not curve.covers(last)


def test_families_are_read_with_their_ranges() -> None:
    family = load_profile("v100-nvlink").families["embedding_forward"]
    assert family.covers(lookups=100_000, embedding_dim=64)
    assert not family.covers(lookups=100_000, embedding_dim=512)
    assert not load_profile("a100-sxm-80gb").families["embedding_forward"].covers(lookups=1e5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{a: {source: fitted}}", "missing field `origin`"),
        ("{a: {source: fitted, origin: here, ranges: {x: [2, 1]}}}", "lowest and the highest"),
        ("{a: {source: fitted, origin: here, nun_points: 3}}", "did you mean `num_points`?"),
        ("[1]", "`families` must be a mapping"),
    ],
)
def test_broken_families_are_reported(text: str, message: str) -> None:
    whole = text_of("h100-sxm")
    begin, end = whole.index("families:"), whole.index("gemm:\n")
    problems = broken(whole[:begin] + f"families: {text}\n" + whole[end:])
    assert any(message in problem for problem, _ in problems)


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ("kind: datasheet, source: PCIe 4.0 x16", Source.DATASHEET),
        ("kind: measured, source: assumed until it was measured", Source.MEASURED),
        # profiles written before there was `kind`
        ("source: 'assumed: as elsewhere'", Source.ASSUMED),
        ("source: 'fastest of 13 copies, twice what is assumed'", Source.MEASURED),
    ],
)
def test_a_number_says_what_kind_of_source_it_has(entry: str, kind: Source) -> None:
    text = dump_profile(load_profile("h100-sxm"))
    (line,) = (line for line in text.splitlines() if line.startswith("  pcie_bandwidth:"))
    made = parse_profile(text.replace(line, f"  pcie_bandwidth: {{value: 9 GB/s, {entry}}}"), "p")
    assert made.kind("host.pcie_bandwidth") is kind
    assert parse_profile(dump_profile(made), "p") == made


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ("source: 'assumed: as elsewhere'", Source.ASSUMED),
        ("source: 'assumed until it was'\n    kind: measured", Source.MEASURED),
        ("source: fastest of 13", Source.FITTED),
    ],
)
def test_so_do_products(lines: str, kind: Source) -> None:
    text = text_of("l40s-pcie")
    (old,) = (line for line in text.splitlines() if "3000 points; peak" in line)
    made = parse_profile(text.replace(old, f"    {lines}"), "p")
    assert made.gpu.gemm["bf16"].kind is kind


def test_a_missing_or_unknown_key_is_shown_where_it_stands() -> None:
    text = text_of("l40s-pcie")
    at = text.index("  tf32:")
    without = text[:at] + text[at:].replace("    peak: 183 TFLOP/s\n", "", 1)
    first = text[:at].count("\n") + 2  # the line after `tf32:`
    assert broken(without) == [("missing field `peak`", first)]
    ((_, line),) = broken(text.replace("  tf32:", "  tf33:"))
    assert line == first - 1


def test_an_unknown_kind_of_source_is_a_problem() -> None:
    text = dump_profile(load_profile("h100-sxm"))
    with pytest.raises(InputError, match="unknown kind `guessed`"):
        parse_profile(text.replace("kind: assumed", "kind: guessed", 1), "p")


def test_a_number_written_over_in_a_copy_of_a_shipped_profile_is_assumed(tmp_path: Path) -> None:
    text = dump_profile(load_profile("h100-sxm"))
    copy = tmp_path / "mine.yaml"
    copy.write_text(text)
    assert load_profile(copy).kind("gpu.memory_bandwidth") is Source.MEASURED
    (line,) = re.findall(r"^  memory_bandwidth: .*$", text, re.MULTILINE)
    copy.write_text(text.replace(line, re.sub(r"value: [^,]*,", "value: 9000 GB/s,", line)))
    edited = load_profile(copy)
    assert edited.gpu.memory_bandwidth == 9e12
    assert edited.kind("gpu.memory_bandwidth") is Source.ASSUMED
    assert edited.sources["gpu.memory_bandwidth"].startswith("assumed: written over 3e+12 of the")
    assert edited.kind("gpu.l2_bytes") is load_profile("h100-sxm").kind("gpu.l2_bytes")
