package verify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/enforce"
	"github.com/pfar/pfar/cmd/pfar-gateway/state"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
)

// memory is what came of the last call to each server, on the disk.
type memory struct {
	db  *state.DB
	log *slog.Logger

	mu sync.Mutex
	of map[string]remembered // by server
}

// remembered is one row.
type remembered struct {
	subject string // digest of what the server is, and of which secrets it has
	is      units.Verification
}

// Open reads what is remembered.
func Open(db *state.DB, by *enforce.Point, log *slog.Logger) (*Verifier, error) {
	m := &memory{db: db, log: log, of: map[string]remembered{}}
	var name string
	var r remembered
	var at int64
	to := []any{&name, &r.subject, &r.is.Result, &r.is.Tool, &r.is.Words, &at}
	err := db.Each("SELECT server, subject, result, tool, words, at FROM verifications", to, func() error {
		r.is.At = time.Unix(0, at).UTC()
		m.of[name] = r
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading which secrets of servers were verified: %w", err)
	}
	return &Verifier{Gate: enforce.OwnCalls{Point: by}, memory: m}, nil
}

// subject is the digest of all that a verification is about.
func subject(server handover.Server, proof string) string {
	b, _ := json.Marshal([]any{server.Name, server.Program, server.Version, server.Trial, proof}) // strings
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Known returns what is remembered of these secrets, the zero value for nothing. Those that were wrong are tried again
// with each new process: the service may know them by now.
func (m *memory) Known(server handover.Server, proof string) units.Verification {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of[server.Name]
	if r.is.Result != units.Verified || r.subject != subject(server, proof) {
		return units.Verification{}
	}
	return r.is
}

// Last returns what is remembered of a server, whatever it was then.
func (m *memory) Last(server string) units.Verification {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[server].is
}

// remember writes down what came of a call. If the disk does not take it, the next start calls again.
func (m *memory) remember(server handover.Server, proof string, is units.Verification) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := remembered{subject(server, proof), is}
	m.of[server.Name] = r
	_, err := m.db.Exec(
		"INSERT OR REPLACE INTO verifications (server, subject, result, tool, words, at) VALUES (?, ?, ?, ?, ?, ?)",
		server.Name, r.subject, is.Result, is.Tool, is.Words, is.At.UnixNano())
	m.failed(server.Name, err)
}

// doubt forgets that a server's secrets were wrong: nobody knows it any more.
func (m *memory) doubt(server string) {
	if m.Last(server).Result == units.Invalid {
		m.forget(server)
	}
}

// forget forgets what was known of a server of which nothing can be known any more.
func (m *memory) forget(server string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.of[server]; !ok {
		return
	}
	delete(m.of, server)
	_, err := m.db.Exec("DELETE FROM verifications WHERE server = ?", server)
	m.failed(server, err)
}

func (m *memory) failed(server string, err error) {
	if err != nil {
		m.log.Warn(
			"writing down whether a server's secrets are right, ignoring",
			"server",
			server,
			"error",
			err.Error(),
		)
	}
}
