"""A spec that exists is a network that can be built; everything else is refused with a reason."""

from __future__ import annotations

import copy
import json

import pytest

from ringlet.errors import SpecError, UnknownNameError
from ringlet.models import zoo
from ringlet.models.builder import add, batch_norm, build, conv2d, dense, flatten, image_input, max_pool2d, relu
from ringlet.models.spec import ModelSpec, Node

INPUT = Node("input", "input", (), {"shape": (1, 4, 4)})


def relu_node(name: str, *inputs: str) -> Node:
    return Node(name, "relu", inputs, {})


class TestDerivedFacts:
    def test_parameters_are_in_node_order_with_the_weight_before_the_bias(self, tiny_spec):
        names = [info.name for info in tiny_spec.parameters]
        assert names == ["conv1.weight", "norm1.scale", "norm1.shift", "dense1.weight", "dense1.bias"]

    def test_state_holds_running_statistics_and_is_not_counted(self, tiny_spec):
        assert [info.name for info in tiny_spec.state] == ["norm1.running_mean", "norm1.running_var"]
        assert tiny_spec.num_parameters == 54 + 3 + 3 + 48 + 4

    def test_shapes_are_known_for_every_node(self, tiny_spec):
        assert tiny_spec.shapes["pool1"] == (3, 2, 2)
        assert (tiny_spec.input_shape, tiny_spec.output_shape) == ((2, 6, 6), (4,))

    def test_consumers_are_listed(self):
        x = image_input((1, 4, 4))
        y = relu(x)
        spec = build("fork", add(x, y))
        assert spec.consumers == {"input": ("relu1", "add1"), "relu1": ("add1",), "add1": ()}

    def test_default_names_count_per_kind(self, tiny_spec):
        assert [node.name for node in tiny_spec.nodes][:4] == ["input", "conv1", "norm1", "relu1"]

    def test_a_default_name_avoids_a_chosen_one(self):
        x = relu(relu(image_input((3,))), name="relu2")
        assert relu(x).name == "relu3"

    def test_an_unknown_node_suggests_the_nearest(self, tiny_spec):
        with pytest.raises(UnknownNameError, match="Did you mean 'conv1'"):
            tiny_spec.node("conv11")

    def test_nothing_can_be_changed(self, tiny_spec):
        with pytest.raises(AttributeError):
            tiny_spec.name = "other"
        with pytest.raises(TypeError):
            tiny_spec.nodes[1].attributes["filters"] = 9
        with pytest.raises(TypeError):
            tiny_spec.shapes["conv1"] = (1,)

    def test_a_deep_copy_is_the_spec_itself(self, tiny_spec):
        assert copy.deepcopy({"spec": tiny_spec})["spec"] is tiny_spec


class TestFlops:
    def test_simplecnn_has_678_thousand_forward_and_1_99_million_in_training(self):
        spec = zoo.create("simplecnn")
        assert (spec.forward_flops, spec.training_flops) == (677_920, 1_985_088)

    def test_resnet50_has_the_published_4_09_billion_multiply_adds(self):
        assert zoo.create("resnet50").forward_flops / 2 == pytest.approx(4.09e9, rel=1e-3)

    def test_convolutions_count_two_per_multiply_add_and_groups_divide(self):
        spec = build("grouped", conv2d(image_input((4, 5, 5)), 8, kernel=3, groups=2))
        assert spec.flops["conv1"] == 2 * (2 * 9) * 8 * 3 * 3

    def test_pooling_counts_its_windows(self):
        assert build("pool", max_pool2d(image_input((3, 8, 8)), 2)).flops["pool1"] == 4 * 3 * 4 * 4

    def test_a_first_batch_norm_makes_the_data_gradient_of_the_next_layer_necessary(self):
        spec = build("normed", dense(batch_norm(image_input((6,))), 5))
        assert spec.training_flops == 3 * spec.forward_flops == 3 * 60

    def test_moving_data_is_free(self):
        assert build("flat", flatten(image_input((3, 8, 8)))).flops["flatten1"] == 0


class TestStructure:
    @pytest.mark.parametrize(
        ("nodes", "message"),
        [
            ([], "2 to 50000 nodes, got 0"),
            ([INPUT], "2 to 50000 nodes, got 1"),
            ([relu_node("a", "b"), INPUT], "first node must be the input, got 'a'"),
            ([INPUT, relu_node("a", "input"), relu_node("a", "input")], "node 'a' is defined twice"),
            ([INPUT, Node("again", "input", (), {"shape": (1,)})], "node 'again' is a second input"),
            ([INPUT, relu_node("a", "b"), relu_node("b", "input")], "node 'a': its input 'b' comes later"),
            ([INPUT, relu_node("a", "a")], "node 'a': its input 'a' comes later"),
            ([INPUT, relu_node("a", "nobody")], "node 'a': its input 'nobody' does not exist"),
            ([INPUT, relu_node("a", "input"), relu_node("b", "input")], "node 'a' is used by no one"),
            ([INPUT, "relu"], "sequence of Node"),
            (None, "sequence of Node"),
        ],
    )
    def test_a_broken_graph_is_refused(self, nodes, message):
        with pytest.raises(SpecError, match=message):
            ModelSpec("broken", nodes)

    @pytest.mark.parametrize(
        ("node", "message"),
        [
            (("a", "rleu", ("input",), {}), "node 'a': unknown operation 'rleu'. Did you mean 'relu'"),
            (("a", 7, ("input",), {}), "node 'a': op must be the name of an operation, got 7"),
            (("a", "relu", (), {}), "node 'a': relu takes 1 input"),
            (("a", "relu", "input", {}), "inputs must be a list of node names"),
            (("a", "relu", (1,), {}), "inputs must be a list of node names"),
            (("a", "relu", ("input",), []), "attributes must be a mapping"),
            (("a", "relu", ("input",), {"slope": 1}), "unknown attribute 'slope'; relu takes no attributes"),
            (("a", "dropout", ("input",), {}), "attribute 'rate' is missing; dropout takes rate"),
            (("a", "dropout", ("input",), {"rate": True}), "rate must be a number"),
        ],
    )
    def test_a_broken_node_is_refused(self, node, message):
        with pytest.raises(SpecError, match=message):
            Node(*node)

    @pytest.mark.parametrize(
        "name", ["", "a b", "../x", "a..b", "/etc", ".hidden", "-x", "é", "a\n", "x" * 129, None, 5]
    )
    def test_a_name_that_could_do_harm_is_refused(self, name):
        with pytest.raises(SpecError, match="is not allowed"):
            Node(name, "relu", ("input",), {})

    def test_building_from_a_tensor_that_is_not_last_is_refused(self):
        x = relu(image_input((3,)))
        relu(x, name="extra")
        with pytest.raises(SpecError, match="'extra' was added after it"):
            build("early", x)

    def test_a_shape_problem_found_in_a_file_names_the_node(self):
        pool = {"kernel": [5, 5], "stride": [1, 1], "padding": [0, 0], "ceil_mode": False}
        with pytest.raises(SpecError, match="node 'pool3': 5x5 window does not fit 4x4 input"):
            ModelSpec("small", (INPUT, Node("pool3", "max_pool2d", ("input",), pool)))

    def test_a_parameter_of_absurd_size_is_refused(self):
        with pytest.raises(SpecError, match=r"node 'dense1': its weight .* has more than"):
            build("absurd", dense(image_input((1 << 28,)), 1 << 28))


class TestJson:
    def test_equal_specs_have_equal_texts_and_fingerprints(self):
        first, second = zoo.create("vgg1"), zoo.create("vgg1")
        assert (first.to_json(), first.fingerprint()) == (second.to_json(), second.fingerprint())

    def test_another_attribute_gives_another_fingerprint(self):
        assert zoo.create("mnistcnn", rate=0.3).fingerprint() != zoo.create("mnistcnn").fingerprint()

    def test_whole_numbers_and_lists_become_canonical(self, tiny_spec):
        data = tiny_spec.to_dict()
        assert isinstance(data["nodes"][1]["attributes"]["kernel"], list)
        assert ModelSpec.from_dict(data).node("conv1").attributes["kernel"] == (3, 3)


GOOD = json.dumps(
    {
        "format": 1,
        "name": "good",
        "nodes": [
            {"name": "input", "op": "input", "inputs": [], "attributes": {"shape": [3]}},
            {"name": "out", "op": "dropout", "inputs": ["input"], "attributes": {"rate": 0.5}},
        ],
    }
)
HOSTILE = {
    "empty": "",
    "deep lists": "[" * 100_000,
    "deep balanced lists": "[" * 100_000 + "]" * 100_000,
    "deep objects": '{"a":' * 100_000,
    "deep beyond the limit inside a good text": GOOD.replace("0.5", "[" * 40 + "]" * 40),
    "not a number": GOOD.replace("0.5", "NaN"),
    "infinity": GOOD.replace("0.5", "-Infinity"),
    "overflowing float": GOOD.replace("0.5", "1e999"),
    "endless float": GOOD.replace("0.5", "0." + "1" * 1_000_000),
    "huge integer": GOOD.replace("[3]", f"[{'9' * 100_000}]"),
    "large integer": GOOD.replace("[3]", f"[{'9' * 30}]"),
    "duplicate key": GOOD.replace('"format": 1', '"format": 1, "format": 1'),
    "many duplicate keys": "{" + ",".join(f'"k{i // 2}":0' for i in range(100_000)) + "}",
    "missing key": GOOD.replace('"format": 1, ', ""),
    "extra key": GOOD.replace('"format": 1', '"format": 1, "more": 2'),
    "format of the future": GOOD.replace('"format": 1', '"format": 2'),
    "format as a float": GOOD.replace('"format": 1', '"format": 1.0'),
    "format as a flag": GOOD.replace('"format": 1', '"format": true'),
    "a list": "[]",
    "a number": "3",
    "null": "null",
    "nodes as an object": '{"format":1,"name":"x","nodes":{}}',
    "nodes of numbers": '{"format":1,"name":"x","nodes":[1,2]}',
    "name as a list": GOOD.replace('"good"', "[]"),
    "inputs as null": GOOD.replace('["input"]', "null"),
    "inputs as a text": GOOD.replace('["input"]', '"input"'),
    "attributes as a list": GOOD.replace('{"rate": 0.5}', "[]"),
    "op as an object": GOOD.replace('"dropout"', "{}"),
    "op of a lone surrogate": GOOD.replace('"dropout"', '"\\ud800"'),
    "shape of flags": GOOD.replace("[3]", "[true]"),
    "negative shape": GOOD.replace("[3]", "[-3]"),
    "trailing text": GOOD + "x",
    "cut": GOOD[:-10],
    "many values": "[" + "0," * 500_000 + "0]",
    "many closing brackets": "]" * (8 << 20),
    "many quotes": '"' * 3_000_000,
    "unfinished escapes": '"' + '\\"' * 1_000_000,
    "oversized": " " * (9 << 20),
    "zero bytes": "\0" * 100,
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_json_is_a_spec_error(kind):
    with pytest.raises(SpecError):
        ModelSpec.from_json(HOSTILE[kind])


@pytest.mark.parametrize("value", [None, b"{}", 3, [], {}, {"format": 1}, {"format": 1, "name": "x", "nodes": [[[]]]}])
def test_wrong_types_are_a_spec_error(value):
    with pytest.raises(SpecError):
        ModelSpec.from_json(value) if isinstance(value, (bytes, int)) else ModelSpec.from_dict(value)


def test_a_huge_integer_in_a_dict_is_a_spec_error():
    data = json.loads(GOOD)
    data["nodes"][0]["attributes"]["shape"] = [10**5000]
    with pytest.raises(SpecError):
        ModelSpec.from_dict(data)


def test_the_good_text_is_good():
    assert ModelSpec.from_json(GOOD).output_shape == (3,)


def test_brackets_inside_texts_do_not_count_as_depth():
    with pytest.raises(SpecError, match="is not allowed"):
        ModelSpec.from_json(GOOD.replace("good", "[" * 60 + '\\"' + "{" * 60))
