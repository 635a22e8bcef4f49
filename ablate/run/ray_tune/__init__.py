"""Ray Tune as the executor: it starts workers and carries messages. The only package importing ray.

Ray is never asked to remember a trial. Which trial runs next, what came of it and whether a dead one is
tried again is the driver's business; a round is one `Tuner.fit()`, and a round that Ray itself aborts is
followed by another. What Ray reads when it is imported is set here, before any of these files imports it.
"""

import os

for _variable, _value in {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "60",  # a trial that is stopped may take a while to leave its step
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # else a thread left behind on a dead cluster joins any that it finds
}.items():
    os.environ.setdefault(_variable, _value)
