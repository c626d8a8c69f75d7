"""Everything once, in seconds: data set to inference through the public names."""

from __future__ import annotations

import numpy as np

import ringlet


def test_a_network_learns_the_digits_is_saved_loaded_and_predicts(tmp_path):
    trainer = ringlet.Trainer(model="simplecnn", dataset="digits", global_batch_size=32, learning_rate=0.003)

    history = trainer.fit(4)
    figures = trainer.evaluate()
    trainer.save(tmp_path / "digits.safetensors")

    model = ringlet.load_model(tmp_path / "digits.safetensors")
    images, labels = trainer.dataset.test.read(np.arange(len(trainer.dataset.test)))
    outputs = model.predict(images)

    assert history["loss"][-1] < history["loss"][0] / 3
    assert figures["accuracy"] > 0.6
    assert figures["accuracy"] == np.mean(outputs.argmax(axis=1) == labels)
    np.testing.assert_allclose(outputs, trainer.predict(images), rtol=1e-3, atol=1e-6)
    assert model.classify(images[:1]) == [str(outputs[0].argmax())]
