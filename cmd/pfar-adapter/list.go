package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/drift"
	"github.com/pfar/pfar/units/handover"
)

// limits bound the output and the time of a server while pfar-adapter lists its definitions.
type limits struct {
	whole time.Duration
	probe time.Duration // of whole, for the request server/discover
	bytes int           // of its stdout in total
	pages int           // of one list
	items int           // of one list, all pages
}

// defaultLimits are the limits that the gateway has for listing a server.
func defaultLimits() limits {
	return limits{whole: 40 * time.Second, probe: 5 * time.Second, bytes: 16 << 20, pages: 256, items: 4096}
}

// list runs a server and writes a drift.Listing to the file --out: the server's definitions, or the reason why it gives
// none. It returns an error only if it cannot write the listing.
func list(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("list", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	out := f.String("out", "", "the `file` to write, which is there")
	abilities := f.String("abilities", "", "what the server may ask of clients, with commas")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() == 0 || *out == "" {
		return errors.New("usage: pfar-adapter list --out FILE [--abilities LIST] -- COMMAND [ARGUMENT...]")
	}
	client := handover.Abilities(strings.Split(*abilities, ","))
	var l drift.Listing
	found, err := listing{defaultLimits(), client, os.Stderr}.of(ctx, f.Args())
	if l.Definitions = found; err != nil {
		l = drift.Listing{Failed: err.Error()}
	}
	return write(*out, l)
}

// write writes a listing to the file that pfard has created for it. This process can create no file there.
func write(path string, l drift.Listing) error {
	text, err := json.Marshal(l)
	if err != nil || len(text) > drift.MaxListing {
		text, _ = json.Marshal(drift.Listing{Failed: "its listing is too large or cannot be encoded"})
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("writing the listing: %w", err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// listing asks a server for its tools, prompts and resources.
type listing struct {
	limits
	abilities []byte   // of this client, in JSON
	log       *os.File // gets the server's stderr
}

// of starts a server and returns its definitions, within the limits. Processes that the server leaves behind end when
// this process ends.
func (l listing) of(ctx context.Context, command []string) ([]drift.Definition, error) {
	late := fmt.Errorf("the server took longer than %s", l.whole)
	ctx, cancel := context.WithTimeoutCause(ctx, l.whole, late)
	defer cancel()
	type answer struct {
		found []drift.Definition
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		found, err := l.ask(ctx, command, true)
		if errors.Is(err, errProbe) { // some servers exit on server/discover
			found, err = l.ask(ctx, command, false)
		}
		done <- answer{found, err}
	}()
	select {
	case a := <-done:
		return a.found, a.err
	case <-ctx.Done():
		select {
		case a := <-done: // its error names the request that took too long
			return a.found, a.err
		case <-time.After(time.Second): // writing to the server blocks
			return nil, context.Cause(ctx)
		}
	}
}

func (l listing) ask(ctx context.Context, command []string, probe bool) ([]drift.Definition, error) {
	s, err := start(command, l.limits, l.log)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if err := s.agree(ctx, l.abilities, probe); err != nil {
		return nil, err
	}
	all := []drift.Definition{}
	for _, f := range forms() {
		if !s.has(f.capability) {
			continue
		}
		items, err := s.pages(ctx, f)
		// Like the gateway, accept a server that lists only its tools.
		if err != nil && (f.kind == drift.Tool || ctx.Err() != nil || s.ended()) {
			return nil, err
		}
		all = append(all, named(f, items)...)
	}
	return all, nil
}

// named returns the items that have a name, as definitions. If several have the same name, the first counts.
func named(f form, items []json.RawMessage) (list []drift.Definition) {
	seen := map[string]bool{}
	for _, raw := range items {
		var members map[string]json.RawMessage
		var name string
		if json.Unmarshal(raw, &members) != nil || json.Unmarshal(members[f.key], &name) != nil || name == "" || seen[name] {
			continue
		}
		seen[name] = true
		list = append(list, drift.Definition{Kind: f.kind, Name: name, Raw: raw})
	}
	return list
}
