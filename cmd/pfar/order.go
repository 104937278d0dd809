package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/operator/ask"
)

// flowOrders gives orders about flows to the gateway, in the name of a declared client: never as the operator.
type flowOrders struct{ *pfar }

// maxOrderLine bounds one line of an answer, in bytes.
const maxOrderLine = 64 << 20

// who is the client and the session that orders are given for.
func (o flowOrders) who() (client, session string, err error) {
	if _, err := o.persona.endpoint(""); err != nil {
		return "", "", err
	}
	client = cmp.Or(o.persona.client, access.Default)
	if client == access.Operator {
		return "", "", errOperator
	}
	return client, cmp.Or(o.persona.session, access.DefaultSession), nil
}

// each gives an order, and passes on each line of the answer until one is an error.
func (o flowOrders) each(ctx context.Context, order flows.Order, take func(flows.Answer) error) error {
	client, session, err := o.who()
	if err != nil {
		return err
	}
	path := "/flows/" + client + "/" + session
	body, err := ask.Open(ctx, o.gatewayHTTP(), http.MethodPost, path, order)
	if err != nil {
		return o.refused(err)
	}
	defer body.Close()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxOrderLine)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var a flows.Answer
		if err := json.Unmarshal(lines.Bytes(), &a); err != nil {
			return fmt.Errorf("reading the gateway's answer: %w", err)
		}
		if err := take(a); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("reading the gateway's answer: %w", err))
	}
	return ctx.Err()
}

// refused is the error of an order that the gateway does not carry out.
func (o flowOrders) refused(err error) error {
	no, is := errors.AsType[*ask.Refusal](err)
	switch {
	case !is:
		return err
	case no.Status == flows.NoModel:
		example := fmt.Sprintf("write %s, for example:\n\n%s", filepath.Join(o.dirs.Models(), "main.hcl"), modelExample)
		return fail(exitFailed, "%s", no.Reason).withHint("%s", example)
	}
	return refusedWith(no)
}

// one gives an order whose answer is one line.
func (o flowOrders) one(ctx context.Context, order flows.Order) (answer flows.Answer, err error) {
	err = o.each(ctx, order, func(a flows.Answer) error {
		answer = a
		return io.EOF
	})
	switch {
	case err == nil:
		return answer, errors.New("the gateway gave no answer")
	case errors.Is(err, io.EOF):
		return answer, nil
	}
	return answer, err
}
