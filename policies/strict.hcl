# strict: the profile of clients that name no other. What is not allowed outright, a human decides.
#
# A row is about what a session has read (clean: nothing of strangers; extracted: typed values of theirs; raw: anything of
# theirs) and about what a call carries, against who may see it. It gives the verdicts for calls that only read, that can
# be undone, and that cannot. Of all rows that are about a call the strictest counts; where none is, the call is denied.

profile "strict" {
  description = "Labels decide; what would be inspected, a human decides"
  inspect     = "ask"

  #   session            data                              none       reversible  irreversible
  row "clean"            "fits"                { verdicts = ["allow",    "allow",    "ask"] }
  row "clean"            "internal to public"  { verdicts = ["inspect",  "inspect",  "ask"] } # a read carries its arguments out
  row "clean"            "sensitive to lower"  { verdicts = ["ask",      "ask",      "ask"] }

  row "extracted"        "fits, typed arguments" { verdicts = ["allow",  "allow",    "ask"] }
  row "extracted"        "fits, free text"       { verdicts = ["allow",  "inspect",  "ask"] }
  row "raw"              "fits"                { verdicts = ["allow",    "inspect",  "ask"] }

  row "extracted or raw" "internal to public"  { verdicts = ["inspect",  "inspect",  "ask"] }
  row "extracted or raw" "sensitive to lower"  { verdicts = ["ask once", "ask once", "ask once"] } # the lethal trifecta

  row "any"              "regulated to lower"  { verdicts = ["deny",     "deny",     "deny"] }
  row "any"              "secret to lower"     { verdicts = ["deny",     "deny",     "deny"] }
  row "any"              "secret-like pattern" { verdicts = ["ask",      "ask",      "ask"] }
}
