package declaration

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/nearest"
)

const (
	maxCapabilities    = 16 // entries, mistaken ones among them
	defaultSessions    = 16
	maxSessions        = 256
	defaultSessionIdle = 15 * time.Minute
	maxSessionIdle     = 7 * 24 * time.Hour
)

// clientCapabilities reads what a server may ask of the client whose call it serves. What is not named is refused: a
// server that may run the client's model spends its owner's money, and one that may ask its user can ask for a
// password.
func (d *decoder) clientCapabilities(f *field) {
	words := []string{"elicitation", "roots", "sampling"}
	others := map[string]string{
		"elicit": "elicitation", "ask": "elicitation", "input": "elicitation", "form": "elicitation", "user": "elicitation",
		"root": "roots", "folders": "roots", "directories": "roots", "workspace": "roots",
		"sample": "sampling", "model": "sampling", "llm": "sampling", "completion": "sampling", "createmessage": "sampling",
	}
	seen := map[string]hcl.Range{}
	entries := d.texts(f)
	if len(entries) > maxCapabilities {
		d.report(problem(entries[maxCapabilities].rng, "Too many capabilities", "client_capabilities has %d entries, and there are %d words. Write each once.", len(entries), len(words)))
		return
	}
	for _, n := range entries {
		if !slices.Contains(words, n.text) {
			d.report(problem(n.rng, "Unknown capability", "%s", capabilityFault(n.text, words, others)))
			continue
		}
		if first, twice := seen[n.text]; twice {
			d.report(problem(n.rng, "Duplicate capability", "%s is in the list already, in line %d. Remove one of the two.", quote(n.text), first.Start.Line))
			continue
		}
		seen[n.text] = n.rng
		d.server.Capabilities = append(d.server.Capabilities, n.text)
	}
	slices.Sort(d.server.Capabilities)
}

func capabilityFault(s string, words []string, others map[string]string) string {
	best := others[strings.ToLower(s)]
	if best == "" {
		best = nearest.Keyword(strings.ToLower(s), words)
	}
	hint := "Write one of them."
	if best != "" {
		hint = "Write " + strconv.Quote(best) + "."
	}
	var all []string
	for _, w := range words {
		all = append(all, strconv.Quote(w))
	}
	return quoteName(s) + " is none of " + oneOf(all) + ", which are all that a server may ask of a client. " + hint
}

func (d *decoder) sessions(f *field) {
	others := map[string]string{
		"session": "own", "per-session": "own", "per_session": "own", "single": "own", "private": "own", "separate": "own", "isolated": "own", "dedicated": "own", "each": "own",
		"share": "shared", "common": "shared", "one": "shared", "global": "shared", "all": "shared",
	}
	if s, ok := d.enum(f, []string{"shared", "own"}, others); ok {
		d.server.Sessions.Own = s == "own"
	}
}

func (d *decoder) sessionsMax(f *field) {
	if v, ok := d.integer(f, 1, maxSessions); ok {
		d.server.Sessions.Max = int(v)
	}
}

func (d *decoder) sessionIdle(f *field) {
	if v, ok := d.duration(f, time.Second, maxSessionIdle, false); ok {
		d.server.Sessions.Idle = v
	}
}

func (d *decoder) pins(f *field) {
	others := map[string]string{
		"tofu": "trust-first", "trust": "trust-first", "trust_first": "trust-first", "first": "trust-first", "trust-on-first-use": "trust-first", "accept": "trust-first", "auto": "trust-first",
		"held": "hold", "ask": "hold", "manual": "hold", "review": "hold", "strict": "hold", "quarantine": "hold", "deny": "hold",
	}
	if s, ok := d.enum(f, []string{string(TrustFirst), string(Hold)}, others); ok {
		d.server.Pins = Pins(s)
	}
}

// checkSessions judges which of the keys about sessions may stand together, and with what else.
func (d *decoder) checkSessions() {
	s := &d.server.Sessions
	if !s.Own {
		if d.sharedMeant() {
			d.ownOnly("sessions_max", "the processes of single client sessions")
			d.ownOnly("session_idle", "the process of a single client session")
		}
		*s = Sessions{}
		return
	}
	if s.Max == 0 {
		s.Max = defaultSessions
	}
	if s.Idle == 0 {
		s.Idle = defaultSessionIdle
	}
	d.excludes("sessions", d.server.Transport != Stdio, "pfar starts no process for a client session of a server with the transport "+strconv.Quote(string(d.server.Transport))+`. Remove sessions, or write transport = "stdio".`)
	if d.server.Sandbox.State {
		at := d.server.Place("sandbox.state")
		d.report(problem(at, "Keys that exclude each other", `state keeps one home, and sessions = "own" in line %d starts a process for each client session: two of them would share it. Remove state, or write sessions = "shared".`, d.given["sessions"].rng.Start.Line))
	}
}

// sharedMeant reports whether the file means one process for all, and not a misspelt "own".
func (d *decoder) sharedMeant() bool {
	f, ok := d.given["sessions"]
	return !ok && !d.meant["sessions"] || ok && f.val.kind == text && f.val.text == "shared"
}

func (d *decoder) ownOnly(key, what string) {
	if f, ok := d.given[key]; ok {
		d.report(problem(f.rng, "Keys that belong together", `%s is about %s, and this server has one process for all. Write sessions = "own", or remove %s.`, key, what, key))
	}
}
