"""The GPUs of this machine that grade alike."""

from __future__ import annotations

from .driver import load_driver


def alike() -> tuple[str, ...]:
    """Return the first GPU and all others of its model and size, as `open_device` takes them.

    Raises:
        DeviceUnavailable: there is none.
    """
    driver = load_driver()
    gpus = [driver.Device(ordinal) for ordinal in range(driver.Device.count())]
    models = [(gpu.name(), gpu.multiprocessor_count) for gpu in gpus]
    return tuple(f"cuda:{ordinal}" for ordinal, model in enumerate(models) if model == models[0])
