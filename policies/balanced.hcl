# balanced: the table of strict, where inspectors may answer instead of a human. Missing, slow or failing, they do not.
#
# Inspectors do not answer where strangers' words or values and internal data have met and the audience is public: they
# know neither the data nor all encodings of it.

profile "balanced" {
  description = "As strict, but what inspectors find nothing in passes"
  base        = "strict"
  inspect     = "inspect"

  row "extracted or raw" "internal to public" { verdicts = ["ask", "ask", "ask"] }
}
