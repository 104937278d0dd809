package declaration

import (
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/block"
)

const (
	maxCapabilities    = 16 // entries, mistaken ones among them
	defaultSessions    = 16
	maxSessions        = 256
	defaultSessionIdle = 15 * time.Minute
	maxSessionIdle     = 7 * 24 * time.Hour
)

// capabilities is the value of a key that says what a server may ask of the client whose call it serves. What is not named is refused: a
// server that may run the client's model spends its owner's money, and one that may ask its user can ask for a
// password.
func (d *reader) capabilities(to *[]string) block.Value {
	words := []string{"elicitation", "roots", "sampling"}
	return func(f *block.Field) {
		seen := map[string]hcl.Range{}
		entries := d.Texts(f)
		if len(entries) > maxCapabilities {
			d.Problem(entries[maxCapabilities].At, "Too many capabilities", "client_capabilities has %d entries, and there "+
				"are %d words. Write each once.", len(entries), len(words))
			return
		}
		for _, n := range entries {
			if !slices.Contains(words, n.Text) {
				d.Problem(n.At, "Unknown capability", "%s is not one of %s, the requests that a server may send to a client. %s",
					block.QuoteName(n.Text), block.OneQuoted(words), block.Meant("Write WORD.", n.Text, words, wordsOfCapabilities()))
				continue
			}
			if first, twice := seen[n.Text]; twice {
				d.Problem(n.At, "Duplicate capability", "%s is in the list already, in line %d. Remove one of the two.",
					block.Quote(n.Text), first.Start.Line)
				continue
			}
			seen[n.Text] = n.At
			*to = append(*to, n.Text)
		}
		slices.Sort(*to)
	}
}

// sessions reads whether each client session has a process of its own.
type sessions struct {
	*launch
	sessions *Sessions
}

func (d sessions) own(f *block.Field) {
	words := []string{"shared", "own"}
	if s, ok := d.Text(f); ok && d.Among(f, s, words, wordsOfSessions()) {
		d.sessions.Own = s == "own"
	}
}

// check judges which of the keys about sessions may stand together, and with what else.
func (d sessions) check() {
	s := d.sessions
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
	d.excludes("sessions", d.server.Transport == Pipe && d.attaches(), "pfar starts no "+
		"process for a client session of a server that runs behind one pipe. Remove sessions, or write its command.")
	if d.server.Sandbox.State {
		at := d.server.Place("sandbox.state")
		d.Problem(at, "Keys that exclude each other", `state keeps one home, and sessions = "own" in line %d `+
			`starts a process for each client session: two of them would share it. Remove state, or write sessions = "shared".`,
			d.Given["sessions"].At.Start.Line)
	}
}

// sharedMeant reports whether the file means one process for all, and not a misspelt "own".
func (d sessions) sharedMeant() bool {
	f, ok := d.Given["sessions"]
	return !ok && !d.meant["sessions"] || ok && f.Val.Kind == block.Text && f.Val.Text == "shared"
}

func (d sessions) ownOnly(key, what string) {
	if f, ok := d.Given[key]; ok {
		d.Problem(f.At, "Keys that belong together",
			`%s is about %s, and this server has one process for all. Write sessions = "own", or remove %s.`, key, what, key)
	}
}
