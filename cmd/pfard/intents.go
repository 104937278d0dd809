package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/durable"
)

// intents are what is to become of each server, for a pfard that is started again while the servers stay: files in a
// directory that does not outlive the machine's run, so that what somebody stopped starts with the machine. The zero
// value keeps none: without systemd nothing outlives pfard.
type intents struct {
	dir     string
	log     *slog.Logger
	written map[string]intent
}

// intent is one server's.
type intent struct {
	Word   string `json:"word"` // digest of the declaration
	Run    bool   `json:"run"`
	Asleep bool   `json:"asleep,omitempty"` // until a call wants it
	Renew  bool   `json:"renew,omitempty"`  // it runs with an earlier value of a secret
	Given  string `json:"given,omitempty"`  // server.given

	stay
}

// stay is a server's state, and since when it is in it.
type stay struct {
	State control.State `json:"state,omitempty"`
	PID   int           `json:"pid,omitempty"`   // of the launcher: another one's state is another stay
	Since time.Duration `json:"since,omitempty"` // after the boot
}

func newIntents(dir string, log *slog.Logger) (intents, error) {
	return intents{dir: dir, log: log, written: map[string]intent{}}, os.MkdirAll(dir, 0o700)
}

func (n intents) file(server string) string { return filepath.Join(n.dir, server+".json") }

// keep writes down what is to become of a server, before anything is done about it.
func (n intents) keep(s *server) {
	if n.dir == "" || s.want == nil {
		return
	}
	now := intent{s.word, s.run, s.asleep, s.renew == renewalDue, s.given, s.stay()}
	if n.written[s.name] == now {
		return
	}
	text, err := json.Marshal(now)
	if err == nil {
		err = durable.Replace(n.file(s.name), text)
	}
	if err != nil {
		n.log.Warn("remembering whether a server is to run, ignoring", "server", s.name, "error", err)
		return
	}
	n.written[s.name] = now
}

func (n intents) forget(server string) {
	if n.dir == "" {
		return
	}
	delete(n.written, server)
	if err := os.Remove(n.file(server)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.log.Warn("forgetting a server, ignoring", "server", server, "error", err)
	}
}

// servers are those of which something is kept.
func (n intents) servers() (names []string) {
	if n.dir == "" {
		return nil
	}
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		n.log.Warn("looking for servers that were removed, ignoring", "error", err)
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if ok && !strings.HasPrefix(name, ".") {
			names = append(names, name)
		} else {
			_ = os.Remove(filepath.Join(n.dir, e.Name())) // of a pfard that was killed as it wrote
		}
	}
	return names
}

func (n intents) read(server string) (i intent, ok bool) {
	text, err := os.ReadFile(n.file(server))
	if n.dir == "" || err != nil {
		return i, false
	}
	return i, json.Unmarshal(text, &i) == nil
}
