package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	classes "github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/policies/inspector"
)

// maxChat bounds the answer of an API as JSON, in bytes: inspector.MaxSaid of it may be escaped.
const maxChat = 4 << 20

// say has the model of the plan answer a prompt. What it says is the answer; why it says nothing is told in words of
// pfar's, which quote neither the prompt nor the host.
func (m *model) say(ctx context.Context, asked []byte) ([]byte, error) {
	text, failed := m.said(ctx, asked)
	if failed != nil {
		class, err := json.Marshal(failed.Failure)
		if err != nil {
			return nil, err
		}
		return json.Marshal(inspector.Said{Error: failed.Error(), Failure: class})
	}
	return json.Marshal(inspector.Said{Text: text})
}

func (m *model) said(ctx context.Context, asked []byte) (string, *classes.Error) {
	fails := func(class classes.Class, err error) (string, *classes.Error) {
		return "", classes.As(class, m.Name, err)
	}
	if m.lacks != nil {
		return fails(classes.Unauthorized, m.lacks)
	}
	var p inspector.Prompt
	if json.Unmarshal(asked, &p) != nil {
		return fails(classes.Schema, errors.New("the gateway and pfar-egress are not of the same version"))
	}
	if err := p.Check(m.External); err != nil {
		return fails(classes.Schema, err)
	}
	resp, body, err := m.complete(ctx, m.prompt(p), maxChat)
	if err != nil {
		return fails(classOfError(err), err)
	}
	if resp.StatusCode != http.StatusOK {
		_, failed := fails(classes.OfStatus(resp.StatusCode), fmt.Errorf("the API answers %d", resp.StatusCode))
		failed.Status = resp.StatusCode
		if after := retryAfter(resp.Header.Get("Retry-After"), time.Now()); after > 0 {
			failed.After = int64((after + time.Second - 1) / time.Second)
		}
		return "", failed
	}
	text, err := choice(body)
	switch {
	case errors.Is(err, errLength):
		err = fmt.Errorf("the answer is longer than max_tokens of the model %q allows", m.Name)
	case err != nil: // else it is quoted
		err = errors.New("the answer is not one whole text of a model")
	case len(text) > inspector.MaxSaid:
		err = fmt.Errorf("the answer has more than %d bytes", inspector.MaxSaid)
	}
	if err != nil {
		return fails(classes.Schema, err)
	}
	return string(text), nil
}

// prompt is what the API is asked.
func (m *model) prompt(p inspector.Prompt) chat {
	c := chat{Model: m.Model, MaxTokens: m.Chat.Tokens}
	if p.Tokens > 0 {
		c.MaxTokens = min(p.Tokens, c.MaxTokens)
	}
	if p.Temperature != nil {
		c.Temperature = *p.Temperature
	}
	if p.Object {
		c.Format = map[string]string{"type": "json_object"}
	}
	for _, one := range p.Messages {
		c.Messages = append(c.Messages, message{one.Role, one.Text})
	}
	return c
}

// classOfError is the class of an error of complete.
func classOfError(err error) classes.Class {
	var certificate *tls.CertificateVerificationError
	var alert tls.AlertError
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &certificate), errors.As(err, &alert), errors.As(err, &header):
		return classes.TLS
	case errors.Is(err, errSlow), errors.Is(err, context.DeadlineExceeded):
		return classes.Timeout
	case errors.Is(err, errLarge):
		return classes.Schema
	}
	return classes.NetworkError
}
