# Reference values for the analysis: Rscript tests/analysis/golden/reference.R > tests/analysis/golden/reference.csv
# Base R alone; the version is the first row.
base <- c(2.131, 2.054, 2.192, 2.088, 2.147, 2.011, 2.163, 2.099)
arms <- list(
  "-a" = c(2.190, 2.101, 2.260, 2.139, 2.214, 2.052, 2.233, 2.158),
  "-b" = c(2.128, 2.061, 2.187, 2.094, 2.143, 2.019, 2.160, 2.101),
  "-c" = c(2.119, 2.066, 2.170, 2.101, 2.151, 1.998, 2.184, 2.071)
)
out <- function(arm, name, value) cat(sprintf("%s,%s,%.12g\n", arm, name, value))
cat("arm,name,value\n")
cat(sprintf("R,version,%s.%s\n", R.version$major, R.version$minor))
p <- sapply(arms, function(a) t.test(a, base, paired = TRUE)$p.value)
for (arm in names(arms)) {
  a <- arms[[arm]]; d <- a - base; t <- t.test(a, base, paired = TRUE)
  out(arm, "difference", unname(t$estimate))
  out(arm, "low", t$conf.int[1]); out(arm, "high", t$conf.int[2])
  out(arm, "t", unname(t$statistic)); out(arm, "p_t", t$p.value)
  out(arm, "p_tost", max(t.test(d, mu = -0.02, alternative = "greater")$p.value,
                         t.test(d, mu = 0.02, alternative = "less")$p.value))
  out(arm, "d_z", mean(d) / sd(d))
  m <- length(d) - 1
  J <- gamma(m / 2) / (sqrt(m / 2) * gamma((m - 1) / 2))
  out(arm, "g_av", J * mean(d) / sqrt((var(a) + var(base)) / 2))
  out(arm, "correlation", cor(a, base))
}
for (i in seq_along(arms)) {
  out(names(arms)[i], "p_t_holm", p.adjust(p, "holm")[i])
  out(names(arms)[i], "p_t_bh", p.adjust(p, "BH")[i])
}
# Exact max-T over all 2^8 sign flips of whole seeds
D <- sapply(arms, function(a) a - base); n <- nrow(D)
tabs <- function(X) abs(colMeans(X)) / (apply(X, 2, sd) / sqrt(n))
signs <- as.matrix(expand.grid(rep(list(c(1, -1)), n)))
null <- t(apply(signs, 1, function(s) tabs(D * s)))
obs <- tabs(D)
centred <- apply(signs, 1, function(s) max(tabs(sweep(D, 2, colMeans(D)) * s)))
q <- quantile(centred, 0.95, type = 1, names = FALSE)
for (j in seq_along(arms)) {
  out(names(arms)[j], "p_value", mean(null[, j] >= obs[j] - 1e-12))
  out(names(arms)[j], "p_adjusted", mean(apply(null, 1, max) >= obs[j] - 1e-12))
  se <- sd(D[, j]) / sqrt(n)
  out(names(arms)[j], "low_simultaneous", mean(D[, j]) - q * se)
  out(names(arms)[j], "high_simultaneous", mean(D[, j]) + q * se)
}
# Two-way random effects without replication
y <- c(base, unlist(arms)); arm <- factor(rep(c("baseline", names(arms)), each = n)); seed <- factor(rep(1:n, 4))
ms <- summary(aov(y ~ arm + seed))[[1]][["Mean Sq"]]
out("all", "variance_arm", (ms[1] - ms[3]) / n)
out("all", "variance_seed", (ms[2] - ms[3]) / 4)
out("all", "variance_rest", ms[3])
