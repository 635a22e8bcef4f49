"""Searches that a study file cannot ask for: where, what was got, what is allowed."""

# ruff: noqa: E501 - messages are one line

import pytest

from tests.spec.example import edited

SELECT = "select/neg_elbo_per_token"


def with_search(search, *edits):
    place = "  - one_at_a_time: [reconstruction.token_aggregation, kl.beta]\n"
    return edited((place, f"  - search: {search}\n"), ("workload: typed", "workload: searched"), *edits)


def problems(folder, search, *edits):
    return folder.problems(with_search(search, *edits))


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (
            "{over: kl.beta, sampler: tpee}",
            ".sampler: got \"tpee\"; allowed: 'tpe', 'gp', 'cmaes', 'nsga2', 'nsga3', 'random', 'qmc', "
            "'grid' or 'brute_force'; did you mean tpe?",
        ),
        ("{over: kl.bta}", ".over: kl.bta matches no factor; allowed: kl.beta, "),
        (
            "{over: kl.beta, objective: eval/neg_elbo_per_token}",
            ".objective: got eval/neg_elbo_per_token, which is read on the report split: what is chosen by it cannot be "
            "reported by it; did you mean select/neg_elbo_per_token?",
        ),
        (
            "{over: kl.beta, objective: select/neg_elbo}",
            '.objective: got "select/neg_elbo", which has no goal: it is the twin of no metric of the study that has '
            "one; allowed: [{name: select/neg_elbo, goal: minimize}]",
        ),
        (
            "{over: kl.beta, objective: [{name: select/neg_elbo, goal: minimize}]}",
            '.objective[0].name: got "select/neg_elbo"; allowed: select/neg_elbo_per_token, select/nll_per_token',
        ),
        (
            "{over: kl.beta, objective: [{name: train/objective}]}",
            ".objective[0].name: got train/objective, which depends on the weights under study; allowed: a fixed metric",
        ),
        (
            "{over: [kl.beta, reconstruction.token_aggregation], sampler: cmaes}",
            ": cmaes searches ranges of numbers (`min` and `max`); reconstruction.token_aggregation has values",
        ),
        ("{over: kl.beta, sampler: cmaes}", ": cmaes needs at least two factors"),
        (
            f"{{over: [kl.beta], sampler: cmaes, objective: [{{name: {SELECT}}}, {{name: select/nll_per_token}}]}}",
            ": cmaes takes one objective, got 2; allowed: tpe, gp, nsga2, nsga3, random",
        ),
        (
            "{over: [kl.beta, reconstruction.raw_weight], simplex: true}",
            ": simplex: kl.beta is no weight of a term; allowed: reconstruction.*_weight",
        ),
        (
            "{over: [reconstruction.raw_weight, reconstruction.token_weighted_weight], simplex: true}",
            ": simplex: reconstruction.distribution_normalized_weight, reconstruction.example_inverse_surprisal_weight, "
            "reconstruction.normalized_concentration_corrected_token_weighted_weight, "
            "reconstruction.normalized_inverse_surprisal_token_weighted_weight is on and not in `over`; the shares of all "
            "terms that are on add up to one",
        ),
        (
            "{over: reconstruction.*_weight, simplex: true, sampler: grid}",
            ": simplex: grid steps through levels, shares have none; allowed: any other sampler",
        ),
        ("{over: kl.beta, trials: 0}", ".trials: got 0; allowed: a number >= 1"),
        ("{over: kl.beta, confirm: {top: 0}}", ".confirm.top: got 0; allowed: a number >= 1"),
        ("{trials: 3}", ".over: missing; this key is required"),
    ],
)
def test_searches(folder, search, message):
    found = problems(folder, search)
    assert any(message in problem for problem in found), found
    assert all(problem.startswith("s.yaml:14:") for problem in found)


def test_a_simplex_with_a_fixed_zero(folder):
    found = problems(
        folder,
        "{over: reconstruction.*_weight, simplex: true}",
        ("[0.5x, 1x, 2x]}", "[0.5x, 1x, 2x]}\n  reconstruction.raw_weight: {values: [0], ablate_to: 0}"),
        ("{raw_weight: 1.0,", "{raw_weight: 0.0,"),
    )
    assert found[-1].endswith(
        "designs[1].search: simplex: reconstruction.raw_weight is fixed at 0, and a simplex gives every term in it a "
        "share; leave it out"
    )


def test_what_decides_the_measurement_is_not_searched(folder):
    found = problems(folder, "{over: data.seed}", ("  kl.beta: {", "  data.seed: [0, 1]\n  kl.beta: {"))
    assert found[0].endswith(
        "data.seed decides what the objective is measured on, so its values cannot be ranked by it; allowed in "
        "one_at_a_time, grid and factorial"
    )


def test_early_stop_has_its_reason(folder):
    stop = ("metrics:", "early_stop: {kind: asha}\nmetrics:")
    (problem,) = folder.problems(edited(stop))
    assert problem.endswith(
        "early_stop.kind: got asha, and there is no search; arms that are compared all run to their end: one that is "
        "stopped where it looks bad has no outcome, and the rest is a selection; allowed: none"
    )
    assert folder.load(with_search("{over: kl.beta}", stop)).early_stop.kind == "asha"
    several = f"{{over: kl.beta, objective: [{{name: {SELECT}}}, {{name: select/nll_per_token}}]}}"
    assert problems(folder, several, stop)[0].endswith(
        "early_stop.kind: got asha, and a search has several objectives, none of which says who is behind; allowed: none"
    )


@pytest.mark.parametrize(
    ("nuisance", "message"),
    [
        ("{over: kl.beta}", "nuisance.over: kl.beta is moved by one_at_a_time; a factor is studied or tuned, not both"),
        ("{over: training.rate}", "nuisance.over: training.rate matches no factor; allowed: "),
        ("{over: training.steps, sampler: grd}", 'nuisance.sampler: got "grd"; allowed: '),
        ("{trials: 3}", "nuisance.over: missing; this key is required"),
    ],
)
def test_nuisance(folder, nuisance, message):
    text = edited(
        ("metrics:", f"nuisance: {nuisance}\nmetrics:"),
        ("  kl.beta: {min", "  training.steps: {min: 1, max: 9}\n  kl.beta: {min"),
    )
    found = folder.problems(text)
    assert any(message in problem for problem in found), found


def test_nuisance_and_a_search_exclude_each_other(folder):
    found = problems(
        folder,
        "{over: kl.beta}",
        ("metrics:", "nuisance: {over: training.steps}\nmetrics:"),
        ("  kl.beta: {min", "  training.steps: {min: 1, max: 9}\n  kl.beta: {min"),
    )
    assert found[0].endswith("nuisance.over: search-1 proposes its own; put these factors into its `over`")


def test_what_varies_needs_a_seed_of_its_own(folder):
    (problem,) = folder.problems(edited(("metrics:", "seeds: {vary: [training, split]}\nmetrics:")))
    assert problem.endswith("seeds.vary[1]: got split; the workload's configuration has no data.split_seed")
    studied = edited(
        ("metrics:", "seeds: {vary: [data]}\nmetrics:"), ("  kl.beta: {", "  data.seed: [0, 1]\n  kl.beta: {")
    )
    (problem,) = folder.problems(studied)
    assert problem.endswith("seeds.vary[0]: got data, but data.seed is a factor of the study; allowed: one of the two")


def test_without_a_twin_the_objective_has_to_be_named(folder):
    text = """
        study: own
        workload: free
        baseline: {rate: 0.1}
        factors: {rate: {min: 0.01, max: 1}}
        designs: [{search: {over: rate}}]
        metrics: {primary: {name: loss}}
    """
    (problem,) = folder.problems(text)
    assert problem == (
        "s.yaml:6:12: designs[0].search.objective: missing; the primary metric loss has no select/ twin; name a metric "
        "that is read on a split that no result is reported on"
    )
    named = folder.load(text.replace("over: rate", "over: rate, objective: loss"))
    assert [objective.name for objective in named.designs[0].search.objectives] == ["loss"]
