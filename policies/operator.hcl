# operator: for whoever types each call, as with pfar call. Nobody else is asked, and everything is recorded; what no policy
# allows is denied here too. A client that a model speaks through has it only for watching what strict would have done:
# nothing keeps a stranger's text from sending data out then.

profile "operator" {
  description = "A person makes each call, and is not asked again"
  inspect     = "inspect"

  #   session  data                        none       reversible  irreversible
  row "any"    "fits"                { verdicts = ["allow",    "allow",    "allow"] }
  row "any"    "internal to public"  { verdicts = ["allow",    "allow",    "allow"] }
  row "any"    "sensitive to lower"  { verdicts = ["allow",    "allow",    "allow"] }
  row "any"    "regulated to lower"  { verdicts = ["deny",     "deny",     "deny"] }
  row "any"    "secret to lower"     { verdicts = ["deny",     "deny",     "deny"] }
  row "any"    "secret-like pattern" { verdicts = ["allow",    "allow",    "allow"] }
}
