from hypothesis import given
from hypothesis import strategies as st

from ringlet.data.partition import bounds
from ringlet.strategies.reduction import ADD, ShardTree, chain


def added(postfix: list[int], values: list[str]) -> str:
    """The sum as a text with brackets, so that its order shows."""
    stack: list[str] = []
    for item in postfix:
        if item == ADD:
            right = stack.pop()
            stack.append(f"({stack.pop()}+{right})")
        else:
            stack.append(values[item])
    (whole,) = stack
    return whole


def sum_of_ranks(num_shards: int, num_ranks: int) -> str:
    """How the shards are added when every rank first adds up its own range, one shard after the other."""
    tree = ShardTree(num_shards)
    values, subtrees = [], []
    for rank in range(num_ranks):
        stack: list = []
        own: list[str] = []
        for shard in range(*bounds(num_shards, rank, num_ranks)):
            own.append(str(shard))
            for _ in range(tree.push(stack, shard)):
                right = own.pop()
                own.append(f"({own.pop()}+{right})")
            assert len(own) == len(stack)
        values += own
        subtrees += stack
    return added(tree.sum_of(subtrees), values)


@given(st.integers(1, 200), st.integers(1, 200))
def test_the_order_of_additions_does_not_depend_on_the_number_of_ranks(num_shards: int, num_ranks: int) -> None:
    assert sum_of_ranks(num_shards, min(num_ranks, num_shards)) == sum_of_ranks(num_shards, 1)


def test_six_shards_are_added_in_pairs_of_pairs() -> None:
    assert sum_of_ranks(6, 1) == "(((0+1)+(2+3))+(4+5))"
    assert sum_of_ranks(5, 3) == "(((0+1)+(2+3))+4)"


@given(st.integers(1, 200), st.integers(0, 199), st.integers(1, 200))
def test_adding_up_a_range_keeps_few_values(num_shards: int, start: int, length: int) -> None:
    tree = ShardTree(num_shards)
    shards = range(min(start, num_shards - 1), min(start + length, num_shards))
    depth = tree.depth(shards) if shards else 1
    assert len(tree.roots(shards)) <= depth <= 2 * num_shards.bit_length()


def test_a_chain_adds_from_left_to_right() -> None:
    assert added(chain(4), ["a", "b", "c", "d"]) == "(((a+b)+c)+d)"
    assert added(chain(1), ["a"]) == "a"
