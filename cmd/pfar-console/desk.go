package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/pfar/pfar/cmd/pfar-console/signing"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/ask"
)

// desk speaks to the gateway over its operator socket. There the kernel tells the gateway which user this process has.
// Operators at other machines use another socket, where a passkey must sign each act.
type desk struct{ http *http.Client }

func (d desk) ask(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := ask.Within(ctx)
	defer cancel()
	if f := signing.Of(ctx); f != nil && method != http.MethodGet {
		return f.Send(ctx, d.http, method, path, body, answer)
	}
	stream, err := ask.Open(ctx, d.http, method, path, body)
	if err != nil {
		return err
	}
	defer stream.Close()
	return ask.Decode(stream, answer)
}

func (d desk) show(ctx context.Context, id string) (one operator.Shown, err error) {
	err = d.ask(ctx, http.MethodGet, "/approvals/"+id, nil, &one)
	return one, err
}

func (d desk) past(ctx context.Context) (all []operator.Past, err error) {
	err = d.ask(ctx, http.MethodGet, "/approvals/history", nil, &all)
	return all, err
}

// sessions returns all sessions, with what raised their labels.
func (d desk) sessions(ctx context.Context) (all []operator.Session, err error) {
	err = d.ask(ctx, http.MethodGet, "/sessions?sources", nil, &all)
	return all, err
}

func (d desk) stains(ctx context.Context) (all []operator.Stain, err error) {
	err = d.ask(ctx, http.MethodGet, "/stains", nil, &all)
	return all, err
}

// facts returns the facts of each tool, by which the gate decides.
func (d desk) facts(ctx context.Context) (all []operator.ToolFacts, err error) {
	err = d.ask(ctx, http.MethodGet, "/facts", nil, &all)
	return all, err
}

// notices returns the notices that the gateway sends, and whether the last of each arrived.
func (d desk) notices(ctx context.Context) (all []operator.Notice, err error) {
	err = d.ask(ctx, http.MethodGet, "/notices", nil, &all)
	return all, err
}

// pins returns which definitions wait for the owner.
func (d desk) pins(ctx context.Context) (all []operator.ServerPins, err error) {
	err = d.ask(ctx, http.MethodGet, "/pins", nil, &all)
	return all, err
}

// pinsOf has the definitions of a server that wait for the owner or that nobody has reviewed, with their texts.
func (d desk) pinsOf(ctx context.Context, server string) (p operator.ServerPins, err error) {
	err = d.ask(ctx, http.MethodGet, "/pins/"+server+"?shown", nil, &p)
	return p, err
}

// approve lets a call run once: the one that was shown, by its digest. With terms it also gives a grant.
func (d desk) approve(ctx context.Context, id, digest string, terms *operator.GrantTerms) error {
	body := struct {
		Digest string               `json:"digest"`
		Grant  *operator.GrantTerms `json:"grant,omitempty"`
	}{digest, terms}
	var answer map[string]string
	return d.ask(ctx, http.MethodPost, "/approvals/"+id+"/approve", body, &answer)
}

func (d desk) deny(ctx context.Context, id, reason string) error {
	var answer map[string]string
	return d.ask(ctx, http.MethodPost, "/approvals/"+id+"/deny", map[string]string{"reason": reason}, &answer)
}

// watch calls changed after each change of what waits, until ctx ends or the gateway hangs up.
func (d desk) watch(ctx context.Context, changed func()) error {
	stream, err := ask.Open(ctx, d.http, http.MethodGet, "/approvals/watch", nil)
	if err != nil {
		return err
	}
	defer stream.Close()
	lines := bufio.NewReader(stream)
	for {
		rest, err := lines.ReadSlice('\n') // of a line that says more than that there is one nothing is kept
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if len(rest) > 0 {
			changed()
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err != nil {
			return nil
		}
	}
}
