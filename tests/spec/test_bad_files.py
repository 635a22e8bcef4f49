"""What is wrong with a file, said whole: place, path, what was got, what is allowed, what was meant."""

# ruff: noqa: E501 - a message is one line, and stands here as it is printed

import pytest

from ablate.errors import SpecError
from ablate.spec.loading import load_study
from tests.spec.example import FREE_STUDY, edited, lookup

TOP = "analysis, baseline, code_version, constraints, controls, designs, early_stop, evaluation, extends, factors, metrics, nuisance, question, report, run, seeds, study, together, track, version, workload"  # fmt: skip
WEIGHTS = "reconstruction.distribution_normalized_weight, reconstruction.example_inverse_surprisal_weight, reconstruction.normalized_concentration_corrected_token_weighted_weight, reconstruction.normalized_inverse_surprisal_token_weighted_weight, reconstruction.raw_weight"

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "s.yaml:1:1: the file is empty; a study file is a mapping"),
        (b"# nothing\n", "s.yaml:1:1: the file is empty; a study file is a mapping"),
        (b"null\n", "s.yaml:1:1: the file is empty; a study file is a mapping"),
        (b"- a\n- b\n", "s.yaml:1:1: got a list; a study file is a mapping"),
        (b"# c\n just text\n", 's.yaml:2:2: got "just text"; a study file is a mapping'),
        (b"study: a\n---\nstudy: b\n", "s.yaml:2:1: a second document starts here; a file is one document"),
        (b"study: caf\xe9\n", "s.yaml:1:11: got the byte 0xE9; a study file is UTF-8"),
        ("study: a\n".encode("utf-16"), "s.yaml:1:1: got the byte 0xFF; a study file is UTF-8"),
        (b"study: a\x00b\n", "s.yaml:1:9: got the character U+0000; it is not allowed"),
        (b"study: a\nrun:\n\tkeep: last\n", "s.yaml:3:1: got a tab; indent with spaces"),
        (b"study: [a\n", "s.yaml:2:1: not YAML: expected ',' or ']', but got '<stream end>', while parsing a flow sequence"),
        (b"study: 'a\n", "s.yaml:2:1: not YAML: found unexpected end of stream, while scanning a quoted scalar"),
        (b"a: b: c\n", "s.yaml:1:5: not YAML: mapping values are not allowed here"),
        (b"a: @b\n", "s.yaml:1:4: not YAML: found character '@' that cannot start any token, while scanning for the next token"),
        (b"a: *b\n", "s.yaml:1:4: got the alias *b; there is no anchor &b before it"),
        (b"a: &b [*b]\n", "s.yaml:1:8: the anchor &b holds itself; it would expand without bound"),
        (LAUGHS.encode(), "s.yaml:4:36: the aliases of this file expand to more than 10000 values"),
        (b"[" * 50_000, "s.yaml:1:101: nested more than 100 deep"),
        (b"a:\n" + b"".join(b" " * n + b"a:\n" for n in range(1, 120)), "s.yaml:101:101: nested more than 100 deep"),
        (b"# " + b"x" * 2**20, "s.yaml: larger than 1 MiB; no study file is"),
        (b"study: a\n" * 1_200_000, "s.yaml: larger than 1 MiB; no study file is"),
    ],
)  # fmt: skip
def test_files_of_which_nothing_can_be_read(folder, content, message):
    assert folder.problems(content) == [message]


def test_a_file_that_is_not_there(folder):
    for name, reason in (("no.yaml", "No such file or directory"), (".", "Is a directory")):
        with pytest.raises(SpecError) as caught:
            load_study(name, workload_lookup=lookup)
        assert str(caught.value) == f"{name}: cannot be read: {reason}"


@pytest.mark.parametrize(
    ("edit", "messages"),
    [
        # the document
        (("version: 1", "version: 2"), ["s.yaml:1:10: version: got 2; allowed: 1"]),
        (("version: 1", "version: true"), ["s.yaml:1:10: version: got true; allowed: a whole number"]),
        (("version: 1", 'version: "1"'), ['s.yaml:1:10: version: got "1"; allowed: a whole number; a quoted number is text']),
        (("study: which-terms", "study: ../../etc"), ['s.yaml:2:8: study: got "../../etc"; allowed: 1 to 64 of a-z, 0-9 and -']),
        (("study: which-terms", "study: 12"), ["s.yaml:2:8: study: got 12; allowed: text"]),
        (("study: which-terms", "study: " + "a" * 65), [f's.yaml:2:8: study: got "{"a" * 59}…; allowed: 1 to 64 of a-z, 0-9 and -']),
        (("study: which-terms\n", ""), ["s.yaml:1:1: study: missing; this key is required"]),
        (("question:", "study: again\nquestion:"), ["s.yaml:3:1: study: duplicate key; the first is in line 2"]),
        (("question:", "3: again\nquestion:"), ["s.yaml:3:1: got the key 3; a key is text, so quote it"]),
        (("study: which-terms", "study: !!str which"), ["s.yaml:2:8: study: got the tag !!str; tags are not allowed, values are what they look like"]),
        (("study: which-terms", "study: !!python/object/apply:os.system [ls]"), [
            "s.yaml:2:8: study: got a list; allowed: text",
            "s.yaml:2:8: study: got the tag !!python/object/apply:os.system; tags are not allowed, values are what they look like"]),
        (("question:", "qestion:"), [f"s.yaml:3:1: qestion: unknown key; allowed: {TOP}; did you mean question?"]),
        (("question:", '"a\\n\\e[31mb": 1\nquestion:'), [rf"s.yaml:3:1: a\n\x1b[31mb: unknown key; allowed: {TOP}"]),
        (("question:", '"\\ud800": 1\nquestion:'), [
            "s.yaml:3:1: half of a surrogate pair is no text", f"s.yaml:3:1: unknown key; allowed: {TOP}"]),
        # the workload and its baseline
        (("workload: typed", "workload: tiped"), ["s.yaml:4:11: workload: got \"tiped\"; allowed: free, typed or package.module:function"]),
        (("workload: typed\n", ""), ["s.yaml:1:1: workload: missing; this key is required"]),
        (("kl: {beta: 1.0}", "kl: {beta: yes}"), ['s.yaml:7:14: baseline.kl.beta: got "yes"; allowed: a number']),
        (("kl: {beta: 1.0}", 'kl: {beta: "1e-4"}'), ['s.yaml:7:14: baseline.kl.beta: got "1e-4"; allowed: a number; a quoted number is text']),
        (("kl: {beta: 1.0}", "kl: {beta: true}"), ["s.yaml:7:14: baseline.kl.beta: got true; allowed: a number"]),
        (("kl: {beta: 1.0}", "kl: {beta: -1}"), ["s.yaml:7:14: baseline.kl.beta: got -1; allowed: a number >= 0"]),
        (("kl: {beta: 1.0}", "kl: {beta: .nan}"), ["s.yaml:7:14: baseline.kl.beta: got .nan; allowed: a finite number"]),
        (("kl: {beta: 1.0}", "kl: {beta: 1e999}"), ["s.yaml:7:14: baseline.kl.beta: got .inf; allowed: a finite number"]),
        (("kl: {beta: 1.0}", "kl: {warmup_steps: 1.5}"), ["s.yaml:7:22: baseline.kl.warmup_steps: got 1.5; allowed: a whole number"]),
        (("kl: {beta: 1.0}", "kl: {betta: 1}"), ["s.yaml:7:8: baseline.kl.betta: unknown key; allowed: beta, schedule, warmup_steps; did you mean beta?"]),
        (("kl: {beta: 1.0}", "kll: {beta: 1}"), ["s.yaml:7:3: baseline.kll: unknown key; allowed: data, kl, latent, reconstruction, reference, training; did you mean kl?"]),
        (("kl: {beta: 1.0}", "kl: 3"), ["s.yaml:7:7: baseline.kl: got 3; allowed: a mapping"]),
        (("kl: {beta: 1.0}", "kl: {schedule: linear}"), ["s.yaml:7:3: baseline.kl: a linear schedule needs warmup_steps >= 1"]),
        (("kl: {beta: 1.0}", "latent: continous"), ["s.yaml:7:11: baseline.latent: got \"continous\"; allowed: 'continuous' or 'discrete'; did you mean continuous?"]),
        (("raw_weight: 1.0,", "raw_weight: -0.5,"), ["s.yaml:6:32: baseline.reconstruction.raw_weight: got -0.5; allowed: a number >= 0"]),
        (("raw_weight: 1.0,", "raw_weight: .NaN,"), ["s.yaml:6:32: baseline.reconstruction.raw_weight: got .nan; allowed: a finite number"]),
        (("raw_weight: 1.0,", "zfree_reference_scale: 12.5,"), ["s.yaml:6:43: baseline.reconstruction.zfree_reference_scale: got a number, but it changes with reconstruction.token_aggregation, which is studied; allowed: auto"]),
        (("raw_weight: 1.0,", "zfree_reference_scale: aut,"), ["s.yaml:6:43: baseline.reconstruction.zfree_reference_scale: got \"aut\"; allowed: 'auto' or a number; did you mean auto?"]),
        (("kl: {beta: 1.0}", "kl: {beta: 1" + "0" * 400 + "}"), ["s.yaml:7:14: baseline.kl.beta: got a whole number of more than 60 digits; allowed: a finite number"]),
        # factors
        (("kl.beta: {", "kl.bet: {"), [
            "s.yaml:11:3: factors.kl.bet: no path of the baseline; allowed: kl.beta, kl.schedule, kl.warmup_steps; did you mean kl.beta?",
            f"s.yaml:14:55: designs[1].one_at_a_time[1]: kl.beta matches no factor; allowed: {WEIGHTS}, reconstruction.token_aggregation, reconstruction.token_weighted_weight"]),
        (("kl.beta: {min", "kl.*_weight: [1]\n  kl.beta: {min"), ["s.yaml:11:3: factors.kl.*_weight: matches no path of the baseline; allowed: kl.beta, kl.schedule, kl.warmup_steps; did you mean reconstruction.raw_weight?"]),
        (("kl.beta: {min", "nowhere: [1]\n  kl.beta: {min"), ["s.yaml:11:3: factors.nowhere: no path of the baseline; allowed: data, kl, latent, reconstruction, reference, training"]),
        (("kl.beta: {min", "kl: [{}]\n  kl.beta: {min"), ["s.yaml:12:3: factors.kl.beta: kl.beta lies inside kl, which is a factor too"]),
        (("kl.beta: {min", "kl.b*: [1]\n  kl.be*: [2]\n  kl.beta: {min"), ["s.yaml:12:3: factors.kl.be*: matches kl.beta, which kl.b* matches too"]),
        (("[token_sum, token_mean]", "[token_sum, token_men]"), ["s.yaml:10:49: factors.reconstruction.token_aggregation[1]: got \"token_men\"; allowed: 'token_sum' or 'token_mean'; did you mean token_mean?"]),
        (("[token_sum, token_mean]", "{values: [token_sum, 1]}"), ["s.yaml:10:58: factors.reconstruction.token_aggregation.values[1]: got 1; allowed: 'token_sum' or 'token_mean'"]),
        (("[token_sum, token_mean]", "[]"), ["s.yaml:10:37: factors.reconstruction.token_aggregation: got an empty list; allowed: at least one value"]),
        (("[token_sum, token_mean]", "{values: []}"), ["s.yaml:10:46: factors.reconstruction.token_aggregation.values: got an empty list; allowed: a list of at least 1"]),
        (("[token_sum, token_mean]", "{}"), ["s.yaml:10:3: factors.reconstruction.token_aggregation: no values; allowed: `values`, `min` and `max`, or `ablate_to`"]),
        (("[token_sum, token_mean]", "token_sum"), ["s.yaml:10:37: factors.reconstruction.token_aggregation: got \"token_sum\"; allowed: a list of values or a mapping"]),
        (("[token_sum, token_mean]", "{min: 0, max: 1}"), ["s.yaml:10:3: factors.reconstruction.token_aggregation: min and max, but the baseline is \"token_sum\"; allowed: `values`"]),
        (("min: 0.5", "min: 2.5"), ["s.yaml:11:3: factors.kl.beta: got min 2.5 and max 2; allowed: min below max"]),
        (("min: 0.5, ", ""), ["s.yaml:11:3: factors.kl.beta: min and max are given together"]),
        (("min: 0.5", "values: [1], min: 0.5"), ["s.yaml:11:3: factors.kl.beta: a factor has values or a range, not both"]),
        (("min: 0.5", "min: 0, distribution: log_uniform"), ["s.yaml:11:3: factors.kl.beta: log_uniform needs a range with min > 0"]),
        (("min: 0.5", "min: -0.5"), ["s.yaml:11:18: factors.kl.beta.min: got -0.5; allowed: a number >= 0"]),
        (("min: 0.5", 'min: "0.5"'), ['s.yaml:11:18: factors.kl.beta.min: got "0.5"; allowed: a number; a quoted number is text']),
        (("min: 0.5", "minimum: 0.5"), ["s.yaml:11:13: factors.kl.beta.minimum: unknown key; allowed: ablate_to, distribution, levels, max, min, values, when"]),
        (("levels: 4", "levels: 1"), ["s.yaml:11:39: factors.kl.beta.levels: got 1; allowed: a number >= 2"]),
        (("0.5x", "-0.5x"), ["s.yaml:9:52: factors.reconstruction.*_weight.values[0]: got -0.5; allowed: a number >= 0"]),
        (("0.5x", "1e308x, 1e309x"), ["s.yaml:9:60: factors.reconstruction.*_weight.values[1]: got \"1e309x\"; too large"]),
        (("raw_weight: 1.0,", "raw_weight: 0,"), [
            "s.yaml:9:52: factors.reconstruction.*_weight.values[0]: got \"0.5x\", a multiple of the baseline, which is 0; allowed: a number",
            "s.yaml:9:58: factors.reconstruction.*_weight.values[1]: got \"1x\", a multiple of the baseline, which is 0; allowed: a number",
            "s.yaml:9:62: factors.reconstruction.*_weight.values[2]: got \"2x\", a multiple of the baseline, which is 0; allowed: a number"]),
        (("ablate_to: 0,", "ablate_to: .inf,"), ["s.yaml:9:40: factors.reconstruction.*_weight.ablate_to: got .inf; allowed: a finite number"]),
        (("ablate_to: 0,", 'ablate_to: "0",'), ['s.yaml:9:40: factors.reconstruction.*_weight.ablate_to: got "0"; allowed: a number; a quoted number is text']),
        (("levels: 4", 'when: "kl.bta > 0"'), ['s.yaml:11:37: factors.kl.beta.when: got "kl.bta > 0": kl.bta is no path of the configuration; did you mean kl.beta? (column 1 of the expression)']),
        (("levels: 4", "when: kl.beta"), ['s.yaml:11:37: factors.kl.beta.when: got "kl.beta": got 1.0 where true or false is needed']),
        # together, constraints
        (("designs:", "together: [[kl.beta]]\ndesigns:"), ["s.yaml:12:12: together[0]: one factor; allowed: at least two, which then move as one"]),
        (("designs:", "together: [[kl.beta, kl.bet]]\ndesigns:"), [f"s.yaml:12:22: together[0][1]: kl.bet matches no factor; allowed: kl.beta, {WEIGHTS}, reconstruction.token_aggregation, reconstruction.token_weighted_weight; did you mean kl.beta?"]),
        (("designs:", "together: [[kl.beta, reconstruction.token_aggregation], [kl.beta, reconstruction.raw_weight]]\ndesigns:"), [
            "s.yaml:12:57: together[1]: kl.beta is in another group already",
            "s.yaml:15:20: designs[1].one_at_a_time: factors that move together have as many levels each; got reconstruction.token_aggregation 2, kl.beta 4"]),
        (("designs:", "together: kl.beta\ndesigns:"), ["s.yaml:12:11: together: got \"kl.beta\"; allowed: a list"]),
        (("designs:", 'constraints: ["kl.beta > 2"]\ndesigns:'), ['s.yaml:12:15: constraints[0]: got "kl.beta > 2", which the baseline breaks']),
        (("designs:", 'constraints: ["kl.beta >"]\ndesigns:'), ["s.yaml:12:15: constraints[0]: got \"kl.beta >\": got the end; a number, a text, a path or '(' goes here (column 10 of the expression)"]),
        (("designs:", 'constraints: ["latent > 2"]\ndesigns:'), ['s.yaml:12:15: constraints[0]: got "latent > 2": got "continuous" where a number is needed']),
        # designs
        (("leave_one_out: reconstruction.*_weight", "leave_one_out: reconstruction.*_wieght"), [f"s.yaml:13:20: designs[0].leave_one_out: reconstruction.*_wieght matches no factor; allowed: kl.beta, {WEIGHTS}, reconstruction.token_aggregation, reconstruction.token_weighted_weight; did you mean reconstruction.raw_weight?"]),
        (("leave_one_out: reconstruction.*_weight", "leave_one_out: kl.beta"), ["s.yaml:13:20: designs[0].leave_one_out: kl.beta without `ablate_to`; leave_one_out needs one in every factor"]),
        (("- leave_one_out: reconstruction.*_weight", "- leave_out: kl.beta"), ["s.yaml:13:5: designs[0].leave_out: unknown key; allowed: add_one_in, factorial, grid, leave_group_out, leave_one_out, one_at_a_time, search; did you mean leave_one_out?"]),
        (("- leave_one_out: reconstruction.*_weight", "- leave_one_out"), ["s.yaml:13:5: designs[0]: got \"leave_one_out\"; allowed: one of leave_one_out, leave_group_out, add_one_in, one_at_a_time, grid, factorial, search, with what it ranges over"]),
        (("- leave_one_out: reconstruction.*_weight", "- {grid: kl.beta, leave_one_out: kl.beta}"), ["s.yaml:13:5: designs[0]: got 2 keys; allowed: one of leave_one_out, leave_group_out, add_one_in, one_at_a_time, grid, factorial, search, with what it ranges over"]),
        (("leave_one_out: reconstruction.*_weight", "grid:"), ["s.yaml:13:5: designs[0].grid: got null; allowed: a factor path or glob, or a list of them"]),
        (("leave_one_out: reconstruction.*_weight", "grid: 3"), ["s.yaml:13:11: designs[0].grid: got 3; allowed: text or a list"]),
        (("leave_one_out: reconstruction.*_weight", "grid: []"), ["s.yaml:13:11: designs[0].grid: got an empty list; allowed: text or a list of at least 1"]),
        (("leave_one_out: reconstruction.*_weight", "factorial: {over: '*.raw_weight'}"), ["s.yaml:13:23: designs[0].factorial.over: one factor; allowed: at least two that are not at `ablate_to` already"]),
        (("leave_one_out: reconstruction.*_weight", "factorial: {over: kl.beta}"), ["s.yaml:13:23: designs[0].factorial.over: kl.beta without `ablate_to`; factorial needs one in every factor"]),
        (("leave_one_out: reconstruction.*_weight", "factorial: {over: reconstruction.*_weight, resolution: 4}"), ["s.yaml:13:60: designs[0].factorial.resolution: got 4; allowed: 'III', 'IV', 'V' or 'VI'"]),
        (("leave_one_out: reconstruction.*_weight", "factorial: {over: reconstruction.*_weight, resolution: IV, fraction: full}"), ["s.yaml:13:5: designs[0].factorial: got resolution IV and fraction full; allowed: one of the two"]),
        (("leave_one_out: reconstruction.*_weight", "factorial: reconstruction.*_weight"), ["s.yaml:13:16: designs[0].factorial: got \"reconstruction.*_weight\"; allowed: a mapping"]),
        (("  primary: {name: eval/neg_elbo_per_token", "  gradient_cosines: 1\n  primary: {name: eval/neg_elbo_per_token"), ["s.yaml:16:21: metrics.gradient_cosines: got 1; allowed: true or false"]),
        (("leave_one_out: reconstruction.*_weight", "leave_group_out: automatic"), ["s.yaml:13:22: designs[0].leave_group_out: got \"automatic\"; allowed: 'auto' or a list"]),
        (("leave_one_out: reconstruction.*_weight", "leave_group_out: []"), ["s.yaml:13:22: designs[0].leave_group_out: got an empty list; allowed: 'auto' or a list of at least 1"]),
        (("leave_one_out: reconstruction.*_weight", "leave_group_out: [[]]"), ["s.yaml:13:23: designs[0].leave_group_out[0]: got an empty list; allowed: a list of at least 1"]),
        (("leave_one_out: reconstruction.*_weight", "leave_group_out: [reconstruction.raw_weight]"), ['s.yaml:13:23: designs[0].leave_group_out[0]: got "reconstruction.raw_weight"; allowed: a list']),
        (("leave_one_out: reconstruction.*_weight", "leave_group_out: [[reconstruction.raw_weight], [kl.bta]]"), [f"s.yaml:13:53: designs[0].leave_group_out[1][0]: kl.bta matches no factor; allowed: kl.beta, {WEIGHTS}, reconstruction.token_aggregation, reconstruction.token_weighted_weight; did you mean kl.beta?"]),
        (("leave_one_out: reconstruction.*_weight", "leave_group_out: [[kl.beta]]"), ["s.yaml:13:22: designs[0].leave_group_out: kl.beta without `ablate_to`; leave_group_out needs one in every factor"]),
        (("[token_sum, token_mean]\n", "{values: [token_sum]}\n"), []),
        (("one_at_a_time: [reconstruction.token_aggregation, kl.beta]", "one_at_a_time: kl.beta\n  - one_at_a_time: reconstruction.raw_weight"), []),
        # sections
        (("metrics:", "seeds: {count: 0}\nmetrics:"), ["s.yaml:15:16: seeds.count: got 0; allowed: a number >= 1"]),
        (("metrics:", "seeds: {count: 9999999999}\nmetrics:"), ["s.yaml:15:16: seeds.count: got 9999999999; allowed: a number <= 100000"]),
        (("metrics:", "seeds: {count: 8.5}\nmetrics:"), ["s.yaml:15:16: seeds.count: got 8.5; allowed: a whole number"]),
        (("metrics:", "seeds: {cuont: 8}\nmetrics:"), ["s.yaml:15:9: seeds.cuont: unknown key; allowed: count, start, vary; did you mean count?"]),
        (("metrics:", "seeds: {vary: [trainin]}\nmetrics:"), ["s.yaml:15:16: seeds.vary[0]: got \"trainin\"; allowed: 'training', 'data', 'split' or 'reference'; did you mean training?"]),
        (("metrics:", "controls: {aa: yes}\nmetrics:"), ['s.yaml:15:16: controls.aa: got "yes"; allowed: a whole number']),
        (("metrics:", "controls: {rescaled: 1}\nmetrics:"), ["s.yaml:15:22: controls.rescaled: got 1; allowed: true or false"]),
        (("metrics:", "run: {pack: 4}\nmetrics:"), ["s.yaml:15:13: run.pack: got 4; typed trains one trial at a time; allowed: auto, 1"]),
        (("metrics:", "run: {pack: all}\nmetrics:"), ["s.yaml:15:13: run.pack: got \"all\"; allowed: 'auto' or a whole number"]),
        (("metrics:", "run: {resources: {cpu: -1, tpu: many}}\nmetrics:"), [
            "s.yaml:15:24: run.resources.cpu: got -1; allowed: a number > 0",
            's.yaml:15:33: run.resources.tpu: got "many"; allowed: a number']),
        (("metrics:", "run:\nmetrics:"), ["s.yaml:15:1: run: got null; allowed: a mapping"]),
        (("metrics:", "analysis: {alpha: 1.5}\nmetrics:"), ["s.yaml:15:19: analysis.alpha: got 1.5; allowed: a number < 1"]),
        (("metrics:", "report: {formats: [pdf]}\nmetrics:"), ["s.yaml:15:20: report.formats[0]: got \"pdf\"; allowed: 'html', 'markdown' or 'latex'"]),
        # metrics
        (("name: eval/neg_elbo_per_token", "name: train/objective"), ["s.yaml:16:19: metrics.primary.name: got train/objective, which depends on the weights under study; allowed: a fixed metric; did you mean eval/neg_elbo_per_token?"]),
        (("sesoi: 0.02}", "sesoi: 0.02}\n  secondary: [{name: train/objective}]"), ["s.yaml:17:22: metrics.secondary[0].name: got train/objective, which depends on the weights under study; allowed: a fixed metric; did you mean eval/neg_elbo_per_token?"]),
        (("name: eval/neg_elbo_per_token", "name: eval/neg_elbo"), ['s.yaml:16:19: metrics.primary.name: got "eval/neg_elbo"; allowed: a metric of the workload; did you mean eval/neg_elbo_per_token?']),
        (("name: eval/neg_elbo_per_token", "name: accuracy"), ['s.yaml:16:19: metrics.primary.name: got "accuracy"; allowed: a metric of the workload: eval/neg_elbo_per_token, eval/nll_per_token, eval/rate_per_token, train/objective']),
        (("sesoi: 0.02}", "sesoi: 0.02}\n  secondary: [{name: eval/neg_elbo_per_token}]"), ['s.yaml:17:22: metrics.secondary[0].name: "eval/neg_elbo_per_token" is named twice']),
        (("goal: minimize", "goal: min"), ["s.yaml:16:50: metrics.primary.goal: got \"min\"; allowed: 'minimize' or 'maximize'"]),
        (("sesoi: 0.02", "sesoi: 0"), ["s.yaml:16:67: metrics.primary.sesoi: got 0; allowed: a number > 0"]),
        (("sesoi: 0.02", "at: end"), ['s.yaml:16:64: metrics.primary.at: got "end"; allowed: last or step:N']),
        (("sesoi: 0.02", "at: step:2000"), ['s.yaml:16:64: metrics.primary.at: got "step:2000"; allowed: last, or a step up to training.steps, 1000']),
        (("name: eval/neg_elbo_per_token, ", ""), ["s.yaml:16:3: metrics.primary.name: missing; this key is required"]),
        (("  primary: {name", "  primry: {name"), ["s.yaml:15:1: metrics.primary: missing; this key is required",
                                                   "s.yaml:16:3: metrics.primry: unknown key; allowed: gradient_cosines, primary, secondary; did you mean primary?"]),
    ],
)  # fmt: skip
def test_one_thing_wrong(folder, edit, messages):
    text = edited(edit)
    if messages:
        assert folder.problems(text) == messages
    else:
        folder.load(text)


ALL_OFF = "raw_weight: 0, distribution_normalized_weight: 0, example_inverse_surprisal_weight: 0, token_weighted_weight: 0, normalized_concentration_corrected_token_weighted_weight: 0, normalized_inverse_surprisal_token_weighted_weight: 0,"


def test_a_baseline_with_every_term_off(folder):
    text = edited(("raw_weight: 1.0,", ALL_OFF), ("[0.5x, 1x, 2x]", "[1, 2]"))
    assert folder.problems(text) == [
        "s.yaml:6:3: baseline.reconstruction: every weight is 0; allowed: at least one of reconstruction.*_weight above 0",
        "s.yaml:13:20: designs[0].leave_one_out: yields no arm: the baseline has every one of these factors at "
        "`ablate_to` already",
    ]


def test_a_grid_too_large_to_be_meant(folder):
    text = edited(("[0.5x, 1x, 2x]", "[0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"), ("leave_one_out:", "grid:"))
    assert folder.problems(text) == ["s.yaml:13:11: designs[0].grid: a grid of 1771561 arms; at most 1000000"]


def test_a_free_workload(folder):
    cases = {
        "rate: [.inf, .nan, [.nan]]": [
            "s.yaml:5:10: factors.rate[0]: got .inf; allowed: a finite number",
            "s.yaml:5:16: factors.rate[1]: got .nan; allowed: a finite number",
            "s.yaml:5:22: factors.rate[2]: got .nan; allowed: a finite number",
        ],
        "rate: [1]\n  dept: [2]": [
            "s.yaml:6:3: factors.dept: no path of the baseline; allowed: count, flag, hidden, name, net, rate; "
            "did you mean net.depth?"
        ],
        "count: [2x]\n  rate: {min: 1e-300, max: 1e300, distribution: log_uniform}\n  net.depth: {min: -1e308, max: 1e308}\n  hidden: [1e308x]": [],
        "rate: [0.1]": [
            "s.yaml:7:20: designs[0].one_at_a_time: yields no arm: these factors have no level but the baseline's"
        ],
    }
    for factors, messages in cases.items():
        text = edited(("rate: [0.1x, 1x, 10x]", factors), text=FREE_STUDY)
        if messages:
            assert folder.problems(text) == messages
        else:
            folder.load(text)
    huge = edited(
        ("count: 3", "count: 1" + "0" * 308), ("rate: [0.1x, 1x, 10x]", "count: [2x]\n  rate: [1x, 2]"), text=FREE_STUDY
    )
    assert folder.problems(huge) == ['s.yaml:5:11: factors.count[0]: got "2x"; too large']
    assert folder.problems(edited(("rate: 0.1,", "rate: 0.1, a.b: 1, '*': 2, '': 3,"), text=FREE_STUDY)) == [
        "s.yaml:3:23: baseline.a.b: got the key \"a.b\"; allowed: a name without '.' and '*'",
        "s.yaml:3:31: baseline.*: got the key \"*\"; allowed: a name without '.' and '*'",
        "s.yaml:3:39: baseline: got the key \"\"; allowed: a name without '.' and '*'",
    ]
    assert folder.problems(edited(("name: loss", "name: 'a,b'"), text=FREE_STUDY)) == [
        "s.yaml:8:27: metrics.primary.name: got \"a,b\"; allowed: letters, digits, '_', '-', '.', ' ', ':' and '/'"
    ]


def test_twins_need_a_place_in_the_configuration(folder):
    text = edited(("metrics:", "controls: {rescaled: true, match_scale: true}\nmetrics:"), text=FREE_STUDY)
    assert folder.problems(text) == [
        "s.yaml:8:22: controls.rescaled: got true; the workload's configuration has no reconstruction.rescale; "
        "allowed: false",
        "s.yaml:8:41: controls.match_scale: got true; the workload's configuration has no reconstruction.rescale, "
        "reconstruction.token_aggregation; allowed: false",
    ]


def test_every_problem_at_once(folder):
    text = """\
        version: 1
        study: A study
        workload: typed
        baselin: {}
        baseline:
          reconstruction: {raw_weight: .nan, token_weighted_weight: "1", zfree_reference_scale: 3}
          kl: {betta: 1, beta: -1}
        factors:
          kl.betaa: {ablate_to: 0}
          reconstruction.*_weight: {ablate_to: 0, vales: [1]}
          training.learning_rate: {min: 1e-4, max: 0.1, distribution: log}
          data.seed: [0, one]
        designs:
          - leave_one_out: kl.bta
          - grid: reconstruction.raw_weight
          - early: 3
        seeds: {count: none}
        metrics:
          primary: {name: train/objective, goal: up}
        run: {pack: 3, retries: -1}
    """
    assert folder.problems(text) == [
        's.yaml:2:8: study: got "A study"; allowed: 1 to 64 of a-z, 0-9 and -',
        f"s.yaml:4:1: baselin: unknown key; allowed: {TOP}; did you mean baseline?",
        "s.yaml:6:32: baseline.reconstruction.raw_weight: got .nan; allowed: a finite number",
        's.yaml:6:61: baseline.reconstruction.token_weighted_weight: got "1"; allowed: a number; a quoted number is text',
        "s.yaml:7:8: baseline.kl.betta: unknown key; allowed: beta, schedule, warmup_steps; did you mean beta?",
        "s.yaml:7:24: baseline.kl.beta: got -1; allowed: a number >= 0",
        "s.yaml:9:3: factors.kl.betaa: no path of the baseline; allowed: kl.beta, kl.schedule, kl.warmup_steps; "
        "did you mean kl.beta?",
        "s.yaml:10:43: factors.reconstruction.*_weight.vales: unknown key; allowed: ablate_to, distribution, levels, "
        "max, min, values, when; did you mean values?",
        "s.yaml:11:63: factors.training.learning_rate.distribution: got \"log\"; allowed: 'uniform' or 'log_uniform'",
        's.yaml:12:18: factors.data.seed[1]: got "one"; allowed: a whole number',
        "s.yaml:14:20: designs[0].leave_one_out: kl.bta matches no factor; allowed: none",
        "s.yaml:16:5: designs[2].early: unknown key; allowed: add_one_in, factorial, grid, leave_group_out, "
        "leave_one_out, one_at_a_time, search",
        's.yaml:17:16: seeds.count: got "none"; allowed: a whole number',
        "s.yaml:19:19: metrics.primary.name: got train/objective, which depends on the weights under study; "
        "allowed: a fixed metric; did you mean eval/neg_elbo_per_token?",
        "s.yaml:19:42: metrics.primary.goal: got \"up\"; allowed: 'minimize' or 'maximize'",
        "s.yaml:20:25: run.retries: got -1; allowed: a number >= 0",
    ]


def test_gradients_of_terms_need_terms(folder):
    text = FREE_STUDY.replace(
        "metrics: {primary: {name: loss}}", "metrics: {primary: {name: loss}, gradient_cosines: true}"
    )
    assert folder.problems(text) == [
        "s.yaml:8:52: metrics.gradient_cosines: got true; the workload's configuration has no reconstruction.*_weight, so no terms; allowed: false"
    ]
