package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/pfar/pfar/units/control"
)

const (
	operatorTimeout = 30 * time.Second
	maxAnswer       = 96 << 20 // bytes: a server's descriptors, as they are and for people
)

// askOperator asks the gateway what only the operator may ask, and decodes its answer.
func (c *pfar) askOperator(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, operatorTimeout, fmt.Errorf("the gateway does not answer within %s", operatorTimeout))
	defer cancel()
	stream, err := c.openOperator(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer stream.Close()
	if err := json.NewDecoder(io.LimitReader(stream, maxAnswer)).Decode(answer); err != nil {
		return fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return nil
}

// operatorList asks for a list that is to be printed as a table. As JSON it prints it itself, and returns nothing. none
// is what it says of an empty one.
func operatorList[T any](ctx context.Context, c *pfar, path, none string) ([]T, error) {
	all := []T{}
	err := c.askOperator(ctx, http.MethodGet, path, nil, &all)
	switch {
	case err != nil:
		return nil, err
	case c.json():
		return nil, c.printJSON(all)
	case len(all) == 0:
		fmt.Fprintln(c.stderr, none)
	}
	return all, nil
}

// openOperator is askOperator for an answer that the caller reads, and closes.
func (c *pfar) openOperator(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	sent, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost"+path, bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	r.Close = true
	client := c.socketHTTP(c.dirs.Operator())
	resp, err := client.Do(r)
	if err = plainly(err); errors.Is(err, control.ErrDenied) {
		return nil, fail(exitDenied, "asking the gateway: %w", err).withHint("only root and members of the group pfar-admin may")
	}
	if err != nil {
		return nil, fmt.Errorf("asking the gateway: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, refusedByGateway(resp)
	}
	return resp.Body, nil
}

// refusedByGateway is the gateway's reason, as an error: a text or, where it speaks JSON-RPC, that of its error.
func refusedByGateway(resp *http.Response) error {
	var refusal struct {
		Error json.RawMessage `json:"error"`
	}
	var rpc struct {
		Message string `json:"message"`
	}
	err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&refusal)
	reason, isText := unquoted(refusal.Error)
	if err == nil && !isText && json.Unmarshal(refusal.Error, &rpc) == nil {
		reason = rpc.Message
	}
	switch {
	case reason == "":
		return fail(exitFailed, "the gateway answers %q: pfar and pfar-gateway may be of different versions", resp.Status)
	case resp.StatusCode == http.StatusNotFound:
		return fail(exitNoSuch, "%s", reason)
	case resp.StatusCode == http.StatusForbidden:
		return fail(exitDenied, "%s", reason)
	}
	return fail(exitFailed, "%s", reason)
}

// answered sends an answer and prints what has come of it.
func (c *pfar) answered(ctx context.Context, path string, body any) error {
	var answer map[string]string
	if err := c.askOperator(ctx, http.MethodPost, path, body, &answer); err != nil {
		return err
	}
	if c.json() {
		return c.printJSON(answer)
	}
	fmt.Fprintln(c.stdout, escape(answer["result"], oneLine))
	return nil
}
