package operator

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pfar/pfar/policies/passkey"
	"github.com/pfar/pfar/policies/passkey/webauthn"
)

// maxChecks is how many signatures are checked at once, each with a body of maxNames bytes at most.
const maxChecks = 8

// Signers are the operators at other machines. The zero value has nobody.
type Signers struct {
	all atomic.Pointer[[]passkey.Operator]
}

// Learn replaces them all.
func (s *Signers) Learn(all []passkey.Operator) {
	all = slices.Clone(all)
	s.all.Store(&all)
}

// find returns the zero value, who may do nothing, if no operator has the name.
func (s *Signers) find(name string) passkey.Operator {
	if all := s.all.Load(); all != nil {
		return passkey.Find(*all, name)
	}
	return passkey.Operator{}
}

// Link returns the link that opens the call of an id at their console; "": there is none. It lets nobody in: the
// console asks for a passkey first.
func (s *Signers) Link(id string) string {
	all := s.all.Load()
	if all == nil {
		return ""
	}
	console := passkey.Console(*all)
	if console == "" {
		return ""
	}
	return console + passkey.CallPath + id
}

// Signed returns a server for the passkey listener. It has the paths of HTTP, and one more:
//
//	POST /challenge  answers {"nonce": "..."}, which is good for one request within 5 minutes
//
// Any other request, unless it is a GET, needs the header Pfar-Proof: an operator's signature of this request.
func (d *Desk) Signed(s *Signers, now func() time.Time) *http.Server {
	ending, end := context.WithCancel(context.Background())
	return d.server(peersOnly(d.signed(ending, s, now)), end)
}

func (d *Desk) signed(ending context.Context, s *Signers, now func() time.Time) *signed {
	return &signed{
		mux: d.mux(ending), signers: s, nonces: passkey.NewNonces(now), checks: make(chan struct{}, maxChecks),
		log: d.Log,
	}
}

// signed passes on each GET, and the acts that an operator signed.
type signed struct {
	mux     *http.ServeMux
	signers *Signers
	nonces  *passkey.Nonces
	checks  chan struct{} // has a place for each check
	log     *slog.Logger
}

func (s *signed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodGet:
		if _, pattern := s.mux.Handler(r); pattern != "" && !reads[pattern] {
			answer(w, http.StatusForbidden, map[string]string{"error": passkey.ErrElsewhere.Error()})
			return
		}
		s.mux.ServeHTTP(w, r)
		return
	case r.Method == http.MethodPost && r.URL.Path == "/challenge":
		answer(w, http.StatusOK, map[string]string{"nonce": s.nonces.Give(r.URL.Query().Get("operator"))})
		return
	}
	by, body, no := s.check(w, r)
	if no != nil {
		answer(w, no.status, map[string]string{"error": strings.ToValidUTF8(no.text, "\uFFFD")})
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), signerKey{}, by.Name))
	r.Body = io.NopCloser(bytes.NewReader(body))
	s.mux.ServeHTTP(w, r)
}

// refusal is the answer to an act that is not passed on.
type refusal struct {
	status int
	text   string
}

var (
	unproven  = &refusal{http.StatusUnauthorized, passkey.ErrUnproven.Error()}
	stale     = &refusal{http.StatusUnauthorized, passkey.ErrStale.Error()}
	notSigned = &refusal{http.StatusUnauthorized, passkey.ErrNotSigned.Error()}
	tooLarge  = &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the request has more than %d bytes: accept "+
		"fewer definitions at once", maxNames)}
	cutOff = &refusal{http.StatusBadRequest, "the request did not arrive whole: send it again"}
)

// check finds the operator who signed a request, and reads the body. It uses up the nonce, also if it refuses.
func (s *signed) check(w http.ResponseWriter, r *http.Request) (by passkey.Operator, body []byte, no *refusal) {
	proof, ok := proofOf(r)
	if !ok {
		return by, nil, unproven
	}
	if !s.nonces.Take(proof.Nonce) {
		return by, nil, stale
	}
	s.checks <- struct{}{} // this bounds the memory of bodies that nobody signed
	defer func() { <-s.checks }()
	if body, no = whole(w, r); no != nil {
		return by, nil, no
	}
	by = s.signers.find(proof.Operator)
	act := passkey.Act{Nonce: proof.Nonce, Method: r.Method, Target: r.URL.RequestURI(), Body: body}
	if err := webauthn.Check(by, act.Challenge(), proof.Response); err != nil {
		s.warn(r, proof.Operator, err.Error())
		return passkey.Operator{}, nil, notSigned
	}
	_, pattern := s.mux.Handler(r)
	if err := lacks(by, acts[pattern]); err != nil {
		no = &refusal{http.StatusForbidden, err.Error()}
		s.warn(r, by.Name, no.text)
		return passkey.Operator{}, nil, no
	}
	return by, body, nil
}

func (s *signed) warn(r *http.Request, operator, reason string) {
	s.log.Warn("refusing an act", "operator", fmt.Sprintf("%.100q", operator), "method", fmt.Sprintf("%.20q", r.Method),
		"path", fmt.Sprintf("%.200q", r.URL.Path), "reason", reason)
}

// proofOf reads the proof that comes with a request. It is not ok if there are two.
func proofOf(r *http.Request) (p passkey.Proof, ok bool) {
	fields := r.Header.Values(passkey.ProofHeader)
	if len(fields) != 1 {
		return p, false
	}
	text, err := base64.RawURLEncoding.DecodeString(fields[0])
	if err != nil || decode(bytes.NewReader(text), &p) != nil {
		return passkey.Proof{}, false
	}
	return p, true
}

// whole reads a body of the greatest size that a handler takes. The body has as much time as the head.
func whole(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(headTime)) // only the recorders of tests have no deadlines
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxNames))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, tooLarge
	}
	if err != nil {
		return nil, cutOff
	}
	return body, nil
}

// reads are the patterns of the mux that need no signature: what the console shows. None of them starts anything.
var reads = map[string]bool{
	"GET /approvals": true, "GET /approvals/watch": true, "GET /approvals/history": true, "GET /approvals/{id}": true,
	"GET /sessions": true, "GET /sessions/{client}/{handle}": true, "GET /stains": true, "GET /grants": true,
	"GET /facts": true, "GET /notices": true, "GET /pins": true, "GET /pins/{server}": true,
}

// acts has the role for each act that can be signed. Nobody does anything else here.
var acts = map[string]passkey.Role{
	"POST /approvals/{id}/approve": passkey.Approve, "POST /approvals/{id}/deny": passkey.Approve,
	"POST /grants/{id}/revoke": passkey.Approve, "POST /grants/revoke": passkey.Approve,
	"POST /sessions":                         passkey.Approve,
	"POST /sessions/{client}/{handle}/reset": passkey.Change,
	"POST /sessions/{client}/{handle}/thaw":  passkey.Change,
	"POST /sessions/{client}/{handle}/end":   passkey.Change,
	"POST /stains/{server}/clear":            passkey.Change,
	"POST /pins/{server}/accept":             passkey.Change,
}

// lacks says why an operator may not do what needs a role; "": nobody does it from another machine. nil: the operator
// may.
func lacks(o passkey.Operator, needs passkey.Role) error {
	if needs == "" {
		return passkey.ErrElsewhere
	}
	return o.Lacks(needs)
}
