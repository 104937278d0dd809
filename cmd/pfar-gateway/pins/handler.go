package pins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxRequest bounds what is asked, in bytes: the names and digests of all definitions of a server.
const maxRequest = 4 << 20

// Handler lets the operator see and accept, in JSON. It is for the Unix socket, where the peer is the operator; by says who it is
// for the record, nil: nobody wants to know.
//
//	GET  /pins                   the status of all servers
//	GET  /pins/SERVER?name=TITLE differences and descriptors of one: of all, or of what is named, once or more often
//	POST /pins/SERVER/accept     {"names": ["search@DIGEST"]}, or {"all": true}; no name at all accepts what drifts
//	POST /pins/SERVER/forget
func Handler(s *Store, by func(*http.Request) By) http.Handler {
	if by == nil {
		by = func(*http.Request) By { return By{} }
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pins", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.Status()) })
	mux.HandleFunc("GET /pins/{server}", func(w http.ResponseWriter, r *http.Request) {
		st, err := s.Show(r.PathValue("server"), r.URL.Query()["name"]...)
		reply(w, st, err)
	})
	mux.HandleFunc("POST /pins/{server}/accept", func(w http.ResponseWriter, r *http.Request) {
		accepted, err := s.acceptRequest(by(r), r.PathValue("server"), http.MaxBytesReader(w, r.Body, maxRequest))
		reply(w, map[string][]string{"accepted": titles(accepted)}, err)
	})
	mux.HandleFunc("POST /pins/{server}/forget", func(w http.ResponseWriter, r *http.Request) {
		err := s.Forget(by(r), r.PathValue("server"))
		reply(w, map[string]bool{"forgotten": true}, err)
	})
	return mux
}

var errRequest = errors.New(`want {"names": ["search"]} or {"all": true}`)

// acceptRequest does what the body asks. That all is meant has to be said: a misspelt "names" must not mean it.
func (s *Store) acceptRequest(by By, server string, body io.Reader) ([]Verdict, error) {
	var request struct {
		Names []string `json:"names"`
		All   bool     `json:"all"`
	}
	d := json.NewDecoder(body)
	d.DisallowUnknownFields()
	if err := d.Decode(&request); err != nil {
		return nil, fmt.Errorf("reading the request: %w; %w", err, errRequest)
	}
	if _, err := d.Token(); err != io.EOF || request.All == (request.Names != nil) {
		return nil, errRequest
	}
	if !request.All && len(request.Names) == 0 {
		return nil, s.Settle(by, server)
	}
	return s.Accept(by, server, request.Names...)
}

func reply(w http.ResponseWriter, v any, err error) {
	status := http.StatusInternalServerError
	switch {
	case err == nil:
		answer(w, http.StatusOK, v)
		return
	case errors.Is(err, errRequest):
		status = http.StatusBadRequest
	case errors.Is(err, ErrUnknown):
		status = http.StatusNotFound
	case errors.Is(err, ErrRefused):
		status = http.StatusConflict
	}
	answer(w, status, map[string]string{"error": strings.ToValidUTF8(err.Error(), "\uFFFD")})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // definitions as they are
	_ = e.Encode(v)        // the client may have hung up
}
