package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/pfar/pfar/policies/inspector"
)

// noticeIdle is how long a process waits for the next notice: calls that wait come seldom.
const noticeIdle = 5 * time.Second

// tell sends one notice. Its answer says in words for the owner why that failed, if it did.
func (m *model) tell(ctx context.Context, waiting []byte) ([]byte, error) {
	var told inspector.Told
	if err := m.post(ctx, waiting); err != nil {
		told.Error = err.Error()
	}
	return json.Marshal(told)
}

// post sends a notice to the host of the declaration. Its errors quote neither the address, which may contain the key,
// nor the host's answer.
func (m *model) post(ctx context.Context, waiting []byte) error {
	if m.lacks != nil {
		return m.lacks
	}
	var w inspector.Waiting
	if err := json.Unmarshal(waiting, &w); err != nil || w.Version != 1 || w.Count < 1 {
		return errors.New("the gateway and pfar-egress are not of the same version")
	}
	address, bearer := m.Address(m.key)
	body, kind := written(w, m.Notice.Format)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address of the notice cannot be asked")
	}
	r.Header.Set("Content-Type", kind)
	if m.Notice.Format == inspector.Ntfy {
		r.Header.Set("Title", w.Title())
		if link := w.Link(); link != "" { // opens when somebody taps the notice
			r.Header.Set("Click", link)
		}
	}
	if bearer {
		r.Header.Set("Authorization", "Bearer "+m.key)
	}
	resp, err := m.client.Do(r)
	if err != nil {
		return unquoted(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the host answers %d", resp.StatusCode)
	}
	return nil
}

// written is the body of a notice, and its media type.
func written(w inspector.Waiting, format string) (body []byte, kind string) {
	if format == inspector.Ntfy {
		return []byte(w.Text()), "text/plain; charset=utf-8"
	}
	body, _ = json.Marshal(struct { // strings and numbers
		Text string `json:"text"` // which programs for chats show
		inspector.Waiting
	}{strings.Join([]string{w.Title(), w.Text()}, "\n"), w})
	return body, "application/json"
}
