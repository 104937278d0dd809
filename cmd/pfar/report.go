package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/pfar/pfar/units/control"
)

// report asks pfard for all that it knows.
func (c *pfar) report(ctx context.Context) (control.Report, error) {
	r, err := c.control().Do(ctx, control.Request{Verb: control.Status})
	if err != nil {
		return control.Report{}, err
	}
	if r.Status == nil {
		return control.Report{}, errors.New("pfard answered without a report: pfar and pfard may be of different versions")
	}
	return *r.Status, nil
}

// serverNamed asks for all that pfard knows, and finds a server in it.
func serverNamed(ctx context.Context, c *pfar, name string) (report control.Report, s control.Server, err error) {
	if report, err = c.report(ctx); err == nil {
		s, err = findServer(report, name)
	}
	return report, s, err
}

func findServer(report control.Report, name string) (control.Server, error) {
	var names []string
	for _, s := range report.Servers {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return control.Server{}, noSuchServer(name, names)
}

// describe says a server's state in a few words: "running, 24 tools".
func describe(s control.Server) string {
	words, more := string(s.State), detail(s)
	if s.State == control.Running {
		count := fmt.Sprintf("%d tools", s.Tools)
		if s.Tools == 1 {
			count = "1 tool"
		}
		if rest, ok := strings.CutPrefix(more, count); ok { // the status line says it, as systemctl status shows it
			return words + ", " + count + rest
		}
		words += ", " + count
	}
	switch {
	case strings.HasPrefix(more+" ", words+" "): // "back-off 5s after crash 2 of 3: ..."
		return more
	case more != "":
		return words + ": " + more
	}
	return words
}

// detail is what the table says of a server beyond its state.
func detail(s control.Server) string {
	var parts []string
	for _, p := range []string{s.Detail, s.LastRefusal} {
		if p != "" && (len(parts) == 0 || parts[0] != p) {
			parts = append(parts, p)
		}
	}
	if s.Stale {
		parts = append(parts, "its file is broken: the last good version is in force")
	}
	return strings.Join(parts, "; ")
}

// place is where a server is that pfar does not start: its host, or its socket or FIFOs. "": pfar starts it.
func place(r control.Reach) string {
	if u, err := url.Parse(r.URL); err == nil && u.Host != "" {
		return u.Host
	}
	return r.Attached
}

func stateColour(s control.State) string {
	switch s {
	case control.Running:
		return green
	case control.Failed, control.CredentialInvalid:
		return red
	case control.BackOff, control.Offline, control.NeedsLogin, control.Waiting, control.Fetching:
		return yellow
	}
	return ""
}

// diagnosticText is a diagnostic with its source line, as pfard rendered it or, failing that, in one line.
func diagnosticText(d control.Diagnostic) string {
	if d.Text != "" {
		return escape(d.Text, keepLines)
	}
	s := fmt.Sprintf("%s:%d:%d: %s: %s", d.File, d.Line, d.Column, d.Severity, d.Summary)
	if d.Detail != "" {
		s += "; " + d.Detail
	}
	return escape(s, keepLines)
}

func (c *pfar) offeredServers(ctx context.Context) ([]string, error) {
	report, err := c.report(ctx)
	var names []string
	for _, s := range report.Servers {
		names = append(names, completion(s.Name, describe(s)))
	}
	return names, err
}

// askTimeout bounds the question where the running pfard has its files; one that hangs must not keep check from
// checking.
const askTimeout = 3 * time.Second
