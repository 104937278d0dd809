package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/pfar/pfar/units/control"
	"github.com/pfar/pfar/units/operator/ask"
)

// askOperator asks the gateway what only the operator may ask, and decodes its answer.
func (c *pfar) askOperator(ctx context.Context, method, path string, body, answer any) error {
	ctx, cancel := ask.Within(ctx)
	defer cancel()
	stream, err := c.openOperator(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer stream.Close()
	return ask.Decode(stream, answer)
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
	stream, err := ask.Open(ctx, c.socketHTTP(c.dirs.Operator()), method, path, body)
	if refusal, ok := errors.AsType[*ask.Refusal](err); ok {
		return nil, refusedWith(refusal)
	}
	if err = plainly(err); errors.Is(err, control.ErrDenied) {
		return nil, fail(exitDenied, "asking the gateway: %w", err).
			withHint("only root and members of the group pfar-admin may")
	}
	if err != nil {
		return nil, fmt.Errorf("asking the gateway: %w", err)
	}
	return stream, nil
}

// refusedWith is the gateway's refusal, as an error of a verb.
func refusedWith(r *ask.Refusal) error {
	code := exitFailed
	switch {
	case r.Reason == "":
		return fail(exitFailed, "%w: pfar and pfar-gateway may be of different versions", r)
	case r.Status == http.StatusNotFound:
		code = exitNoSuch
	case r.Status == http.StatusForbidden:
		code = exitDenied
	}
	return fail(code, "%s", r.Reason)
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
