package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/pfar/pfar/units/durable"
)

// stood are the placeholders that have stood for brokered secrets, which are no secrets themselves: a server that runs
// on may have any of them, and a bridge, which ends whenever it is idle, is to know them all.
type stood struct {
	log  *slog.Logger
	path string // of the file in which the next pfard finds them; "": without systemd servers end with this one

	mu sync.Mutex
	of map[string]map[string][]string // by server and variable, the latest last
}

// maxStood is how many are known of one secret: as many as a bridge takes.
const maxStood = 16

// newStood begins with what is in the file at path.
func newStood(path string, log *slog.Logger) *stood {
	s := &stood{log: log, path: path, of: map[string]map[string][]string{}}
	if path == "" {
		return s
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &s.of)
	}
	if s.of == nil {
		s.of = map[string]map[string][]string{}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("looking for former placeholders, ignoring", "error", err)
	}
	return s
}

// before takes it that a placeholder stands for a secret of a server's from now on, and returns those before it.
func (s *stood) before(server, name, placeholder string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.of[server][name]
	if n := len(all); n == 0 || all[n-1] != placeholder {
		all = append(slices.DeleteFunc(slices.Clone(all), func(p string) bool { return p == placeholder }), placeholder)
		all = all[max(0, len(all)-maxStood):]
		if s.of[server] == nil {
			s.of[server] = map[string][]string{}
		}
		s.of[server][name] = all
		s.keep()
	}
	return slices.Clone(all[:len(all)-1])
}

// forget gives up those of a server of which nothing is left.
func (s *stood) forget(server string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.of[server]; ok {
		delete(s.of, server)
		s.keep()
	}
}

// keep is called with s.mu held.
func (s *stood) keep() {
	if s.path == "" {
		return
	}
	text, err := json.Marshal(s.of)
	if err == nil {
		err = durable.Replace(s.path, text)
	}
	if err != nil {
		s.log.Warn("keeping former placeholders for the next pfard, ignoring", "error", err)
	}
}
