package operator

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
)

// remember is what is asked to be remembered.
type remember struct {
	Seconds int              `json:"seconds"`
	Match   []approval.Match `json:"match"`
}

// approvals are the paths of what waits for a person:
//
//	GET  /approvals             what is open
//	GET  /approvals/watch       the same as one event each, and then each change, a line of JSON each
//	GET  /approvals/history     what became of the last ones
//	GET  /approvals/ID
//	POST /approvals/ID/approve  {"digest": "…", "remember": {"seconds": 3600, "match": [{"path": "/title", "glob": "Notes *"}]}}
//	POST /approvals/ID/deny     {"reason": "…"}
//	GET  /rules                 what is remembered
//	POST /rules/ID/forget
func (d *Desk) approvals(mux *http.ServeMux, ending context.Context) {
	mux.HandleFunc("GET /approvals", func(w http.ResponseWriter, _ *http.Request) {
		list := d.Approvals.List()
		for i := range list {
			d.mask(&list[i])
		}
		answer(w, http.StatusOK, list)
	})
	mux.HandleFunc("GET /approvals/watch", func(w http.ResponseWriter, r *http.Request) { d.watch(w, r, ending) })
	mux.HandleFunc("GET /approvals/history", func(w http.ResponseWriter, _ *http.Request) {
		list, err := d.Approvals.History(200)
		reply(w, list, err)
	})
	mux.HandleFunc("GET /approvals/{id}", func(w http.ResponseWriter, r *http.Request) {
		shown, err := d.Approvals.Show(r.PathValue("id"))
		d.mask(&shown)
		reply(w, shown, err)
	})
	mux.HandleFunc("POST /approvals/{id}/approve", d.approve)
	mux.HandleFunc("POST /approvals/{id}/deny", d.deny)
	mux.HandleFunc("GET /rules", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, d.Approvals.Rules()) })
	mux.HandleFunc("POST /rules/{id}/forget", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		d.act(w, r, Act{Verb: "forget-rule", Subject: id}, map[string]string{"id": id, "result": "forgotten"}, func() error { return d.Approvals.ForgetRule(id) })
	})
}

// mask takes the secrets out of what is shown.
func (d *Desk) mask(s *approval.Shown) {
	if d.Mask != nil && len(s.Arguments) > 0 {
		s.Arguments, s.Masked = d.Mask(s.Arguments)
	}
}

func (d *Desk) approve(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Digest   string    `json:"digest"`
		Remember *remember `json:"remember"`
	}
	if err := read(w, r, maxBody, &body); err != nil {
		reply(w, nil, err)
		return
	}
	a := approval.Answer{Approve: true, Digest: body.Digest}
	detail := "digest " + body.Digest
	if m := body.Remember; m != nil {
		a.Remember = &approval.Remember{For: time.Duration(min(max(m.Seconds, 0), 1<<30)) * time.Second, Match: m.Match}
		detail = fmt.Sprintf("%s, remembered for %s, %q", detail, a.Remember.For, m.Match)
	}
	id := r.PathValue("id")
	d.act(w, r, Act{Verb: "approve", Subject: id, Detail: detail}, map[string]string{"id": id, "result": "approved"}, func() error { return d.Approvals.Answer(id, a, approver(r)) })
}

// maxReason bounds what is said to the client of a denial, in bytes.
const maxReason = 500

func (d *Desk) deny(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Reason string `json:"reason"`
	}
	err := read(w, r, maxBody, &body)
	if err == nil && len(body.Reason) > maxReason {
		err = fmt.Errorf("%w: a reason has at most %d bytes", errRequest, maxReason)
	}
	if err != nil {
		reply(w, nil, err)
		return
	}
	id := r.PathValue("id")
	reason := strings.ToValidUTF8(body.Reason, "\uFFFD")
	d.act(w, r, Act{Verb: "deny", Subject: id, Detail: reason}, map[string]string{"id": id, "result": "denied"}, func() error {
		return d.Approvals.Answer(id, approval.Answer{Reason: reason}, approver(r))
	})
}

// watch sends what is open, and then what changes, until either side ends it.
func (d *Desk) watch(w http.ResponseWriter, r *http.Request, ending context.Context) {
	now, changes, stop := d.Approvals.Watch()
	defer stop()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	send := func(e approval.Event) bool {
		d.mask(&e.Approval)
		return line(w, e) == nil
	}
	for _, one := range now {
		if !send(approval.Event{Kind: one.State.String(), Approval: one}) {
			return
		}
	}
	if http.NewResponseController(w).Flush() != nil {
		return
	}
	for {
		select {
		case e, ok := <-changes:
			if !ok || !send(e) {
				return
			}
		case <-r.Context().Done():
			return
		case <-ending.Done():
			return
		}
	}
}
