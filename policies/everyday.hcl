# everyday: for desktop clients that a person works with all day. Each row below allows more than balanced does, for the
# reason that it gives; pfar-policies(5) lists the same rows. All other rows are those of balanced.
#
# It never allows more for a session that has read strangers' text or typed values: there a stranger may have chosen the
# call and its arguments. It never allows more for a call that changes anything, for regulated or secret data, and for
# arguments that look like a secret.

profile "everyday" {
  description = "As balanced, and a session that has read no stranger may look things up without a question"
  base        = "balanced"

  row "clean" "sensitive to lower" {
    verdicts = ["inspect", "ask", "ask"]
    relax    = "No stranger has had a say: the person and the model alone chose what a search or a page request carries."
  }
}
