package operator

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/pfar/pfar/cmd/pfar-gateway/approval"
	"github.com/pfar/pfar/cmd/pfar-gateway/grant"
	"github.com/pfar/pfar/units/operator"
)

// approvals are the paths of what waits for a person:
//
//	GET  /approvals             what is open
//	GET  /approvals/watch       the same as one event each, and then each change, a line of JSON each
//	GET  /approvals/history     what became of the last ones
//	GET  /approvals/ID
//	POST /approvals/ID/approve  {"digest": "…", "grant": {"seconds": 1800, "calls": 20, "bytes": 4096}}
//	POST /approvals/ID/deny     {"reason": "…"}
func (d *Desk) approvals(mux *http.ServeMux, ending context.Context) {
	mux.HandleFunc("GET /approvals", func(w http.ResponseWriter, _ *http.Request) {
		list := d.Approvals.List()
		for i := range list {
			d.prepare(&list[i])
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
		d.prepare(&shown)
		reply(w, shown, err)
	})
	mux.HandleFunc("POST /approvals/{id}/approve", d.approve)
	mux.HandleFunc("POST /approvals/{id}/deny", d.deny)
}

// prepare says which grants can be given with what is shown, and takes the secrets out of it.
func (d *Desk) prepare(s *approval.Shown) {
	if d.Grants != nil && s.State == approval.Pending {
		s.Grants = d.Grants.Offers(&s.Request)
	}
	if d.Mask != nil && len(s.Arguments) > 0 {
		s.Arguments, s.Masked = d.Mask(s.Arguments)
	}
}

func (d *Desk) approve(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Digest string               `json:"digest"`
		Grant  *operator.GrantTerms `json:"grant"`
	}
	if err := read(w, r, maxBody, &body); err != nil {
		reply(w, nil, err)
		return
	}
	id, by := r.PathValue("id"), approver(r)
	done := map[string]string{"id": id, "result": "approved"}
	detail := "digest " + body.Digest
	if g := body.Grant; g != nil {
		detail = fmt.Sprintf("%s, granted with terms %+v", detail, *g)
	}
	d.act(w, r, Act{Verb: "approve", Subject: id, Detail: detail}, done, func() error {
		var draft *grant.Draft
		if body.Grant != nil {
			var err error
			if draft, err = d.draft(id, *body.Grant, by); err != nil {
				return err
			}
			done["grant"] = draft.ID
		}
		err := d.Approvals.Answer(id, approval.Answer{Approve: true, Digest: body.Digest}, by)
		if err == nil && draft != nil {
			err = d.Grants.Add(draft)
		}
		return err
	})
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
		d.prepare(&e.Approval)
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

// grants are the paths of what is allowed beforehand:
//
//	GET  /grants
//	POST /grants/ID/revoke
//	POST /grants/revoke     all of them
func (d *Desk) grants(mux *http.ServeMux) {
	mux.HandleFunc("GET /grants", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, d.Grants.List())
	})
	mux.HandleFunc("POST /grants/{id}/revoke", func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("id")
		d.revoke(w, r, id, func() error { return d.Grants.Revoke(id) })
	})
	mux.HandleFunc("POST /grants/revoke", func(w http.ResponseWriter, r *http.Request) {
		d.revoke(w, r, "all", func() error { d.Grants.RevokeAll(); return nil })
	})
}

func (d *Desk) revoke(w http.ResponseWriter, r *http.Request, subject string, do func() error) {
	d.act(w, r, Act{Verb: "revoke-grant", Subject: subject}, map[string]string{"id": subject, "result": "revoked"}, do)
}

// draft is the grant that is to be given with the approval of a call.
func (d *Desk) draft(id string, t operator.GrantTerms, by approval.Approver) (*grant.Draft, error) {
	if d.Grants == nil {
		return nil, fmt.Errorf("%w: nothing is granted here", grant.ErrRefused)
	}
	shown, err := d.Approvals.Show(id)
	if err != nil {
		return nil, err
	}
	return d.Grants.Draft(&shown.Request, t, by)
}
