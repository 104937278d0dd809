package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// greet meets a gateway that was restarted, and knows nothing of the session stale, with the client's own initialize,
// whose answer the client has seen already.
func (b *bridge) greet(ctx context.Context, stale string) error {
	b.greeting.Lock()
	defer b.greeting.Unlock()
	b.mu.Lock()
	now, hello := b.session, b.hello
	b.mu.Unlock()
	switch {
	case now != "" && now != stale: // another request has met it meanwhile
		return nil
	case hello == nil:
		return errSessionGone
	}
	response, err := b.bare(ctx, http.MethodPost, string(hello), "")
	if err != nil {
		return reached(err)
	}
	io.Copy(io.Discard, io.LimitReader(response.Body, maxMessage))
	response.Body.Close()
	session := response.Header.Get(mcp.HeaderSessionID)
	if response.StatusCode != http.StatusOK || session == "" {
		return fmt.Errorf("%w and answered %s to a new one", errSessionGone, response.Status)
	}
	b.mu.Lock()
	b.session = session
	b.mu.Unlock()
	response, err = b.bare(ctx, http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "")
	if err != nil {
		return reached(err)
	}
	return response.Body.Close()
}

// bare sends a request of the bridge's own.
func (b *bridge) bare(ctx context.Context, method, body, lastEvent string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, b.endpoint, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodGet {
		request.Header.Set("Accept", "text/event-stream")
	}
	if lastEvent != "" {
		request.Header.Set(mcp.HeaderLastEventID, lastEvent)
	}
	var m message
	if json.Unmarshal([]byte(body), &m) != nil || m.Method != string(mcp.MethodInitialize) {
		b.setHeaders(request, m)
	}
	return b.http.Do(request)
}

// listenOnce opens the stream of what the gateway says unasked, such as notifications/tools/list_changed.
func (b *bridge) listenOnce(ctx context.Context) {
	b.mu.Lock()
	already := b.greeted
	b.greeted = true
	b.mu.Unlock()
	if !already {
		go b.listen(ctx)
	}
}

// errNoStream says that the gateway offers no stream of its own.
var errNoStream = errors.New("no stream")

// listen keeps the stream open, also over a restart of the gateway. Nothing tells when it is back, so each attempt that
// fails makes the next wait longer.
func (b *bridge) listen(ctx context.Context) {
	wait, lastEvent := firstReconnect, ""
	for {
		opened, err := b.stream(ctx, &lastEvent)
		if errors.Is(err, errNoStream) {
			return
		}
		if opened {
			wait = firstReconnect
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = min(2*wait, maxReconnect)
	}
}

// stream reads one stream to its end, and reports whether it was opened.
func (b *bridge) stream(ctx context.Context, lastEvent *string) (opened bool, err error) {
	response, err := b.bare(ctx, http.MethodGet, "", *lastEvent)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	switch {
	case response.StatusCode == http.StatusMethodNotAllowed:
		return false, errNoStream
	case response.StatusCode == http.StatusNotFound:
		*lastEvent = ""
		return false, b.greet(ctx, response.Request.Header.Get(mcp.HeaderSessionID))
	case response.StatusCode != http.StatusOK || mediaType != "text/event-stream":
		return false, nil
	}
	return true, readEvents(response.Body, func(e event) {
		if e.id != "" {
			*lastEvent = e.id
		}
		if len(e.data) > 0 {
			b.write(e.data)
		}
	})
}

// end tells the gateway that the session is over.
func (b *bridge) end(ctx context.Context) {
	b.mu.Lock()
	session := b.session
	b.mu.Unlock()
	if session == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	if response, err := b.bare(ctx, http.MethodDelete, "", ""); err == nil {
		response.Body.Close()
	}
}
