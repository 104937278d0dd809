package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/pfar/pfar/policies/jsontext"
	"github.com/pfar/pfar/units/operator"
	"github.com/pfar/pfar/units/operator/ask"
)

// waitingOf are the calls of one client that wait: the first ones, and how many there are beside these.
type waitingOf struct {
	client string
	calls  []operator.Shown
	left   int
}

// What the page of waiting calls takes of them. The gateway lets fewer wait; if one was taken over, the page and this
// process stay small.
const (
	maxClients  = 100                // that have calls
	maxOfClient = maxFirst + maxMore // calls of one
	maxWaiting  = 24 << 20           // bytes of all calls, as the gateway sends them
)

var errFlood error = &ask.Refusal{Reason: "more calls wait than the console can read; run pfar approvals"}

// list returns the calls that wait, each client where its first call is, and how many clients there are beside these.
// It decodes only what a page shows: to decode ten thousand calls takes a fifth of a second.
func (d desk) list(ctx context.Context) (all []waitingOf, left int, err error) {
	ctx, cancel := ask.Within(ctx)
	defer cancel()
	stream, err := ask.Open(ctx, d.http, http.MethodGet, "/approvals", nil)
	if err != nil {
		return nil, 0, err
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, maxWaiting+1))
	if err == nil && len(text) > maxWaiting {
		err = errFlood
	}
	if err != nil {
		return nil, 0, fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return waitingIn(text)
}

// waitingIn reads a list of operator.Shown in JSON.
func waitingIn(text []byte) (all []waitingOf, left int, err error) {
	at, others := map[string]int{}, map[string]bool{}
	err = eachElement(text, func(element []byte) error {
		client, err := memberOf(element, "client")
		if err != nil {
			return err
		}
		i, known := at[client]
		switch {
		case !known && len(all) == maxClients:
			if len(others) < maxOthers {
				others[client] = true
			}
			return nil
		case !known:
			i, at[client] = len(all), len(all)
			all = append(all, waitingOf{client: client})
		}
		if len(all[i].calls) == maxOfClient {
			all[i].left++
			return nil
		}
		var call operator.Shown
		if err := json.Unmarshal(element, &call); err != nil {
			return err
		}
		all[i].calls = append(all[i].calls, call)
		return nil
	})
	if err != nil {
		err = fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return all, len(others), err
}

// maxOthers is up to which number clients are counted that a page does not show.
const maxOthers = 1000

// eachElement calls f with each element of an array in JSON; null is an empty one.
func eachElement(text []byte, f func(element []byte) error) error {
	var r jsontext.Reader
	r.Reset(text)
	t, err := r.Next()
	if err != nil || t.Kind == 'n' {
		return err
	}
	if t.Kind != '[' {
		return errors.New("the answer is not a list")
	}
	for {
		t, err := r.Next()
		if err != nil || t.Kind == ']' {
			return err
		}
		end, _, err := r.Skip(t)
		if err != nil {
			return err
		}
		if err := f(text[t.Start:end]); err != nil {
			return err
		}
	}
}

// memberOf returns a member of an object in JSON that is a string; "": there is none. It reads no further than to that.
func memberOf(text []byte, name string) (string, error) {
	var r jsontext.Reader
	r.Reset(text)
	defer r.Close()
	t, err := r.Next()
	if err == nil && t.Kind != '{' {
		err = errors.New("the answer is not a list of objects")
	}
	for err == nil {
		if t, err = r.Next(); err != nil || t.Kind == '}' {
			break
		}
		wanted := string(text[t.Start:t.End]) == `"`+name+`"`
		if t, err = r.Next(); err != nil {
			break
		}
		if wanted && t.Kind == '"' {
			return strings.Clone(r.Text(t)), nil
		}
		_, _, err = r.Skip(t)
	}
	return "", err
}
