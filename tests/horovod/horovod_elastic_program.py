"""An elastic program as Horovod's users write it, which a rank leaves by a signal in the middle, once."""

import json
import os
import signal
import sys

NUM_BATCHES = 12
framework, doomed = sys.argv[1], int(sys.argv[2])

if framework == "torch":
    import horovod.torch as hvd
    import torch

    hvd.init()
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(list(range(48)), shuffle=False)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, batch=0, seen=[])

    def train_one_batch(number):
        generator = torch.Generator().manual_seed(10 * number + hvd.rank())
        optimizer.zero_grad()
        model(torch.randn(4, 3, generator=generator)).square().mean().backward()
        optimizer.step()
        sampler.record_batch(number, 2)

    def weights():
        return [parameter.tolist() for parameter in model.parameters()]

else:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2)])
    optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
    state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0, seen=[])

    @tf.function
    def step(inputs):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(inputs)))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))  # noqa: B905  as users write it

    def train_one_batch(number):
        step(tf.random.stateless_uniform([4, 3], [number, hvd.rank()]))

    def weights():
        return [weight.tolist() for weight in model.get_weights()]


begins = []


@hvd.elastic.run
def train(state):
    begins.append(state.batch)
    while state.batch < NUM_BATCHES:
        train_one_batch(state.batch)
        state.seen.append(state.batch)
        state.batch += 1
        if state.batch == 7 and doomed == hvd.rank() and os.environ["RINGLET_ATTEMPT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        state.commit()


train(state)
record = {"rank": hvd.rank(), "begins": begins, "seen": state.seen, "weights": weights()}
sys.stdout.write(json.dumps(record) + "\n")
