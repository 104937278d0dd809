package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/flow"
	"github.com/pfar/pfar/policies/visible"
	"github.com/pfar/pfar/units/flows"
	"github.com/pfar/pfar/units/operator/ask"
)

// maxFlowAnswer bounds one answer of the gateway about flows.
const maxFlowAnswer = 96 << 20 // bytes

// flowClient gives the gateway orders about flows.
type flowClient struct{ *pfar }

// openFlows gives the gateway an order. whoever is the client in whose name it is, if the command line names none. The
// caller closes the stream of answers.
func (v flowClient) openFlows(ctx context.Context, o flows.Order, whoever string) (io.ReadCloser, error) {
	url, err := v.persona.address("/flows", whoever, "")
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Close = true
	r.Header.Set("Content-Type", "application/json")
	resp, err := v.gatewayHTTP().Do(r)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("asking the gateway: %w", plainly(err))
	case resp.StatusCode == flows.NoModel:
		defer resp.Body.Close()
		return nil, v.withoutModel(ask.Refused(resp))
	case resp.StatusCode != http.StatusOK:
		defer resp.Body.Close()
		return nil, refusedWith(ask.Refused(resp))
	}
	return resp.Body, nil
}

// askFlows gives an order that has one answer.
func (v flowClient) askFlows(ctx context.Context, o flows.Order, whoever string) (a flows.Answer, err error) {
	ctx, cancel := ask.Within(ctx)
	defer cancel()
	stream, err := v.openFlows(ctx, o, whoever)
	if err != nil {
		return a, err
	}
	defer stream.Close()
	err = json.NewDecoder(io.LimitReader(stream, maxFlowAnswer)).Decode(&a)
	if err != nil {
		err = fmt.Errorf("reading the gateway's answer: %w", err)
	}
	return a, err
}

// ofRuns gives an order about runs: without a client, the operator sees those of all.
func (v flowClient) ofRuns(ctx context.Context, o flows.Order) (flows.Answer, error) {
	return v.askFlows(ctx, o, access.Operator)
}

// nodesNow are the nodes of flows. If the gateway does not tell, there are none.
func (v flowClient) nodesNow(ctx context.Context) []flow.Node {
	whoever := access.Default
	if v.persona.client == access.Operator { // who runs no flows
		v.persona.client, v.persona.session = "", ""
	}
	a, err := v.askFlows(ctx, flows.Order{Verb: flows.Nodes}, whoever)
	if err != nil {
		return nil
	}
	return a.Nodes
}

// offeredRuns are the ids of runs.
func (v flowClient) offeredRuns(ctx context.Context) ([]string, error) {
	a, err := v.ofRuns(ctx, flows.Order{Verb: flows.List})
	var ids []string
	for _, r := range a.Runs {
		if visible.ShellSafe(r.ID) {
			ids = append(ids, completion(r.ID, strings.TrimSpace(r.Flow+" "+string(r.State))))
		}
	}
	return ids, err
}
