"""The zoo has the published networks: their parameter counts, forms, options and errors."""

from __future__ import annotations

import pytest

from ringlet.errors import ConfigError, RingletError, SpecError, UnknownNameError
from ringlet.models import zoo
from ringlet.models.spec import ModelSpec

PUBLISHED = {
    "simplecnn": 149_210,
    "alexnet": 62_378_344,
    "vgg3": 550_570,
    "vgg11": 132_863_336,
    "vgg11_bn": 132_868_840,
    "vgg13": 133_047_848,
    "vgg13_bn": 133_053_736,
    "vgg16": 138_357_544,
    "vgg16_bn": 138_365_992,
    "vgg19": 143_667_240,
    "vgg19_bn": 143_678_248,
    "vgg19_bn_cifar10": 20_040_522,
    "resnet18": 11_689_512,
    "resnet18_cifar10": 11_173_962,
    "resnet34": 21_797_672,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "googlenet": 6_624_904,
    "inceptionv3": 23_834_568,
    "densenet121": 7_978_856,
    "densenet161": 28_681_000,
    "densenet169": 14_149_480,
    "densenet201": 20_013_928,
    "mobilenetv1": 4_231_976,
}
"""Counts that papers' authors or the usual libraries state."""
FOLLOWING = {
    "simplemlp": 932_362,
    "mnistcnn": 2_353_738,
    "resnet20": 272_474,
    "resnet32": 466_906,
    "resnet44": 661_338,
    "resnet56": 855_770,
    "resnet110": 1_730_714,
    "resnet1202": 19_424_026,
    "alexnet_cifar10": 6_080_394,
    "unet": 31_119_897,
}
"""Counts that follow from the description; pinned so that nobody changes a network by accident."""
PAPER_MILLIONS = {
    "resnet20": 0.27,
    "resnet32": 0.46,
    "resnet44": 0.66,
    "resnet56": 0.85,
    "resnet110": 1.7,
    "resnet1202": 19.4,
}
"""He et al., table 6, without projections; those add 2,752 parameters to each."""
ALL_NAMES = zoo.names()


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_number_of_parameters_holds(name):
    assert zoo.create(name).num_parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", FOLLOWING)
def test_the_number_of_parameters_that_follows_from_the_description_stays(name):
    assert zoo.create(name).num_parameters == FOLLOWING[name]


@pytest.mark.parametrize("name", PAPER_MILLIONS)
def test_cifar_resnets_without_their_projections_have_the_size_of_the_paper(name):
    without_projections = zoo.create(name).num_parameters - 2752
    assert without_projections / 1e6 == pytest.approx(PAPER_MILLIONS[name], rel=0.02)


@pytest.mark.parametrize("name", ALL_NAMES)
def test_json_gives_every_member_back(name):
    spec = zoo.create(name)
    assert ModelSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_member_ends_in_probabilities_for_its_classes(name):
    spec = zoo.create(name, num_classes=7)
    assert (spec.nodes[-1].op, spec.output_shape[0]) == ("softmax", 7)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 96, 128), (3, 224, 224)])
@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_member_takes_images_of_usual_sizes(name, shape):
    assert zoo.create(name, input_shape=shape, num_classes=5).input_shape == shape


@pytest.mark.parametrize("name", ["ResNet-50", "resnet_50", "RESNET50", "resnet50_imagenet", "resnet-50-imagenet"])
def test_case_separators_and_data_set_suffixes_do_not_matter(name):
    assert zoo.create(name) == zoo.create("resnet50")


def test_a_data_set_suffix_gives_shape_and_classes():
    spec = zoo.create("resnet18_cifar100")
    assert (spec.input_shape, spec.output_shape) == ((3, 32, 32), (100,))


def test_explicit_shapes_win_over_the_suffix():
    assert zoo.create("vgg16_cifar10", num_classes=3, input_shape=(1, 32, 32)).output_shape == (3,)


def test_small_images_get_a_stem_that_keeps_their_size():
    assert zoo.create("resnet18", input_shape=(3, 32, 32)).shapes["conv1"] == (64, 32, 32)


def test_the_form_can_be_chosen_against_the_image_size():
    assert zoo.create("resnet18", input_shape=(3, 64, 64), form="imagenet").shapes["conv1"] == (64, 32, 32)


def test_the_first_resnet_version_strides_in_the_first_convolution_of_a_bottleneck():
    strides = {
        version: [node.attributes["kernel"] for node in zoo.create("resnet50", version=version).nodes
                  if node.op == "conv2d" and node.attributes["stride"] == (2, 2)]
        for version in ("v1", "v1.5")
    }  # fmt: skip
    assert strides["v1"] == [(7, 7)] + [(1, 1)] * 6
    assert strides["v1.5"] == [(7, 7)] + [(3, 3), (1, 1)] * 3


def test_vgg_for_cifar_can_have_hidden_layers():
    spec = zoo.create("vgg16_cifar10", hidden=[512, 512])
    assert [info.shape for info in spec.parameters if info.name.startswith("dense") and info.role == "weight"] == [
        (512, 512),
        (512, 512),
        (10, 512),
    ]


def test_dropout_and_batch_norm_forms_of_small_vggs_have_these_nodes():
    operations = [node.op for node in zoo.create("vgg3dobn").nodes]
    rates = [node.attributes["rate"] for node in zoo.create("vgg3dobn").nodes if node.op == "dropout"]
    assert (operations.count("batch_norm"), rates) == (6, [0.2, 0.3, 0.4, 0.5])


def test_mobilenet_width_scales_the_filters():
    assert zoo.create("mobilenetv1", width=0.5).num_parameters == 1_331_592


class TestUnet:
    def test_default_has_seven_levels_from_8_to_1024_filters_on_512_pixels(self):
        spec = zoo.create("unet")
        widths = sorted({info.shape[0] for info in spec.parameters if info.role == "scale"})
        assert (spec.input_shape, widths) == ((3, 512, 512), [8 << level for level in range(8)])

    def test_output_is_a_sigmoid_mask_of_the_input_size(self):
        spec = zoo.create("unet", input_shape=(3, 128, 128), levels=5)
        assert (spec.nodes[-1].op, spec.output_shape) == ("sigmoid", (1, 128, 128))

    @pytest.mark.parametrize(("options", "momentum"), [({}, 0.99), ({"momentum": 0.9}, 0.9)])
    def test_batch_norm_keeps_99_percent_or_what_is_asked_for(self, options, momentum):
        nodes = zoo.create("unet", **options).nodes
        assert {node.attributes["momentum"] for node in nodes if node.op == "batch_norm"} == {momentum}

    def test_upsampling_is_by_transposed_convolutions_of_two_by_two(self):
        nodes = [node for node in zoo.create("unet").nodes if node.op == "conv2d_transpose"]
        assert [node.attributes["kernel"] for node in nodes] == [(2, 2)] * 7

    @pytest.mark.parametrize(
        ("extent", "levels"), [(512, 7), (128, 5), (64, 4), (96, 4), (28, 2), (101, 4), (300, 6), (5, 1)]
    )
    def test_levels_follow_the_image_when_not_given(self, extent, levels):
        nodes = zoo.create("unet", input_shape=(3, extent, extent)).nodes
        assert sum(node.op == "concat" for node in nodes) == levels

    @pytest.mark.parametrize(("height", "width", "levels"), [(101, 75, 5), (7, 9, 2), (2, 3, 1), (100, 100, 5)])
    def test_masks_have_the_size_of_images_that_do_not_halve_evenly(self, height, width, levels):
        spec = zoo.create("unet", input_shape=(3, height, width), levels=levels)
        even = zoo.create("unet", input_shape=(3, 128, 128), levels=levels)
        assert (spec.output_shape, spec.num_parameters) == ((1, height, width), even.num_parameters)

    def test_an_image_that_cannot_be_halved_so_often_is_explained(self):
        with pytest.raises(SpecError, match=r"5 level\(s\) halves images 5 time\(s\), .* nothing of 100x24"):
            zoo.create("unet", input_shape=(3, 100, 24), levels=5)


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown model 'resnt50'. Did you mean 'resnet50'"):
        zoo.create("resnt50")


def test_an_unknown_option_is_refused():
    with pytest.raises(UnknownNameError, match="unknown option of model 'unet' 'depth'"):
        zoo.create("unet", depth=3)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("unet", {"levels": "deep"}),
        ("unet", {"levels": True}),
        ("unet", {"levels": -1}),
        ("unet", {"levels": 17}),
        ("unet", {"width": 0}),
        ("unet", {"num_classes": 0}),
        ("vgg16", {"hidden": 512}),
        ("vgg16", {"hidden": ("512",)}),
        ("vgg16", {"form": "mnist"}),
        ("vgg16", {"rate": "half"}),
        ("vgg16", {"rate": 1.5}),
        ("resnet18", {"version": "v3"}),
        ("resnet18", {"form": 3}),
        ("mobilenetv1", {"width": 0.0}),
        ("mobilenetv1", {"width": float("nan")}),
        ("googlenet", {"branch_kernel": 4}),
        ("simplecnn", {"num_classes": 1}),
        ("simplecnn", {"num_classes": "ten"}),
        ("simplecnn", {"input_shape": (28, 28)}),
        ("simplecnn", {"input_shape": (784,)}),
        ("simplecnn", {"input_shape": "mnist"}),
        ("simplecnn", {"input_shape": (1, 2, 2)}),
        ("simplecnn", {"input_shape": (1, -28, 28)}),
        ("inceptionv3", {"input_shape": (3, 70, 70)}),
        (None, {}),
        ("", {}),
        ("x" * 100_000, {}),
    ],
)
def test_options_that_make_no_sense_are_refused(name, options):
    with pytest.raises(RingletError):
        zoo.create(name, **options)


UNET_OPTIONS = {"levels": 0, "width": 8, "momentum": 0.99}


def test_describe_tells_the_options_without_building():
    member = zoo.describe("U-Net")
    assert (member.name, member.input_shape, member.options.values()) == ("unet", (3, 512, 512), UNET_OPTIONS)


def test_a_message_about_an_option_names_the_model_and_the_value():
    with pytest.raises(ConfigError, match="model 'unet': levels: expected a whole number, received 'deep'"):
        zoo.create("unet", levels="deep")
