package main

import (
	"fmt"
	"io"
	"net/http"
)

// closedIdle is net/http's error for a kept connection that the server had closed before the request was written
// (transport.go, errServerClosedIdle, which is not exported).
const closedIdle = "http: server closed idle connection"

// resend is a transport that sends a request again if the server had closed the kept connection before. net/http does
// so for methods without effect alone. Here it is safe for each: net/http gives this error only if the end of the
// connection was read before the request was counted as under way, so no byte of it reached a server.
type resend struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (r resend) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.Transport.RoundTrip(request)
	if err == nil || err.Error() != closedIdle || request.GetBody == nil {
		return response, err
	}
	r.CloseIdleConnections() // the others are of the same server
	again := request.Clone(request.Context())
	if again.Body, err = request.GetBody(); err != nil {
		return nil, err
	}
	response, err = r.Transport.RoundTrip(again)
	if err != nil && err.Error() == closedIdle { // a server that accepts and closes
		return nil, fmt.Errorf("%s: %w", closedIdle, io.EOF)
	}
	return response, err
}
