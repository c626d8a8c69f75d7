"""Calls ``horovod.run`` with the options of a command line, as Horovod's users do."""

import argparse
import sys

import horovod


def train(options, factor=1):
    import horovod.torch as hvd

    hvd.init()
    return [hvd.rank(), hvd.size(), options.rate * factor]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int)
    parser.add_argument("--rate", type=float)
    options = parser.parse_args()
    sys.stdout.write(f"{horovod.run(train, args=(options,), kwargs={'factor': 2}, np=options.n)}\n")
