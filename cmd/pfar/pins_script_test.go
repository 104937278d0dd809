package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/pfar/pfar/cmd/pfar-gateway/pins"
	"github.com/pfar/pfar/units/control"
)

// scriptedGateway stands in for pfar-gateway while a command runs: gateway OFFER... -- COMMAND. Its pins are the real
// ones, kept from one run to the next, and an OFFER is a file with what a server offers.
func scriptedGateway() {
	err := runScriptedGateway(os.Args[1:])
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(99)
	}
}

func runScriptedGateway(args []string) error {
	dashes := slices.Index(args, "--")
	if dashes < 0 {
		return errors.New("want OFFER... -- COMMAND")
	}
	dirs := control.DefaultDirs(os.Getenv, os.Getuid())
	store, err := pins.Open(filepath.Join(dirs.State, "pins"), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	for _, path := range args[:dashes] {
		if err := review(store, path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dirs.Operator(), Net: "unix"})
	if err != nil {
		return err
	}
	defer l.Close() // removes the socket
	s := deskOf(store)
	defer s.Close()
	go s.Serve(l)
	command := exec.Command(args[dashes+1], args[dashes+2:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	return command.Run()
}

// review shows the store what a file says that a server offers.
func review(store *pins.Store, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var offer struct {
		Server, Version string
		Hold            bool
		Tools, Prompts  []json.RawMessage
		Instructions    json.RawMessage
	}
	if err := json.Unmarshal(b, &offer); err != nil {
		return err
	}
	o := pins.Offer{Server: offer.Server, Version: offer.Version, TrustFirst: !offer.Hold}
	add := func(kind pins.Kind, list []json.RawMessage) {
		for _, raw := range list {
			var named struct{ Name string }
			_ = json.Unmarshal(raw, &named)
			o.Definitions = append(o.Definitions, pins.Definition{Kind: kind, Name: named.Name, Raw: raw})
		}
	}
	add(pins.Tool, offer.Tools)
	add(pins.Prompt, offer.Prompts)
	if offer.Instructions != nil {
		o.Definitions = append(o.Definitions, pins.Definition{Kind: pins.Instructions, Name: "instructions", Raw: offer.Instructions})
	}
	return store.Review(o).Broken
}
