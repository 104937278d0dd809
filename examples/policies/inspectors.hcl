# Two inspectors beside the built-in one. What one of them flags, or does not answer about, a client of the profile does not get;
# what it sends waits for a person.

# A program: examples/inspectors/words. Each question is a process in a sandbox, without a network.
inspector "words" {
  exec    = ["/usr/local/lib/pfar/words", "project[ -]?falcon", "for internal use"]
  timeout = "2s"
}

# A model on this machine, behind an API like OpenAI's.
inspector "llm" {
  url       = "http://127.0.0.1:11434/v1/chat/completions"
  model     = "llama-guard3"
  direction = "results"
  parallel  = 2
}

# One elsewhere would have a key: pfar vault set llm
#   url = "https://api.example.com/v1/chat/completions"
#   key = "vault:llm"

profile "strict" { inspectors = ["words"] }

profile "balanced" { inspectors = ["words", "llm"] }
