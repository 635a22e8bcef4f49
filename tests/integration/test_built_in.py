"""A small study of the built-in workload, as the command runs it."""

import json
import re

import pytest

from ablate.workloads.synthetic_sequences.config import WORKLOAD

pytestmark = pytest.mark.slow

STUDY = """
study: toy
question: Do <terms> & twins come out?
workload: synthetic_sequences
baseline:
  latent: {latent}
  data: {{examples: 128, select_examples: 64, report_examples: 64}}
  reference: {{steps: 20}}
  training: {{steps: 6, batch_size: 32}}
factors:
  reconstruction.token_weighted_weight: {{ablate_to: 0}}
  reconstruction.token_aggregation: [token_sum, token_mean]
designs:
  - leave_one_out: reconstruction.token_weighted_weight
  - one_at_a_time: reconstruction.token_aggregation
seeds: {{count: 2}}
controls: {{aa: 1, rescaled: true, match_scale: true}}
metrics:
  primary: {{name: eval/neg_elbo_per_token, sesoi: 0.02}}
evaluation: {{every: 0.5, iwae_samples: 4, iwae_examples: 16}}
"""

ARMS = [
    "baseline", "-token_weighted_weight", "token_aggregation=token_mean", "-token_weighted_weight ~rescaled",
    "token_aggregation=token_mean ~matched", "aa-1",
]  # fmt: skip


@pytest.mark.parametrize("latent", ["continuous", pytest.param("discrete", marks=pytest.mark.campaign)])
def test_a_study_goes_from_yaml_to_a_report(place, latent):
    place.write(STUDY.format(latent=latent))
    out, _ = place.ablate("run", "study.yaml", "--set", "run.pack=4")
    assert out == "runs/toy/report/index.html\n"
    trials = place.study().trials().set_index(["arm", "seed"])
    assert set(trials.index.get_level_values("arm")) == set(ARMS)
    assert (trials["state"] == "COMPLETE").all()

    reported = {name.removeprefix("metric.") for name in trials.columns if name.startswith("metric.")}
    missing = WORKLOAD.metrics - reported
    assert not {name for name in missing if name.startswith(("eval/", "select/", "time/"))}
    assert reported <= WORKLOAD.metrics

    effective = trials["metric.train/effective_beta"].groupby("arm").first()
    twins = effective[["-token_weighted_weight ~rescaled", "token_aggregation=token_mean ~matched"]]
    assert twins.to_list() == pytest.approx([effective["baseline"]] * 2)
    assert effective["-token_weighted_weight"] != pytest.approx(effective["baseline"])

    # arms share everything until the ablation bites; an A/A arm starts where the baseline does, and goes elsewhere
    first = place.study().curves().query("step == 0 and metric == 'eval/neg_elbo_per_token'").set_index("trial_id")
    at_start = trials["trial_id"].map(first["value"]).unstack("arm")
    assert (at_start.nunique(axis=1) == 1).all()
    assert (trials["metric.eval/neg_elbo_per_token"].unstack("arm")[["baseline", "aa-1"]].nunique(axis=1) == 2).all()

    page = (place.path / out.strip()).read_text(encoding="utf-8")
    assert "Do &lt;terms&gt; &amp; twins come out?" in page
    assert re.search(r"β_eff", place.ablate("plan", "study.yaml")[0])
    states = json.loads(place.ablate("plan", "study.yaml", "--json")[0])["trials"]
    assert {trial["state"] for trial in states} == {"COMPLETE"}


@pytest.mark.campaign
def test_a_corrupt_reference_is_made_again_with_a_warning_and_the_same_bytes(place):
    place.write(STUDY.format(latent="continuous"))
    place.ablate("run", "study.yaml", "--arm", "baseline", "--seeds", "1")
    [table] = (place.path / "runs/toy/reference").glob("*/surprisal.npy")
    whole = table.read_bytes()
    table.write_bytes(whole[:-5] + b"wrong")
    _, err = place.ablate("run", "study.yaml", "--arm", "baseline")
    assert re.search(
        r"the reference table \w+ is damaged \(surprisal.npy has another checksum\): it is made again", err
    )
    assert table.read_bytes() == whole
    assert place.study().trials().query("arm == 'baseline'")["state"].tolist() == ["COMPLETE"] * 2


FILES = """
study: files
workload: sequence_file
baseline:
  data: {path: words.txt, select_share: 0.25, report_share: 0.25}
  reference: {steps: 20}
  training: {steps: 6, batch_size: 16}
factors:
  data.path: [words.txt, others.txt]
  reference.seed: [0, 1]
designs: [grid: [data.path, reference.seed]]
seeds: {count: 1}
metrics:
  primary: {name: eval/neg_elbo_per_token}
evaluation: {every: 0.5, iwae_samples: 4, iwae_examples: 16}
"""


@pytest.mark.campaign
def test_a_study_over_files_has_a_table_for_each_and_is_read_back_without_them(place):
    words = [a + b + c for a in "bdkmt" for b in "aeiou" for c in ("", "n", "st")]
    (place.path / "words.txt").write_text("\n".join(words))
    (place.path / "others.txt").write_text("\n".join([*(word + "e" for word in words), "", "bade"]))
    place.write(FILES)
    _, err = place.ablate("run", "study.yaml")
    assert "preparing data and 4 reference tables" in err
    assert "others.txt: 1 empty sequences are left out" in err
    trials = place.study("files").trials()
    assert (trials["state"] == "COMPLETE").all()
    assert trials["reference"].nunique() == 4
    tables = place.path / "runs" / "files" / "reference"
    assert len(list(tables.glob("data-*/tokens.npy"))) == 2
    for name in ("words.txt", "others.txt"):
        (place.path / name).unlink()
    assert place.study("files").trials().equals(trials)
    assert "no such file" in place.ablate("validate", "study.yaml", code=2)[1]


@pytest.mark.campaign
def test_a_file_that_is_wrong_further_on_ends_the_study_with_its_own_words(place):
    (place.path / "words.txt").write_bytes(b"bade\nt\xe6t\n")
    place.write(FILES.replace("  data.path: [words.txt, others.txt]\n", "").replace("data.path, ", ""))
    _, err = place.ablate("run", "study.yaml", code=1)
    assert "words.txt:2: not UTF-8: byte 0xe6 at byte 2 of the line" in err
    assert "Traceback" not in err
