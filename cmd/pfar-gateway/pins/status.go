package pins

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// ServerStatus is what is known of one server's definitions.
type ServerStatus struct {
	Server      string   `json:"server"`
	Error       string   `json:"error,omitempty"` // that its pins cannot be used; all of it is held
	Accepted    int      `json:"accepted"`        // of what it offers now
	Gone        int      `json:"gone"`            // accepted, and not offered now
	Held        []Held   `json:"held"`
	Drift       []string `json:"drift,omitempty"` // what is not as it was at the last acceptance, in words, and holds nothing back
	Descriptors []Known  `json:"descriptors,omitempty"`
}

// Held is a definition that waits for the owner.
type Held struct {
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`
	Title  string `json:"title"` // the name as Accept takes it
	State  string `json:"state"` // "new" or "changed"
	Digest string `json:"digest"`
	Diff   string `json:"diff,omitempty"` // to what was accepted
}

// Known is a definition that has been accepted.
type Known struct {
	Kind    Kind            `json:"kind"`
	Name    string          `json:"name"`
	Digest  string          `json:"digest"`
	Version string          `json:"version"` // the server's own, when it was accepted
	By      string          `json:"accepted_by"`
	At      string          `json:"accepted_at"` // RFC 3339
	Gone    bool            `json:"gone,omitempty"`
	Raw     json.RawMessage `json:"definition"`
}

// Status returns what is known of a server, with differences and descriptors if all is wanted; false if there is none.
func (s *Store) Status(server string, all bool) (ServerStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.servers[server]
	if k == nil {
		return ServerStatus{}, false
	}
	st := ServerStatus{Server: server, Held: []Held{}}
	if k.broken != nil {
		st.Error = k.broken.Error()
		return st, true
	}
	if k.file == nil {
		return st, true
	}
	st.Drift = k.file.drift()
	for _, p := range k.file.Pins {
		if p.HeldDigest != "" {
			h := Held{Kind: p.Kind, Name: p.Name, Title: p.title(), State: New.String(), Digest: p.HeldDigest}
			if p.Digest != "" {
				h.State = Changed.String()
			}
			if all {
				h.Diff = compare(h.Title, p.Raw, p.Held)
			}
			st.Held = append(st.Held, h)
		} else if p.Gone.IsZero() {
			st.Accepted++
		} else {
			st.Gone++
		}
		if all && p.Digest != "" {
			st.Descriptors = append(st.Descriptors, Known{
				Kind: p.Kind, Name: p.Name, Digest: p.Digest, Version: p.Version, By: p.By, At: p.At.Format("2006-01-02T15:04:05Z07:00"),
				Gone: !p.Gone.IsZero(), Raw: p.Raw,
			})
		}
	}
	return st, true
}

func (f *file) drift() []string {
	var list []string
	if f.Version != f.Accepted {
		list = append(list, fmt.Sprintf("version %s -> %s", visible(f.Accepted), visible(f.Version)))
	}
	if f.Program != f.Started {
		list = append(list, "its command or arguments have changed")
	}
	return list
}

// Handler lets the operator see and accept: GET /pins, GET /pins/SERVER, POST /pins/SERVER/accept with {"names": [...]}
// and POST /pins/SERVER/forget, all JSON. It is for the Unix socket, where the peer is the operator.
func Handler(s *Store) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pins", func(w http.ResponseWriter, _ *http.Request) {
		list := []ServerStatus{}
		for _, name := range s.Names() {
			if st, ok := s.Status(name, false); ok {
				list = append(list, st)
			}
		}
		answer(w, http.StatusOK, list)
	})
	mux.HandleFunc("GET /pins/{server}", func(w http.ResponseWriter, r *http.Request) {
		st, ok := s.Status(r.PathValue("server"), true)
		if !ok {
			fail(w, fmt.Errorf("server %q is %w: it has never been up", r.PathValue("server"), ErrUnknown))
			return
		}
		answer(w, http.StatusOK, st)
	})
	mux.HandleFunc("POST /pins/{server}/accept", func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Names []string `json:"names"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&body); err != nil {
			fail(w, fmt.Errorf("reading the request: %w", err))
			return
		}
		done, err := s.Accept(r.PathValue("server"), body.Names...)
		if err != nil {
			fail(w, err)
			return
		}
		titles := []string{}
		for _, v := range done {
			titles = append(titles, pinned{Kind: v.Kind, Name: v.Name}.title())
		}
		slices.Sort(titles)
		answer(w, http.StatusOK, map[string][]string{"accepted": titles})
	})
	mux.HandleFunc("POST /pins/{server}/forget", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Forget(r.PathValue("server")); err != nil {
			fail(w, err)
			return
		}
		answer(w, http.StatusOK, map[string]bool{"forgotten": true})
	})
	return mux
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have hung up
}

func fail(w http.ResponseWriter, err error) {
	status := http.StatusConflict
	if errors.Is(err, ErrUnknown) {
		status = http.StatusNotFound
	}
	answer(w, status, map[string]string{"error": strings.ToValidUTF8(err.Error(), "?")})
}
