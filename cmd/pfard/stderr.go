package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"

	"github.com/pfar/pfar/policies/redact"
	"github.com/pfar/pfar/units/attach"
)

const (
	cutMark  = " [cut]"
	maxNamed = 100 // secrets in one answer, for it is one packet
)

// searcher is what launchers have what their servers write to stderr searched by. All secrets are looked for in it,
// whosever they are.
func (r *redaction) searcher(log *slog.Logger) attach.Searcher {
	return func(text []byte, cut bool) ([]byte, attach.Found) {
		set := r.known()
		found := attach.Found{Behind: min(set.Longest(), attach.MaxBehind)}
		all := make([]byte, 0, len(text))
		for more := true; more; {
			var line []byte
			line, text, more = bytes.Cut(text, []byte("\n"))
			line, hits := r.line(log, set, line, !cut || more)
			if all = append(all, line...); more {
				all = append(all, '\n')
			}
			for _, h := range hits {
				if len(found.Secrets) < maxNamed && !slices.Contains(found.Secrets, h.Name) {
					found.Secrets = append(found.Secrets, h.Name)
				}
			}
		}
		return all, found
	}
}

// line is one of a server's as it may be logged, but for its control characters: without secrets, and cut to
// attach.MaxLine bytes.
func (r *redaction) line(log *slog.Logger, set *redact.Set, line []byte, whole bool) ([]byte, []redact.Hit) {
	r.searching.Lock()
	defer r.searching.Unlock()
	return guarded(log, func() ([]byte, []redact.Hit) {
		if most := attach.MaxLine + min(set.Longest(), attach.MaxBehind); len(line) > most { // the rest has no part in what is logged
			line, whole = line[:most], false
		}
		line, hits := set.Replace(line)
		if !whole { // what begins there may be a part of one
			line = line[:max(0, len(line)-set.Longest())]
		}
		cut := len(line) > 2*attach.MaxLine // what Strip removes may reach behind MaxLine, but costs time
		text := redact.Strip(string(line[:min(len(line), 2*attach.MaxLine)]))
		if cut || !whole || len(text) > attach.MaxLine {
			text = text[:min(len(text), attach.MaxLine)] + cutMark
		}
		return []byte(text), hits
	})
}

const withheldMark = "[withheld: it cannot be searched for secrets]"

// guarded keeps a mistake in the search of what a stranger wrote from ending pfard.
func guarded(log *slog.Logger, search func() ([]byte, []redact.Hit)) (clean []byte, hits []redact.Hit) {
	defer func() {
		if p := recover(); p != nil {
			log.Error("searching what a server wrote for secrets; it is withheld", "error", fmt.Sprint(p))
			clean, hits = []byte(withheldMark), nil
		}
	}()
	return search()
}
